"""Reads Kafka's records and every version of a table, without the pipeline's code."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from connector.lab.check.history import Row, Sent, Version
from sinks.delta.metadata import CommitMetadata
from sinks.errors import LakelockError
from sinks.plurals import plural

if TYPE_CHECKING:
    from kafka.consumer.fetcher import ConsumerRecord

Identify: TypeAlias = Callable[[Mapping[str, object]], tuple[str, int]]
"""Returns key and value of a record, from its JSON or from the columns of its row."""


def lab_records(row: Mapping[str, object]) -> tuple[str, int]:
    """Key and value of a record ``{"k": ..., "n": ...}``."""
    key, value = row["k"], row["n"]
    assert isinstance(key, str)
    assert isinstance(value, int)
    return key, value


def any_records(key: Sequence[str]) -> Identify:
    """An `Identify` for records whose fields are the table's columns. The value is a checksum of all fields.

    ``key``: the key columns.
    """

    def identify(row: Mapping[str, object]) -> tuple[str, int]:
        fields = {name: value for name, value in row.items() if not name.startswith("_")}
        text = json.dumps(fields, sort_keys=True, default=str)
        return ", ".join(str(fields.get(name)) for name in key), zlib.crc32(text.encode())

    return identify


def records(bootstrap: str, topic: str, *, isolation: str = "read_uncommitted") -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset. Raises `LakelockError` if that takes over two minutes."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", isolation_level=isolation
    )
    try:
        assigned = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        read: list[ConsumerRecord] = []
        deadline = time.monotonic() + 120
        while any(consumer.position(at) < ends[at] for at in assigned):
            if time.monotonic() > deadline:
                raise LakelockError(
                    f"Only {plural(len(read), 'record')} of {topic} could be read. Its offsets end at {ends}."
                )
            for polled in consumer.poll(timeout_ms=500).values():
                read += polled
    finally:
        consumer.close()
    return sorted(read, key=lambda record: (record.partition, record.offset))


def sent_records(bootstrap: str, topic: str, identify: Identify = lab_records) -> tuple[Sent, ...]:
    """All records of a topic whose values are JSON."""
    return tuple(
        Sent(record.topic, record.partition, record.offset, *identify(json.loads(record.value)))
        for record in records(bootstrap, topic)
    )


def versions(table: Path, pipeline: str, identify: Identify = lab_records) -> Iterator[Version]:
    """Every version of the table, read by time travel with delta-rs, not with Spark."""
    return (version for _, version in _dated(table, pipeline, identify))


def _dated(table: Path, pipeline: str, identify: Identify) -> Iterator[tuple[int, Version]]:
    """Every version, after the time of its commit."""
    from deltalake import DeltaTable

    if not (table / "_delta_log").exists():
        return
    claims = None
    for commit in sorted(DeltaTable(str(table)).history(), key=lambda commit: int(commit["version"])):
        own = CommitMetadata.from_json(commit.get("userMetadata"), pipeline=pipeline)
        if own is not None and own.position.delivery == "transactional":
            claims = own.offsets
        number = int(commit["version"])
        yield int(commit["timestamp"]), Version(number, tuple(_rows(table, number, identify)), claims)


def versions_together(tables: Sequence[Path], pipeline: str, identify: Identify = lab_records) -> Iterator[Version]:
    """Every state of several tables as one version: their commits in the order of time.

    A version claims what its tables claim, while all of them claim the same.
    """
    steps = [
        (time, index, version)
        for index, table in enumerate(tables)
        for time, version in _dated(table, pipeline, identify)
    ]
    now: dict[int, Version] = {}
    for number, (_, index, version) in enumerate(sorted(steps, key=lambda step: (step[0], step[1], step[2].number))):
        now[index] = version
        claims = [each.claims for each in now.values()]
        same = len(now) == len(tables) and all(each == claims[0] for each in claims)
        yield Version(number, tuple(row for each in now.values() for row in each.rows), claims[0] if same else None)


def _rows(table: Path, version: int, identify: Identify) -> Iterator[Row]:
    from deltalake import DeltaTable, QueryBuilder

    read = QueryBuilder().register("t", DeltaTable(str(table), version=version)).execute("SELECT * FROM t").read_all()
    names = read.schema.names
    for values in zip(*(column.to_pylist() for column in read.columns), strict=True):
        row = dict(zip(names, values, strict=True))
        yield Row(row["_topic"], row["_partition"], row["_offset"], *identify(row))
