"""Rows of a compacted topic: what Kafka shows no record of may be one that compaction removed, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.audit.claim import At, Bounds
from connector.audit.compare import Compared, compare
from connector.audit.formats import forms
from connector.audit.letters import no_letters
from connector.config import parse

pytestmark = pytest.mark.breadth
CUT = [Bounds(At("t", 0), 0, 0, 100, 100, compacted=True)]
PLACE = "'t' AS _topic, 0 AS _partition, CAST({0} AS BIGINT) AS _offset, TIMESTAMP'2026-01-01' AS _timestamp"
RECORD = "'t' AS topic, 0 AS `partition`, CAST({0} AS BIGINT) AS offset, TIMESTAMP'2026-01-01' AS timestamp"
HEADERS = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
IN_SIGHT = (1, 2, 9)
"""The offsets of the records: compaction has removed the others."""


def counts(
    spark: SparkSession, *rows: tuple[int, int], letters: tuple[int, ...] = (), table: str = "", **options: Any
) -> dict[str, int]:
    """What the counts are: see ``compared``."""
    return {
        each["kind"]: each["count"]
        for each in compared(spark, rows, letters, table, CUT, options).counts
        if each["count"]
    }


def compared(
    spark: SparkSession,
    rows: Sequence[tuple[int, int]],
    letters: Sequence[int],
    table: str,
    cut: list[Bounds],
    options: dict[str, Any],
    reason: str = "rule",
) -> Compared:
    """``rows``: the key and the offset of each. ``letters``: offsets. The record at each offset has it as its key.
    ``table``: which one of a route."""

    def frame(*texts: str) -> Any:
        return spark.sql(" UNION ALL ".join(f"SELECT {text}" for text in texts))

    value = "CAST('{{\"id\": {0}}}' AS BINARY) AS value, CAST('{0}' AS BINARY) AS key"
    records = frame(*(f"{value}, {RECORD}, {HEADERS}".format(offset) for offset in IN_SIGHT))
    there = frame(*(f"CAST({key} AS BIGINT) AS id, {PLACE.format(offset)}" for key, offset in rows))
    letter = (
        f"{value}, {PLACE}, {HEADERS}, 'p' AS pipeline, '/tmp/t' AS sink, '{reason}' AS reason, "
        "CAST(NULL AS STRING) AS detail"
    )
    aside = None
    if options.get("on_bad_record") == "dead_letter":
        aside = frame(*(letter.format(offset) for offset in letters)) if letters else no_letters(spark)
    config = parse(
        {name: option for name, option in {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "json", "schema": "id BIGINT"}, "sinks": [{"type": "delta_append", "path": "/tmp/t"}],
            **options,
        }.items() if option is not None}
    )  # fmt: skip
    config = config.routed(table) if table else config
    return compare(
        config, records=records, rows=there, forms=forms(config), cut=cut, committed_later=False, letters=aside
    )


RIGHT = ((1, 1), (2, 2))
ALL_RIGHT = {"expected": 2, "found": 2}
GONE = (5, 5)
"""A row whose record compaction may have removed."""
UPSERT = {"sinks": [{"type": "delta_upsert", "path": "/tmp/t", "key": "id"}]}
LEFT_OUT: dict[str, dict[str, Any]] = {
    "filter": {"steps": [{"filter": "id < 9"}]},
    "transform": {"transform": "SELECT id FROM records WHERE id < 9"},
}


@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("how", LEFT_OUT)
def test_a_row_of_a_record_that_is_there_and_left_out_is_unexpected(
    spark: SparkSession, how: str, sink: dict[str, Any]
) -> None:
    found = counts(spark, *RIGHT, GONE, (9, 9), **LEFT_OUT[how], **sink)
    assert found == {**ALL_RIGHT, "unchecked": 1, "unexpected": 1}


def test_a_row_at_the_coordinates_of_another_key_is_unexpected(spark: SparkSession) -> None:
    found = counts(spark, *RIGHT, GONE, (9, 9), (7, 9), **UPSERT)
    assert found == {"expected": 3, "found": 3, "unchecked": 1, "unexpected": 1}


def test_a_row_and_a_letter_of_what_is_set_aside_or_left_out_are_unexpected(spark: SparkSession) -> None:
    aside: dict[str, Any] = {"on_bad_record": "dead_letter", "dead_letters": {"path": "/tmp/letters"}}
    found = counts(spark, *RIGHT, GONE, (9, 9), letters=(9, 6), require="id < 9", **aside)
    right = {**ALL_RIGHT, "records": 3, "letters": 1, "letters_unchecked": 1}
    assert found == {**right, "unchecked": 1, "unexpected": 1}
    found = counts(spark, *RIGHT, letters=(9, 6), **LEFT_OUT["filter"], **aside)
    assert found == {**ALL_RIGHT, "records": 2, "letters_unchecked": 1, "letters_unexpected": 1}


@pytest.mark.parametrize("how", [*LEFT_OUT, "filters", "flows"])
def test_a_letter_of_a_record_that_a_filter_leaves_out_is_of_a_record(spark: SparkSession, how: str) -> None:
    """The pipeline is stricter than the audit, and decodes a record before a filter sees it. A letter where Kafka has
    no record, or of what isn't wrong, is unexpected all the same."""
    given: dict[str, Any] = {
        **LEFT_OUT,
        "filters": {"steps": [{"filter": "id < 9"}, {"rename": {"id": "number"}}, {"filter": "number > 0"},
                              {"rename": {"number": "id"}}]},
        "flows": {"steps": [{"filter": "id < 9"}], "flows": [{"topics": ["u"], "require": "id > 0"}],
                  "source": {"topics": ["t", "u"], "kafka": {"bootstrap.servers": "localhost:1"}}},
    }[how]  # fmt: skip
    aside: dict[str, Any] = {"on_bad_record": "dead_letter", "dead_letters": {"path": "/tmp/letters"}}
    cut = [replace(part, compacted=False) for part in CUT]

    def found(reason: str, *letters: int) -> dict[str, int]:
        its = compared(spark, RIGHT, letters, "", cut, {**given, **aside}, reason).counts
        return {each["kind"]: each["count"] for each in its if each["count"]}

    whole = how == "transform"
    assert found("value") == {**ALL_RIGHT, "records": 3 if whole else 2}
    assert found("value", 9, 6) == {
        **ALL_RIGHT, "records": 3, "letters": 1, "letters_unconfirmed": 1, "letters_unexpected": 1
    }  # fmt: skip
    assert found("rule", 9)["letters_unexpected"] == 1


@pytest.mark.parametrize("sink", [{}, UPSERT], ids=["append", "upsert"])
def test_of_an_unexpected_row_in_a_hole_of_the_log_a_note_names_what_may_explain_it(
    spark: SparkSession, sink: dict[str, Any]
) -> None:
    """A topic that was compacted once isn't any more, or a transaction was aborted there."""
    cut = [replace(part, compacted=False) for part in CUT]
    found = compared(spark, [(1, 1), (2, 2), (9, 9), GONE], (), "", cut, sink)
    assert {each["kind"]: each["count"] for each in found.counts if each["count"]}["unexpected"] == 1
    assert [note[:60] for note in found.notes] == ["1 row has an offset at which Kafka's log has no record. Abor"]
    beside = compared(spark, [(1, 1), (2, 2), (9, 9)], (), "", cut, {**LEFT_OUT["filter"], **sink})
    assert beside.notes == []  # of a record that is there


def test_where_kafka_does_not_tell_whether_it_compacts_a_hole_is_no_proof_and_everything_else_is(
    spark: SparkSession,
) -> None:
    untold = [replace(part, untold=True) for part in CUT]
    every = [(1, 1), (2, 2), (9, 9)]
    assert compared(spark, every, (), "", untold, {}).unknown == []
    assert compared(spark, [*every, GONE], (), "", CUT, {}).unknown == []
    (why,) = compared(spark, [*every, GONE], (), "", untold, {}).unknown
    assert why.startswith("1 row or dead letter has an offset at which Kafka's log has no record.")
    assert "DESCRIBE_CONFIGS" in why
    aside: dict[str, Any] = {"on_bad_record": "dead_letter", "dead_letters": {"path": "/tmp/letters"}}
    (why,) = compared(spark, every, (6,), "", untold, aside).unknown
    assert why.startswith("1 row or dead letter has")


def test_a_row_of_a_record_of_another_table_is_unexpected(spark: SparkSession) -> None:
    by = {"by": "IF(id < 9, 'b', 'a')", "sink": {"type": "delta_append", "path": "/tmp/{route}"}}
    routed = {"sinks": None, "route": by, "coordinator": {"path": "/tmp/log"}}
    found = counts(spark, *RIGHT, GONE, (9, 9), table="b", **routed)
    assert found == {**ALL_RIGHT, "unchecked": 1, "unexpected": 1}
