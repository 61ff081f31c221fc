"""Avro bytes in Spark: of one schema, and of the schemas that they name in a registry. Encoded by fastavro."""

import io
import json
import os
import random
import subprocess
import sys
import threading
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from avro_bytes import encoded, field, record
from avro_schemas import Schemas
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from connector.decode.avro import MALFORMED, AvroFile, AvroOfRegistry, enveloped
from connector.decode.avro_schema import parse
from connector.decode.format import UNKNOWN, problem_of
from connector.decode.registry.registry import Part, WriterSchema
from connector.decode.registry.wire_format import GlueWire
from sinks.errors import ConfigurationError, UnusableSchema

pytestmark = pytest.mark.compiled


def long(number: int) -> bytes:
    return encoded("long", number)


def decoded(spark: SparkSession, decoder: AvroFile | AvroOfRegistry, *values: bytes | None) -> list[Row]:
    """(value, problem) of each, in order."""
    records = spark.createDataFrame(list(enumerate(values)), "number INT, value BINARY").coalesce(2)
    rows = judged(decoder.decoded(records, "value", "row")).collect()
    return [row["row"] for row in sorted(rows, key=lambda row: row["number"])]


def judged(frame: DataFrame) -> DataFrame:
    """The value, or the problem."""
    wrong = problem_of("row")
    return frame.selectExpr(
        "*", f"named_struct('value', CASE WHEN {wrong} IS NULL THEN row END, 'problem', {wrong}) AS judged"
    ).withColumn("row", F.col("judged"))


ORDER = record(field("id", "long"), field("note", ["null", "string"], default=None))


def test_exactly_one_value_is_right_and_all_else_has_a_problem(spark: SparkSession) -> None:
    decoder = AvroFile(spark, json.dumps(ORDER))
    assert decoder.type.simpleString() == "struct<id:bigint,note:string>"
    whole = encoded(ORDER, {"id": 7, "note": "hello"})
    right, *wrong, of_nothing = decoded(
        spark, decoder, whole, whole[:-1], whole + b"\0", whole + whole, b"", b"\xff" * 12, b"\x02\x06", None
    )
    assert right == Row(value=Row(id=7, note="hello"), problem=None)
    assert wrong == [Row(value=None, problem=MALFORMED)] * 6
    assert of_nothing == Row(value=None, problem=None)


def test_nulls_that_were_written_are_no_problem(spark: SparkSession) -> None:
    schema = record(field("a", ["null", "int"]))
    assert decoded(spark, AvroFile(spark, json.dumps(schema)), b"\0") == [Row(value=Row(a=None), problem=None)]
    maybe = ["null", "string"]
    rows = decoded(spark, AvroFile(spark, json.dumps(maybe)), b"\0", b"\x02\x02x", b"\x04")
    assert rows == [Row(value=None, problem=None), Row(value="x", problem=None), Row(value=None, problem=MALFORMED)]


def test_a_key_may_be_no_record(spark: SparkSession) -> None:
    decoder = AvroFile(spark, '"string"')
    rows = decoded(spark, decoder, encoded("string", "k"), b"\x04k")
    assert rows == [Row(value="k", problem=None), Row(value=None, problem=MALFORMED)]


def test_logical_types(spark: SparkSession) -> None:
    def logical(kind: str, name: str, **more: object) -> dict[str, object]:
        return {"type": kind, "logicalType": name, **more}

    of_fixed = {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 3}
    schema = record(
        field("d", logical("bytes", "decimal", precision=10, scale=2)),
        field("f", of_fixed),
        field("ms", logical("long", "timestamp-millis")),
        field("us", logical("long", "timestamp-micros")),
        field("day", logical("int", "date")),
        field("local", logical("long", "local-timestamp-micros")),
        field("u", logical("string", "uuid")),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    )
    decoder = AvroFile(spark, json.dumps(schema))
    kinds = [each.dataType.simpleString() for each in decoder.type]  # type: ignore[attr-defined]
    assert kinds[:6] == ["decimal(10,2)", "decimal(20,3)", "timestamp", "timestamp", "date", "timestamp_ntz"]
    at = datetime(2026, 11, 21, 12, 30, 0, 123000, tzinfo=timezone.utc)
    old = date(1500, 1, 1)
    value = {
        "d": Decimal("-12.34"), "f": Decimal("12345678901234567.891"), "ms": at, "us": at, "day": old,
        "local": datetime(1, 1, 1, 0, 0, 0, 1), "u": uuid.UUID(int=1), "e": "B",
    }  # fmt: skip
    (row,) = decoded(spark, decoder, encoded(schema, value))
    as_text = spark.createDataFrame([row.value], decoder.type).selectExpr("CAST(ms AS STRING)", "CAST(us AS STRING)")
    assert list(as_text.collect()[0]) == ["2026-11-21 12:30:00.123"] * 2
    assert (row.value.d, row.value.f, row.value.day) == (value["d"], value["f"], old)
    assert (row.value.local, row.value.u, row.value.e) == (value["local"], str(value["u"]), "B")


def test_text_that_is_not_utf8_is_a_problem_wherever_it_stands(spark: SparkSession) -> None:
    strings = {"type": "array", "items": "string"}
    part = record(field("s", "string"), field("m", {"type": "map", "values": strings}), name="Part")
    schema = record(
        field("parts", {"type": "array", "items": part}), field("deep", {"type": "array", "items": strings})
    )
    decoder = AvroFile(spark, json.dumps(schema))
    right = encoded(schema, {"parts": [{"s": "a-a", "m": {"b-b": ["c-c", "é"]}}], "deep": [["d-d"], []]})
    wrong = [right.replace(place, b"\xc3-\xa9") for place in (b"a-a", b"b-b", b"c-c", b"d-d")]
    assert [row.problem for row in decoded(spark, decoder, right, *wrong)] == [None] + [MALFORMED] * 4


V1 = record(field("id", "int"), field("gone", "string"), field("old", "int"), field("maybe", "string"))
V2 = record(
    field("id", "long"),
    field("new", "int", aliases=["old"]),
    field("maybe", ["null", "string"]),
    field("added", "string", default="none"),
)


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def test_each_record_is_read_by_its_own_schema_as_the_latest(spark: SparkSession) -> None:
    decoder = AvroOfRegistry(spark, Schemas({"1": V1, "300": V2}), ["t"], "value", on_new_column="ignore")
    assert decoder.type.simpleString() == "struct<id:bigint,new:int,maybe:string,added:string>"
    first = framed(1, encoded(V1, {"id": 7, "gone": "x", "old": 3, "maybe": "m"}))
    second = framed(300, encoded(V2, {"id": 2**40, "new": 4, "maybe": None, "added": "a"}))
    rows = decoded(spark, decoder, first, second, first[:-1], first + b"\0", second + b"\0", None)
    assert [row.value for row in rows[:2]] == [
        Row(id=7, new=3, maybe="m", added="none"),
        Row(id=2**40, new=4, maybe=None, added="a"),
    ]
    assert [row.problem for row in rows] == [None, None, MALFORMED, MALFORMED, MALFORMED, None]


def test_the_readers_schema_may_be_given(spark: SparkSession) -> None:
    narrow = record(field("id", "double"))
    decoder = AvroOfRegistry(spark, Schemas({"1": V1}), ["t"], "value", json.dumps(narrow))
    value = framed(1, encoded(V1, {"id": 7, "gone": "x", "old": 3, "maybe": "m"}))
    assert decoded(spark, decoder, value) == [Row(value=Row(id=7.0), problem=None)]


def test_a_whole_number_that_a_double_or_a_float_would_round_is_a_problem(spark: SparkSession) -> None:
    """Avro promotes it in silence. What is the same number stays, wherever it is in the record."""

    def of(whole: str, small: str) -> dict[str, Any]:
        inner = record(field("x", whole), name="In")
        return record(
            field("a", ["null", whole]), field("f", small), field("in", inner),
            field("xs", {"type": "array", "items": ["null", "In"]}), field("m", {"type": "map", "values": whole}),
        )  # fmt: skip

    decoder = AvroOfRegistry(spark, Schemas({"1": of("long", "int"), "2": of("double", "float")}), ["t"], "value")
    right: dict[str, Any] = {
        "a": None, "f": 2**24, "in": {"x": -(2**63)}, "xs": [None, {"x": 2**60}], "m": {"k": 2**53}
    }  # fmt: skip
    wrong = [
        {"a": 2**53 + 1}, {"a": 2**63 - 1}, {"f": 2**24 + 1}, {"f": 2**31 - 1}, {"in": {"x": 2**53 + 1}},
        {"xs": [{"x": 1}, {"x": 2**62 - 1}]}, {"m": {"k": 1, "l": -(2**53) - 1}},
    ]  # fmt: skip
    sent = [framed(1, encoded(of("long", "int"), {**right, **each})) for each in ({}, *wrong)]
    exact = {"a": 0.5, "f": 0.25, "in": {"x": 1.5}, "xs": [], "m": {}}
    first, *others, last = decoded(spark, decoder, *sent, framed(2, encoded(of("double", "float"), exact)))
    assert first.problem is None
    assert first.value.asDict(recursive=True) == {
        "a": None, "f": 2.0**24, "in": {"x": -(2.0**63)}, "xs": [None, {"x": 2.0**60}], "m": {"k": 2.0**53}
    }  # fmt: skip
    assert [("isn't exactly one of the FLOAT or DOUBLE" in row.problem, row.value) for row in others] == [
        (True, None)
    ] * len(wrong)
    assert (last.problem, last.value["in"].x) == (None, 1.5)


@pytest.mark.breadth
def test_a_decimal_of_more_than_64_bits_is_a_problem_however_few_digits_it_may_have(spark: SparkSession) -> None:
    """Of such a number Spark keeps the low 64 bits where the precision is at most 18."""
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    fixed = {**amount, "type": "fixed", "name": "F", "size": 9}
    schema = record(
        field("a", amount), field("f", fixed), field("list", {"type": "array", "items": ["null", amount]}),
        field("n", "long"),
    )  # fmt: skip
    of_file, right = AvroFile(spark, json.dumps(schema)), {"a": b"\x05", "f": bytes(8) + b"\x06", "list": [None, b"\0"]}
    of_registry = AvroOfRegistry(spark, Schemas({"1": schema}), ["t"], "value")
    plain = json.loads(json.dumps(schema).replace('"logicalType": "decimal"', '"logicalType": "none"'))
    large, most = (2**64 + 5).to_bytes(9, "big"), (10**10 - 1).to_bytes(8, "big")
    too_many = (10**10).to_bytes(8, "big")
    changes: list[dict[str, Any]] = [
        {}, {"a": most}, {"a": too_many}, {"a": large}, {"f": large}, {"a": b""},
        {"list": [b"\x01", large]}, {"a": b"\x7f" * 30},
    ]  # fmt: skip
    sent = [encoded(plain, {**right, "n": 1, **each}) for each in changes]
    for decoder, header in ((of_file, b""), (of_registry, framed(1, b""))):
        assert decoder.type.simpleString() == (
            "struct<a:decimal(10,2),f:decimal(10,2),list:array<decimal(10,2)>,n:bigint>"
        )
        first, second, *wrong = decoded(spark, decoder, *(header + each for each in sent))
        assert first.value == Row(a=Decimal("0.05"), f=Decimal("0.06"), list=[None, Decimal(0)], n=1)
        assert (second.problem, second.value.a) == (None, Decimal("99999999.99"))
        assert [(row.value, row.problem) for row in wrong] == [(None, MALFORMED)] * 6


@pytest.mark.breadth
def test_a_record_of_a_type_that_the_readers_union_lacks_is_a_problem_and_no_other_record(spark: SparkSession) -> None:
    """Avro would take it for the first one with fields that fit."""

    more = {"Placed": [], "Cancelled": [field("why", "string")], "Refunded": [field("amount", "long")]}

    def of(*kinds: str, space: str = "shop") -> dict[str, Any]:
        types = [
            record(field("id", "long"), field("at", "long"), *more[kind], name=f"{space}.{kind}") for kind in kinds
        ]
        again = {"type": "array", "items": [f"{space}.{kind}" for kind in kinds]}
        return record(field("event", ["null", *types]), field("list", again), field("n", "long"))

    newest = of("Placed", "Cancelled")
    known = {
        "1": newest, "2": of("Refunded", "Placed", "Cancelled"), "3": of("Refunded", "Cancelled", space="x")
    }  # fmt: skip
    decoder = AvroOfRegistry(spark, Schemas(known), ["t"], "value", json.dumps(newest))
    cancelled, refunded = {"id": 1, "at": 2, "why": "w"}, {"id": 3, "at": 4, "amount": 5}
    sent = [
        (1, {"event": ("shop.Cancelled", cancelled), "list": []}),
        (2, {"event": ("shop.Cancelled", cancelled), "list": [("shop.Placed", {"id": 1, "at": 2})]}),
        (3, {"event": ("x.Cancelled", cancelled), "list": [("x.Cancelled", cancelled)]}),
        (2, {"event": ("shop.Refunded", refunded), "list": []}),
        (2, {"event": None, "list": [("shop.Cancelled", cancelled), ("shop.Refunded", refunded)]}),
        (3, {"event": ("x.Refunded", refunded), "list": []}),
    ]  # fmt: skip
    rows = decoded(spark, decoder, *(framed(n, encoded(known[str(n)], {**each, "n": 6})) for n, each in sent))
    assert [row.problem for row in rows[:3]] == [None] * 3
    assert [row.value.event for row in rows[:3]] == [Row(member0=None, member1=Row(**cancelled))] * 3
    assert rows[1].value.list == [Row(member0=Row(id=1, at=2), member1=None)]
    assert rows[2].value.list == [Row(member0=None, member1=Row(**cancelled))]
    for row in rows[3:]:
        assert row.value is None
        assert "of a type in a union that the reader's schema doesn't have there: shop.Refunded" in row.problem


@pytest.mark.breadth
def test_a_symbol_that_the_newest_schema_has_dropped_is_read_unless_a_readers_schema_is_given(
    spark: SparkSession,
) -> None:
    def of(*symbols: str) -> dict[str, Any]:
        return record(field("e", {"type": "enum", "name": "E", "symbols": list(symbols), "default": "OTHER"}))

    older, newest = of("OTHER", "BLUE", "RED"), of("OTHER", "RED")
    sent = [framed(1, encoded(older, {"e": each})) for each in ("RED", "BLUE")]
    for given, found in ((None, ["RED", "BLUE"]), (json.dumps(newest), ["RED", "OTHER"])):
        decoder = AvroOfRegistry(spark, Schemas({"1": older, "2": newest}), ["t"], "value", given)
        assert [row.value.e for row in decoded(spark, decoder, *sent)] == found


def test_what_lacks_the_header_says_so(spark: SparkSession) -> None:
    decoder = AvroOfRegistry(spark, Schemas({"1": V1}), ["t"], "value")
    for row in decoded(spark, decoder, b"", b"\0\0\0\0", b"\1\0\0\0\1", b"{}"):
        assert "not in Confluent's wire format" in row.problem


def test_an_id_that_is_not_known_yet_is_asked_for_once(spark: SparkSession) -> None:
    misread = record(field("id", {"type": "string"}), field("new", "int"), field("maybe", "string"))
    endless = record(*V2["fields"], field("part_of", ["null", "Order"]))
    schemas = Schemas({"300": V2}, {"1": V1, "4": misread, "5": endless})
    decoder = AvroOfRegistry(spark, schemas, ["t"], "value", on_new_column="ignore")
    value = framed(1, encoded(V1, {"id": 7, "gone": "x", "old": 3, "maybe": "m"}))
    values = [value, framed(4, b"\0\0\0"), framed(5, b"\0\0\0\0"), framed(2**32 - 1, b"")]
    ids = [row.problem.removeprefix(UNKNOWN) for row in decoded(spark, decoder, *values)]
    assert ids == ["1", "4", "5", str(2**32 - 1)]
    for _ in range(2):
        decoder.resolve([each for each in ids if each is not None], spark.createDataFrame([], "bytes BINARY"))
    assert sorted(schemas.asked) == sorted(ids)
    right, unreadable, recursive, absent = decoded(spark, decoder, *values)
    assert right.value.id == 7
    assert unreadable.problem == (
        "schema id 4 can't be read as the reader's schema: id is string, which can't be read as long"
    )
    assert recursive.problem == "schema id 5 can't be read as the reader's schema: shop.Order is recursive"
    assert absent.problem == f"schema id {2**32 - 1} isn't in the registry"
    assert UNKNOWN not in absent.problem
    # In the next epoch an ID that wasn't there may be.
    decoder.begin_epoch()
    schemas.later[str(2**32 - 1)] = V2
    late = framed(2**32 - 1, encoded(V2, {"id": 8, "new": 1, "maybe": None, "added": "a"}))
    (again,) = decoded(spark, decoder, late)
    assert again.problem == f"{UNKNOWN}{2**32 - 1}"
    decoder.resolve([str(2**32 - 1)], spark.createDataFrame([], "bytes BINARY"))
    assert decoded(spark, decoder, late, value)[0].value.id == 8
    assert sorted(schemas.asked) == sorted([*ids, ids[-1]])


def test_glues_header_has_a_uuid_and_compressed_records_say_so(spark: SparkSession) -> None:
    first, other = str(uuid.uuid4()), str(uuid.uuid4())
    decoder = AvroOfRegistry(spark, Schemas({first: ORDER}, wire=GlueWire()), ["t"], "value")
    value = encoded(ORDER, {"id": 7, "note": None})
    header = uuid.UUID(first).bytes
    rows = decoded(
        spark,
        decoder,
        b"\3\0" + header + value,
        b"\3\5" + header + zlib.compress(value),
        b"\3\0" + uuid.UUID(other).bytes + value,
        b"\3\0" + header[:-1],
    )
    assert rows[0].value == Row(id=7, note=None)
    assert "compressed by the producer" in rows[1].problem
    assert rows[2].problem == f"{UNKNOWN}{other}"
    assert "not in AWS Glue's wire format" in rows[3].problem


def test_every_record_is_decoded_once(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    schemas = Schemas({"1": V1, "2": {**V1, "doc": "the same data"}, "300": V2})
    decoder = AvroOfRegistry(spark, schemas, ["t"], "value", on_new_column="ignore")
    records = spark.range(1).selectExpr("to_binary(string(id), 'utf-8') AS value")  # no constant, to be folded
    decoder.decoded(records, "value", "row").select("row.*", problem_of("row")).explain()
    assert capsys.readouterr().out.count("from_avro(") == 2


@pytest.mark.breadth
def test_two_sinks_that_plan_at_once_over_one_frame_have_all_options(spark: SparkSession) -> None:
    schema = parse(json.dumps(V1))
    records = spark.range(1).selectExpr("to_binary(string(id), 'utf-8') AS value")
    cached = spark.range(1).persist()  # Spark looks for it in each plan, and evaluates the options for that
    both = threading.Barrier(2)

    def plan(frame: DataFrame) -> None:
        query = frame.where("_0 IS NULL")
        both.wait()
        query.inputFiles()  # which needs the plan, and no job

    parsed = [enveloped(F.col("value"), schema, schema).alias(f"_{n}") for n in range(200)]
    try:
        with ThreadPoolExecutor(2) as sinks:
            for _ in range(15):
                frame = records.select(*parsed)
                list(sinks.map(plan, [frame, frame]))
    finally:
        cached.unpersist()


def test_a_schema_that_spark_has_no_type_for_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UnusableSchema, match=r"shop\.Order of the Avro schema is recursive"):
        AvroFile(spark, json.dumps(record(field("next", ["null", "Order"]))))
    huge = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    with pytest.raises(UnusableSchema, match="Spark can't read the Avro schema"):
        AvroFile(spark, json.dumps(record(field("d", huge))))


def test_topics_with_different_schemas_need_one_to_be_read_as(spark: SparkSession) -> None:
    class Two(Schemas):
        def latest(self, topic: str, part: Part) -> WriterSchema:
            return WriterSchema(topic, parse(json.dumps({"t": V1, "u": V2}[topic])))

    with pytest.raises(ConfigurationError, match="different schemas"):
        AvroOfRegistry(spark, Two({}), ["t", "u"], "value")


MIXED = record(
    field("a", "long"),
    field("s", "string"),
    field("u", ["null", "string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]),
    field("d", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
    field("xs", {"type": "array", "items": record(field("n", "int"), field("t", "string"), name="Item")}),
    field("m", {"type": "map", "values": "long"}),
    field("nothings", {"type": "array", "items": "null"}),
)


def test_lengths_that_no_memory_can_hold_stop_nothing(spark: SparkSession) -> None:
    """Avro would take the memory before it looks for the bytes: see the limits in the session's Java options."""
    decoder = AvroFile(spark, json.dumps(MIXED))
    absurd = [prefix + long(length) for length in (2**28, 2**31 - 9, 2**40, -(2**31)) for prefix in (
        b"\0", b"\0\0\2", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"\0\0\0\0\0\0",
    )]  # fmt: skip
    assert {row.problem for row in decoded(spark, decoder, *absurd)} == {MALFORMED}


@pytest.mark.breadth
def test_garbage_is_either_right_or_a_problem(spark: SparkSession) -> None:
    """20,000 of random, cut, and changed bytes. What is right is what fastavro reads, and took all bytes."""
    rnd = random.Random(20261121)

    def text() -> str:
        return "".join(rnd.choices("aé漢🙂 ", k=rnd.randrange(6)))

    def value() -> bytes:
        made = {
            "a": rnd.choice([0, -1, rnd.getrandbits(60)]), "s": text(), "u": rnd.choice([None, text()]),
            "d": Decimal(rnd.getrandbits(60)) / 100,
            "xs": [{"n": rnd.getrandbits(20), "t": text()} for _ in range(rnd.randrange(3))],
            "m": {text(): rnd.getrandbits(9) for _ in range(rnd.randrange(3))}, "nothings": [None] * rnd.randrange(3),
        }  # fmt: skip
        return encoded(MIXED, made)

    def mutated() -> bytes:
        whole = bytearray(value())
        for _ in range(rnd.randrange(1, 4)):
            whole[rnd.randrange(len(whole))] = rnd.getrandbits(8)
        return bytes(whole)

    kinds = [
        lambda: rnd.randbytes(rnd.randrange(40)),
        lambda: (whole := value())[: rnd.randrange(len(whole))],
        lambda: value() + rnd.randbytes(rnd.randrange(1, 12)),
        mutated,
        value,
    ]
    values = [rnd.choice(kinds)() for _ in range(20_000)]
    rows = decoded(spark, AvroFile(spark, json.dumps(MIXED)), *values)
    schema = fastavro.parse_schema(json.loads(json.dumps(MIXED)))
    count = 0
    for payload, row in zip(values, rows, strict=True):
        assert (row.value is None) != (row.problem is None)
        expected = read_by_fastavro(schema, payload)
        if row.value is not None:
            count += 1
            found = row.value.asDict(recursive=True)
            assert expected is not None, payload
            # Spark makes a column of each branch, one of which isn't null.
            branch, columns = expected.pop("u"), found.pop("u")
            assert found == expected, payload
            assert {branch, None} == {None, *(columns or {}).values()}, payload
        elif expected is not None:
            # fastavro is more generous: with negative lengths, numbers too large, an index from the end.
            assert encoded(MIXED, expected) != payload, payload
    assert 4_000 < count < 8_000


def read_by_fastavro(schema: Any, payload: bytes) -> dict[str, Any] | None:
    stream = io.BytesIO(payload)
    try:
        read = fastavro.schemaless_reader(stream, schema)
    except Exception:
        return None
    return read if stream.read() == b"" else None  # type: ignore[return-value]


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.spark.session import session
from test_avro import V1, V2, Schemas, decoded, encoded, framed
from connector.decode.avro import AvroOfRegistry
with session({"spark.remote": "local[2]", **SHORT_LIVED}, name="connect") as spark:
    assert "connect" in type(spark).__module__, type(spark)
    decoder = AvroOfRegistry(spark, Schemas({"1": V1, "300": V2}), ["t"], "value", on_new_column="ignore")
    value = framed(1, encoded(V1, {"id": 7, "gone": "x", "old": 3, "maybe": "m"}))
    for row in decoded(spark, decoder, value, value[:-1], framed(5, b"")):
        print(row)
"""


@pytest.mark.breadth
def test_avro_is_read_through_spark_connect() -> None:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(here), str(here.parent)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        # Else its server takes the port that every other one on the machine takes, too.
        env={**os.environ, "SPARK_TESTING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "Row(value=Row(id=7, new=3, maybe='m', added='none'), problem=None)",
        f'Row(value=None, problem="{MALFORMED}")',
        "Row(value=None, problem='unknown_schema:5')",
    ]
