"""What a MERGE does to its table, as a statement and as a query: the query gives the rows that there would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sinks.raised import identifier


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

    def query(self, target: str, source: str, columns: Sequence[str], *, there: str, hint: str = "") -> str:
        """``target``, ``source``: what comes after FROM; ``columns``: the table's; ``there``: a column of the source
        that is never null; ``hint``: how to join ``s``.

        One pass over the table for its rows, and one over its keys for those that are new: this way both are joins
        with the small source, and nothing of the table is moved. ``unmatched`` isn't done.
        """
        unchanged = f"s.{identifier(there)} IS NULL"
        changes = [(change.when or "true", _by_lower_case(change.sets)) for change in self.matched]
        rows = []
        for name in columns:
            before = f"t.{identifier(name)}"
            whens = "".join(f" WHEN {when} THEN {sets.get(name.lower(), before)}" for when, sets in changes)
            changed = any(name.lower() in sets for _, sets in changes)
            value = f"CASE WHEN {unchanged} THEN {before}{whens} ELSE {before} END" if changed else before
            rows.append(f"{value} AS {identifier(name)}")
        left = ""
        if any(change.sets is None for change in self.matched):
            gone = "".join(f" WHEN {c.when or 'true'} THEN {str(c.sets is None).lower()}" for c in self.matched)
            left = f"WHERE {unchanged} OR NOT CASE{gone} ELSE false END"
        inserts = _by_lower_case(self.inserts)
        added = ", ".join(f"{inserts.get(name.lower(), 'NULL')} AS {identifier(name)}" for name in columns)
        key = ", ".join(f"t.{identifier(name)}" for name in self.key)
        return (
            f"SELECT {hint} {', '.join(rows)} FROM {target} AS t LEFT JOIN {source} AS s ON {self.on} {left} "
            f"UNION ALL SELECT {added} FROM {source} AS s "
            f"LEFT ANTI JOIN (SELECT {hint} {key} FROM {target} AS t LEFT SEMI JOIN {source} AS s ON {self.on}) AS t "
            f"ON {self.on} WHERE {self.insert_when or 'true'}"
        )


def _and(condition: str) -> str:
    return f" AND {condition}" if condition else ""


def _by_lower_case(values: Mapping[str, str] | None) -> Mapping[str, str]:
    """The table may write its columns' names in another case."""
    return {name.lower(): value for name, value in (values or {}).items()}
