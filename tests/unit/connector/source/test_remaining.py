"""Where reading goes on after lost records, with ``on_data_loss: {continue: 10 minutes}``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.protocol.recover import TopicsHeld
from connector.source.topics import KafkaSource
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
NOW = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)
HELD = TopicsHeld(Offsets({AT: 100}), Offsets({AT: 110}), {}, NOW)


class Answers(KafkaSource):
    """Ten records from offset 100 on, one per two minutes, the first one at a given time."""

    def __init__(self, first: datetime, then: datetime) -> None:
        self._options: Any = SimpleNamespace(ahead=timedelta(minutes=10))
        times = [first, *(then + timedelta(minutes=2 * number) for number in range(1, 10))]
        self._times = {100 + number: time.timestamp() * 1000 for number, time in enumerate(times)}

    def _first(self, millis: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        found = {}
        for at, after in millis.items():
            offset = next((offset for offset, time in self._times.items() if time >= after), None)
            if offset is not None:
                found[at] = SimpleNamespace(offset=offset, timestamp=self._times[offset])
        return found


HOURS_AGO = NOW - timedelta(hours=3)


@pytest.mark.parametrize(
    ("first", "then", "start"),
    [
        (HOURS_AGO, HOURS_AGO, 105),
        (NOW.replace(year=2099), HOURS_AGO, 100),
        (NOW - timedelta(minutes=5), NOW - timedelta(minutes=5), 100),
    ],
    ids=["older", "a wrong clock", "younger than what is skipped"],
)
def test_only_what_retention_may_remove_next_is_skipped(first: datetime, then: datetime, start: int) -> None:
    assert Answers(first, then).remaining(HELD)([AT])[AT].start == start
