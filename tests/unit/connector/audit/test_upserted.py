"""What a row of an upsert counts as: the auditor's own SQL, run in SQLite. An order, a struct in Spark, is a number."""

import re
import sqlite3
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from connector.audit.claim import At, Bounds
from connector.audit.upserted import by_kafkas_key, kind_sql, shows_every_later
from connector.config import PipelineConfig, parse

COLUMNS = StructType([StructField("k", LongType()), StructField("n", LongType())])
FACTS: dict[str, Any] = {
    "r_zone": "checked", "r_k0": 1, "r_before": False, "r_marked": False, "r_compacted": False, "r_topic": "t",
    "r_partition": 0, "r_offset": 5, "r_values": "new", "row_order": 30, "e_state": "alive", "e_moved": False,
    "e_topic": "t", "e_partition": 0, "e_offset": 5, "e_values": "new", "e_order": 30, "e_gone": None,
    "e_deleted_later": False, "e_truncated": None, "c_missed": 0, "c_to_end": True,
}  # fmt: skip


def pipeline(sink: dict[str, Any], **more: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:1"}},
            "value": {"format": "json", "schema": "k BIGINT, n BIGINT"},
            "sinks": [{"type": "delta_upsert", "path": "t", **sink}],
            **more,
        }
    )


def kind(*, ordered: bool, all_of_key: bool = False, **facts: Any) -> str:
    config = pipeline({"key": "k", **({"sequence_by": "n"} if ordered else {})})
    sql = kind_sql(
        COLUMNS, config.sinks[0], whole=False, sure=False, later=False, merged=False, truncates=True,  # type: ignore[arg-type]
        all_of_key=all_of_key,
    )  # fmt: skip
    sql = re.sub(r"struct\(r_sequence AS .*?r_offset AS e_offset\)", "row_order", sql)
    sql = re.sub(r"\bIF\(", "iif(", sql).replace("<=>", "IS").replace("e_gone.e_offset", "e_gone")
    sql = re.sub(r"r_values\.v\d", "r_values", sql).replace("WHEN alike", "WHEN e_values IS r_values")
    sql = sql.replace("claim.", "c_")
    facts = {**FACTS, **facts}
    row = ", ".join(f"? AS {name}" for name in facts)
    found = sqlite3.connect(":memory:").execute(f"SELECT {sql} FROM (SELECT {row})", [*facts.values()]).fetchone()[0]
    return str(found)


@pytest.mark.parametrize(
    ("compacted", "row_order", "expected"),
    [
        (True, 30, "unchecked"),  # the update has the lower offset, so compaction took it, and it is newer all the same
        (True, 10, "resurrected"),
        (False, 30, "resurrected"),  # every record is there, and none has made the row
    ],
)
def test_a_late_delete_does_not_delete_what_came_after_it_in_the_sequence(
    compacted: bool, row_order: int, expected: str
) -> None:
    deleted = {"e_state": "absent", "e_order": 20, "e_gone": 20, "e_offset": 9}
    assert kind(ordered=True, **deleted, r_compacted=compacted, row_order=row_order) == expected


@pytest.mark.parametrize(
    ("compacted", "offset", "expected"),
    [(True, 12, "unchecked"), (True, 5, "resurrected"), (False, 12, "resurrected")],
)
def test_compaction_by_another_key_may_take_an_update_after_the_delete(
    compacted: bool, offset: int, expected: str
) -> None:
    deleted = {"e_state": "absent", "e_offset": 9, "e_gone": 9}
    assert kind(ordered=False, **deleted, r_compacted=compacted, r_offset=offset) == expected


@pytest.mark.parametrize("ordered", [True, False])
def test_a_row_of_the_newest_record_is_right_and_an_older_one_stale(ordered: bool) -> None:
    assert kind(ordered=ordered) == "right"
    assert kind(ordered=ordered, r_values="other") == "altered"
    assert kind(ordered=ordered, r_offset=4, row_order=29) == "stale"
    assert kind(ordered=ordered, r_offset=6, row_order=31, r_compacted=True) == "unchecked"


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("gone", [{"r_zone": "unchecked"}, {"r_compacted": True}])
def test_a_marked_row_whose_update_is_gone_from_kafka_is_unchecked(gone: dict[str, Any], ordered: bool) -> None:
    """Kafka shows the delete alone, and the row keeps the values of the update before."""
    marked = {"e_state": "blank", "e_offset": 9, "e_gone": 40, "e_order": 40, "r_marked": True}
    assert kind(ordered=ordered, **marked) == "altered"
    assert kind(ordered=ordered, **marked, **gone) == "unchecked"
    assert kind(ordered=ordered, **marked, **gone, r_values=None) == "right"


@pytest.mark.parametrize("place", [{"r_before": True, "r_zone": "nowhere"}, {"r_zone": "unchecked"}])
def test_a_truncate_removes_rows_of_whose_key_kafka_shows_nothing(place: dict[str, Any]) -> None:
    kept = kind(ordered=True, e_state=None, **place)
    assert kept == ("held_before" if "r_before" in place else "unchecked")
    for truncate, expected in ((29, kept), (30, "resurrected"), (40, "resurrected")):
        assert kind(ordered=True, e_state=None, e_truncated=truncate, **place) == expected
    assert kind(ordered=True, e_state=None, e_truncated=40, r_k0=None, **place) == "resurrected"
    assert kind(ordered=True, e_state="alive", e_truncated=40, **{**place, "r_zone": "checked"}) != "resurrected"


@pytest.mark.parametrize("ordered", [True, False])
def test_a_row_of_whose_key_kafka_shows_nothing_may_have_been_deleted_where_the_pipeline_came_too_late(
    ordered: bool,
) -> None:
    gone = {"e_state": None, "r_compacted": True}
    assert kind(ordered=ordered, **gone) == "unchecked", "a pipeline that came in time has seen every delete"
    assert kind(ordered=ordered, **gone, c_missed=6) == "doubtful"
    assert kind(ordered=ordered, **gone, c_missed=6, r_zone="unchecked") == "doubtful"
    others: list[tuple[dict[str, Any], str]] = [
        ({"c_missed": 5}, "unchecked"),  # the row was read after that
        ({"r_marked": True}, "unchecked"),  # and is deleted
        ({"r_before": True}, "held_before"),
        ({"r_zone": "ahead"}, "unexpected"),
        ({"r_compacted": False}, "unexpected"),
        ({"e_state": "alive"}, "right"),
    ]
    for other, expected in others:
        assert kind(ordered=ordered, **{**gone, "c_missed": 6, **other}) == expected


@pytest.mark.parametrize("ordered", [True, False])
def test_compaction_leaves_the_last_record_of_a_key_unless_that_is_a_delete(ordered: bool) -> None:
    gone: dict[str, Any] = {"e_state": None, "r_compacted": True, "all_of_key": True}
    assert kind(ordered=ordered, **gone) == "doubtful"
    assert kind(ordered=ordered, **gone, c_to_end=False) == "unchecked", "a later one may lie behind the claim"
    assert kind(ordered=ordered, **gone, r_zone="unchecked") == "unchecked", "retention took it"


TEXT = {"key": {"format": "string"}}


@pytest.mark.parametrize(
    ("sink", "more", "decides"),
    [
        ({"key": "_key"}, TEXT, True),
        ({"key": "_key"}, {"key": {"format": "bytes"}}, True),
        ({"key": "k"}, TEXT, False),  # another Kafka key may have deleted the row, and left nothing
        ({"key": ["_key", "k"]}, TEXT, False),
        ({"key": "_key"}, {"key": {"format": "json", "schema": "k BIGINT"}}, False),  # it may have more fields
        ({"key": "_key"}, {**TEXT, "transform": "SELECT lower(_key) AS _key, n FROM records"}, False),
    ],
)
def test_kafkas_key_decides_only_where_it_is_the_sinks_key(
    sink: dict[str, Any], more: dict[str, Any], decides: bool
) -> None:
    assert by_kafkas_key(pipeline(sink, **more)) is decides


def test_compaction_takes_no_later_change_of_the_same_kafka_key_alone() -> None:
    """So a row that is missing is lost, not doubtful."""
    kept, compacted = (Bounds(At("t", 0), 0, 0, 9, 9, compacted=each) for each in (False, True))
    assert shows_every_later([kept], ordered=False, by_kafkas_key=False)
    assert not shows_every_later([kept, compacted], ordered=False, by_kafkas_key=False)
    assert shows_every_later([kept, compacted], ordered=False, by_kafkas_key=True)
    assert not shows_every_later([compacted], ordered=True, by_kafkas_key=True)


def test_where_kafkas_log_ends_before_the_claim_its_last_records_may_have_deleted_a_row() -> None:
    """As an unclean election of a leader leaves it."""
    kept, cut_off = (Bounds(At("t", 0), 0, 3, stop, 10, compacted=False) for stop in (10, 8))
    assert shows_every_later([kept], ordered=False, by_kafkas_key=True)
    assert not shows_every_later([kept, cut_off], ordered=False, by_kafkas_key=True)
    assert not shows_every_later([cut_off], ordered=False, by_kafkas_key=False)


def test_a_later_delete_excuses_no_other_values() -> None:
    """The row is marked as deleted by a record after the claim, and keeps the values of the claim's last update."""
    assert kind(ordered=False, r_marked=True, e_deleted_later=True) == "ahead"
    assert kind(ordered=False, r_marked=True, e_deleted_later=True, r_values="other") == "altered"
    assert kind(ordered=False, r_marked=True) == "doubtful"
