"""JSON that is validated by its JSON Schema: of a registry, with references, and of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from compatibility_json import every_case as every_change
from conftest import Lake, Topic
from json_schema_cases import every_case
from pyspark.sql import SparkSession
from registry import RegistryServer, registry_server

from connector.decode.format import problem_of
from connector.decode.json_plan import Plan, of_several
from connector.decode.json_schema import JsonSchema
from connector.decode.validated import validated
from sinks.errors import BadRecord, UnusableSchema

ONE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "k": {"type": "string", "pattern": r"^[a-z]\d*$"},
        "n": {"type": "integer", "minimum": 0},
        "place": {"$ref": "place.json"},
    },
    "required": ["k"],
    "additionalProperties": False,
}  # fmt: skip
TWO = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "k": {"type": "string"}, "n": {"type": "integer", "multipleOf": 5},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    },
    "dependentRequired": {"tags": ["n"]},
}  # fmt: skip
PLACE = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}}
COLUMNS = "k STRING, n BIGINT, place STRUCT<city: STRING>, tags ARRAY<STRING>"


def framed(schema_id: int, value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"\0" + schema_id.to_bytes(4, "big") + text


@pytest.fixture
def registry(topic: Topic) -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.register("place", 7, PLACE, "JSON")
        references = [{"name": "place.json", "subject": "place", "version": 1}]
        server.register(f"{topic.name}-value", 1, ONE, "JSON", references)
        server.register(f"{topic.name}-value", 2, TWO, "JSON")
        yield server


def letters(lake: Lake, **more: Any) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}, **more}


def of_registry(registry: RegistryServer, **more: Any) -> dict[str, Any]:
    return {"format": "json", "registry": {"url": registry.url}, "validate": True, "schema": COLUMNS, **more}


def test_a_record_is_valid_on_spark_if_its_draft_says_so(spark: SparkSession) -> None:
    cases = [*every_case(), *every_change()]
    schemas = {text: at for at, text in enumerate(dict.fromkeys(schema for schema, _, _ in cases))}
    plans = {str(at): Plan(JsonSchema(json.loads(text), "", text)) for text, at in schemas.items()}
    rows = [(at, framed(schemas[schema], text.encode()), None) for at, (schema, text, _) in enumerate(cases)]
    records = spark.createDataFrame(rows, f"at INT, value BINARY, {problem_of('v')} STRING")
    found = validated(records, "value", "v", of_several(plans)).select("at", problem_of("v")).collect()
    said = dict(found)
    wrong = [
        (schema, text[:200], said[at])
        for at, (schema, text, valid) in enumerate(cases)
        if (said[at] is None) is not valid
    ]
    assert wrong == []
    assert sum(problem is not None for problem in said.values()) > 200


def test_a_pattern_that_takes_for_ever_makes_a_bad_record(spark: SparkSession) -> None:
    text = '{"patternProperties": {"^k": {"pattern": "a*a*a*a*a*a*b"}}}'
    plans = {"1": Plan(JsonSchema(json.loads(text), "", text))}
    values = [framed(1, {"k": "a" * 60}), framed(1, {"k": "a" * 60 + "b"})]
    records = spark.createDataFrame(list(enumerate(values)), "at INT, value BINARY")
    records = records.selectExpr("*", f"CAST(NULL AS STRING) AS {problem_of('v')}")
    said = dict(validated(records, "value", "v", of_several(plans)).select("at", problem_of("v")).collect())
    assert said == {0: "doesn't fit its JSON Schema: k takes too long to compare with a pattern of its schema", 1: None}


@pytest.mark.breadth
def test_a_text_that_is_too_long_for_a_pattern_makes_a_bad_record(spark: SparkSession) -> None:
    text = '{"properties": {"k": {"pattern": "^(?:a|b|\\\\s)*$"}}}'
    plans = {"1": Plan(JsonSchema(json.loads(text), "", text))}
    values = [framed(1, {"k": "ab" * size}) for size in (10_000, 5_000_000)]
    records = spark.createDataFrame(list(enumerate(values)), "at INT, value BINARY")
    records = records.selectExpr("*", f"CAST(NULL AS STRING) AS {problem_of('v')}")
    said = dict(validated(records, "value", "v", of_several(plans)).select("at", problem_of("v")).collect())
    assert said == {0: None, 1: "doesn't fit its JSON Schema: k is too long to compare with a pattern of its schema"}


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("pattern", "text", "how"),
    [("a*a*a*a*a*a*b", "a" * 60, "takes too long"), (r"^(?:a|b|\s)*$", "ab" * 5_000_000, "is too long")],
)  # fmt: skip
def test_a_search_that_is_given_up_is_no_answer_for_the_schemas_around_it(
    spark: SparkSession, pattern: str, text: str, how: str
) -> None:
    slow = {"pattern": pattern}
    schemas: list[Any] = [
        {"not": slow}, {"oneOf": [slow, {"type": "string"}]}, {"if": slow, "then": False}, {"anyOf": [slow, False]},
        {"anyOf": [slow, {"type": "string"}]}, {"not": {"anyOf": [slow, {"type": "string"}]}},
    ]  # fmt: skip
    schemas = [{"properties": {"k": schema}} for schema in schemas]
    schemas.append({"properties": {"k": True}, "not": {"properties": {"k": slow}}})
    plans = {str(at): Plan(JsonSchema(schema, "", json.dumps(schema))) for at, schema in enumerate(schemas)}
    values = [framed(at, {"k": text}) for at in range(len(schemas))]
    records = spark.createDataFrame(list(enumerate(values)), "at INT, value BINARY")
    records = records.selectExpr("*", f"CAST(NULL AS STRING) AS {problem_of('v')}")
    said = dict(validated(records, "value", "v", of_several(plans)).select("at", problem_of("v")).collect())
    given_up = f"doesn't fit its JSON Schema: k {how} to compare with a pattern of its schema"
    decided = {4: None, 5: "doesn't fit its JSON Schema: k fits the schema of not"}
    assert said == {at: decided.get(at, given_up) for at in range(len(schemas))}


def random_records(count: int) -> Iterator[bytes]:
    draw = random.Random(count)
    for at in range(count):
        value: dict[str, Any] = {"k": draw.choice(["a", "b7", "z12", "z12", "A", "7", "a\n", "é", None, 1])}
        if draw.random() < 0.1:
            del value["k"]
        if draw.random() < 0.6:
            value["n"] = draw.choice([at, at * 5, 10, -1, 1.0, 1.5, 2**70, True, None])
        if draw.random() < 0.3:
            value["place"] = draw.choice([{"city": "Ulm"}, {"city": "x"}, {}, {"city": "\U0001f600"}, [], {"zip": 1}])
        if draw.random() < 0.3:
            value["tags"] = draw.choice([[], ["a"], ["a", "b"], ["a", "a"], [1], None, "a"])
        if draw.random() < 0.1:
            value["other"] = draw.choice([1e300, 0.1, [[]], {"a": {"b": None}}])
        record = framed(draw.choice([1, 1, 1, 2, 2, 2, 2, 9, 7]), value)
        broken = draw.random()
        if broken < 0.1:
            record = draw.choice([
                b"", record[:3], record[:5], record[:-1], b"\1" + record[1:], record + b"{}", record[5:],
                record.replace(b'{"', b'{"k": "a", "', 1), record.replace(b": ", b": 0", 1), record + b"\xff",
                record.replace(b'"k"', b'"K"'), record[:-1] + b', "n": 1e5000}', record + b" \n",
            ])  # fmt: skip
        yield record


@pytest.mark.draws
@pytest.mark.parametrize("count", [500, 100_000])
def test_random_records_are_rows_or_letters_and_what_jsonschema_says(
    lake: Lake, topic: Topic, registry: RegistryServer, count: int
) -> None:
    topic.send(*((None, each) for each in random_records(count)), partition=0)
    given = letters(lake, value=of_registry(registry))
    lake.pipeline(**given).run()
    rows, dead = (lake.frame(kind).count() for kind in ("append", "dead"))
    assert rows + dead == count
    assert min(rows, dead) > count / 10
    found = verify(lake, **given)
    assert found.ok, str(found)
    said = [row["detail"] for row in lake.frame("dead").select("detail").distinct().collect()]
    assert any("doesn't fit its JSON Schema: " in each for each in said)


@pytest.mark.breadth
def test_each_record_is_validated_by_its_own_schema(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    given = letters(lake, value=of_registry(registry))
    topic.send(
        (None, framed(1, {"k": "a1", "n": 3})), (None, framed(2, {"k": "A", "n": 5, "more": 1})), ("t", None),
        (None, framed(1, {"k": "A", "n": 3})), (None, framed(2, {"k": "a", "n": 3})),
        (None, framed(1, {"k": "a", "n": -1})), (None, framed(1, {"k": "a", "more": 1})), (None, framed(1, {"n": 1})),
        (None, framed(1, {"k": "a", "place": {"city": "x"}})), (None, framed(2, {"k": "a", "tags": []})),
        (None, framed(2, {"k": "a", "n": 5, "tags": ["a", "a"]})), (None, framed(9, {"k": "a"})),
        partition=0,
    )  # fmt: skip
    lake.pipeline(**given).run()
    assert query(lake.path("append"), "SELECT k, n FROM t ORDER BY k") == [("A", 5), ("a1", 3)]
    said = [row["detail"] for row in lake.frame("dead").orderBy("_offset").collect()]
    fits = "doesn't fit its JSON Schema: "
    expected = [
        "", f"{fits}k doesn't match the pattern of its schema", f"{fits}n is no multiple of 5",
        f"{fits}n is below the minimum, 0", f"{fits}more isn't allowed", f"{fits}k is required, and isn't there",
        f"{fits}place.city has 1 characters, fewer than 2", f"{fits}n is required, and isn't there",
        f"{fits}tags has an item twice", "schema id 9 isn't in the registry",
    ]  # fmt: skip
    assert len(said) == len(expected)
    for found, wanted in zip(said, expected, strict=True):
        assert wanted in found
    audited = verify(lake, **given)
    assert audited.ok, str(audited)
    lake.spark.sql(f"DELETE FROM delta.`{lake.path('append')}` WHERE k = 'A'")  # type: ignore[union-attr]
    assert counts(verify(lake, **given))["lost"] == 1


@pytest.mark.breadth
@pytest.mark.parametrize("more", [{}, {"wire_format": "confluent"}])
def test_a_file_gives_the_columns_and_validates(lake: Lake, topic: Topic, more: dict[str, Any]) -> None:
    lake.folder.mkdir(exist_ok=True)
    file = Path(lake.folder, "schema.json")
    file.write_text(json.dumps(TWO), encoding="utf-8")
    format = {"format": "json", "schema_file": str(file), **more}
    header = framed(12345, b"") if more else b""
    good, bad = b'{"k": "a", "n": 5, "tags": ["x"]}', b'{"k": "b", "n": 4}'
    topic.send((None, header + good), (None, header + bad), partition=0)
    with pytest.raises(BadRecord, match=r"offset 1.*doesn't fit its JSON Schema: n is no multiple of 5"):
        lake.pipeline(value=format).run()
    given = letters(lake, value=format)
    lake.pipeline(**given).run()
    assert query(lake.path("append"), "SELECT k, n, tags FROM t") == [("a", 5, ["x"])]
    audited = verify(lake, **given)
    assert audited.ok, str(audited)


@pytest.mark.breadth
def test_a_schema_that_cannot_be_used_makes_bad_records_or_stops(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    registry.register(f"{topic.name}-value", 3, {**ONE, "properties": {"k": {"pattern": "(?<=a)b"}}}, "JSON")
    topic.send((None, framed(3, {"k": "ab"})), (None, framed(2, {"k": "a"})), partition=0)
    given = letters(lake, value=of_registry(registry), unmatched="warn")
    lake.pipeline(**given).run()
    assert query(lake.path("append"), "SELECT k FROM t") == [("a",)]
    assert "schema id 3 can't be used" in lake.frame("dead").collect()[0]["detail"]
    audited = verify(lake, **given)
    assert audited.ok, str(audited)
    file = Path(lake.folder, "broken.json")
    file.write_text('{"properties": {"k": {"type": "text"}}}', encoding="utf-8")
    with pytest.raises(UnusableSchema, match="isn't a schema of its draft"):
        lake.pipeline(value={"format": "json", "schema": COLUMNS, "schema_file": str(file)}).run()
