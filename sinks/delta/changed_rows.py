"""The MERGE of rows that a table lacks or holds in another form, and of those that it is to lose."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.delta.sql_layout import indented, listed, parentheses
from sinks.delta.upsert_rule import SOURCE
from sinks.spark.sql import identifier

GONE = "lakelock gone"
"""A column of these rows: whether the row is to be deleted."""


def changing_sql(target: str, names: Sequence[str], identity: Sequence[str], within: str) -> str:
    """The statement, from the view ``SOURCE``. It leaves rows alone that have no offset: a person inserted them.

    ``target``: SQL of the table; ``names``: its columns; ``identity``: SQL of those that identify a row;
    ``within``: SQL that is true of every row ``t`` that may change; empty: unknown.
    """
    names = [identifier(name) for name in names]
    on = " AND ".join(f"t.{name} = s.{name}" for name in identity)
    gone = f"s.{identifier(GONE)}"
    values = ",\n".join(f"t.{name} = s.{name}" for name in names)
    return "\n".join(
        [
            f"MERGE INTO {target} AS t",
            f"USING {SOURCE} AS s",
            f"ON {on} AND t._offset IS NOT NULL{within and f' AND {within}'}",
            f"WHEN MATCHED AND {gone}",
            indented("THEN DELETE"),
            "WHEN MATCHED",
            indented(f"THEN UPDATE SET\n{indented(values)}"),
            f"WHEN NOT MATCHED AND NOT {gone}",
            indented(f"THEN INSERT {parentheses(listed(names))}"),
            indented(f"VALUES {parentheses(listed(f's.{name}' for name in names))}"),
        ]
    )
