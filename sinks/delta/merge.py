"""What a MERGE does to its table, as a statement and as a query: the query gives the rows that there would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from sinks.delta.table import DeltaTable

NOT_NEW = "not_new"
"""Kind of the failure of an insertion into a table that has got rows."""
_THERE, _CASE = "_lakelock_there", "_lakelock_case"


@dataclass(frozen=True)
class Change:
    """What becomes of a row: of several changes, the first one whose condition holds."""

    when: str
    """Empty: always."""
    sets: Mapping[str, str] | None
    """Column -> SQL of its new value; None: the row is deleted."""

    def clause(self, kind: str) -> str:
        # Without "t.": Delta knows a column that is yet to be added by its bare name only.
        done = "DELETE" if self.sets is None else "UPDATE SET "
        return f"{kind}{_and(self.when)} THEN {done}" + ", ".join(
            f"{identifier(name)} = {value}" for name, value in (self.sets or {}).items()
        )


@dataclass(frozen=True)
class Merge:
    """SQL over ``t``, the table's row, and ``s``, the source's."""

    key: Sequence[str]
    """Columns of both that say which rows are the same."""
    matched: Sequence[Change]
    inserts: Mapping[str, str]
    insert_when: str = ""
    unmatched: Sequence[Change] = ()
    """Of rows that the source says nothing of."""
    within: str = ""
    """What holds of every row of the table that the source has one for: files without such aren't read."""
    evolves: bool = False
    null_keys: bool = False
    """NULL is a key like any other."""

    @property
    def on(self) -> str:
        same = "<=>" if self.null_keys else "="
        return " AND ".join(f"t.{identifier(column)} {same} s.{identifier(column)}" for column in self.key) + _and(
            self.within
        )

    def command(self, table: DeltaTable, source: str) -> str:
        """The statement; for a table without rows one that doesn't compute the source twice, to look for rows that it
        is about. To be asked for at each attempt."""
        return (
            self.insertion(table.sql, source)
            if table.is_new and not self.evolves
            else self.statement(table.sql, source)
        )

    def insertion(self, target: str, source: str) -> str:
        """The same where the target has no rows. Where it has got one in between, of which the source has another, it
        fails; and as it reads the table, Delta refuses it where one comes later, as it refuses a MERGE."""
        names, key = (", ".join(map(identifier, listed)) for listed in (self.inserts, self.key))
        not_new = f"CAST({raise_sql(NOT_NEW)} AS BOOLEAN)"
        return (
            f"INSERT INTO {target} ({names}) SELECT {', '.join(self.inserts.values())} FROM {source} AS s "
            f"LEFT JOIN (SELECT {key}, true AS {_THERE} FROM {target}) AS t ON {self.on} "
            f"WHERE CASE WHEN t.{_THERE} THEN {not_new} ELSE {self.insert_when or 'true'} END"
        )

    def statement(self, target: str, source: str) -> str:
        names = ", ".join(identifier(name) for name in self.inserts)
        clauses = [
            *(change.clause("WHEN MATCHED") for change in self.matched),
            f"WHEN NOT MATCHED{_and(self.insert_when)} THEN INSERT ({names}) "
            f"VALUES ({', '.join(self.inserts.values())})",
            *(change.clause("WHEN NOT MATCHED BY SOURCE") for change in self.unmatched),
        ]
        evolving = "WITH SCHEMA EVOLUTION " if self.evolves else ""
        return f"MERGE {evolving}INTO {target} AS t USING {source} AS s ON {self.on} {' '.join(clauses)}"

    def query(
        self,
        target: str,
        source: str,
        keys: str,
        columns: Sequence[str],
        *,
        replaces: bool = False,
        untouched: bool = True,
        hint: str = "",
    ) -> str:
        """``target``, ``source``: what comes after FROM; ``keys``: the same of rows with the source's keys, in any
        number; ``columns``: the table's; ``hint``: how to join ``s``. ``replaces``: each row of the source is newer
        than the one of the table, and tells all of it. ``untouched``: with the rows that the source says nothing of.

        The many rows that the source says nothing of are passed on by one join with its keys, and only those that it is
        about are worked out: a CASE over every row is more code than the JVM compiles, and took ten times as long.
        ``unmatched`` isn't done.
        """
        keys = f"(SELECT {', '.join(map(identifier, self.key))} FROM {keys})"
        others = (
            f"SELECT {hint} {', '.join(f't.{identifier(name)}' for name in columns)} "
            f"FROM {target} AS t LEFT ANTI JOIN {keys} AS s ON {self.on} UNION ALL "
        )
        inserts = _by_lower_case(self.inserts)
        if replaces and all(name.lower() in inserts for name in columns):
            new = ", ".join(f"{inserts[name.lower()]} AS {identifier(name)}" for name in columns)
            return f"{others if untouched else ''}SELECT {new} FROM {source} AS s WHERE {self.insert_when or 'true'}"
        touched = f"(SELECT {hint} t.*, true AS {_THERE} FROM {target} AS t LEFT SEMI JOIN {keys} AS s ON {self.on})"
        is_new = f"t.{_THERE} IS NULL"
        cases = [Change(f"{is_new}{_and(self.insert_when)}", inserts), Change(is_new, None), *self.matched]
        which = " ".join(f"WHEN {change.when or 'true'} THEN {number}" for number, change in enumerate(cases))
        rows = (
            f"(SELECT struct(s.*) AS s, struct(t.*) AS t, CASE {which} ELSE {len(cases)} END AS {_CASE} "
            f"FROM {source} AS s LEFT JOIN {touched} AS t ON {self.on})"
        )
        sets = {number: _by_lower_case(change.sets) for number, change in enumerate(cases) if change.sets is not None}
        values = []
        for name in columns:
            whens = "".join(
                f" WHEN {number} THEN {value[name.lower()]}" for number, value in sets.items() if name.lower() in value
            )
            before = f"t.{identifier(name)}"
            values.append(f"{f'CASE {_CASE}{whens} ELSE {before} END' if whens else before} AS {identifier(name)}")
        gone = ", ".join(str(number) for number in range(len(cases)) if number not in sets)
        return f"{others if untouched else ''}SELECT {', '.join(values)} FROM {rows} WHERE {_CASE} NOT IN ({gone})"


def _and(condition: str) -> str:
    return f" AND {condition}" if condition else ""


def _by_lower_case(values: Mapping[str, str]) -> Mapping[str, str]:
    """The table may write its columns' names in another case."""
    return {name.lower(): value for name, value in values.items()}
