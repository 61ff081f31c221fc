"""What a table makes of Debezium's truncates, in the pipeline and in the auditor. No JVM is needed to see that."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from connector.audit import debezium as audit
from connector.audit.records import truncates as auditors
from connector.config import DeltaUpsertSink, KeyedSink, PipelineConfig, parse
from connector.derive.changes import passed_over, truncates, updates

EVENT = ("id", "_op", "_tombstone")


def config(**options: Any) -> PipelineConfig:
    sink = {"type": "delta_upsert", "path": "lake/u", "key": "id", "sequence_by": "_source_position", **options}
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT"},
            "sinks": [{name: value for name, value in sink.items() if value is not None}],
        }
    )


def matching(condition: str) -> set[str]:
    """The kinds of records that meet a condition."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE records ({', '.join(EVENT)})")
    rows = [(1, "c", False), (1, "d", False), (1, None, True), (None, "t", False)]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
    found = connection.execute(f"SELECT coalesce(_op, 'tombstone') FROM records WHERE {condition}")
    return {kind for (kind,) in found}


@pytest.mark.parametrize(
    ("options", "emptying", "over"),
    [
        ({}, {"t"}, {"tombstone"}),
        # A soft-deleted row stays, so nothing says what a truncate makes of it: a bad record, as its key is null.
        ({"deletes": "soft"}, set(), {"tombstone"}),
        ({"apply_as_truncates": "_op = 'c'"}, {"c"}, {"tombstone"}),
        ({"apply_as_truncates": "false"}, set(), {"tombstone", "t"}),
        ({"apply_as_truncates": "false", "deletes": "soft"}, set(), {"tombstone", "t"}),
        ({"apply_as_truncates": "false", "merge": "on_read"}, set(), {"tombstone", "t"}),
        ({"sequence_by": None}, set(), set()),
        ({"sequence_by": None, "apply_as_truncates": "false"}, set(), {"t"}),
        ({"type": "delta_history"}, {"t"}, {"tombstone"}),
        ({"type": "delta_history", "apply_as_truncates": "false"}, set(), {"tombstone", "t"}),
        ({"type": "delta_history", "sequence_by": None}, set(), set()),
        ({"type": "delta_history", "stored_as_scd_type": "bitemporal"}, set(), {"tombstone"}),
    ],
)
def test_a_truncate_empties_the_table_or_is_passed_over_or_is_a_bad_record(
    options: dict[str, Any], emptying: set[str], over: set[str]
) -> None:
    written = config(**options)
    (sink,) = written.sinks
    assert isinstance(sink, KeyedSink)
    assert matching(truncates(sink, EVENT)) == emptying
    assert matching(passed_over(sink, EVENT)) == over
    assert ("t" in matching(updates(sink, EVENT))) == ("t" not in emptying | over)
    theirs = audit.with_its_own_rules(written, EVENT)
    assert isinstance(theirs.sinks[0], KeyedSink)
    assert matching(auditors(theirs.sinks[0])) == emptying
    assert matching(audit.passed_over(theirs, EVENT)) == over


def test_without_the_kind_of_event_nothing_is_a_truncate() -> None:
    (sink,) = config(apply_as_truncates="false").sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert passed_over(sink, ("id", "_tombstone")) == "false"
    assert audit.passed_over(config(apply_as_truncates="false"), ("id", "_tombstone")) == "false"
