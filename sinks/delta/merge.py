"""A MERGE as a value, and its SQL: as a MERGE statement, as an INSERT into a table without rows, and as a query.

The query returns the rows that the table would have after the MERGE, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.delta.sql_layout import all_of, case, indented, listed, parentheses
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from sinks.delta.detail import Detail
    from sinks.delta.table import DeltaTable

NOT_NEW = "not_new"
"""Kind of the error that an INSERT raises if the table has got rows in the meantime."""
_THERE, _CASE = "_lakelock_there", "_lakelock_case"


@dataclass(frozen=True)
class Change:
    """What happens to a row. Of several changes the first one whose condition is true applies."""

    when: str
    """SQL of the condition; empty: always."""
    sets: Mapping[str, str] | None
    """Column -> SQL of its new value. None: the row is deleted."""

    def clause(self, kind: str) -> str:
        """The clause of a MERGE; ``kind``: its first words, such as ``WHEN MATCHED``."""
        lines = [indented(f"AND {self.when}")] if self.when else []
        if self.sets is None:
            return "\n".join([kind, *lines, indented("THEN DELETE")])
        # The columns have no "t." before them: Delta knows a column that this MERGE adds by its bare name only.
        values = ",\n".join(f"{identifier(name)} = {value}" for name, value in self.sets.items())
        return "\n".join([kind, *lines, indented(f"THEN UPDATE SET\n{indented(values)}")])


@dataclass(frozen=True)
class Merge:
    """A MERGE. Its SQL names the table's row ``t`` and the source's row ``s``."""

    key: Sequence[str]
    """Columns of both sides: rows with the same values in them match."""
    matched: Sequence[Change]
    """Changes of a row of the table that matches a row of the source."""
    inserts: Mapping[str, str]
    """Column -> SQL of its value, for a row of the source that matches none of the table."""
    insert_when: str = ""
    """SQL of the condition under which such a row is inserted; empty: always."""
    unmatched: Sequence[Change] = ()
    """Changes of a row of the table that matches no row of the source."""
    within: str = ""
    """SQL that is true of every row of the table with a match. Delta skips files without such rows. Empty: unknown."""
    evolves: bool = False
    """Whether the MERGE adds columns of the source that the table lacks."""
    null_keys: bool = False
    """Whether NULL in a key column matches NULL. Else it matches nothing."""

    @property
    def on(self) -> str:
        """SQL of the condition by which rows match."""
        same = "<=>" if self.null_keys else "="
        equal = [f"t.{identifier(column)} {same} s.{identifier(column)}" for column in self.key]
        return all_of([*equal, *([self.within] if self.within else [])])

    def command(self, table: DeltaTable, source: str) -> str:
        """The statement to run: an INSERT if the table is new, which reads the source once; else the MERGE.

        ``source``: SQL of the source, as in FROM. Ask again before each attempt: the table may have got rows.
        """
        return (
            self.insertion(table.sql, source)
            if table.is_new and not self.evolves
            else self.statement(table.sql, source)
        )

    def insertion(self, target: str, source: str) -> str:
        """An INSERT that does what the MERGE would do in a table without rows.

        If the table has got a row with a key of the source in the meantime, the INSERT fails (``NOT_NEW``). If another
        commit adds rows later, Delta refuses the INSERT as it would refuse a MERGE, because the INSERT reads the table.
        """
        names, key = (listed(map(identifier, columns)) for columns in (self.inserts, self.key))
        not_new = f"CAST({raise_sql(NOT_NEW)} AS BOOLEAN)"
        there = parentheses(f"SELECT {key}, true AS {_THERE}\nFROM {target}")
        return "\n".join(
            [
                f"INSERT INTO {target} {parentheses(names)}",
                _select(self.inserts.values()),
                f"FROM {source} AS s",
                f"LEFT JOIN {there} AS t",
                f"ON {self.on}",
                f"WHERE {case([(f't.{_THERE}', not_new)], self.insert_when or 'true')}",
            ]
        )

    def statement(self, target: str, source: str) -> str:
        """The MERGE statement. ``target``, ``source``: SQL of the table and of the source, as in FROM."""
        names = listed(map(identifier, self.inserts))
        insert = f"THEN INSERT {parentheses(names)}\nVALUES {parentheses(listed(self.inserts.values()))}"
        insert_when = [indented(f"AND {self.insert_when}")] if self.insert_when else []
        return "\n".join(
            [
                f"MERGE {'WITH SCHEMA EVOLUTION ' if self.evolves else ''}INTO {target} AS t",
                f"USING {source} AS s",
                f"ON {self.on}",
                *(change.clause("WHEN MATCHED") for change in self.matched),
                "WHEN NOT MATCHED",
                *insert_when,
                indented(insert),
                *(change.clause("WHEN NOT MATCHED BY SOURCE") for change in self.unmatched),
            ]
        )

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
        detail: Detail | None = None,
    ) -> str:
        """A query for the rows that the table would have after the MERGE. ``unmatched`` changes are left out.

        ``target``, ``source``: SQL of the table and of the source, as in FROM.
        ``keys``: SQL of rows with the source's key columns, as in FROM; a key may occur any number of times.
        ``columns``: names of the table's columns, which are the columns of the result.
        ``replaces``: each row of the source is newer than the table's, and replaces all of it.
        ``untouched``: whether the result has the rows that match no row of the source.
        ``hint``: SQL hint for the join with the source, such as ``/*+ BROADCAST(s) */``.
        ``detail``: of the table, with generated columns and defaults, which Delta fills at a MERGE; None: it has none.

        Most rows match nothing. An anti join with the keys passes them on, and only the others are computed: a CASE
        over every row is more code than the JVM compiles, and took ten times as long.
        """
        keys = parentheses(f"SELECT {listed(map(identifier, self.key))} FROM {keys}")
        others = ""
        if untouched:
            others = (
                f"{_select((f't.{identifier(name)}' for name in columns), hint)}\n"
                f"FROM {target} AS t\nLEFT ANTI JOIN {keys} AS s\nON {self.on}\nUNION ALL\n"
            )
        inserts = _by_lower_case(self.inserts)
        if replaces and all(name.lower() in inserts for name in columns):
            values = (f"{inserts[name.lower()]} AS {identifier(name)}" for name in columns)
            return f"{others}{_select(values)}\nFROM {source} AS s\nWHERE {self.insert_when or 'true'}"
        made = {name: sql for name, sql in (detail.generated if detail else {}).items() if name.lower() not in inserts}
        defaults = detail.defaults if detail else {}
        plain = [name for name in columns if name not in made]
        computed = self._computed(target, source, keys, plain, hint, defaults)
        if made:
            values = (f"{made[name]} AS {identifier(name)}" if name in made else identifier(name) for name in columns)
            computed = f"{_select(values)}\nFROM {parentheses(computed)}"
        return others + computed

    def _computed(
        self, target: str, source: str, keys: str, columns: Sequence[str], hint: str, defaults: Mapping[str, str]
    ) -> str:
        """A query for the rows that match a row of the source, and for those that are inserted.

        A subquery numbers the change that applies to each pair of rows; the values then depend on the number alone.
        ``defaults``: column -> SQL of its value in a row that is inserted without one.
        """
        is_new = f"t.{_THERE} IS NULL"
        inserted = all_of([is_new, *([self.insert_when] if self.insert_when else [])])
        new = {**_by_lower_case(defaults), **_by_lower_case(self.inserts)}
        changes = [Change(inserted, new), Change(is_new, None), *self.matched]
        number = case([(change.when or "true", str(at)) for at, change in enumerate(changes)], str(len(changes)))
        touched = parentheses(
            f"{_select(['t.*', f'true AS {_THERE}'], hint)}\n"
            f"FROM {target} AS t\nLEFT SEMI JOIN {keys} AS s\nON {self.on}"
        )
        pairs = parentheses(
            f"{_select(['struct(s.*) AS s', 'struct(t.*) AS t', f'{number} AS {_CASE}'])}\n"
            f"FROM {source} AS s\nLEFT JOIN {touched} AS t\nON {self.on}"
        )
        sets = {at: _by_lower_case(change.sets) for at, change in enumerate(changes) if change.sets is not None}
        values = []
        for name in columns:
            branches = [(str(at), value[name.lower()]) for at, value in sets.items() if name.lower() in value]
            stored = f"t.{identifier(name)}"
            value = case(branches, stored, of=_CASE) if branches else stored
            values.append(f"{value} AS {identifier(name)}")
        deleted = ", ".join(str(at) for at in range(len(changes)) if at not in sets)
        return f"{_select(values)}\nFROM {pairs}\nWHERE {_CASE} NOT IN ({deleted})"


def _select(values: Iterable[str], hint: str = "") -> str:
    head = f"SELECT {hint}" if hint else "SELECT"
    columns = listed(values)
    return f"{head}\n{indented(columns)}" if "\n" in columns else f"{head} {columns}"


def _by_lower_case(values: Mapping[str, str]) -> Mapping[str, str]:
    """The table may write its columns' names in another case."""
    return {name.lower(): value for name, value in values.items()}
