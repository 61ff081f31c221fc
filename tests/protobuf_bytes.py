"""Protobuf by Google's own library: compiled sources, messages as producers send them, and bytes that are none."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum Status { NEW = 0; PAID = 1; SENT = 2; }

message Item { string sku = 1; uint32 count = 2; double price = 3; repeated string tags = 4; }

message Order {
  int64 id = 1;
  string customer = 2;
  uint64 large = 3;
  Status status = 4;
  google.protobuf.Timestamp at = 5;
  repeated Item items = 6;
  map<string, int32> stock = 7;
  oneof paid_by { string card = 8; int64 voucher = 9; Item swap = 10; }
  optional int32 discount = 11;
  google.protobuf.StringValue note = 12;
  repeated sint32 deltas = 13;
  bytes raw = 14;
  float rate = 15;
  bool express = 16;
  repeated Status past = 17;
  Item gift = 18;
  fixed32 crate = 19;
  sfixed64 shelf = 20;
  sint64 far = 300;
  map<int64, Item> shelves = 21;
  int32 small = 22;
}

message Refund { int64 id = 1; message Part { int64 cents = 1; } }
"""


OLD = """
syntax = "proto2";
package old;
enum Size { UNKNOWN = 0; S = 1; M = 2; }
message Node { optional string name = 1; repeated Node children = 2; }
message Parcel {
  required int64 id = 1;
  optional int32 weight = 2 [default = 5];
  optional Size size = 3 [default = M];
  optional string to = 4;
  repeated int32 steps = 5;
  optional Node tree = 6;
  optional group Label = 7 { optional string text = 8; }
}
"""

VARINT, FIXED64, DELIMITED, GROUP, END, FIXED32 = range(6)
"""How a value is written."""


@cache
def compiled(text: str, imports: tuple[tuple[str, str], ...] = ()) -> bytes:
    """What protoc writes with --include_imports. ``imports``: paths and sources."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in (*imports, ("main.proto", text)):
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(source, encoding="utf-8")
        own = Path(grpc_tools.__path__[0], "_proto")
        arguments = [f"-I{folder}", f"-I{own}", "--include_imports", f"-o{folder}/made", f"{folder}/main.proto"]
        assert protoc.main(["protoc", *arguments]) == 0
        return Path(folder, "made").read_bytes()


def message(text: str, name: str) -> Callable[..., Any]:
    """The class of a message."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled(text)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def tag(number: int, wire: int) -> bytes:
    """What comes before a value: the number of its field, and how it is written."""
    return varint(number << 3 | wire)


def delimited(content: bytes) -> bytes:
    return varint(len(content)) + content


def zigzag(number: int) -> bytes:
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def field(number: int, value: int | bytes | float) -> bytes:
    """A field: a number as a varint, bytes after their length, a float in eight bytes."""
    if isinstance(value, bytes):
        return tag(number, DELIMITED) + delimited(value)
    if isinstance(value, float):
        return tag(number, FIXED64) + struct.pack("<d", value)
    return tag(number, VARINT) + varint(value)


def framed(schema_id: int, content: bytes, indexes: Sequence[int] = (0,)) -> bytes:
    """As Confluent's serializer does it: the first message of a schema has a shorter form."""
    path = b"\0" if list(indexes) == [0] else b"".join(zigzag(each) for each in (len(indexes), *indexes))
    return b"\0" + schema_id.to_bytes(4, "big") + path + content


BAD: Mapping[str, tuple[bytes, str]] = {
    "cut in a number": (b"\x08", "not one message shop.Order: field id: the bytes end too early"),
    "cut in a text": (field(2, b"abc")[:-1], "not one message shop.Order: field customer: the bytes end too early"),
    "cut in a message": (field(6, field(1, b"abc")[:-1]), "not one message shop.Order: field items.sku: the bytes end"),
    "cut where nobody looks": (field(99, b"abc")[:-1], "not one message shop.Order: the bytes end too early"),
    "trailing bytes": (field(1, 5) + b"\0\0", "not one message shop.Order: there are bytes in it that begin no field"),
    "a wire type that isn't": (b"\x0f", "not one message shop.Order: there are bytes in it that begin no field"),
    "an end without a beginning": (b"\x0c", "not one message shop.Order: a group ends that hasn't begun"),
    "the end of another group": (b"\x9b\x06\xa4\x06", "not one message shop.Order: a group ends that hasn't begun"),
    "groups without end": (b"\x9b\x06" * 200, "not one message shop.Order: more than 100 groups are within each other"),
    "a number of eleven bytes": (
        b"\x08" + b"\x80" * 10 + b"\0",
        "not one message shop.Order: field id: a number of it",
    ),
    "another type": (field(1, b"5"), "field id: was written as another type: its wire type is 2, not 0"),
    "another type inside": (field(6, field(2, b"")), "field items.count: was written as another type"),
    "no UTF-8": (field(2, b"\xff"), "field customer: not UTF-8 text"),
    "half a character": (field(7, field(1, b"\xed\xa0\x80")), "field stock.key: not UTF-8 text"),
    "an enum's number": (field(4, 7), "field status: the enum shop.Status has no number 7"),
    "one of several": (field(17, 1) + field(17, -1), "field past: the enum shop.Status has no number -1"),
    "a bool": (field(16, 2), "field express: 2 is neither true nor false"),
    "an int32": (field(22, 2**31), "field small: 2147483648 has more than 32 bits"),
    "an int32 of a map": (field(7, field(2, 2**40)), "field stock.value: 1099511627776 has more than 32 bits"),
    "a uint32": (field(6, field(2, -1)), "field items.count: -1 has more than 32 bits"),
    "a sint32": (field(13, 2**33), "field deltas: 4294967296 has more than 32 bits"),
    "nanoseconds": (
        field(5, field(2, 1)),
        "field at: its nanoseconds, 1, aren't whole microseconds, as a TIMESTAMP has",
    ),
    "a time": (field(5, field(1, 2**60)), "field at: seconds 1152921504606846976 and nanos 0 are no Timestamp"),
}
"""Bytes that are no shop.Order, and what is said of them."""

_WHOLE = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
_TEXTS = ("", "a", "é", "漢字", "😀", "x" * 200, "\0", '"\\')
_SINGLES = (0.0, -0.0, 1.5, -1e38, float("inf"), float("-inf"))


def order(chance: random.Random, shop: Callable[..., Any]) -> bytes:
    """A valid message, whose fields have the ends of their ranges often."""

    def among(low: int, high: int) -> int:
        return chance.choice([each for each in (*_WHOLE, chance.randrange(low, high)) if low <= each < high])

    def item() -> dict[str, Any]:
        made = {"sku": chance.choice(_TEXTS), "count": among(0, 2**32), "price": chance.choice((0.0, 0.1, 1e300))}
        return {**made, "tags": chance.choices(_TEXTS, k=chance.randrange(3))}

    def moment() -> dict[str, int]:
        nanos = chance.choice((0, 1000, 999_999_000, *([1, 999] if chance.random() < 0.1 else [])))
        return {"seconds": among(-62_135_596_800, 253_402_300_800), "nanos": nanos}

    makes: Mapping[str, Callable[[], Any]] = {
        "id": lambda: among(-(2**63), 2**63), "customer": lambda: chance.choice(_TEXTS),
        "large": lambda: among(0, 2**64), "status": lambda: chance.choice((0, 1, 2, 2, 1, 0, 7)),
        "at": moment, "items": lambda: [item() for _ in range(chance.randrange(4))],
        "stock": lambda: {chance.choice(_TEXTS): among(-(2**31), 2**31) for _ in range(chance.randrange(4))},
        "card": lambda: chance.choice(_TEXTS), "voucher": lambda: among(-(2**63), 2**63), "swap": item,
        "discount": lambda: among(-(2**31), 2**31), "note": lambda: {"value": chance.choice(_TEXTS)},
        "deltas": lambda: [among(-(2**31), 2**31) for _ in range(chance.randrange(5))],
        "raw": lambda: chance.randbytes(chance.randrange(20)), "rate": lambda: chance.choice(_SINGLES),
        "express": lambda: chance.random() < 0.5, "past": lambda: chance.choices((0, 1, 2), k=chance.randrange(3)),
        "gift": item, "crate": lambda: among(0, 2**32), "shelf": lambda: among(-(2**63), 2**63),
        "far": lambda: among(-(2**63), 2**63),
        "shelves": lambda: {among(-(2**63), 2**63): item() for _ in range(chance.randrange(3))},
        "small": lambda: among(-(2**31), 2**31),
    }  # fmt: skip
    chosen = [name for name in makes if chance.random() < 0.6]
    oneof = [name for name in ("card", "voucher", "swap") if name in chosen]
    return bytes(shop(**{name: makes[name]() for name in chosen if name not in oneof[1:]}).SerializeToString())


def damaged(chance: random.Random, content: bytes, other: bytes) -> bytes:
    """Bytes that may still be a message: cut, changed, with another one in them, or with fields that don't belong."""
    at = chance.randrange(len(content) + 1)
    number, group = chance.randrange(1, 24), chance.randrange(1, 400)
    inner = content[: chance.randrange(20)]
    kind = chance.randrange(9)
    if kind == 0:
        return content[:at]
    if kind == 1 and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    if kind == 2:
        return content[:at] + chance.randbytes(chance.randrange(1, 4)) + content[at:]
    if kind == 3:
        return content + other  # one message in two parts
    if kind == 4:
        return content + field(number, chance.choice(_WHOLE))
    if kind == 5:
        return content + field(
            number, chance.choice((inner, b"", b"\xff", b"\x08\x96\x01", varint(chance.choice(_WHOLE))))
        )
    if kind == 6:
        return content + varint(group << 3 | 3) + inner + varint(group << 3 | 4)
    if kind == 7:
        return content + varint(chance.choice((number, group)) << 3 | chance.randrange(8)) + chance.randbytes(8)
    return (
        content
        + varint(chance.randrange(1, 40) << 3)
        + b"\xff" * chance.randrange(8, 11)
        + bytes([chance.randrange(4)])
    )


def orders(count: int, seed: int = 7) -> list[bytes]:
    """Messages of which about every second is damaged."""
    chance, shop = random.Random(seed), message(SHOP, "shop.Order")
    whole = [order(chance, shop) for _ in range(count)]
    return [damaged(chance, each, chance.choice(whole)) if chance.random() < 0.5 else each for each in whole]
