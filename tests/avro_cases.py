"""What a decoder of Avro has to read, and what it has to refuse: schemas, and bytes with the value that they are.

The cases are those that share/test of Apache Avro (Apache License 2.0, github.com/apache/avro) holds every language's
implementation to. The schemas and bytes are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from avro_bytes import encoded, field, record

SOURCE = "https://github.com/apache/avro/tree/main/share/test"
BAD = "a bad record"


@dataclass(frozen=True)
class Form:
    """A way to write a schema."""

    about: str
    schema: Any
    refused: str = ""
    """Why it is no schema here, although Avro's implementations take it."""
    unaudited: str = ""
    """Why `lakelock verify` doesn't take it, although `run` does."""


@dataclass(frozen=True)
class Case:
    """Bytes of a schema. ``value``: what they are as Spark has it, or ``BAD``."""

    about: str
    schema: Any
    content: bytes
    value: Any
    reader: Any = None
    """The schema that they are read as, if it is another one."""
    by_spark: Any = None
    """What Spark makes of them, where that is wrong."""


NODE = record(field("label", "string"), field("children", {"type": "array", "items": "Node"}), name="Node")
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]

FORMS = [
    *(Form(f"{name}, by its name", name) for name in PRIMITIVES),
    *(Form(f"{name}, as an object", {"type": name}) for name in PRIMITIVES),
    Form("a union of no type", [], refused="no value can be of it"),
    Form("a union of one type", ["int"]),
    Form("a union of a name and an object", ["int", {"type": "boolean"}]),
    Form("a record without fields", {"fields": [], "type": "record", "name": "Box"}),
    Form("a name with a namespace", {"fields": [], "type": "record", "name": "Box", "namespace": "shop.parts"}),
    Form("a full name, and another namespace", {"fields": [], "type": "record", "name": "a.b.Box", "namespace": "c.d"}),
    Form("a doc", {"fields": [], "type": "record", "name": "Box", "doc": "what is sent"}),
    Form("aliases, the name among them", {"fields": [], "type": "record", "name": "Box", "aliases": ["Box", "Crate"]}),
    Form("a doc and aliases", {"fields": [], "type": "record", "name": "Box", "doc": "d", "aliases": ["Crate", "x.y"]}),
    Form("a field's type as an object", record(field("full", {"type": "boolean"}))),
    Form(
        "no aliases, an order, a doc",
        record(field("a", "int", aliases=[]), field("b", "int", order="descending", doc="b")),
    ),
    Form(
        "a default of another type, which nothing needs",
        record(field("full", "boolean", default="true")),
        unaudited="in a reader's schema fastavro takes a default only if it is of the field's type",
    ),
    Form("an enum", {"type": "enum", "name": "Colour", "symbols": ["RED"]}),
    Form("an enum with a namespace and a doc", {**COLOUR, "namespace": "x.y", "doc": "of the box"}),
    Form(
        "symbols that are words of languages",
        {"type": "enum", "name": "x.Word", "symbols": ["default", "class", "int"]},
    ),
    Form(
        "fields that are words of languages",
        record(*(field(name, "string") for name in ("this", "String", "null", "value"))),
    ),
    Form("a fixed", {"name": "Id", "type": "fixed", "size": 15}),
    Form(
        "a fixed with a namespace and a doc",
        {"name": "Id", "type": "fixed", "size": 32, "namespace": "x.y", "doc": "d"},
    ),
    Form("an array", {"items": {"type": "null"}, "type": "array"}),
    Form("a map", {"values": "string", "type": "map"}),
    Form("a record in itself, in a union", record(field("value", ["null", "int", "long", "Tree"]), name="Tree")),
    Form("a record in itself, in an array", NODE),
    *(
        Form(f"an attribute of nobody: {found!r}", {"type": "enum", "name": "E", "symbols": ["A"], "format": found})
        for found in (None, "dd-mm", {"key": "value"})
    ),
    Form(
        "an attribute of nobody, of a field", record(field("a", "string", format={"key": "value"}, aliases=["c", "b"]))
    ),
]


def refused(about: str, schema: Any, content: str) -> Case:
    return Case(about, schema, bytes.fromhex(content), BAD)


MALFORMED = [
    refused("a long of which ten bytes say that more follows", "long", "80" * 10),
    refused("an int of which five bytes say that more follows", "int", "80" * 5),
    Case(
        "an array of -2^63 items",
        {"type": "array", "items": "int"},
        bytes.fromhex("ff" * 9 + "01" + "02"),
        BAD,
        by_spark=[],
    ),
    refused("bytes of a negative length", "bytes", "01"),
    refused("text of a negative length", "string", "01"),
    refused("a branch below the first of a union", ["null", "int"], "01"),
    refused("a branch above the last of a union", ["null", "int"], "0a"),
    refused("a symbol below the first of an enum", COLOUR, "01"),
    refused("a symbol above the last of an enum", COLOUR, "0a"),
]


def whole(about: str, schema: Any, value: Any, found: Any = None, reader: Any = None) -> Case:
    """``found``: if it is another value that Spark has."""
    return Case(about, schema, encoded(schema, value), value if found is None else found, reader)


MESSAGE = record(
    field("id", "long"),
    field("name", "string"),
    field("tags", {"type": "array", "items": "string"}),
    field("scores", {"type": "map", "values": "double"}),
    name="x.Message",
)
SENT = {"id": 11, "name": "Ada", "tags": ["a", "b"], "scores": {"chess": 1.5}}
EITHER = ["boolean", "double", {"type": "array", "items": "bytes"}]
OPTIONAL = record(
    field("text", ["null", "string"], default=None),
    field("number", ["null", "long"], default=None),
    field("map", ["null", {"type": "map", "values": "string"}], default=None),
    field("list", ["null", {"type": "array", "items": "string"}], default=None),
    field("part", ["null", record(field("value", "string"), name="Part")], default=None),
    field("colour", ["null", COLOUR], default=None),
)
SET = {"text": "t", "number": 2**40, "map": {"k": "v"}, "list": ["x"], "part": {"value": "p"}, "colour": "BLUE"}
UNIONS = record(
    field("one", ["string", "int"]),
    field("two", [record(field("in", ["string", "int", "boolean", "null"]), name="Inner"), "null"]),
)

VALUES = [
    whole("the least and the greatest int", {"type": "array", "items": "int"}, [-(2**31), 2**31 - 1, 0]),
    whole("the least and the greatest long", {"type": "array", "items": "long"}, [-(2**63), 2**63 - 1, 0]),
    whole("text beyond ASCII", "string", "é漢🙂"),
    whole("booleans", {"type": "array", "items": "boolean"}, [True, False]),
    whole("a float", "float", -0.5),
    whole("a double", "double", 1.5e300),
    whole("bytes", "bytes", b"\x00\xff"),
    whole("a null among fields", record(field("a", "null"), field("b", "int")), {"a": None, "b": 7}),
    whole("an array of no items", {"type": "array", "items": "double"}, []),
    whole(
        "a map of records", {"type": "map", "values": record(field("label", "string"), name="L")}, {"k": {"label": "x"}}
    ),
    *(
        whole(
            f"branch {number} of three",
            record(field("u", EITHER)),
            {"u": value},
            {"u": {f"member{n}": value if n == number else None for n in range(3)}},
        )
        for number, value in enumerate((True, 2.5, [b"\x01", b""]))
    ),
    whole("an enum", COLOUR, "BLUE"),
    whole("a fixed", {"type": "fixed", "name": "Md5", "size": 16}, bytes(range(16))),
    whole(
        "a logical type beside the type, which is none",
        record(field("at", "long", logicalType="time-millis")),
        {"at": 5},
    ),
    whole("nullable fields of every type, set", OPTIONAL, SET),
    whole("nullable fields of every type, null", OPTIONAL, dict.fromkeys(SET)),
    whole(
        "unions of several types, within a record in one",
        UNIONS,
        {"one": 3, "two": {"in": True}},
        {"one": {"member0": None, "member1": 3}, "two": {"in": {"member0": None, "member1": None, "member2": True}}},
    ),
    whole("a message, as plain Avro", MESSAGE, SENT),
    Case(
        "an array in two blocks, one with its size",
        {"type": "array", "items": "int"},
        bytes.fromhex("03020204020600"),
        [1, 2, 3],
    ),
]


def evolved(about: str, writer: Sequence[str], reader: Sequence[str], found: Any) -> list[Case]:
    """A record of these fields read as one of those, and the same within another record."""
    one, other = (record(*(field(name, KINDS[name]) for name in names), name="Was") for names in (writer, reader))
    written = {name: HELD[name] for name in writer}
    outer = [record(field("root", "string"), field("in", inner), name="Outer") for inner in (one, other)]
    return [
        whole(about, one, written, found, other),
        whole(
            f"{about}, within a record",
            outer[0],
            {"root": "r", "in": written},
            found if found is BAD else {"root": "r", "in": found},
            outer[1],
        ),
    ]


KINDS = {"name": "string", "value": "long", "data": "string"}
HELD = {"name": "n", "value": 2**40, "data": "d"}

EVOLVED = [
    *evolved(
        "a field that the reader lacks", ["name", "value", "data"], ["name", "value"], {"name": "n", "value": 2**40}
    ),
    *evolved("a field from between two", ["name", "value", "data"], ["name", "data"], {"name": "n", "data": "d"}),
    *evolved("a field without a default that the writer lacks", ["name", "value"], ["name", "value", "data"], BAD),
]

RECURSIVE, SINGLE_OBJECT = "a value of a record in itself", "a message in single-object encoding"
NOT_PASSED = "Spark's Avro takes it for the end of the array, and so the record for a good one. The auditor refuses it"
REFUSED = {
    RECURSIVE: "Spark has no type for its columns. Where a reader's schema leaves that part out, Avro still takes "
    "memory for each level, and a deep value would end the JVM",
    SINGLE_OBJECT: "a record names its schema by Confluent's header or by Glue's. A fingerprint names none: neither "
    "registry can be asked for one",
}
"""Values that are refused on purpose -> why."""
LEAF = Case(RECURSIVE, NODE, encoded(NODE, {"label": "root", "children": [{"label": "leaf", "children": []}]}), BAD)
FINGERPRINTED = Case(SINGLE_OBJECT, MESSAGE, b"\xc3\x01" + bytes(range(8)) + encoded(MESSAGE, SENT), BAD)
CONTENTS = [*MALFORMED, *VALUES, *EVOLVED, FINGERPRINTED]
