"""A log that an unclean leader election has cut short, and that is filled again: other records at the same offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import Lake, Topic
from kafka import KafkaConsumer, TopicPartition

from connector.lab.broker import Broker
from sinks.errors import OffsetsLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.breadth
@pytest.mark.xfail(reason="the position doesn't say under which leader its last record was written", strict=True)
def test_a_log_that_was_cut_and_filled_again_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """A broker's disk goes back to what an out-of-date replica held. The record before the position, where it is
    there, tells: it has another leader epoch."""
    with Broker() as broker:
        broker.create_topic("t")
        lake = Lake(tmp_path, Topic(broker, "t"), spark)
        lake.topic.send_rows([("a", 0), ("b", 1)])
        broker.stop()
        log, replica = broker.data / "kafka" / "t-0", tmp_path / "replica"
        shutil.copytree(log, replica)
        broker.start()
        lake.topic.send_rows([("c", 2), ("d", 3)])
        lake.pipeline().run()
        epoch = leader_epoch(broker, 3)
        broker.stop()
        shutil.rmtree(log)
        shutil.copytree(replica, log)
        broker.start()
        lake.topic.send_rows([("x", 2), ("y", 3), ("z", 4)])
        assert leader_epoch(broker, 3) > epoch
        with pytest.raises(OffsetsLost):
            lake.pipeline().run()


def leader_epoch(broker: Broker, offset: int) -> int:
    """Under which leader the record was written."""
    at = TopicPartition("t", 0)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([at])
        consumer.seek(at, offset)
        return int(consumer.poll(timeout_ms=10_000, max_records=1)[at][0].leader_epoch)
