"""A log that an unclean leader election has cut short, and that is filled again: other records at the same offsets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Lake

from connector.audit import audit
from connector.config import parse
from connector.lab.bench.broker import Broker
from connector.protocol.steps import Event, Step
from sinks.errors import OffsetsLost


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One that may be stopped."""
    with Broker() as broker:
        yield broker


@pytest.mark.breadth
def test_a_log_that_was_cut_and_filled_again_stops_the_run(lake: Lake, tmp_path: Path) -> None:
    """The broker's disk goes back to what an out-of-date replica held."""
    broker, replica = lake.topic.broker, tmp_path / "replica"
    log = broker.data / "kafka" / f"{lake.topic.name}-0"
    lake.topic.send_rows([("a", 0), ("b", 1)], partition=0)
    lake.pipeline().run()
    broker.stop()
    shutil.copytree(log, replica)
    broker.start()
    lake.topic.send_rows([("c", 2), ("d", 3)], partition=0)
    lake.pipeline().run()
    broker.stop()
    shutil.rmtree(log)
    shutil.copytree(replica, log)
    broker.start()
    lake.topic.send_rows([("x", 2), ("y", 3), ("z", 4)], partition=0)
    with pytest.raises(OffsetsLost, match=r"was cut at offset 2 and filled again.*below offset 4"):
        lake.pipeline().run()
    assert not audit(parse(lake.options())).ok
    lake.pipeline().rewind(to_version=1, confirm=lambda plan: True)
    lake.pipeline().run()
    assert audit(parse(lake.options())).ok


@pytest.mark.breadth
def test_a_leader_that_lacks_nothing_is_no_matter(lake: Lake) -> None:
    """Each start of the broker is an election. Retention takes away what tells which records were written before it."""
    for n in range(3):
        lake.topic.send_rows([("a", 2 * n), ("b", 2 * n + 1)], partition=0)
        lake.pipeline().run()
        if n == 1:
            lake.topic.delete_before(0, 4)
        lake.topic.broker.stop()
        lake.topic.broker.start()
    lake.pipeline().run()


@pytest.mark.breadth
def test_what_was_polled_under_another_leader_is_read_anew(lake: Lake, tmp_path: Path) -> None:
    """Spark's source keeps what it has polled beyond the end of an epoch."""
    broker, replica = lake.topic.broker, tmp_path / "replica"
    log = broker.data / "kafka" / f"{lake.topic.name}-0"
    lake.topic.send_rows([("a", 0), ("b", 1)], partition=0)
    broker.stop()
    shutil.copytree(log, replica)
    broker.start()

    def cut(event: Event) -> None:
        if event.epoch.number != 1:
            return
        if event.step is Step.PLANNED:
            lake.topic.send_rows([("c", 2), ("d", 3)], partition=0)
        if event.step is Step.COMMITTED:
            broker.stop()
            shutil.rmtree(log)
            shutil.copytree(replica, log)
            broker.start()
            lake.topic.send_rows([("x", 2), ("y", 3)], partition=0)

    changes = {"source": {**lake.options()["source"], "reader": "spark"}, "trigger": {"interval": "1 second"}}
    lake.pipeline(**changes).run(observers=[cut], max_epochs=2)
    assert [key for key, _ in lake.rows()] == ["a", "b", "x", "y"]
