"""Changes of JSON Schemas: a record that the older one allows, and whether the newer one allows it, too.

The cases are those of diff-schema-examples.json and diff-combined-schema-examples.json in Confluent's schema registry
(SOURCE), in draft 7. The schemas and records are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SOURCE = (
    "https://github.com/confluentinc/schema-registry/blob/794611bd86d1ce0422581269e2b13a2ab010c7fb/"
    "json-schema-provider/src/test/resources/diff-schema-examples.json"
)
REQUIRED = "the registry passes over a required field that has no schema, and JSON Schema doesn't"
NO_LIST = "`additionalItems` says nothing without a list of schemas in `items`, by its draft"


@dataclass(frozen=True)
class Change:
    """``allowed``: by the registry, which asks it of every record of the older schema. ``record``: one of those; of
    a change that isn't allowed, one that the newer schema refuses."""

    about: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    record: Mapping[str, Any]
    allowed: bool
    why: str = ""
    """Why the newer schema says otherwise."""

    @property
    def fits(self) -> bool:
        return self.allowed is not bool(self.why)


def _of(about: str, old: Any, new: Any, value: Any, allowed: bool, why: str = "") -> Change:
    """Of a field's schemas."""
    definitions = {"definitions": {**_definitions(old), **_definitions(new)}}
    older, newer = ({"properties": {"v": _plain(each)}} for each in (old, new))
    if definitions["definitions"]:
        older, newer = older | {"definitions": _definitions(old)}, newer | {"definitions": _definitions(new)}
    return Change(about, older, newer, {"v": value}, allowed, why)


def _definitions(schema: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("definitions", {})
    return found


def _plain(schema: Any) -> Any:
    return {name: each for name, each in schema.items() if name != "definitions"}


STRING, NUMBER, INTEGER, NULL, BOOLEAN = ({"type": each} for each in ("string", "number", "integer", "null", "boolean"))
LIST, OBJECT = {"type": "array"}, {"type": "object"}
TO_PART = {"$ref": "#/definitions/part"}


def _object(closed: Any = None, required: str = "", **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"properties": {name: each for name, each in properties.items() if name != "patterns"}}
    if closed is not None:
        made["additionalProperties"] = closed
    if required:
        made["required"] = [required]
    return {**made, "patternProperties": properties["patterns"]} if "patterns" in properties else made


def _list(*items: Any, more: Any = None) -> dict[str, Any]:
    made = {**LIST, "items": [*items]} if items else dict(LIST)
    return made if more is None else {**made, "additionalItems": more}


def _one(*schemas: Any) -> dict[str, Any]:
    return {"oneOf": [*schemas]}


def _any(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": [*schemas]}


def _all(*schemas: Any) -> dict[str, Any]:
    return {"allOf": [*schemas]}


_OR_NULL = _one(NULL, STRING)
_PATTERNS = {"^T_": STRING, "^N_": INTEGER}
_COLOURS, _SHORT = {"enum": ["red", "blue", "green"]}, {"maxLength": 5}

VALUES = [
    _of("another type", OBJECT, LIST, {}, False),
    _of("minLength rises", {**STRING, "minLength": 3}, {**STRING, "minLength": 4}, "abc", False),
    _of("minLength falls", {**STRING, "minLength": 4}, {**STRING, "minLength": 3}, "abcd", True),
    _of("maxLength rises", {**STRING, "maxLength": 3}, {**STRING, "maxLength": 5}, "abc", True),
    _of("maxLength falls", {**STRING, "maxLength": 5}, {**STRING, "maxLength": 3}, "abcde", False),
    _of("a pattern goes", {**STRING, "pattern": "^a"}, STRING, "ab", True),
    _of("a pattern changes", {**STRING, "pattern": "^a"}, {**STRING, "pattern": "^b"}, "ab", False),
    _of("a pattern stays", {**STRING, "pattern": "^a"}, {**STRING, "pattern": "^a"}, "ab", True),
    _of("a maximum goes", {**NUMBER, "maximum": 7}, NUMBER, 7, True),
    _of("a maximum rises", {**NUMBER, "maximum": 7}, {**NUMBER, "maximum": 8}, 7, True),
    _of("a maximum falls", {**NUMBER, "maximum": 8}, {**NUMBER, "maximum": 7}, 7.5, False),
    _of("a minimum goes", {**NUMBER, "minimum": 7}, NUMBER, 7, True),
    _of("a minimum rises", {**NUMBER, "minimum": 7}, {**NUMBER, "minimum": 8}, 7, False),
    _of("a minimum falls", {**NUMBER, "minimum": 8}, {**NUMBER, "minimum": 7}, 8, True),
    _of("multipleOf goes", {**NUMBER, "multipleOf": 6}, NUMBER, 12, True),
    _of("multipleOf becomes a part", {**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 3}, 12, True),
    _of("multipleOf changes", {**NUMBER, "multipleOf": 6}, {**NUMBER, "multipleOf": 7}, 6, False),
    _of("multipleOf becomes larger than a fraction", {"multipleOf": 0.5}, {"multipleOf": 10}, 0.5, False),
    _of("multipleOf is written with another digit", {"multipleOf": 0.5}, json.loads('{"multipleOf": 0.50}'), 1.5, True),
    _of("a number becomes an integer", NUMBER, INTEGER, 1.5, False),
    _of("an integer becomes a number", INTEGER, NUMBER, 1, True),
    _of("not a number becomes not an integer", {"not": NUMBER}, {"not": INTEGER}, "1", True),
    _of("not an integer becomes not a number", {"not": INTEGER}, {"not": NUMBER}, 1.5, False),
    _of("an enum goes", {**STRING, "enum": ["red"]}, STRING, "red", True),
    _of("a const changes", {"const": "red"}, {"const": "blue"}, "red", False),
    _of("an enum changes", _all(STRING, {"enum": ["red"]}), _all(STRING, {"enum": ["blue"]}), "red", False),
    _of("an enum gets a value", _all(STRING, {"enum": ["red"]}), _all({"enum": ["red", "blue"]}, STRING), "red", True),
    _of("a list of types gets one", {"type": ["object"]}, {"type": ["object", "array"]}, {}, True),
    _of("oneOf changes its one schema", _one(STRING), _one(NUMBER), "a", False),
    _of("oneOf gets a schema", _one(STRING), _one(NUMBER, STRING), "a", True),
    _of("oneOf gets a schema, after it", _one(NUMBER), _one(STRING, NUMBER), 1, True),
    _of("oneOf changes a field of its schema", _one(_object(a=STRING)), _one(_object(a=NUMBER)), {"a": "b"}, False),
    _of("oneOf of one becomes allOf", _one(STRING), _all(STRING), "a", True),
    _of("oneOf of two becomes allOf", _one(STRING, INTEGER), _all(STRING), 1, False),
    _of("all items get a schema", LIST, {**LIST, "items": STRING}, [1], False),
    _of("all items lose their schema", {**LIST, "items": STRING}, LIST, ["a"], True),
    _of("a list of schemas goes", _list(STRING, NUMBER), LIST, ["a", 1], True),
    _of("an item is added as the rest was", _list(STRING, NUMBER, more=STRING),
        _list(STRING, NUMBER, STRING, more=STRING), ["a", 1, "b"], True),
    _of("an item is added otherwise than the rest", _list(STRING, NUMBER, more=STRING),
        _list(STRING, NUMBER, NUMBER, more=STRING), ["a", 1, "b"], False),
    _of("an item goes into the rest", _list(STRING, NUMBER, STRING, more=STRING), _list(STRING, NUMBER, more=STRING),
        ["a", 1, "b", "c"], True),
    _of("an item that may be null goes into the rest", _list(STRING, NUMBER, _OR_NULL, more=_OR_NULL),
        _list(STRING, NUMBER, more=_OR_NULL), ["a", 1, None], True),
    _of("an item of another type goes into the rest", _list(STRING, NUMBER, NUMBER, more=STRING),
        _list(STRING, NUMBER, more=STRING), ["a", 1, 2], False),
    _of("an item's type changes", _list(STRING), _list(NUMBER), ["a"], False),
    _of("maxItems falls", {**LIST, "maxItems": 2}, {**LIST, "maxItems": 1}, [1, 2], False),
    _of("minItems goes", {**LIST, "minItems": 1}, LIST, [1], True),
    _of("minItems rises", {**LIST, "minItems": 1}, {**LIST, "minItems": 2}, [1], False),
    _of("minItems falls", {**LIST, "minItems": 2}, {**LIST, "minItems": 1}, [1, 2], True),
    _of("uniqueItems goes", {**LIST, "uniqueItems": True}, LIST, [1, 2], True),
    _of("what a reference names changes", {**LIST, "items": TO_PART, "definitions": {"part": STRING}},
        {**LIST, "items": TO_PART, "definitions": {"part": NUMBER}}, ["a"], False),
    _of("a schema moves behind a reference", STRING, {**TO_PART, "definitions": {"part": STRING}}, "a", True),
    _of("a schema moves from behind a reference", {**TO_PART, "definitions": {"part": STRING}}, STRING, "a", True),
    _of("other items are refused, without a list", {"additionalItems": True}, {"additionalItems": False}, [1], False,
        NO_LIST),
    _of("other items are of another type, without a list", {"additionalItems": STRING}, {"additionalItems": NUMBER},
        ["a"], False, NO_LIST),
    _of("an item that may be anything is added", _list(NUMBER, more=True), _list(NUMBER, True, more=True), [1, "a"],
        True),
    _of("an item that may be anything goes", _list(NUMBER, True, more=True), _list(NUMBER, more=True), [1, "a"], True),
    _of("an item that may be nothing is added", _list(NUMBER, more=False), _list(NUMBER, False, more=False), [1], True),
    _of("an item that may be nothing goes", _list(NUMBER, False, more=False), _list(NUMBER, more=False), [1], True),
    _of("an item is added, and the rest opened", _list(STRING, NUMBER, more=False),
        _list(STRING, NUMBER, BOOLEAN, more=True), ["a", 1], True),
    _of("an item goes, and the rest is opened", _list(STRING, NUMBER, BOOLEAN, more=False),
        _list(STRING, NUMBER, more=True), ["a", 1, True], True),
    _of("an item goes from an open list", _list(STRING, NUMBER, more=True), _list(STRING, more=True), ["a", 1], True),
    _of("an item is added to a closed list", _list(STRING, more=False), _list(STRING, NUMBER, more=False), ["a"], True),
    _of("an item of a closed list becomes the rest", _list(STRING, NUMBER, more=False), _list(STRING, more=NUMBER),
        ["a", 1], True),
    _of("the rest becomes an item of an open list", _list(STRING, more=NUMBER), _list(STRING, NUMBER, more=True),
        ["a", 1], True),
    _of("a type becomes one of oneOf", STRING, _one(NUMBER, STRING), "a", True),
    _of("null becomes one of oneOf", NULL, _one(NUMBER, NULL), None, True),
    _of("a short text becomes any text in oneOf", {**STRING, "maxLength": 3}, _one(NUMBER, STRING), "abc", True),
]  # fmt: skip
COMBINED = [
    _of("allOf in another order", _all(_COLOURS, STRING, _SHORT), _all(_SHORT, _COLOURS, STRING), "red", True),
    _of("allOf with another type", _all(_COLOURS, STRING, _SHORT), _all(_SHORT, _COLOURS, NUMBER), "red", False),
    _of("allOf loses a copy", _all(STRING, STRING), _all(STRING), "a", True),
    _of("allOf gets a copy", _all(STRING), _all(STRING, STRING), "a", True),
    _of("oneOf gets two schemas", _one(STRING), _one(BOOLEAN, NUMBER, STRING), "a", True),
    _of("oneOf gets two schemas, and allows longer texts", _one({**STRING, **_SHORT}),
        _one(BOOLEAN, NUMBER, {**STRING, "maxLength": 8, "title": "a text"}), "abcde", True),
    _of("oneOf loses a schema", _one(NUMBER, STRING), _one(STRING), 1, False),
    _of("allOf loses a schema", _all(_COLOURS, STRING), _all(STRING), "red", True),
    _of("allOf gets a schema", _all(STRING), _all(_COLOURS, STRING), "grey", False),
    _of("oneOf becomes anyOf", _one(STRING), _any(STRING), "a", True),
    _of("oneOf becomes anyOf with one more", _one(STRING), _any(NUMBER, STRING), "a", True),
    _of("oneOf becomes anyOf with one less", _one(NUMBER, STRING), _any(STRING), 1, False),
    _of("allOf becomes anyOf", _all(STRING), _any(STRING), "a", True),
    _of("allOf becomes anyOf with one more", _all(STRING), _any(NUMBER, STRING), "a", True),
    _of("allOf becomes anyOf with one less", _all(STRING, _SHORT), _any(STRING), "a", True),
    _of("anyOf becomes oneOf with one more", _any(STRING), _one(NUMBER, STRING), "a", True),
    _of("anyOf becomes oneOf with one less", _any(NUMBER, STRING), _one(STRING), 1, False),
    _of("allOf becomes oneOf with one more", _all(NUMBER), _one(NUMBER, STRING), 1, True),
    _of("allOf becomes oneOf with one less", _all(STRING, _SHORT), _one(STRING), "a", True),
    _of("anyOf becomes allOf", _any(STRING), _all(STRING), "a", True),
    _of("oneOf becomes allOf", _one(STRING), _all(STRING), "b", True),
    _of("anyOf becomes allOf with one more", _any(STRING), _all(NUMBER, STRING), "a", False),
    _of("oneOf becomes allOf with one more", _one(STRING), _all(NUMBER, STRING), "a", False),
    _of("a type becomes one of anyOf", STRING, _any(NUMBER, STRING), "a", True),
    _of("a type becomes allOf", STRING, _all(STRING), "a", True),
    _of("a type becomes allOf with another", STRING, _all(NUMBER, STRING), "a", False),
]  # fmt: skip
OBJECTS = [
    Change("a schema without fields becomes one that says nothing", {"properties": {}}, {}, {"a": 1}, True),
    Change("another $id", {"$id": "https://boats.example/a"}, {"$id": "https://boats.example/b"}, {"a": 1}, True),
    Change("another title", {"title": "one"}, {"title": "other"}, {"a": 1}, True),
    Change("another description", {"description": "one"}, {"description": "other"}, {"a": 1}, True),
    Change("a field gives way to another", _object(a=STRING), _object(b=STRING), {"a": "x", "b": 1}, False),
    Change("a field's type changes", _object(a=STRING), _object(a=NUMBER), {"a": "x"}, False),
    Change("a field is added to a closed object", _object(False, a=STRING), _object(False, a=STRING, b=NUMBER),
           {"a": "x"}, True),
    Change("a field is added that a pattern covered", _object(False, a=STRING, patterns=_PATTERNS),
           _object(False, a=STRING, N_1=NUMBER, patterns=_PATTERNS), {"a": "x", "N_1": 1}, True),
    Change("a field is added as the rest was", _object(STRING, a=STRING), _object(STRING, a=STRING, b=STRING),
           {"a": "x", "b": "y"}, True),
    Change("a field is added otherwise than the rest", _object(STRING, a=STRING), _object(STRING, a=STRING, b=NUMBER),
           {"b": "y"}, False),
    Change("a required field is added", _object(STRING, a=STRING), _object(STRING, "b", a=STRING, b=STRING), {"a": "x"},
           False),
    Change("a field goes under a pattern", _object(False, a=STRING, N_1=INTEGER),
           _object(False, a=STRING, patterns={"^T_": STRING, "^N_": NUMBER}), {"a": "x", "N_1": 1}, True),
    Change("a field goes into the rest", _object(False, a=STRING, b=STRING), _object(STRING, a=STRING), {"b": "y"},
           True),
    Change("a field of another type goes into the rest", _object(False, a=STRING, b=NUMBER), _object(STRING, a=STRING),
           {"b": 1}, False),
    Change("a field that may be null goes into the rest", _object(False, a=STRING, b=_OR_NULL),
           _object(_OR_NULL, a=STRING), {"b": None}, True),
    Change("a field goes into a rest that may be null", _object(False, a=STRING, b=STRING), _object(_OR_NULL, a=STRING),
           {"b": "y"}, True),
    Change("a field is added to an open object", _object(a=STRING), _object(a=STRING, b=NUMBER), {"b": "y"}, False),
    Change("a field's dependency is turned round", {"dependencies": {"a": ["b"]}}, {"dependencies": {"b": ["a"]}},
           {"b": 1}, False),
    Change("one of two dependencies goes", {"dependencies": {"a": {"minProperties": 2}, "b": {"minProperties": 2}}},
           {"dependencies": {"a": {"minProperties": 2}}}, {"a": 1, "b": 2}, True),
    Change("the only dependency goes", {"dependencies": {"a": {"minProperties": 2}}}, {"dependencies": {}},
           {"a": 1, "b": 2}, True),
    Change("a dependency changes", {"dependencies": {"a": {"minProperties": 1}}},
           {"dependencies": {"a": {"minProperties": 2}}}, {"a": 1}, False),
    Change("a dependency is of another field", {"dependencies": {"a": {"minProperties": 2}}},
           {"dependencies": {"b": {"minProperties": 2}}}, {"b": 1}, False),
    Change("a field is no longer required", _object(None, "a", a=STRING), _object(a=STRING), {"a": "x"}, True),
    Change("a field becomes required", _object(a=STRING), _object(None, "a", a=STRING), {}, False),
    Change("another field, without a schema, becomes required", _object(None, "a", a=STRING),
           _object(None, "b", a=STRING), {"a": "x"}, True, REQUIRED),
    Change("maxProperties goes", {"properties": {}, "maxProperties": 1}, {"properties": {}}, {"a": 1}, True),
    Change("maxProperties rises", {"maxProperties": 1}, {"maxProperties": 2}, {"a": 1}, True),
    Change("maxProperties falls", {"maxProperties": 2}, {"maxProperties": 1}, {"a": 1, "b": 1}, False),
    Change("minProperties goes", {"properties": {}, "minProperties": 2}, {"properties": {}}, {"a": 1, "b": 1}, True),
    Change("minProperties rises", {"minProperties": 1}, {"minProperties": 2}, {"a": 1}, False),
    Change("minProperties falls", {"minProperties": 2}, {"minProperties": 1}, {"a": 1, "b": 1}, True),
    Change("a closed object without fields is opened", _object(False), _object(), {}, True),
    Change("an object is closed", {"additionalProperties": True}, {"additionalProperties": False}, {"a": 1}, False),
    Change("other fields get a type", {"additionalProperties": True}, {"additionalProperties": NUMBER}, {"a": "x"},
           False),
    Change("other fields get another type", {"additionalProperties": STRING}, {"additionalProperties": NUMBER},
           {"a": "x"}, False),
    Change("a field that may be anything is added", {"additionalProperties": True}, _object(True, a=True), {"a": "x"},
           True),
    Change("a field that may be anything goes", _object(True, a=True), {"additionalProperties": True}, {"a": "x"},
           True),
    Change("a field that may not be there is added", {"additionalProperties": False}, _object(False, a=False), {},
           True),
    Change("a field that may not be there goes", _object(False, a=False), {"additionalProperties": False}, {}, True),
]  # fmt: skip
CHANGES = [*VALUES, *COMBINED, *OBJECTS]


def every_case() -> Iterator[tuple[str, str, bool]]:
    """A schema, a record, and whether it is valid: of each change by the older and by the newer schema."""
    for change in CHANGES:
        record = json.dumps(change.record)
        yield json.dumps(change.old), record, True
        yield json.dumps(change.new), record, change.fits
