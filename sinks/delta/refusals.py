"""Writes that Delta refuses by a rule of the table: which rule it was, in an error that says what to do.

Most rows that break a rule are found before the write, see ``sinks.delta.limits``. What is left are rows that several
records make, and rules that somebody gives a table while a run writes to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sinks.errors import BadRecord, ConfigurationError, LakelockError, SchemaMismatch

HINT = (
    "Have the producer or `transform:` give another value, or take the rule from the table: ALTER TABLE ... DROP "
    "CONSTRAINT, or ALTER COLUMN ... DROP NOT NULL. A row that several records make has no single record that could be "
    "set aside."
)
_GENERATED = "Generated Column"
"""Delta's name for the constraint that a generated column holds what it is generated from."""


def _check(found: re.Match[str]) -> str:
    if found["name"] == _GENERATED:
        return f"a generated column would hold another value than what the table generates: {found['rule']}"
    return f"it breaks the table's constraint {found['name']}: {found['rule']}"


_RULES: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r"CHECK constraint (?P<name>.+?) \((?P<rule>.*)\) violated by row with values", _check),
    (
        r"NOT NULL constraint violated for column: (?P<name>.+?)\.?\s*$",
        lambda found: f"its {found['name']} is null, and NOT NULL in the table",
    ),
    (
        r"exceeds char/varchar type length limitation\. Failed check: (?P<rule>.*)\.",
        lambda found: f"a text is longer than its column allows: {found['rule']}",
    ),
    (
        r"Exceeds char/varchar type length limitation: (?P<length>\d+)",
        lambda found: f"a text is longer than the {found['length']} characters that its column allows",
    ),
]


def refused(error: BaseException, table: str) -> LakelockError | None:
    """What a refused write means. None: the error is another one. ``table``: what messages call the table."""
    text = str(error)
    if "DELTA_CANNOT_MODIFY_APPEND_ONLY" in text:
        return append_only(table, "the write changes or removes rows")
    for pattern, rule in _RULES:
        found = re.search(pattern, text, re.MULTILINE)
        if found is not None:
            return BadRecord(
                f"A row would be refused by the table {table!r}: {rule(found)}. Nothing of this epoch was written.",
                hint=HINT,
            )
    return None


def append_only(table: str, why: str) -> SchemaMismatch:
    """The error of a table with ``delta.appendOnly = true``; ``why``: the clause that says what needs changed rows."""
    return SchemaMismatch(
        f"The table {table!r} has delta.appendOnly = true, and {why}. Nothing was written.",
        hint="ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false'), or write to another table.",
    )


def managed_by_catalog(table: str, feature: str) -> ConfigurationError:
    """The error of a table whose newest commits aren't in its log. ``feature``: Delta's name for that."""
    return ConfigurationError(
        f"The table {table!r} has {feature}: another service holds its newest commits, and Lakelock looks for them in "
        "the table's log. Nothing was written.",
        hint="Write to a table without this feature, as on Databricks one at an external LOCATION.",
    )


@contextmanager
def about_refused_rows(table: str) -> Iterator[None]:
    """Raises the error of a rule if a write in the block breaks one. ``table``: what messages call the table."""
    try:
        yield
    except LakelockError:
        raise
    except Exception as error:
        told = refused(error, table)
        if told is None:
            raise
        raise told from None
