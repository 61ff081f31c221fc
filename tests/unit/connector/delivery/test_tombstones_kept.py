"""What a run stores of how long topics keep tombstones, while looks see other times than the one it catches up with."""

import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from fakes import Group, To, Topic

from connector.delivery.ports import Work
from connector.delivery.transactional import deliver
from connector.protocol.gone import Looks
from connector.protocol.recover import TopicsHeld
from sinks.contract import Committed, Epoch
from sinks.memory import MemoryAppend, MemoryTable

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass
class Compacted(Topic):
    """A topic to which a record comes before each look."""

    seen: Looks = field(default_factory=lambda: Looks(lambda _: True))

    def look(self) -> TopicsHeld:
        self.append(0, ("a", 1))
        return self.seen.after(super().look())


def test_a_time_that_is_lowered_while_a_run_catches_up_is_stored_until_all_behind_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = datetime(2026, 11, 27, 8, tzinfo=timezone.utc)
    topic, table = Compacted([[("a", 1)] * 5], kept=DAY, clock=lambda: now), MemoryTable()
    monkeypatch.setattr("connector.delivery.transactional.datetime", SimpleNamespace(now=lambda _: now))
    writer = MemoryAppend(table)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        nonlocal now
        committed = writer.write(epoch, topic.read(epoch))
        topic.kept = {1: HOUR}.get(epoch.number, DAY)
        now += HOUR / 4
        return committed

    work = Work("p", "run", topic, To(writer.position, run_epoch), 3, Group(), lambda _: None)
    deliver(work, interval=None, stop=threading.Event())
    kept = [each.tombstones_kept["t"] for each in table.commits]
    assert kept[:2] == [DAY, HOUR], "the second epoch reaches the ends of the first look"
