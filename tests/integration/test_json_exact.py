"""JSON by RFC 8259: what every decoder here makes of each text and each number, or that it is a bad record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import json_oracle as oracle
import pytest
from audits import counts, places, verify
from both_decoders import Row, by_auditor, by_pipeline, has_variant
from columns import compared
from conftest import Lake, Topic
from json_oracle import BAD, Number, Object, meaning
from json_texts import ACCEPTED, FREE, REFUSED
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

import connector.audit as audited
from connector.audit.decode import decoded
from connector.audit.exact_json import of_text
from connector.audit.formats import Form, Forms
from connector.audit.kafkas_key import of_kafkas_key as their_key
from connector.decode import json_decimals
from connector.decode.json import Json
from connector.decode.tombstone_key import of_kafkas_key
from connector.lab.bench.broker import Broker
from connector.spark.compat import from_ddl

pytestmark = pytest.mark.compiled

WHOLE = "not one JSON object that fits value.schema"
LOSS = "can't be had as value.schema says without loss"


PLACES = ("{0}", '{{"text": {0}}}', '{{"variant": {0}}}', '{{"other": {0}}}', '{{"list": [{0}]}}')
TEXTS = {
    name: [text for texts in group.values() for text in texts]
    for name, group in {"accepted": ACCEPTED, "refused": REFUSED, "free": FREE}.items()
}
NAMED = ("text", "a", "asd", "x", "id", "title", "min")


def placed(place: str, text: bytes) -> bytes:
    before, after = place.format("\0").encode().split(b"\0")
    return before + text + after


def records_of(spark: SparkSession) -> list[bytes]:
    places = [place for place in PLACES if "variant" not in place or has_variant(spark)]
    return [placed(place, text) for place in places for texts in TEXTS.values() for text in texts]


def expected_row(record: bytes) -> dict[str, Any] | str:
    found = meaning(record)
    if not isinstance(found, Object):
        return BAD
    fields = dict(found)
    variant = fields.get("variant")
    lost = any(oracle.in_variant(number) is BAD for number in oracle.numbers_of(variant))
    listed = fields.get("list")
    if lost or oracle.has_name_twice(variant) or not (listed is None or isinstance(listed, list)):
        return BAD
    return {name: fields.get(name) for name in (*NAMED, "list", "variant")}


def same(expected: Any, found: Any) -> bool:
    """Whether a STRING column has this value: a string as it is, and the JSON of anything else."""
    if expected is None or (type(expected) is str):
        return expected == found
    if isinstance(expected, bool):
        return found == json.dumps(expected)
    return found is not None and meaning(found.encode()) == expected


def same_numbers(expected: Any, found: Any) -> bool:
    """As ``same``, of a VARIANT, which keeps the value of a number, but not its text, and not the order of names."""
    while isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found) == 1:
        expected, found = expected[0], found[0]  # some are 500 deep
    if isinstance(expected, Number):
        kept = oracle.in_variant(expected)
        return isinstance(found, Number) and type(kept)(found) == kept
    if isinstance(expected, Object):
        return isinstance(found, Object) and all(
            name == of and same_numbers(each, other)
            for (name, each), (of, other) in zip(sorted(expected), sorted(found), strict=True)
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(same_numbers, expected, found))
    return bool(expected == found)


def test_the_oracle_knows_what_every_parser_has_to_take() -> None:
    assert [text for text in TEXTS["accepted"] if meaning(text) is BAD] == []
    assert [text for text in TEXTS["refused"] if meaning(text) is not BAD] == []


def test_each_text_in_each_place_is_a_row_or_a_bad_record(spark: SparkSession) -> None:
    schema = ", ".join(f"{name} STRING" for name in NAMED) + ", list ARRAY<STRING>"
    records = records_of(spark)
    found = by_pipeline(spark, schema + (", variant VARIANT" if has_variant(spark) else ""), records)
    wrong = []
    for record, row in zip(records, found, strict=True):
        expected = expected_row(record)
        if expected is BAD or isinstance(row, str):
            right = expected is BAD and isinstance(row, str)
        else:
            right = all(same(expected[name], row[name]) for name in NAMED)
            right = right and len(expected["list"] or []) == len(row["list"] or [])
            right = right and all(map(same, expected["list"] or [], row["list"] or []))
            variant = row.get("variant")
            of_variant = None if variant is None else meaning(variant.encode())
            right = right and same_numbers(expected["variant"], of_variant)
        if not right:
            wrong.append((record[:80], expected, row))
    assert wrong == []


def test_the_auditor_reads_each_text_as_the_pipeline_does(spark: SparkSession) -> None:
    """It takes a text after the end of the object, which the pipeline refuses: such a letter is unconfirmed."""
    schema = ", ".join(f"{name} STRING" for name in NAMED) + ", list ARRAY<STRING>"
    records = [record for record in records_of(spark) if not record.startswith(b'{"variant"')]
    theirs = by_auditor(spark, schema, records)
    ours = by_pipeline(spark, schema, records)
    wrong = []
    for record, one, other in zip(records, ours, theirs, strict=True):
        if isinstance(one, str):
            if other is not BAD and not goes_on(record):
                wrong.append((record[:80], one, other))
        elif one != other:
            wrong.append((record[:80], one, other))
    assert wrong == []


def goes_on(record: bytes) -> bool:
    """Whether something stands after the first JSON value."""
    try:
        json.JSONDecoder().raw_decode(record.decode().lstrip())
    except ValueError:
        return False
    return True


@pytest.mark.breadth
@pytest.mark.spark4("the columnar reader is built for Spark 4")
def test_the_columnar_reader_takes_only_texts_that_are_json(spark: SparkSession, broker: Broker) -> None:
    schema = ", ".join(f"{name} STRING" for name in NAMED) + ", list ARRAY<STRING>"
    records = [record for record in records_of(spark) if not record.startswith(b'{"variant"')]
    taken = compared(spark, broker, records, Json(from_ddl(schema)))
    assert [record for record in taken if expected_row(record) is BAD] == []
    assert b'{"other": [1E22]}' in taken


NOT_NUMBERS = ["NaN", "Infinity", "-Infinity", "-NaN", "+Infinity", "INF", "-INF", "+INF"]
NOT_A_NUMBER_IN = [
    '{{"s": {0}}}', '{{"d": {0}}}', '{{"f": {0}}}', '{{"i": {0}}}', '{{"other": {0}}}', '{{"other": [{0}]}}',
    '{{"s": {{"x": [1, {0}]}}}}', '{{"s": [{0}]}}', '{{"a": ["x", {0}]}}', '{{"m": {{"x": {0}}}}}',
    '{{"t": {{"s": {0}}}}}', '{{"t": {{"other": {{"x": {0}}}}}}}', '{{"p": {0}}}',
]  # fmt: skip
WITH_NAN = (
    "s STRING, d DOUBLE, f FLOAT, i INT, a ARRAY<STRING>, m MAP<STRING, STRING>, t STRUCT<s: STRING>, p DECIMAL(5,2)"
)


@pytest.mark.breadth
@pytest.mark.parametrize("permissive", [False, True])
def test_nan_and_infinity_are_no_json_wherever_they_stand(spark: SparkSession, permissive: bool) -> None:
    variant = ['{{"v": {0}}}', '{{"v": {{"x": [{0}]}}}}'] if has_variant(spark) else []
    texts = [place.format(each).encode() for place in [*NOT_A_NUMBER_IN, *variant] for each in NOT_NUMBERS]
    schema = WITH_NAN + (", v VARIANT" if variant else "")
    assert {*by_pipeline(spark, schema, texts, permissive)} == {WHOLE}
    of_auditor = [text for text in texts if not text.startswith(b'{"v"')]
    assert {*map(str, by_auditor(spark, WITH_NAN, of_auditor, permissive))} == {BAD}
    words = [b'{"s": "NaN"}', b'{"s": "-Infinity", "other": "NaN"}', b'{"s": {"NaN": "Infinity"}}']
    found = by_pipeline(spark, schema, words, permissive)
    assert [row["s"] for row in found if not isinstance(row, str)] == ["NaN", "-Infinity", '{"NaN":"Infinity"}']


def test_a_number_in_quotes_is_no_number(spark: SparkSession) -> None:
    texts = [b'{"d": "NaN"}', b'{"d": "Infinity"}', b'{"d": "1.5"}']
    assert by_pipeline(spark, "d DOUBLE", texts) == [WHOLE] * 3
    found = by_pipeline(spark, "d DOUBLE", texts, permissive=True)
    assert [str(row["d"]) for row in found if not isinstance(row, str)] == ["nan", "inf", "1.5"]


SIGNS = ["", "-"]
MANTISSAS = [
    "0", "1", "5", "7", "10", "100", "0.0", "0.00", "0.1", "0.5", "1.0", "1.5", "1.50", "2.25", "1.234", "1.005",
    "999.99", "999.995", "1000", "127", "128", "32768", "16777217", "2147483647", "2147483648", "2147483649",
    "9007199254740993", "9223372036854775807", "9223372036854775808", "9223372036854775809", "18446744073709551616",
    "0.30000000000000004", "0.1234567890", "0.12345678901", "1.7976931348623157", "2.2250738585072014",
    "123456789012345678", "12345678901234567", "1234567890123456789012345678", "12345678901234567890123456789012345678",
    "99999999999999999999999999999999999999", "100000000000000000000000000000000000000",
    "123456789012345678901234567890123456789012345678", "1.2345678901234567890123456789012345678",
    "1.23456789012345678901234567890123456789", "0." + "0" * 37 + "1", "0." + "0" * 38 + "1", "0." + "0" * 50 + "1",
    "0." + "0" * 400 + "1", "1" + "0" * 400, "1.00000017881393432617187499", "1.00000017881393432617187500",
    "1.00000017881393432617187501", "0.1" + "0" * 60, "1." + "5" * 60,
]  # fmt: skip
EXPONENTS = [
    "e0",
    "E1",
    "e2",
    "E+2",
    "e-2",
    "E-10",
    "e-11",
    "e22",
    "e38",
    "E39",
    "e-45",
    "e-46",
    "e308",
    "E309",
    "e-308",
]
EXPONENTS += ["e-324", "e-325", "E-999", "e999", "E+9999", "E-9999", "e00000000000001", "e99999999999"]
NOT_WRITTEN = [
    "+1", "01", "-01", "00", "1.", "-1.", ".5", "-.5", "1.e5", "1e", "1e+", "e5", "0x10", "0b1", "1_000", "1,5", "1 5",
    "--1", "-", "- 1",
    "1.2.3", "1e5.5", "1f", "1d", "1L", "\u0661", "\u00bd", "1e5e5", "0e", "-0x1", "infinity", "nan", "\u221e", "1'0",
]  # fmt: skip
NUMBERS = [
    *(sign + mantissa for sign in SIGNS for mantissa in MANTISSAS),
    *(each + exponent for each in ("0", "1", "1.5", "4.9", "125", "0.001", "1.17549435") for exponent in EXPONENTS),
    "3.4028235e38", "3.4028236e38", "3.5e38", "1.4e-45", "7e-46", "7.1e-46", "2.4703282292062328e-324",
    "2.4703282292062327e-324", "1.7976931348623157e308", "1.7976931348623159e308", "12345678901234567890e-5",
    "1.2345678901234567e-7", "1.23456789012345678e-7", "-0e5", "-0.0e-5", *NOT_WRITTEN,
]  # fmt: skip
COLUMNS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "s": ("STRING", oracle.in_string),
    "i": ("INT", partial(oracle.in_whole, bits=32)),
    "b": ("BIGINT", partial(oracle.in_whole, bits=64)),
    "d": ("DOUBLE", oracle.in_double),
    "f": ("FLOAT", oracle.in_float),
    "p": ("DECIMAL(38,10)", partial(oracle.in_decimal, precision=38, scale=10)),
    "q": ("DECIMAL(5,2)", partial(oracle.in_decimal, precision=5, scale=2)),
    "v": ("VARIANT", oracle.in_variant),
}


def test_each_number_in_each_type_is_exact_or_a_bad_record(spark: SparkSession) -> None:
    assert len({*NUMBERS}) > 200
    columns = {name: each for name, each in COLUMNS.items() if name != "v" or has_variant(spark)}
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    cases = [(name, number) for name in columns for number in NUMBERS]
    texts = [f'{{"{name}": {number}}}'.encode() for name, number in cases]
    assert wrong_numbers(cases, by_pipeline(spark, schema, texts)) == []
    of_auditor = [(case, text) for case, text in zip(cases, texts, strict=True) if case[0] != "v"]
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items() if name != "v")
    found = by_auditor(spark, schema, [text for _, text in of_auditor])
    assert wrong_numbers([case for case, _ in of_auditor], found) == []


def wrong_numbers(cases: Sequence[tuple[str, str]], rows: Sequence[Row | str]) -> list[Any]:
    wrong = []
    for (name, number), row in zip(cases, rows, strict=True):
        kind, of_number = COLUMNS[name]
        expected = of_number(number) if oracle.NUMBER.fullmatch(number) else BAD
        if isinstance(row, str):
            right = expected is BAD
        else:
            found = row[name]
            if name == "v" and found is not None and expected is not BAD:
                found = type(expected)(found)
            right = expected is not BAD and found == expected
        if not right:
            wrong.append((kind, number[:60], expected, row))
    return wrong


@pytest.mark.spark4("the columnar reader is built for Spark 4")
def test_the_columnar_reader_takes_each_number_as_spark_sql_does(spark: SparkSession, broker: Broker) -> None:
    columns = {name: kind for name, (kind, _) in COLUMNS.items() if name != "v"}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    texts = [f'{{"{name}": {number}}}'.encode() for name in columns for number in NUMBERS]
    taken = compared(spark, broker, texts, Json(from_ddl(schema)))
    assert {b'{"d": 1.5}', b'{"d": 1e-308}', b'{"i": 7}', b'{"q": 999.99}'} <= taken
    assert {b'{"d": 1E-999}', b'{"f": 1e-46}', b'{"d": 4.9e-325}', b'{"f": 7e-46}'} & taken == set()


KEPT = [
    ('{"s": 1.50}', "1.50"),
    ('{"s": 1.5E+9999}', "1.5E+9999"),
    ('{"s": -0}', "-0"),
    ('{"s": 123456789012345678901234567890.10}', "123456789012345678901234567890.10"),
    ('{"s": {"b": 1.50, "c": 1E400}}', '{"b":1.50,"c":1E400}'),
    ('{"s": [1.50, {"x": -0}, "1.50", "a\\"1.50"], "other": "2.50"}', '[1.50,{"x":-0},"1.50","a\\"1.50"]'),
    ('{"s": "1.50"}', "1.50"),
    ('{"s": "1.5", "other": 1.50}', "1.5"),
    ('{"S": 1.50}', "1.50"),
    ('{"\\u0073": 1.50}', "1.50"),
    ('{"s": 1.50, "s": 2.50}', "2.50"),
    ('{"s": "x", "n": 1.50}', "x"),
]


def test_a_string_keeps_the_text_of_a_number(spark: SparkSession) -> None:
    texts = [text.encode() for text, _ in KEPT if "S" not in text]
    expected = [found for text, found in KEPT if "S" not in text]
    nested = "s STRING, a ARRAY<STRING>, m MAP<STRING, STRING>, t ARRAY<STRUCT<s: STRING, n: INT>>"
    assert [row["s"] for row in by_pipeline(spark, nested, texts) if not isinstance(row, str)] == expected
    assert [row["s"] for row in by_auditor(spark, nested, texts) if not isinstance(row, str)] == expected
    inside = [
        b'{"a": [1.50, "x", null]}', b'{"m": {"x": 1.50, "y": "1.50"}}', b'{"t": [{"s": 1.50, "n": 7}, null]}',
        b'{"a": ["x"], "t": [{"s": "y", "n": 8}]}',
    ]  # fmt: skip
    for found in (by_pipeline(spark, nested, inside), by_auditor(spark, nested, inside)):
        rows = [row for row in found if not isinstance(row, str)]
        assert [rows[0]["a"], rows[1]["m"], rows[3]["a"]] == [["1.50", "x", None], {"x": "1.50", "y": "1.50"}, ["x"]]
        assert [rows[2]["t"], rows[3]["t"]] == [[("1.50", 7), None], [("y", 8)]]


def test_permissive_json_keeps_the_text_of_a_number_too(spark: SparkSession) -> None:
    texts = [b"{'s': 1.50}", b"{s1: 1, s: 1.50}", b"{/* 2.5, ' */ s: 1.50 // 3.5'\n}", b"{1: 2.5, s: 1.50}"]
    texts += [b"{s: '2.5, 1.50', n: 1.0}", b"{s: 007}", b"{d: 1e-999}", b"{d: '1e-999'}", b"{d: 0.10}"]
    for read in (by_pipeline, by_auditor):
        found = read(spark, "s STRING, n INT, d DOUBLE", texts, True)
        assert [row["s"] for row in found[:6] if not isinstance(row, str)] == ["1.50"] * 4 + ["2.5, 1.50", "007"]
        assert [isinstance(row, str) for row in found[6:]] == [True, True, False]


LONG = "1.25" + "0" * 40 + "1"
IN_QUOTES = {
    "1.5": "1.50", "+1.5": "1.50", "-.5": "-0.50", "5.": "5.00", "1e2": "100.00", "007": "7.00", "1.250000": "1.25",
    **dict.fromkeys(("1,50", "1,5", ",5", "5,", "1,234.5", "1\\u002c5", "", " 1", "1 ", "\uff11", "\u0661.5"), BAD),
    **dict.fromkeys((LONG, f"+{LONG}", "1.25" + "\\u0030" * 40 + "1"), BAD),
    **dict.fromkeys(("+1e99999999", "1,0e99999999", "1\\u006599999999", "1e99999999"), BAD),
}  # fmt: skip
"""Strings -> the DECIMAL(5,2) that they are. Spark's parser reads "1,50" as 150, and takes minutes for a huge one."""
DECIMALS = ["q DECIMAL(5,2)", "a ARRAY<DECIMAL(5,2)>", "m MAP<STRING, DECIMAL(5,2)>", "t STRUCT<q: DECIMAL(5,2)>"]
DECIMALS_AT = ['{{"q": {0}}}', '{{"a": [1, {0}]}}', '{{"m": {{"x": {0}}}}}', '{{"t": {{"q": {0}}}}}']


@pytest.mark.parametrize("permissive", [False, pytest.param(True, marks=pytest.mark.breadth)])
def test_a_string_is_a_decimal_only_as_it_is_written(spark: SparkSession, permissive: bool) -> None:
    cases = [(place.format(f'"{text}"').encode(), value) for place in DECIMALS_AT for text, value in IN_QUOTES.items()]
    found = by_pipeline(spark, ", ".join(DECIMALS), [text for text, _ in cases], permissive)
    wrong = [
        (text, value, row)
        for (text, value), row in zip(cases, found, strict=True)
        if (BAD if isinstance(row, str) else str(row).count(f"Decimal('{value}')")) not in (value, 1)
    ]
    assert wrong == []
    theirs = by_auditor(spark, ", ".join(DECIMALS), [text for text, _ in cases], permissive)
    assert [text for (text, value), row in zip(cases, theirs, strict=True) if (row is BAD) != (value is BAD)] == []
    ids = [
        b'{"a": [1], "id": "Doe, John"}',
        b'{"a": [1], "id": "1234567e-8901-4234"}',
        b'{"a": [1], "id": "7e123456-89"}',
    ]
    assert [str(row) for row in by_pipeline(spark, ", ".join(DECIMALS), ids, permissive) if isinstance(row, str)] == []


def test_permissive_json_rounds_no_number_without_quotes_around_its_name(spark: SparkSession) -> None:
    texts = [f"{{q: {LONG}}}", f"{{'q': {LONG}}}", f"{{q /*,*/ : /*:*/ {LONG}}}", "{i: 5.0000000000000000001}"]
    texts += ["{q: 1e99999999}", "{q /*,*/: /* */ 1e99999999}", "{i: 1e99999999}", "{i: '1,5'}"]
    found = by_pipeline(spark, "q DECIMAL(5,2), i INT", [text.encode() for text in texts], permissive=True)
    assert [isinstance(row, str) for row in found] == [True] * len(texts)
    good = [b"{q: 1.250000, i: 5.0}", b'{"other": 0.12345678901234567, i: "5"}']
    assert [row["i"] for row in by_pipeline(spark, "q DECIMAL(5,2), i INT", good, permissive=True)] == [5, 5]  # type: ignore[index]


BESIDE: list[tuple[str, dict[str, Any]]] = [
    ('{"price": 1.5, "raw": {"price": 0.123456789012345}}', {"price": Decimal("1.5")}),
    ('{"raw": {"price": 0.123456789012345}, "price": "1.5"}', {"price": Decimal("1.5")}),
    ('{"prices": [1.5], "lat": 52.520006599999}', {"prices": [Decimal("1.5")], "lat": 52.520006599999}),
    ('{"prices": [1.5], "lat": 1e-20, "other": 0.123456789012345}', {"prices": [Decimal("1.5")], "lat": 1e-20}),
    ('{"prices": [1.5], "sku": "4e12345"}', {"prices": [Decimal("1.5")], "sku": "4e12345"}),
    ('{"prices": [1.5], "other": "4e12345"}', {"prices": [Decimal("1.5")]}),
    ('{"rates": {"a": 1.5}, "lat": 52.520006599999}', {"rates": {"a": Decimal("1.5")}}),
    ('{"\\u0070rice": 1.5, "lat": 52.520006599999}', {"price": Decimal("1.5")}),
]
"""Texts, and fields of them, beside numbers that a DECIMAL couldn't hold in fields that aren't one."""
ROUNDED = [
    "0.123456789012345",
    "1e-20",
    '"0.123456789012345"',
    '"5.e-40"',
    '"1E-20"',
    "4e12345",
    '"4e12345"',
    "1.23456789012e0",
]
ROUNDED_AT = [
    '{{"price": {0}, "lat": 1.5}}', '{{"lat": 0.123456789012345, "price": {0}}}', '{{"prices": [1.5, {0}]}}',
    '{{"prices": [{0}], "sku": "x"}}', '{{"rates": {{"a": {0}}}}}', '{{"all": [{{"price": {0}}}, null]}}',
    '{{"\\u0070rice": {0}}}', '{{"rates": {{"a": 1, "b": {0}}}, "price": 1}}', '{{"many": {{"a": [1, {0}]}}}}',
]  # fmt: skip


@pytest.mark.breadth
def test_a_decimal_is_judged_by_its_own_text_and_not_by_that_of_other_fields(spark: SparkSession) -> None:
    kind = "DECIMAL(38,10)"
    schema = (
        f"price {kind}, raw STRUCT<price: DOUBLE>, prices ARRAY<{kind}>, lat DOUBLE, sku STRING, "
        f"rates MAP<STRING, {kind}>, all ARRAY<STRUCT<price: {kind}>>, many MAP<STRING, ARRAY<{kind}>>"
    )
    of_rates = [text for text, _ in BESIDE if "4e12345" in text]  # which any value of a text might be
    small = schema.replace(f"rates MAP<STRING, {kind}>, ", "")
    for texts, of in ((of_rates, small), ([text for text, _ in BESIDE if text not in of_rates], schema)):
        records = [text.encode() for text in texts]
        for found in (by_pipeline(spark, of, records), by_auditor(spark, of, records)):
            for text, row in zip(texts, found, strict=True):
                assert not isinstance(row, str), text
                assert dict(BESIDE)[text].items() <= row.items()
    lossy = [place.format(number).encode() for place in ROUNDED_AT for number in ROUNDED]
    taken = [
        text for text, row in zip(lossy, by_pipeline(spark, schema, lossy), strict=True) if not isinstance(row, str)
    ]
    assert taken == []


@pytest.mark.breadth
def test_permissive_json_takes_no_rest_after_a_date_or_a_number(spark: SparkSession) -> None:
    wrong = ["2026-11-01T23:30:00-05:00", "2026-11-01 until further notice", "2026"]
    texts = [f'{{"day": "{each}"}}' for each in wrong]
    texts += [f'{{"d": "{each}"}}' for each in ("12d", "0x10p1", "7F")] + ['{"at": "10:00"}']
    schema, records = "day DATE, d DOUBLE, at TIMESTAMP", [text.encode() for text in texts]
    assert [isinstance(row, str) for row in by_pipeline(spark, schema, records, permissive=True)] == [True] * 7
    assert by_auditor(spark, schema, records, permissive=True) == [BAD] * 7
    right = [b'{"day": "2026-11-01", "d": 1e22}', b"{'day': '2026-11-01', 'd': '1e22'}", b'{"d": "-Infinity"}']
    assert by_pipeline(spark, schema, right, True) == by_auditor(spark, schema, right, True)


@pytest.mark.breadth
def test_a_field_in_another_case_keeps_its_number(lake: Lake, topic: Topic) -> None:
    topic.send(("k", b'{"S": 1.50, "D": 0.25}'), partition=0)
    lake.pipeline(schema="s STRING, d DECIMAL(9,4)", source={"reader": "spark"}).run()
    assert lake.sql("SELECT s, d FROM {t}") == [("1.50", Decimal("0.2500"))]


KEY_TEXTS = {
    b'{"id": 0.12345678906}': None, b"0.12345678906": None, b'"0.12345678906"': None, b'{"id": 1e-400}': None,
    b'{"id": 0.125}': Decimal("0.125"), b"0.125": Decimal("0.125"), b'"0.125"': Decimal("0.125"), b"1e99999999": None,
    b"1250e-4": Decimal("0.125"), b"x": None, b'{"id": 1e99999999}': None,
    # As Kafka Connect's JsonConverter sends keys, unless its `schemas.enable` is off.
    b'{"schema": {"type": "struct", "version": 1}, "payload": {"id": 0.125}}': Decimal("0.125"),
    b'{"schema": {"type": "double"}, "payload": 0.125}': Decimal("0.125"),
    b'{"schema": null, "payload": {"id": "0.125"}}': Decimal("0.125"),
    b'{"schema": {}, "payload": {"id": 0.12345678906}}': None, b'{"schema": {}, "payload": {"id": 1e-400}}': None,
    b'{"schema": {}, "payload": {}}': None, b'{"schema": {}, "payload": null}': None,
    b'{"schema": "s", "payload": {"id": 1}}': None, b'{"schema": {}, "payload": {"id": 1}, "id": 8}': Decimal(8),
    # Names have no case, as in values.
    b'{"ID": 0.125}': Decimal("0.125"), b'{"Id" : 0.12345678906}': None, b'{"ID": 1, "iD": 2}': None,
    b'{"schema": {}, "payload": {"ID": 7}}': Decimal(7), b'{"id": 3, "ID": 4}': Decimal(3), b'{"of": {"ID": 1}}': None,
}  # fmt: skip


def test_a_tombstones_key_is_exact_or_null(spark: SparkSession) -> None:
    kind = from_ddl("id DECIMAL(38,10), n INT")
    assert isinstance(kind, StructType)
    keys = spark.createDataFrame([(key, n) for n, key in enumerate(KEY_TEXTS)], "key BINARY, n INT").coalesce(1)
    found = keys.orderBy("n").selectExpr(f"{of_kafkas_key(kind, ['id'])['id']} AS id").collect()
    assert [row["id"] for row in found] == [*KEY_TEXTS.values()]
    kafka = "key", "CAST(NULL AS BINARY) AS value", "'t' AS topic", "0 AS partition", "CAST(n AS BIGINT) AS offset"
    records = keys.selectExpr(*kafka, "TIMESTAMP'2026-01-01' AS timestamp")
    theirs = decoded(records, Forms(Form(kind), None, False, None), ("id",), ruled=False).frame.orderBy("_offset")
    assert [row["id"] for row in theirs.collect()] == [*KEY_TEXTS.values()]


@pytest.mark.breadth
def test_a_key_of_several_columns_may_be_within_its_schema(spark: SparkSession) -> None:
    kind = from_ddl("payload STRING, n BIGINT, other INT")
    assert isinstance(kind, StructType)
    texts = {
        b'{"schema": {"fields": [{"field": "n"}]}, "payload": {"n": 7, "payload": "{1.50}"}}': ("{1.50}", 7),
        b'{"payload": {"n": 7}, "n": 8}': ('{"n":7}', 8), b'{"schema": {}, "payload": 7}': (None, None),
    }  # fmt: skip
    key = ["payload", "n"]
    keys = spark.createDataFrame([(text, n) for n, text in enumerate(texts)], "key BINARY, i INT").coalesce(1)
    ours = keys.orderBy("i").selectExpr(*(f"{sql} AS {name}" for name, sql in of_kafkas_key(kind, key).items()))
    assert [(row["payload"], row["n"]) for row in ours.collect()] == [*texts.values()]
    theirs = keys.orderBy("i").select(*(their_key(kind[name], alone=False).alias(name) for name in key))
    assert [(row["payload"], row["n"]) for row in theirs.collect()] == [*texts.values()]


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "DECIMAL(9,0)", "STRING", "BOOLEAN"])
def test_a_header_before_a_tombstones_key_is_no_part_of_it(spark: SparkSession, kind: str) -> None:
    """The ID 49 is the digit 1 in ASCII, and zeros before a number don't count for a cast: 42 would be 142."""
    texts = [b"\0\0\0\x00142", b"\0\0\0\x00" + b"5" + b"true", b"\0\0\0\x0542", b"\x0242", b"42", b"true"]
    wanted = from_ddl(f"id {kind}")
    assert isinstance(wanted, StructType)
    keys = spark.createDataFrame([(key, n) for n, key in enumerate(texts)], "key BINARY, n INT").coalesce(1)
    sql = of_kafkas_key(wanted, ["id"])["id"], of_text(wanted["id"].dataType, "CAST(key AS STRING)")
    for found in ([row["id"] for row in keys.orderBy("n").selectExpr(f"{each} AS id").collect()] for each in sql):
        assert found[:4] == [None] * 4
        assert len([each for each in found[4:] if each is not None]) >= 1


@pytest.mark.breadth
def test_verify_finds_a_decimal_that_an_older_version_has_rounded(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"schema": "k STRING, d DECIMAL(38,10)", "source": {"reader": "spark"}}
    topic.send(("a", b'{"k": "a", "d": 1.5}'), ("b", b'{"k": "b", "d": 0.12345678906}'), partition=0)
    monkeypatch.setattr(json_decimals, "is_number", lambda *_: "true")
    lake.pipeline(**options).run()
    assert lake.sql("SELECT d FROM {t} WHERE k = 'b'") == [(Decimal("0.1234567891"),)]
    found = verify(lake, **options)
    assert not found.ok
    assert [place[1] for place in places(found).values()] == [1]


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "upsert", "aggregate"])
def test_a_null_for_a_number_that_does_not_fit_is_never_exact(
    kind: str, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what from_json makes of such a number, without a word."""
    sink = {"group_by": "k", "aggregates": {"d": "sum(d)"}} if kind == "aggregate" else None
    options = {"schema": "k STRING, d DECIMAL(5,2)", **({"sink": sink} if sink else {})}
    topic.send(("a", b'{"k": "a", "d": 1.5}'), ("b", b'{"k": "b", "d": null}'), partition=0)
    lake.pipeline(kind, **options).run()
    assert verify(lake, kind, **options).ok
    # The same table, and a topic in which the number of "b" is one that doesn't fit.
    real = audited.kafka_records

    def other(*args: Any, **kwargs: Any) -> Any:
        changed = "encode(replace(decode(value, 'UTF-8'), 'null', '123456.789'), 'UTF-8')"
        return real(*args, **kwargs).withColumn("value", expr(changed))

    monkeypatch.setattr(audited, "kafka_records", other)
    found = verify(lake, kind, **options)
    said = {"append": "not exact", "upsert": "not exact", "aggregate": "unknown"}
    assert (found.verdict.value, "altered" in counts(found)) == (said[kind], kind != "aggregate")
