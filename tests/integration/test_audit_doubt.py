"""The auditor never says exact of what it didn't compare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from audits import CHANGES, change, counts, group_offsets, make, verify
from conftest import Lake, Topic

ROW = "k STRING, n INT, _partition INT, _offset LONG"
IN_SEQUENCE = ROW.replace("_part", "_sequence INT, _part")
VERSIONS = ROW.replace("_part", "`__START_AT` INT, `__END_AT` INT, _part")
BY_SEQUENCE = {"key": "k", "sequence_by": "s", "column_list": ["k", "n"]}
BY_OFFSET = {"key": "k", "column_list": ["k", "n"]}
COUNTS = {"group_by": "k", "aggregates": {"c": "count(*)"}}
UPTO = {"0": 4, "1": 0}


def four_changes(topic: Topic) -> None:
    topic.send(change("a", 10, 1), change("b", 11, 2), change("c", 12, 3), change("d", 13, 4), partition=0)


def compacted(lake: Lake, topic: Topic) -> Lake:
    """The same lake, with a topic that is compacted."""
    other = Topic(topic.broker, f"c-{topic.name}")
    topic.broker.create_topic(other.name, 2, {"cleanup.policy": "compact"})
    return replace(lake, topic=other)


BREADTH = pytest.mark.breadth
TABLES: dict[str, Any] = {
    "aggregate": (COUNTS, "k STRING, c LONG", [(k, 1) for k in "abcd"]),
    "upsert": (BY_SEQUENCE, IN_SEQUENCE, [(k, n, 9 + n, 0, n - 1) for n, k in enumerate("abcd", 1)]),
    "history": (BY_SEQUENCE, VERSIONS, [(k, n, 9 + n, None, 0, n - 1) for n, k in enumerate("abcd", 1)]),
}


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        pytest.param("aggregate", "expired", marks=BREADTH),
        ("upsert", "compacted"),
        pytest.param("aggregate", "compacted", marks=BREADTH),
        pytest.param("upsert", "expired", marks=BREADTH),
        pytest.param("history", "expired", marks=BREADTH),
        pytest.param("history", "compacted", marks=BREADTH),
    ],
)
def test_a_derived_table_is_unknown_where_records_are_gone_that_could_explain_it(
    kind: str, why: str, lake: Lake, topic: Topic
) -> None:
    if why == "compacted":
        lake = compacted(lake, topic)
    four_changes(lake.topic)
    sink, columns, rows = TABLES[kind]
    make(lake, kind, columns, *rows, upto=UPTO)
    if why == "expired":
        topic.delete_before(0, 1)
    shown = 3 if why == "expired" else 4
    found = verify(lake, kind, schema=CHANGES, sink=sink)
    if kind == "aggregate":
        assert (found.verdict.value, counts(found)) == ("unknown", {"unchecked": 4})
        assert "a group is made of all its records, and Kafka may not hold them all" in str(found)
    else:  # what Kafka still shows is all right
        assert str(found).startswith(f"exact: {shown} expected, {shown} found")
    lake.sql("DELETE FROM {t}", kind)
    found = verify(lake, kind, schema=CHANGES, sink=sink)
    assert (found.verdict.value, found.verdict.exit_code) == ("unknown", 4)
    if kind != "aggregate":
        assert counts(found) == {"doubtful": shown}
        assert f"{shown} rows are missing or not as expected." in str(found)
        assert found.first["doubtful"].key == {"k": "b" if why == "expired" else "a"}


@BREADTH
def test_where_kafkas_key_is_the_sinks_compaction_explains_no_missing_row(lake: Lake, topic: Topic) -> None:
    lake = compacted(lake, topic)
    four_changes(lake.topic)
    columns = "_key STRING, n INT, _partition INT, _offset LONG"
    make(lake, "upsert", columns, *((k, n, 0, n - 1) for n, k in enumerate("abcd", 1)), upto=UPTO)
    sink = {"key": "_key", "column_list": ["_key", "n"]}
    options: dict[str, Any] = {"schema": CHANGES, "sink": sink, "key": {"format": "string"}}
    assert verify(lake, "upsert", **options).ok
    lake.sql("DELETE FROM {t} WHERE _key = 'c'", "upsert")
    assert verify(lake, "upsert", **options).totals["lost"] == 1


@pytest.mark.breadth
def test_an_upsert_by_offset_says_how_much_could_not_be_checked(lake: Lake, topic: Topic) -> None:
    four_changes(topic)
    make(lake, "upsert", ROW, *((k, n, 0, n - 1) for n, k in enumerate("abcd", 1)), upto=UPTO)
    topic.delete_before(0, 2)
    options: dict[str, Any] = {"schema": CHANGES, "sink": BY_OFFSET}
    found = verify(lake, "upsert", **options)
    assert str(found) == "exact: 2 expected, 2 found; 2 rows unchecked; 2 offsets could not be checked"
    lake.sql("DELETE FROM {t} WHERE k = 'c'", "upsert")
    assert verify(lake, "upsert", **options).totals["lost"] == 1


@BREADTH
def test_an_append_without_the_rows_of_gone_records_is_not_exact(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2), ("c", 3)], partition=0)
    make(lake, "append", ROW, ("c", 3, 0, 2), upto={"0": 3, "1": 0})
    assert verify(lake).totals["lost"] == 2
    topic.delete_before(0, 2)
    found = verify(lake)
    assert (found.verdict.exit_code, counts(found)) == (4, {"expected": 1, "found": 1})
    assert f"Of 2 offsets of {topic.name}-0 that Kafka no longer holds the table has 0 rows" in str(found)


@BREADTH
@pytest.mark.parametrize("change", ["DELETE FROM {t} WHERE n = 1", "UPDATE {t} SET n = 7 WHERE n = 1"])
def test_what_somebody_else_did_to_rows_whose_records_are_gone_is_not_exact(
    change: str, lake: Lake, topic: Topic
) -> None:
    topic.send_rows([("a", 1), ("b", 2), ("c", 3)], partition=0)
    lake.pipeline().run()
    lake.sql("DELETE FROM {t} WHERE n = 99")  # of no row
    topic.delete_before(0, 2)
    found = verify(lake)
    assert str(found) == "exact: 1 expected, 1 found; 2 rows unchecked; 2 offsets could not be checked"
    stood = found.version
    lake.sql(change)
    found = verify(lake)
    assert (found.verdict.exit_code, found.totals["found"]) == (4, 1)
    assert f"Version {found.version} is somebody else's, and removed or changed 1 row." in str(found)
    assert verify(lake, version=stood).ok
    lake.pipeline().rewind(to_version=stood, confirm=lambda _: True)
    assert verify(lake).ok


@BREADTH
def test_rows_of_an_append_ahead_of_the_group_are_compared_too(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)], partition=0)
    group_offsets(topic, {0: 3, 1: 0}, "append")
    rows = [(k, n, 0, n - 1) for n, k in enumerate("abcd", 1)]  # the last record isn't read yet
    make(lake, "append", ROW, *rows, upto={"0": 3, "1": 0}, delivery="manual_commit")
    assert str(verify(lake, delivery="manual_commit")) == "exact: 3 expected, 3 found; 1 ahead"
    lake.sql("INSERT INTO {t} SELECT * FROM {t} WHERE k = 'd'")
    right = {"expected": 3, "found": 3}
    assert counts(verify(lake, delivery="manual_commit")) == {**right, "ahead": 1, "duplicated": 1}
    lake.sql("UPDATE {t} SET n = 9 WHERE k = 'd'")
    assert counts(verify(lake, delivery="manual_commit")) == {**right, "altered": 1, "duplicated": 1}
    lake.sql("UPDATE {t} SET _offset = 77 WHERE k = 'd'")
    assert counts(verify(lake, delivery="manual_commit")) == {**right, "unexpected": 2}


@BREADTH
@pytest.mark.parametrize("change", ["DROP COLUMN n", "RENAME COLUMN n TO m"])
def test_a_column_that_is_there_again_has_lost_its_values(change: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline().run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("ALTER TABLE {t} ADD COLUMN note STRING")
    lake.sql("ALTER TABLE {t} DROP COLUMN note")  # of no record
    topic.send_rows([("c", 3)], partition=0)
    lake.pipeline().run()
    topic.delete_before(0, 2)
    assert verify(lake).ok
    lake.sql(f"ALTER TABLE {{t}} {change}")
    lake.sql("ALTER TABLE {t} ADD COLUMN n INT")
    assert verify(lake).totals["altered"] == 1
    topic.send_rows([("d", 4)], partition=0)
    lake.pipeline().run()
    topic.delete_before(0, 3)
    found = verify(lake)
    assert (found.verdict.exit_code, counts(found)) == (4, {"expected": 1, "found": 1, "unchecked": 3})
    assert "is somebody else's, and removed or changed rows." in str(found)


@BREADTH
def test_values_that_gone_records_may_have_given_are_doubtful(lake: Lake, topic: Topic) -> None:
    topic.send(change("a", 1, 1), change("b", 2, 2), change("a", 3, None), change("b", 4, 5), partition=0)
    make(lake, "upsert", ROW, ("a", 1, 0, 2), ("b", 5, 0, 3), upto=UPTO)
    options: dict[str, Any] = {"schema": CHANGES, "sink": {**BY_OFFSET, "ignore_null_updates": True}}
    assert str(verify(lake, "upsert", **options)) == "exact: 2 expected, 2 found"
    topic.delete_before(0, 2)
    found = verify(lake, "upsert", **options)
    assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 1, "found": 1, "doubtful": 1})


PERMISSIVE = {"format": "json", "mode": "permissive", "schema": "k STRING, n INT"}
READ: dict[str, Any] = {
    "upsert": ({}, ROW, [("a", 1, 0, 0), ("b", 2, 0, 1)]),
    "history": (
        {"key": "k"}, VERSIONS.replace("T_AT` INT", "T_AT` LONG").replace("D_AT` INT", "D_AT` LONG"),
        [("a", 1, 0, None, 0, 0), ("b", 2, 1, None, 0, 1)],
    ),
    "aggregate": (COUNTS, "k STRING, c LONG", [("a", 1), ("b", 1)]),
}  # fmt: skip


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history", "aggregate"])
def test_records_that_the_file_cannot_read_are_unreadable(kind: str, lake: Lake, topic: Topic) -> None:
    """The records fit ``mode: permissive``. By a strict file nobody knows what they made."""
    topic.send(("a", {"k": "a", "n": 1}), ("b", b"{'k': 'b', 'n': 2}"), partition=0)
    sink, columns, rows = READ[kind]
    make(lake, kind, columns, *rows, upto={"0": 2, "1": 0})
    assert str(verify(lake, kind, value=PERMISSIVE, sink=sink)) == "exact: 2 expected, 2 found"
    found = verify(lake, kind, sink=sink)
    right = {"unchecked": 2} if kind == "aggregate" else {"expected": 1, "found": 1}
    assert (found.verdict.value, counts(found)) == ("unknown", {**right, "unreadable": 1})
    assert "1 record can't be read as the pipeline file says" in str(found)
    assert found.first["unreadable"].offset == 1
    lake.sql("DELETE FROM {t} WHERE k = 'b'", kind)
    assert verify(lake, kind, sink=sink).verdict.value == "unknown"


@BREADTH
def test_a_record_without_its_key_is_unreadable(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("c", {"n": 3}), partition=0)
    make(lake, "upsert", ROW, ("a", 1, 0, 0), upto={"0": 2, "1": 0})
    found = verify(lake, "upsert")
    assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 1, "found": 1, "unreadable": 1})
