"""Changes to keys with every kind of update and delete, in any order, and what a table has to hold after them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from another_engine import query
from hypothesis import strategies as st

from connector.config import parse
from connector.derive import derive
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "`latest` STRING, `s.``x` INT, b INT, seq INT, op STRING, _tombstone BOOLEAN, _topic STRING, _partition INT, "
    "_offset BIGINT, _timestamp TIMESTAMP"
)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Record:
    """``op``: u (update), d (delete) or t (truncate). The table's columns have names that get in the way."""

    key: str
    op: str
    a: int | None
    b: int | None
    seq: int
    partition: int = 0
    offset: int = 0

    def row(self) -> tuple[Any, ...]:
        return (
            self.key, self.a, self.b, self.seq, self.op, False, "t", self.partition, self.offset,
            START + timedelta(seconds=self.offset),
        )  # fmt: skip


@dataclass
class Model:
    """What the table has to hold, from all records at once."""

    sequenced: bool
    ignore_nulls: bool = False
    records: list[Record] = field(default_factory=list)

    def order(self, record: Record) -> tuple[int, ...]:
        return (record.seq, record.partition, record.offset) if self.sequenced else (record.offset,)

    def highest(self, op: str, key: str | None = None) -> Record | None:
        found = (record for record in self.records if record.op == op and key in (None, record.key))
        return max(found, key=self.order, default=None)

    def rows(self) -> dict[str, tuple[int | None, int | None]]:
        rows = {}
        for key in {record.key for record in self.records}:
            update, *ends = self.highest("u", key), self.highest("d", key), self.highest("t")
            end = max((self.order(record) for record in ends if record), default=())
            if update is None or self.order(update) <= end:
                continue
            rows[key] = (update.a, update.b)
            if self.ignore_nulls:
                above = [r for r in self.records if r.op == "u" and r.key == key and self.order(r) > end]
                above.sort(key=self.order)
                a, b = ([getattr(r, name) for r in above if getattr(r, name) is not None] for name in "ab")
                rows[key] = (a[-1] if a else None, b[-1] if b else None)
        return rows

    def soft_rows(self) -> dict[str, tuple[Any, ...]]:
        rows = {}
        for key in {record.key for record in self.records}:
            update, delete = self.highest("u", key), self.highest("d", key)
            values = (update.a, update.b) if update else (None, None)
            deleted = delete is not None and (update is None or self.order(delete) > self.order(update))
            rows[key] = (*values, deleted, (delete.partition, delete.offset) if delete else None)
        return rows


class Table:
    """A table, written epoch by epoch without Kafka."""

    def __init__(self, spark: SparkSession, folder: Path, delivery: str = "transactional", **sink: Any) -> None:
        self.spark = spark
        self.path = folder / uuid.uuid4().hex
        options = {
            "name": "p",
            "delivery": delivery,
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "k STRING"},
            "sinks": [
                {"type": "delta_upsert", "path": str(self.path), "key": "latest", "apply_as_deletes": "op = 'd'",
                 "except_column_list": ["seq", "op"], **sink}
            ],
        }  # fmt: skip
        self.config = parse(options)
        self.table = DeltaTable(spark, path=str(self.path))
        commits = PipelineCommits(self.table, pipeline="p", topics=["t"])
        self.derivation = derive(self.config, self.table, commits, self.frame([]))
        self.table.create(self.derivation.columns)
        self.position: Position | None = None

    def frame(self, records: Sequence[Record]) -> DataFrame:
        return self.spark.createDataFrame([record.row() for record in records], SCHEMA)

    def write(self, records: Sequence[Record], *, passed: Offsets | None = None) -> None:
        """One epoch; ``passed``: the position behind it, the old one or what the records reach if not given."""
        stood = self.position.offsets if self.position else Offsets()
        ends = Offsets(
            {TopicPartition("t", r.partition): r.offset + 1 for r in sorted(records, key=lambda r: r.offset)}
        )
        epoch = Epoch(
            pipeline="p",
            number=self.position.epoch + 1 if self.position else 1,
            owner="me",
            ranges=(),
            offsets=stood.join(ends) if passed is None else passed,
            topics={},
            read_to=None,
            expected=self.position,
        )
        writer = self.derivation.sink if self.config.delivery == "transactional" else self.derivation.plain
        committed = writer.write(epoch, self.derivation.reduce(self.frame(records), epoch))
        if self.config.delivery == "transactional":
            self.position = committed.position

    def rows(self, *columns: str) -> dict[str, tuple[Any, ...]]:
        """``columns``: further ones, in Spark's SQL."""
        if columns:
            return self.by_spark(self.spark.read.format("delta").load(str(self.path)), *columns)
        return by_key(query(self.path, 'SELECT latest, "s.`x", b FROM t'))

    def live(self, *columns: str) -> dict[str, tuple[Any, ...]]:
        """With what is merged on read."""
        assert self.derivation.log is not None
        return self.by_spark(self.derivation.log.live(), *columns)

    @staticmethod
    def by_spark(frame: DataFrame, *columns: str) -> dict[str, tuple[Any, ...]]:
        rows = frame.selectExpr("`latest`", "`s.``x`", "b", *columns).collect()
        return by_key([tuple(row) for row in rows])


def by_key(rows: Sequence[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


KEYS = "abcdef"
SIZE = 40
_THIS_RUN = SystemRandom().randrange(2**31)
SEEDS = st.integers(0, 2**31).map(lambda number: number ^ _THIS_RUN)
"""An example holds six keys with every kind of change: a MERGE costs seconds, so there are a few rich ones instead of
many. The smallest, which hypothesis tries first, would show nothing; and each run is to try others."""


def numbered(records: Sequence[Record]) -> list[Record]:
    ends: Counter[int] = Counter()
    out = []
    for record in records:
        out.append(replace(record, offset=ends[record.partition]))
        ends[record.partition] += 1
    return out


def value(random: Random) -> int | None:
    return random.choice([None, *range(9)])


def by_offset(seed: int) -> tuple[list[Record], list[tuple[int, int]]]:
    """Records of two partitions, a key's in one, and epochs ``[start, end)``: some begin before the last one's end."""
    random = Random(seed)
    drawn = ((random.choice(KEYS), random.choice("uuud"), value(random), value(random)) for _ in range(SIZE))
    records = numbered([Record(key, op, a, b, 0, partition=KEYS.index(key) % 2) for key, op, a, b in drawn])
    epochs, start = [], 0
    for end in (*sorted(random.sample(range(1, SIZE), 2)), SIZE):
        epochs.append((max(0, start - random.choice([0, 0, 3, 12])), end))
        start = end
    return records, epochs


def by_sequence(seed: int, ops: str = "uuuuuddt") -> list[list[Record]]:
    """Records in three partitions whatever their key, in epochs that read these at any pace, and some records again."""
    random = Random(seed)
    records = numbered(
        [
            Record(
                random.choice(KEYS), random.choice(ops), value(random), value(random), random.randint(0, 25),
                random.randint(0, 2),
            )
            for _ in range(SIZE)
        ]
    )  # fmt: skip
    partitions = [[record for record in records if record.partition == number] for number in range(3)]
    at, epochs = [0, 0, 0], []
    for last in (False, False, True):
        epoch: list[Record] = []
        for number, those in enumerate(partitions):
            end = len(those) if last else random.randint(at[number], len(those))
            epoch += those[max(0, at[number] - random.choice([0, 0, 4])) : end]
            at[number] = end
        epochs.append(epoch)
    return epochs
