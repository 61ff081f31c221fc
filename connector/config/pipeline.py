"""All options of a pipeline file except those of its source and its sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, StrictBool, ValidationInfo, field_validator

from connector.config.columns import AnyColumns
from connector.config.flows import Flow, OfFlow, by_flow
from connector.config.formats import FormatOptions, JsonFormat, RowsFormat
from connector.config.kinds import Name, Options, OptionText, Text, fits, in_clear, literal_secrets, refuse, told
from connector.config.operations import Maintenance, MetricsOptions, NotifyOptions
from connector.config.pacing import EpochBound, EveryRecords, Interval, Latency, Retry, as_commit_every, as_trigger
from connector.config.places import NAME, DeadLetters, DeltaPlace, shared_places, spot
from connector.config.route import Route, sinks_of, unfit_for
from connector.config.shape import shape_of
from connector.config.sink_by_sink import PartOf
from connector.config.sinks import (
    IDLE_AFTER,
    DeltaAggregateSink,
    DeltaAppendSink,
    KafkaTopicSink,
    MergedSink,
    SinkOptions,
    Window,
    on_read,
)
from connector.config.source import Source
from connector.config.steady import row_by_row, steady, steady_rows
from connector.config.steps import Step
from connector.config.unfit import UNFIT
from connector.config.written import Given, written
from connector.protocol.pacing import Pace
from sinks.spark.schema_changes import OnNewColumn

Delivery: TypeAlias = Literal["auto_commit", "manual_commit", "idempotent", "transactional"]


class PipelineConfig(Options):
    """The options of one pipeline file. ``lakelock init`` writes a file with comments to start from."""

    name: Annotated[str, Field(pattern=NAME, max_length=200)]
    """Unique per table, and never to be changed: Delta stores it as ``txnAppId``. Lower-case letters, digits, _, -."""
    delivery: Delivery = "transactional"
    """What a crash may cost: docs/guarantees.md. With ``transactional`` nothing: every record counts exactly once."""
    commit_every: Annotated[Literal["batch", "record"] | EveryRecords, BeforeValidator(as_commit_every)] = "batch"
    """How often ``manual_commit`` and ``idempotent`` commit offsets: per batch, per record, or per {records: 100}."""
    source: Source
    """The topics to read, and how to connect to Kafka. See below."""
    value: FormatOptions
    """The format of the Kafka values. See below."""
    key: FormatOptions | None = None
    """The format of the Kafka keys. The decoded key becomes the column ``_key``. Keys are not stored by default."""
    headers: StrictBool = False
    """Store the Kafka headers in a column ``_headers``."""
    require: Annotated[Text, AfterValidator(steady)] | None = None
    """A SQL condition that every record must meet. A record for which it is false or null is a bad record. Tombstones
    aren't judged, nor, unless it names ``_op``, Debezium's deletes and truncates in a file with a keyed sink."""
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    """What to do with a bad record: ``fail`` stops the run, ``dead_letter`` writes it to ``dead_letters``."""
    on_foreign_delete: Literal["allow", "stop"] = "allow"
    """Whether a run continues (``allow``) or stops after another writer's DELETE, UPDATE, MERGE or overwrite of some
    rows. ``lakelock verify`` lists them either way. A run always stops when the table was replaced as a whole."""
    on_new_column: OnNewColumn | None = None
    """What to do with columns that the records have and the table lacks: ``add`` them to the table, ``ignore`` them, or
    ``fail``. By default a column that ``value`` declares must be in the table. Other fields of the records are then
    ignored, except with a registry's latest schema, where they make a bad record."""
    unmatched: Literal["fail", "warn"] | None = None
    """What to do if no record of an epoch has a field that the ``schema`` of JSON declares, as when its name is
    misspelled: ``fail`` stops the run before anything is written, ``warn`` says so in the log. By default the first
    epoch with records fails, and later ones warn if the records have a field of a similar name. The first epoch of a
    run is checked, then one every 10 minutes."""
    epoch: EpochBound = EpochBound()
    """The size of an epoch, which is one commit. See below."""
    trigger: Annotated[Literal["available_now"] | Interval | Latency, BeforeValidator(as_trigger)] = "available_now"
    """When to read. ``available_now`` reads the records that are in Kafka at the start, then exits. {interval: 10
    seconds} starts a round of epochs at this interval until the run is stopped, {interval: 0} without a pause.
    {target_latency: 30 seconds} commits as seldom as possible, with each record within this time of its arrival."""
    retry: Retry = Retry()
    """How often to retry after transient failures. See below."""
    event_time: Name | None = None
    """A TIMESTAMP column whose range each commit stores, for ``lakelock rewind``. By default Kafka's timestamp."""
    steps: tuple[Step, ...] = ()
    """What to do with the decoded columns, in this order, without SQL: rename, drop, mask, flatten, cast and more. See
    below. ``require`` and ``route.by`` see the columns before the steps, ``transform`` and the sinks those after."""
    flows: tuple[Flow, ...] = ()
    """Topics that are read otherwise than the others: docs/sources.md. ``value``, ``key``, ``require`` and ``steps`` of
    the file are for all topics that no flow names. See below."""
    sensitive: AnyColumns = ()
    """Columns of the records, or of the ``transform``, whose values stand only in the table: not in errors, logs,
    reasons of dead letters or previews. No error quotes a record then: docs/sources.md."""
    transform: Annotated[Text, AfterValidator(row_by_row), AfterValidator(steady_rows)] | None = None
    """One SELECT ... FROM records that is applied row by row, before the sinks."""
    sinks: tuple[SinkOptions, ...]
    """The tables, objects and topics to write. See below. Several sinks commit together, and need a ``coordinator``."""
    route: Route | None = None
    """One table for each value of a SQL expression, instead of ``sinks``: docs/many-tables.md. See below."""
    together: Literal["atomic", "eventual"] = "atomic"
    """Of several sinks: whether every epoch is in all of them or in none (``atomic``, two-phase commit), or each moves
    by itself, as a pipeline of its own (``eventual``): docs/many-tables.md."""
    coordinator: DeltaPlace | None = None
    """Where the coordinator log is: {path: ...} or {table: ...}. Required unless the only sink is a Delta table."""
    dead_letters: DeadLetters | None = None
    """Where to store dead letters: bad records, and late records of a window with ``late: dead_letter``. See below."""
    metrics: MetricsOptions | None = None
    """Prometheus metrics of a run. Off by default. See below."""
    notify: NotifyOptions | None = None
    """A webhook to call when a run fails, is behind, or sets records aside. Off by default. See below."""
    maintain: Maintenance = Maintenance()
    """Which steps ``lakelock maintain`` carries out. See below."""
    traces: StrictBool = False
    """Send an OpenTelemetry trace of every epoch to ``OTEL_EXPORTER_OTLP_ENDPOINT``. Needs ``lakelock[telemetry]``."""
    lineage: StrictBool = False
    """Send OpenLineage events of every run to ``OPENLINEAGE_URL``. Needs ``lakelock[telemetry]``."""
    spark: Mapping[str, OptionText] = Field(default_factory=dict)
    """Settings for the Spark session that Lakelock starts: docs/spark.md. Ignored where a session of
    yours is active already."""

    _part_of: PartOf | None = PrivateAttr(None)
    _whole: PipelineConfig | None = PrivateAttr(None)
    _flow: OfFlow | None = PrivateAttr(None)
    _given: Given = PrivateAttr(Given())

    def remember(self, document: object) -> None:
        """Keep the options as they were given: with references to secrets, not with secrets."""
        self._given = Given(document)

    @property
    def document(self) -> object:
        """The options of the pipeline file as they were given; of a copy that was changed, as they are."""
        return written(self) if self._given.document is None else self._given.document

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> PipelineConfig:
        """A copy. One that is changed isn't what was given any more."""
        copy = super().model_copy(update=update, deep=deep)
        if update:
            copy._given = Given()
        return copy

    @property
    def part_of(self) -> PartOf | None:
        """With ``together: eventual``, the names that the sink's pipeline may have had before."""
        return self._part_of

    @field_validator("spark")
    @classmethod
    def _spark(cls, options: Mapping[str, OptionText]) -> Mapping[str, OptionText]:
        refuse(literal_secrets(options))
        return options

    @field_validator("sinks")
    @classmethod
    def _placed(cls, sinks: tuple[SinkOptions, ...], info: ValidationInfo) -> tuple[SinkOptions, ...]:
        if not sinks:
            raise ValueError("is empty: name at least one sink")
        return tuple(sink.at(index, info.data.get("source")) for index, sink in enumerate(sinks))

    @fits
    def _sinks_fit(self) -> Iterator[str]:
        for place in shared_places(self.sinks):
            yield f"sinks: two sinks write to {place}: give each sink its own place"
        if len(self._windows) > 1:
            yield (
                "sinks: only one sink may have a window: a pipeline has one event time, and so one watermark. Write a "
                "pipeline file for each"
            )
        if sum(isinstance(sink, KafkaTopicSink) for sink in self.sinks) > 1:
            yield (
                "sinks: only one sink may be a kafka_topic: its transactional id is the pipeline's name. Write a "
                "pipeline file for each"
            )

    @fits
    def _parts_fit(self) -> Iterator[str]:
        for check in UNFIT:
            yield from told(partial(check, self))

    @fits
    def _move_together(self) -> Iterator[str]:
        """Require a coordinator and transactional delivery for sinks that don't fit into one commit."""
        if any(isinstance(sink, KafkaTopicSink) and sink.topic in self.source.topics for sink in self.sinks):
            yield "sinks: a kafka_topic must not be one of source.topics: the pipeline would read its own rows"
        others = [*self.sinks, *([self.dead_letters] if self.dead_letters else [])]
        if self.coordinator is not None and spot(self.coordinator) in map(spot, others):
            yield "coordinator: this table is already in use by the pipeline; give the log another path"
        if not self.two_phase:
            return
        what = "several sinks" if len(self.sinks) > 1 else f"a sink of type {self.sinks[0].type}"
        if self.coordinator is None:
            needs = "route needs" if self.route is not None else f"{what} need two-phase commit, which keeps"
            yield (
                f"coordinator: is missing: {needs} a log in a small Delta table. "
                "Write coordinator: {path: lake/_coordinator}"
            )
        if self.delivery != "transactional":
            yield (f"delivery: {self.delivery} works with one Delta table only; {what} need delivery: transactional")

    @fits
    def _routes(self) -> Iterator[str]:
        if self.route is None:
            return
        yield from unfit_for(self.route, self)
        for sink, option in zip(self.sinks, ("route.sink", "route.other"), strict=False):
            sink._in_file = option

    @fits
    def _delivery_fits(self) -> Iterator[str]:
        late = any(
            isinstance(sink, DeltaAggregateSink) and sink.window and sink.window.late == "dead_letter"
            for sink in self.sinks
        )
        if late and self.dead_letters is None:
            yield "window.late: dead_letter needs a place: dead_letters: {path: ...}"
        if self.on_bad_record == "dead_letter" and self.dead_letters is None:
            yield "on_bad_record: dead_letter needs a place: dead_letters: {path: ...}"
        if self.dead_letters is not None and not late and self.on_bad_record == "fail":
            yield "dead_letters: is never used: write on_bad_record: dead_letter, or remove dead_letters"
        topic = self.dead_letters.topic if self.dead_letters else None
        if topic and (topic in self.source.topics or any(f"kafka:{topic}" == sink.place for sink in self.sinks)):
            yield (
                f"dead_letters.topic: {topic} is also a topic of the source or a sink, where dead letters would be "
                "taken for records; give another name"
            )
        if self.dead_letters and spot(self.dead_letters) in map(spot, self.sinks):
            yield "dead_letters: is the table of a sink; give another path"
        if late and self.delivery != "transactional":
            yield "window.late: dead_letter needs delivery: transactional, which stores the watermark"
        if self.delivery == "idempotent" and any(isinstance(sink, DeltaAppendSink) for sink in self.sinks):
            yield (
                "delivery: idempotent needs a sink that recognizes rows it already has, by key and offset; "
                "delta_append adds every row it is given. Write delivery: transactional, or use delta_upsert"
            )
        if self.commit_every != "batch" and self.delivery not in ("manual_commit", "idempotent"):
            yield (
                f"commit_every: works with delivery: manual_commit and idempotent; with {self.delivery} "
                + ("the client commits at intervals" if self.delivery == "auto_commit" else "an epoch is a commit")
                + ". Remove the option"
            )

    @property
    def two_phase(self) -> bool:
        """Whether a coordinator is needed. Only a single Delta table stores rows and offsets in one commit."""
        return len(self.sinks) > 1 or self.route is not None or not isinstance(self.sinks[0], DeltaPlace)

    @property
    def only_table(self) -> str | None:
        """The place of the only table, as the file has it. None with two-phase commit."""
        return None if self.two_phase else self.sinks[0].place

    @property
    def reads_headers(self) -> bool:
        """Whether to read the Kafka headers: for the table or a step, or because dead letters store them."""
        by_step = any(step.header is not None for flow in self.by_flow for step in flow.steps)
        return self.headers or self.dead_letters is not None or by_step

    @property
    def reshaped(self) -> bool:
        """Whether the rows have other columns than the records: those that ``steps`` or ``transform`` make."""
        return self.transform is not None or bool(self.steps)

    @property
    def by_flow(self) -> Sequence[PipelineConfig]:
        """The configuration as each of the ``flows`` sees it, first that of the topics that no flow names."""
        return by_flow(self)

    def option(self, name: str) -> str:
        """Where the file has an option, for messages: of a flow's own configuration, maybe in the flow."""
        return self._flow.named(name) if self._flow is not None else name

    @property
    def flow(self) -> OfFlow | None:
        """Whose configuration it is; None: the file's, or that of the topics that no flow names."""
        return self._flow

    @property
    def schema_option(self) -> str:
        """The option with the schema of the values, for messages."""
        return self.route.schema_option(self.route.value) if self.route is not None else self.option("value.schema")

    @property
    def columns_option(self) -> str:
        """The option that says the columns of the rows, for messages."""
        return "transform" if self.transform is not None else "steps" if self.steps else self.schema_option

    @property
    def of_rows(self) -> bool:
        """Whether the input is rows of the user's own query. One record may give several rows."""
        return isinstance(self.value, RowsFormat)

    @property
    def several_rows(self) -> bool:
        """Whether one record may make several rows."""
        return self.transform is not None or self.of_rows

    @property
    def merged_on_read(self) -> MergedSink | None:
        """The sink with ``merge: on_read``, whose epochs are appended to a change log. None if there is none, and of a
        route as a whole: each of its tables has a sink of its own, see ``routed``."""
        return None if self.route is not None and self.route.value is None else next(on_read(self.sinks), None)

    @property
    def merges_on_read(self) -> bool:
        """Whether any table of the file has a change log, also one of a route."""
        return next(on_read(sinks_of(self)), None) is not None

    @property
    def shape(self) -> str:
        """A hash of the options that shape the rows. Two files with the same hash make the same rows of a record."""
        return shape_of(self)

    def routed(self, value: str) -> PipelineConfig:
        """A copy with the table of one value of ``route.by`` as its only sink; of ``OTHER``, that of the other records.

        Raises ConfigurationError.
        """
        assert self.route is not None
        first = self.sinks[0]
        sink = self.route.sink_of(value, first._beside if isinstance(first, DeltaPlace) else "")
        route, format = self.route.of(value, self.value)
        return self.model_copy(update={"sinks": (sink,), "route": route, "value": format})

    @property
    def inferred(self) -> JsonFormat | None:
        """The format of the values, if its schema has to be found from records, or was. None: the file has it."""
        return self.value if isinstance(self.value, JsonFormat) and self.value.inferred else None

    def read_by(self, schema: str) -> PipelineConfig:
        """A copy with the schema that was inferred for its records."""
        assert self.inferred is not None
        return self.model_copy(update={"value": self.inferred.read_by(schema)})

    def alone(self, index: int) -> PipelineConfig:
        """A copy of this configuration with ``sinks[index]`` as its only sink."""
        copy = self.model_copy(update={"sinks": (self.sinks[index],)})
        copy._whole = self.whole
        return copy

    @property
    def places(self) -> Sequence[str]:
        """The places of all sinks of the file, also in a copy with one of them."""
        return [sink.place for sink in self.whole.sinks]

    @property
    def whole(self) -> PipelineConfig:
        """The configuration with all sinks of the file, also of a copy with one of them."""
        return self._whole or self

    @property
    def interval(self) -> timedelta | None:
        """The time between the starts of two rounds. None with ``available_now``, which has one round."""
        if self.target_latency is not None:
            return Pace(self.target_latency).poll
        return self.trigger.interval if isinstance(self.trigger, Interval) else None

    @property
    def target_latency(self) -> timedelta | None:
        """The longest time from arrival to commit, if ``trigger`` sets one."""
        return self.trigger.target_latency if isinstance(self.trigger, Latency) else None

    @property
    def clock(self) -> str | None:
        """The column with the event time of the records, for all sinks of the file. None if no option names one."""
        return self._windows[0].time if self._windows else self.event_time

    @property
    def _windows(self) -> Sequence[Window]:
        """Those of all sinks of the file: which records have no event time doesn't depend on the table that is read."""
        return [each.window for each in self.whole.sinks if isinstance(each, DeltaAggregateSink) and each.window]

    @property
    def clock_in_words(self) -> str:
        """Which time counts as that of a record, for a person, with the option that says so."""
        if self.clock is None:
            return "Kafka's timestamps, as the file names no event_time"
        return f"the column {self.clock} ({'window.time' if self._windows else 'event_time'})"

    @property
    def idle_after(self) -> timedelta:
        """How long a partition may be without new records before the watermark ignores it."""
        return self._windows[0].idle_after if self._windows else IDLE_AFTER

    @property
    def group(self) -> str:
        """The consumer group: ``group.id`` of ``source.kafka``, by default the pipeline's name."""
        return self.source.kafka_options.get("group.id") or self.name

    @property
    def on_s3(self) -> bool:
        """Whether any table of the pipeline is at an ``s3a://`` path, so that Spark needs S3A."""
        tables = [*sinks_of(self), self.dead_letters, self.coordinator]
        return any(isinstance(each, DeltaPlace) and each.place.startswith("s3a://") for each in tables)

    @property
    def spark_options(self) -> dict[str, str]:
        """Settings of the Spark session, with secrets in clear text. Never print them."""
        return in_clear(self.spark)
