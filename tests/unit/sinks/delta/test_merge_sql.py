"""Each MERGE of the Delta sinks, pinned as a golden file: a change of a guard shows as a change of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from golden_files import GOLDEN, assert_golden
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sinks.delta import bitemporal
from sinks.delta.aggregate import Groups, adding
from sinks.delta.history import merge_sql
from sinks.delta.key_ranges import within_sql
from sinks.delta.letters_sql import adding_sql, keeping_sql
from sinks.delta.merge import Change, Merge
from sinks.delta.moved import events_moved_sql
from sinks.delta.recorded_columns import SYSTEM, RecordedColumns
from sinks.delta.recorded_spans import spans_sql
from sinks.delta.recreated import retiring_sql
from sinks.delta.sql_layout import indented
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule, moved_sql, upserting
from sinks.delta.upsert_source import moved_from_sql, source_sql
from sinks.delta.version_columns import VersionColumns
from sinks.delta.which_tombstones import forgetting_sql

OFFSETS = ["k", "v", "_topic", "_partition", "_offset"]
SEQUENCED = [*OFFSETS, "_sequence"]
TRUNCATE = "named_struct('sequence', 9)"
BY_OFFSET = UpsertRule(["k"])
BY_SEQUENCE = UpsertRule(["k"], sequenced=True)
PARTS = UpsertRule(["k"], sequenced=True, ignore_nulls=["v"])


class Sum:
    """A state that is a number."""

    def plus(self, left: str, right: str) -> str:
        return f"{left} + {right}"

    def present(self, state: str) -> str:
        return f"round({state}, 2)"


GROUPS = Groups(["g", "window_start"], {"total": Sum(), "n": Sum()})
MERGES: Mapping[str, Callable[[], Merge]] = {
    "by_offset": lambda: upserting(BY_OFFSET, OFFSETS),
    "by_offset_with_deletes": lambda: upserting(BY_OFFSET, [*OFFSETS, DELETED_BY]),
    "by_offset_ignoring_nulls": lambda: upserting(UpsertRule(["k"], ignore_nulls=["v"]), OFFSETS),
    "by_offset_ignoring_nulls_with_deletes": lambda: upserting(
        UpsertRule(["k"], ignore_nulls=["v"]), [*OFFSETS, DELETED_BY], new=["v"]
    ),
    "by_offset_keeping": lambda: upserting(UpsertRule(["k"], keeps=["v"]), [*OFFSETS, COLUMNS]),
    "by_offset_keeping_with_deletes": lambda: upserting(
        UpsertRule(["k"], keeps=["v"]), [*OFFSETS, DELETED_BY, COLUMNS]
    ),
    "by_offset_soft": lambda: upserting(UpsertRule(["k"], soft=True), [*OFFSETS, DELETED_BY]),
    "by_sequence": lambda: upserting(BY_SEQUENCE, SEQUENCED),
    "by_sequence_with_deletes_and_truncates": lambda: upserting(BY_SEQUENCE, [*SEQUENCED, DELETED_BY], TRUNCATE),
    "by_sequence_soft": lambda: upserting(UpsertRule(["k"], sequenced=True, soft=True), [*SEQUENCED, DELETED_BY]),
    "by_sequence_ignoring_nulls": lambda: upserting(PARTS, [*SEQUENCED, DELETED_BY, COLUMNS], TRUNCATE),
    "by_sequence_ignoring_nulls_of_a_new_column": lambda: upserting(
        PARTS, [*SEQUENCED, DELETED_BY, COLUMNS], TRUNCATE, new=["v"]
    ),
    "unguarded": lambda: upserting(UpsertRule(["k"], guarded=False), [*OFFSETS, DELETED_BY]),
    "unguarded_ignoring_nulls": lambda: upserting(
        UpsertRule(["k"], guarded=False, ignore_nulls=["v"]), [*OFFSETS, DELETED_BY]
    ),
    "unguarded_soft": lambda: upserting(UpsertRule(["k"], guarded=False, soft=True), [*OFFSETS, DELETED_BY]),
    "of_two_columns_within": lambda: upserting(
        UpsertRule(["k", "a`b"]), ["a`b", *OFFSETS], within="t.k BETWEEN 'a' AND 'c'"
    ),
    "of_groups": lambda: Merge(
        ["k"], [Change("t.n < s.n", {"n": "s.n"}), Change("", None)], {"k": "s.k", "n": "s.n"}, null_keys=True
    ),
    "aggregate": lambda: adding(GROUPS, guarded=True),
    "aggregate_unguarded": lambda: adding(GROUPS, guarded=False),
    "aggregate_of_windows": lambda: adding(replace(GROUPS, windows=True), guarded=True),
    "aggregate_of_sessions": lambda: adding(
        replace(GROUPS, windows=True, grown_together=lambda rows, _: rows), guarded=True
    ),
}
"""By name, of which there is a file."""
PLACES = StructType(
    [
        StructField("_topic", StringType()),
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
        StructField("_timestamp", TimestampType()),
    ]
)
SEQUENCE = StructField("_sequence", TimestampType())


def events(*more: StructField) -> StructType:
    """The schema of a history's events."""
    values = [StructField("k", LongType()), StructField("v", StringType()), StructField("note", StringType())]
    return StructType([*values, *PLACES, StructField("_delete", BooleanType()), *more])


def texts(merge: Merge) -> str:
    """As a statement, as the insertion into a new table, and as a query of the rows that there would be."""
    inserts = list(merge.inserts)
    return sections(
        {
            "statement": merge.statement("target", "source"),
            "insertion": merge.insertion("target", "source"),
            "query": merge.query("target", "source", "keys", [*inserts, "more"]),
            "query of what replaces": merge.query("target", "source", "keys", inserts, replaces=True, hint="/*+ h */"),
        }
    )


def sections(texts_by_name: Mapping[str, str]) -> str:
    return "\n\n".join(f"-- {name}\n{sql}" for name, sql in texts_by_name.items()) + "\n"


def assert_reviewed(name: str, sql: str) -> None:
    assert_golden(f"merge/{name}.sql", sql)


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_is_the_one_that_was_reviewed(name: str) -> None:
    assert_reviewed(name, texts(MERGES[name]()))


@pytest.mark.parametrize(
    ("sessions", "closed"),
    [(False, "coalesce(t.window_closed, false) OR s.window_closed"), (True, "s.window_closed")],
)
def test_a_window_stays_closed_and_a_session_that_has_grown_is_judged_anew(sessions: bool, closed: str) -> None:
    """A late record may move a session's end beyond the watermark. The end of other windows stays where it is."""
    groups = replace(GROUPS, windows=True, grown_together=(lambda rows, _: rows) if sessions else None)
    sets = adding(groups, guarded=True).matched[-1].sets
    assert sets is not None
    assert sets["window_closed"] == closed


def test_the_source_of_an_upsert_is_the_one_that_was_reviewed() -> None:
    deletes = [*OFFSETS, DELETED_BY]
    by_sequence, parts = [*SEQUENCED, DELETED_BY], [*SEQUENCED, DELETED_BY, COLUMNS]
    queries = {
        "no tombstones": source_sql(BY_OFFSET, "net", deletes, None, None),
        "by offset, with tombstones": source_sql(BY_OFFSET, "net", deletes, "tombstones", None),
        "by sequence, with tombstones and a truncate": source_sql(
            BY_SEQUENCE, "net", by_sequence, "tombstones", TRUNCATE
        ),
        "by sequence, ignoring nulls": source_sql(PARTS, "net", parts, "tombstones", None),
    }
    assert_reviewed("source", sections(queries))


def test_the_merge_of_a_history_is_the_one_that_was_reviewed() -> None:
    columns = VersionColumns(["k"], ["v"], ["note"])
    by_offset, by_sequence = (merge_sql("target", columns, events(*more)) for more in ([], [SEQUENCE]))
    assert by_sequence == by_offset, "a version is its key and its start, whatever orders the events"
    queries = {
        "statement": by_offset,
        "an event as _state keeps it, by offset": columns.event("_offset", events(), "NOT _delete"),
        "an event as _state keeps it, by sequence": columns.event("_sequence", events(SEQUENCE), "NOT _delete"),
        "keys in two partitions": events_moved_sql("events", "target", None, ["k"]),
        "keys in two partitions, with tombstones": events_moved_sql("events", "target", "tombstones", ["k"]),
    }
    assert_reviewed("history", sections(queries))


def test_the_merge_of_a_bitemporal_history_is_the_one_that_was_reviewed() -> None:
    columns = RecordedColumns(["k"], ["v", "note"])
    of_events = events(SEQUENCE, StructField(SYSTEM, LongType()))
    queries = {
        "statement": bitemporal.merge_sql("target", columns, of_events),
        "an event as _state keeps it": columns.event("_sequence", SYSTEM, "_delete", of_events),
        "versions and their recorded times": spans_sql("events", LongType(), columns.same),
    }
    assert_reviewed("bitemporal", sections(queries))


def test_the_merges_of_dead_letters_are_the_ones_that_were_reviewed() -> None:
    merges = {
        "added": adding_sql("target", ["the log", "the table"]),
        "added by who doesn't know its table": adding_sql("target", []),
        "kept open after a retry": keeping_sql("target", "pipeline", "a run", ["the table"]),
        "tombstones of the marked letters": forgetting_sql("target", "(SELECT ...)"),
        "tombstones of retries that were undone": forgetting_sql("target", "(SELECT ...)", but_copies=True),
    }
    assert_reviewed("dead_letters", sections(merges))


def test_the_merge_that_renames_a_deleted_topic_is_the_one_that_was_reviewed() -> None:
    order = StructType([PLACES[name] for name in ("_topic", "_partition", "_offset")])
    place = StructType([StructField(field.name[1:], field.dataType) for field in order])
    at = StructType([StructField("order", StringType()), *order])
    last = StructType([StructField("at", at), StructField("value", place)])

    def aggregate(*states: StructField) -> StructType:
        applied = StructField("_applied", MapType(StringType(), LongType()))
        return StructType([applied, StructField("_state", StructType([*states]))])

    tables = {
        "upsert": StructType([*order, StructField("_deleted_by", place), StructField("_columns", StructType())]),
        "history": VersionColumns(["k"], ["v"], []).table(events()),
        "bitemporal": RecordedColumns(["k"], ["v"]).table(events(SEQUENCE, StructField(SYSTEM, LongType()))),
        "aggregate": aggregate(StructField("n_sum", LongType())),
        "aggregate with a last": aggregate(StructField("n_sum", LongType()), StructField("latest", last)),
    }
    merges = {name: retiring_sql("target", schema, {"t": "#id/t"}) for name, schema in tables.items()}
    assert_reviewed("retired_topics", sections(merges))


def test_a_fold_names_the_range_of_its_keys() -> None:
    kinds = {"k": LongType(), "name": StringType()}
    digits = [text.encode().hex() for text in ("1", "9", "a'", "z")]
    queries = {
        "both columns have ends": within_sql(kinds, digits),
        "one has none": within_sql(kinds, [*digits[:2], None, None]),
    }
    assert_reviewed("fold_within", sections(queries))
    assert within_sql(kinds, ()) == "", "no changes"
    assert within_sql({}, ()) == "", "no column whose text is exact"


def test_a_key_that_left_its_partition_is_looked_for_as_the_merge_does() -> None:
    deletes = [*OFFSETS, DELETED_BY]
    queries = {
        "updates": moved_sql("target", BY_OFFSET, OFFSETS),
        "deletes": moved_sql("target", BY_OFFSET, deletes),
        "rows that stay": moved_sql("target", UpsertRule(["k"], soft=True), deletes),
        "tombstones": moved_from_sql(BY_OFFSET, "lakelock_epoch", deletes, "tombstones"),
    }
    assert_reviewed("moved", sections({name: sql or "" for name, sql in queries.items()}))


def test_by_a_sequence_or_without_the_guard_a_key_may_be_anywhere() -> None:
    assert moved_sql("target", BY_SEQUENCE, SEQUENCED) is None
    assert moved_sql("target", UpsertRule(["k"], guarded=False), OFFSETS) is None
    assert moved_from_sql(BY_SEQUENCE, "net", [*SEQUENCED, DELETED_BY], "tombstones") is None
    assert moved_from_sql(UpsertRule(["k"], guarded=False), "net", [*OFFSETS, DELETED_BY], "tombstones") is None


def test_there_is_no_file_without_its_merge() -> None:
    others = {"moved", "source", "history", "bitemporal", "dead_letters", "retired_topics", "fold_within"}
    assert {file.stem for file in (GOLDEN / "merge").glob("*.sql")} == {*MERGES, *others}


def test_a_line_end_within_a_name_stays_as_it_is() -> None:
    assert indented("a\n`b\nc``\n`\nd") == "  a\n  `b\nc``\n`\n  d"
