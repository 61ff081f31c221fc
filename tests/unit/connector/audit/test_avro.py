"""How the auditor reads Avro, value by value: what fastavro has written comes back, or is refused."""

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from avro_bytes import encoded, field, record
from both_decoders import avro_by_auditor as read
from json_oracle import BAD

from connector.audit.avro import Fit
from connector.audit.avro_schema import Schema, grown, lacking, spark_type
from connector.audit.registries import Texts
from sinks.errors import UnusableSchema

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def logical(kind: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def texts(schema: object) -> Texts:
    return (json.dumps(schema),)


def test_every_type_comes_back_as_spark_has_it() -> None:
    at = datetime(2026, 11, 21, 12, 30, 0, 123000, tzinfo=timezone.utc)
    schema = record(
        field("d", logical("bytes", "decimal", precision=10, scale=2)),
        field("f", {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 3}),
        field("ms", logical("long", "timestamp-millis")),
        field("us", logical("long", "timestamp-micros")),
        field("day", logical("int", "date")),
        field("local", logical("long", "local-timestamp-micros")),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        field("again", "E"),
        field("m", {"type": "map", "values": ["null", "long"]}),
        field("a", {"type": "array", "items": record(field("x", "float"), name="In")}),
        field("wide", ["int", "long"]),
        field("any", ["null", "string", "boolean", "E"]),
        field("b", "bytes"),
    )
    value = {
        "d": Decimal("-12.34"), "f": Decimal("12345678901234567.891"), "ms": at, "us": at, "day": date(1500, 1, 1),
        "local": datetime(1, 1, 1, 0, 0, 0, 1), "e": "B", "again": "A", "m": {"k": 1, "n": None},
        "a": [{"x": 0.5}], "wide": 2**40, "any": ("shop.E", "B"), "b": b"\xff",
    }  # fmt: skip
    (found,) = read(schema, schema, encoded(schema, value))
    nothing = {"member0": None, "member1": None, "member2": None}
    assert found == {**value, "m": [("k", 1), ("n", None)], "any": {**nothing, "member2": "B"}}
    kinds = {each.name: each.dataType.simpleString() for each in spark_type(*at_root(schema))}  # type: ignore[attr-defined]
    assert kinds["wide"] == "bigint"
    assert kinds["any"] == "struct<member0:string,member1:boolean,member2:string>"
    assert (kinds["ms"], kinds["local"], kinds["f"]) == ("timestamp", "timestamp_ntz", "decimal(20,3)")


def test_a_number_is_told_from_a_wider_one_of_its_union() -> None:
    contents = [b"\0\4", b"\2\4", b"\4\0\0\0\x3f", b"\6" + b"\0" * 6 + b"\xe0\x3f", b"\x08\2a"]
    assert read(["int", "long", "float", "double", "string"], ["null", "int"], *contents) == [2, BAD, BAD, BAD, BAD]
    assert read(["null", "double", "float"], ["null", "float"], contents[2], b"\0") == [0.5, None]
    assert read(["null", "double", "float"], ["null", "float"], b"\2" + contents[3][1:]) == [BAD]
    assert read(["int", "long"], "long", *contents[:2]) == [2, 2]
    assert read(["null", {"type": "int", "logicalType": "date"}, "long"], ["null", "long"], b"\2\4", b"\4\4") == [2, 2]


OLD = record(field("k", "string"), field("n", "int"))


@pytest.mark.parametrize(
    ("writer", "reader", "value", "found"),
    [
        (OLD, record(field("k", "string"), field("n", "double")), {"k": "a", "n": 7}, {"k": "a", "n": 7.0}),
        ("long", "double", 2**53, 2.0**53),
        ("long", "double", 2**53 + 1, BAD),
        ("long", "double", 2**63 - 1, BAD),
        ("long", ["null", "float"], -(2**63), -(2.0**63)),
        ("int", "float", 2**24 + 1, BAD),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "double"}, {"a": 1, "b": 2**60 + 1}, BAD),
        (OLD, record(field("k", "bytes")), {"k": "é", "n": 7}, {"k": "é".encode()}),
        (OLD, record(field("id", "string", aliases=["k"])), {"k": "a", "n": 7}, {"id": "a"}),
        (OLD, record(field("k", ["null", "string"])), {"k": "a", "n": 7}, {"k": "a"}),
        (OLD, record(field("x", ["null", "int"], default=None), name="Other"), {"k": "a", "n": 7}, {"x": None}),
        (OLD, record(field("x", ["int", "null"], default=5)), {"k": "a", "n": 7}, {"x": 5}),
        (OLD, record(field("x", logical("int", "date"), default=1)), {"k": "a", "n": 7}, {"x": date(1970, 1, 2)}),
        (OLD, record(field("x", {"type": "map", "values": "long"}, default={"a": 1})), {"k": "a", "n": 7},
         {"x": [("a", 1)]}),
        (OLD, record(field("x", "string")), {"k": "a", "n": 7}, BAD),
        (OLD, record(field("n", "string")), {"k": "a", "n": 7}, BAD),
        (["null", "long"], "long", 5, 5),
        (["null", "long"], "long", None, BAD),
        # The same bytes with another meaning.
        (logical("bytes", "decimal", precision=5, scale=2), logical("bytes", "decimal", precision=5, scale=4),
         Decimal("1.23"), BAD),
        (logical("bytes", "decimal", precision=5, scale=2), logical("bytes", "decimal", precision=9, scale=2),
         Decimal("1.23"), Decimal("1.23")),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), 5, BAD),
        ("long", logical("long", "timestamp-micros"), 5, EPOCH + timedelta(microseconds=5)),
        (logical("int", "date"), "long", 5, 5),
        ("int", logical("long", "timestamp-micros"), 5, BAD),
        ("string", logical("bytes", "decimal", precision=18, scale=2), "12.50", BAD),
        (logical("bytes", "decimal", precision=10, scale=2), "string", Decimal("1.23"), BAD),
        (["null", logical("bytes", "decimal", precision=10, scale=2)], ["null", "string"], Decimal("1.23"), BAD),
        # The pipeline refuses the whole schema: a null in it is no row either.
        (["null", logical("bytes", "decimal", precision=10, scale=2)], ["null", "string"], None, BAD),
        ("bytes", "string", b"A", "A"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]},
         "B", BAD),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]},
         {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, "B", "A"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "F", "symbols": ["A"]},
         "A", BAD),
    ],
)  # fmt: skip
def test_a_value_is_what_the_readers_schema_makes_of_it(writer: object, reader: object, value: Any, found: Any) -> None:
    assert read(writer, reader, encoded(writer, value)) == [found]


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ("long", b""),
        ("long", b"\x02\x00"),  # a byte too many
        ("int", encoded("long", 2**31)),
        ("long", b"\xff" * 10 + b"\x01"),
        ("string", b"\x04\xc3\x28"),
        (logical("bytes", "decimal", precision=2, scale=0), b"\x02\x64"),  # 100
        (logical("bytes", "decimal", precision=2, scale=0), b"\0"),  # no bytes
        (logical("long", "timestamp-millis"), encoded("long", 2**60)),
        (["null", "long"], b"\x04"),
        (["null", "long"], b"\x01\x00"),
        (record(field("a", {"type": "array", "items": ["null", "int"]})), b"\x02\x01\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
    ],
)
def test_what_is_not_exactly_one_value_is_unreadable(schema: object, content: bytes) -> None:
    assert read(schema, schema, content) == [BAD]


def test_a_writers_default_has_no_effect_whatever_its_type_is() -> None:
    plain = record(field("b", "boolean"))
    assert read(record(field("b", "boolean", default="true")), plain, encoded(plain, {"b": True})) == [{"b": True}]


def test_an_array_in_several_blocks_is_an_array() -> None:
    assert read({"type": "array", "items": "int"}, {"type": "array", "items": "int"}, b"\x02\x02\x01\x02\x04\x00") == [
        [1, 2]
    ]


def test_types_that_spark_has_no_columns_for_are_refused() -> None:
    tree = record(field("v", "int"), field("more", ["null", "Tree"]), name="Tree")
    with pytest.raises(UnusableSchema):
        spark_type(*at_root(tree))
    assert read(tree, record(field("v", "int"), name="Tree"), encoded(tree, {"v": 1, "more": None})) == [BAD]
    with pytest.raises(UnusableSchema, match="38 digits"):
        spark_type(*at_root(logical("bytes", "decimal", precision=39)))
    with pytest.raises(UnusableSchema):
        Schema.of(('{"type": "record"}',))


def test_a_schema_that_grows_keeps_the_fields_that_were_dropped() -> None:
    second = record(field("k", "string"), field("at", record(field("zip", "string"), name="At")))
    both = grown([Schema.of(texts(OLD)), Schema.of(texts(second))])
    assert spark_type(both, both.root).simpleString() == "struct<k:string,at:struct<zip:string>,n:int>"  # type: ignore[attr-defined]


def test_a_symbol_that_the_newest_schema_has_dropped_is_the_one_that_was_sent() -> None:
    def of(*symbols: str) -> object:
        return record(field("e", {"type": "enum", "name": "E", "symbols": symbols, "default": "OTHER"}))

    older, newest = of("OTHER", "RED", "BLUE"), of("OTHER", "RED")
    reader = grown([Schema.of(texts(older)), Schema.of(texts(newest))])
    assert Fit(Schema.of(texts(older)), reader).made()({"e": "BLUE"}) == {"e": "BLUE"}
    given = Schema.of(texts(newest))
    assert Fit(Schema.of(texts(older)), given).made()({"e": "BLUE"}) == {"e": "OTHER"}


def at_root(schema: object) -> tuple[Schema, Any]:
    parsed = Schema.of(texts(schema))
    return parsed, parsed.root


CARD, CASH = record(field("no", "string"), name="shop.Card"), record(field("till", "int"), name="shop.Cash")
LONGER = record(field("no", "string"), field("holder", "string", default="?"), name="shop.Card")


@pytest.mark.parametrize(
    ("newest", "older", "columns", "takes", "lacks"),
    [
        (["null", CASH, CARD], [LONGER, CASH],
         "struct<member0:struct<till:int>,member1:struct<no:string,holder:string>>",
         "how.member1.holder", "how.member0.holder"),
        ({"type": "array", "items": [CARD, CASH]}, {"type": "array", "items": ["null", LONGER, CASH]},
         "array<struct<member0:struct<no:string,holder:string>,member1:struct<till:int>>>",
         "how.member0.holder", "how.element.member0.holder"),
        (CARD, ["null", LONGER, CASH], "struct<no:string,holder:string>", "how.holder", "how.member0.holder"),
        (["string", CARD], ["string", CASH, {**LONGER, "name": "old.Card"}],
         "struct<member0:string,member1:struct<no:string,holder:string>>",
         "how.member1.holder", "how.member2.holder"),
    ],
)  # fmt: skip
def test_a_field_within_a_union_belongs_to_the_type_of_its_name(
    newest: Any, older: Any, columns: str, takes: str, lacks: str
) -> None:
    """One schema has a field more. Either is the newest: it has dropped the field, or the other one lacks it."""
    less, more = (Schema.of(texts(record(field("how", how)))) for how in (newest, older))
    both = grown([more, less], lambda path: path == takes)
    assert spark_type(both, both.root)["how"].dataType.simpleString() == columns  # type: ignore[index]
    assert list(lacking(more, less)) == [lacks]


def test_a_type_of_another_name_has_no_fields_of_a_unions_type() -> None:
    less, more = (
        Schema.of(texts(record(field("how", how)))) for how in ([CARD, CASH], [CASH, {**LONGER, "name": "shop.Coin"}])
    )
    both = grown([more, less])
    kind = "struct<member0:struct<no:string>,member1:struct<till:int>>"
    assert spark_type(both, both.root)["how"].dataType.simpleString() == kind  # type: ignore[index]
    assert lacking(more, less) == {}
