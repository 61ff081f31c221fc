"""Each MERGE of an upsert, pinned as a golden file: a change of the guard shows as a change of SQL, to be reviewed.

After a change on purpose run this file with ``LAKELOCK_WRITE_GOLDEN=1``, and read what has changed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sinks.delta.merge import Change, Merge
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule, moved_sql, upserting

WRITE = "LAKELOCK_WRITE_GOLDEN"
ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "merge"
OFFSETS = ["k", "v", "_topic", "_partition", "_offset"]
SEQUENCED = [*OFFSETS, "_sequence"]
TRUNCATE = "named_struct('sequence', 9)"
BY_OFFSET = UpsertRule(["k"])
BY_SEQUENCE = UpsertRule(["k"], sequenced=True)
PARTS = UpsertRule(["k"], sequenced=True, ignore_nulls=["v"])
MERGES: Mapping[str, Callable[[], Merge]] = {
    "by_offset": lambda: upserting(BY_OFFSET, OFFSETS),
    "by_offset_with_deletes": lambda: upserting(BY_OFFSET, [*OFFSETS, DELETED_BY]),
    "by_offset_ignoring_nulls": lambda: upserting(UpsertRule(["k"], ignore_nulls=["v"]), OFFSETS),
    "by_offset_ignoring_nulls_with_deletes": lambda: upserting(
        UpsertRule(["k"], ignore_nulls=["v"]), [*OFFSETS, DELETED_BY], new=["v"]
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
}
"""By name, of which there is a file."""


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


def assert_golden(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.sql"
    if os.environ.get(WRITE):
        file.write_text(text, encoding="utf-8")
    reviewed = file.read_text(encoding="utf-8") if file.exists() else ""
    if text == reviewed:
        return
    path = file.relative_to(ROOT)
    diff = difflib.unified_diff(reviewed.splitlines(), text.splitlines(), f"{path} (reviewed)", "produced", lineterm="")
    pytest.fail(
        "\n".join(diff)
        + f"\n\nThe SQL of {name} is not the SQL that was reviewed. If it is meant to change, write the "
        f"files again and review their diff:\n  {WRITE}=1 python -m pytest {Path(__file__).relative_to(ROOT)}",
        pytrace=False,
    )


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_is_the_one_that_was_reviewed(name: str) -> None:
    assert_golden(name, texts(MERGES[name]()))


def test_a_key_that_left_its_partition_is_looked_for_as_the_merge_does() -> None:
    deletes = [*OFFSETS, DELETED_BY]
    queries = {
        "updates": moved_sql("target", BY_OFFSET, OFFSETS),
        "deletes": moved_sql("target", BY_OFFSET, deletes),
        "rows that stay": moved_sql("target", UpsertRule(["k"], soft=True), deletes),
    }
    assert_golden("moved", sections({name: sql or "" for name, sql in queries.items()}))


def test_by_a_sequence_or_without_the_guard_a_key_may_be_anywhere() -> None:
    assert moved_sql("target", BY_SEQUENCE, SEQUENCED) is None
    assert moved_sql("target", UpsertRule(["k"], guarded=False), OFFSETS) is None


def test_there_is_no_file_without_its_merge() -> None:
    assert {file.stem for file in GOLDEN.glob("*.sql")} == {*MERGES, "moved"}
