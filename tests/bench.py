"""A pipeline on a topic that is a list: decoding, derivation and sink are real, the epochs are cut by the test."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conftest import own_session

from connector import Pipeline
from connector.decode.event_time import Timing
from connector.derive import derive
from connector.engine.dead_letters import letters
from connector.engine.decoders import decoders
from connector.engine.epoch import Reading, run_epoch
from connector.engine.outputs import Table
from connector.protocol.plan import next_epoch
from connector.protocol.recover import Resumption, TopicsHeld
from connector.source.columnar import PlainValues
from connector.source.records import no_records
from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.offsets import OffsetRange, Offsets, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from connector.protocol.steps import Observer

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class ListedTopic:
    """Topic ``t``: one list of (key, value) per partition; the record at offset n came n seconds after START."""

    partitions: Sequence[Sequence[tuple[str | None, object]]]
    timestamps: Mapping[TopicPartition, Sequence[datetime]] = field(default_factory=dict)

    def ends(self) -> Offsets:
        return Offsets({TopicPartition("t", number): len(records) for number, records in enumerate(self.partitions)})

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange], values: PlainValues | None = None) -> DataFrame:
        rows = []
        for range_ in ranges:
            for offset in range(range_.start, range_.end):
                key, value = self.partitions[range_.partition][offset]
                at = self.timestamps.get(range_.at)
                time = at[offset] if at else START + timedelta(seconds=offset)
                text = None if value is None else json.dumps(value).encode()
                rows.append((key.encode() if key else None, text, "t", range_.partition, offset, time))
        if not rows:
            return no_records(spark)
        columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
        return spark.createDataFrame(rows, columns)


class Bench:
    """Runs of one pipeline over a listed topic, each epoch as far as the test says."""

    def __init__(self, spark: SparkSession, folder: Path, topic: ListedTopic, schema: str, **options: Any) -> None:
        self.spark = own_session(spark)
        self.topic = topic
        self.path = folder / "table"
        sink = {"path": str(self.path), **options.pop("sink")}
        self.pipeline = Pipeline.from_options(
            {
                "name": "p",
                "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
                "value": {"format": "json", "schema": schema},
                "sinks": [sink],
                **options,
            }
        )
        self.table = DeltaTable(self.spark, path=str(self.path))
        commits = PipelineCommits(self.table, pipeline="p", topics=["t"])
        config = self.pipeline.config
        (self.decode,) = decoders(config, self.spark)
        self.derivation = derive(config, self.table, commits, self.decode(no_records(self.spark)))
        self._reading = Reading(
            read=partial(self.topic.read, self.spark),
            outputs={"table": Table(self.decode, self.derivation, self.table, commits)},
            timing=Timing(config.clock, config.idle_after) if config.clock else None,
            letters=letters(config, self.spark),
        )
        if self.table.detail() is None:
            self.table.create(self.derivation.columns)

    def epoch(self, upto: Sequence[int], owner: str = "run") -> Epoch | None:
        """The epoch that reads every partition up to these offsets."""
        position = self.derivation.sink.position()
        ends = self.topic.ends()
        target = Offsets({at: min(end, upto[at.partition]) for at, end in ends.items()})
        stored = position.offsets if position else Offsets()
        resumption = Resumption(Offsets({at: stored.get(at, 0) for at in ends}))
        held = TopicsHeld(Offsets(dict.fromkeys(ends, 0)), target, {"t": "id"}, START)
        epoch = next_epoch("p", owner, position, resumption, held, max_records=10**6, now=START)
        if epoch is None:
            return None
        # Kafka holds all of it: what the test doesn't read yet is no idle partition.
        return replace(epoch, backlog=replace(held, ends=ends).backlog(epoch.offsets))

    def run(self, *upto: int, observe: Observer = lambda _: None) -> Committed | None:
        """One epoch, as the pipeline does it; None: there is nothing to read."""
        epoch = self.epoch(upto)
        if epoch is None or not epoch.ranges:
            return None
        return self.write(epoch, observe)

    def write(self, epoch: Epoch, observe: Observer = lambda _: None, *, plain: bool = False) -> Committed:
        sink = self.derivation.plain if plain else self.derivation.sink
        return run_epoch(epoch, self._reading, write=sink.write, observe=observe, behind=0)

    def batch(self, *ranges: tuple[int, int, int]) -> Committed:
        """(partition, start, end): a batch as a weaker delivery writes it, wherever it starts."""
        cut = tuple(OffsetRange("t", *range_) for range_ in ranges)
        ends = Offsets({each.at: each.end for each in cut})
        return self.write(Epoch("p", 1, "run", cut, ends, {"t": "id"}, None, None), plain=True)

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """Sorted as text."""
        found = self.spark.sql(f"SELECT {columns} FROM {self.table.sql}").collect()
        return sorted((tuple(row) for row in found), key=str)
