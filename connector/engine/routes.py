"""The tables of a route: made as the values of ``route.by`` turn up, and filled from one decoded frame per epoch.

``prepare`` reads and decodes an epoch, keeps the rows in memory (and on the executors' disks), and counts them for each
table. The coordinator then decides the epoch, with these counts, and has each table write its rows in a commit of its
own. What a crash leaves is in ``sinks.delta.unstaged``; how it is rolled forward, in ``protocol.two_phase``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from connector.config import OTHER, DeltaSink, KeyedSink, PipelineConfig
from connector.decode.records import PROBLEM, ROUTE, TOMBSTONE
from connector.derive.derivation import Derivation
from connector.derive.fit import problems, refuse_problem
from connector.engine.decoders import Decoder, decoders
from connector.engine.epoch import Reading
from connector.engine.in_parallel import of_each
from connector.engine.outputs import NoTable, Table
from connector.engine.record_errors import about_the_records
from connector.protocol.steps import Event, Observer, Step
from connector.spark.compat import is_connect
from connector.spark.session import isolated
from connector.spark.tuning import FEW, for_few
from sinks.contract import Epoch, Prepared
from sinks.delta.table import DeltaTable
from sinks.delta.unstaged import Unstaged
from sinks.errors import ConfigurationError
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.cached import kept, merging
from sinks.spark.limits import Limit
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("lakelock.routes")

AT_ONCE = 4
"""The number of tables that are written at the same time. A commit waits for the driver more than for the cores."""
_SHOWN = 5


@dataclass(frozen=True)
class _Routed:
    """The table of one value."""

    output: Table
    sink: Unstaged
    where: str
    """SQL: whether a row is the table's."""
    keyed: bool
    """Whether it takes tombstones."""

    def problem(self, rows: DataFrame) -> str | None:
        """SQL of what is wrong with a row for this table; None: it takes all rows."""
        return _problem(self.output, self.output.unfit(rows), rows, keyed=self.keyed)


def _problem(output: Table, limits: Sequence[Limit], rows: DataFrame, *, keyed: bool) -> str | None:
    tombstones = not keyed and TOMBSTONE in rows.columns
    found = problems(output.derivation.problem, limits, refuses_tombstones=tombstones)
    return f"coalesce({', '.join(found)})" if found else None


@dataclass(frozen=True)
class Split(NoTable):
    """All tables of a route as one output, whose rows say which table they are for."""

    decode: Decoder
    label: str
    """The place as the file has it, with its placeholder."""
    template: Table
    """A table of no value: it says the columns."""
    problem: Callable[[], str | None]
    """SQL of what is wrong with a row for its table."""
    begun: Callable[[], bool]
    """Whether the pipeline has committed an epoch."""
    refuses: bool
    """Whether a bad record stops the run."""

    @property
    def derivation(self) -> Derivation:
        """The rows as they are, with their table. A bad one fails the query, unless it has been set aside."""
        problem = self.problem()
        return Derivation(
            columns=self.template.derivation.columns,
            reduce=lambda rows, _: refuse_problem(rows, problem) if self.refuses and problem is not None else rows,
            problem=problem,
        )

    def ready(self) -> None:
        """Nothing: a table is made when its first row has come."""

    def check(self) -> bool:
        """Whether there is any table."""
        return self.begun()

    def unfit(self, _: DataFrame) -> Sequence[Limit]:
        """Nothing: the limits of each table are part of ``problem``."""
        return ()


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
    _tables: dict[str, _Routed] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)
    """Place -> the value that has it."""
    _own: list[_Own] = field(default_factory=list)
    """The sessions that the tables share."""
    _kept: ExitStack = field(default_factory=ExitStack)
    """What the running epoch keeps: its rows, and the view of them."""

    def __post_init__(self) -> None:
        sink = self.config.sinks[0]
        assert isinstance(sink, DeltaSink)
        self._template = self._table(self.config.alone(0), sink, self.spark)
        self._usual = _problem(self._template, (), self.rows, keyed=isinstance(sink, KeyedSink))
        self.split = Split(
            self.decode, sink.place, self._template, self._problem_by_table, self.begun,
            refuses=self.config.on_bad_record == "fail",
        )  # fmt: skip

    def sinks(self, known: Collection[str]) -> Mapping[str, Unstaged]:
        """The tables of these values, and those that hold rows of the running epoch."""
        holding = [name for name, table in self._tables.items() if table.sink.holds_rows]
        if not known and not holding:  # the epoch is over
            self.release()
        return {name: self._of(name).sink for name in dict.fromkeys([*known, *holding])}

    def prepare(
        self, reading: Reading, observe: Observer, epoch: Epoch, names: Sequence[str], again: bool, behind: int
    ) -> tuple[Epoch, Mapping[str, Prepared]]:
        """Read, decode and count an epoch, and have each table hold its rows. See ``coordinator.PrepareAll``.

        Makes the tables that are missing. Raises what ``epoch.prepare_epoch`` raises, and ConfigurationError for too
        many tables.
        """
        if not again:  # a decided epoch is committed whatever is in it
            reading.refuse_unmatched(epoch)

        def attempt() -> tuple[Epoch, dict[str, Prepared]]:
            clocked, rows, counts = self._split(reading, epoch, again=again)
            observe(Event(Step.READ, clocked, behind=behind, letters=reading.set_aside))
            observe(Event(Step.WRITING, clocked, behind=behind))
            reading.refuse_changed(clocked)
            prepared = {}
            for name in [name for name in self._tables if not names or name in names]:
                held = self._held(name, clocked, rows, counts.get(name, 0))
                if held is not None:
                    prepared[name] = held
            return clocked, prepared

        return reading.until_learned(epoch.ranges, attempt)

    def release(self) -> None:
        """Let go of the rows of the last epoch."""
        self._kept.close()

    def _split(self, reading: Reading, epoch: Epoch, *, again: bool) -> tuple[Epoch, DataFrame, Mapping[str, int]]:
        """The epoch with its event time, its rows, and the number of them for each table."""
        while True:
            self.release()
            self._forget_rules()
            known = set(self._tables)
            clocked, reduced = reading.reduced(epoch, self._kept, again=again)
            (found,) = reduced.values()
            # In order of their tables, so that each table's query passes over what the others have.
            rows = self._kept.enter_context(kept(found.sortWithinPartitions(ROUTE)))
            counts = self._counted(rows, epoch)
            new = [name for name in counts if name not in known]
            self._make(new)
            if not any(self._differs(self._of(name)) for name in new):
                self._kept.enter_context(self._seen_by_all(rows))
                return clocked, rows, counts
            # One of them was there already, and has rules that nobody has compared the rows with.

    def _counted(self, rows: DataFrame, epoch: Epoch) -> Mapping[str, int]:
        """The number of rows for each table. Raises ConfigurationError if there would be too many tables."""
        assert self.config.route is not None
        most = self.config.route.max_tables
        # One more than too many, and the records that name no table.
        found = rows.groupBy(ROUTE).count().limit(most + 2).collect()
        counts = {row[ROUTE] if row[ROUTE] is not None else OTHER: int(row["count"]) for row in found}
        if OTHER in counts and self.config.route.other == "ignore":
            log.info("epoch %s: %s records name no table, and are ignored", epoch.number, counts[OTHER])
            del counts[OTHER]
        new = [name for name in counts if name not in self._tables]
        if len(self._tables) + len(new) > most:
            shown = ", ".join(repr(name) for name in new[:_SHOWN])
            raise ConfigurationError(
                f"The records of epoch {epoch.number} name new tables, such as {shown}: that would be more tables than "
                f"route.max_tables ({most}) allows. Nothing of it was written.",
                hint="Is route.by what you mean? List the values that are to have a table in route.values, or raise "
                "route.max_tables.",
            )
        return counts

    def _held(self, name: str, epoch: Epoch, rows: DataFrame, count: int) -> Prepared | None:
        routed = self._of(name)
        if not count:
            return routed.sink.pass_by()
        own = routed.output.table.spark
        mine = (rows if own is self.spark else own.table(self._view_sql)).where(routed.where)
        taken = _for_table(mine, keyed=routed.keyed)
        return routed.sink.hold(epoch, routed.output.derivation.reduce(taken, epoch), count)

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
        """SQL of what is wrong with a row for its table. Tables that refuse the same are told apart by nobody."""
        differ: dict[str | None, list[str]] = {}
        for routed in filter(self._differs, self._tables.values()):
            differ.setdefault(routed.problem(self.rows), []).append(routed.where)
        if not differ:
            return self._usual
        whens = (f"WHEN {' OR '.join(where)} THEN {found or 'NULL'}" for found, where in differ.items())
        return f"CASE {' '.join(whens)} ELSE {self._usual or 'NULL'} END"

    def _differs(self, routed: _Routed) -> bool:
        """Whether a table refuses other rows than the file alone says."""
        return routed.problem(self.rows) != self._usual

    def _make(self, names: Sequence[str]) -> None:
        """Make the tables of values that have turned up, unless they are there."""

        def make(routed: _Routed) -> None:
            with routed.sink.alone():
                routed.output.ready()
            require_conditional_writes(self.spark, routed.output.location)

        of_each({name: partial(make, self._of(name)) for name in names}, at_once=self.at_once)

    @property
    def at_once(self) -> int:
        """How many tables may be asked or written at the same time. In Spark Connect they share one session."""
        return 1 if is_connect(self.spark) else AT_ONCE

    def _of(self, name: str) -> _Routed:
        if name not in self._tables:
            config = self.config.routed(name)
            (sink,) = config.sinks
            assert isinstance(sink, DeltaSink)
            taken = self._places.setdefault(sink.address, name)
            if taken != name:
                raise ConfigurationError(
                    f"route: the tables of {taken!r} and {name!r} have one place, {sink.place!r}.",
                    hint="Give one of them another path in route.overrides.",
                )
            own = self._session()
            output = self._table(config, sink, own.spark)
            routed = Unstaged(name, output.table, output.derivation.sink, pipeline=config.name, around=own.turn)
            where = f"{ROUTE} IS NULL" if name == OTHER else f"{ROUTE} = {literal(name)}"
            self._tables[name] = _Routed(output, routed, where, isinstance(sink, KeyedSink))
        return self._tables[name]

    def _table(self, config: PipelineConfig, sink: DeltaSink, own: SparkSession) -> Table:
        table = DeltaTable(own, path=sink.folder, name=sink.table, label=sink.place)
        return Table.of(config, table, self.decode, _for_table(self.rows, keyed=isinstance(sink, KeyedSink)))

    def _session(self) -> _Own:
        """The session of the next table.

        A MERGE takes its epoch from the session, so of the tables that share one only one may be at work.
        """
        if len(self._own) == self.at_once:
            return self._own[len(self._tables) % self.at_once]
        own = self.spark if is_connect(self.spark) else self.sessions.enter_context(isolated(self.spark))
        merging(own, staged=False)
        self._own.append(_Own(own, self.config.spark_options, self.small))
        return self._own[-1]


def _for_table(rows: DataFrame, *, keyed: bool) -> DataFrame:
    """The rows as a table gets them: only one with a key takes tombstones."""
    return rows.drop(ROUTE) if keyed else rows.drop(ROUTE, TOMBSTONE)


@dataclass(frozen=True)
class _Own:
    """A session that some of the tables share."""

    spark: SparkSession
    options: Mapping[str, str]
    small: bool
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def turn(self, appended: int | None) -> Iterator[None]:
        """Have the session alone. ``appended``: the number of rows that are going to be; 0: a question; None: they are
        merged."""
        few = self.small if appended == 0 else appended is not None and appended <= FEW
        with self.lock, for_few(self.spark, self.options, few=few), about_the_records():
            yield


@contextmanager
def routed(
    config: PipelineConfig,
    spark: SparkSession,
    records: DataFrame,
    *,
    run: str,
    begun: Callable[[], bool],
    small: bool = False,
) -> Iterator[Routes]:
    """The tables of a pipeline with a route. ``records``: none, as Kafka gives them; ``begun``: whether the pipeline
    has committed an epoch. ``small``: whether its tables are small. Raises ConfigurationError.
    """
    (decode,) = decoders(config, spark)
    with ExitStack() as sessions:
        # With dead letters a record's problem is no column of the rows that a table gets.
        rows = decode(records).drop(PROBLEM)
        routes = Routes(config, spark, decode, run, begun, rows, sessions, small)
        try:
            yield routes
        finally:
            routes.release()
