"""``schema: inferred``: which columns and types the first records show."""

from __future__ import annotations

import json

import pytest

from connector.decode.inferred import inferred


def of(*values: object) -> str | None:
    return inferred(
        value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1], "BIGINT"),
        ([2**63], "DECIMAL(38, 0)"),
        ([1, 10**30], "DECIMAL(38, 0)"),
        ([10**40], "STRING"),
        ([1.5], "DOUBLE"),
        ([1, 2.5], "DOUBLE"),
        ([2**63, 2.5], "STRING"),
        ([1.5, 2**53 + 1], "STRING"),
        ([2**53 + 1, 1], "BIGINT"),
        ([2**53 + 1, 2**70], "DECIMAL(38, 0)"),
        ([{"a": {"Id": 1}}, {"a": {"id": 2}}], "STRUCT<`a`: STRING>"),
        ([[{"Id": 1}], [{"id": 2}]], "ARRAY<STRING>"),
        ([True, False], "BOOLEAN"),
        ([True, 1], "STRING"),
        (["x", 1], "STRING"),
        ([None], "STRING"),
        ([None, 1], "BIGINT"),
        ([[1], [2.5], []], "ARRAY<DOUBLE>"),
        ([[]], "ARRAY<STRING>"),
        ([[1], 1], "STRING"),
        ([[{"a": 1}, {"b": "x"}]], "ARRAY<STRUCT<`a`: BIGINT, `b`: STRING>>"),
        ([{"a": {"b": None}}, {"a": {"b": True}}], "STRUCT<`a`: STRUCT<`b`: BOOLEAN>>"),
        ([{}], "STRING"),
        ([{}, {"a": 1}], "STRUCT<`a`: BIGINT>"),
        ([{"a": 1}, "text"], "STRING"),
        ([{"a": 1, "A": 2}], "STRING"),
        (["2026-11-26T10:00:00Z"], "STRING"),
    ],
)
def test_a_type_that_loses_nothing(values: list[object], kind: str) -> None:
    assert of(*({"f": value} for value in values)) == f"`f` {kind}"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("0.1", "DOUBLE"), ("1e3", "DOUBLE"), ("-0.000123456789012345", "DOUBLE"), ("1.2345678901234567", "STRING"),
        ("1e999", "STRING"),
    ],
)  # fmt: skip
def test_a_fraction_that_a_double_may_not_hold_is_text(number: str, kind: str) -> None:
    assert of(f'{{"f": {number}}}'.encode()) == f"`f` {kind}"


def test_every_field_of_any_record_is_a_column() -> None:
    assert of({"a": 1, "A": 2.5}) == "`a` DOUBLE"
    assert of({"a": 1}, {"b c": "x"}, {"A": 2, "d`e": None}) == "`a` BIGINT, `b c` STRING, `d``e` STRING"


@pytest.mark.parametrize("value", [b"", b"no json", b"[1]", b"{}", b'{"a": NaN}', None, b"\xff", b"[" * 100_000])
def test_what_is_no_object_shows_nothing(value: bytes | None) -> None:
    assert of(value) is None
    assert of(value, {"a": 1}) == "`a` BIGINT"
