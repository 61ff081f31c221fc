"""JSON Schemas as columns: Spark DDL for the objects that a schema describes. Pure: without Spark.

Only what says the type of a value counts. What merely limits values (minimum, pattern, required ...) is passed over.
Whatever has no one type is refused, because a guess could lose values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote

from connector.decode.registry.registry import Reference
from sinks.errors import UnusableSchema
from sinks.spark.sql import identifier

Node: TypeAlias = Any
"""A schema, or a part of one, as its JSON is parsed."""

_DEEPEST = 100
"""Levels of types within types."""
_SHAPING = frozenset((
    "$ref", "type", "properties", "patternProperties", "additionalProperties", "items", "prefixItems", "enum", "const",
    "oneOf", "anyOf", "allOf",
))  # fmt: skip
"""The words that say of which type a value is."""
_COMBINED = ("allOf", "oneOf", "anyOf", "then", "else")
_DEPENDENT = ("dependentSchemas", "dependencies")
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_LIMITING = frozenset(("$ref", "type", "enum", "const", *_COMBINED, *_OTHERS))
"""Words of ``_SHAPING`` that add nothing to the type that a reference beside them leads to, or not by themselves."""
_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_SIBLINGS_IGNORED = "/draft-0"
"""In the name of a draft: before 2019-09 a reference stands alone, and what is beside it says nothing."""
_DEFAULT = "http://json-schema.org/draft-07/schema"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DIGITS = 38
_OF_CONNECT: Mapping[str, Mapping[str, str]] = {
    "integer": {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT"},
    "number": {"float32": "FLOAT"},
    "string": {"bytes": "BINARY"},
}
_PLAIN = {"integer": "BIGINT", "number": "DOUBLE", "string": "STRING", "boolean": "BOOLEAN"}


@dataclass(frozen=True)
class JsonSchema:
    """A JSON Schema in a registry."""

    root: Node
    of: str
    """Which one it is, for messages."""
    text: str = ""
    """As it was registered: numbers are exact only there."""
    references: Sequence[tuple[str, JsonSchema]] = ()
    """The schemas that it was registered with, by the names that it refers to them by."""

    @property
    def columns(self) -> str:
        """The columns of its objects, as Spark DDL. Raises UnusableSchema."""
        return _Mapping(self.root, self.of).columns()


def parse(text: str, references: Sequence[Reference[JsonSchema]], of: str) -> JsonSchema:
    """Parse a schema's text. ``of``: what it is of. Raises UnusableSchema if it isn't JSON."""
    of = f"The JSON Schema in {of}"
    try:
        return JsonSchema(json.loads(text), of, text, [(each.name, each.schema) for each in references])
    except (ValueError, RecursionError) as error:
        raise UnusableSchema(
            f"{of} is malformed: it isn't JSON ({error}).", hint="Register the schema again as a new version."
        ) from None


def of_file(option: str, text: str) -> JsonSchema:
    """Parse the text of a file that ``option`` names. Raises UnusableSchema if it isn't JSON."""
    of = f"The JSON Schema of {option}"
    try:
        return JsonSchema(json.loads(text), of, text)
    except (ValueError, RecursionError) as error:
        raise UnusableSchema(f"{of} is malformed: it isn't JSON ({error}).", hint="Correct the file.") from None


@dataclass(frozen=True)
class _Part:
    """A part of the schema."""

    node: Node
    path: str
    """Where it is, as a reference to it is written: ``#/properties/id``."""
    within: tuple[str, ...] = ()
    """The references that led to it."""
    level: int = 0

    def at(self, *names: str | int) -> _Part:
        """A part of this one."""
        node, path = self.node, self.path
        for name in names:
            node, path = node[name], f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"
        return _Part(node, path, self.within, self.level + 1)


class _Mapping:
    def __init__(self, root: Node, of: str) -> None:
        self._root = root
        self._of = of
        draft = root.get("$schema", _DEFAULT) if isinstance(root, dict) else _DEFAULT
        self._alone = _SIBLINGS_IGNORED in str(draft)

    def columns(self) -> str:
        part, kind = self._typed(_Part(self._root, "#"))
        if kind != "object" or not part.node.get("properties"):
            raise self._fault(part, "isn't an object with properties, as a record has to be")
        return ", ".join(f"{identifier(name)} {sql}" for name, sql in self._fields(part).items())

    def _fault(self, part: _Part, why: str) -> UnusableSchema:
        return UnusableSchema(
            f"{self._of} gives no columns: {part.path} {why}.",
            hint='Write the columns beside the registry: schema: "id BIGINT, ...". A STRING takes any value, as text.',
        )

    def _type(self, part: _Part) -> str:
        """The type of a part's values, in SQL."""
        part, kind = self._typed(part)
        node = part.node
        if node.get("title") == _DECIMAL:
            return self._decimal(part, kind)
        if kind == "object":
            return self._object(part)
        if kind == "array":
            if "prefixItems" in node or isinstance(node.get("items"), list):
                raise self._fault(part, "is a tuple, whose items have types of their own")
            if "items" not in node:
                raise self._fault(part, "doesn't say what its items are")
            return f"ARRAY<{self._type(part.at('items'))}>"
        return _OF_CONNECT.get(kind, {}).get(str(node.get("connect.type")), _PLAIN[kind])

    def _object(self, part: _Part) -> str:
        if part.node.get("properties"):
            fields = ", ".join(f"{identifier(name)}: {sql}" for name, sql in self._fields(part).items())
            return f"STRUCT<{fields}>"
        if part.node.get("patternProperties"):
            raise self._fault(part, "has patternProperties")
        others = part.node.get("additionalProperties")
        if not isinstance(others, dict):
            raise self._fault(part, "is an object that may have any fields")
        return f"MAP<STRING, {self._type(part.at('additionalProperties'))}>"

    def _fields(self, part: _Part) -> Mapping[str, str]:
        if part.node.get("patternProperties") or _has_typed_others(part.node):
            raise self._fault(part, "has properties, and others whose names it doesn't say")
        found: dict[str, str] = {}
        for name in part.node["properties"]:
            if not name:
                raise self._fault(part, "has a property without a name")
            if name.lower() in (each.lower() for each in found):
                raise self._fault(part, f"has two properties whose names differ in case only: {name}")
            found[name] = self._type(part.at("properties", name))
        return found

    def _decimal(self, part: _Part, kind: str) -> str:
        if kind == "string":
            raise self._fault(
                part,
                "is a Decimal of Kafka Connect in base64; decimal.format: NUMERIC writes numbers",
            )
        given = part.node.get("connect.parameters") or {}
        try:
            scale, precision = int(given["scale"]), int(given.get("connect.decimal.precision", _DIGITS))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._fault(part, "is a Decimal of Kafka Connect without a scale") from None
        if not 0 <= scale <= precision <= _DIGITS:
            raise self._fault(part, f"is a Decimal of Kafka Connect with {precision} digits and the scale {scale}")
        return f"DECIMAL({precision}, {scale})"

    def _typed(self, part: _Part) -> tuple[_Part, str]:
        """The part that says the type, and the type: object, array, string, number, integer or boolean."""
        part = self._resolved(part)
        node = part.node
        given = node.get("type")
        names = given if isinstance(given, list) else ["" if given is None else given]
        if not all(isinstance(name, str) for name in names) or not isinstance(node.get("properties", {}), dict):
            raise self._fault(part, "isn't a valid schema")
        kinds = [given] if isinstance(given, str) else given if isinstance(given, list) else _implied(node)
        kinds = [kind for kind in dict.fromkeys(kinds) if kind != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) > 1:
            raise self._fault(part, f"has several types: {', '.join(map(str, kinds))}")
        if not kinds:
            raise self._fault(part, "is always null" if given is not None else "doesn't say its type")
        if kinds[0] not in ("object", "array", *_PLAIN):
            raise self._fault(part, f"has the type {kinds[0]!r}, which JSON Schema doesn't know")
        return part, kinds[0]

    def _resolved(self, part: _Part) -> _Part:
        """The part that a reference leads to, or the only one of alternatives that isn't null."""
        node = part.node
        if not isinstance(node, dict):
            raise self._fault(part, "takes any value" if node is True else "isn't a schema")
        if part.level > _DEEPEST:
            raise self._fault(part, f"is nested too deeply: more than {_DEEPEST} levels")
        if "$ref" in node and self._alone:
            return self._resolved(self._referred(part))
        for word in _DYNAMIC:
            if word in node:
                raise self._fault(part, f"has {word}, which may lead to several places")
        alternatives = [
            part.at(word, *at)
            for word in _COMBINED
            if word in node
            for at in ([(number,) for number in range(len(node[word]))] if isinstance(node[word], list) else [()])
        ]
        shaping = [each for each in alternatives if not isinstance(each.node, dict) or _says_a_type(each.node)]
        dependent = any(map(_says_a_type, _dependents(node)))
        if "$ref" in node:
            if shaping or dependent or _has_typed_others(node) or (_SHAPING - _LIMITING) & node.keys():
                raise self._fault(part, "has no one type: it has a $ref, and more beside it that says a type")
            return self._resolved(self._referred(part))
        if not shaping and not dependent:
            return part
        rest = [branch for branch in shaping if not _is_null(branch.node)]
        own = dependent or "if" in node or _has_typed_others(node) or (_SHAPING - set(_COMBINED)) & node.keys()
        if len(rest) == 1 and not own:
            return self._resolved(rest[0])
        words = " and ".join(word for word in (*_COMBINED, *_DEPENDENT) if word in node)
        raise self._fault(part, f"has no one type: it combines several by {words}")

    def _referred(self, part: _Part) -> _Part:
        reference = part.node["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise self._fault(part, f"refers to {reference!r}, which isn't a place in the same schema")
        if reference in part.within or f"{part.path}/".startswith(f"{reference}/"):
            raise self._fault(part, f"refers to {reference}, which it is a part of: it is recursive")
        node = self._root
        for name in reference.split("/")[1:]:
            name = unquote(name).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name) if isinstance(node, list) else name]
            except (KeyError, IndexError, TypeError, ValueError):
                raise self._fault(part, f"refers to {reference}, which isn't there") from None
        return _Part(node, reference, (*part.within, reference), part.level + 1)


def _says_a_type(node: Mapping[str, Node], level: int = 0) -> bool:
    """Whether a schema says of which type a value is, or which fields it has, maybe under a condition."""
    inner = [node[word] for word in ("then", "else", "unevaluatedProperties") if isinstance(node.get(word), dict)]
    inner += _dependents(node)
    return level > _DEEPEST or bool(_SHAPING & node.keys()) or any(_says_a_type(each, level + 1) for each in inner)


def _dependents(node: Mapping[str, Node]) -> list[Mapping[str, Node]]:
    """The schemas that hold if there is a field of some name. Names that it needs beside it are no schema."""
    found = [node[word].values() for word in _DEPENDENT if isinstance(node.get(word), dict)]
    return [each for of_word in found for each in of_word if isinstance(each, dict)]


def _has_typed_others(node: Mapping[str, Node]) -> bool:
    """Whether a schema says the type of fields whose names it doesn't say."""
    return any(isinstance(node.get(word), dict) and _says_a_type(node[word]) for word in _OTHERS)


def _is_null(node: Node) -> bool:
    return isinstance(node, dict) and (node.get("type") in ("null", ["null"]) or node == {"const": None})


def _implied(node: Mapping[str, Node]) -> list[str]:
    """The types of a schema that doesn't name them, by what it has."""
    if node.keys() & {"properties", "patternProperties", "additionalProperties"}:
        return ["object"]
    if node.keys() & {"items", "prefixItems"}:
        return ["array"]
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return [names[type(value)] for value in values if value is not None]
