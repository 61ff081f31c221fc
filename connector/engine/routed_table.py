"""The table of one value of a route, and all of them as one output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.config import OTHER, DeltaAppendSink, PipelineConfig
from connector.decode.own_columns import OwnColumns
from connector.decode.records import ROUTE, TOMBSTONE
from connector.derive.derivation import Derivation
from connector.derive.fit import problems, refuse_problem
from connector.engine.decoders import Decoder
from connector.engine.output import NoTable
from connector.engine.outputs import Table
from sinks.contract import Epoch
from sinks.delta.unstaged import Unstaged
from sinks.spark.limits import Limit
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ROWS_PER_FILE = 100_000
"""Up to this number of rows, one task appends them: a table's rows are few beside the epoch's."""


@dataclass(frozen=True)
class Template:
    """A table that nobody has looked at: it says which columns such tables have, and what they all refuse."""

    table: Table
    rows: DataFrame
    """None, with its columns, as decoded."""
    own: OwnColumns | None
    """The columns of its records, if these have a schema of their own."""
    usual: str | None
    """SQL of what is wrong with a row for it, whatever the table is like: by the file alone."""

    @property
    def deletes(self) -> str:
        """SQL: as in ``Derivation``, over the columns of its records."""
        return self.table.derivation.deletes

    @classmethod
    def of(cls, table: Table, rows: DataFrame, own: OwnColumns | None, *, keyed: bool) -> Template:
        """The template that this table is an example of.

        The values that a partition can't hold aren't refused: a person may have made the table, without partitions.
        """
        return cls(table, rows, own, _problem(table, (), rows, keyed=keyed))


@dataclass(frozen=True)
class RoutedTable:
    """The table of one value."""

    config: PipelineConfig
    """With its sink as the only one."""
    output: Table
    sink: Unstaged
    keyed: bool
    """Whether it takes tombstones."""
    template: Template

    @property
    def where(self) -> str:
        """SQL: whether a row is the table's."""
        return where(self.sink.name)

    @property
    def problem(self) -> str | None:
        """SQL, over the columns of its records, of what is wrong with a row for this table; None: it takes all rows."""
        rows = self.template.rows
        return _problem(self.output, self.output.unfit(rows), rows, keyed=self.keyed)

    @property
    def differs(self) -> bool:
        """Whether the table refuses more rows than its template."""
        return self.problem != self.template.usual

    def made(self, records: DataFrame, epoch: Epoch, count: int) -> DataFrame:
        """The rows that an epoch's ``records`` of this table make. ``count``: of the records.

        Every task of the epoch has some records of each table, and would write a small file for them.
        """
        rows = self.output.derivation.reduce(records, epoch)
        return rows.coalesce(1 + count // ROWS_PER_FILE) if isinstance(self.config.sinks[0], DeltaAppendSink) else rows


def where(name: str) -> str:
    """SQL: whether a row is for the table of this name."""
    return f"{ROUTE} IS NULL" if name == OTHER else f"{ROUTE} = {literal(name)}"


def by_table(
    problems: Mapping[str, str | None], usual: str | None, own: Sequence[OwnColumns], *, judged: str = "problem"
) -> str | None:
    """SQL of what is wrong with a row for its table. Tables that refuse the same are told apart by nobody.

    ``problems``: name of the table -> what is wrong with a row for it, of those that may differ from the ``usual``;
    ``own``: the columns of the tables whose rows have been judged; ``judged``: the name of what that has found.
    """
    whens = [f"WHEN {each.mine} THEN {getattr(each, judged)}" for each in own]
    differ: dict[str | None, list[str]] = {}
    for name, problem in problems.items():
        if problem != usual:
            differ.setdefault(problem, []).append(where(name))
    whens += [f"WHEN {' OR '.join(rows)} THEN {problem or 'NULL'}" for problem, rows in differ.items()]
    return f"CASE {' '.join(whens)} ELSE {usual or 'NULL'} END" if whens else usual


def deletes_by_table(base: Template | None, templates: Mapping[str, Template]) -> str:
    """SQL: whether a row deletes rows of its table, as in ``Derivation``. ``base``: that of the other values."""
    own = [each.own for each in templates.values() if each.own is not None]
    shared = {name: each.deletes for name, each in templates.items() if each.own is None}
    return by_table(shared, base.deletes if base is not None else "false", own, judged="deletes") or "false"


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
    template: Table | None
    """A table of no value: it says the columns. None: each table has a schema of its own."""
    problem: Callable[[], str | None]
    """SQL of what is wrong with a row for its table."""
    begun: Callable[[], bool]
    """Whether the pipeline has committed an epoch."""
    refuses: bool
    """Whether a bad record stops the run."""
    deletes: str
    """SQL: as in ``Derivation``, of a row for its table."""

    @property
    def derivation(self) -> Derivation:
        """The rows as they are, with their table. A bad one fails the query, unless it has been set aside."""
        problem = self.problem()
        judged = [name for own in self.decode.decode.own for name in (own.problem, own.deletes)]

        def reduce(rows: DataFrame, _: Epoch) -> DataFrame:
            return (refuse_problem(rows, problem) if self.refuses and problem is not None else rows).drop(*judged)

        return Derivation(columns=self._columns, reduce=reduce, problem=problem, deletes=self.deletes)

    @property
    def _columns(self) -> StructType:
        from pyspark.sql.types import StructType

        return self.template.derivation.columns if self.template is not None else StructType([])

    def ready(self) -> None:
        """Nothing: a table is made when its first row has come."""

    def check(self) -> bool:
        """Whether there is any table."""
        return self.begun()

    def made_by(self, *, plain: bool = False) -> str:
        """The SQL that makes a table of any value, if the sink says how."""
        return self.template.made_by(plain=plain) if self.template is not None else ""

    def unfit(self, _: DataFrame) -> Sequence[Limit]:
        """Nothing: the limits of each table are part of ``problem``."""
        return ()
