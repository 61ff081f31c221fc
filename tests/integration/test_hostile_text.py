"""Record data never becomes SQL: whatever keys, values, names and headers hold, tables hold just that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import own_session
from hostile import SUBSTITUTED, TEXTS, shown
from hypothesis import given
from hypothesis import strategies as st
from suites import draws
from upserts import Record, Table

from sinks.delta.values import digits_sql, value_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.law
@draws()
@given(drawn=st.sets(TEXTS, max_size=8))
def test_a_fold_finds_the_rows_of_any_keys(spark: SparkSession, tmp_path: Path, drawn: set[str]) -> None:
    """In a session that substitutes: of the changes' keys the lowest and the highest are in the MERGE."""
    low, high = "${x}zzzz", "z${env:PLANTED_THING}"
    keys = sorted({*drawn, *SUBSTITUTED})
    changed = [key for key in keys if low <= key <= high]
    table = Table(own_session(spark), tmp_path, merge="on_read")
    table.write([Record(key, "u", 0, None, 0, offset=at) for at, key in enumerate(keys)])
    table.write([Record(key, "u", 1, None, 0, offset=len(keys) + at) for at, key in enumerate(changed)])
    assert table.derivation.log is not None
    assert table.derivation.log.fold("me") is not None
    assert {key: a for key, (a, _) in table.rows().items()} == {key: int(key in changed) for key in keys}
    assert not shown(tmp_path)


@pytest.mark.law
@draws()
@given(drawn=TEXTS)
def test_a_truncate_deletes_what_is_older_than_its_text(spark: SparkSession, tmp_path: Path, drawn: str) -> None:
    """A sequence of texts, in a session that substitutes: ``${x}M`` would be M, and newer than A."""
    table = Table(own_session(spark), tmp_path, sequence_by="latest", key="b", apply_as_truncates="op = 't'")
    sequences = sorted({"A", "z", drawn, "${x}M", "${env:PLANTED_THING}"})
    updates = [Record(text, "u", 0, number, 0, offset=number) for number, text in enumerate(sequences)]
    table.write([*updates, Record("${x}M", "t", None, None, 0, offset=9)])
    assert {*table.rows()} == {text for text in sequences if text.encode() > b"${x}M"}
    assert not shown(tmp_path)


VALUES = (
    "CAST(X'80ff00' AS STRING)", "'${x}'", "''", "X'00ff'", "X''", "-1Y", "9223372036854775807L", "-0.10BD",
    "DATE'-0001-01-01'", "timestamp_micros(-62135596800000001)", "TIMESTAMP_NTZ'2026-10-25 02:30:00.000001'",
    "double('nan')", "-0D", "0.1F", "true", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND",
    "INTERVAL '-1-2' YEAR TO MONTH", "CAST(NULL AS INT)",
)  # fmt: skip


def test_a_value_is_the_same_in_the_next_query(spark: SparkSession) -> None:
    """As UTF-8 that it isn't, too: on its way through Python a text would become another one."""
    values = spark.sql(f"SELECT {', '.join(f'{value} AS v{index}' for index, value in enumerate(VALUES))}")
    kinds = [field.dataType for field in values.schema]
    digits = values.selectExpr(*(digits_sql(f"v{index}", kind) for index, kind in enumerate(kinds))).first()
    assert digits is not None
    assert digits[-1] is None
    pairs = zip(VALUES, digits, kinds, strict=True)
    again = {sql: value_sql(found, kind) for sql, found, kind in pairs if found is not None}
    same = spark.sql(f"SELECT {', '.join(f'{sql} <=> {new}' for sql, new in again.items())}").first()
    assert same is not None
    assert [sql for sql, found in zip(again, same, strict=True) if not found] == []
