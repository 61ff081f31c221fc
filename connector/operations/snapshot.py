"""Reads all sinks of a pipeline at one epoch: the consistent view that the newest version of one table can't give.

For every epoch that is in all sinks, the coordinator log says how each sink is read as of that epoch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from connector.config import DeltaPlace, DeltaSink, KafkaTopicSink, PipelineConfig, S3ObjectsSink, load
from connector.display import Line, Page, Shown
from connector.engine.coordinator_log import Log
from connector.engine.decoders import decoders
from connector.engine.outputs import s3_objects
from connector.source.records import no_records
from connector.spark.in_use import shared_session
from connector.spark.session import SAFE, isolated
from sinks.delta.commit import PipelineCommits
from sinks.delta.metadata import CommitMetadata
from sinks.delta.shape import ZONE
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, LakelockError
from sinks.kafka import Clients, spark_reader
from sinks.objects.layout import columns_in_folders, format_of
from sinks.offsets import Offsets
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier, zone_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


log = logging.getLogger("lakelock.objects")


@dataclass(frozen=True, repr=False)
class Snapshot(Shown, Mapping[str, "DataFrame"]):
    """Sink -> its rows as of the epoch.

    Sinks are named by their place: the path or name of a table, ``s3://...`` for objects (read through S3A),
    ``kafka:...`` for a topic. Custom sinks aren't read.
    """

    pipeline: str
    epoch: int
    offsets: Offsets
    """The next offsets of the topics. The snapshot has every record before them."""
    read_to: datetime | None
    """The snapshot has every record that Kafka held at this time."""
    opened: Mapping[str, Callable[[], DataFrame]]
    sql: Mapping[str, str]
    """Per table, a query that gives the same rows in any Spark or in Databricks."""
    objects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Per bucket, the URLs of the objects."""

    def page(self) -> Page:
        """The epoch, and what to read of each sink."""
        lines = [Line("epoch", f"{self.epoch} of {self.pipeline}, next {self.offsets.to_json()}")]
        lines += [Line("table", query) for query in self.sql.values()]
        return Page([*lines, *(Line("object", url) for urls in self.objects.values() for url in urls)])

    def __getitem__(self, sink: str) -> DataFrame:
        return self.opened[sink]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.opened)

    def __len__(self) -> int:
        return len(self.opened)


def snapshot(spark: SparkSession, file: str | Path, epoch: int | None = None) -> Snapshot:
    """All sinks of a pipeline file at one epoch; if none is given, at the last one that is in all of them.

    Raises ConfigurationError if there is no such epoch.

    >>> snapshot(spark, "pipeline.yaml")["lake/accounts"].show()  # doctest: +SKIP
    """
    return snapshot_of(load(file), spark, epoch)


def snapshot_of(config: PipelineConfig, spark: SparkSession, epoch: int | None) -> Snapshot:
    """The same as ``snapshot``, for a pipeline file that is loaded already. Raises ConfigurationError."""
    if not config.two_phase:
        return _of_one_table(config, spark, epoch)
    place = config.coordinator
    assert place is not None
    entries = Log(spark, path=place.folder, name=place.table, pipeline=config.name, run="")
    done = entries.done(epoch)
    if done is None:
        raise _no_epoch(config, epoch, f"the coordinator log {entries.label!r}")
    opened: dict[str, Callable[[], DataFrame]] = {}
    sql: dict[str, str] = {}
    objects: dict[str, Sequence[str]] = {}
    sinks = {sink.place: sink for sink in config.sinks}
    if config.route is not None:
        sinks = {name: config.routed(name).sinks[0] for name in done.reads}
    for name, sink in sinks.items():
        reads = done.reads.get(name)
        if reads is None:
            raise ConfigurationError(f"{sink.place} was no sink of the pipeline yet at epoch {done.epoch.number}.")
        if isinstance(sink, DeltaPlace):
            if "version" not in reads:
                raise ConfigurationError(
                    f"{sink.place} is merged on read, and no version of it is that of epoch {done.epoch.number}: it "
                    "has what was folded.",
                    hint="connector.read(spark, FILE, VALUE) has the current rows of one table.",
                )
            table = DeltaTable(spark, path=sink.folder, name=sink.table)
            _refuse_another(sink.place, reads, _id_at(reads, table, config), "version")
            sql[sink.place] = f"SELECT * FROM {table.sql} VERSION AS OF {int(reads['version'])}"
            opened[sink.place] = partial(spark.sql, sql[sink.place])
        elif isinstance(sink, S3ObjectsSink):
            stored = s3_objects(spark, sink, pipeline=config.name)
            zones = {stored.url(entry["key"]): entry["zone"] for entry in stored.objects(done.epoch.number)}
            objects[sink.place] = list(zones)
            then = config.spark_options.get(ZONE, SAFE[ZONE])
            opened[sink.place] = partial(_objects, spark, sink, zones, then, partial(_columns, config, spark, sink))
        elif isinstance(sink, KafkaTopicSink):
            _refuse_another(sink.place, reads, _id_of(sink.topic, config), "offsets")
            opened[sink.place] = partial(_messages, spark, config, reads["ends"])
    stands = done.epoch
    return Snapshot(config.name, stands.number, stands.offsets, stands.read_to, opened, sql, objects)


def _refuse_another(place: str, reads: Mapping[str, Any], now: str, what: str) -> None:
    """Raises ConfigurationError if the sink is another one of the same name: its versions or offsets start anew.

    ``now``: its id. An entry of an earlier version of Lakelock has none of a table.
    """
    then = reads.get("id")
    if then and then != now:
        now_is = f"its id is {now}" if now else "there is none now"
        raise ConfigurationError(
            f"{place} was removed, or recreated under its name ({now_is}, and was {then}). The coordinator log has the "
            f"{what} of the old one.",
            hint="Take the snapshot of an epoch that was committed since, or restore the old one from a backup.",
        )


def _id_at(reads: Mapping[str, Any], table: DeltaTable, config: PipelineConfig) -> str:
    """Delta's id of the table with this version. CREATE OR REPLACE gives it another one, and its versions go on."""
    if not reads.get("id"):
        return ""  # an entry of an earlier version, which has nothing to compare
    if reads["id"] == table.id:
        return table.id
    commits = PipelineCommits(table, pipeline=config.name, topics=config.source.topics)
    own = commits.at(int(reads["version"]))
    return own.metadata.table if own is not None and own.metadata.table else table.id


def _id_of(topic: str, config: PipelineConfig) -> str:
    """The id of a sink's topic now. Raises BrokerUnreachable, SinkError."""
    from sinks.topic.target import Target

    with closing(Clients(config.source.sink_options, group=config.group)) as clients:
        return Target(topic, clients).id()


def snapshot_here(
    config: PipelineConfig, spark: SparkSession | None, epoch: int | None, *, debug: bool = False
) -> Snapshot:
    """The same with this session, or the active one. Without one, a session is started, and the snapshot opens nothing:
    its DataFrames would end with that session.
    """
    from pyspark.sql import SparkSession

    active = spark if spark is not None else SparkSession.getActiveSession()
    if active is not None:
        return snapshot_of(config, active, epoch)
    with shared_session(config.spark_options, name=f"snapshot {config.name}", s3=config.on_s3, debug=debug) as own:
        found = snapshot_of(config, own, epoch)
        return replace(found, opened=dict.fromkeys(found, _no_session))


def _no_session() -> DataFrame:
    raise ConfigurationError(
        "No Spark session is active, and a DataFrame needs one that stays.",
        hint="Start a session and take the snapshot again, or read the tables by the queries in `snapshot.sql`.",
    )


def _columns(config: PipelineConfig, spark: SparkSession, sink: S3ObjectsSink) -> StructType | None:
    """The columns that the pipeline gives the sink. None: this session can't tell, which is logged."""
    from pyspark.errors import PySparkException

    try:
        with isolated(spark) as own:
            tables = {
                number: DeltaTable(own, path=each.folder, name=each.table)
                for number, each in enumerate(config.sinks)
                if isinstance(each, DeltaSink)
            }
            return decoders(config, own, tables)[config.sinks.index(sink)](no_records(own)).schema
    except (LakelockError, PySparkException) as error:
        said = error.message if isinstance(error, LakelockError) else problem(error)
        log.warning(
            "%s: the types of its columns aren't known here (%s). Partition columns are read as text, and those of "
            "JSON lines by what their values look like.",
            sink.place,
            said,
        )
        return None


def _objects(
    spark: SparkSession,
    sink: S3ObjectsSink,
    zones: Mapping[str, str | None],
    then: str,
    columns: Callable[[], StructType | None],
) -> DataFrame:
    """The rows of these objects, by the sink's columns. The session needs S3A's jars and credentials.

    ``zones``: the objects' URLs, each with the time zone of the timestamps in its folders' names; ``then``: that of the
    runs of an earlier version, whose objects have None.
    """
    groups = _as_they_lie(sink, zones, then)
    known = columns()
    if known is None:
        known = _in_all(groups, _reader(spark, sink))
    elif None in zones.values():
        _tell_of_the_zone(sink, known, zones, then, now=str(spark.conf.get(ZONE)))
    # Without this mode, a JSON value of another type is null.
    reader = _reader(spark, sink).schema(known).option("mode", "FAILFAST")
    read = [_loaded(lie.format, urls, reader.option("timeZone", lie.zone)) for lie, urls in groups.items()]
    # A folder may name a column that the sink has no more. Spark would guess its type, for each group by itself.
    names = [identifier(column.name) for column in known]
    return reduce(lambda one, other: one.union(other), [rows.selectExpr(*names) for rows in read])


def _reader(spark: SparkSession, sink: S3ObjectsSink) -> DataFrameReader:
    """A reader of its own for each use: an option of it stays for all that it reads later."""
    reader = spark.read.option("basePath", sink.place.replace("s3://", "s3a://", 1))
    # Arrow has written the objects, with dates as they are. Spark 3.5 and some sites take old ones for shifted.
    reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
    settings = {"endpoint": sink.endpoint, "endpoint.region": sink.region}
    for name, value in {**settings, "path.style.access": "true" if sink.path_style else None}.items():
        if value is not None:
            reader = reader.option(f"fs.s3a.{name}", value)
    return reader


class _Lie(NamedTuple):
    """How objects lie in the bucket. The file may have said otherwise when they were written."""

    zone: str
    format: str
    folders: tuple[str, ...]
    """The columns that their folders name."""


def _as_they_lie(sink: S3ObjectsSink, zones: Mapping[str, str | None], then: str) -> dict[_Lie, list[str]]:
    """The URLs for S3A, in groups of which each is one read: Spark reads no object beside folders of partitions, and
    refuses folders of several columns' names.
    """
    groups: dict[_Lie, list[str]] = {} if zones else {_Lie(then, sink.format, ()): []}
    for url, zone in zones.items():
        key = url.removeprefix(sink.place)
        lie = _Lie(then if zone is None else zone, format_of(key) or sink.format, columns_in_folders(key))
        groups.setdefault(lie, []).append(url.replace("s3://", "s3a://", 1))
    return groups


def _in_all(groups: Mapping[_Lie, list[str]], reader: DataFrameReader) -> StructType:
    """The columns that the objects have, and those that only folders name, as text. Of two formats Parquet tells the
    types."""
    from pyspark.sql.types import StringType, StructField, StructType

    # Else Spark guesses the types of what folders say, so that 007 would be 7. Not every object has every column.
    reader = reader.option("recursiveFileLookup", "true").option("mergeSchema", "true").option("prefersDecimal", "true")
    found: dict[str, StructField] = {}
    for kind in sorted({lie.format for lie in groups}, reverse=True):
        urls = [url for lie, each in groups.items() if lie.format == kind for url in each]
        for column in _loaded(kind, urls, reader).schema:
            found.setdefault(column.name.lower(), column)
    for name in (name for lie in groups for name in lie.folders):
        found.setdefault(name.lower(), StructField(name, StringType()))
    return StructType(list(found.values()))


def _loaded(kind: str, urls: list[str], reader: DataFrameReader) -> DataFrame:
    return reader.parquet(*urls) if kind == "parquet" else reader.json(urls)


def _tell_of_the_zone(
    sink: S3ObjectsSink, columns: StructType, zones: Mapping[str, str | None], then: str, *, now: str
) -> None:
    """Warn where the times of an earlier version's folders are in a zone that nothing tells. ``now``: the session's."""
    from pyspark.sql.types import TimestampType

    earlier = (url.removeprefix(sink.place) for url, zone in zones.items() if zone is None)
    partitions = {name.lower() for key in earlier for name in columns_in_folders(key)}
    of_time = [each.name for each in columns if each.name.lower() in partitions and each.dataType == TimestampType()]
    if of_time and zone_name(then) != zone_name(now):
        log.warning(
            "%s: an earlier version of Lakelock didn't note in which time zone it wrote %s into the names of folders. "
            "It is read as %s. If these runs had another zone, say it in a copy of the file, as spark: {%s: %s}.",
            sink.place, ", ".join(of_time), then, ZONE, now,
        )  # fmt: skip


def _messages(spark: SparkSession, config: PipelineConfig, ends: Mapping[str, Mapping[str, int]]) -> DataFrame:
    """The records up to ``ends``, with the columns of Spark's Kafka source."""
    # Spark wants an end of every partition that it reads, and the topic may have got some since.
    assigned = {topic: [int(partition) for partition in partitions] for topic, partitions in ends.items()}
    return (
        spark_reader(spark, config.source.kafka_options)
        .option("assign", json.dumps(assigned))
        .option("includeHeaders", "true")
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def _of_one_table(config: PipelineConfig, spark: SparkSession, epoch: int | None) -> Snapshot:
    sink = config.sinks[0]
    assert isinstance(sink, DeltaPlace)
    table = DeltaTable(spark, path=sink.folder, name=sink.table)
    commits = PipelineCommits(table, pipeline=config.name, topics=config.source.topics)
    for commit, metadata in commits.lineage():
        if epoch in (None, metadata.epoch) and commits.is_own(commit.version, metadata):
            _refuse_weaker(sink.place, metadata)
            sql = f"SELECT * FROM {table.sql} VERSION AS OF {commit.version}"
            where = {sink.place: sql}
            return Snapshot(
                config.name,
                metadata.epoch,
                metadata.offsets,
                metadata.position.read_to,
                {sink.place: partial(spark.sql, sql)},
                where,
            )
    raise _no_epoch(config, epoch, f"the history of {table.label!r}")


def _refuse_weaker(place: str, metadata: CommitMetadata) -> None:
    """Raises ConfigurationError if the epoch only says where a consumer group began: its batches are no epochs, so the
    version that it left lacks all of them.
    """
    delivery = metadata.position.delivery
    if delivery != "transactional":
        raise ConfigurationError(
            f"{place} was written by delivery: {delivery} from epoch {metadata.epoch} on, which keeps no offsets with "
            "its rows. Nothing says which version of the table is that of an epoch.",
            hint="lakelock.read(spark, FILE) gives the rows of the newest version. A snapshot wants delivery: "
            "transactional.",
        )


def _no_epoch(config: PipelineConfig, epoch: int | None, where: str) -> ConfigurationError:
    wanted = "no epoch" if epoch is None else f"no epoch {epoch}"
    return ConfigurationError(
        f"There is {wanted} of pipeline {config.name!r} in {where}.",
        hint="`lakelock history FILE` shows those that are known; an epoch in doubt is settled by the next run, or by "
        "`lakelock recover FILE`.",
    )
