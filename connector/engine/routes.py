"""The tables of a route: made as the values of ``route.by`` turn up, and filled from one decoded frame per epoch.

``prepare`` reads and decodes an epoch, keeps the rows in memory (and on the executors' disks), and counts them for each
table. The coordinator then decides the epoch, with these counts, and has each table write its rows in a commit of its
own. What a crash leaves is in ``sinks.delta.unstaged``; how it is rolled forward, in ``protocol.two_phase``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from connector.config import OTHER, DeltaAppendSink, DeltaSink, JsonFormat, KeyedSink, PipelineConfig
from connector.decode.own_columns import OwnColumns
from connector.decode.records import PROBLEM, ROUTE, TOMBSTONE, RecordDecoder
from connector.decode.registry.newest import NewestSchemas
from connector.engine.decoders import Decoder, decoders
from connector.engine.epoch import Reading
from connector.engine.field_check import look_at_value
from connector.engine.fold import Folding, refuse_unfolded
from connector.engine.in_parallel import of_each
from connector.engine.letters_again import RECORD, letters_version, without_rows_there
from connector.engine.misnamed import refuse_misnamed
from connector.engine.outputs import Table
from connector.engine.passed_over import PassedOver
from connector.engine.routed_places import RoutedPlaces
from connector.engine.routed_table import RoutedTable, Split, Template, by_table, deletes_by_table
from connector.engine.shared_session import SharedSession
from connector.protocol.steps import Event, Observer, Step
from connector.spark.compat import is_connect
from connector.spark.session import isolated
from sinks.contract import Committed, Epoch, Prepared
from sinks.delta.table import DeltaTable
from sinks.delta.unstaged import Unstaged
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.cached import kept, merging
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.routes")

AT_ONCE = 4
"""The number of tables that are written at the same time. A commit waits for the driver more than for the cores."""


@dataclass
class Routes:
    """The tables of a run with a route."""

    config: PipelineConfig
    spark: SparkSession
    decode: Decoder
    run: str
    begun: Callable[[], bool]
    rows: DataFrame
    """None, with the columns of decoded rows."""
    sessions: ExitStack
    small: bool = False
    """Whether the tables and their logs are small."""
    _tables: dict[str, RoutedTable] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)
    """Values whose tables this run has made, or has compared with the file."""
    logged: set[str] = field(default_factory=set)
    """Values whose tables are in the coordinator log."""
    _lacking: Collection[str] = ()
    """Of an epoch that is read again: the values whose tables lack it. Only their records are looked at."""
    passed_over: PassedOver = field(init=False)
    _places: RoutedPlaces = field(init=False)
    _shared: list[SharedSession] = field(default_factory=list)
    """The sessions that the tables share."""
    _kept: ExitStack = field(default_factory=ExitStack)
    """What the running epoch keeps: its rows, and the view of them."""

    def __post_init__(self) -> None:
        assert self.config.route is not None
        self._places = RoutedPlaces(self.config)
        self.passed_over = PassedOver(self.config, self.decode.decode)
        every = self.config.alone(0)
        self._base = None if self.config.route.bare(self.config.value) else self._made_template(every, None)
        """Of the tables that have no schema of their own. None: there are none."""
        own = {each.value: each for each in self._all_own}
        names = self.config.route.names
        self._templates = {name: self._made_template(self.config.routed(name), own.get(name)) for name in names}
        self.split = Split(
            replace(self.decode, shape=self._judged_by_its_own), every.sinks[0].place,
            self._base.table if self._base is not None else None, self._problem_by_table, self.begun,
            refuses=self.config.on_bad_record == "fail", deletes=deletes_by_table(self._base, self._templates),
        )  # fmt: skip

    def sinks(self, known: Collection[str]) -> Mapping[str, Unstaged]:
        """The tables of these values, and those that hold rows of the running epoch."""
        self.logged.update(known)
        holding = [name for name, table in self._tables.items() if table.sink.holds_rows]
        if not known and not holding:  # the epoch is over
            self.release()
        return {name: self._of(name).sink for name in dict.fromkeys([*known, *holding])}

    def tables(self, names: Collection[str]) -> Mapping[str, Table]:
        """The tables of these values, which the log knows."""
        self.logged.update(names)
        return {name: self._of(name).output for name in names}

    def prepare(
        self,
        reads: Callable[[Epoch], Reading],
        observe: Observer,
        epoch: Epoch,
        names: Sequence[str],
        again: bool,
        behind: int,
    ) -> tuple[Epoch, Mapping[str, Prepared]]:
        """Read, decode and count an epoch, and have each table hold its rows. See ``coordinator.PrepareAll``.

        ``reads``: says how an epoch is read. Makes the tables that are missing. Raises what ``epoch.prepare_epoch``
        raises, and ConfigurationError for too many tables.
        """
        reading, self._lacking = reads(epoch), names if again else ()
        if not again:  # a decided epoch is committed whatever is in it
            reading.refuse_unmatched(epoch)

        def attempt() -> tuple[Epoch, dict[str, Prepared]]:
            clocked, rows, counts = self._split(reading, epoch, again=again)
            observe(reading.read_event(clocked, behind))
            observe(Event(Step.WRITING, clocked, behind=behind))
            reading.refuse_changed(clocked)
            prepared = {}
            for name in [name for name in self._tables if not names or name in names]:
                held = self._held(name, clocked, rows, counts.get(name, 0))
                if held is not None:
                    prepared[name] = held
            if not again:
                of_each({name: self._of(name).sink.rehearse for name in prepared}, at_once=self.at_once)
            return clocked, prepared

        return reading.until_learned(epoch.ranges, attempt)

    def fold(self, observe: Observer, *, now: bool = False) -> Mapping[str, Committed]:
        """Fold the change logs for which it is time, or all of them ``now``. Returns the commit of each folded table.

        A fold has no part in an epoch: a crash leaves the table, its change log and its position as they were, or with
        the fold (``sinks.delta.merge_on_read``).
        """

        def folded(routed: RoutedTable) -> Committed | None:
            folding = Folding.of(routed.output.derivation.log, routed.config, self.run, observe)
            return routed.sink.fold(folding.now if now else folding.after) if folding is not None else None

        on_read = {name: table for name, table in self._tables.items() if table.config.merged_on_read is not None}
        done = of_each({name: partial(folded, table) for name, table in on_read.items()}, at_once=self.at_once)
        return {name: committed for name, committed in done.items() if committed is not None}

    def release(self) -> None:
        """Let go of the rows of the last epoch."""
        self._kept.close()

    def _split(self, reading: Reading, epoch: Epoch, *, again: bool) -> tuple[Epoch, DataFrame, Mapping[str, int]]:
        """The epoch with its event time, its rows, and the number of them for each table."""
        while True:
            self.release()
            self._forget_rules()
            clocked, reduced = reading.reduced(epoch, self._kept, again=again)
            (found,) = reduced.values()
            # In order of their tables, so that each table's query passes over what the others have.
            rows = self._kept.enter_context(kept(found.sortWithinPartitions(ROUTE)))
            counts = self._counted(rows, epoch, None if again else reading)
            unseen = [name for name in counts if name not in self._ready]
            new = [name for name in unseen if name not in self.logged]
            if not again:  # a decided epoch is committed whatever is in it
                refuse_misnamed(self.config, unseen, counts, self.logged)
            if not again and self._with_own(new):
                for warning in self.unmatched(reading.read(epoch.ranges), new):
                    log.warning("%s", warning)
            # What an epoch in doubt needs of its tables was compared before it was decided.
            self._make_ready(new if again else unseen)
            if not self.differ(new) or self._takes_all(rows):
                self._kept.enter_context(self._seen_by_all(rows))
                return clocked, rows, counts
            # One of them refuses rows for a reason that nobody has compared them with: that isn't the file's alone.

    def differ(self, names: Collection[str]) -> bool:
        """Whether one of the tables of these names refuses more rows than the file alone."""
        return any(self._of(name).differs for name in names if name != OTHER or name in self._templates)

    def _takes_all(self, rows: DataFrame) -> bool:
        """Whether the tables take all rows, of which there is none that the file alone refuses."""
        problem = self._problem_by_table()
        return problem is None or self._judged(rows).where(f"({problem}) IS NOT NULL").isEmpty()

    def unmatched(self, records: DataFrame, names: Collection[str]) -> list[str]:
        """Warnings about fields that a schema of its own declares, and that no record of this table has.

        ``records``: as Kafka gives them; ``names``: of the tables that they name. Raises SchemaMismatch.
        """
        own = self._with_own(names)
        if not own or not isinstance(self.config.value, JsonFormat):
            return []
        decoder = self.decode.decode
        assert isinstance(decoder, RecordDecoder)
        named = decoder.named(records)
        looked = (look_at_value(self.config, named, name, first=not self._of(name).output.exists) for name in own)
        return [warning for warnings in looked for warning in warnings]

    def _with_own(self, names: Collection[str]) -> list[str]:
        return [name for name in names if any(own.value == name for own in self._all_own)]

    def _counted(self, rows: DataFrame, epoch: Epoch, reading: Reading | None) -> Mapping[str, int]:
        """The number of rows for each table. Raises ConfigurationError if there would be too many tables.

        ``reading``: reads the epoch, to warn of records that get no table by a slip. None: nobody is warned.
        """
        assert self.config.route is not None
        most = self.config.route.max_tables
        # One more than too many, and the records that name no table.
        found = rows.groupBy(ROUTE).count().limit(most + 2).collect()
        counts = {row[ROUTE] if row[ROUTE] is not None else OTHER: int(row["count"]) for row in found}
        if OTHER in counts and reading is not None:
            self.passed_over.warn(reading, epoch, {*counts, *self.logged})
        if OTHER in counts and self.config.route.other == "ignore":
            log.info("epoch %s: %s records name no table, and are ignored", epoch.number, counts[OTHER])
            del counts[OTHER]
        new = [name for name in counts if name not in self._tables]
        self._places.refuse_too_many(new, len(self._tables), epoch.number)
        return counts

    def _held(self, name: str, epoch: Epoch, rows: DataFrame, count: int) -> Prepared | None:
        routed = self._of(name)
        if not count:
            return routed.sink.pass_by()
        own = routed.output.table.spark
        mine = (rows if own is self.spark else own.table(self._view_sql)).where(routed.where)
        if letters_version(epoch.batch) is not None and isinstance(routed.config.sinks[0], DeltaAppendSink):
            with routed.sink.alone():  # the other kinds ignore a record that they hold
                stands = routed.output.commits.position()
            if stands is not None:
                mine = without_rows_there(routed.output.table, stands.version, mine, RECORD)
        taken = self._as_taken(mine, routed.template.own, keyed=routed.keyed)
        return routed.sink.hold(epoch, routed.made(taken, epoch, count), count)

    @contextmanager
    def _seen_by_all(self, rows: DataFrame) -> Iterator[None]:
        """Let the sessions of the tables see the rows."""
        if is_connect(self.spark):
            yield
            return
        rows.createOrReplaceGlobalTempView(self._view)
        try:
            yield
        finally:
            with suppress(Exception):
                self.spark.catalog.dropGlobalTempView(self._view)

    @property
    def _view(self) -> str:
        return f"lakelock_{self.run.replace('-', '_')}"

    @property
    def _view_sql(self) -> str:
        return f"global_temp.{identifier(self._view)}"

    def _forget_rules(self) -> None:
        """Ask a table for its rules again, if others have committed to it: somebody may have given it another one."""
        for routed in self._tables.values():
            if routed.sink.changed():
                routed.output.forget_rules()

    def _problem_by_table(self) -> str | None:
        """SQL of what is wrong with a row for its table; of one that nobody has seen yet, by its template."""
        assert self.config.route is not None
        problems = {name: template.usual for name, template in self._templates.items() if template.own is None}
        problems |= {name: table.problem for name, table in self._tables.items() if table.template.own is None}
        if self.config.route.other == "ignore":
            problems[OTHER] = None
        return by_table(problems, self._base.usual if self._base is not None else None, self._all_own)

    def _judged_by_its_own(self, rows: DataFrame) -> DataFrame:
        """The rows, with the problems of those that have columns of their own: only among these they can be seen."""
        rows = self.decode.shape(rows)
        if self._lacking:  # rules that somebody has given the other tables since are about later records
            rows = rows.where(" OR ".join(f"({self._of(name).where})" for name in self._lacking))
        return self._judged(rows)

    def _judged(self, rows: DataFrame) -> DataFrame:
        for own in self._all_own:
            table, usual = self._tables.get(own.value), self._templates[own.value]
            rows = own.judged(rows, table.problem if table is not None else usual.usual, usual.deletes)
        return rows

    @property
    def _all_own(self) -> Sequence[OwnColumns]:
        return self.decode.decode.own

    def _make_ready(self, names: Sequence[str]) -> None:
        """Make these tables, unless they are there; then compare them with the file, and with each other. Raises
        SchemaMismatch, ConfigurationError."""

        def make(name: str, routed: RoutedTable) -> str:
            with routed.sink.alone():
                if name in self.logged and not routed.output.check():
                    return ""  # somebody has dropped it: its commit will say so
                routed.output.ready()
                if routed.config.merged_on_read is not None and routed.output.derivation.log is not None:
                    routed.output.derivation.log.make_ready(self.run)
                id = routed.output.table.id
            require_conditional_writes(self.spark, routed.output.location)
            return id

        ids = of_each({name: partial(make, name, self._of(name)) for name in names}, at_once=self.at_once)
        self._places.refuse_one_table(ids)
        self._ready.update(names)

    @property
    def at_once(self) -> int:
        """How many tables may be asked or written at the same time. In Spark Connect they share one session."""
        return 1 if is_connect(self.spark) else AT_ONCE

    def _of(self, name: str) -> RoutedTable:
        if name not in self._tables:
            config = self.config.routed(name)
            (sink,) = config.sinks
            assert isinstance(sink, DeltaSink)
            self._places.take(name, sink)
            shared = self._session()
            template = self._templates.get(name, self._base)
            assert template is not None  # else there is no configuration of this table
            output = self._table(config, sink, shared.spark, template.own)
            with shared.turn(0):
                folded = refuse_unfolded(config, output)
            routed = Unstaged(
                name, output.table, output.derivation.sink,
                pipeline=config.name, back=output.back, folded=folded, around=shared.turn,
            )  # fmt: skip
            self._tables[name] = RoutedTable(config, output, routed, isinstance(sink, KeyedSink), template)
        return self._tables[name]

    def _made_template(self, config: PipelineConfig, own: OwnColumns | None) -> Template:
        (sink,) = config.sinks
        assert isinstance(sink, DeltaSink)
        table, rows = self._table(config, sink, self.spark, own), self._with_columns(self.rows, own)
        return Template.of(table, rows, own, keyed=isinstance(sink, KeyedSink))

    def _table(self, config: PipelineConfig, sink: DeltaSink, spark: SparkSession, own: OwnColumns | None) -> Table:
        on_new = config.on_new_column if config.on_new_column == "add" else None
        table = DeltaTable(
            spark, path=sink.folder, name=sink.table, label=sink.place, on_new_column=on_new,
            advice=config.route.advice if config.route is not None else None,
        )  # fmt: skip
        return Table.of(config, table, self.decode, self._as_taken(self.rows, own, keyed=isinstance(sink, KeyedSink)))

    def _as_taken(self, rows: DataFrame, own: OwnColumns | None, *, keyed: bool) -> DataFrame:
        """The rows as a table gets them: only one with a key takes tombstones."""
        mine = self._with_columns(rows, own)
        return mine.drop(ROUTE) if keyed else mine.drop(ROUTE, TOMBSTONE)

    def _with_columns(self, rows: DataFrame, own: OwnColumns | None) -> DataFrame:
        return own.alone(rows) if own is not None else rows.drop(*(each.column for each in self._all_own))

    def _session(self) -> SharedSession:
        """The session of the next table.

        A MERGE takes its epoch from the session, so of the tables that share one only one may be at work.
        """
        if len(self._shared) == self.at_once:
            return self._shared[len(self._tables) % self.at_once]
        own = self.spark if is_connect(self.spark) else self.sessions.enter_context(isolated(self.spark))
        merging(own, staged=False)
        self._shared.append(SharedSession(own, self.config.spark_options, self.small))
        return self._shared[-1]


@contextmanager
def routed(
    config: PipelineConfig,
    spark: SparkSession,
    records: DataFrame,
    *,
    run: str,
    begun: Callable[[], bool],
    newest: NewestSchemas,
    small: bool = False,
) -> Iterator[Routes]:
    """The tables of a pipeline with a route. ``records``: none, as Kafka gives them; ``begun``: whether the pipeline
    has committed an epoch. ``newest``: as in ``decoders``. ``small``: whether its tables are small. Raises
    ConfigurationError.
    """
    (decode,) = decoders(config, spark, newest=newest)
    with ExitStack() as sessions:
        # With dead letters a record's problem is no column of the rows that a table gets.
        rows = decode(records).drop(PROBLEM)
        routes = Routes(config, spark, decode, run, begun, rows, sessions, small)
        try:
            yield routes
        finally:
            routes.release()
