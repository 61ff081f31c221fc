"""Pairs of Avro schemas: whether values of the writer's can be read with the reader's, as registries decide it.

The cases are those of AvroCompatibilityTest in Confluent's schema registry (CONFLUENT), and of the checker that it
asks, which is Apache Avro's own (APACHE). The schemas and bytes are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from avro_bytes import field, record
from avro_cases import BAD

CONFLUENT = (
    "https://github.com/confluentinc/schema-registry/blob/794611bd86d1ce0422581269e2b13a2ab010c7fb/core/src/test/java/"
    "io/confluent/kafka/schemaregistry/avro/AvroCompatibilityTest.java"
)
APACHE = (
    "https://github.com/apache/avro/blob/87212a6d47247a30dff247d16386d722c56d4390/lang/java/avro/src/test/java/org/"
    "apache/avro/TestSchemaCompatibility.java"
)
ONE_BY_ONE = (
    "a registry asks whether every value fits. Lakelock asks it of each record: one that fits is read, another one is "
    "a bad record"
)
ANY_NAME = "Avro's own decoder doesn't compare the names of records, and their fields are what they were"
ROUNDED = "a FLOAT or a DOUBLE may not hold the whole number, and a union of several types has no column that does"
NAMESPACE = (
    "Avro's own library takes them for one type by themselves, and for two in a union. `aliases` in the reader's "
    "schema say that they are one"
)
ITSELF = "Spark has no type for the columns of a record in itself"
NO_VALUE = "no value can be of a union without types"


@dataclass(frozen=True)
class Pair:
    """``fits``: what the checker says of it."""

    about: str
    writer: Any
    reader: Any
    fits: bool
    why: str = ""
    """Why Lakelock decides otherwise."""
    one: bytes = b""
    """If some values fit: one that does,"""
    other: bytes = b""
    """and one that doesn't."""


def _of(*fields: dict[str, Any]) -> dict[str, Any]:
    return record(*fields, name="Boat")


_NAME, _NULLABLE = field("name", "string"), ["null", "string"]
_PLAIN, _BERTH, _NOTE = _of(_NAME), field("berth", "string", default="A1"), field("note", "string", default="-")
_ADDED, _DEMANDED = _of(_NAME, _BERTH), _of(_NAME, field("berth", "string"))
_MORE, _OPTIONAL = _of(_NAME, _BERTH, _NOTE), _of(field("name", _NULLABLE))
_WIDER = _of(field("name", [*_NULLABLE, "int"]))

OF_CONFLUENT = [
    Pair("a field with a default is added", _PLAIN, _ADDED, True),
    Pair("a field without a default is added", _PLAIN, _DEMANDED, False),
    Pair("a field is renamed, with an alias", _PLAIN, _of(field("title", "string", aliases=["name"])), True),
    Pair("a type becomes a union with null", _PLAIN, _OPTIONAL, True),
    Pair("a union with null becomes the type", _OPTIONAL, _PLAIN, False, ONE_BY_ONE, b"\2\2a", b"\0"),
    Pair("a union gets a type", _OPTIONAL, _WIDER, True),
    Pair("a union loses a type", _WIDER, _OPTIONAL, False, ONE_BY_ONE, b"\2\2a", b"\4\2"),
    Pair("a default is dropped", _ADDED, _DEMANDED, True),
    Pair("a default is added", _DEMANDED, _ADDED, True),
    Pair("a second field with a default is added", _ADDED, _MORE, True),
    Pair("two fields with defaults are added", _PLAIN, _MORE, True),
    Pair("a field with a default is dropped", _ADDED, _PLAIN, True),
    Pair("a field without a default is dropped", _DEMANDED, _PLAIN, True),
    Pair("two fields with defaults are dropped", _MORE, _PLAIN, True),
    Pair("one of two fields with defaults is dropped", _MORE, _ADDED, True),
]
ODD_DEFAULT = _of(field("name", _NULLABLE, default="null"), _BERTH, _NOTE)
"""A schema that the registry takes: the text ``null`` is the default of a union whose first type is null."""


def _list_of(kind: str) -> dict[str, Any]:
    return {"type": "array", "items": kind}


def _map_of(kind: str) -> dict[str, Any]:
    return {"type": "map", "values": kind}


def _enum(symbols: str, name: str = "Lamp", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def _fixed(size: int, name: str = "Mark") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def _chain(kind: str) -> dict[str, Any]:
    return record(field("head", kind), field("tail", "Chain"), name="Chain")


_TYPES: dict[str, Any] = {
    **{name: name for name in ("null", "boolean", "int", "long", "float", "double", "string", "bytes")},
    "a list of ints": _list_of("int"), "a list of longs": _list_of("long"), "a map of ints": _map_of("int"),
    "a map of longs": _map_of("long"), "4 bytes": _fixed(4), "8 bytes": _fixed(8),
    "4 bytes of another name": _fixed(4, "Sign"), "an enum": _enum("AB"), "an enum of more symbols": _enum("ABC"),
    "an enum of other symbols": _enum("BC"), "an enum with a default": _enum("AB", default="A"),
    "an enum of another name": _enum("AB", "Flag"), "an enum in a namespace": _enum("AB", namespace="port"),
    "an enum in another namespace": _enum("AB", namespace="sea"), "no types": [],
    "a record": record(field("a", "int")), "a record of a long": record(field("a", "long")),
    "a record with a default": record(field("a", "int", default=0)), "a record of two": record(
        field("a", "int"), field("b", "int")), "a record of two, one with a default": record(
        field("a", "int"), field("b", "int", default=0)), "a record of two with defaults": record(
        field("a", "int", default=0), field("b", "int", default=0)), "a record without fields": record(),
    "a record without fields, of another name": record(name="Other"),
    "a record of ints in itself": _chain("int"), "a record of longs in itself": _chain("long"),
    "a record in a namespace": {**record(field("a", "int")), "namespace": "port"},
    "a record with 4 bytes": record(field("b", _fixed(4))), "a record with 8 bytes": record(field("b", _fixed(8))),
    "a record with an enum": record(field("e", _enum("AB"))),
    "a record with an enum of more symbols": record(field("e", _enum("ABC"))),
    "a record with an enum of another name": record(field("e", _enum("AB", "Flag"))),
    "a record with an enum that has a default": record(field("e", _enum("AB", default="A"))),
    "a record with an enum and two defaults": record(field("e", _enum("AB", default="B"), default="A")),
    "a record with an enum that has only the field's default": record(field("e", _enum("AB"), default="A")),
    "a map of records": record(field("m", {"type": "map", "values": record(
        field("x", "float"), field("y", "float"), name="Place")})),
    "a map of records with another field": record(field("m", {"type": "map", "values": record(
        field("x", "float"), field("z", ["null", "float"], default=None), name="Place")})),
    "a record with another enum": record(field("other", _enum("AB", "Flag"))),
    "a record with a list of records": record(field("l", ["null", {"type": "array", "items": {
        **record(field("a", "int"), name="Part"), "namespace": "port"}}])),
    "a record with a list of records in another namespace": record(field("l", ["null", {"type": "array", "items": {
        **record(field("a", "int"), name="Part"), "namespace": "sea"}}])),
    "a record with a union of int": record(field("u", ["int"])),
    "a record with a union of int and string": record(field("u", ["int", "string"])),
}  # fmt: skip


def _types(about: str) -> Any:
    """A type by what it is called. Several, as in ``int|string``: their union; ``|int``: a union of one."""
    if "|" not in about:
        return _TYPES[about]
    return [_TYPES[each] for each in about.split("|") if each]


def _pair(text: str, fits: bool, why: str = "", one: bytes = b"", other: bytes = b"") -> Pair:
    writer, _, reader = text.partition(" -> ")
    return Pair(text, _types(writer), _types(reader), fits, why, one, other)


_NUMBERS = "int|long|float|double"
_FIT = """
boolean -> boolean; int -> int; int -> long; long -> long; int -> float; long -> float; long -> double; int -> double;
float -> double; string -> string; bytes -> bytes; null -> null; bytes -> string; string -> bytes;
a list of ints -> a list of ints; a list of ints -> a list of longs; a map of ints -> a map of ints;
a map of ints -> a map of longs; an enum -> an enum; an enum -> an enum of more symbols;
an enum of more symbols -> an enum with a default;
|int -> |float; |long -> |float; |int -> |int; string|int -> int|string; |int -> |long; |int -> |double;
|long -> |double; |float -> |double; |bytes -> |string; |string -> |bytes; int|long -> long; |float -> float;
int -> |int; |int -> int; 4 bytes -> 4 bytes; a record without fields -> a record without fields;
a record -> a record without fields; a record -> a record; a record -> a record with a default;
a record with a default -> a record with a default; a record with a default -> a record; a record -> a record of a long;
a record of two -> a record; a record of two -> a record with a default;
a record -> a record of two, one with a default; a record without fields -> a record of two with defaults;
a record -> a record of two with defaults; a record of two with defaults -> a record of two;
a record with an enum of more symbols -> a record with an enum that has a default;
a record with an enum of more symbols -> a record with an enum and two defaults;
a record with a list of records in another namespace -> a record with a list of records;
a record in a namespace -> a record
"""
_UNFIT = """
int -> null; long -> null; int -> boolean; null -> int; boolean -> int; long -> int; float -> int; double -> int;
float -> long; double -> long; double -> float; string -> double; string -> 4 bytes; boolean -> string; int -> string;
null -> bytes; int -> bytes; int -> a record; a list of longs -> a list of ints; a list of ints -> a map of ints;
a map of ints -> a list of ints; a map of longs -> a map of ints; an enum of another name -> int;
int -> an enum of another name; 8 bytes -> 4 bytes; 4 bytes -> 8 bytes; a record with 8 bytes -> a record with 4 bytes;
a record with 4 bytes -> a record with 8 bytes; |long -> |int; |float -> |int; |double -> |int; |bytes -> |int;
an enum of another name -> an enum; 4 bytes of another name -> 4 bytes;
a record with an enum of another name -> a record with an enum;
a record without fields -> a record; a record without fields -> a record of two, one with a default;
a record with another enum -> a record with an enum that has a default
"""
_INT, _TEXT = b"\0\2", b"\2\2a"
OF_APACHE = [
    *(_pair(" ".join(text.split()), True) for text in _FIT.split(";")),
    *(_pair(" ".join(text.split()), False) for text in _UNFIT.split(";")),
    *(_pair(f"{one} -> {other}", True, ROUNDED) for one, other in (
        ("int|long", "|float"), ("int|float", "float"), (_NUMBERS, "double"))),
    *(_pair(f"{one} -> {other}", True, NAMESPACE) for one, other in (
        ("an enum in a namespace", "an enum"), ("an enum", "an enum in a namespace"),
        ("an enum in another namespace", "an enum in a namespace"))),
    *(_pair(f"no types -> {other}", True, NO_VALUE) for other in (
        "no types", "|float", "|int", "|long", "|double", "|string", "|bytes")),
    *(_pair(f"a record of {one} in itself -> a record of {other} in itself", True, ITSELF) for one, other in (
        ("ints", "ints"), ("longs", "longs"), ("ints", "longs"))),
    _pair("a record of longs in itself -> a record of ints in itself", False),
    _pair("a record without fields, of another name -> a record without fields", False, ANY_NAME),
    *(_pair(f"int|{other} -> |int", False, ONE_BY_ONE, _INT, content) for other, content in (
        ("string", _TEXT), ("a record", b"\2\2"), ("an enum", b"\2\2"), ("4 bytes", b"\2abcd"), ("boolean", b"\2\1"),
        ("a list of ints", b"\2\0"), ("a map of ints", b"\2\0"), ("null", b"\2"))),
    _pair("int|string -> |string", False, ONE_BY_ONE, _TEXT, _INT),
    _pair(f"{_NUMBERS} -> |int", False, ONE_BY_ONE, _INT, b"\2\2"),
    _pair("int|a record -> int|a record without fields, of another name", False, ANY_NAME, b"\2\2"),
    _pair("a record with a union of int and string -> a record with a union of int", False, ONE_BY_ONE, _INT, _TEXT),
    _pair("int|float -> long", False, ONE_BY_ONE, _INT, b"\2\0\0\0\0"),
    _pair("int|float -> int", False, ONE_BY_ONE, _INT, b"\2\0\0\0\0"),
    _pair(f"{_NUMBERS} -> float", False),
    _pair("an enum of more symbols -> an enum", False, ONE_BY_ONE, b"\2", b"\4"),
    _pair("an enum of more symbols -> an enum of other symbols", False, ONE_BY_ONE, b"\4", b"\0"),
    _pair("a record with an enum of more symbols -> a record with an enum", False, ONE_BY_ONE, b"\2", b"\4"),
]  # fmt: skip
VALUES: list[tuple[Pair, Any, Any]] = [
    # A value as it was written, and as it is read.
    (_pair("int -> int", True), 1, 1),
    (_pair("int -> long", True), 1, 1),
    (_pair("int -> float", True), 1, 1.0),
    (_pair("int -> double", True), 1, 1.0),
    (_pair("int -> float", True, ROUNDED), 2**24 + 1, BAD),
    (_pair("an enum -> an enum of more symbols", True), "A", "A"),
    (_pair("an enum of more symbols -> an enum", True), "A", "A"),
    (_pair("an enum of more symbols -> an enum of other symbols", True), "B", "B"),
    (_pair("an enum of more symbols -> an enum with a default", True), "C", "A"),
    (_pair("int|string -> string", True), "boat", "boat"),
    (_pair("int|string -> |string", True), "boat", "boat"),
    (_pair("a record with an enum of more symbols -> a record with an enum that has a default", True),
     {"e": "C"}, {"e": "A"}),
    (_pair("a record with an enum of more symbols -> a record with an enum that has a default", True),
     {"e": "B"}, {"e": "B"}),
    (_pair("a record with an enum of more symbols -> a record with an enum and two defaults", True),
     {"e": "C"}, {"e": "B"}),
    (_pair("a record with an enum of more symbols -> a record with an enum that has only the field's default", False),
     {"e": "C"}, BAD),
    (_pair("a map of records -> a map of records with another field", True),
     {"m": {"here": {"x": 1.5, "y": 2.5}}}, {"m": {"here": {"x": 1.5, "z": None}}}),
]  # fmt: skip
_SEA, _PORT = _enum("AB", namespace="sea"), _enum("AB", namespace="port", aliases=["sea.Lamp"])
ALIASED: list[tuple[Pair, Any, Any]] = [
    (Pair("an enum of another namespace, by an alias", _SEA, _PORT, True), "B", "B"),
    (Pair("an enum of another namespace, by an alias, in a union", _SEA, ["null", _PORT], True), "B", "B"),
    (Pair("an enum of another namespace, by an alias, from a union", ["null", _SEA], ["null", _PORT], True), "B", "B"),
]
"""What helps where ``NAMESPACE`` is why: no case of a suite."""
PAIRS = [*OF_CONFLUENT, *OF_APACHE]
