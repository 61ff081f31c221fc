"""An epoch means what it meant when it was appended, whatever the file or a registry says at the fold."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from avro_bytes import framed
from conftest import Lake, Topic, own_session, wait_until
from registry import registry_server

from connector.config import parse
from connector.derive import derive
from connector.operations.read import read_of
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sinks.delta.merge_on_read import MergeOnRead

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
OWN = "_tombstone BOOLEAN, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
Row = tuple[Any, ...]


class Runs:
    """Runs of a pipeline whose file changes, without Kafka. Each one has its own columns and options."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        self.position: Position | None = None
        self.offset = 0

    def run(self, fields: str, *epochs: list[Row], remembers: bool = False, **sink: Any) -> MergeOnRead:
        """``fields``: of the records, in DDL; ``epochs``: their values; ``remembers``: whether the table remembers what
        shapes its rows, as it does since release 0.3."""
        options = self.options(**sink)
        table = DeltaTable(self.spark, path=str(self.path))
        commits = PipelineCommits(table, pipeline="p", topics=["t"])
        schema = f"{fields}, {OWN}"
        made = derive(parse(options), table, commits, self.spark.createDataFrame([], schema))
        table.create(made.columns)
        if remembers:
            made.shape.keep(table)
        made.sink.position()
        for rows in epochs:
            coordinates = [(False, "t", 0, self.offset + number, AT) for number in range(len(rows))]
            self.offset += len(rows)
            epoch = Epoch(
                pipeline="p", number=self.position.epoch + 1 if self.position else 1, owner="me", ranges=(),
                offsets=Offsets({TopicPartition("t", 0): self.offset}), topics={}, read_to=None, expected=self.position,
            )  # fmt: skip
            records = self.spark.createDataFrame(
                [(*row, *at) for row, at in zip(rows, coordinates, strict=True)], schema
            )
            self.position = made.sink.write(epoch, made.reduce(records, epoch)).position
        assert made.log is not None
        return made.log

    def options(self, **sink: Any) -> dict[str, Any]:
        return {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "k STRING"},
            "sinks": [{"type": "delta_upsert", "path": str(self.path), "key": "k", "merge": "on_read", **sink}],
        }

    def sql(self, text: str) -> list[Row]:
        return [tuple(row) for row in self.spark.sql(text.replace("{t}", f"delta.`{self.path}`")).collect()]

    def rows(self, columns: str) -> list[Row]:
        return sorted(self.sql(f"SELECT {columns} FROM {{t}}"))


def live(log: MergeOnRead, *columns: str) -> list[Row]:
    return sorted(tuple(row) for row in log.live().select(*columns).collect())


KEPT = "k STRING, doc STRING, note STRING, _unavailable ARRAY<STRING>"


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Runs:
    return Runs(own_session(spark), tmp_path / "t")


def test_a_fold_takes_what_the_log_has_as_it_was_appended(runs: Runs) -> None:
    """A column that the file has no more, and a value that the database had not sent, which isn't NULL."""
    runs.run(KEPT, [("a", "x", "1", []), ("b", "y", "1", [])], [("a", None, "2", ["doc"]), ("c", "z", "3", [])])
    log = runs.run("k STRING, doc STRING")
    expected = [("a", "x", "2"), ("b", "y", "1"), ("c", "z", "3")]
    assert live(log, "k", "doc", "note") == expected
    log.fold("me")
    assert runs.rows("k, doc, note") == expected
    log = runs.run("k STRING, doc STRING", [("a", "new")], [("b", None)])
    expected = [("a", "new", "2"), ("b", None, "1"), ("c", "z", "3")]
    assert live(log, "k", "doc", "note") == expected
    log.fold("me")
    assert runs.rows("k, doc, note") == expected


def test_a_read_builds_no_decoder(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says what its changes mean. The file names neither the column nor the option."""
    runs.run(KEPT, [("a", "x", "1", []), ("b", "y", "1", [])], [("a", None, "2", ["doc"])])
    monkeypatch.setattr("connector.operations.read.outputs", None)
    rows = read_of(parse(runs.options()), runs.spark).select("k", "doc", "note").collect()
    assert sorted(tuple(row) for row in rows) == [("a", "x", "2"), ("b", "y", "1")]


@pytest.mark.breadth
def test_a_column_that_has_left_the_rows_is_null_where_a_later_record_replaces_a_row(runs: Runs) -> None:
    """What was appended with it still brings its values, and what comes after it takes them away."""
    runs.run("k STRING, doc STRING, note STRING", [("a", "x", "1"), ("b", "y", "1")], [("b", "z", "2")], remembers=True)
    log = runs.run("k STRING, doc STRING", [("a", "new")], remembers=True)
    expected = [("a", "new", None), ("b", "z", "2")]
    assert live(log, "k", "doc", "note") == expected
    assert runs.rows("k, doc, note") == expected, "the epoch after the fold is merged"
    log = runs.run("k STRING, doc STRING", [("b", "newer")], remembers=True)
    expected = [("a", "new", None), ("b", "newer", None)]
    assert live(log, "k", "doc", "note") == expected
    log.fold("me")
    assert runs.rows("k, doc, note") == expected


@pytest.mark.breadth
def test_a_column_of_a_persons_own_that_the_file_names_since_stays_where_the_table_remembers(runs: Runs) -> None:
    runs.run("k STRING, doc STRING", [("a", "1")], remembers=True)
    runs.sql("ALTER TABLE {t} ADD COLUMNS (note STRING)")
    runs.sql("UPDATE {t} SET note = 'x'")
    runs.run("k STRING, doc STRING", [("a", "2")], remembers=True)
    log = runs.run("k STRING, doc STRING, note STRING", [("b", "1", "y")], remembers=True)
    log.fold("me")
    assert runs.rows("k, doc, note") == [("a", "2", "x"), ("b", "1", "y")]


@pytest.mark.breadth
def test_a_run_with_other_options_folds_before_it_appends(runs: Runs) -> None:
    fields = "k STRING, doc STRING"
    runs.run(fields, [("a", "x"), ("b", "y")], [("a", None)], ignore_null_updates=True)
    log = runs.run(fields, [("b", None)])
    assert runs.rows("k, doc") == live(log, "k", "doc") == [("a", "x"), ("b", None)]
    log = runs.run(fields, [("a", None)])
    assert live(log, "k", "doc") == [("a", None), ("b", None)]
    assert runs.rows("k, doc") == [("a", "x"), ("b", None)]


@pytest.mark.breadth
def test_a_column_that_the_file_names_since_keeps_its_older_values(runs: Runs) -> None:
    runs.run("k STRING, doc STRING", [("a", "1")])
    runs.sql("ALTER TABLE {t} ADD COLUMNS (note STRING)")
    runs.sql("UPDATE {t} SET note = 'x'")
    runs.run("k STRING, doc STRING", [("a", "2")])
    log = runs.run("k STRING, doc STRING, note STRING", [("b", "1", "y")])
    assert live(log, "k", "doc", "note") == [("a", "2", "x"), ("b", "1", "y")]
    log.fold("me")
    assert runs.rows("k, doc, note") == [("a", "2", "x"), ("b", "1", "y")]


@pytest.mark.breadth
def test_before_a_run_what_is_appended_otherwise_is_folded_and_the_next_epoch_is_merged(runs: Runs) -> None:
    runs.run(KEPT, [("a", "x", "1", [])], [("a", None, "2", ["doc"])])
    log = runs.run("k STRING, doc STRING")
    log.make_ready("me")
    assert not log.appends
    assert runs.rows("k, doc, note") == [("a", "x", "2")]
    log = runs.run("k STRING, doc STRING", [("a", "y")])
    assert log.appends
    assert runs.rows("k, doc, note") == [("a", "y", "2")]


@pytest.mark.breadth
def test_who_merges_on_write_from_now_on_folds_it_as_it_was_appended(runs: Runs) -> None:
    runs.run(KEPT, [("a", "x", "1", [])], [("a", None, "2", ["doc"])])
    runs.run("k STRING, doc STRING", merge="on_write").close("me")
    assert runs.rows("k, doc, note") == [("a", "x", "2")]


ONE = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "int"}]}
LESS = {**ONE, "fields": ONE["fields"][:1]}
MORE = {**ONE, "fields": [*ONE["fields"], {"name": "more", "type": ["null", "string"], "default": None}]}


@pytest.mark.breadth
@pytest.mark.classic("with Spark Connect a fold comes between two epochs")
@pytest.mark.parametrize("later", [LESS, MORE], ids=["a field less", "a field more"])
def test_a_schema_that_is_registered_during_a_run_has_no_say_in_its_folds(
    later: dict[str, Any], lake: Lake, topic: Topic
) -> None:
    stop, folded, committed = threading.Event(), threading.Event(), list[int]()

    def observe(event: Event) -> None:
        if event.step is Step.COMMITTED:
            committed.append(event.epoch.number)
        if event.step is Step.FOLDED:
            folded.set()

    with registry_server() as registry, ThreadPoolExecutor(1) as pool:
        registry.register(f"{topic.name}-value", 1, ONE)
        value = {"format": "avro", "registry": {"url": registry.url}}
        run = lake.pipeline(
            "upsert", value=value, trigger={"interval": 0}, sink={"merge": "on_read", "fold": {"epochs": 2}}
        )
        topic.send(("a", framed(1, ONE, {"k": "a", "n": 1})))
        ended = pool.submit(run.run, stop=stop, observers=[observe])
        try:
            for number in (1, 2, 3):
                wait_until(lambda number=number: number in committed or ended.done(), 90, "an epoch")
                if number == 2:
                    registry.register(f"{topic.name}-value", 2, later)
                if number < 3:
                    topic.send(("a", framed(1, ONE, {"k": "a", "n": number + 1})))
            wait_until(lambda: folded.is_set() or ended.done(), 90, "the fold")
        finally:
            stop.set()
        ended.result(90)
    assert lake.rows("upsert") == [("a", 3)]
