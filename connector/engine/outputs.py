"""What a pipeline is made of, put together from its file: for each sink how records become its rows, and the sink."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from connector.config import (
    CustomSink,
    DeltaAggregateSink,
    DeltaSink,
    DeltaUpsertSink,
    KafkaTopicSink,
    PipelineConfig,
    S3ObjectsSink,
)
from connector.decode.registry.newest import NewestSchemas
from connector.derive import as_is, derive
from connector.derive.derivation import Derivation, TableDerivation
from connector.derive.layout import laid_out, refuse_of_databricks
from connector.engine.custom_sink import custom_sink
from connector.engine.decoders import Decoder, declared_comments, decoders
from connector.engine.output import NoTable, Output
from connector.spark.compat import is_connect
from connector.spark.session import isolated
from sinks.contract import TwoPhaseSink
from sinks.delta import limits
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.kept_deletes import forgotten
from sinks.delta.layout import NO_LAYOUT, Layout
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.refusals import append_only
from sinks.delta.shape import holds_changes
from sinks.delta.staged_options import StagedOptions
from sinks.delta.table import DeltaTable
from sinks.delta.taken_back import TakesBack
from sinks.delta.two_phase import TwoPhaseDelta
from sinks.delta.version_columns import left_out
from sinks.errors import UnknownSchema
from sinks.spark.cached import merging
from sinks.spark.limits import Limit, of_partition
from sinks.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sinks.objects import S3Objects

log = logging.getLogger("lakelock.delta")


@dataclass(frozen=True)
class Table:
    """One Delta table of a pipeline."""

    decode: Decoder
    derivation: TableDerivation
    table: DeltaTable
    commits: PipelineCommits
    schema: Mapping[str, str] = field(default_factory=dict)
    """Properties with the schema that was inferred for the table. Every run has to find the same ones."""
    layout: Layout = NO_LAYOUT
    """What the table gets when it is made, as its sink says."""

    @classmethod
    def of(cls, config: PipelineConfig, table: DeltaTable, decode: Decoder, rows: DataFrame) -> Table:
        """The table of a pipeline with one sink. ``rows``: none, as the sink gets them. Raises ConfigurationError."""
        sink = config.sinks[0]
        assert isinstance(sink, DeltaSink)
        commits = commits_of(config, table)
        schema = config.inferred.properties if config.inferred is not None else {}
        derivation = derive(config, table, commits, rows)
        refuse_of_databricks(sink, table.spark)
        carried, declared = derivation.of_records.carried, declared_comments(config, decode)
        layout = laid_out(sink, derivation.columns, carried, declared, zone=_zone(table))
        return cls(decode, derivation, table, commits, schema, layout)

    def in_session(self, spark: SparkSession, config: PipelineConfig, rows: DataFrame) -> Table:
        """The same table in another session, by the same decoder: neither a registry nor a schema file is read again.

        ``rows``: none, as the sink gets them.
        """
        merging(spark, staged=False)
        it = self.table
        table = DeltaTable(spark, path=it.path, name=it.name, label=it.label, on_new_column=config.on_new_column)
        return Table.of(config, table, self.decode, rows)

    @property
    def label(self) -> str:
        """The table's name or path, for messages."""
        return self.table.label

    @property
    def location(self) -> str:
        """Where the table's files are."""
        return self.table.location if self.table.was_there() else self.table.path or ""

    @property
    def exists(self) -> bool:
        """Whether there is a table, or was when the run began."""
        return self.table.was_there()

    def ready(self) -> None:
        """Make the table, unless it is there. Raises SchemaMismatch, NotADeltaTable."""
        detail = self.table.detail() if self.table.was_there() else None
        different = self.layout.differences(detail) if detail is not None else ()
        if different:
            log.warning("%r was made with another layout, and stays as it is: %s", self.label, "; ".join(different))
        if detail is None:
            shape = self.derivation.shape.properties  # a table that a person makes gets it with its first run
            self.table.create(self.derivation.columns, self._whole_layout.with_properties(shape))
        self.derivation.prepare_table(self._checked())
        self.derivation.shape.keep(self.table)
        self.table.allow_widening(self.derivation.columns)
        if self.derivation.tombstones is not None:
            self.derivation.tombstones.note_expired()
        self._take_over_deletes()

    def _take_over_deletes(self) -> None:
        """In a clone without an epoch of its own: copy the deletes that its source remembers.

        Each copy is one commit, before the first epoch. A crash before that leaves the clone as it was, and the next
        run copies what is missing.
        """
        tombstones, position = self.derivation.tombstones, self.commits.position()
        if tombstones is None or position is None or position.source == "commit":
            return
        found = self.commits.cloned_from()
        if found is None or (found[0] and position.delivery != "transactional"):
            log.warning(
                "%r is a clone, and the deletes that its source remembers can't be taken over. An update that arrives "
                "late, and is older than its key's delete, brings the row back.",
                self.label,
            )
            forgotten(self.table)
            return
        sources, epoch = found
        for source in sources:
            tombstones.take_over(source, position, epoch)

    def check(self) -> bool:
        """Whether it is there; raises SchemaMismatch where it doesn't take the rows."""
        if self.table.detail() is None:
            return False
        self._checked()
        return True

    def _checked(self) -> Sequence[str]:
        """The columns that the table gets before the first epoch. Raises SchemaMismatch."""
        detail, made = self.table.detail(), self.derivation
        assert detail is not None
        for name, value in self.schema.items():
            if detail.properties.get(name) != value:
                raise UnknownSchema(
                    f"Another run has made the table {self.label!r} meanwhile, by another schema ({name}). Nothing was "
                    "written.",
                    hint="Run it again: it reads the records by the table's schema.",
                )
        there = self.table.schema
        made.shape.check_fields(self.label, there, made.columns)
        added = made.check()
        if detail.append_only and not isinstance(made.sink, DeltaAppend):
            raise append_only(self.label, "the pipeline changes rows")
        zone, records = _zone(self.table), made.of_records
        faults = [
            *limits.faults(detail, self._demanding, made.columns, records.carried, zone=zone),
            *limits.faults_of_sql(detail, self.table, made.columns, records, zone=zone),
            *left_out(there, made.columns),
            *made.shape.rounded_keys(there, made.columns),
        ]
        self.table.check(detail, made.columns, faults, required=made.required, added=added)
        made.shape.check(self.table, begun=self._begun)
        if made.tombstones is not None:
            made.tombstones.refuse_renamed(counts=lambda: self._begun() or holds_changes(self.table))
        return added

    def _begun(self) -> bool:
        """Whether records were written to the table, which may have left no row. After a rewind to the beginning none
        were."""
        position = self.commits.position()
        return position is not None and (position.delivery != "transactional" or position.offsets != position.since)

    def unfit(self, rows: DataFrame) -> Sequence[Limit]:
        """What the table can't hold of decoded records."""
        sink = self.derivation.sink
        if isinstance(sink, MergeOnRead) and sink.table_changed:
            self.forget_rules()  # the change log takes rows that the table would refuse at the fold
        detail = self.table.detail()
        if detail is None:
            return self.unfit_when_made(rows)
        return limits.of_records(detail, self._demanding, rows, self.derivation.of_records)

    def unfit_when_made(self, rows: DataFrame) -> Sequence[Limit]:
        """What a table that a run makes can't hold of decoded records: values of its partition columns."""
        from pyspark.sql.types import StructField, StructType

        columns = self.derivation.columns
        parted = StructType([StructField(name, columns[name].dataType) for name in self.layout.partition_by])
        return limits.of_records(self.layout.detail(columns), parted, rows, self.derivation.of_records)

    def made_by(self, *, plain: bool = False) -> str:
        """The SQL that would make the table, if its sink says how or ``plain``. Empty: the table is there."""
        if (self.layout == NO_LAYOUT and not plain) or self.table.detail() is not None:
            return ""
        return self._whole_layout.create_sql(self.table.sql, self.derivation.columns)

    def differs(self) -> Sequence[str]:
        """How a table that is there differs from what its sink says of its layout, in words."""
        detail = self.table.detail()
        if detail is None or self.layout == NO_LAYOUT:
            return ()
        return [*self.layout.differences(detail), *self.layout.other_comments(detail, self.table.schema)]

    @property
    def _whole_layout(self) -> Layout:
        return self.layout.with_properties({**self.schema, **self.derivation.properties})

    def rules(self) -> Sequence[str]:
        """The table's own rules in words: constraints, lengths, generated columns."""
        return limits.told(detail, self._demanding) if (detail := self.table.detail()) else ()

    def forget_rules(self) -> None:
        """Read the table's rules again at their next use: somebody may have changed them."""
        self.table.forget()
        self.__dict__.pop("_demanding", None)

    @cached_property
    def _demanding(self) -> StructType:
        """The table's columns with what they demand, read once as ``detail`` is: columns that a run adds have none."""
        return self.table.schema

    @property
    def back(self) -> TakesBack:
        """Takes the table back in a rewind of several tables."""
        return TakesBack(self.table, self.commits, self.derivation.columns.names, self.derivation.tombstones)

    def two_phase(self, pipeline: str) -> TwoPhaseSink[DataFrame]:
        """The sink that takes part in two-phase commit."""
        made = self.derivation
        options = StagedOptions(made.shape, made.parts)
        return TwoPhaseDelta(self.table, made.sink, pipeline=pipeline, back=self.back, options=options)


@dataclass(frozen=True)
class Other(NoTable):
    """A sink that isn't a table."""

    decode: Decoder
    derivation: Derivation
    sink: TwoPhaseSink[DataFrame]
    partition_by: Sequence[str] = ()

    @property
    def label(self) -> str:
        """The sink's name, for messages."""
        return self.sink.name

    def ready(self) -> None:
        """Nothing has to be made."""
        self.check()

    def check(self) -> bool:
        """Whether it is there: always."""
        return True

    def unfit(self, rows: DataFrame) -> Sequence[Limit]:
        """What the sink can't hold of decoded records: values of its partition columns."""
        kinds = {name: rows.schema[name].dataType for name in self.partition_by}
        return [limit for name, kind in kinds.items() for limit in of_partition(name, kind, in_utc=True)]

    def two_phase(self, _: str) -> TwoPhaseSink[DataFrame]:
        """The sink itself."""
        return self.sink


SinkOutput = Table | Other


def commits_of(config: PipelineConfig, table: DeltaTable) -> PipelineCommits:
    """The commits of a pipeline with one sink in its table."""
    sink = config.sinks[0]
    window = sink.window if isinstance(sink, DeltaAggregateSink) else None
    return PipelineCommits(
        table,
        pipeline=config.name,
        topics=config.source.topics,
        stops_at_changes=config.on_foreign_delete == "stop",
        former=config.part_of.file if config.part_of is not None else None,
        allowed_lateness=window.allowed_lateness if window is not None else None,
    )


@contextmanager
def outputs(
    config: PipelineConfig,
    spark: SparkSession,
    records: DataFrame,
    staging: str,
    newest: NewestSchemas | None = None,
) -> Iterator[list[SinkOutput]]:
    """The sinks of the pipeline. ``records``: none, as Kafka gives them; ``staging``: a folder of the pipeline's own;
    ``newest``: as in ``decoders``.

    Several tables get a session each: a MERGE takes its epoch from the session. Raises ConfigurationError.
    """
    found: list[SinkOutput] = []
    with ExitStack() as stack:
        tables: dict[int, DeltaTable] = {}
        for index, sink in enumerate(config.sinks):
            if isinstance(sink, DeltaSink):
                own = stack.enter_context(isolated(spark)) if config.two_phase and not is_connect(spark) else spark
                merging(own, staged=own is not spark and isinstance(sink, DeltaUpsertSink))
                tables[index] = DeltaTable(
                    own, path=sink.folder, name=sink.table, label=sink.place, on_new_column=config.on_new_column
                )
        decode_each = decoders(config, spark, tables, newest)
        for index, (sink, decode) in enumerate(zip(config.sinks, decode_each, strict=True)):
            rows = decode(records)
            if isinstance(sink, DeltaSink):
                found.append(Table.of(config.alone(index), tables[index], decode, rows))
            else:
                found.append(_other(config.alone(index), sink, decode, rows, spark, staging))
        yield found


def with_new_columns(
    config: PipelineConfig, records: DataFrame, names: Sequence[str], found: Mapping[str, Output]
) -> dict[str, Output]:
    """The same sinks for records that have got more columns since. ``names``: of the sinks, in the file's order.

    Raises ConfigurationError, SchemaMismatch.
    """
    changed: dict[str, Output] = {}
    for name, output in found.items():
        index = names.index(name)
        rows = output.decode(records)
        if isinstance(output, Table):
            derivation = derive(config.alone(index), output.table, output.commits, rows)
            changed[name] = replace(output, derivation=derivation)
            changed[name].ready()
        elif isinstance(output, Other):
            changed[name] = replace(output, derivation=as_is(config.alone(index), rows))
    return changed


def _other(
    config: PipelineConfig,
    sink: S3ObjectsSink | KafkaTopicSink | CustomSink,
    decode: Decoder,
    rows: DataFrame,
    spark: SparkSession,
    staging: str,
) -> Other:
    if isinstance(sink, KafkaTopicSink):
        from sinks.topic import KafkaTopic

        topic = KafkaTopic(
            sink.topic,
            Staging(spark, staging),
            pipeline=config.name,
            group=config.group,
            kafka=config.source.sink_options,
            key=sink.key,
            topics=config.source.topics,
        )
        return Other(decode, as_is(config, rows), topic)
    if isinstance(sink, CustomSink):
        return Other(decode, as_is(config, rows), custom_sink(sink, spark, staging))
    return Other(decode, as_is(config, rows), s3_objects(spark, sink, pipeline=config.name), sink.partition_by)


def s3_objects(spark: SparkSession, sink: S3ObjectsSink, *, pipeline: str) -> S3Objects:
    """The sink that a pipeline file describes."""
    from sinks.objects import S3Objects
    from sinks.s3.client import S3Options

    options = S3Options(
        endpoint=sink.endpoint,
        region=sink.region,
        path_style=sink.path_style,
        server_side_encryption=sink.server_side_encryption,
        kms_key_id=sink.kms_key_id,
        storage_class=sink.storage_class,
    )
    return S3Objects(
        spark, sink.url, pipeline=pipeline, format=sink.format, partition_by=sink.partition_by, options=options
    )


def _zone(table: DeltaTable) -> str:
    return str(table.spark.conf.get("spark.sql.session.timeZone"))
