"""The deletes beside a table are kept by the columns of its key. A key column that was renamed in the table, and in the
pipeline file, has its old name there.

Such tombstones would be no deletes of their keys any more. The next ones would bring the new column along, with NULL in
the older ones, which a history takes for truncates of all keys. So they are refused until they are renamed too.

Tests: tests/unit/sinks/delta/test_renamed_key.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sinks.delta.table import DeltaTable
from sinks.errors import SchemaMismatch
from sinks.spark.sql import identifier
from sinks.spark.types import sql_type


def refuse_renamed(
    label: str,
    beside: Sequence[DeltaTable],
    key: Sequence[str],
    own: Sequence[str],
    advice: str | None = None,
    *,
    unused: Callable[[], Mapping[str, str] | None] = lambda: None,
) -> None:
    """Raises SchemaMismatch if the deletes of the table ``label`` are kept by other columns than ``key``.

    ``beside``: the tables that keep them; ``own``: their columns that aren't of a key; ``advice``: what to do then,
    None: rename them there. ``unused``: the types of the key's columns, if the table holds no change that the deletes
    could be about, as after a rewind to the beginning; else None.
    """
    told: list[str] = []
    hints: list[str | None] = []
    emptying: list[tuple[str, Sequence[str]]] = []
    for table in beside:
        columns = table.schema
        missing, others = differing(columns.names, key, own)
        if not missing and not (others and _any(table, _filled(others))):
            continue
        told += [name for name in others if name not in told]
        kinds = {field.name: sql_type(field.dataType) for field in columns}
        both = not missing and _any(table, f"({_filled(others)}) AND ({_filled(key)})")
        emptying.append((table.sql, missing))
        hints.append(renaming_sql(table.sql, kinds, missing, others, key) if not both else None)
    if not hints:
        return
    statements = [hint for hint in hints if hint is not None]
    hint = "Write the key as it was, or replay the topic into a new table: `lakelock replay FILE --into PATH`."
    if len(statements) == len(hints):
        hint = f"If the column was renamed, rename it there too, while no run is at work: {'; '.join(statements)}"
    if (types := unused()) is not None:
        statements = [emptying_sql(table, types, missing) for table, missing in emptying]
        hint = (
            "The table holds no change, so only a RESTORE to before its rewind would need them. If the key is another "
            f"one on purpose, remove them, while no run is at work: {'; '.join(statements)}"
        )
    raise SchemaMismatch(
        f"The key of {label!r} is {', '.join(key)}, and the deletes that are remembered beside it are kept "
        f"{'by ' + ', '.join(told) if told else 'without it'}. They would be taken for deletes of other keys, or of "
        "all. No row was written.",
        hint=advice or hint,
    )


def differing(columns: Sequence[str], key: Sequence[str], own: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns of the key that the tombstones lack, and those that they have and that aren't of the key. Pure."""
    there, wanted = {name.lower() for name in columns}, {name.lower() for name in (*key, *own)}
    return [name for name in key if name.lower() not in there], [name for name in columns if name.lower() not in wanted]


def renaming_sql(
    table: str, kinds: dict[str, str], missing: Sequence[str], others: Sequence[str], key: Sequence[str]
) -> str | None:
    """The statements that give the tombstones the column's new name. None: which one was renamed isn't known. Pure.

    ``kinds``: column -> its type; ``missing``, ``others``: as from ``differing``.
    """
    new = missing or key  # an earlier release has added it
    if len(new) != 1 or len(others) != 1:
        return None
    to, old = identifier(new[0]), identifier(others[0])
    adding = f"ALTER TABLE {table} ADD COLUMNS ({to} {kinds[others[0]]}); " if missing else ""
    # Not by RENAME: it needs column mapping, which these tables don't have.
    return f"{adding}UPDATE {table} SET {to} = {old}, {old} = NULL WHERE {old} IS NOT NULL"


def emptying_sql(table: str, kinds: Mapping[str, str], missing: Sequence[str]) -> str:
    """The statements that leave no tombstone, and add the columns of the key that are missing. Pure.

    ``kinds``: column of the key -> its type.
    """
    columns = ", ".join(f"{identifier(name)} {kinds[name]}" for name in missing)
    return f"ALTER TABLE {table} ADD COLUMNS ({columns}); DELETE FROM {table}" if missing else f"DELETE FROM {table}"


def _filled(columns: Sequence[str]) -> str:
    return " OR ".join(f"{identifier(name)} IS NOT NULL" for name in columns)


def _any(table: DeltaTable, where: str) -> bool:
    return not table.spark.sql(f"SELECT 1 FROM {table.sql} WHERE {where}").isEmpty()
