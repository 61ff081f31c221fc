"""Where a sink stands, compared with where an epoch begins and ends."""

from dataclasses import replace

import pytest

from sinks.contract import Epoch, Position, describe
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = Position(2, Offsets({AT: 5}), owner="run-0")
EPOCH = Epoch("p", 3, "run-1", (), Offsets({AT: 9}), {"t": "id"}, None, BEFORE)
AFTER = EPOCH.position()


def test_the_position_after_an_epoch_holds_it() -> None:
    assert AFTER.holds(EPOCH)
    assert not EPOCH.follows(AFTER)


def test_the_position_that_an_epoch_was_planned_from_does_not_hold_it() -> None:
    assert not BEFORE.holds(EPOCH)
    assert EPOCH.follows(BEFORE)


def test_another_runs_epoch_of_the_same_number_and_offsets_is_not_held() -> None:
    assert not replace(AFTER, owner="run-2").holds(EPOCH)
    assert replace(AFTER, owner="").holds(EPOCH)


def test_whoever_committed_before_the_next_epoch_starts_at_the_same_place() -> None:
    assert EPOCH.follows(replace(BEFORE, owner="run-9", topics={"t": "id"}, batch="q/1"))


@pytest.mark.parametrize("source", ["commit", "restored", "cloned"])
def test_other_offsets_or_another_number_are_another_place(source: str) -> None:
    other = replace(BEFORE, offsets=Offsets({AT: 4}), source=source)
    assert not other.same_place(BEFORE)
    assert not replace(BEFORE, epoch=1).same_place(BEFORE)


def test_of_a_position_read_from_the_rows_the_number_decides() -> None:
    rows = replace(BEFORE, offsets=Offsets({AT: 4}), owner="", source="rows")
    assert EPOCH.follows(rows)
    assert not EPOCH.follows(replace(rows, epoch=1))
    assert replace(rows, epoch=3).holds(EPOCH)


def test_only_a_first_epoch_follows_no_position() -> None:
    first = replace(EPOCH, expected=None)
    assert first.follows(None)
    assert not first.follows(BEFORE)
    assert not EPOCH.follows(None)


def test_a_position_is_described_by_its_epoch_and_offsets() -> None:
    assert describe(BEFORE) == 'epoch 2 with {"t":{"0":5}}'
    assert describe(None) == "no position"


@pytest.mark.parametrize(
    ("offsets", "since", "delivery", "none"),
    [
        ({}, {}, "transactional", True),
        ({AT: 7}, {AT: 7}, "transactional", True),
        ({AT: 7, OTHER: 0}, {AT: 7}, "transactional", True),
        ({AT: 8}, {AT: 7}, "transactional", False),
        ({AT: 7, OTHER: 1}, {AT: 7}, "transactional", False),
        ({AT: 7}, {}, "transactional", False),
        ({AT: 7}, {AT: 7}, "auto_commit", False),
    ],
)
def test_a_position_where_the_pipeline_began_has_passed_no_record(
    offsets: dict[TopicPartition, int], since: dict[TopicPartition, int], delivery: str, none: bool
) -> None:
    position = Position(1, Offsets(offsets), since=Offsets(since), delivery=delivery)
    assert position.passed_none is none


def test_a_table_of_several_claims_what_it_has_read_itself() -> None:
    own, new, others = OffsetRange("t", 0, 1, 2), OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 0, 1)
    epoch = replace(EPOCH, lost=(others, new), missed=(new,), expected=replace(BEFORE, lost=(others,)))
    table = replace(BEFORE, since=Offsets({AT: 3}), lost=(own,), missed=(own,))
    of_table = epoch.of_table(table)
    assert (of_table.since, of_table.lost, of_table.missed) == ({AT: 3}, (own, new), (new,))
    later = replace(epoch, lost=(others,), missed=()).of_table(table)
    assert (later.expected, later.lost, later.missed) == (table, (own,), (own,))
    assert epoch.of_table(None) == replace(epoch, expected=None)
