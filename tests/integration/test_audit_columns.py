"""What the auditor compares of columns that records and table have in other forms, without Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from connector.audit.appended import appended
from connector.audit.claim import At, Bounds
from connector.audit.compare import _in_both
from connector.audit.formats import Form, Forms, forms
from connector.audit.functions import recomputed
from connector.audit.more_fields import fields_without_column
from connector.audit.records import LACKS, PROBLEM, TOMBSTONE, Records
from connector.audit.rows import NOTHING
from connector.audit.upserted import upserted
from connector.audit.values import Default
from connector.config import DeltaUpsertSink, parse

pytestmark = pytest.mark.breadth

CUT = [Bounds(At("t", 0), 0, 0, 100, 100, compacted=False)]
PLACE = (
    "'t' AS _topic", "0 AS _partition", "CAST(o AS BIGINT) AS _offset", "TIMESTAMP'2026-01-01' AS _timestamp",
)  # fmt: skip
UPSERT: dict[str, Any] = {"type": "delta_upsert", "path": "/tmp/t", "key": "id"}


def found(
    spark: SparkSession,
    made: Sequence[str],
    there: Sequence[str],
    *,
    several: bool = False,
    on_new_column: str = "ignore",
    numbered: frozenset[str] = frozenset(),
    **sink: Any,
) -> dict[str, int]:
    """Counts of kinds. Each text is the columns of a record, or of a row: SQL, with an offset ``o``."""
    frame, rows = (spark.sql(" UNION ALL ".join(f"SELECT {each}" for each in texts)) for texts in (made, there))
    rows = rows.selectExpr("*", *PLACE).drop("o", LACKS)
    frame = frame.selectExpr("*", *PLACE, f"false AS {TOMBSTONE}", f"CAST(NULL AS STRING) AS {PROBLEM}").drop("o")
    own = [part for part in frame.schema if not part.name.startswith("_") and part.name != LACKS]
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "json", "schema": "id BIGINT"}, "on_new_column": on_new_column,
            "sinks": [{**(UPSERT if sink else {"type": "delta_append", "path": "/tmp/t"}), **sink}],
        }
    )  # fmt: skip
    defaults = {"n": Default("n", '{"v": 0}'), "at.n": Default("at.n", '{"v": 0}')} if LACKS in frame.columns else {}
    records = Records(frame, StructType(own), several, defaults, numbered=numbered)
    records, rows, _, _ = _in_both(config, records, rows, Forms(Form(StructType(own)), None, False, None))
    if isinstance(config.sinks[0], DeltaUpsertSink):
        counts = upserted(
            records, rows, CUT, config.sinks[0], whole=True, committed_later=False, leave_out=(), earlier=NOTHING,
            unread=None,
        )  # fmt: skip
    else:
        counts = appended(records, rows, CUT, committed_later=False, leave_out=(), earlier=NOTHING)
    return {each["kind"]: each["count"] for each in counts if each["count"] and each["kind"] != "expected"}


def test_what_a_run_would_have_added_with_a_value_is_missed(spark: SparkSession) -> None:
    made = "{0} AS id, named_struct('city', 'x', 'zip', {1}) AS at, {2} AS more, {0} AS o"
    records = [made.format(1, "CAST(NULL AS INT)", "CAST(NULL AS STRING)"), made.format(2, 7, "CAST(NULL AS STRING)")]
    rows = [f"{number} AS id, named_struct('city', 'x') AS at, {number} AS o" for number in (1, 2, 3)]
    for sink in ({}, {"key": "id"}):
        both = [*records, made.format(3, "CAST(NULL AS INT)", "'y'")], rows
        assert found(spark, *both, on_new_column="add", **sink) == {"found": 1, "altered": 2}
        assert found(spark, *both, on_new_column="ignore", **sink) == {"found": 3}


def test_fields_are_compared_by_name_and_numbers_as_the_wider_type(spark: SparkSession) -> None:
    made = (
        "{0} AS id, named_struct('city', 'x', 'zip', {0}, 'lost', 1) AS at, "
        "array(named_struct('a', {0}, 'b', 1)) AS many, map('k', named_struct('c', {0})) AS by, "
        "{0} AS n, 'y' AS more, {0} AS o"
    )
    there = (
        "CAST({0} AS BIGINT) AS n, named_struct('Zip', {1}L, 'own', 2, 'CITY', 'x') AS at, 'z' AS own, {0} AS id,"
        "array(named_struct('a', {0}L)) AS many, map('k', named_struct('d', 1, 'c', {0}L)) AS by, {0} AS o"
    )
    both = [made.format(1), made.format(2)], [there.format(1, 1), there.format(2, 7)]
    assert found(spark, *both) == {"found": 1, "altered": 1}
    assert found(spark, *both, key="id") == {"found": 1, "altered": 1}


@pytest.mark.parametrize("sink", [{}, {"key": "id"}, {"key": "id", "ignore_null_updates": ["n"]}])
def test_null_is_the_default_where_the_record_lacks_the_field_alone(spark: SparkSession, sink: dict[str, Any]) -> None:
    lacks, has = "array('n', 'at.n')", "CAST(array() AS ARRAY<STRING>)"
    record = f"{{0}} AS id, {{1}} AS n, named_struct('m', map('k', 1), 'n', {{1}}) AS at, {{2}} AS {LACKS}, {{0}} AS o"
    null = "CAST(NULL AS INT)"
    made = [
        record.format(1, 0, lacks),
        record.format(2, 0, lacks),
        record.format(3, 0, has),
        record.format(4, null, has),
    ]
    there = [record.format(id_, n, has) for id_, n in ((1, null), (2, 0), (3, null), (4, 0))]
    assert found(spark, made, there, **sink) == {"found": 2, "altered": 2}


@pytest.mark.parametrize("sink", [{}, {"key": "id"}])
def test_what_delta_may_fill_is_compared_where_records_have_it(spark: SparkSession, sink: dict[str, Any]) -> None:
    made = ["{0} AS id, {1} AS n, {0} AS o".format(*each) for each in ((1, 7), (2, 8), (3, "CAST(NULL AS INT)"))]
    there = ["{0} AS id, {1} AS n, {0} AS o".format(*each) for each in ((1, 7), (2, 9), (3, 4))]
    assert found(spark, made, there, numbered=frozenset({"n"}), **sink) == {"found": 2, "altered": 1}
    assert found(spark, made, there, **sink) == {"found": 1, "altered": 2}


def test_the_row_of_a_record_whose_json_sorts_last_counts_by_all_that_the_record_has(spark: SparkSession) -> None:
    made = ["1 AS id, {0} AS no, {1} AS qty, {0} AS ours, 1 AS o".format(*each) for each in ((1, 9), (2, 5))]
    assert found(
        spark, made, ["1 AS id, 9 AS qty, 1 AS o"], several=True, key="id", except_column_list=["no", "ours"]
    ) == {"found": 1}
    assert found(spark, made, ["1 AS id, 5 AS qty, 1 AS o"], several=True, key="id") == {"found": 1}


def right(spark: SparkSession, text: str, kind: str, values: list[Any], *stored: float | int | None) -> list[bool]:
    """Whether each of these results of an aggregate of x is called right."""
    frame = spark.createDataFrame([(x,) for x in values], f"x {kind}")
    part = recomputed(text, "a", option="aggregates.a", own=set(), records=frame)
    assert part is not None
    made = frame.selectExpr(*(f"{sql} AS {name}" for name, sql in part.arguments.items()))
    made = made.agg(*(column.alias(name) for name, column in part.aggregates.items()))
    results = "array({})".format(
        ", ".join("NULL" if x is None else f"{x!r}{'D' if isinstance(x, float) else 'L'}" for x in stored)
    )
    found = made.selectExpr(f"posexplode({results}) AS (at, r_a)", "*").orderBy("at")
    return [row["equal"] for row in found.selectExpr(f"coalesce({part.equal}, false) AS equal").collect()]


@pytest.mark.parametrize("text", ["sum(x)", "avg(x)"])
def test_small_floating_point_numbers_are_added_up_with_18_decimals(spark: SparkSession, text: str) -> None:
    values = [1.2345678e-12, 1.2345678e-12, 2.5e-19]
    stored = sum((Decimal(repr(x)).quantize(Decimal(1).scaleb(-18)) for x in values), Decimal(0))
    exact = float(stored if text == "sum(x)" else stored / 3)
    assert right(spark, text, "DOUBLE", values, exact, exact + 5e-18) == [True, False]


@pytest.mark.parametrize("text", ["sum(x)", "avg(x)"])
@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(20, 2)", "BIGINT"])
def test_a_record_that_is_small_among_the_others_shows_in_a_sum_and_an_average(
    spark: SparkSession, text: str, kind: str
) -> None:
    if kind == "BIGINT" and text == "sum(x)":
        values: list[Any] = [10**9, -(10**9), 3]
    else:
        of = {"DOUBLE": float, "BIGINT": int}.get(kind, lambda x: Decimal(x).quantize(Decimal("0.01")))
        values = [*map(of, [1e9, 1e9 - 0.25 * (kind != "BIGINT")] * 20), of(2 if "sum" in text else 1e9 + 2)]
    total = sum(map(Decimal, values))
    made: Any = float if "avg" in text or kind != "BIGINT" else int
    last, n = Decimal(values[-1]), len(values)
    results = [total, total - last, total + last]
    if "avg" in text:
        results = [each / count for each, count in zip(results, (n, n - 1, n + 1), strict=True)]
    assert right(spark, text, kind, values, *map(made, results)) == [True, False, False]


def test_numbers_that_no_decimal_takes_are_compared_within_a_relative_error(spark: SparkSession) -> None:
    assert right(spark, "sum(x)", "DOUBLE", [1e25, 2e25, None], 3e25, 3.00000001e25) == [True, False]
    assert right(spark, "sum(x)", "DOUBLE", [None], None, 0.0) == [True, False]
    assert right(spark, "avg(x)", "DOUBLE", [None], None, 0.0) == [True, False]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("text", ["sum(x)", "avg(x)", "stddev(x)", "approx_percentile(x, 1.0)"])
def test_where_a_value_is_no_finite_number_no_result_is_right(spark: SparkSession, text: str, value: float) -> None:
    """A run takes none: any number was within the error allowed."""
    assert right(spark, text, "DOUBLE", [value, value], 5.0, 0.0) == [False, False]


def test_an_approximate_count_of_few_values_is_off_by_one_at_most(spark: SparkSession) -> None:
    text = "approx_count_distinct(x)"
    assert right(spark, text, "INT", [*range(9), 8], 9, 8, 10) == [True, False, False]
    assert right(spark, text, "INT", [*range(100)], 99, 100, 101, 98, 102) == [True] * 3 + [False] * 2
    assert right(spark, text, "INT", [*range(1000)], 1080, 890) == [True, False]


TAKES_MORE = {"path": "/tmp/t", "type": "delta_append"}
NO_COLUMN = "The table has no column for these fields of records, which aren't compared: "
UPSERTS = {"path": "/tmp/t", "type": "delta_upsert", "key": "id"}
ROWS_SENT = [
    '{"id": 1, "City": "Köln", "zip": null}',
    '{"ID": 2, "at": {"n": 1}}',
    "[1]",
    "no JSON",
    '{"id": 3, "n": 1}',
]


@pytest.mark.parametrize(
    ("value", "sink", "named"),
    [
        ({"format": "json"}, TAKES_MORE, "City, at"),
        ({"format": "json", "wire_format": "confluent"}, TAKES_MORE, "City, at"),
        ({"format": "debezium"}, UPSERTS, "City, at"),
        ({"format": "json"}, {**UPSERTS, "except_column_list": ["city", "at"]}, None),
        ({"format": "json"}, {**UPSERTS, "column_list": ["id"]}, None),
    ],
)
def test_fields_that_neither_the_file_nor_the_table_knows_are_named(
    spark: SparkSession, value: dict[str, Any], sink: dict[str, Any], named: str | None
) -> None:
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {**value, "schema": "id BIGINT"}, "on_new_column": "add", "sinks": [sink],
        }
    )  # fmt: skip
    texts = ROWS_SENT
    if value["format"] == "debezium":
        events = ('{{"op": "c", "after": {0}}}', '{{"payload": {{"op": "d", "before": {0}, "after": null}}}}')
        texts = [events[at % 2].format(text) for at, text in enumerate(ROWS_SENT)]
    frame = bytes(5) if "wire_format" in value else b""
    sent = [(bytearray(frame + text.encode()), "t", 0, at) for at, text in enumerate(texts)]
    beyond = (bytearray(frame + b'{"id": 1, "later": 1}'), "t", 0, 100)
    columns = "value BINARY, topic STRING, `partition` INT, offset BIGINT"
    table = spark.createDataFrame([], "id BIGINT, n BIGINT").schema
    records = spark.createDataFrame([*sent, beyond], columns)
    notes, unknown = fields_without_column(config, records, forms(config, table).value, table.names, CUT, None)
    assert notes == []
    assert [why.partition(".")[0] for why in unknown] == ([f"{NO_COLUMN}{named}"] if named else [])


def test_a_field_that_no_table_takes_is_in_no_column_and_its_record_aside(spark: SparkSession) -> None:
    """Where nobody knows which records are aside, or a run learns no fields, it is a note."""
    columns = "value BINARY, topic STRING, `partition` INT, offset BIGINT"
    records = spark.createDataFrame([(bytearray(b'{"id": 1, "a b": 1}'), "t", 0, 4)], columns)
    letter = spark.createDataFrame([("t", 0, 4), ("t", 1, 5)], "_topic STRING, _partition INT, _offset BIGINT")
    aside = {"on_bad_record": "dead_letter", "dead_letters": {"path": "/tmp/d"}}
    told = [f"{NO_COLUMN}a b."]
    for given, letters, notes, reasons in (
        (aside, letter, [], 0),
        (aside, letter.where("_offset = 5"), [], 1),
        (aside, None, told, 0),
        ({}, None, [], 1),
        ({"value": {"format": "json", "schema": "id BIGINT", "mode": "permissive"}}, None, told, 0),
    ):
        config = parse(
            {
                "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
                "value": {"format": "json", "schema": "id BIGINT"}, "on_new_column": "add", "sinks": [TAKES_MORE],
                **given,
            }
        )  # fmt: skip
        found = fields_without_column(config, records, forms(config).value, ["id"], CUT, letters)
        assert (found[0], len(found[1])) == (notes, reasons)


@pytest.mark.parametrize(
    ("sink", "named"),
    [
        (TAKES_MORE, "at.Zip, at.in.deep, by.value.c, many.element.b, more"),
        ({**UPSERTS, "except_column_list": ["at"]}, "by.value.c, many.element.b, more"),
        ({**UPSERTS, "column_list": ["id", "many"]}, "many.element.b"),
    ],
)
def test_fields_inside_of_columns_that_the_table_lacks_are_named(
    spark: SparkSession, sink: dict[str, Any], named: str
) -> None:
    schema = "id BIGINT, at STRUCT<city: STRING, in: STRUCT<a: INT>>, by MAP<STRING, STRUCT<n: INT>>"
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "json", "schema": schema}, "on_new_column": "add", "sinks": [sink],
        }
    )  # fmt: skip
    texts = [
        '{"id": 1, "at": {"CITY": "x", "Zip": 7, "none": null, "in": {"A": 1, "deep": {"er": 1}}}, "more": [1]}',
        '{"id": 2, "AT": {"own": 1}, "by": {"k": {"n": 1}, "l": {"c": 2}, "m": null}, "many": [{"a": 1}, {"b": 1}, 1]}',
        '{"id": 3, "at": null, "by": [1], "many": {"a": 1}}',
        '{"id": 4, "at": "text", "many": "text"}',
    ]
    sent = [(bytearray(text.encode()), "t", 0, at) for at, text in enumerate(texts)]
    records = spark.createDataFrame(sent, "value BINARY, topic STRING, `partition` INT, offset BIGINT")
    there = "id BIGINT, at STRUCT<city: STRING, own: INT, in: STRUCT<a: INT>>, many ARRAY<STRUCT<a: INT>>"
    table = spark.createDataFrame([], f"{there}, by MAP<STRING, STRUCT<n: INT>>").schema
    notes, (why,) = fields_without_column(config, records, forms(config, table).value, table.names, CUT, None)
    assert notes == []
    assert why.startswith(f"{NO_COLUMN}{named}.")
