"""Audits of a test's tables, and what of their results tests look at."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from conftest import Lake, Topic, wait_until

from connector.audit import Audit, audit
from connector.config import parse


def verify(lake: Lake, kind: str = "append", version: int | None = None, **changes: Any) -> Audit:
    return audit(parse(lake.options(kind, **changes)), version)


def counts(found: Audit) -> dict[str, int]:
    """Only what isn't zero."""
    return {name: count for name, count in found.totals.items() if count}


def places(found: Audit) -> dict[str, Any]:
    return {kind: tuple(place.to_dict()["at"][1:]) for kind, place in found.first.items()}


def group_offsets(topic: Topic, offsets: dict[int, int], *groups: str) -> None:
    """Commit next offsets of a topic for consumer groups. A new broker has no coordinator for them at first."""
    from kafka import KafkaAdminClient
    from kafka.errors import CoordinatorNotAvailableError, NoError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    stored = {TopicPartition(topic.name, at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)

    def is_stored(group: str) -> bool:
        try:
            refused = admin.alter_group_offsets(group, stored).values()
        except CoordinatorNotAvailableError:
            return False
        return all(error is NoError for error in refused)

    for group in groups:
        wait_until(partial(is_stored, group), what="a coordinator")
    admin.close()


def make(
    lake: Lake, kind: str, columns: str, *rows: tuple[Any, ...], upto: dict[str, int], delivery: str = "transactional"
) -> None:
    """A table, with the claim to hold all records up to these offsets. A row with coordinates ends with (partition,
    offset); topic and timestamp are Kafka's."""
    spark = lake.spark
    assert spark is not None
    frame = spark.createDataFrame(list(rows), columns)
    if "_offset" in frame.columns:
        arrived = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", lake.topic.broker.bootstrap)
            .option("subscribe", lake.topic.name)
            .load()
            .selectExpr("topic AS _topic", "partition AS _partition", "offset AS _offset", "timestamp AS _timestamp")
        )
        frame = frame.join(arrived, ["_partition", "_offset"], "left")
    metadata = {
        "lakelock": 1, "pipeline": kind, "epoch": 1, "offsets": {lake.topic.name: upto},
        "since": {lake.topic.name: dict.fromkeys(upto, 0)}, "topics": {},
        "delivery": delivery,
    }  # fmt: skip
    frame.coalesce(1).write.format("delta").option("userMetadata", json.dumps(metadata)).save(str(lake.path(kind)))


CHANGES = "k STRING, n INT, note STRING, s INT, op STRING"


def change(k: str, s: int, n: int | None = None, op: str = "U", note: str | None = None) -> tuple[str, dict[str, Any]]:
    return (k, {"k": k, "s": s, "n": n, "op": op, "note": note})
