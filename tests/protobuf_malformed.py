"""Bytes that are no message of Protobuf, as far as its own conformance suite has them: see ``protobuf_cases``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protobuf_bytes import DELIMITED, END, FIXED32, FIXED64, GROUP, VARINT, field, tag, varint

UNKNOWN = 777
"""The number of a field that no schema has."""
BOX = 231
"""The number of a group, in proto2."""

_CUT_OFF = {VARINT: b"\x80", FIXED64: b"1234567", DELIMITED: b"\x80", FIXED32: b"123"}
"""How it is written -> a value that lacks its end."""


def malformed(kinds: Sequence[tuple[int, str, int]]) -> Iterator[tuple[str, bytes]]:
    """``kinds``: the number of a field with one value, what its type is called, and how it is written. The field for
    several values has 20 more, and 17 is that of a message."""
    for number, kind, wire in kinds:
        for place, at in {"one": number, "several": number + 20}.items():
            yield from _ended(f"{place} of {kind}", at, wire)
        if wire != DELIMITED:
            yield f"a value of packed {kind} ends", field(number + 20, _CUT_OFF[wire])
            yield f"packed {kind} end", tag(number + 20, DELIMITED) + varint(1)
        elif number == 17:
            yield f"a value in {kind} ends", field(number, tag(1, VARINT) + _CUT_OFF[VARINT])
    for wire in _CUT_OFF:
        yield from _ended(f"a field of wire type {wire} that the schema lacks", UNKNOWN, wire)
    yield from _tags()
    yield from _groups()
    yield from _wire_types()


def _ended(what: str, number: int, wire: int) -> Iterator[tuple[str, bytes]]:
    """Too early."""
    yield f"{what} ends before the value", tag(number, wire)
    yield f"{what} ends in the value", tag(number, wire) + _CUT_OFF[wire]
    if wire == DELIMITED:
        yield f"{what} ends before all of its bytes", tag(number, wire) + varint(1)


def _tags() -> Iterator[tuple[str, bytes]]:
    yield "the number 0, in eight bytes", b"\x01" + b"12345678"
    yield "the number 0, after its length", b"\x02\x01\x01"
    yield "the number 0, as a group", b"\x03\x04"
    yield "the number 0, in four bytes", b"\x05" + b"1234"
    open_tag = bytes([tag(1, VARINT)[0] | 0x80])
    for about, rest in (
        ("far above the last number", b"\x80" * 5 + b"\x0f"),
        ("just above the last number", b"\x80" * 3 + b"\x40"),
        ("of more bytes than it needs", b"\x80" * 7 + b"\0"),
        ("of more than ten bytes", b"\x80" * 11 + b"\0"),
    ):
        yield f"a tag {about}", open_tag + rest + varint(77)


def _groups() -> Iterator[tuple[str, bytes]]:
    text = field(2, b"lock and key")
    for edge, wire in (("end", END), ("start", GROUP)):
        yield f"a group's {edge} alone", tag(BOX, wire)
        yield f"a group's {edge} alone, of a field that the schema lacks", tag(UNKNOWN, wire)
        yield f"a group's {edge} alone, of a number", tag(1, wire)
        yield f"a group's {edge} alone, in a message", field(17, tag(UNKNOWN, wire))
        yield f"a group's {edge} alone, in a group", tag(BOX, GROUP) + tag(BOX + 1, wire) + tag(BOX, END)
        yield f"a group's {edge} alone, and text after it", tag(1, wire) + text
    yield "the end of another group", tag(BOX, GROUP) + text + tag(BOX + 1, END)
    inner = tag(BOX + 1, GROUP) + text + tag(BOX + 2, END)
    yield "the end of another group, in a group", tag(BOX, GROUP) + inner + tag(BOX, END)


def _wire_types() -> Iterator[tuple[str, bytes]]:
    for wire in (6, 7):
        for number in range(4):
            for value in range(4):
                yield f"the wire type {wire} of field {number}, then {value}", bytes([number << 3 | wire, value])


def no_texts() -> Iterator[tuple[str, bytes]]:
    """Bytes in the place of texts. Those of proto2 may be any bytes."""
    text = b"\xb0\xa0\xd0\xc0"
    yield "a text that isn't UTF-8", field(15, text)
    yield "one of several texts that isn't UTF-8", field(35, text)
    yield "a text of a oneof that isn't UTF-8", field(135, text)
    yield "a key that isn't UTF-8", field(113, field(1, text) + field(2, b"lock"))
    yield "a value of a map that isn't UTF-8", field(113, field(1, b"lock") + field(2, text))
