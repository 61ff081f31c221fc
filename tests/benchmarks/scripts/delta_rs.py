"""A topic into a Delta table without Spark, by confluent-kafka, orjson, pyarrow and delta-rs. No Lakelock in it.

``delta_rs.py BOOTSTRAP TOPIC TABLE KIND``: KIND is ``append`` or ``upsert``, which keeps the latest record per key.

The next offset of each partition is in the table's log, as a transaction of its own. So the table tells where to go on.
Each run makes one commit, and holds its records in memory.
"""

import sys
from collections.abc import Callable, Iterable, Iterator

try:
    import orjson
    import pyarrow as pa
    from confluent_kafka import Consumer, TopicPartition
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
except ImportError as error:
    sys.exit(f"{error}: pip install 'lakelock[bench]'")

COLUMNS = ("key", "number", "amount", "at", "note")
UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "key": pa.string(), "number": pa.int64(), "amount": pa.float64(), "at": UTC, "note": pa.string(),
        "_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64(), "_timestamp": UTC,
    }
)  # fmt: skip
ROWS = 100_000
"""Rows of an Arrow batch: with more, the decoded records would take most of the memory."""

Record = tuple[bytes, int, int, int]
"""Value, partition, offset, and the timestamp in milliseconds."""
Row = tuple[object, ...]


def main(bootstrap: str, topic: str, path: str, kind: str) -> None:
    table = DeltaTable.create(path, SCHEMA, mode="ignore")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": False, "fetch.max.bytes": 64 << 20,
            "max.partition.fetch.bytes": 16 << 20,
        }
    )  # fmt: skip
    starts = {
        partition: table.transaction_version(f"{topic}-{partition}") or 0
        for partition in consumer.list_topics(topic).topics[topic].partitions
    }
    ends = {partition: consumer.get_watermark_offsets(TopicPartition(topic, partition))[1] for partition in starts}
    if starts == ends:
        return
    consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])
    write: Callable[[DeltaTable, Iterable[Row], CommitProperties], None] = upsert if kind == "upsert" else append
    write(
        table,
        decoded(topic, consumed(consumer, starts, ends)),
        CommitProperties(app_transactions=[Transaction(f"{topic}-{partition}", ends[partition]) for partition in ends]),
    )
    consumer.close()


def consumed(consumer: Consumer, starts: dict[int, int], ends: dict[int, int]) -> Iterator[Record]:
    """The records before ``ends``, in the order of offsets in each partition."""
    left = {partition for partition in ends if starts[partition] < ends[partition]}
    while left:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error():
                raise RuntimeError(message.error())
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            if offset < ends[partition]:
                yield value, partition, offset, message.timestamp()[1]
            if offset >= ends[partition] - 1:
                left.discard(partition)


def decoded(topic: str, records: Iterable[Record]) -> Iterator[Row]:
    for value, partition, offset, stamp in records:
        row = orjson.loads(value)
        yield (*(row.get(name) for name in COLUMNS), topic, partition, offset, stamp * 1000)


def append(table: DeltaTable, rows: Iterable[Row], properties: CommitProperties) -> None:
    write_deltalake(
        table, pa.Table.from_batches(list(batches(rows)), SCHEMA), mode="append", commit_properties=properties
    )


def upsert(table: DeltaTable, rows: Iterable[Row], properties: CommitProperties) -> None:
    # All records of a key are in one partition, so its last one has the highest offset.
    latest = {row[0]: row for row in rows}
    (
        table.merge(
            pa.Table.from_batches(list(batches(latest.values())), SCHEMA), "t.key = s.key",
            source_alias="s", target_alias="t", commit_properties=properties,
        )
        .when_matched_update_all("s._offset > t._offset")
        .when_not_matched_insert_all()
        .execute()
    )  # fmt: skip


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS:
            yield batch(some)
            some = []
    if some:
        yield batch(some)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True))
    # JSON has a timestamp as text.
    texts = pa.array(columns.pop("at"), pa.string()).cast(UTC)
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return pa.RecordBatch.from_arrays([{**arrays, "at": texts}[name] for name in SCHEMA.names], schema=SCHEMA)


if __name__ == "__main__":
    main(*sys.argv[1:])
