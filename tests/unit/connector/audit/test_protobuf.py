"""Protobuf as the auditor reads it, by Google's library: also bytes that the library would take in silence."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from protobuf_bytes import BAD, OLD, SHOP, compiled, field, framed, message, orders, varint
from pyspark.sql import types as T

from connector.audit import protobuf_schema as audited
from connector.audit.protobuf import decoded
from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_schema import Messages
from sinks.errors import UnusableSchema

ITEM = T.StructType().add("sku", "string").add("count", "long")


def read(*values: bytes | None, text: str = SHOP, name: str = "shop.Order", columns: T.StructType | None = None) -> Any:
    """Of each value its columns; None: it can't be read."""
    content = compiled(text)
    kind = columns or audited.columns(audited.pool_of(content).FindMessageTypeByName(name))
    batch = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array(values, pyarrow.binary())})
    (found,) = decoded([batch], "value", "into", {b"": content}, name, kind, framed=False)
    return [each and each["value"] for each in found.column(1).to_pylist()]


def test_the_auditor_has_columns_of_its_own_which_are_those_of_the_pipeline() -> None:
    content = compiled(SHOP)
    of_auditor = audited.columns(audited.pool_of(content).FindMessageTypeByName("shop.Order"))
    assert of_auditor == columns_of(Messages(content).of("shop.Order"))
    with pytest.raises(UnusableSchema, match=r"old\.Node\.children"):
        audited.columns(audited.pool_of(compiled(OLD)).FindMessageTypeByName("old.Parcel"))


def test_what_the_library_would_take_in_silence_cannot_be_read() -> None:
    found = read(*(value for value, _ in BAD.values()))
    assert [case for case, each in zip(BAD, found, strict=True) if each is not None] == []


def test_values_are_those_that_were_sent_or_stand_for_absent_ones() -> None:
    sent = message(SHOP, "shop.Order")(large=2**64 - 1, status=1, deltas=[-1], gift={"sku": "é"}, shelves={-4: {}})
    (row, empty, nothing) = read(sent.SerializeToString(), b"", None)
    assert nothing is None
    assert (row["large"], row["status"], row["deltas"], row["gift"]["sku"]) == (Decimal(2**64 - 1), "PAID", [-1], "é")
    assert [key for key, _ in row["shelves"]] == [-4]
    assert (empty["id"], empty["status"], empty["at"], empty["items"], empty["gift"]) == (0, "NEW", None, [], None)


def test_columns_that_are_declared_are_read_by_name() -> None:
    columns = T.StructType().add("CARD", "string").add("id", "integer").add("gift", ITEM).add("none", "integer")
    columns.add("past", T.ArrayType(T.IntegerType()))
    found = read(
        field(1, 7) + field(8, b"c"), field(8, b"c") + field(10, b""), field(1, 2**31),
        field(18, field(1, b"s")) + field(18, field(2, 3)), field(17, varint(9) + varint(2)), columns=columns,
    )  # fmt: skip
    none = {"CARD": None, "id": 0, "gift": None, "none": None, "past": []}
    assert found == [
        {**none, "id": 7, "CARD": "c"}, none, None, {**none, "gift": {"sku": "s", "count": 3}},
        {**none, "past": [9, 2]},
    ]  # fmt: skip


def test_required_fields_and_columns_have_to_be_there() -> None:
    columns = T.StructType([T.StructField("id", T.LongType()), T.StructField("to", T.StringType(), False)])
    columns.add("weight", "integer").add("size", "string")
    values = (field(1, 1) + field(4, b"x"), field(1, 1), field(4, b"x"), field(1, 1) + field(4, b"x") + field(3, 8))
    found = read(*values, text=OLD, name="old.Parcel", columns=columns)
    assert found == [{"id": 1, "to": "x", "weight": None, "size": None}, None, None, None]


def test_a_record_names_its_message_by_indexes() -> None:
    texts = ("audited.proto", SHOP)
    content = audited.descriptors(texts)
    assert content is not None
    header = framed(7, b"")[:5]
    columns = T.StructType().add("id", "long")
    values = [
        framed(7, field(1, 5), [1]), framed(7, field(1, 5), [0]), framed(7, b"", [2]), framed(7, b"", [1, 0]),
        framed(8, b"", [1]), framed(7, b"", [1])[:-1], header,
    ]  # fmt: skip
    batch = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array(values, pyarrow.binary())})
    (found,) = decoded([batch], "value", "into", {header: content}, "shop.Order", columns, framed=True)
    assert found.column(1).to_pylist() == [{"value": {"id": 5}}, *[None] * 6]
    assert audited.descriptors(("audited.proto", "no")) is None
    assert audited.descriptors(("../x.proto", "", *texts)) is None


def test_about_half_of_the_random_messages_can_be_read() -> None:
    found = read(*orders(500))
    assert 150 < sum(each is not None for each in found) < 350
