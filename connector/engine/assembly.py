"""Assembles what one run of a pipeline needs: session, source, consumer group, sinks, and how an epoch uses them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from connector.config import KafkaTopicSink, KeyedSink, PipelineConfig
from connector.config.route import sinks_of
from connector.decode.event_time import Timing
from connector.decode.registry.newest import NewestSchemas
from connector.delivery.ports import Group, Topics, Work
from connector.delivery.retries import Patience
from connector.engine.coordinator import Coordinator, PrepareAll, SinksNow
from connector.engine.coordinator_log import Log
from connector.engine.dead_letters import letters, letters_location, letters_table, letters_topic, take_letters_back
from connector.engine.epoch import Read, Reading, prepare_epoch
from connector.engine.field_check import FieldCheck
from connector.engine.first_run import has_begun, refuse_first_without_zone
from connector.engine.fold import Folding, refuse_unfolded
from connector.engine.fold_beside import Beside, beside
from connector.engine.inferred import with_schema
from connector.engine.joining import Joining
from connector.engine.left_letters import LeftLetters
from connector.engine.letters_again import RoutedLetters
from connector.engine.misnamed import refuse_misnamed_topic
from connector.engine.one_table import OneTable, look_back
from connector.engine.output import Output
from connector.engine.outputs import Other, Table, outputs, with_new_columns
from connector.engine.pinned_schemas import pinned_schemas
from connector.engine.rehearsal import rehearsed, worthwhile
from connector.engine.renamed import refuse_renamed, refuse_what_it_has
from connector.engine.replaced import refuser
from connector.engine.routes import Routes, routed
from connector.engine.short_runs import SMALL, is_short
from connector.engine.transformed_deletes import refuse_unfit_select
from connector.protocol.gone import Looks
from connector.protocol.row_shape import with_schemas
from connector.protocol.row_shape import with_settings as with_row_settings
from connector.protocol.steps import Observer
from connector.source.consumer_group import ConsumerGroup, Unpublished
from connector.source.reader import Reader
from connector.source.records import no_records
from connector.source.topics import KafkaSource
from connector.spark.compat import is_connect
from connector.spark.in_use import shared_session
from connector.spark.row_settings import ALWAYS, row_settings
from connector.spark.session import isolated, loading_pyspark, refuse_lossy
from connector.spark.tuning import TUNING, for_few, settings_for_few
from sinks.contract import Epoch, Prepared
from sinks.errors import ConfigurationError
from sinks.offsets import OffsetRange
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.files import folder_made
from sinks.spark.settings import as_written, told, with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Assembly:
    """Everything that one run of a pipeline works with. ``run`` is the run's id: the owner of its epochs."""

    config: PipelineConfig
    run: str
    spark: SparkSession
    source: KafkaSource
    of_kafka: Reader
    """Reads the records of offset ranges from Kafka."""
    group: ConsumerGroup
    outputs: Sequence[Output]
    log: Log | None
    """The coordinator log. None without a coordinator."""
    routes: Routes | None = None
    """The tables of a route. Then ``outputs`` has one output for all of them."""
    read: Read | None = None
    """Reads them from elsewhere. None: from Kafka."""
    stopped: Callable[[], bool] = lambda: False
    """Whether the run is to end."""
    small: bool = False
    """Whether the topics have had few records so far: then the tables are small, and so are their logs."""
    beside: Beside | None = None
    """Where folds go on. None: they come between two epochs."""
    newest: NewestSchemas = field(default_factory=NewestSchemas)
    """Of the subjects of a registry."""

    @property
    def table(self) -> Table:
        """The Delta table of a pipeline with one sink. Only for pipelines without two-phase commit."""
        (table,) = self.outputs
        assert isinstance(table, Table)
        return table

    @property
    def locations(self) -> list[str]:
        """Where the files of the run's tables are. Empty text for a sink that looks after itself."""
        logs = [self.log.location] if self.log is not None else []
        return [*logs, *(output.location for output in self.outputs), letters_location(self.config, self.spark)]

    def make_ready(self) -> None:
        """Create what is missing, and check that the sinks can take the rows and that two writers can't overwrite each
        other.

        Creates the coordinator log and the tables. Raises ConfigurationError, NotADeltaTable, SchemaMismatch (also if
        no record has a declared field), and what the check of a dead letter topic raises.
        """
        with for_few(self.spark, self.config.spark_options, few=self.small):
            self._make_ready()

    def refuse_unfit_select(self) -> None:
        """Raises ConfigurationError if ``transform`` leaves deletes out, or makes a column of Lakelock's own."""
        refuse_unfit_select(self.config, [output.decode for output in self.outputs], no_records(self.spark))

    def _make_ready(self) -> None:
        self.refuse_unfit_select()
        refuse_first_without_zone(self.spark, self.outputs, self.log)
        if self.field_check.declared and not all(output.exists for output in self.outputs):
            self._refuse_unmatched()
        if self.log is not None:
            self.log.create()
            require_conditional_writes(self.spark, self.log.location)
            refuse_what_it_has(self.config, self.spark, self.outputs, self.log)
        for output in self.outputs:
            with folder_made(output.location):
                output.ready()
            require_conditional_writes(self.spark, output.location)
        require_conditional_writes(self.spark, letters_location(self.config, self.spark, make=True))
        topic = letters_topic(self.config)
        if topic is not None:
            topic.check()

    def _refuse_unmatched(self) -> None:
        """Compare the first records with the declared fields, before a table gets a column for each of them."""
        held = self.source.look()
        share = max(1, self.config.epoch.max_records // max(1, len(held.ends)))
        starts = self.source.starting(held)()
        first = [OffsetRange(*at, start, min(start + share, held.ends[at])) for at, start in starts.items()]
        self.field_check.warn([part for part in first if part.span], first=True)

    def look_back(self) -> None:
        """Finish what earlier runs left to this one: dead letters that a RESTORE has reopened, a change log that begins
        or ends.

        Raises ConfigurationError if a person has to decide first, as with epochs that aren't folded.
        """
        if self.config.two_phase:
            self._refuse_unfolded()
        else:
            look_back(self.config, self.spark, self.run, self.table)

    def _refuse_unfolded(self) -> None:
        for output in self.outputs:
            if isinstance(output, Table):
                refuse_unfolded(self.config, output)

    def work(self, observe: Observer, *, topics: Topics) -> Work:
        """What a delivery gets for this run: the destination, the bounds of an epoch, the retries.

        ``observe`` hears every step. ``topics`` answers the delivery's questions about Kafka; usually it is the source.
        """
        group: Group = self.group
        if self.log is not None and any(isinstance(sink, KafkaTopicSink) for sink in self.config.sinks):
            group = Unpublished()  # the Kafka sink commits the group's offsets in its own transactions
        return Work(
            pipeline=self.config.name,
            owner=self.run,
            topics=topics,
            destination=self.one_table(observe) if self.log is None else self.coordinator(observe),
            max_records=self.config.epoch.max_records,
            group=group,
            observe=observe,
            continue_on_data_loss=self.config.source.continue_on_data_loss,
            max_bytes=self.config.epoch.max_bytes,
            target_duration=self.config.epoch.target_duration,
            target_latency=self.config.target_latency,
            patience=Patience(self.config.retry.attempts, self.config.retry.longest_wait),
        )

    def one_table(self, observe: Observer) -> OneTable:
        """The destination of a pipeline with one Delta table."""
        reading = self.reading({self.table.label: self.table})
        return OneTable(
            self.config, self.run, self.spark, self.source, self.table, reading, self.folding(observe), observe,
            small=self.small, left=LeftLetters.of(self.config, self.spark, self.run),
        )  # fmt: skip

    def reading(self, outputs: Mapping[str, Output]) -> Reading:
        """How this run turns Kafka's records into the rows of ``outputs``, which are keyed by the name of their sink.

        Raises ConfigurationError for ``value: {format: rows}`` outside a streaming query.
        """
        clock = self.config.clock
        if self.config.of_rows and self.read is None:
            raise ConfigurationError(
                "value: {format: rows} is for the batches of a streaming query. A run reads bytes from Kafka.",
                hint="Use connector.foreach_batch (docs/streaming.md), or name the format of the bytes.",
            )
        return Reading(
            read=self.read or self.of_kafka,
            outputs=outputs,
            timing=Timing(clock, self.config.idle_after) if clock is not None else None,
            letters=letters(self.config, self.spark, refuser(self.config, self.spark, self.outputs)),
            with_new_columns=partial(
                with_new_columns, self.config, no_records(self.spark), [output.label for output in self.outputs]
            ),
            refuse_changed=self.source.refuse_changed,
            refuse_unmatched=self.field_check,
            forget=self.of_kafka.forget,
            led_by=self.of_kafka.led_by,
        )

    @cached_property
    def field_check(self) -> FieldCheck:
        """Checks that the records have the declared fields."""
        return FieldCheck(self.config, self.source.sample, self.read or self.of_kafka)

    def folding(self, observe: Observer) -> Folding | None:
        """The folds of this run; None if the table isn't merged on read."""
        log = self.table.derivation.log if self.config.merged_on_read is not None else None
        return Folding.of(log, self.config, self.run, observe, self.beside)

    def coordinator(self, observe: Observer) -> Coordinator:
        """The destination of a pipeline with several sinks, or with a route. Needs the coordinator log."""
        if self.routes is not None:
            return self._routed(self.routes, observe)
        made = [output for output in self.outputs if isinstance(output, Table | Other)]
        sinks = [output.two_phase(self.config.name) for output in made]
        by_name = {sink.name: (output, sink) for output, sink in zip(made, sinks, strict=True)}
        readings: dict[tuple[str, ...], Reading] = {}

        def prepare(
            epoch: Epoch, names: Sequence[str], again: bool, behind: int
        ) -> tuple[Epoch, Mapping[str, Prepared]]:
            of = tuple(names or by_name)
            if of not in readings:
                readings[of] = self.reading({name: by_name[name][0] for name in of})
            return prepare_epoch(
                epoch,
                readings[of],
                {name: by_name[name][1] for name in of},
                again=again,
                at_once=at_once,
                observe=observe,
                behind=behind,
            )

        at_once = 1 if is_connect(self.spark) else None
        return self._coordinator(lambda _: {sink.name: sink for sink in sinks}, prepare, observe, at_once)

    def _routed(self, routes: Routes, observe: Observer) -> Coordinator:
        reading, place = self.reading({routes.split.label: routes.split}), letters_table(self.config, self.spark)
        fold = partial(routes.fold, observe)
        if place is None:
            prepare = partial(routes.prepare, lambda _: reading, observe)
            return self._coordinator(routes.sinks, prepare, observe, routes.at_once, fold)
        letters = RoutedLetters(place, routes.split.label)
        prepare = partial(routes.prepare, lambda epoch: letters.reading(epoch, reading), observe)
        return self._coordinator(routes.sinks, prepare, observe, routes.at_once, fold, letters.committed)

    @property
    def _shape(self) -> str:
        """What makes the rows of a record: the pipeline file. If an epoch may be read again by another process, also
        the settings of its session that change rows. And the schemas of a registry that read it."""
        shape = self.config.shape
        if self.routes is not None:
            zone, ansi = (str(self.spark.conf.get(name, "")) for name in ALWAYS)
            shape = with_row_settings(shape, zone, ansi, row_settings(self.spark))
        return with_schemas(shape, self.newest.ids)

    def _coordinator(
        self,
        sinks: SinksNow,
        prepare: PrepareAll,
        observe: Observer,
        at_once: int | None,
        fold: Callable[[], object] = lambda: None,
        committed: Callable[[Epoch], object] = lambda _: None,
    ) -> Coordinator:
        assert self.log is not None
        return Coordinator(
            self.log,
            sinks,
            run=self.run,
            config=self._shape,
            prepare=prepare,
            observe=observe,
            at_once=at_once,
            stages=self.routes is None,
            join=Joining(self.config, self.run, self.source, partial(self._alone, observe), observe, self.stopped),
            fold=fold,
            committed=committed,
            take_back=partial(take_letters_back, self.config, self.spark, self.routes),
            left=LeftLetters.of(self.config, self.spark, self.run),
            event_time=self.config.clock,
        )

    @contextmanager
    def _alone(self, observe: Observer, name: str) -> Iterator[OneTable | None]:
        """The destination of one sink as if it were the only one; None: it isn't a table."""
        index = [output.label for output in self.outputs].index(name)
        if not isinstance(self.outputs[index], Table):
            yield None
            return
        config = self.config.alone(index)
        with ExitStack() as stack:
            # The session of the table itself expects rows that are staged.
            own = self.spark if is_connect(self.spark) else stack.enter_context(isolated(self.spark))
            made = stack.enter_context(outputs(config, own, no_records(own), ""))
            read = Reader(config.source, own, headers=config.reads_headers)
            # The rows of a streaming query's batch are of the query's session, where no MERGE of this one finds them.
            alone = replace(self, config=config, spark=own, of_kafka=read, read=None, outputs=made, log=None)
            yield alone.one_table(observe)


@contextmanager
def assembled(
    config: PipelineConfig,
    *,
    debug: bool = False,
    short: bool | None = None,
    reads: bool = False,
    spark: SparkSession | None = None,
    stage: Callable[[str], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    looks: Looks | None = None,
) -> Iterator[Assembly]:
    """Assemble one run of a pipeline, and close its connections at the end of the block.

    ``short`` says whether the run has little to do, which decides how its JVM is started; with None the offsets decide.
    ``reads``: whether it reads what waits in Kafka. ``spark``: a session that nobody else changes; None: an active or a
    new one. ``debug`` shows Spark's log. ``stage`` is told what is next. ``stopped``: whether to end..

    Raises BrokerUnreachable and TopicMissing before Spark is started, ConfigurationError, and what the sinks raise.
    """
    source = KafkaSource(config.source, with_deletes=_keyed(config), looks=looks)
    group = ConsumerGroup(config)
    run = str(uuid.uuid4())
    try:
        stage("asking Kafka")  # first: if no broker answers, the run fails long before Spark would have started
        with loading_pyspark():
            held = source.look()
        brief = cache(lambda: is_short(config, held, group) if short is None else short)
        with ExitStack() as stack:
            if spark is None:
                stage("starting Spark")
                own = shared_session(config.spark_options, name=config.name, s3=config.on_s3, debug=debug, short=brief)
                spark = stack.enter_context(own)
            else:
                stack.enter_context(as_written(spark))
            refuse_lossy(spark)
            refuse_misnamed_topic(config, spark, source)
            config = with_schema(config, spark, source, held)
            if reads and told(spark, TUNING) == "true" and worthwhile(config) and not brief():
                stack.enter_context(rehearsed(config, spark, held))
            log = stack.enter_context(_log(spark, config, run))
            routes, none, newest = None, no_records(spark), NewestSchemas(pinned_schemas(config, log))
            small = sum(held.ends.values()) <= SMALL
            made: Sequence[Output]
            if config.route is not None:
                assert log is not None
                tables = routed(config, spark, none, run=run, begun=partial(has_begun, log), newest=newest, small=small)
                routes = stack.enter_context(tables)
                made = [routes.split]
            else:
                made = stack.enter_context(outputs(config, spark, none, log.staging if log else "", newest))
            refuse_renamed(config, made, log)
            folds = stack.enter_context(beside(config, spark, made, run))
            stage("opening the tables")
            yield Assembly(
                config, run, spark, source, Reader(config.source, spark, headers=config.reads_headers), group, made,
                log, routes, stopped=stopped, small=small, beside=folds, newest=newest,
            )  # fmt: skip
    finally:
        group.close()
        source.close()


def _keyed(config: PipelineConfig) -> bool:
    return any(isinstance(sink, KeyedSink) for sink in sinks_of(config))


@contextmanager
def _log(spark: SparkSession, config: PipelineConfig, run: str) -> Iterator[Log | None]:
    """The coordinator log, if any, in a session of its own where that may be tuned: an entry is a few rows."""
    place = config.coordinator
    if not config.two_phase or place is None:
        yield None
        return
    settings = settings_for_few(spark, config.spark_options)
    with isolated(spark) if settings else nullcontext(spark) as few, with_settings(few, settings):
        yield Log(few, path=place.folder, name=place.table, pipeline=config.name, run=run)
