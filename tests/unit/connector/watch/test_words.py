from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from connector.cli.tables import status_fields
from connector.fleet.files import Fault
from connector.operations.status import Status
from connector.protocol.recover import HeldBack, TopicsHeld
from connector.watch.state_words import standing
from sinks.contract import Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
ASKED = datetime(2026, 11, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def stands(next_: int, beginning: int, end: int, topic_id: str = "id") -> Status:
    held = TopicsHeld(Offsets({AT: beginning}), Offsets({AT: end}), {"t": topic_id}, datetime.now(timezone.utc))
    position = Position(5, Offsets({AT: next_}), {"t": "id"}, "run")
    return Status("p", "transactional", ["lake/t"], position, position.offsets, held)


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        (stands(10, 0, 10), "good", "up to date"),
        (stands(10, 0, 11), "waiting", "behind"),
        (stands(10, 12, 20), "bad", "records gone"),
        (stands(10, 0, 8), "bad", "log was cut"),
        (stands(10, 0, 8, "another"), "bad", "topic recreated"),
    ],
)
def test_where_a_run_would_stop_it_is_bad(status: Status, kind: str, word: str) -> None:
    assert standing(status) == (kind, word)


def test_a_table_that_was_replaced_is_not_up_to_date() -> None:
    fine = stands(10, 0, 10)
    assert fine.position is not None
    status = replace(fine, position=replace(fine.position, replaced="version 7 is an INSERT OVERWRITE"))
    assert standing(status) == ("bad", "table was replaced")
    assert status_fields(status)["replaced"] == "version 7 is an INSERT OVERWRITE"
    assert status_fields(fine)["replaced"] is None
    assert "replaced" in repr(status)
    assert "replaced" not in repr(fine)


def test_a_time_that_is_still_to_come_is_told() -> None:
    fine = stands(10, 0, 10)
    assert fine.position is not None
    for wait, told in ((2 * MINUTE, True), (MINUTE / 2, False)):
        position = replace(fine.position, read_to=fine.held.asked_at + wait)
        assert ("the machine that wrote it was ahead" in repr(replace(fine, position=position))) == told


def test_what_is_missing_is_named() -> None:
    gone, cut = stands(10, 12, 20), stands(10, 0, 8)
    assert (gone.gone, gone.cut) == ([OffsetRange("t", 0, 10, 12)], [])
    assert (cut.gone, cut.cut) == ([], [OffsetRange("t", 0, 8, 10)])


def test_a_new_partition_stands_at_offset_0_as_in_a_run() -> None:
    new = TopicPartition("t", 1)
    held = TopicsHeld(Offsets({AT: 0, new: 4}), Offsets({AT: 2, new: 5}), {"t": "id"}, datetime.now(timezone.utc))
    position = Position(1, Offsets({AT: 2}), {"t": "id"})
    status = Status("p", "transactional", ["lake/t"], position, position.offsets, held)
    assert (status.gone, status.lag[new]) == ([OffsetRange("t", 1, 0, 4)], 5)
    assert standing(status) == ("bad", "records gone")


@pytest.mark.parametrize(
    ("next_time", "held_back", "waits"),
    [
        ({AT: ASKED - MINUTE}, {}, 60),
        ({AT: ASKED - MINUTE}, {AT: HeldBack(2, ASKED)}, 60),
        ({}, {}, None),
        ({}, {AT: HeldBack(2, ASKED)}, None),
        ({AT: None}, {}, 0),
        ({AT: None}, {AT: HeldBack(2, ASKED - MINUTE)}, 60),
        ({AT: None}, {AT: HeldBack(2, None)}, None),
    ],
)
def test_who_does_not_answer_may_have_waited_for_long(
    next_time: dict[TopicPartition, datetime | None], held_back: dict[TopicPartition, HeldBack], waits: float | None
) -> None:
    other = TopicPartition("t", 1)
    held = TopicsHeld(Offsets({AT: 0, other: 0}), Offsets({AT: 5, other: 3}), {"t": "id"}, ASKED, held_back=held_back)
    position = Position(5, Offsets({AT: 2, other: 3}), {"t": "id"}, "run")
    status = Status("p", "transactional", ["lake/t"], position, position.offsets, held, next_time)
    assert status.lag_seconds == {AT: waits, other: 0}
    assert status.max_lag_seconds == waits
    assert status_fields(status)["max_lag_seconds"] == waits


@pytest.mark.parametrize(("since", "waits"), [(ASKED - MINUTE, 60), (None, None)])
def test_what_a_transaction_holds_back_waits_since_its_first_record(since: datetime | None, waits: float) -> None:
    held = TopicsHeld(Offsets({AT: 0}), Offsets({AT: 5}), {"t": "id"}, ASKED, held_back={AT: HeldBack(2, since)})
    position = Position(5, Offsets({AT: 5}), {"t": "id"}, "run")
    assert Status("p", "transactional", ["lake/t"], position, position.offsets, held).lag_seconds == {AT: waits}


def test_a_topic_without_a_record_yet_is_waited_for() -> None:
    nothing = Fault("t has no record yet", exit_code=0)
    assert standing(None, [nothing]) == ("waiting", "no record yet")
    assert standing(None, [nothing, Fault("No broker answered.")]) == ("bad", "can't be read")
