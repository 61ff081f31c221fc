"""What a text has to look like before Spark's cast may read it, in the pipeline and for the auditor: the cast takes
more, and drops it or takes it for something else."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import types as T

from connector.audit import exact_json
from connector.decode import json_lossless
from connector.decode.exact_cast import of_text
from sinks.spark.sql import literal


def pipelines(kind: T.DataType) -> list[str]:
    """SQL for a cast of the steps or a key, and for permissive JSON."""
    sound = json_lossless.exact(kind, permissive=True).sound
    assert sound is not None
    return [of_text(kind, "_text"), sound("_text", None)]


def auditors(kind: T.DataType) -> list[str]:
    return [exact_json.of_text(kind, "_text"), exact_json.value(kind, "_text", permissive=True)]


@pytest.mark.parametrize("pattern", [json_lossless.DATE, exact_json.DATE])
def test_a_date_has_nothing_before_or_after_it(pattern: str) -> None:
    texts = ["2026", "2026-11", "2026-11-01T23:30:00-05:00", "2026-11-01 until further notice", "2026-11-01Tx"]
    assert [text for text in texts if re.search(pattern, text)] == []
    assert re.search(pattern, "2026-11-01")


@pytest.mark.parametrize("pattern", [json_lossless.FLOATING, exact_json.FLOATING])
def test_a_number_is_written_with_digits(pattern: str) -> None:
    texts = ["12d", "7F", "10D", "12E", "0x10p1", "1_000", "1 5", "", ".", "e5", "1e", "one"]
    assert [text for text in texts if re.search(pattern, text)] == []
    texts = ["0", "-1", "+1", "01", "1.", ".5", "1.5", "1.0E22", "1e-400", " 12 "]
    assert [text for text in texts if not re.search(pattern, text)] == []


def test_both_ask_for_these_patterns_wherever_a_text_becomes_a_date_or_a_number() -> None:
    for kind, ours, theirs in (
        (T.DateType(), json_lossless.DATE, exact_json.DATE),
        (T.DoubleType(), json_lossless.FLOATING, exact_json.FLOATING),
        (T.FloatType(), json_lossless.FLOATING, exact_json.FLOATING),
    ):
        assert [literal(ours) in sql for sql in pipelines(kind)] == [True, True]
        assert [literal(theirs) in sql for sql in auditors(kind)] == [True, True]
