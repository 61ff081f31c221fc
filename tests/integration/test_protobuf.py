"""Protobuf: bare messages by a descriptor file, messages of a registry's schemas, and bytes that are none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from conftest import Lake, Topic
from protobuf_bytes import BAD, OLD, SHOP, compiled, field, framed, message, orders, varint
from pyspark.sql import SparkSession
from registry import RegistryServer, registry_server

from connector.decode.format import problem_of
from connector.decode.protobuf import ProtobufFile
from connector.decode.protobuf_schema import Messages
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord, ConfigurationError, JarsMissing, UnusableSchema

ORDER = message(SHOP, "shop.Order")


def decoder(text: str, name: str, columns: str | None = None) -> ProtobufFile:
    declared = from_ddl(columns) if columns is not None else None
    return ProtobufFile(Messages(compiled(text)), name, declared, option="value")  # type: ignore[arg-type]


def judged(spark: SparkSession, format: ProtobufFile, *values: bytes | None) -> list[dict[str, Any] | str]:
    """Of each value its columns, or the problem."""
    records = spark.createDataFrame(list(enumerate(values)), "number INT, value BINARY").coalesce(2)
    found = format.decoded(records, "value", "row").orderBy("number").collect()
    return [row[problem_of("row")] or (row["row"].asDict(recursive=True) if row["row"] else None) for row in found]


def test_each_field_has_its_value_or_what_stands_for_an_absent_one(spark: SparkSession) -> None:
    full = ORDER(
        id=-5, customer="é😀", large=2**64 - 1, status=2, stock={"a": -1, "": 0}, card="c", discount=0, deltas=[-3, 4],
        raw=b"\0\xff", rate=1.5, express=True, past=[0, 2], crate=2**32 - 1, shelf=-(2**63), far=-1, small=-(2**31),
        note={"value": ""}, at={"seconds": -1, "nanos": 999_999_000},
        items=[{"sku": "s", "count": 2**32 - 1, "price": 0.1, "tags": ["x", "é"]}, {}], gift={},
        shelves={-4: {"sku": "q"}},
    )  # fmt: skip
    item = {"sku": "", "count": 0, "price": 0.0, "tags": []}
    absent = {
        "id": 0, "customer": "", "large": Decimal(0), "status": "NEW", "at": None, "items": [], "stock": {},
        "card": None, "voucher": None, "swap": None, "discount": None, "note": None, "deltas": [],
        "raw": bytearray(), "rate": 0.0, "express": False, "past": [], "gift": None, "crate": 0, "shelf": 0, "far": 0,
        "shelves": {}, "small": 0,
    }  # fmt: skip
    values = {
        "id": -5, "customer": "é😀", "large": Decimal(2**64 - 1), "status": "SENT", "stock": {"a": -1, "": 0},
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "items": [{"sku": "s", "count": 2**32 - 1, "price": 0.1, "tags": ["x", "é"]}, item], "card": "c", "discount": 0,
        "note": "", "deltas": [-3, 4], "raw": bytearray(b"\0\xff"), "rate": 1.5, "express": True,
        "past": ["NEW", "SENT"], "gift": item, "crate": 2**32 - 1, "shelf": -(2**63), "far": -1,
        "small": -(2**31), "shelves": {-4: {**item, "sku": "q"}},
    }  # fmt: skip
    format = decoder(SHOP, "shop.Order", None)
    seen = judged(spark, format, full.SerializeToString(), b"", None, b"\xba\x1f\x00")
    assert seen[1:] == [absent, None, absent]  # the last one has a field that the schema doesn't know
    assert isinstance(seen[0], dict)
    assert {**seen[0], "at": None} == {**absent, **values, "at": None}
    at = judged(spark, decoder(SHOP, "shop.Order", "AT STRUCT<seconds BIGINT, nanos INT>"), full.SerializeToString())
    assert at == [{"AT": {"seconds": -1, "nanos": 999_999_000}}]


def test_what_is_sent_several_times_counts_as_protobuf_says(spark: SparkSession) -> None:
    columns = "id BIGINT, card STRING, voucher BIGINT, gift STRUCT<sku STRING, count BIGINT>, stock MAP<STRING, INT>, "
    format = decoder(SHOP, "shop.Order", columns + "deltas ARRAY<INT>, past ARRAY<INT>")
    none = {"id": 0, "card": None, "voucher": None, "gift": None, "stock": {}, "deltas": [], "past": []}
    last = field(1, 1) + field(1, 2) + field(8, b"c") + field(9, 7)
    merged = field(18, field(1, b"s")) + field(18, field(2, 3)) + field(18, field(1, b"t"))
    twice = b"".join(field(7, field(1, b"a") + field(2, n)) for n in (1, 2)) + field(7, b"") + field(7, field(2, 5))
    packed = field(13, varint(1) + varint(2)) + field(13, 3) + field(17, varint(9)) + field(17, 2)
    assert judged(spark, format, last, merged, twice, packed, field(8, b"c") + field(10, b"")) == [
        {**none, "id": 2, "voucher": 7},
        {**none, "gift": {"sku": "t", "count": 3}},
        {**none, "stock": {"a": 2, "": 5}},
        {**none, "deltas": [-1, 1, -2], "past": [9, 2]},  # as numbers an enum's are whatever was sent
        none,  # a member of the oneof that no column takes has replaced the card
    ]


def test_a_bad_message_is_told_with_its_field(spark: SparkSession) -> None:
    said = judged(spark, decoder(SHOP, "shop.Order"), *(value for value, _ in BAD.values()))
    for (case, (_, expected)), found in zip(BAD.items(), said, strict=True):
        assert isinstance(found, str), case
        assert found.startswith(expected), case


def test_columns_may_be_narrower_and_wider_but_no_value_is_cut(spark: SparkSession) -> None:
    format = decoder(
        SHOP, "shop.Order", "id INT, large BIGINT, rate DOUBLE, small DECIMAL(38,0), note STRUCT<value STRING>"
    )
    large = ORDER(id=2**31 - 1, large=2**63 - 1, rate=0.1, small=-7, note={})
    rate = 0.10000000149011612
    assert judged(
        spark, format, large.SerializeToString(), field(1, 2**31), field(3, 2**63), field(3, -1)
    ) == [
        {"id": 2**31 - 1, "large": 2**63 - 1, "rate": rate, "small": Decimal(-7), "note": {"value": ""}},
        "field id: 2147483648 is more than an INT can hold",
        "field large: 9223372036854775808 is more than its column can hold",
        "field large: 18446744073709551615 is more than its column can hold",
    ]  # fmt: skip


def test_proto2_says_what_was_sent_and_its_recursive_fields_can_be_left_out(spark: SparkSession) -> None:
    columns = "id BIGINT, weight INT, size STRING, to STRING NOT NULL, steps ARRAY<INT>"
    format = decoder(OLD, "old.Parcel", columns)
    parcel = message(OLD, "old.Parcel")(id=1, to="x", steps=[1, 2])
    parcel.tree.children.add(name="leaf")
    parcel.label.text = "fragile"
    none = {"id": 1, "weight": None, "size": None, "to": "x", "steps": []}
    other = field(1, 1) + field(4, b"x") + field(3, 8)
    assert judged(spark, format, parcel.SerializeToString(), field(1, 1), field(4, b"x"), other) == [
        {**none, "steps": [1, 2]}, "field to: is required, and isn't there", "field id: is required, and isn't there",
        "field size: the enum old.Size has no number 8",
    ]  # fmt: skip
    with pytest.raises(UnusableSchema, match=r"field tree\.children is the message old\.Node, which contains itself"):
        decoder(OLD, "old.Parcel")


@pytest.fixture
def shop(lake: Lake) -> dict[str, Any]:
    """The options of bare messages."""
    lake.folder.mkdir(exist_ok=True)
    Path(lake.folder, "orders.desc").write_bytes(compiled(SHOP))
    return {"format": "protobuf", "descriptor_file": str(lake.folder / "orders.desc"), "message": "shop.Order"}


def letters(lake: Lake, **more: Any) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}, **more}


@pytest.mark.draws
@pytest.mark.parametrize("count", [500, 100_000])
def test_random_messages_are_rows_or_letters_and_what_googles_library_reads(
    lake: Lake, topic: Topic, shop: dict[str, Any], count: int
) -> None:
    topic.send(*((None, each) for each in orders(count)), partition=0)
    given = letters(lake, value=shop)
    lake.pipeline(**given).run()
    rows, dead = (lake.frame(kind).count() for kind in ("append", "dead"))
    assert rows + dead == count
    assert min(rows, dead) > count / 4
    found = verify(lake, **given)
    assert found.ok, str(found)


@pytest.fixture
def registry(topic: Topic) -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


ONE = """
syntax = "proto3";
package sale;
import "sale/money.proto";
message Other { string k = 1; }
message Sale { string k = 1; int32 n = 2; Money price = 3; message Line { int32 x = 1; } }
"""
MONEY = 'syntax = "proto3"; package sale; message Money { int64 cents = 1; }'
TWO = ONE.replace("string k = 1; int32 n = 2;", "int32 n = 7; string k = 8; repeated string tags = 9;")
KEY = 'syntax = "proto3"; message Key { string k = 1; }'
REFERENCE = [{"name": "sale/money.proto", "subject": "money", "version": 1}]


def one(k: str, n: int, schema_id: int = 1) -> bytes:
    return framed(schema_id, field(1, k.encode()) + field(2, n) + field(3, field(1, n * 100)), [1])


def two(k: str, n: int, schema_id: int = 2) -> bytes:
    return framed(schema_id, field(8, k.encode()) + field(7, n) + field(9, b"x"), [1])


def key(k: str) -> bytes:
    return framed(5, field(1, k.encode()))


def registered(registry: RegistryServer, topic: Topic) -> dict[str, Any]:
    """The first version, and the options."""
    registry.register("money", 3, MONEY, "PROTOBUF")
    registry.register(f"{topic.name}-value", 1, ONE, "PROTOBUF", REFERENCE)
    registry.register(f"{topic.name}-key", 5, KEY, "PROTOBUF")
    format = {"format": "protobuf", "registry": {"url": registry.url}}
    return {"value": {**format, "message": "sale.Sale"}, "key": format}


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", pytest.param("append", marks=pytest.mark.breadth)])
def test_each_record_is_read_by_its_own_schema(lake: Lake, topic: Topic, registry: RegistryServer, kind: str) -> None:
    given = letters(lake, on_new_column="add", **registered(registry, topic))
    topic.send((key("a"), one("a", 1)), (key("b"), one("b", 2)), partition=0)
    lake.pipeline(kind, **given).run()
    registry.register(f"{topic.name}-value", 2, TWO, "PROTOBUF", REFERENCE)
    gone = 'syntax = "proto3"; package sale; message Gone { int32 n = 1; }'
    registry.answers["/schemas/ids/4"] = {"schema": gone, "schemaType": "PROTOBUF"}
    topic.send(
        (key("a"), two("a", 3)), (key("c"), one("c", 4)), *([(key("b"), None)] if kind == "upsert" else []),
        (None, one("x", 1, 9)), (None, b"\1" + one("x", 1)[1:]), (None, b"{}"),
        (None, framed(1, b"", [0])), (None, framed(1, b"", [1, 0])), (None, framed(1, b"", [1, 4])),
        (None, framed(1, b"")[:5]), (None, framed(1, b"", [1])[:-1]), (None, one("x", 1)[:-1]), (None, framed(4, b"")),
        partition=0,
    )  # fmt: skip
    lake.pipeline(kind, **given).run()
    rows = query(lake.path(kind), "SELECT k, n, price.cents, tags FROM t ORDER BY k, n")
    latest = [("a", 3, None, ["x"]), ("c", 4, 400, None)]
    assert rows == (latest if kind == "upsert" else [("a", 1, 100, None), latest[0], ("b", 2, 200, None), latest[1]])
    said = [row["detail"] for row in lake.frame("dead").orderBy("_offset").collect()]
    expected = [
        "schema id 9 isn't in the registry", "not in Confluent's wire format", "not in Confluent's wire format",
        "it is of the message sale.Other, not of sale.Sale", "it is of the message sale.Sale.Line, not of sale.Sale",
        "its schema has no message with the indexes 1.4", "the indexes after the header, which name the message,",
        "the indexes after the header, which name the message,", "not one message sale.Sale: field price: the bytes",
        "schema id 4 has no message sale.Sale",
    ]  # fmt: skip
    assert len(said) == len(expected)
    for found, wanted in zip(said, expected, strict=True):
        assert wanted in found
    audited = verify(lake, kind, **given)
    assert audited.ok, str(audited)
    lake.spark.sql(f"UPDATE delta.`{lake.path(kind)}` SET price.cents = 1 WHERE k = 'c'")  # type: ignore[union-attr]
    assert counts(verify(lake, kind, **given))["altered"] == 1


@pytest.mark.breadth
def test_columns_that_are_declared_are_those_of_every_schema(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    given = registered(registry, topic)
    registry.register(f"{topic.name}-value", 2, TWO, "PROTOBUF", REFERENCE)
    given["value"] |= {"schema": "k STRING, n BIGINT, tags ARRAY<STRING>"}
    topic.send((key("a"), one("a", 1)), (key("b"), two("b", 2)), partition=0)
    lake.pipeline(**given).run()
    assert query(lake.path(), "SELECT k, n, tags FROM t ORDER BY k") == [("a", 1, None), ("b", 2, ["x"])]
    assert verify(lake, **given).ok
    for columns, said in {
        "k STRING, nn INT": "value.schema: sale.Sale has no field nn. Its fields are n, k, tags, price",
        "k STRING, price STRUCT<cent INT>": "has no field price.cent",
    }.items():
        with pytest.raises(ConfigurationError) as caught:
            lake.pipeline(name="other", **{**given, "value": {**given["value"], "schema": columns}}).run()
        assert said in str(caught.value)


@pytest.mark.breadth
def test_a_field_of_a_newer_schema_stops_a_run_that_nobody_told_of_it(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    given = registered(registry, topic)
    topic.send((key("a"), one("a", 1)), partition=0)
    pipeline = lake.pipeline(**given)
    pipeline.run()
    registry.answers["/schemas/ids/2"] = {"schema": TWO, "schemaType": "PROTOBUF", "references": REFERENCE}
    topic.send((key("b"), two("b", 2)), partition=0)
    with pytest.raises(BadRecord, match=r"schema id 2 has fields that the newest schema .* lacks: tags"):
        pipeline.run()


@pytest.mark.breadth
def test_a_look_at_the_topic_shows_rows_and_what_is_wrong(lake: Lake, topic: Topic, shop: dict[str, Any]) -> None:
    topic.send((None, ORDER(id=4, customer="é").SerializeToString()), (None, b"\x08"), partition=0)
    pipeline = lake.pipeline(**letters(lake, value={**shop, "schema": "id BIGINT, customer STRING"}))
    shown = pipeline.preview()
    (table,) = shown.tables
    (row,) = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (row["id"], row["customer"]) == ("4", "é")
    said = "not one message shop.Order: field id: the bytes end too early"
    for faults in (shown.faults, pipeline.check().sample.faults):
        assert [fault.detail for fault in faults] == [f"its value: {said}"]
    pipeline.run()
    (group,) = pipeline.dead_letters()
    assert said in str(group)
    with pytest.raises(BadRecord, match="field id: the bytes end too early"):
        lake.pipeline(value=shop, name="strict", sink={"path": str(lake.path("strict"))}).run()


def test_an_option_that_names_nothing_is_explained(spark: SparkSession) -> None:
    for name, columns, said in (
        (
            "shop.Orders",
            None,
            "value.message: 'shop.Orders' isn't in the descriptor file, which has shop.Item, shop.Order",
        ),
        ("shop.Order", "ids BIGINT", "value.schema: shop.Order has no field ids. Its fields are id, customer, large"),
        ("shop.Order", "id STRING", "value.schema: field id is int64, which can't be read as STRING"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            decoder(SHOP, name, columns)
        assert said in str(caught.value)


def test_without_the_jar_the_error_says_where_it_is(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.decode.protobuf._CLASS", "lakelock.protobuf.Absent")
    with pytest.raises(JarsMissing, match=r"Spark has no lakelock-protobuf\.jar") as caught:
        judged(spark, decoder(SHOP, "shop.Order"), b"")
    assert "jars.PROTOBUF_JAR" in caught.value.hint
