"""What a recovery makes of tables of a route, by what the coordinator log says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from connector.protocol.decided import LogHeld, Row, State, is_at, is_before, strayed
from connector.protocol.two_phase import AskPositions, Commit, Prepare, ReadLog, recover
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import Diverged, OffsetsLost, PositionMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)


def position(epoch: int, **more: Any) -> Position:
    return Position(epoch, Offsets({AT: 5 * epoch}), owner="r", **more)


def decided(number: int, **prepared: Prepared) -> Row:
    ranges, offsets = (OffsetRange("t", 0, 5 * number - 5, 5 * number),), Offsets({AT: 5 * number})
    epoch = Epoch("p", number, "r", ranges, offsets, {}, None, position(number - 1) if number > 1 else None)
    return Row(State.DECIDED, epoch, "r", prepared, config="c")


PASSED_BY = decided(3, a=Prepared(0, "", {}, 2), b=Prepared(1, "", {}, 2))
WRITTEN = decided(3, a=Prepared(1, "", {}, 2))


@pytest.mark.parametrize("restored", [{}, {"source": "restored", "restored_to": 2}])
def test_a_restore_to_the_newest_epoch_undoes_none(restored: Mapping[str, Any]) -> None:
    assert is_at(position(2, **restored), PASSED_BY, "a")
    assert is_before(position(2, **restored), WRITTEN, "a")


def test_a_restore_to_an_earlier_epoch_is_seen() -> None:
    back = position(2, source="restored", restored_to=1)
    assert not is_at(back, PASSED_BY, "a")
    assert not is_before(back, WRITTEN, "a")


BACK = {"source": "restored", "restored_to": 1}


@pytest.mark.parametrize(
    ("stands", "said"),
    [
        (position(3), ""),
        (position(4), ""),  # a run has gone on since the log was read
        (position(3, replaced="version 7, WRITE (overwrite)"), "a: version 7, WRITE (overwrite)"),
        (position(2), 'a stands at epoch 2 with {"t":{"0":10}}, and the coordinator log is at epoch 3'),
        (replace(position(3, **BACK), offsets=Offsets({AT: 5})), 'a stands at epoch 3 with {"t":{"0":5}}'),
        (None, "a holds no epoch, and the coordinator log is at epoch 3"),
    ],
)
@pytest.mark.parametrize("in_doubt", [False, True])
def test_who_only_looks_sees_which_table_does_not_hold_what_the_log_says(
    in_doubt: bool, stands: Position | None, said: str
) -> None:
    row = decided(3, a=Prepared(1, "", {}), b=Prepared(1, "", {}))
    known = LogHeld(5, row if in_doubt else replace(row, state=State.DONE), row)
    found = strayed({"a": stands, "b": position(3), "added": None}, known)
    if in_doubt and stands == position(2):
        assert not found, "the next run commits it there"
    else:
        assert found.startswith(said)
        assert bool(found) is bool(said)
    assert not strayed({"a": None}, LogHeld())


def test_tables_of_a_route_that_an_epoch_passes_by_are_where_they_were() -> None:
    known = LogHeld(5, replace(PASSED_BY, state=State.DONE), PASSED_BY)
    assert not strayed({"a": position(2), "b": position(3)}, known)
    assert strayed({"a": position(1)}, known).startswith("a stands at epoch 1")


def recovered(held: LogHeld, positions: Mapping[str, Position | None], again: Any = None) -> Any:
    """What a recovery gives where the sinks are at these positions. ``again``: what reading the epoch again gives."""
    steps = recover("later", "c")
    answer: Any = None
    while True:
        try:
            action = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = None
        if isinstance(action, ReadLog):
            answer = held
        elif isinstance(action, AskPositions):
            answer = positions
        elif isinstance(action, Commit):
            answer = {
                name: Committed(stands, rows=0, already=True) if stands and stands.holds(action.epoch) else None
                for name, stands in positions.items()
            }
        elif isinstance(action, Prepare):
            if isinstance(again, Exception):
                action = steps.throw(again)
            answer = (action.epoch, again)  # type: ignore[union-attr]


def test_a_table_of_which_no_record_is_left_leads_to_the_way_out() -> None:
    in_doubt = decided(2, a=Prepared(3, "", {}, 1), x=Prepared(2, "", {}, 0))
    with pytest.raises(Diverged, match=r"its ranges give 0 rows, where 2 rows were prepared") as told:
        recovered(LogHeld(3, in_doubt, in_doubt), {"a": position(2), "x": None}, again={})
    assert "rewind FILE --to-epoch 1 --allow-data-loss`" in str(told.value.hint)


def test_an_epoch_in_doubt_that_kafka_has_removed_leads_to_the_way_out() -> None:
    in_doubt = decided(2, a=Prepared(3, "", {}, 1), b=Prepared(2, "", {}, 1))
    with pytest.raises(OffsetsLost, match="some of its sinks don't have their rows yet") as told:
        recovered(LogHeld(3, in_doubt, in_doubt), {"a": position(2), "b": position(1)}, again=OffsetsLost("gone"))
    assert "rewind FILE --to-epoch 1 --allow-data-loss`" in str(told.value.hint)


def test_a_table_that_an_epoch_would_have_made_is_no_part_of_the_last_decision() -> None:
    """The epoch could not be decided, as the log gave no answer. The run holds the table's rows still."""
    last = decided(2, a=Prepared(3, "", {}, 1))
    done = LogHeld(4, Row(State.DONE, last.epoch, "r"), last)
    found = recovered(done, {"a": position(2), "x": None})
    assert found.stands.number == 2
    with pytest.raises(PositionMismatch):
        recovered(done, {"a": position(2), "x": position(1)})
