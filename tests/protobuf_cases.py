"""What a decoder of Protobuf has to read, and what it has to refuse: bytes, with the row that they are.

The cases are those of binary input that Protobuf's own conformance suite holds every language's implementation to
(BSD-3-Clause, SOURCE), and the well-known types of its part about JSON, as messages. The schemas and bytes are our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protobuf_bytes import DELIMITED, END, GROUP, VARINT, delimited, field, tag, varint
from protobuf_kinds import (
    BAD,
    BY_NAME,
    CUT,
    EXTENSION,
    KINDS,
    NANOS,
    PACKABLE,
    WITHOUT_DEPTH,
    WITHOUT_GROUPS,
    WITHOUT_SETS,
    Case,
    Kind,
)
from protobuf_malformed import BOX, UNKNOWN, malformed, no_texts

SOURCE = (
    "https://github.com/protocolbuffers/protobuf/blob/e712d276bcead35cad45e305463f5e542246351e/conformance/"
    "binary_json_conformance_suite.cc"
)
MAPS = [
    *((name, name) for name in BY_NAME if name.endswith(("32", "64"))),
    *(("int32", "float"), ("int32", "double"), ("bool", "bool"), ("string", "string"), ("string", "bytes")),
    *(("string", "Colour"), ("string", "Inner")),
]
IN_ONEOF = ("uint32", "bool", "uint64", "float", "double", "string", "bytes", "Colour", "Inner")
WRAPPED = {
    "Bool": "bool", "Int32": "int32", "UInt32": "uint32", "Int64": "int64", "UInt64": "uint64", "Float": "float",
    "Double": "double", "String": "string", "Bytes": "bytes",
}  # fmt: skip
TIME, SETS, WITHIN = 221, 232, 233
SET = """
message Set { option message_set_wire_format = true; extensions 4 to max; }
message Item { extend Set { optional Item item = 4567; } optional int32 n = 9; optional Set sets = 10; }
message Other { extend Set { optional Other other = 5678; } oneof of { int32 a = 1; int32 b = 2; } }
"""
_WRAPPERS = [(f"google.protobuf.{name}Value", of, at) for at, (name, of) in enumerate(WRAPPED.items(), 201)]
_WELL_KNOWN = [
    *(f"{name} held_{of} = {at};" for name, of, at in _WRAPPERS),
    *(f"repeated {name} several_held_{of} = {at + 10};" for name, of, at in _WRAPPERS),
    f"google.protobuf.Timestamp at = {TIME};",
]
_COLUMNLESS = [
    f"optional group Box = {BOX} {{ optional int32 n = 1; }}",
    f"optional Set sets = {SETS};",
    f"map<int32, All> within = {WITHIN};",
]


@dataclass(frozen=True)
class Syntax:
    """All cases of a syntax: ``proto2`` or ``proto3``."""

    name: str

    @property
    def present(self) -> bool:
        """Whether a field says if it was sent."""
        return self.name == "proto2"

    def schema(self, *, whole: bool = True) -> str:
        """The source of the message lock.All, and of all that are in it. ``whole``: also fields without columns."""
        one = "optional " if self.present else ""
        several = [f"repeated {kind.name} {{0}}_{kind.name} = {{1}}{{2}};" for kind in self._kinds]
        fields = [
            *(f"{one}{kind.name} one_{kind.name} = {at};" for at, kind in enumerate(self._kinds, 1)),
            *(text.format("several", 20 + at, "") for at, text in enumerate(several, 1)),
            *(text.format("packed", 40 + at, " [packed = true]") for at, text in enumerate(several[:14], 1)),
            *(text.format("plain", 60 + at, " [packed = false]") for at, text in enumerate(several[:14], 1)),
            *(f"map<{key}, {value}> {key}_to_{value} = {100 + at};" for at, (key, value) in enumerate(MAPS)),
            "oneof either {",
            *(f"{name} either_{name} = {130 + at};" for at, name in enumerate(IN_ONEOF)),
            "}",
            *([] if self.present else _WELL_KNOWN),
            *(_COLUMNLESS if self.present and whole else []),
        ]
        return f"""
        syntax = "{self.name}"; package lock;
        {"" if self.present else 'import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto";'}
        enum Colour {{ RED = 0; GREEN = 1; BLUE = 2; NONE = -1; }}
        message Deep {{ {one}int32 one = 1; {one}int64 two = 2; {one}uint32 three = 3; repeated int32 many = 31; }}
        message Inner {{ {one}int32 n = 1; {one}Deep deep = 2; }}
        message All {{ {" ".join(fields)} }}
        {SET if self.present else ""}
        """

    @property
    def _kinds(self) -> list[Kind]:
        values: list[tuple[bytes, Any]] = [(delimited(b""), self.inner()), (delimited(field(1, 77)), self.inner(n=77))]
        return [*KINDS, Kind("Inner", DELIMITED, values, title="a message")]

    @property
    def _of(self) -> dict[str, Kind]:
        return {kind.name: kind for kind in self._kinds}

    def inner(self, **found: Any) -> dict[str, Any]:
        return {"n": None if self.present else 0, "deep": None, **found}

    def deep(self, **found: Any) -> dict[str, Any]:
        return {**dict.fromkeys(("one", "two", "three"), None if self.present else 0), "many": [], **found}

    @property
    def empty(self) -> dict[str, Any]:
        """The row of an empty message."""
        absent = {
            f"one_{kind.name}": None if self.present or kind.name == "Inner" else kind.values[0][1]
            for kind in self._kinds
        }
        lists = {f"{form}_{kind.name}": [] for form in ("packed", "plain") for kind in PACKABLE}
        wrappers = {} if self.present else {f"held_{of}": None for of in WRAPPED.values()}
        return {
            **absent, **lists, **{f"several_{kind.name}": [] for kind in self._kinds},
            **{f"{key}_to_{value}": {} for key, value in MAPS}, **{f"either_{name}": None for name in IN_ONEOF},
            **wrappers, **{f"several_{name}": [] for name in wrappers}, **({} if self.present else {"at": None}),
        }  # fmt: skip

    def cases(self) -> list[Case]:
        numbered = list(enumerate(self._kinds, 1))
        valid = [
            *(case for at, kind in numbered for case in _one(at, kind)),
            *(case for at, kind in numbered for case in _several(at, kind)),
            *(case for at, names in enumerate(MAPS, 100) for case in self._map(at, *names)),
            *(case for at, name in enumerate(IN_ONEOF, 130) for case in self._oneof(at, name)),
            *self._merged(),
            Case("a field that the schema lacks", field(UNKNOWN, 1), {}),
            Case(
                "a field that the schema lacks, as text and as a number",
                b"".join(field(UNKNOWN, each) for each in (b"lock", 77, b"gate", 777)), {},
            ),
            *(_passed_over() if self.present else (*_wrappers(), *_times())),
        ]  # fmt: skip
        wrong = [*malformed([(at, kind.called, kind.wire) for at, kind in numbered])]
        wrong += [] if self.present else no_texts()
        return [*valid, *(Case(about, content, BAD) for about, content in wrong)]

    def _map(self, number: int, key_of: str, value_of: str) -> Iterator[Case]:
        key, value = self._of[key_of], self._of[value_of]
        (no_key, one_key), (no_value, one_value) = (
            [tag(at, kind.wire) + content for content, _ in kind.values[:2]] for at, kind in ((1, key), (2, value))
        )
        column, about = f"{key_of}_to_{value_of}", f"a map of {key.called} to {value.called}"
        none, one = ({key.values[at][1]: value.values[at][1]} for at in (0, 1))
        for how, found, *entries in (
            ("with the defaults", none, no_key + no_value),
            ("without key and value", none, b""),
            ("with a key and a value", one, one_key + one_value),
            ("with the value first", one, one_value + one_key),
            ("with a key twice", one, one_key + no_value, one_key + one_value),
            ("with two keys in one entry", one, no_key + one_key + one_value),
            ("with two values in one entry", one, one_key + no_value + one_value),
        ):
            yield Case(f"{about}, {how}", b"".join(field(number, each) for each in entries), {column: found})

    def _oneof(self, number: int, name: str) -> Iterator[Case]:
        kind, other = self._of[name], "uint32" if name == "string" else "string"
        (none, no_value), (one, value) = kind.values[:2]
        column, about, start = f"either_{name}", f"a oneof of {kind.called}", tag(number, kind.wire)
        before = tag(130 + IN_ONEOF.index(other), self._of[other].wire) + self._of[other].values[0][0]
        yield Case(f"{about}, with its default", start + none, {column: no_value})
        yield Case(f"{about}, with a value", start + one, {column: value})
        yield Case(f"{about}, sent twice", start + none + start + one, {column: value})
        yield Case(f"{about}, after another member", before + start + one, {column: value})

    def _merged(self) -> Iterator[Case]:
        """Messages that come in parts, and one that doesn't."""
        first, last = (field(1, 5) + field(2, 5) + field(31, 5), field(1, 6) + field(3, 6) + field(31, 6))
        whole = self.inner(deep=self.deep(one=6, two=5, three=6, many=[5, 6]))
        parts = [field(2, each) for each in (first, last)]
        for about, number, column in (("a message", 17, "one_Inner"), ("a message of a oneof", 138, "either_Inner")):
            yield Case(f"{about} in two parts", b"".join(field(number, each) for each in parts), {column: whole})
        entries = (field(116, field(1, b"") + field(2, each)) for each in parts)
        found = {"": self.inner(deep=self.deep(one=6, three=6, many=[6]))}
        yield Case("a message of a map, sent twice: the last one counts", b"".join(entries), {"string_to_Inner": found})


def _one(number: int, kind: Kind) -> Iterator[Case]:
    column, start = f"one_{kind.name}", tag(number, kind.wire)
    for at, (content, value) in enumerate(kind.values):
        yield Case(f"{kind.called}, value {at}", start + content, {column: value})
    for at, content in enumerate(kind.cut):
        yield Case(f"{kind.called}, cut {at}", start + content, BAD, CUT)
    if kind.name != "Inner":
        content = b"".join(start + each for each, _ in kind.values)
        yield Case(f"{kind.called}, several times: the last one counts", content, {column: kind.values[-1][1]})
        if kind.cut:
            yield Case(f"{kind.called}, the last of several cut", content + start + kind.cut[-1], BAD, CUT)


def _several(at: int, kind: Kind) -> Iterator[Case]:
    forms = {"several": 20 + at, "packed": 40 + at, "plain": 60 + at}
    values = [value for _, value in kind.values]
    for form, number in forms.items():
        column, about = f"{form}_{kind.name}", f"{form} of {kind.called}"
        apart = b"".join(tag(number, kind.wire) + content for content, _ in kind.values)
        if kind.wire == DELIMITED:
            if form == "several":
                yield Case(about, apart, {column: values})
            continue
        together = b"".join(content for content, _ in kind.values)
        yield Case(f"{about}, each with a tag", apart, {column: values})
        yield Case(f"{about}, all after one tag", field(number, together), {column: values})
        if kind.cut and form == "several":
            more = b"".join(kind.cut)
            yield Case(f"{about}, each with a tag, some cut", apart + tag(number, VARINT) + kind.cut[0], BAD, CUT)
            yield Case(f"{about}, all after one tag, some cut", field(number, together + more), BAD, CUT)


def _wrappers() -> Iterator[Case]:
    for at, (name, of) in enumerate(WRAPPED.items(), 201):
        (_, default), (content, value) = BY_NAME[of].values[:2]
        one = tag(1, BY_NAME[of].wire) + content
        yield Case(f"{name}Value, empty: the default", field(at, b""), {f"held_{of}": default})
        yield Case(f"{name}Value", field(at, one), {f"held_{of}": value})
        sent = field(at + 10, b"") + field(at + 10, one)
        yield Case(f"several of {name}Value", sent, {f"several_held_{of}": [default, value]})


def _times() -> Iterator[Case]:
    """A TIMESTAMP, in microseconds."""

    def sent(seconds: int, nanos: int = 0) -> bytes:
        return field(TIME, field(1, seconds) + field(2, nanos))

    for about, seconds, nanos in (
        ("the first second", -62135596800, 0), ("the last microsecond", 253402300799, 999_999_000),
        ("1970", 0, 0), ("half a second after", 10, 500_000_000), ("half a second before", -11, 500_000_000),
        ("a day", 729_302_400, 0),
    ):  # fmt: skip
        yield Case(f"Timestamp: {about}", sent(seconds, nanos), {"at": seconds * 10**6 + nanos // 1000})
    for seconds, nanos in ((253402300799, 999_999_999), (0, 1), (-1, 999_999_999), (1, 1), (-2, 999_999_999)):
        yield Case(f"Timestamp: nanoseconds {seconds}, {nanos}", sent(seconds, nanos), BAD, NANOS)
    for seconds, nanos in ((-62135596801, 0), (253402300800, 0), (5000, -1), (5000, 10**9)):
        yield Case(f"Timestamp: out of range, {seconds}, {nanos}", sent(seconds, nanos), BAD)


def _passed_over() -> Iterator[Case]:
    """Fields of proto2 that have no columns."""
    item, other = (field(2, number) for number in (4567, 5678))
    one, two = (field(3, field(9, number)) for number in (99, 88))
    for about, content in (
        ("a message set", item + one),
        ("a message set, the value first", one + item),
        ("a message set of an extension that nobody knows", field(2, 4560) + field(3, tag(0, VARINT) + varint(99))),
        ("a message set with two numbers", item + one + other),
        ("a message set with two values", item + one + two),
        ("a message set with two values, one first", one + item + two),
    ):
        yield Case(about, field(SETS, tag(1, GROUP) + content + tag(1, END)), {}, WITHOUT_SETS)
    plain, entry = field(5678, field(1, 42)), tag(1, GROUP) + other + field(3, field(2, 99)) + tag(1, END)
    yield Case("a message set, written as a message", field(SETS, field(4567, field(9, 99))), {}, WITHOUT_SETS)
    yield Case("a message set, written in both ways", field(SETS, plain + entry), {}, WITHOUT_SETS)
    deep = deep_set = b""
    for _ in range(1000):
        deep = field(WITHIN, field(1, 1) + field(2, deep))
        deep_set = tag(1, GROUP) + item + field(3, field(10, deep_set)) + tag(1, END)
    yield Case("a thousand messages within each other, by maps", deep, {}, WITHOUT_DEPTH)
    yield Case("a thousand message sets within each other", field(SETS, deep_set), {}, WITHOUT_DEPTH)


class Edition:
    """The cases of what is new in editions."""

    name = "2023"
    empty: Mapping[str, Any] = {"n": None, "inner": None, "counts": {}, "boxes": {}}

    def schema(self, *, whole: bool = True) -> str:
        """The source of the message lock.All, and of all that are in it. ``whole``: also fields without columns."""
        form = "[features.message_encoding = DELIMITED]"
        boxes = f"Box box = 201 {form}; Box drawer = 202 {form};" if whole else ""
        return f"""
        edition = "2023"; package lock;
        message Inner {{ int32 n = 1; }}
        message All {{
          int32 n = 1; Inner inner = 2; map<int32, int32> counts = 3; map<string, Inner> boxes = 4; {boxes}
          message Box {{ int32 n = 1; }}
          extensions 100 to 200;
        }}
        extend All {{ Each each = 121 {form}; Each another = 122 {form}; string text = 133; bytes content = 134; }}
        message Each {{ int32 n = 1; }}
        """

    def cases(self) -> list[Case]:
        def group(number: int) -> bytes:
            return tag(number, GROUP) + field(1, 99) + tag(number, END)

        return [
            Case("a number", field(1, 99), {"n": 99}),
            Case("a message after its length", field(2, field(1, 99)), {"inner": {"n": 99}}),
            Case("a map of numbers", field(3, field(1, 99) + field(2, 87)), {"counts": {99: 87}}),
            Case("a map of messages", field(4, field(1, b"a") + field(2, field(1, 87))), {"boxes": {"a": {"n": 87}}}),
            Case("a delimited message with the name of its field", group(201), {}, WITHOUT_GROUPS),
            Case("a delimited message", group(202), {}, WITHOUT_GROUPS),
            Case("an extension, delimited, with the name of its field", group(121), {}, EXTENSION),
            Case("an extension, delimited", group(122), {}, EXTENSION),
            Case("an extension of bytes", field(134, b"\xb0\xa0\xd0\xc0"), {}, EXTENSION),
            Case("an extension of text that isn't UTF-8", field(133, b"\xb0\xa0\xd0\xc0"), {}, EXTENSION),
        ]


WITHOUT_COLUMNS = {
    "a group": "optional group Box = 1 { optional int32 n = 1; }",
    "a message set": "optional Set sets = 1;",
    "a message in itself": "optional All all = 1;",
    "a map of messages in themselves": "map<int32, All> all = 1;",
    "a message without fields": "optional google.protobuf.Empty empty = 1;",
    "Struct": "optional google.protobuf.Struct struct = 1;",
    "Value": "optional google.protobuf.Value value = 1;",
    "ListValue": "optional google.protobuf.ListValue list = 1;",
}
"""Fields that no column can hold."""

SUITES = (Syntax("proto3"), Syntax("proto2"), Edition())
ALL = [case for suite in SUITES for case in suite.cases()]
