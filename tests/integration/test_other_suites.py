"""The cases of other people's suites of formats: each is read, or refused, as docs/conformance.md says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from avro_bytes import encoded
from avro_cases import EVOLVED, FINGERPRINTED, FORMS, MALFORMED, VALUES, Case
from avro_schemas import Schemas
from compatibility_cases import ALIASED, ANY_NAME, ONE_BY_ONE, PAIRS
from compatibility_cases import VALUES as OF_PAIRS
from debezium_cases import EVENTS, KEYS, UNWRAPPED
from json_oracle import BAD
from pyspark.sql import DataFrame, Row, SparkSession

from connector.decode.avro import AvroFile, AvroOfRegistry
from connector.decode.avro_schema import parse
from connector.decode.debezium import Debezium, envelope
from connector.decode.format import problem_of
from connector.decode.json import Json
from connector.decode.tombstone_key import of_kafkas_key
from connector.spark.compat import from_ddl
from sinks.errors import UnusableSchema

HEADER = b"\0\0\0\0\1"
"""Confluent's, of the schema 1."""
ANY = object()
"""Whatever value it is."""
UNAVAILABLE = "__debezium_unavailable_value"


def literals(spark: SparkSession, *texts: bytes) -> DataFrame:
    """A frame of constants: Spark decodes them as it plans, without a job."""
    return spark.sql("SELECT * FROM VALUES " + ", ".join(f"(X'{text.hex()}')" for text in texts) + " AS t(value)")


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([*MALFORMED, FINGERPRINTED], id="bytes that are no value"),
        pytest.param([*VALUES, *EVOLVED], id="values", marks=pytest.mark.breadth),
    ],
)
def test_every_case_of_avros_own_suite_is_its_value_or_a_bad_record(spark: SparkSession, cases: Sequence[Case]) -> None:
    wrong = []
    for case in cases:
        content = case.content if case.reader is None else HEADER + case.content
        (row,) = decoder_of(spark, case).decoded(literals(spark, content), "value", "found").collect()
        found = BAD if row[problem_of("found")] else row.asDict(recursive=True)["found"]
        newest = int(spark.version.partition(".")[0]) > 3
        if found != (case.by_spark if newest and case.by_spark is not None else case.value):
            wrong.append((case.about, case.value, found))
    assert wrong == []


@pytest.mark.breadth
def test_of_two_schemas_that_a_registry_compares_each_value_is_read_or_a_bad_record(spark: SparkSession) -> None:
    cases = [(pair, encoded(pair.writer, sent), read) for pair, sent, read in [*OF_PAIRS, *ALIASED]]
    cases += [(pair, pair.one, ANY) for pair in PAIRS if pair.why in (ANY_NAME, ONE_BY_ONE)]
    cases += [(pair, pair.other, BAD) for pair in PAIRS if pair.why == ONE_BY_ONE]
    wrong = []
    for pair, content, expected in cases:
        decoder = decoder_of(spark, Case(pair.about, pair.writer, content, expected, pair.reader))
        (row,) = decoder.decoded(literals(spark, HEADER + content), "value", "found").collect()
        found = BAD if row[problem_of("found")] else row.asDict(recursive=True)["found"]
        if found == BAD if expected is ANY else found != expected:
            wrong.append((pair.about, expected, found))
    assert wrong == []


def test_every_schema_of_avros_own_suite_has_a_type_unless_it_is_in_itself(spark: SparkSession) -> None:
    for text in (json.dumps(form.schema) for form in FORMS if not form.refused):
        if parse(text).recursive:
            with pytest.raises(UnusableSchema, match="is recursive") as caught:
                AvroFile(spark, text)
            assert "No reader's schema helps" in caught.value.hint
        else:
            assert AvroFile(spark, text).type is not None


def decoder_of(spark: SparkSession, case: Case) -> AvroFile | AvroOfRegistry:
    if case.reader is None:
        return AvroFile(spark, json.dumps(case.schema))
    return AvroOfRegistry(spark, Schemas({"1": case.schema}), ["t"], "value", json.dumps(case.reader))


def test_every_case_of_debeziums_own_serde_is_its_key_its_row_or_a_bad_record(spark: SparkSession) -> None:
    found = {}
    for columns in (["a"], ["a", "b"]):
        cases = [case for case in KEYS if len(case.found) == len(columns)]
        sql = of_kafkas_key(from_ddl("a INT, b INT"), columns, "value")
        keys = literals(spark, *(case.text.encode() for case in cases))
        rows = keys.selectExpr(*(f"{sql[name]} AS {name}" for name in columns)).collect()
        found |= {case.about: list(row) for case, row in zip(cases, rows, strict=True)}
    assert found == {case.about: case.found for case in KEYS}

    row = "id INT, name STRING, city STRING"
    decoder = Debezium(Json(envelope(from_ddl(row))), UNAVAILABLE)
    events = decoder.decoded(literals(spark, *(case.text.encode() for case in EVENTS)), "value", "event")
    read = events.selectExpr(problem_of("event"), "event.id", "event.name", "event.city", "event._op").collect()
    assert [row_or_bad(each) for each in read] == [case.found for case in EVENTS]
    rows = Json(from_ddl(row)).decoded(literals(spark, UNWRAPPED.text.encode()), "value", "row").select("row.*")
    assert [each.asDict() for each in rows.collect()] == [UNWRAPPED.found]


def row_or_bad(row: Row) -> dict[str, Any] | str:
    found = row.asDict()
    return BAD if found.pop(problem_of("event")) else found
