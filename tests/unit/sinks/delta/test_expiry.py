"""When tombstones expire."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from sinks.contract import Epoch, Position
from sinks.delta.expiry import expires_before
from sinks.offsets import Offsets, TopicPartition

STOOD = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
AT = TopicPartition("t", 0)


def epoch_after(position: Position | None) -> Epoch:
    return Epoch("p", 11, "me", (), Offsets({AT: 80}), {}, STOOD, position)


@pytest.mark.parametrize("later", [timedelta(minutes=1), 5 * DAY], ids=["at once", "after a pause"])
def test_a_delete_is_remembered_for_what_kafka_got_within_its_retention(later: timedelta) -> None:
    """Whenever that is read: a pipeline that has stood still, or is behind, reads it long after the delete."""
    epoch = epoch_after(Position(10, Offsets({AT: 70}), read_to=STOOD))
    assert expires_before(2 * DAY, epoch, STOOD + later) == STOOD - 2 * DAY


@pytest.mark.parametrize(
    ("position", "before"),
    [
        (None, None),
        (Position(10, Offsets(), began_at=STOOD), STOOD - 2 * DAY),  # it has never been at the end
        (Position(10, Offsets(), committed_at=STOOD), STOOD - 2 * DAY),  # of 0.2
        (Position(10, Offsets()), None),
        (Position(10, Offsets(), read_to=STOOD + 9 * DAY), None),  # of a wrong clock
        (Position(10, Offsets(), read_to=STOOD + 9 * DAY, committed_at=STOOD), None),  # its commit's may be wrong too
        (Position(10, Offsets(), read_to=STOOD + 9 * DAY, began_at=STOOD - DAY), STOOD - 3 * DAY),
        (Position(10, Offsets(), read_to=STOOD + DAY + timedelta(seconds=9)), STOOD - DAY),  # clocks differ by that
        (Position(10, Offsets(), read_to=STOOD, read_to_of={"b": STOOD + 9 * DAY}), None),
        (Position(10, Offsets(), read_to=STOOD, read_to_of={"b": STOOD - 5 * DAY}), STOOD - 7 * DAY),  # not in the file
        (Position(10, Offsets(), read_to=STOOD, read_to_of={"b": None}), None),
        (Position(10, Offsets(), read_to=STOOD, read_to_of={"#B/b": STOOD - 5 * DAY}), STOOD - 2 * DAY),  # retired
    ],
)
def test_nothing_expires_that_an_update_may_need_which_is_still_to_be_read(
    position: Position | None, before: datetime | None
) -> None:
    assert expires_before(2 * DAY, epoch_after(position), STOOD + DAY) == before


def test_where_a_group_has_the_offsets_nothing_tells_what_was_read() -> None:
    assert expires_before(2 * DAY, None, STOOD) == STOOD - 2 * DAY
