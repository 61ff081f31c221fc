"""Problems of records with sensitive columns: they name the field that is wrong, and quote nothing of its value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sinks.spark.sql import literal

_FIELD = r"(?s)^((?:not one message [^:]+: )?field [^:]+:).*"
"""Of Protobuf, whose problem is of the field's number."""
_OF_SCHEMA, _TWICE = "doesn't fit its JSON Schema", "has a field twice in one object"
"""Of a JSON Schema. A path of names comes after it, and the names in an object may be values, as a MAP's keys are."""
_NOT_RIGHT = " isn't right"
_OP = "no change of a row"
"""Of Debezium, whose problem is the op."""


def unquoted(wrong: str, columns: Sequence[str]) -> str:
    """SQL of what a format says of a value, without what it quotes. ``columns``: those of the format."""
    names = "|".join(re.escape(name) for name in columns)
    column = literal(rf"^{_OF_SCHEMA}: ({names})[. \[]" if columns else "^()$")
    begun = " ".join(
        f"WHEN startswith({wrong}, {literal(each)}) THEN {literal(each)}" for each in (_OF_SCHEMA, _TWICE, _OP)
    )
    named = f"concat({literal(f'{_OF_SCHEMA}: ')}, regexp_extract({wrong}, {column}, 1), {literal(_NOT_RIGHT)})"
    return (
        f"CASE WHEN {wrong} RLIKE {column} THEN {named} {begun} "
        f"ELSE regexp_replace({wrong}, {literal(_FIELD)}, {literal(f'$1{_NOT_RIGHT}')}) END"
    )
