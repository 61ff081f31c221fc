"""What a table makes of Debezium's truncates, in the pipeline and in the auditor. No JVM is needed to see that."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StringType

from connector.audit import debezium as audit
from connector.audit.decode import breaks
from connector.audit.records import truncates as auditors
from connector.audit.refused import event_time
from connector.audit.refused import no_row as theirs
from connector.config import DeltaUpsertSink, KeyedSink, PipelineConfig, parse
from connector.decode.event_time import time_of
from connector.decode.records import obeys
from connector.derive.changes import OF_ONE_TABLE, deletes, no_row, passed_over, problem_with, truncates, updates
from connector.engine.record_errors import _null_key
from sinks.errors import BadRecord
from sinks.spark.sql import literal

EVENT = ("id", "_op", "_tombstone", "at", "_timestamp")


def config(**options: Any) -> PipelineConfig:
    topics = options.pop("topics", ["t"])
    sink = {"type": "delta_upsert", "path": "lake/u", "key": "id", "sequence_by": "_source_position", **options}
    return parse(
        {
            "name": "p",
            "source": {"topics": topics, "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT"},
            "sinks": [{name: value for name, value in sink.items() if value is not None}],
        }
    )


def matching(condition: str) -> set[str]:
    """The kinds of records that meet a condition."""
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE records ({', '.join(EVENT)})")
    rows = [(1, "c", False), (1, "d", False), (1, None, True), (None, "t", False)]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, NULL, 'of Kafka')", rows)
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
        # Offsets can't tell which rows of other partitions are older than a truncate.
        ({"sequence_by": "struct(_offset, at)"}, set(), {"tombstone"}),
        ({"sequence_by": "struct(_offset, at)", "apply_as_truncates": "false"}, set(), {"tombstone", "t"}),
        ({"type": "delta_history", "sequence_by": "struct(_offset, at)"}, set(), {"tombstone"}),
        ({"type": "delta_history"}, {"t"}, {"tombstone"}),
        ({"type": "delta_history", "apply_as_truncates": "false"}, set(), {"tombstone", "t"}),
        ({"type": "delta_history", "sequence_by": None}, set(), set()),
        ({"type": "delta_history", "stored_as_scd_type": "bitemporal"}, set(), {"tombstone"}),
        # Each is of one table, as of a partition that has a topic of its own: the others' rows aren't concerned.
        ({"topics": ["t", "u"]}, set(), {"tombstone"}),
        ({"topics": "t.*"}, set(), {"tombstone"}),
        ({"topics": ["t", "u"], "apply_as_truncates": "_op = 't'"}, {"t"}, {"tombstone"}),
        ({"topics": ["t", "u"], "apply_as_truncates": "false"}, set(), {"tombstone", "t"}),
        ({"topics": ["t", "u"], "type": "delta_history"}, set(), {"tombstone"}),
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
    without_time = {"d", "tombstone"} | emptying | over
    for time in (time_of(EVENT, "at", deletes(sink, EVENT)), event_time(theirs, "at", EVENT)):
        assert matching(f"({time}) = 'of Kafka'") == without_time, "a delete may have its key alone"


@pytest.mark.parametrize("options", [{}, {"apply_as_truncates": "_op = 't'"}])
def test_a_truncate_of_one_of_several_tables_says_what_the_file_can_say(options: dict[str, Any]) -> None:
    (sink,) = config(topics=["t", "u"], **options).sinks
    (alone,) = config(**options).sinks
    assert isinstance(sink, KeyedSink)
    assert isinstance(alone, KeyedSink)
    schema = [SimpleNamespace(dataType=StringType())]
    records: Any = SimpleNamespace(columns=EVENT, selectExpr=lambda *_: SimpleNamespace(schema=schema))
    found = problem_with(records, sink)
    assert (literal(OF_ONE_TABLE) in found) == (not options)
    assert literal(OF_ONE_TABLE) not in problem_with(records, alone)
    assert "apply_as_truncates: 'false'" in OF_ONE_TABLE
    error = _null_key({"topic": "t", "partition": 0, "offset": 7, "key": "{}", "columns": "id", "truncate": True})
    assert isinstance(error, BadRecord)
    assert "is a truncate of one table" in error.message
    assert "apply_as_truncates: 'false'" in error.hint


def test_a_truncate_is_no_row_whatever_a_step_has_made_of_its_key() -> None:
    """As of ``coalesce(tenant, '')``: it would be stored as a row of nulls."""
    (sink,) = config(key="made", deletes="soft").sinks
    assert isinstance(sink, KeyedSink)
    for side in (no_row(sink, EVENT), theirs(sink, EVENT)):
        assert matching(side.replace("`made`", "'made'")) == {"t"}
        assert matching(side.replace("`made`", "NULL")) == {"c", "d", "tombstone", "t"}
    assert no_row(sink, ["made"]) == theirs(sink, ["made"]) == "`made` IS NULL"
    assert no_row(sink, EVENT) in problem_with(cast(Any, SimpleNamespace(columns=EVENT, selectExpr=of_texts)), sink)


def of_texts(*_: object) -> object:
    return SimpleNamespace(schema=[SimpleNamespace(dataType=StringType())])


def test_the_tables_of_a_route_have_truncates_of_their_own() -> None:
    written = parse(
        {
            "name": "p",
            "source": {"topics": ["t", "u"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT"},
            "coordinator": {"path": "lake/c"},
            "route": {
                "by": "topic", "sink": {
                    "type": "delta_upsert", "path": "lake/{topic}", "key": "id", "sequence_by": "_source_position"
                },
            },
        }
    )  # fmt: skip
    (sink,) = written.routed("t").sinks
    assert isinstance(sink, KeyedSink)
    assert matching(truncates(sink, EVENT)) == {"t"}


def test_without_the_kind_of_event_nothing_is_a_truncate() -> None:
    (sink,) = config(apply_as_truncates="false").sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert passed_over(sink, ("id", "_tombstone")) == "false"
    assert audit.passed_over(config(apply_as_truncates="false"), ("id", "_tombstone")) == "false"


@pytest.mark.parametrize(
    ("rule", "broken"),
    [("at > '2026'", {"c"}), ("_op <> 't' AND id > 0", {"t"}), ("_OP IN ('c', 'd') AND at > '2026'", {"c", "d", "t"})],
)
def test_a_rule_that_asks_for_no_kind_of_event_is_not_about_what_may_have_the_key_alone(
    rule: str, broken: set[str]
) -> None:
    ours, theirs = obeys(EVENT, rule, spares_deletes=True), breaks(EVENT, rule, spares_deletes=True)
    assert matching(f"({ours}) IS NOT TRUE") == matching(theirs) == broken


def test_a_delete_by_the_files_own_condition_needs_no_event_time() -> None:
    written = config(apply_as_deletes="id IS NULL OR _op = 'd'", apply_as_truncates="false", sequence_by=None)
    (sink,) = written.sinks
    assert isinstance(sink, KeyedSink)
    columns = ("id", "_tombstone", "at", "_timestamp")  # no events: the file alone says it
    for time in (time_of(columns, "at", deletes(sink, columns)), event_time(written, "at", columns)):
        assert matching(f"({time}) = 'of Kafka'") == {"t", "d", "tombstone"}
    assert matching(f"({time_of(columns, 'at', 'false')}) = 'of Kafka'") == {"tombstone"}, "where deletes are rows"
