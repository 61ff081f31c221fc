"""JSON after the header of Confluent's JSON Schema serializer: whole records, broken headers, a registry's columns."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from columns import compared
from conftest import Lake, Topic, lakelock
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from registry import RegistryServer, registry_server
from suites import draws

from connector import Pipeline
from connector.decode.framed import Framed
from connector.decode.json import Json
from connector.lab.bench.broker import Broker
from connector.protocol.steps import Event, Step
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord, SchemaMismatch, UnusableSchema

ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}
ONE = {
    "type": "object",
    "properties": {
        "k": {"type": "string", "pattern": "^[a-z]"},
        "n": {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}]},
        "at": {"$ref": "#/definitions/address"},
        "more": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["k"], "definitions": {"address": ADDRESS},
}  # fmt: skip
TWO = {**ONE, "properties": {**ONE["properties"], "tags": {"type": "array", "items": {"type": "string"}}}}  # type: ignore[dict-item]
KEY = {"type": "object", "properties": {"k": {"type": "string"}}}
NO_HEADER = "not in Confluent's wire format: a zero byte and four bytes of the schema's id come first"


def framed(schema_id: int, value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"\0" + schema_id.to_bytes(4, "big") + text


def key(k: str) -> bytes:
    return framed(5, {"k": k})


def row(k: str, n: int | None, schema_id: int = 1, **more: object) -> tuple[bytes, bytes]:
    return key(k), framed(schema_id, {"k": k, "n": n, **more})


@pytest.fixture
def registry(topic: Topic) -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.register(f"{topic.name}-value", 1, ONE, "JSON")
        server.register(f"{topic.name}-key", 5, KEY, "JSON")
        yield server


def of_registry(registry: RegistryServer, **more: Any) -> dict[str, Any]:
    return {"format": "json", "registry": {"url": registry.url}, **more}


def in_file(schema: str, **more: Any) -> dict[str, Any]:
    return {"format": "json", "wire_format": "confluent", "schema": schema, **more}


def letters(lake: Lake) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_the_registrys_newest_schema_gives_the_columns(
    lake: Lake, topic: Topic, registry: RegistryServer, kind: str, reader: str
) -> None:
    registry.register(f"{topic.name}-value", 2, TWO, "JSON")
    format = of_registry(registry)
    given = {"value": format, "key": format, "source": {"reader": reader}}
    topic.send(
        row("a", 1, at={"city": "Ulm"}, more={"x": 1.5}), row("b", 2, 2, tags=["x"]), row("a", None, 2),
        row("c", 3), *([(key("b"), None)] if kind == "upsert" else []), partition=0,
    )  # fmt: skip
    done = lake.pipeline(kind, **given).run()
    assert lake.frame(kind).drop("_key", "_topic", "_partition", "_offset", "_timestamp").dtypes[:5] == [
        ("k", "string"), ("n", "int"), ("at", "struct<city:string>"), ("more", "map<string,double>"),
        ("tags", "array<string>"),
    ]  # fmt: skip
    rows = query(lake.path(kind), "SELECT k, n, at.city, tags FROM t ORDER BY k, n")
    if kind == "upsert":
        assert [found[:2] for found in rows] == [("a", None), ("c", 3)]
    else:
        assert done.rows == 4
        assert rows == [("a", 1, "Ulm", None), ("a", None, None, None), ("b", 2, None, ["x"]), ("c", 3, None, None)]
    found = verify(lake, kind, **given)
    assert found.ok, str(found)
    lake.spark.sql(f"UPDATE delta.`{lake.path(kind)}` SET n = 4 WHERE k = 'c'")  # type: ignore[union-attr]
    assert counts(verify(lake, kind, **given))["altered"] == 1


@pytest.mark.spark4("the columnar reader is built for Spark 4")
def test_the_columnar_reader_takes_what_spark_sql_takes(spark: SparkSession, broker: Broker) -> None:
    format = Framed(Json(from_ddl("k STRING, n INT, x DOUBLE"), option="value.schema"))
    right = [framed(schema_id, {"k": "é", "n": 1, "x": 0.5}) for schema_id in (0, 1, 2**31, 2**32 - 1)]
    spaced = framed(1, b' \n{"n": 7} ')
    wrong = [b"", b"\0", right[0][:4], right[0][:5], b"\1" + right[0][1:], b'{"k": "x"}', b"\0" + right[0], None,
             framed(1, b'{"k": "x"} x'), framed(1, b'{"k": "\xff"}'), framed(1, {"n": "x"})]  # fmt: skip
    assert compared(spark, broker, [*right, spaced, *wrong], format) == {*right, spaced}


@pytest.mark.breadth
@pytest.mark.spark4("the columnar reader is built for Spark 4")
def test_of_a_key_the_reader_leaves_out_what_a_later_record_replaces(lake: Lake, topic: Topic) -> None:
    topic.send(*((f"k{n % 5}", framed(n, {"k": f"k{n % 5}", "n": n})) for n in range(50)), ("k0", None), partition=0)
    given = {"value": in_file("k STRING, n INT")}
    lake.pipeline("upsert", **given).run()
    assert lake.rows("upsert") == [(f"k{n}", 45 + n) for n in range(1, 5)]
    assert verify(lake, "upsert", **given).ok


@pytest.mark.breadth
def test_debeziums_events_after_the_header(lake: Lake, topic: Topic) -> None:
    def event(op: str, before: int | None, after: int | None) -> bytes:
        image = {"before": before, "after": after}
        return framed(9, {"op": op, **{name: n and {"k": "a", "n": n} for name, n in image.items()}})

    topic.send((key("a"), event("c", None, 1)), (key("a"), event("u", 1, 2)), (key("a"), event("c", None, 1)[5:]))
    given = {"value": {**in_file("k STRING, n INT"), "format": "debezium"}, **letters(lake)}
    lake.pipeline("append", **given).run()
    assert query(lake.path(), "SELECT k, n, _op FROM t ORDER BY n") == [("a", 1, "c"), ("a", 2, "u")]
    exact = verify(lake, **given)
    assert str(exact) == "exact: 2 expected, 2 found; 3 records = 2 rows + 1 dead letter"
    assert "letters_unconfirmed" not in counts(exact)


@pytest.mark.breadth
@pytest.mark.parametrize("mode", ["strict", pytest.param("permissive", marks=pytest.mark.breadth)])
def test_records_without_a_right_header_are_set_aside_whole(lake: Lake, topic: Topic, mode: str) -> None:
    format = in_file("k STRING, n INT", mode=mode)
    given = {"value": format, "key": in_file("k STRING"), **letters(lake)}
    bad = {
        1: (key("a"), b'{"k": "a", "n": 1}'),
        2: (key("a"), b"\0\0\0\1"),
        3: (key("a"), b"\1" + framed(1, {})[1:]),
        4: (b'{"k": "a"}', framed(1, {"k": "a"})),
        6: (key("a"), framed(1, b"")),
        7: (key("a"), framed(1, b'{"k": "a"')),
        8: (key("a"), framed(1, {"k": "a", "n": "x"})),
        9: (key("a"), b""),
        10: (key("a"), b"\0" + framed(1, {"k": "a"})),
    }
    good = {0: row("a", 0, 7), 5: row("b", 5, 2**32 - 1), 11: (None, framed(1, {"k": "c", "n": 11}))}
    topic.send(*(({**bad, **good})[offset] for offset in range(12)), partition=0)
    lake.pipeline(**given).run()
    assert lake.rows() == [("a", 0), ("b", 5), ("c", 11)]
    found = {
        offset: (bytes(given_key), bytes(value), detail)
        for offset, given_key, value, detail in lake.sql("SELECT _offset, key, value, detail FROM {t}", "dead")
    }
    assert {offset: record[:2] for offset, record in found.items()} == bad
    for offset in (1, 2, 3, 9):
        assert found[offset][2] == f"its value: {NO_HEADER}"
    assert found[4][2] == f"its key: {NO_HEADER}"
    assert found[6][2] == "its value: is empty"
    assert found[7][2] == "its value: not one whole JSON object"
    assert found[8][2] == "its value: field n: not an INT"
    exact = verify(lake, **given)
    assert str(exact) == "exact: 3 expected, 3 found; 12 records = 3 rows + 9 dead letters"
    assert "letters_unconfirmed" not in counts(exact)


@pytest.mark.breadth
def test_an_error_names_the_record_and_what_is_wrong_with_it(lake: Lake, topic: Topic) -> None:
    topic.send((None, framed(1, {"k": "a"})), (None, b'{"k": "b"}'), partition=0)
    with pytest.raises(BadRecord) as caught:
        lake.pipeline(value=in_file("k STRING, n INT"), unmatched="warn").run()
    assert f"{topic.name}-0, offset 1 isn't right: its value: {NO_HEADER}" in caught.value.message
    assert caught.value.message.endswith('Its value starts with: {"k": "b"}')


@pytest.mark.breadth
def test_what_a_second_look_finds_is_counted_after_the_header(lake: Lake, topic: Topic) -> None:
    topic.send((None, framed(1, b'{"k": nul}')), partition=0)
    with pytest.raises(
        BadRecord, match=r"it stops being JSON at byte 6: .* \(counted after the header of 5 bytes\)"
    ) as caught:
        lake.pipeline(value=in_file("k STRING, n INT")).run()
    assert caught.value.message.endswith('Its value starts with: {"k": nul}')


@pytest.mark.breadth
def test_ids_that_the_registry_lacks_or_has_for_avro_are_bad_records(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    registry.register("other", 3, "string")
    given = {"value": of_registry(registry, schema="k STRING, n INT"), **letters(lake)}
    topic.send(row("a", 1), row("a", 2, 2), row("a", 3, 3), (None, b"{}"), partition=0)
    lake.pipeline(**given).run()
    assert lake.rows() == [("a", 1)]
    details = [detail for (detail,) in lake.sql("SELECT detail FROM {t} ORDER BY _offset", "dead")]
    assert details[0] == "its value: schema id 2 isn't in the registry"
    assert details[1].startswith("its value: schema id 3 can't be used: ")
    assert "is of type AVRO, not JSON Schema" in details[1]
    assert details[2] == f"its value: {NO_HEADER}"
    exact = verify(lake, **given)
    assert str(exact) == "exact: 1 expected, 1 found; 4 records = 1 row + 3 dead letters"
    assert "letters_unconfirmed" not in counts(exact)


@pytest.mark.breadth
def test_a_version_that_is_registered_during_a_run(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send(row("a", 1), partition=0)
    given = {"value": of_registry(registry)}
    lake.pipeline(**given).run()

    def producer_goes_on(event: Event) -> None:
        if event.step is Step.PLANNED and "/schemas/ids/2" not in registry.answers:
            registry.register(f"{topic.name}-value", 2, TWO, "JSON")

    topic.send(row("b", 2, 2, tags=["x", "y"]), partition=0)
    lacks = "schema id 2 has fields that the newest schema at the run's start lacks: tags"
    with pytest.raises(BadRecord, match=lacks):
        lake.pipeline(**given).run(observers=[producer_goes_on])
    del registry.answers["/schemas/ids/2"]
    registry.answers[f"/subjects/{topic.name}-value/versions"] = [1]
    registry.answers[f"/subjects/{topic.name}-value/versions/latest"] = registry.answers["/schemas/ids/1"]
    lake.pipeline(**given, on_new_column="add").run(observers=[producer_goes_on])
    assert query(lake.path(), "SELECT k, n, tags FROM t ORDER BY k") == [("a", 1, None), ("b", 2, ["x", "y"])]
    assert verify(lake, **given, on_new_column="add").ok


def test_a_schema_without_columns_says_where_and_what_to_write(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    either = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    unclear = {**ONE, "properties": {"k": {"type": "string"}, "n": either}}
    registry.register(f"{topic.name}-value", 2, unclear, "JSON")
    topic.send(row("a", 1, 2), partition=0)
    with pytest.raises(UnusableSchema, match="#/properties/n has no one type: it combines several by oneOf") as caught:
        lake.pipeline(value=of_registry(registry)).run()
    assert "schema:" in caught.value.hint
    lake.pipeline(value=of_registry(registry, schema="k STRING, n INT")).run()
    assert lake.rows() == [("a", 1)]


@pytest.mark.breadth
def test_inferred_columns_and_a_field_that_no_record_has(lake: Lake, topic: Topic) -> None:
    topic.send((None, framed(1, {"k": "a", "n": 1})), (None, framed(1, {"k": "b", "n": 2})), partition=0)
    with pytest.raises(SchemaMismatch, match="no record of this epoch has a field nn; 2 have n"):
        lake.pipeline(value=in_file("k STRING, nn BIGINT")).run()
    given = {"value": in_file("inferred")}
    checked = lake.pipeline(**given).check()
    assert json.loads(checked.sample.rows[0])["n"] == 1
    lake.pipeline(**given).run()
    assert lake.rows() == [("a", 1), ("b", 2)]
    assert verify(lake, **given).ok


@pytest.mark.breadth
def test_new_fields_are_learned_from_the_text(lake: Lake, topic: Topic) -> None:
    topic.send((None, framed(1, {"k": "a", "N": 1, "m": {"x": [1]}})), partition=0)
    given = {"value": in_file("k STRING, n INT"), "on_new_column": "add"}
    lake.pipeline(**given).run()
    assert query(lake.path(), "SELECT k, n, m.x FROM t") == [("a", 1, [1])]


@pytest.mark.breadth
def test_records_of_a_route_with_a_schema_of_their_own(lake: Lake, topic: Topic) -> None:
    topic.send(
        (None, framed(1, {"k": "a", "n": 1})), (None, framed(2, {"k": "b", "text": "x"})), (None, b'{"k": "b"}'),
        partition=0,
    )  # fmt: skip
    options = lake.options(value=in_file("k STRING, n INT"), **letters(lake))
    del options["sinks"]
    options |= {
        "route": {
            "by": "k", "sink": {"type": "delta_append", "path": str(lake.path("{k}"))},
            "overrides": {"b": {"value": {"schema": "k STRING, text STRING"}}},
        },
        "coordinator": {"path": str(lake.path("log"))},
    }  # fmt: skip
    Pipeline.from_options(options).run()
    assert lake.rows("a") == [("a", 1)]
    assert query(lake.path("b"), "SELECT k, text FROM t") == [("b", "x")]
    assert lake.sql("SELECT count(*), first(detail) FROM {t}", "dead") == [(1, f"its value: {NO_HEADER}")]


@pytest.mark.breadth
def test_a_file_written_from_the_topic_makes_the_table(lake: Lake, topic: Topic) -> None:
    topic.send(row("a", 1), row("b", 2), (key("a"), None), partition=0)
    file = lake.folder / "pipeline.yaml"
    kafka = f"bootstrap.servers={topic.broker.bootstrap}"
    written = lakelock("init", file, "--from-topic", topic.name, "--kafka", kafka)
    assert written.returncode == 0, written.stderr
    pipeline = Pipeline.from_file(file)
    pipeline.run()
    (sink,) = pipeline.config.sinks
    assert query(sink.folder, "SELECT k, n FROM t") == [("b", 2)]  # type: ignore[union-attr,arg-type]


@pytest.mark.breadth
@pytest.mark.law
@draws()
@given(seed=st.integers(0, 2**32 - 1))
def test_of_spoiled_records_each_is_a_row_or_a_letter(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    draw = random.Random(seed)
    topic = Topic(broker, f"t-{uuid.uuid4()}")
    broker.create_topic(topic.name, 2)
    lake = Lake(tmp_path_factory.mktemp("framed"), topic, spark)

    def spoiled(content: bytes) -> bytes | None:
        at = draw.randrange(len(content))
        return draw.choice(
            [content] * 8 + [content[:at], content[at:], content[5:], content + b"}", b"\0" + content, None]
            + [content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :]] * 3
        )  # fmt: skip

    records = [
        (spoiled(key(f"k{n % 9}")) or key("k0"), spoiled(framed(draw.choice([1, 1, 1, 2]), {"k": f"k{n % 9}", "n": n})))
        for n in range(300)
    ]
    topic.send(*records, partition=0)  # that of a spoiled key would be another
    with registry_server() as server:
        server.register(f"{topic.name}-value", 1, ONE, "JSON")
        server.register(f"{topic.name}-key", 5, KEY, "JSON")
        format = of_registry(server)
        mode = {"mode": draw.choice(["strict", "permissive"])}
        given = {
            "value": {**format, **mode}, "key": {**format, **mode}, **letters(lake), "epoch": {"max_records": 120},
            "source": {"reader": draw.choice(["auto", "spark"])},
        }  # fmt: skip
        kind = draw.choice(["append", "upsert"])
        lake.pipeline(kind, **given).run()
        found = verify(lake, kind, **given)
    assert found.ok, str(found)
    dead = lake.sql("SELECT _offset FROM {t}", "dead")
    assert len(set(dead)) == len(dead) > 20
    if kind == "append":
        assert lake.frame(kind).count() + len(dead) == 300
