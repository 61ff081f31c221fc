"""The columns of JSON records whose file names none: by the JSON Schemas of a registry, as the auditor reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from sinks.errors import UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_Node: TypeAlias = Any
_LEVELS = 100
_CHOICES = ("allOf", "oneOf", "anyOf", "then", "else")
_OF_A_TYPE = {
    "$ref", "type", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "enum", "const",
    "allOf", "oneOf", "anyOf",
}  # fmt: skip
_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def columns_of(text: str) -> StructType:
    """The columns of the objects that a schema describes. Raises UnusableSchema."""
    from pyspark.sql.types import StructType

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _unusable("it isn't JSON") from None
    found = _Reading(document).kind(document, ())
    if not isinstance(found, StructType):
        raise _unusable("it isn't an object with properties")
    return found


def grown(versions: Sequence[str]) -> StructType:
    """The columns of the newest version, the last one, with the fields that only older ones have."""
    found = columns_of(versions[-1])
    for text in versions[:-1]:
        try:
            merged = _merged(found, columns_of(text))
        except UnusableSchema:
            continue
        assert isinstance(merged, type(found))
        found = merged
    return found


def _merged(one: DataType, other: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {each.name.lower(): each for each in one}
        for each in other:
            mine = fields.setdefault(each.name.lower(), each)
            fields[each.name.lower()] = type(each)(mine.name, _merged(mine.dataType, each.dataType))
        return StructType([*fields.values()])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    if isinstance(one, MapType) and isinstance(other, MapType):
        return MapType(one.keyType, _merged(one.valueType, other.valueType))
    return one


def _unusable(why: str) -> UnusableSchema:
    return UnusableSchema(
        f"The JSON Schema in the registry gives no columns: {why}.",
        hint='Write the columns beside the registry: schema: "id BIGINT, ...".',
    )


class _Reading:
    def __init__(self, document: _Node) -> None:
        self._document = document
        named = document.get("$schema") if isinstance(document, dict) else None
        self._newer = named is not None and "draft-0" not in str(named)
        """Of a draft in which what is beside a $ref holds as well."""

    def kind(self, node: _Node, above: tuple[int, ...]) -> DataType:
        """The type of a schema's values. ``above``: the schemas that it is a part of, by identity."""
        from pyspark.sql import types as T

        node, above = self._settled(node, above)
        kind = self._word(node)
        if node.get("title") == _DECIMAL:
            return self._decimal(node, kind)
        of_connect = node.get("connect.type")
        if kind == "object":
            return self._object(node, above)
        if kind == "array":
            if "items" not in node or isinstance(node["items"], list) or "prefixItems" in node:
                raise _unusable("an array's items have no one type")
            return T.ArrayType(self.kind(node["items"], above))
        if kind == "integer":
            small = {"int8": T.ByteType, "int16": T.ShortType, "int32": T.IntegerType}
            return small[of_connect]() if isinstance(of_connect, str) and of_connect in small else T.LongType()
        if kind == "number":
            return T.FloatType() if of_connect == "float32" else T.DoubleType()
        if kind == "string":
            return T.BinaryType() if of_connect == "bytes" else T.StringType()
        return T.BooleanType()

    def _object(self, node: Mapping[str, _Node], above: tuple[int, ...]) -> DataType:
        from pyspark.sql import types as T

        named, others = node.get("properties") or {}, node.get("additionalProperties")
        if node.get("patternProperties"):
            raise _unusable("an object has patternProperties")
        if not named and isinstance(others, dict):
            return T.MapType(T.StringType(), self.kind(others, above))
        if not named or _typed(others) or _typed(node.get("unevaluatedProperties")):
            raise _unusable("an object may have fields that nothing names")
        if "" in named or len({name.lower() for name in named}) < len(named):
            raise _unusable("the names of an object's properties can't be columns")
        return T.StructType([T.StructField(name, self.kind(each, above)) for name, each in named.items()])

    def _decimal(self, node: Mapping[str, _Node], kind: str) -> DataType:
        from pyspark.sql.types import DecimalType

        given = node.get("connect.parameters")
        try:
            scale = int(given["scale"])  # type: ignore[index]
            precision = int(given.get("connect.decimal.precision", 38))  # type: ignore[union-attr]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _unusable("a Decimal of Kafka Connect has no scale") from None
        if kind == "string" or not 0 <= scale <= precision <= 38:
            raise _unusable("a Decimal of Kafka Connect is no number of at most 38 digits")
        return DecimalType(precision, scale)

    def _word(self, node: Mapping[str, _Node]) -> str:
        given = node.get("type")
        words = given if isinstance(given, list) else [given]
        if given is None:
            words = self._words_of_the_rest(node)
        found = {word if isinstance(word, str) else "" for word in words} - {"null"}
        if found == {"integer", "number"}:
            found = {"number"}
        if len(found) != 1 or not found <= set(_NAMES.values()) or not isinstance(node.get("properties", {}), dict):
            raise _unusable("a value has no one type")
        return found.pop()

    def _words_of_the_rest(self, node: Mapping[str, _Node]) -> list[str]:
        if any(word in node for word in ("properties", "patternProperties", "additionalProperties")):
            return ["object"]
        if "items" in node or "prefixItems" in node:
            return ["array"]
        values = node.get("enum")
        if not isinstance(values, list):
            values = [node["const"]] if "const" in node else []
        return [_NAMES[type(value)] for value in values if value is not None]

    def _settled(self, node: _Node, above: tuple[int, ...]) -> tuple[Mapping[str, _Node], tuple[int, ...]]:
        """The schema that a reference or the only choice leads to."""
        while True:
            if not isinstance(node, dict):
                raise _unusable("a value may be anything")
            if id(node) in above or len(above) > _LEVELS:
                raise _unusable("it is recursive, or nested too deeply")
            above = (*above, id(node))
            if "$ref" in node:
                if self._newer and _adds(node):
                    raise _unusable("a $ref has more beside it")
                node = self._at(node["$ref"])
                continue
            if "$dynamicRef" in node or "$recursiveRef" in node:
                raise _unusable("it refers to what depends on where it is referred from")
            choices = _choices(node)
            if not choices and not _conditional(node):
                return node, above
            values = [
                each
                for each in choices
                if not (isinstance(each, dict) and (each.get("type") in ("null", ["null"]) or each == {"const": None}))
            ]
            own = {*(_OF_A_TYPE - set(_CHOICES)), "if"} & node.keys()
            if len(values) != 1 or own or _conditional(node) or _typed(node.get("unevaluatedProperties")):
                raise _unusable("a value may be of several types")
            node = values[0]

    def _at(self, reference: object) -> _Node:
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise _unusable("it refers to another schema")
        found = self._document
        for name in reference.split("/")[1:]:
            step = unquote(name).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (IndexError, KeyError, TypeError, ValueError):
                raise _unusable("it refers to a part that isn't there") from None
        return found


def _choices(node: Mapping[str, _Node]) -> list[_Node]:
    """Of the schemas that a value is combined of, those that say a type."""
    every = [each for word in _CHOICES if word in node for each in _listed(node[word])]
    return [each for each in every if not isinstance(each, dict) or _typed(each)]


def _conditional(node: Mapping[str, _Node], depth: int = 0) -> bool:
    """Whether a schema says more of a value that has a field of some name."""
    words = [node[word] for word in ("dependentSchemas", "dependencies") if isinstance(node.get(word), dict)]
    return any(_typed(each, depth + 1) for of_word in words for each in of_word.values())


def _adds(node: Mapping[str, _Node]) -> bool:
    """Whether a schema says more of a value than one type, or a list of what it may be."""
    named = {"properties", "patternProperties", "items", "prefixItems"} & node.keys()
    others = _typed(node.get("additionalProperties")) or _typed(node.get("unevaluatedProperties"))
    return bool(named or _choices(node)) or others or _conditional(node)


def _typed(node: _Node, depth: int = 0) -> bool:
    if not isinstance(node, dict) or depth > _LEVELS:
        return depth > _LEVELS
    parts = [node.get(word) for word in ("then", "else", "unevaluatedProperties")]
    return bool(_OF_A_TYPE & node.keys()) or _conditional(node, depth) or any(_typed(each, depth + 1) for each in parts)


def _listed(node: _Node) -> Sequence[_Node]:
    return node if isinstance(node, list) else [node]
