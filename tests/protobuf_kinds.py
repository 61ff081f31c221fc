"""The types of Protobuf's fields with values of theirs, and what a case is: see ``protobuf_cases``."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from protobuf_bytes import DELIMITED, FIXED32, FIXED64, VARINT, delimited, varint, zigzag

BAD = "a bad record"

CUT = (
    "Protobuf's libraries cut a number to the bits of its type, and take any number but 0 for true. The table would "
    "have another number than was sent"
)
NANOS = "a TIMESTAMP has microseconds. The columns of a STRUCT take every nanosecond"
EXTENSION = "an extension is no field of its message, so it has no column, whatever is in it"
WITHOUT_GROUPS = "groups have no columns: nobody has asked for them yet, and new schemas have none"
WITHOUT_SETS = "message sets have no fields, and so no columns"
WITHOUT_DEPTH = "a message in itself has no columns, so that nobody looks how deep it is"


@dataclass(frozen=True)
class Case:
    """Bytes of a message. ``found``: what is in the row, as ``BAD``, or the columns that an empty message hasn't."""

    about: str
    content: bytes
    found: Mapping[str, Any] | str
    refused: str = ""
    """Why they are something else here than in Protobuf."""


@dataclass(frozen=True)
class Kind:
    """A type of fields. ``values``: bytes with the values that they are; the first is the default."""

    name: str
    wire: int
    values: Sequence[tuple[bytes, Any]]
    cut: Sequence[bytes] = ()
    """Of which Protobuf drops bits."""
    title: str = ""

    @property
    def called(self) -> str:
        return self.title or self.name


def long(number: int, more: int) -> bytes:
    """A varint with bytes more than it needs."""
    made = varint(number)
    return made[:-1] + bytes([made[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"


def single(number: float) -> float:
    (made,) = struct.unpack("<f", struct.pack("<f", number))
    return float(made)


def _packed(form: str, *numbers: float) -> list[tuple[bytes, Any]]:
    made = [(struct.pack(form, each), each) for each in numbers]
    return [(content, Decimal(each)) if form == "<Q" else (content, each) for content, each in made]


def _varints(*numbers: int) -> list[tuple[bytes, Any]]:
    return [(varint(each), each) for each in numbers]


_LONG = [(long(77, 2), 77), (long(77, 7), 77)]
_MORE_BITS = (2**33, 2**33 - 1, 2**63 - 1, -(2**63) + 1)
_TEXTS = ("", "lock", "'\"?\\\a\b\f\n\r\t\v", "水門", "\u00e9", "e\u0301", "🚤")

KINDS = [
    Kind("double", FIXED64, _packed("<d", 0.0, 0.3, 1.7976931348623157e308, 2.2250738585072014e-308)),
    Kind("float", FIXED32, _packed("<f", *map(single, (0, 0.3, 1e-36, 3.402823e38, 1.17549435e-38)))),
    Kind("int64", VARINT, _varints(0, 77, 2**63 - 1, -(2**63))),
    Kind("uint64", VARINT, [(varint(each), Decimal(each)) for each in (0, 77, 2**64 - 1)]),
    Kind("int32", VARINT, [*_varints(0, 77, 2**31 - 1, -(2**31)), *_LONG], [*map(varint, _MORE_BITS)]),
    Kind(
        "uint32", VARINT, [*_varints(0, 77, 2**32 - 1), *_LONG],
        [*map(varint, (*_MORE_BITS, 2**33 + 1))],
    ),
    Kind("fixed64", FIXED64, _packed("<Q", 0, 77, 2**64 - 1)),
    Kind("fixed32", FIXED32, _packed("<I", 0, 77, 2**32 - 1)),
    Kind("sfixed64", FIXED64, _packed("<q", 0, 77, 2**63 - 1, -(2**63))),
    Kind("sfixed32", FIXED32, _packed("<i", 0, 77, 2**31 - 1, -(2**31))),
    Kind(
        "bool", VARINT, [(varint(0), False), (varint(1), True)],
        [*map(varint, (-1, 77_777_777, 2**33, 2**63 - 1, -(2**63)))],
    ),
    Kind(
        "sint32", VARINT, [(zigzag(each), each) for each in (0, 77, 2**31 - 1, -(2**31))],
        [zigzag(2**31 + 1)],
    ),
    Kind("sint64", VARINT, [(zigzag(each), each) for each in (0, 77, 2**63 - 1, -(2**63))]),
    Kind(
        "Colour", VARINT,
        [(varint(number), name) for number, name in ((0, "RED"), (1, "GREEN"), (2, "BLUE"), (-1, "NONE"))],
        [*map(varint, (2**63 - 1, -(2**63) + 1))], title="an enum",
    ),
    Kind("string", DELIMITED, [(delimited(each.encode()), each) for each in _TEXTS]),
    Kind("bytes", DELIMITED, [(delimited(each), each) for each in (b"", b"lock", b"\1\2", b"\xfb")]),
]  # fmt: skip
PACKABLE = [kind for kind in KINDS if kind.wire != DELIMITED]
BY_NAME = {kind.name: kind for kind in KINDS}
