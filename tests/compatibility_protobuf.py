"""Changes of Protobuf schemas: what becomes of a record of the older one in the columns of the newer one, where other
fields are left out (``on_new_column: ignore``).

The cases are those of diff-schema-examples.json in Confluent's schema registry (SOURCE), as far as they are about
records. The schemas and bytes are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protobuf_bytes import field

SOURCE = (
    "https://github.com/confluentinc/schema-registry/blob/794611bd86d1ce0422581269e2b13a2ab010c7fb/protobuf-provider/"
    "src/test/resources/diff-schema-examples.json"
)
BY_ITS_OWN = (
    "a record is read by the schema that it names, so its fields keep their names and values. The registry asks what a "
    "reader of the newer schema would take them for"
)
ONE_TYPE = "a column has one type, and no value of another is made to fit it"


@dataclass(frozen=True)
class Change:
    """``old`` and ``new``: the message Boat, or a whole source. ``allowed``: by the registry. ``found``: the row, or
    None for a bad record."""

    about: str
    old: str
    new: str
    allowed: bool
    sent: bytes
    found: Mapping[str, Any] | None
    why: str = ""
    """Why it isn't what the registry says."""
    message: str = "Boat"


def _text(number: int, text: str) -> bytes:
    return field(number, text.encode())


def source(text: str) -> str:
    """Of a message's fields, or of a whole source."""
    return text if text.startswith("syntax") else f'syntax = "proto3"; message Boat {{ {text} }} {_OTHERS}'


def _inside(fields: str, package: str = "", name: str = "In") -> str:
    """A message in a message."""
    return _packed(f"{package}message Boat {{ {name} in = 1; message In {{ {fields} }} }}")


_OTHERS = """
enum Lamp { RED = 0; GREEN = 1; }
message Crew { string name = 1; }
message Load { string name = 1; }
"""
_NAME, _ADA = "string name = 1;", _text(1, "Ada")
_PLAIN = {"name": "Ada"}
_BOTH = _NAME + " int32 berth = 2;"
_BERTH = _ADA + field(2, 7)
_PIER = "string pier = 2;"
_EITHER = "oneof at { string name = 1; string pier = 2; }"


def _packed(text: str) -> str:
    return f'syntax = "proto3"; {text}'


def _proto2(text: str) -> str:
    return f'syntax = "proto2"; message Boat {{ optional string name = 1; {text} }}'


def _owned(kind: str, package: str = "") -> str:
    owner = f"message Owner {{ {kind} number = 1; bool here = 2; }}"
    scope = f"message port{package} {{ {owner} }}" if package else owner
    return _packed(f"{scope} message Boat {{ {f'port{package}.' if package else ''}Owner owner = 1; }}")


_OWNER = field(1, field(1, 7) + field(2, 1))
_SEVEN = {"owner": {"number": 7, "here": True}}

CHANGES = [
    Change("a field is added", _NAME, _BOTH, True, _ADA, {"name": "Ada", "berth": None}),
    Change("the package is renamed", _packed("package a; message Boat { string name = 1; }"),
           _packed("package b; message Boat { string name = 1; }"), False, _ADA, None, message="b.Boat"),
    Change("a message's name is written in full", _inside(_NAME), _inside(_NAME, name=".Boat.In"), True,
           field(1, _ADA), {"in": _PLAIN}),
    Change("a message's name is written in full, with its package",
           _inside(_NAME, "package a; "), _inside(_NAME, "package a; ", ".a.Boat.In"), True, field(1, _ADA),
           {"in": _PLAIN}, message="a.Boat"),
    Change("a required field is added", _proto2(""), _proto2("required string pier = 2;"), False, _ADA,
           {"name": "Ada", "pier": None}, BY_ITS_OWN),
    Change("a field is added to a message in it", _inside(_NAME), _inside(_NAME + _PIER), True,
           field(1, _ADA), {"in": {"name": "Ada", "pier": None}}),
    Change("a field is dropped", _BOTH, _NAME, True, _BERTH, _PLAIN),
    Change("a required field is dropped", _proto2("required string pier = 2;"), _proto2(""), False,
           _ADA + _text(2, "east"), _PLAIN, BY_ITS_OWN),
    Change("a field's number changes", _NAME, "string name = 2;", True, _ADA, _PLAIN),
    Change("an int32 becomes an int64", _BOTH, _NAME + " int64 berth = 2;", True, _BERTH, {"name": "Ada", "berth": 7}),
    Change("a string becomes bytes", _NAME + _PIER, _NAME + " bytes pier = 2;", True, _ADA, None, ONE_TYPE),
    Change("an int32 becomes an enum", _BOTH, _NAME + " Lamp berth = 2;", True, _ADA + field(2, 1), None, ONE_TYPE),
    Change("an enum becomes an int32", _NAME + " Lamp berth = 2;", _BOTH, True, _ADA + field(2, 1),
           {"name": "Ada", "berth": 1}),
    Change("an int32 becomes a message, named as an enum", _BOTH, _NAME + " Crew berth = 2;", False, _BERTH, None),
    Change("a message, named as an enum, becomes an int32", _NAME + " Crew berth = 2;", _BOTH, False,
           _ADA + field(2, _ADA), None),
    Change("an enum's value is renamed", _packed("message Boat { Lamp l = 1; } enum Lamp { RED = 0; GREEN = 1; }"),
           _packed("message Boat { Lamp l = 1; } enum Lamp { RED = 0; LIME = 1; }"), True, field(1, 1), {"l": "GREEN"}),
    Change("a field goes into a new oneof", _NAME + _PIER, _NAME + " oneof at { string pier = 2; int32 other = 3; }",
           True, _ADA + _text(2, "east"), {"name": "Ada", "pier": "east", "other": None}),
    Change("two fields go into a new oneof", _NAME + _PIER,
           "oneof at { string name = 1; string pier = 2; int32 o = 3; }", False, _ADA + _text(2, "east"),
           {"name": "Ada", "pier": "east", "o": None}, BY_ITS_OWN),
    Change("a oneof gets a field", _EITHER, "oneof at { string name = 1; string pier = 2; int32 other = 3; }", True,
           _ADA, {"name": "Ada", "pier": None, "other": None}),
    Change("a oneof loses a field", "oneof at { string name = 1; string pier = 2; int32 other = 3; }", _EITHER, False,
           field(3, 7), {"name": None, "pier": None}, BY_ITS_OWN),
    Change("a field goes into a oneof of its own", _NAME + _PIER, _NAME + " oneof at { string pier = 2; }", True,
           _ADA + _text(2, "east"), {"name": "Ada", "pier": "east"}),
    Change("a field goes into a oneof that is there", _NAME + " oneof at { string pier = 2; string quay = 3; }",
           "oneof at { string name = 1; string pier = 2; string quay = 3; }", False, _ADA + _text(2, "east"),
           {"name": "Ada", "pier": "east", "quay": None}, BY_ITS_OWN),
    Change("a field goes into a oneof, which is renamed", _NAME + " oneof at { string pier = 2; string quay = 3; }",
           "oneof lies { string name = 1; string pier = 2; string quay = 3; }", False, _ADA + _text(2, "east"),
           {"name": "Ada", "pier": "east", "quay": None}, BY_ITS_OWN),
    Change("an int32 becomes a message", _BOTH, _NAME + " Load berth = 2;", False, _BERTH, None),
    Change("an int32 becomes a string of another name", _BOTH, _NAME + _PIER, False, _BERTH,
           {"name": "Ada", "pier": None}, BY_ITS_OWN),
    Change("a message becomes another one, with the same fields", _NAME + " Crew on = 2;", _NAME + " Load on = 2;",
           False, _ADA + field(2, _ADA), {"name": "Ada", "on": _PLAIN}, BY_ITS_OWN),
    Change("a map's values become texts, by another name", _NAME + " map<string, int32> counts = 2;",
           _NAME + " map<string, string> notes = 2;", False, _ADA + field(2, _ADA + field(2, 7)),
           {"name": "Ada", "notes": None}, BY_ITS_OWN),
    Change("the name of a map's message is written in full",
           _packed("message Boat { map<string, In> m = 1; message In { string name = 1; } }"),
           _packed("message Boat { map<string, Boat.In> m = 1; message In { string name = 1; } }"), True,
           field(1, _text(1, "a") + field(2, _ADA)), {"m": {"a": _PLAIN}}),
    Change("one message becomes several", _NAME + " optional Crew on = 2;", _NAME + " repeated Crew on = 2;", True,
           _ADA + field(2, _ADA), None, ONE_TYPE),
    Change("one string becomes several", "optional string name = 1;", "repeated string name = 1;", True, _ADA, None,
           ONE_TYPE),
    Change("one bytes becomes several", "optional bytes raw = 1;", "repeated bytes raw = 1;", True, _ADA, None,
           ONE_TYPE),
    Change("one number becomes several", "optional int32 n = 1;", "repeated int32 n = 1;", False, field(1, 7), None),
    Change("a message is added", _packed("message Boat { string name = 1; }"),
           _packed("message Boat { string name = 1; } message Crew { string name = 1; }"), True, _ADA, _PLAIN),
    Change("a message is added before it", _packed("message Boat { string name = 1; }"),
           _packed("message Crew { string name = 1; } message Boat { string name = 1; }"), True, _ADA, _PLAIN),
    Change("two messages change places", _packed("message Boat { string name = 1; } message Crew { string n = 1; }"),
           _packed("message Crew { string n = 1; } message Boat { string name = 1; }"), True, _ADA, _PLAIN),
    Change("a message from elsewhere changes a field's type", _owned("int32"), _owned("string"), False, _OWNER, None),
    Change("a message comes from elsewhere", _owned("int32"), _owned("int32", "a"), False, _OWNER, _SEVEN, BY_ITS_OWN),
    Change("a message no longer comes from elsewhere", _owned("int32", "a"), _owned("int32"), True, _OWNER, _SEVEN),
    Change("a message comes from elsewhere under another name", _owned("int32", "a"), _owned("int32", "b"), True,
           _OWNER, _SEVEN),
    Change("a message from elsewhere changes its name and a field's type", _owned("int32", "a"), _owned("string", "b"),
           False, _OWNER, None),
    Change("a oneof is renamed, and a field's type changes", "oneof a { float x = 1; int32 y = 2; }",
           "oneof b { float x = 1; string y = 2; }", False, field(2, 7), None),
    Change("a oneof is dropped, and an int32 becomes a sint64", "oneof a { float x = 1; int32 y = 2; }",
           "float x = 1; sint64 y = 2;", False, field(2, 7), {"x": None, "y": 7}, BY_ITS_OWN),
    Change("an int32 becomes a sint64 in a new oneof", "float x = 1; int32 y = 2;",
           "float x = 1; oneof b { sint64 y = 2; }", False, field(2, 7), {"x": 0.0, "y": 7}, BY_ITS_OWN),
    Change("a oneof is renamed", "oneof a { float x = 1; int32 y = 2; }", "oneof b { float x = 1; int32 y = 2; }", True,
           field(2, 7), {"x": None, "y": 7}),
    Change("a field goes from one oneof to another", "oneof a { int32 x = 1; int32 y = 2; } oneof b { int32 z = 3; }",
           "oneof a { int32 x = 1; } oneof b { int32 z = 3; int32 y = 2; }", False, field(2, 7) + field(3, 8),
           {"x": None, "y": 7, "z": 8}, BY_ITS_OWN),
    Change("a field goes from a dropped oneof to another", "oneof a { int32 x = 1; } oneof b { int32 z = 3; }",
           "oneof b { int32 z = 3; int32 x = 1; }", False, field(1, 7) + field(3, 8), {"x": 7, "z": 8}, BY_ITS_OWN),
    Change("two oneofs become one", "oneof a { int32 x = 1; } oneof b { int32 z = 2; }",
           "oneof c { int32 x = 1; int32 z = 2; }", False, field(1, 7) + field(2, 8), {"x": 7, "z": 8}, BY_ITS_OWN),
    Change("a oneof becomes two", "oneof a { int32 x = 1; int32 y = 2; }",
           "oneof a { int32 y = 2; } oneof b { int32 x = 1; }", True, field(1, 7), {"x": 7, "y": None}),
    Change("a oneof is renamed, and loses a field", "oneof a { int32 x = 1; int32 y = 2; }", "oneof b { int32 x = 1; }",
           False, field(2, 7), {"x": None}, BY_ITS_OWN),
    Change("a field leaves its oneof", "oneof a { int32 x = 1; int32 y = 2; }", "oneof a { int32 x = 1; } int32 y = 2;",
           True, field(2, 7), {"x": None, "y": 7}),
    Change("a field leaves its oneof, and its type changes", "oneof a { int32 x = 1; int32 y = 2; }",
           "oneof a { int32 x = 1; } string y = 2;", False, field(2, 7), None),
]  # fmt: skip
