"""``--max-epochs``: a run ends after so many epochs, and the next one goes on there."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from fakes import Group, To, Topic

from connector.config import parse
from connector.delivery.limit import EpochLimit
from connector.delivery.ports import Delivered, Work
from connector.delivery.transactional import deliver
from connector.pipeline import Pipeline
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch, Position
from sinks.errors import ConfigurationError
from sinks.memory import MemoryAppend, MemoryTable
from sinks.offsets import Offsets

WITHIN = 20
"""Seconds after which a run that doesn't end by itself is stopped."""


def run(topic: Topic, table: MemoryTable, most: int | None, *, interval: timedelta | None = None) -> Delivered:
    writer, stop = MemoryAppend(table), threading.Event()
    limit = EpochLimit(stop, most)

    def run_epoch(epoch: Epoch, behind: int) -> Committed:
        committed = writer.write(epoch, topic.read(epoch))
        limit(Event(Step.COMMITTED, epoch, committed, behind))
        return committed

    watchdog = threading.Timer(WITHIN, stop.set)
    watchdog.start()
    try:
        work = Work("p", "run", topic, To(writer.position, run_epoch), 2, Group(), lambda event: None)
        delivered = deliver(work, interval=interval, stop=limit)
    finally:
        watchdog.cancel()
    assert not stop.is_set(), "it had to be stopped"
    return delivered


@pytest.mark.parametrize("interval", [None, timedelta(0), timedelta(hours=1)])
def test_a_run_ends_after_so_many_epochs_and_the_next_goes_on(interval: timedelta | None) -> None:
    topic, table = Topic([[("a", number) for number in range(7)]]), MemoryTable()
    first = run(topic, table, 2, interval=interval)
    assert (first.epochs, first.behind) == (2, 3)
    second = run(topic, table, 1, interval=interval)
    assert (second.epochs, second.behind) == (1, 1)
    assert run(topic, table, 9).epochs == 1, "no more is there"
    assert [record.value for record in table.rows] == list(range(7))


def test_without_a_limit_all_that_is_there_is_read() -> None:
    topic, table = Topic([[("a", number) for number in range(7)]]), MemoryTable()
    assert run(topic, table, None).epochs == 4


def test_what_hands_a_table_over_to_a_consumer_group_is_no_batch() -> None:
    nothing = Epoch.that_left(Position(0, Offsets()), pipeline="p")
    limit = EpochLimit(threading.Event(), 1)
    limit(Event(Step.COMMITTED, replace(nothing, delivery="manual_commit")))
    assert not limit.reached
    limit(Event(Step.COMMITTED, nothing))
    assert limit.reached


def test_the_signal_from_outside_counts_as_before() -> None:
    stop = threading.Event()
    limit = EpochLimit(stop, 5)
    assert not limit.wait(0)
    stop.set()
    assert limit.is_set()
    assert limit.wait(0)
    assert not limit.reached


def test_a_limit_of_nothing_is_refused_before_anything_is_done() -> None:
    pipeline = Pipeline(
        parse(
            {
                "name": "p",
                "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:1"}},
                "value": {"format": "string"},
                "sinks": [{"type": "delta_append", "path": "lake/p"}],
            }
        )
    )
    with pytest.raises(ConfigurationError, match="max_epochs: write at least 1, not 0"):
        pipeline.run(max_epochs=0)
