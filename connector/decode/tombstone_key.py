"""The key columns of a tombstone, from Kafka's key. They are null if the key is unreadable, or would lose something."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connector.decode import json_decimals as decimals
from connector.decode import json_numbers as numbers
from connector.decode.exact_cast import exactly, of_text
from connector.decode.json_lossless import exact
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal, unlike
from sinks.spark.types import ddl, sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from connector.decode.format import Format

_PAYLOAD = "payload"
_PART = "get_json_object({}, '$.{}')"


def of_kafkas_key(value: DataType, key: Sequence[str], kafkas: str = "key") -> dict[str, str]:
    """SQL of the columns ``key``, whose types are those of ``value``. ``kafkas``: SQL of the bytes of Kafka's key.

    Kafka's key is a JSON object with these columns, or for one column its value as text or as a JSON string. The
    object, or the one column's value, may be inside ``payload``, beside its schema.
    """
    from pyspark.sql.types import AtomicType, StructField, StructType

    if not isinstance(value, StructType):
        return {}
    text = f"CAST({kafkas} AS STRING)"
    wanted = StructType([StructField(field.name, field.dataType) for field in value if field.name in key])
    inner = StructType([StructField(_PAYLOAD, wanted)])
    found = {}
    for field in wanted:
        atomic = isinstance(field.dataType, AtomicType)
        alone = len(key) == 1 and atomic
        named = _spelled(text, field.name) if atomic else text
        of_payload = _of_json(named, inner, _PAYLOAD, field.name)
        if alone:
            of_value = _of_json(text, StructType([StructField(_PAYLOAD, field.dataType)]), _PAYLOAD)
            of_payload = f"CASE WHEN {_PART.format(text, _PAYLOAD)} LIKE '{{%' THEN {of_payload} ELSE {of_value} END"
        sql = f"CASE WHEN {text} LIKE '{{%}}' AND {_has_schema(text)} THEN {of_payload} "
        sql += f"WHEN {text} LIKE '{{%}}' THEN {_of_json(named, wanted, field.name)} "
        if alone:
            as_object = f"concat('{{\"v\":', {text}, '}}')"
            of_string = _of_json(as_object, StructType([StructField("v", field.dataType)]), "v")
            sql += f"WHEN {text} LIKE '\"%\"' THEN {of_string} "
            sql += f"ELSE {of_text(field.dataType, text)} "
        found[field.name] = sql + "END"
    return found


def _spelled(text: str, name: str) -> str:
    """SQL of a JSON object in which the only name that is like ``name`` but for its case is spelled like it, for
    from_json. Of several such names nobody knows which one is meant: the object stays as it is. One in an inner object
    makes no key."""
    if not re.fullmatch(r"\w+", name):
        return text
    alike, spelled = literal(rf'(?iu)"{name}"(?=\s*:)'), literal(f'"{name}"')
    return f"IF(regexp_count({text}, {alike}) = 1, regexp_replace({text}, {alike}, {spelled}), {text})"


def _has_schema(text: str) -> str:
    """SQL: whether a JSON object is what Kafka Connect's JsonConverter makes of a key, its schema and its payload. Its
    option ``schemas.enable`` is on unless somebody turns it off."""
    names = f"array_sort(json_object_keys({text})) = array('{_PAYLOAD}', 'schema')"
    # Of a null there is no text: the schema of a key without one.
    return f"{names} AND coalesce({_PART.format(text, 'schema')}, '{{') LIKE '{{%'"


def _of_json(text: str, wanted: StructType, *path: str) -> str:
    """SQL of one field of a JSON object, of which ``wanted`` is the type."""
    how = exact(wanted)
    parsed, texts = _from_json(text, how.parsed_as), None
    if how.texts_as is not None:
        texts = _from_json(numbers.in_quotes(text, permissive=False), how.texts_as)
    kind: DataType = wanted
    for name in path:
        kind = kind[name].dataType  # type: ignore[index]
    names, field = ".".join(map(identifier, path)), exact(kind)
    value = field.value(f"{parsed}.{names}", f"{texts}.{names}" if field.texts_as else None)
    wrong = [decimals.huge(text, how.decimals), decimals.rounded(text, how.decimals)] if how.decimals else []
    wrong += [f"NOT {how.sound(parsed, texts)}"] if how.sound is not None else []
    return f"CASE {' '.join(f'WHEN {each} THEN NULL' for each in wrong)} ELSE {value} END" if wrong else value


def _from_json(text: str, kind: DataType) -> str:
    from pyspark.sql.types import StructType

    assert isinstance(kind, StructType)
    # Otherwise Spark keeps a column with the name that the session has for malformed text for that, and it is null.
    malformed = literal(unlike("malformed", kind.names))
    options = f"'allowNonNumericNumbers', 'false', 'columnNameOfCorruptRecord', {malformed}"
    return f"from_json({text}, {literal(ddl(kind))}, map({options}))"


def of_tombstone(
    value: Format, key: Format | None, columns: Sequence[str], decoded: str, kafkas: str
) -> Mapping[str, str]:
    """SQL of the key ``columns`` in a tombstone's row, from Kafka's key. Columns made by the transform stay null.

    ``decoded``: SQL of Kafka's key as the format ``key`` reads it. Without a format it is read from the bytes, SQL
    ``kafkas``, as the types in ``value`` say.
    """
    if key is None:
        return of_kafkas_key(value.type, columns, kafkas)
    from pyspark.sql.types import StructType

    if len(columns) == 1 and not isinstance(key.type, StructType):
        return {columns[0]: _as_column(value, columns[0], key.type, decoded)}
    of_key = key.type if isinstance(key.type, StructType) else StructType()
    kinds = {name: of_key[name].dataType for name in columns if name in of_key.names}
    return {name: _as_column(value, name, kind, f"{decoded}.{identifier(name)}") for name, kind in kinds.items()}


def _as_column(value: Format, name: str, kind: DataType, found: str) -> str:
    """SQL of a key column whose type in Kafka's key is ``kind``, as the type that it has in ``value``: all rows of a
    column have one type. Raises ConfigurationError if no value of the one is exactly one of the other."""
    from pyspark.sql.types import StructType

    if not isinstance(value.type, StructType) or name not in value.type.names:
        return found
    wanted = value.type[name].dataType
    if sql_type(wanted) == sql_type(kind):
        return found
    cast = exactly(kind, wanted, found)
    if cast is None:
        raise ConfigurationError(
            f"key: the key column {name} is {sql_type(kind).upper()} in Kafka's key and {sql_type(wanted).upper()} in "
            "the value, and no exact cast leads from the one to the other.",
            hint="Give it the same type in both. Without `key` a tombstone's key is read from a JSON object or a text.",
        )
    return cast
