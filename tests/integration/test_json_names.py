"""The case of JSON's names: it doesn't matter at any depth, and the name that is spelled as in the schema counts."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from audits import counts, verify
from both_decoders import by_auditor, by_pipeline, frame_of
from conftest import Lake, Topic
from json_oracle import BAD
from pyspark.sql import Row, SparkSession

from connector.decode.format import problem_of
from connector.decode.json import Json
from connector.spark.compat import from_ddl

SCHEMA = (
    "k STRING, n INT, yes BOOLEAN, at STRUCT<city: STRING, zip: STRUCT<code: DECIMAL(9,2)>>, "
    "stops ARRAY<STRUCT<city: STRING>>, by_name MAP<STRING, STRUCT<city: STRING>>"
)
EMPTY = {"k": None, "n": None, "yes": None, "at": None, "stops": None, "by_name": None}
CASES: dict[str, dict[str, Any] | None] = {
    # Whether the schema's spelling stands elsewhere in the text says nothing.
    '{"N": 5, "k": "n"}': {"n": 5, "k": "n"},
    '{"N": 5, "k": "n", "other": {"n": 6}}': {"n": 5, "k": "n"},
    '{"\\u004e": 5, "k": "n"}': {"n": 5, "k": "n"},
    '{"K" : "a", "n": 1}': {"k": "a", "n": 1},
    # The name that is spelled as in the schema counts, whichever spellings there are besides, and also as null.
    '{"k": "right", "K": "wrong", "n": 2}': {"k": "right", "n": 2},
    '{"K": "wrong", "k": null, "n": 3}': {"n": 3},
    '{"K": "wrong", "k": "right", "N": 4}': {"k": "right", "n": 4},
    '{"YES": 1, "yes": true, "Yes": "x"}': {"yes": True},
    '{"Yes": true, "YES": true}': None,
    '{"Yes": "true"}': None,
    '{"N": 1.5}': None,
    '{"N": 5, "N": 6}': {"n": 6},
    # In a STRUCT, in an ARRAY and in a MAP.
    '{"at": {"City": "Zug", "zip": {"CODE": 1.50}}}': {"at": ("Zug", ("1.50",))},
    '{"At": {"city": "Zug", "Zip": {"Code": "1.50"}}}': {"at": ("Zug", ("1.50",))},
    '{"at": {"City": "wrong", "city": "right", "ZIP": null}}': {"at": ("right", None)},
    '{"At": {"City": "wrong"}, "at": {"city": "right"}}': {"at": ("right", None)},
    '{"at": {"other": 1, "city": "City"}, "City": "x"}': {"at": ("City", None)},
    '{"stops": [{"CITY": "a\\"b"}, null, {"CITY": "{}"}]}': {"stops": [("a\"b",), None, ("{}",)]},
    '{"by_name": {"City": {"CITY": "a"}, "city": {"CITY": "b"}}}': {"by_name": {"City": ("a",), "city": ("b",)}},
    '{"At": "x"}': None,
    '{"At": "{}"}': None,
}  # fmt: skip


def plain(value: Any) -> Any:
    """A STRUCT as a tuple, a DECIMAL as its text."""
    if isinstance(value, Row):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return [*map(plain, value)]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


@pytest.mark.breadth
@pytest.mark.parametrize("permissive", [False, True])
def test_names_in_any_case_at_any_depth(spark: SparkSession, permissive: bool) -> None:
    texts = [text for text in CASES if not (permissive and '"true"' in text)]
    expected = [BAD if (row := CASES[text]) is None else EMPTY | row for text in texts]
    encoded = [text.encode() for text in texts]
    ours = by_pipeline(spark, SCHEMA, encoded, permissive)
    theirs = by_auditor(spark, SCHEMA, encoded, permissive)
    for text, row, one, other in zip(texts, expected, ours, theirs, strict=True):
        assert (text, BAD if isinstance(one, str) else plain(one)) == (text, row)
        assert (text, BAD if isinstance(other, str) else plain(other)) == (text, row)


def test_a_record_is_read_alone_as_among_others(spark: SparkSession) -> None:
    """What other records have taught changes nothing."""
    texts = [
        b'{"k": "right", "K": "wrong", "n": 2}',
        b'{"n": 3, "k": "N"}',
        b'{"N": 5, "k": "n"}',
        b'{"K": "a"}',
    ]
    together = by_pipeline(spark, SCHEMA, texts)
    assert together == [by_pipeline(spark, SCHEMA, [text])[0] for text in texts]
    assert [(row["k"], row["n"]) for row in together if not isinstance(row, str)] == [
        ("right", 2), ("N", 3), ("n", 5), ("a", None),
    ]  # fmt: skip


def test_names_in_their_own_case_are_not_looked_at(spark: SparkSession) -> None:
    """That takes a larger query, and the epoch is read again."""
    texts = [
        b'{"n": null}',
        b'{"k": "N", "yes": null}',
        b'{"k": "\\u0041\\n", "at": {"zip": {}}}',
        b'{"k": {"N2": "K"}}',
    ]
    format = Json(from_ddl(SCHEMA))
    found = format.decoded(frame_of(spark, texts), "value", "found")
    assert [row[0] for row in found.select(problem_of("found")).collect()] == [None] * len(texts)


def test_spellings_that_no_schema_can_have_are_a_bad_record(spark: SparkSession) -> None:
    texts = [b'{"stops": [{"City": "a"}, {"city": "b"}]}', b'{"at": {"City": "a", "CITY": "b"}}']
    assert by_pipeline(spark, SCHEMA, texts) == ["has a field twice, in upper and in lower case"] * 2


def test_permissive_names_need_no_quotes(spark: SparkSession) -> None:
    texts = [b"{N: 5, k: 'n'}", b"{'At': {City: /* city */ 'Zug'}}", b"{\\u004E: 5}"]
    for read in (by_pipeline, by_auditor):
        rows = [plain(row) for row in read(spark, SCHEMA, texts[:2], True)]
        assert rows == [EMPTY | {"n": 5, "k": "n"}, EMPTY | {"at": ("Zug", None)}]


@pytest.mark.breadth
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda event: event, id="bare", marks=pytest.mark.breadth),
        pytest.param(lambda event: {"schema": {"Fields": []}, "payload": event}, id="with schema"),
    ],
)
def test_the_columns_of_a_debezium_row_in_any_case(lake: Lake, topic: Topic, wrap) -> None:  # type: ignore[no-untyped-def]
    rows = [{"ID": number, "customerName": name, "at": {"City": name}} for number, name in ((1, "a"), (2, "b"))]
    topic.send(*((str(row["ID"]), wrap({"op": "c", "before": None, "after": row})) for row in rows), partition=0)
    topic.send(("2", wrap({"op": "d", "before": rows[1], "after": None})), partition=0)
    schema = "id INT, customername STRING, at STRUCT<city: STRING>"
    options: dict[str, Any] = {"value": {"format": "debezium", "schema": schema}}
    lake.pipeline(**options).run()
    held = "SELECT id, customername, at.city, _op FROM {t} ORDER BY _offset"
    assert lake.sql(held) == [(1, "a", "a", "c"), (2, "b", "b", "c"), (2, "b", "b", "d")]
    assert str(verify(lake, **options)).startswith("exact: 3 expected")
    lake.sql("UPDATE {t} SET customername = NULL WHERE _offset = 0")
    lake.sql("UPDATE {t} SET at = named_struct('city', CAST(NULL AS STRING)) WHERE _offset = 1")
    assert counts(verify(lake, **options))["altered"] == 2


@pytest.mark.breadth
def test_verify_reads_names_in_any_case_and_finds_what_is_wrong(lake: Lake, topic: Topic) -> None:
    schema = "k STRING, amount INT, unit STRING, at STRUCT<city: STRING>"
    topic.send(
        (None, b'{"k": "a", "Amount": 5, "unit": "amount", "at": {"City": "Zug"}}'),
        (None, b'{"K": "b", "amount": 6}'), (None, b'{"k": "right", "K": "wrong", "amount": 7}'), partition=0,
    )  # fmt: skip
    lake.pipeline(schema=schema).run()
    held = "SELECT k, amount, unit, at.city FROM {t} ORDER BY _offset"
    assert lake.sql(held) == [("a", 5, "amount", "Zug"), ("b", 6, None, None), ("right", 7, None, None)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a user would see it on the terminal
        assert str(verify(lake, schema=schema)) == "exact: 3 expected, 3 found"
    lake.sql("UPDATE {t} SET amount = NULL, at = NULL WHERE _offset = 0")
    lake.sql("UPDATE {t} SET k = IF(_offset = 1, NULL, 'wrong') WHERE _offset > 0")
    assert counts(verify(lake, schema=schema))["altered"] == 3
