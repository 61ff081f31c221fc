"""Records of a route that have a schema of their own: their columns are a STRUCT beside those that all records have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.decode.format import problem_of
from connector.decode.records import (
    HEADERS,
    KEY,
    PROBLEM,
    PROBLEM_TYPE,
    RAW,
    ROUTE,
    TOMBSTONE,
    also,
    columns_of,
    problem_with,
)
from connector.decode.tombstone_key import of_tombstone
from sinks.delta.table import COORDINATES
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from connector.decode.format import Format

_BYTES, _READ, _WRONG, _ALL = "_own_bytes", "_of_own", "_own_wrong", "_lakelock_all"
_SHARED = (KEY, HEADERS, *COORDINATES, TOMBSTONE, PROBLEM, RAW, ROUTE)


@dataclass(frozen=True)
class OwnColumns:
    """The columns of the records of one value of a route."""

    value: str
    format: Format
    key: tuple[str, ...]
    """The columns that identify the row that a tombstone deletes. Empty: the table takes none."""
    number: int
    """Which of the route's schemas it is."""

    @property
    def column(self) -> str:
        """The STRUCT. It is null for the records of other values."""
        return f"_lakelock_own_{self.number}"

    @property
    def problem(self) -> str:
        """The column of ``judged``."""
        return f"_lakelock_judged_{self.number}"

    @property
    def deletes(self) -> str:
        """The column of ``judged`` that says whether a record deletes rows."""
        return f"_lakelock_deletes_{self.number}"

    @property
    def part(self) -> str:
        """What it reads, for a schema to ask for."""
        return f"value of {self.value}"

    @property
    def mine(self) -> str:
        """SQL: whether a record has these columns."""
        return f"{ROUTE} <=> {literal(self.value)}"

    def added(self, frame: DataFrame, key: Format | None) -> DataFrame:
        """Decoded records with ``column``, and with the problems of their values. ``key``: how ``_key`` was decoded."""
        names = frame.columns
        mine = frame.selectExpr("*", f"CASE WHEN {self.mine} THEN {RAW}.value END AS {_BYTES}")
        read = self.format.decoded(mine, _BYTES, _READ)
        of_key = of_tombstone(self.format, key, self.key, KEY, f"{RAW}.key")
        columns = columns_of(self.format, _READ, f"{RAW}.value", of_key)
        struct = ", ".join(f"{literal(name)}, {sql}" for name, sql in columns.items())
        # Other records have no such bytes, and nothing is looked for in them.
        whens = problem_with("value", problem_of(_READ), _BYTES, asks_for=self.part)
        wrong = f"CASE WHEN {_BYTES} IS NOT NULL THEN CASE {whens} END END"
        found = read.selectExpr(
            *map(identifier, names),
            f"CASE WHEN {self.mine} THEN named_struct({struct}) END AS {self.column}",
            f"{wrong} AS {_WRONG}",
        )
        return also(found, _WRONG).drop(_WRONG)

    def alone(self, rows: DataFrame) -> DataFrame:
        """The rows of decoded records with these columns in place of those that all records have."""
        shared = [name for name in _SHARED if name in rows.columns]
        return rows.selectExpr(f"{self.column}.*", *shared)

    def judged(self, rows: DataFrame, problem: str | None, deletes: str) -> DataFrame:
        """The rows with the columns ``problem`` and ``deletes``. ``problem``: SQL, over these columns, of what is wrong
        with a row; ``deletes``: as in ``Derivation``."""
        nothing = f"CAST(NULL AS {PROBLEM_TYPE})"
        if problem is None and deletes == "false":
            return rows.selectExpr("*", f"{nothing} AS {self.problem}", f"false AS {self.deletes}")
        names = rows.columns
        shared = [name for name in _SHARED if name in names]
        both = rows.selectExpr(f"struct(*) AS {_ALL}", f"{self.column}.*", *shared)
        every = (f"{_ALL}.{identifier(name)} AS {identifier(name)}" for name in names)
        return both.selectExpr(
            *every,
            f"CASE WHEN {self.mine} THEN {problem or nothing} END AS {self.problem}",
            f"{self.mine} AND {deletes} AS {self.deletes}",
        )
