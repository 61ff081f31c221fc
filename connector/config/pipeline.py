"""The options of a pipeline file, but for its source and its sinks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, field_validator, model_validator

from connector.config.formats import FormatOptions, RowsFormat
from connector.config.kinds import (
    Options,
    OptionText,
    Text,
    in_clear,
    no_literal_secrets,
    topic_name,
)
from connector.config.operations import Maintenance, MetricsOptions
from connector.config.pacing import EpochBound, EveryRecords, Interval, Latency, Retry, as_commit_every, as_trigger
from connector.config.sinks import (
    IDLE_AFTER,
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaPlace,
    DeltaUpsertSink,
    KafkaTopicSink,
    MergedSink,
    SinkOptions,
)
from connector.config.source import Source, TopicPattern
from connector.protocol.pacing import Pace
from sinks.spark.schema_changes import OnNewColumn


class DeadLetters(DeltaPlace):
    """A table for records that aren't right, or a topic of the source's Kafka. ``max_share``: of an epoch's records;
    more stop the run."""

    topic: Annotated[Text, AfterValidator(topic_name)] | None = None
    """Or a topic of the source's Kafka, where a crash may leave a letter twice."""
    max_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of an epoch's records: more bad ones stop the run."""

    @property
    def place(self) -> str:
        return super().place if self.topic is None else f"kafka:{self.topic}"

    @model_validator(mode="after")
    def _one_place(self) -> DeadLetters:
        if [self.path, self.table, self.topic].count(None) != 2:
            raise ValueError("give one of path (a folder or URI), table (catalog.schema.name) or topic (of Kafka)")
        if not (self.path or self.table or self.topic):
            raise ValueError("path or table is empty")
        return self


Delivery: TypeAlias = Literal["auto_commit", "manual_commit", "idempotent", "transactional"]


_NOT_ROW_BY_ROW = (
    "DISTINCT", "GROUP", "HAVING", "OVER", "LIMIT", "OFFSET", "TABLESAMPLE", "UNION", "INTERSECT", "EXCEPT", "MINUS",
)  # fmt: skip
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)


def _transform(sql: str | None) -> str | None:
    """One SELECT, row by row: what else a query can do depends on where the epochs are cut, or loses records."""
    if sql is None:
        return None
    words = re.findall(r"\w+", _QUOTED.sub(" ", sql).upper())
    if not words or words[0] != "SELECT" or "RECORDS" not in words:
        raise ValueError("write one SELECT ... FROM records, as in `SELECT upper(name) AS name, id FROM records`")
    for word in _NOT_ROW_BY_ROW:
        if word in words:
            raise ValueError(
                f"{word} can't be used: a transform works row by row, or its result would depend on where the epochs "
                "are cut. To group records, use a delta_aggregate sink"
            )
    return sql


_SHAPING = {
    "value", "key", "headers", "require", "on_bad_record", "on_new_column", "transform", "event_time", "sinks",
}  # fmt: skip


class PipelineConfig(Options):
    """One pipeline file. ``lakelock init`` writes a commented one."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]+$", max_length=200)]
    """Unique per table, and not to be changed later: Delta's ``txnAppId``. Lower-case letters, digits, _ and -."""
    delivery: Delivery = "transactional"
    """What a crash may cost: docs/guarantees.md. ``transactional``: every record exactly once."""
    commit_every: Annotated[Literal["batch", "record"] | EveryRecords, BeforeValidator(as_commit_every)] = "batch"
    """With ``manual_commit`` and ``idempotent``: after which part of a batch its offsets are committed."""
    source: Source
    """What is read, see below."""
    value: FormatOptions
    """The format of Kafka's values, see below."""
    key: FormatOptions | None = None
    """The format of Kafka's keys: one column more, ``_key``."""
    headers: StrictBool = False
    """Kafka's headers in a column ``_headers``."""
    require: Text | None = None
    """SQL that is true of every record that is right; a null is not true."""
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    """A record that isn't right stops the run, or is set aside whole, in ``dead_letters``."""
    on_foreign_delete: Literal["allow", "stop"] = "allow"
    """Whether a run goes on after somebody else's DELETE, UPDATE or MERGE in the table. ``lakelock verify`` names them
    either way. A table that was replaced as a whole always stops the run."""
    on_new_column: OnNewColumn | None = None
    """What becomes of columns that records have and the table lacks. Left out: what ``value`` declares has to be in the
    table, and of what it doesn't nothing is wanted."""
    epoch: EpochBound = EpochBound()
    """How much one commit takes, see below."""
    trigger: Annotated[Literal["available_now"] | Interval | Latency, BeforeValidator(as_trigger)] = "available_now"
    """``available_now``: all that was there at the start, then exit. Else again and again: {interval: 10 seconds}, or
    {target_latency: 30 seconds}, as seldom as lets every record be committed that soon after Kafka had it."""
    retry: Retry = Retry()
    """What is tried again before a run fails, see below."""
    event_time: Text | None = None
    """A TIMESTAMP column, of which each commit keeps the smallest and the largest: for ``lakelock rewind``."""
    transform: Annotated[Text | None, AfterValidator(_transform)] = None
    """One SELECT ... FROM records, row by row, before the sinks."""
    sinks: tuple[SinkOptions, ...]
    """Where records go, see below. Several move together, and need a ``coordinator``."""
    coordinator: DeltaPlace | None = None
    """{path: ...} or {table: ...} of the log of two-phase commit, a small Delta table."""
    dead_letters: DeadLetters | None = None
    """Where records go that aren't right, or come too late, see below."""
    metrics: MetricsOptions | None = None
    """What Prometheus is told while a run goes on, see below."""
    maintain: Maintenance = Maintenance()
    """What ``lakelock maintain`` does, see below."""
    traces: StrictBool = False
    """An OpenTelemetry trace of every epoch, sent to ``OTEL_EXPORTER_OTLP_ENDPOINT``. Needs ``lakelock[telemetry]``."""
    lineage: StrictBool = False
    """OpenLineage events of every run, sent to ``OPENLINEAGE_URL``. Needs ``lakelock[telemetry]``."""
    spark: Mapping[str, OptionText] = Field(default_factory=dict)
    """Spark's settings for a session of Lakelock's own: docs/spark.md. Where one is active, it is used as it is."""

    @field_validator("spark")
    @classmethod
    def _spark(cls, options: Mapping[str, OptionText]) -> Mapping[str, OptionText]:
        return no_literal_secrets(options)

    @field_validator("sinks")
    @classmethod
    def _fit_together(cls, sinks: tuple[SinkOptions, ...]) -> tuple[SinkOptions, ...]:
        if not sinks:
            raise ValueError("is empty: name at least one")
        places = [sink.place for sink in sinks]
        for place in places:
            if places.count(place) > 1:
                raise ValueError(f"two of them write to {place}: give each a place of its own")
        if sum(isinstance(sink, DeltaAggregateSink) and sink.window is not None for sink in sinks) > 1:
            raise ValueError("one of them may have a window: a pipeline has one event time, hence one watermark")
        if sum(isinstance(sink, KafkaTopicSink) for sink in sinks) > 1:
            raise ValueError("one kafka_topic per pipeline: its transactions bear the pipeline's name")
        return sinks

    @model_validator(mode="after")
    def _move_together(self) -> PipelineConfig:
        """One commit can't hold several sinks."""
        if any(isinstance(sink, KafkaTopicSink) and sink.topic in self.source.topics for sink in self.sinks):
            raise ValueError(
                "sinks: a kafka_topic that is one of source.topics would feed the pipeline with its own rows"
            )
        places = [sink.place for sink in self.sinks] + ([self.dead_letters.place] if self.dead_letters else [])
        if self.coordinator is not None and self.coordinator.place in places:
            raise ValueError("coordinator: is a table of the pipeline's already; give its log another path")
        if not self.two_phase:
            return self
        what = "several sinks" if len(self.sinks) > 1 else f"a sink of type {self.sinks[0].type}"
        if self.coordinator is None:
            raise ValueError(
                f"coordinator: is missing: {what} need two-phase commit, which keeps a log in a small Delta table. "
                "Write coordinator: {path: lake/_coordinator}"
            )
        if self.delivery != "transactional":
            raise ValueError(
                f"delivery: {self.delivery} is for one Delta table; {what} move together with delivery: transactional"
            )
        return self

    @model_validator(mode="after")
    def _tables_can_change(self) -> PipelineConfig:
        fixed = [
            sink.type
            for sink in self.sinks
            if isinstance(sink, DeltaAggregateSink)
            or (self.on_new_column == "add" and not isinstance(sink, DeltaAppendSink | DeltaUpsertSink))
        ]
        if self.on_new_column in ("add", "ignore") and fixed:
            raise ValueError(
                f"on_new_column: {self.on_new_column} isn't for {fixed[0]}, whose columns don't follow the records'; "
                "write fail, or take it out"
            )
        patched = any(isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates is True for sink in self.sinks)
        if self.on_new_column == "add" and patched:
            raise ValueError("ignore_null_updates: true doesn't go with on_new_column: add; name the columns")
        return self

    @model_validator(mode="after")
    def _merges_on_read(self) -> PipelineConfig:
        if self.merged_on_read is None:
            return self
        why = {
            f"delivery: {self.delivery} keeps no position in the log of changes": self.delivery != "transactional",
            "several sinks move together by two-phase commit": self.two_phase,
            f"on_new_column: {self.on_new_column} changes the table, and the log of changes not": (
                self.on_new_column in ("add", "ignore")
            ),
            "source.on_recreated_topic renames topics in the table, and not in the log of changes": (
                self.source.takes_recreated
            ),
        }
        for reason, given in why.items():
            if given:
                raise ValueError(f"merge: on_read isn't for this pipeline: {reason}. Write merge: on_write")
        return self

    @model_validator(mode="after")
    def _source_fits(self) -> PipelineConfig:
        if self.delivery != "transactional":
            for option, given in {
                "source.topics: a pattern": isinstance(self.source.topics, TopicPattern),
                "source.on_recreated_topic": self.source.takes_recreated,
                "epoch.max_bytes": self.epoch.max_bytes is not None,
                "epoch.target_duration": self.epoch.target_duration is not None,
                "trigger.target_latency": self.target_latency is not None,
            }.items():
                if given:
                    raise ValueError(
                        f"{option} needs delivery: transactional; with {self.delivery} a consumer group decides what "
                        "is read next"
                    )
        if isinstance(self.source.topics, TopicPattern) and any(
            isinstance(each, KafkaTopicSink) for each in self.sinks
        ):
            raise ValueError(
                "source.topics: a pattern doesn't go with a kafka_topic: its transactions commit the offsets of every "
                "topic that was ever read, and Kafka takes none of one that is gone. Name the topics"
            )
        if self.source.takes_recreated:
            if self.two_phase:
                raise ValueError(
                    "source.on_recreated_topic is for one Delta table, where the position changes in the "
                    "same commit as the rows. Write the new topic to new places"
                )
            sink = self.sinks[0]
            if isinstance(sink, DeltaHistorySink) and sink.sequence_by is None:
                raise ValueError(
                    "source.on_recreated_topic needs a sequence_by in a delta_history: without, its versions "
                    "begin and end at offsets, and those of the new topic start over. Write it to a new table"
                )
        return self

    @model_validator(mode="after")
    def _rows_have_no_bytes(self) -> PipelineConfig:
        if isinstance(self.key, RowsFormat):
            raise ValueError("key: format: rows is for value, which then takes the place of both")
        if not self.of_rows:
            return self
        for option, given in {
            "key": self.key is not None,
            "headers": self.headers,
            "dead_letters": self.dead_letters is not None,
            "on_new_column": self.on_new_column is not None,
            "delivery": self.delivery != "transactional",
        }.items():
            if given:
                raise ValueError(
                    f"{option}: doesn't go with value: {{format: rows}}, whose rows your own query has made of Kafka's "
                    "records; take it out"
                )
        return self

    @model_validator(mode="after")
    def _subjects_are_known(self) -> PipelineConfig:
        for option in ("value", "key"):
            registry = getattr(getattr(self, option), "registry", None)
            if registry is not None and isinstance(self.source.topics, TopicPattern) and not registry.names_schemas:
                raise ValueError(
                    f"{option}.registry: source.topics is a pattern: say whose schemas its topics have, with subject, "
                    "or glue.schema"
                )
        return self

    @model_validator(mode="after")
    def _delivery_fits(self) -> PipelineConfig:
        late = any(
            isinstance(sink, DeltaAggregateSink) and sink.window and sink.window.late == "dead_letter"
            for sink in self.sinks
        )
        if late and self.dead_letters is None:
            raise ValueError("window.late: dead_letter needs a place: dead_letters: {path: ...}")
        if self.on_bad_record == "dead_letter" and self.dead_letters is None:
            raise ValueError("on_bad_record: dead_letter needs a place: dead_letters: {path: ...}")
        if self.dead_letters is not None and not late and self.on_bad_record == "fail":
            raise ValueError("dead_letters: nothing would get there: write on_bad_record: dead_letter, or take it out")
        topic = self.dead_letters.topic if self.dead_letters else None
        if topic and (topic in self.source.topics or any(f"kafka:{topic}" == sink.place for sink in self.sinks)):
            raise ValueError(
                f"dead_letters.topic: {topic} is a topic of the pipeline's own, which would take its letters for "
                "records; give another name"
            )
        if self.dead_letters and any(self.dead_letters.place == sink.place for sink in self.sinks):
            raise ValueError("dead_letters: is the sink's own table; give another path")
        if late and self.delivery != "transactional":
            raise ValueError("window.late: dead_letter needs delivery: transactional, which keeps the watermark")
        if self.delivery == "idempotent" and any(isinstance(sink, DeltaAppendSink) for sink in self.sinks):
            raise ValueError(
                "delivery: idempotent needs a sink that can ignore what it holds already, by key and offset; "
                "delta_append adds every row it is given. Write delivery: transactional, or use delta_upsert"
            )
        if self.commit_every != "batch" and self.delivery not in ("manual_commit", "idempotent"):
            raise ValueError(
                f"commit_every: is for delivery: manual_commit and idempotent; with {self.delivery} "
                + ("the client commits on its own clock" if self.delivery == "auto_commit" else "an epoch is a commit")
                + ". Take it out"
            )
        return self

    @property
    def two_phase(self) -> bool:
        """One Delta table takes rows and offsets in one commit; all else needs the coordinator."""
        return len(self.sinks) > 1 or not isinstance(self.sinks[0], DeltaPlace)

    @property
    def reads_headers(self) -> bool:
        """Kafka's headers: for the table, or because a dead letter keeps them."""
        return self.headers or self.dead_letters is not None

    @property
    def of_rows(self) -> bool:
        """Whether records come as rows of the user's own query: of one record there may be several."""
        return isinstance(self.value, RowsFormat)

    @property
    def merged_on_read(self) -> MergedSink | None:
        """The sink whose epochs are appended to a log of changes; None: there is none."""
        found = (sink for sink in self.sinks if isinstance(sink, MergedSink) and sink.merge == "on_read")
        return next(found, None)

    @property
    def shape(self) -> str:
        """A hash of what shapes the rows: the same file gives the same rows of the same records."""
        shaping = self.model_dump_json(include=_SHAPING)
        return hashlib.sha256(shaping.encode()).hexdigest()[:16]

    def alone(self, index: int) -> PipelineConfig:
        """As if this sink were the only one."""
        return self.model_copy(update={"sinks": (self.sinks[index],)})

    @property
    def interval(self) -> timedelta | None:
        """Between the starts of two rounds; None: one round, of what is there."""
        if self.target_latency is not None:
            return Pace(self.target_latency).poll
        return self.trigger.interval if isinstance(self.trigger, Interval) else None

    @property
    def target_latency(self) -> timedelta | None:
        return self.trigger.target_latency if isinstance(self.trigger, Latency) else None

    @property
    def clock(self) -> str | None:
        """The column with the records' event time; None: nobody asks for it."""
        windows = [sink.window for sink in self.sinks if isinstance(sink, DeltaAggregateSink) and sink.window]
        return windows[0].time if windows else self.event_time

    @property
    def idle_after(self) -> timedelta:
        """When a partition without new records is set aside from the watermark."""
        windows = [sink.window for sink in self.sinks if isinstance(sink, DeltaAggregateSink) and sink.window]
        return windows[0].idle_after if windows else IDLE_AFTER

    @property
    def group(self) -> str:
        """The consumer group: Kafka's ``group.id`` where one is given, else the pipeline's name."""
        return self.source.kafka_options.get("group.id") or self.name

    @property
    def on_s3(self) -> bool:
        """Whether Spark needs S3A for its tables."""
        tables = [*self.sinks, self.dead_letters, self.coordinator]
        return any(isinstance(each, DeltaPlace) and each.place.startswith("s3a://") for each in tables)

    @property
    def spark_options(self) -> dict[str, str]:
        return in_clear(self.spark)
