"""Upkeep of a pipeline's tables: fewer files, the same rows, and a pipeline that goes on where it was."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import Lake, Store, Topic, wait_until
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from connector.operations.history import past
from connector.operations.maintain import Cleared, Maintained, maintain
from connector.operations.snapshot import snapshot_of
from connector.protocol.steps import Event, Step
from connector.protocol.two_phase import Did
from sinks.delta import conflicts
from sinks.delta.change_log import EPOCH, ChangeLog
from sinks.delta.change_log import FOLDER as CHANGES
from sinks.delta.maintenance import Upkeep
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.errors import ConfigurationError, Fenced

ON_READ = {"sink": {"merge": "on_read"}}
SEVERAL_EPOCHS = {"epoch": {"max_records": 2}}


def upkeep(lake: Lake, kind: str = "append", *, dry_run: bool = False, **changes: Any) -> dict[str, Any]:
    """By the table's name."""
    done = maintain(lake.pipeline(kind, **changes).config, dry_run=dry_run)
    return {Path(each.table).name: each for each in done if isinstance(each, Upkeep)}


def aged(folder: Path, name: str, age: timedelta) -> Path:
    """A file as a run leaves it that is killed before its commit."""
    file = folder / f"part-00000-{name}.snappy.parquet"
    file.write_bytes(b"PAR1")
    then = time.time() - age.total_seconds()
    os.utime(file, (then, then))
    return file


@pytest.mark.breadth
def test_small_files_are_put_together_and_the_pipeline_goes_on(lake: Lake, topic: Topic) -> None:
    topic.send_rows((f"k{n}", n) for n in range(8))
    lake.pipeline("append", **SEVERAL_EPOCHS).run()
    before, version = lake.rows(), lake.version()
    files = len(lake.frame().inputFiles())

    (planned,) = upkeep(lake, dry_run=True).values()
    assert (planned.files, planned.small, planned.into) == (files, files, None)
    assert lake.version() == version

    (done,) = upkeep(lake).values()
    assert files >= 4
    assert (done.small, done.into) == (files, 1)
    assert len(lake.frame().inputFiles()) == 1
    assert lake.rows() == before

    topic.send_rows([("more", 8)])
    delivered = lake.pipeline("append").run()
    assert delivered.rows == 1
    assert lake.rows() == sorted([*before, ("more", 8)])
    # Nothing to do: nothing is committed.
    upkeep(lake)
    version = lake.version()
    (again,) = upkeep(lake).values()
    assert (again.small, lake.version()) == (0, version)


@pytest.mark.breadth
def test_what_killed_runs_left_is_removed_and_what_a_run_is_writing_is_not(lake: Lake, topic: Topic) -> None:
    for number in range(3):
        topic.send_rows([("a", number)])
        lake.pipeline("upsert", **ON_READ).run()
    folders = [lake.path("upsert"), lake.path("upsert") / CHANGES]
    old = [aged(folder, "old", timedelta(days=8)) for folder in folders]
    new = [aged(folder, "new", timedelta(days=1)) for folder in folders]

    planned = upkeep(lake, "upsert", dry_run=True, **ON_READ)
    assert {name: each.unused for name, each in planned.items()} == {"upsert": 1, "changes": 1}
    assert all(file.exists() for file in old)

    # The changes stay as they are: each file is an epoch's.
    files = len(lake.frame(f"upsert/{CHANGES}").inputFiles())
    assert upkeep(lake, "upsert", **ON_READ)["changes"].small == 0
    assert len(lake.frame(f"upsert/{CHANGES}").inputFiles()) == files == 2
    assert not any(file.exists() for file in old)
    assert all(file.exists() for file in new)

    topic.send_rows([("b", 3)])
    assert lake.pipeline("upsert", **ON_READ).run().rows is not None
    lake.pipeline("upsert", **ON_READ).fold()
    assert lake.rows("upsert") == [("a", 2), ("b", 3)]


@pytest.mark.breadth
def test_a_table_that_is_clustered_stays_so(lake: Lake, topic: Topic) -> None:
    for number in range(3):
        topic.send_rows((f"k{number}{n}", n) for n in range(4))
        lake.pipeline("upsert").run()
        if not number:
            lake.sql("ALTER TABLE {t} CLUSTER BY (k)", "upsert")
    before = lake.rows("upsert")
    assert upkeep(lake, "upsert")["upsert"].small > 1
    assert lake.rows("upsert") == before
    assert any("clusteringProvider" in commit.get("add", {}) for commit in lake.commits("upsert"))
    topic.send_rows([("k00", 9)])
    lake.pipeline("upsert").run()
    assert ("k00", 9) in lake.rows("upsert")
    assert len(lake.rows("upsert")) == len(before)


@pytest.mark.breadth
def test_nothing_is_removed_of_a_table_that_keeps_files_too_shortly(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)])
    lake.pipeline().run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 10 minutes')")
    old = aged(lake.path(), "old", timedelta(days=8))
    (done,) = upkeep(lake).values()
    assert done.unused is None
    assert old.exists()


@dataclass
class Cleaned:
    """What a run removes of its own accord."""

    table: DeltaTable
    rows: str
    """A query for a row of the table."""
    clean_up: Callable[[], None]

    def fill_and_empty(self) -> None:
        for _ in range(3):
            self.table.spark.sql(self.rows).writeTo(self.table.sql).append()
        self.clean_up()


def tombstones(of: DeltaTable) -> Cleaned:
    tombstones = Tombstones(of, ["k"])
    row = "SELECT 'a' AS k, 't' AS _topic, 0 AS _partition, 0L AS _offset, current_timestamp() AS _timestamp"
    tombstones.add(of.spark.sql(row))
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    return Cleaned(tombstones.table, f"{row}, current_timestamp() AS _noted_at", lambda: tombstones.expire(tomorrow))


def changes(of: DeltaTable) -> Cleaned:
    log, row = ChangeLog(of, pipeline="p", topics=["t"]), f"SELECT 1L AS {EPOCH}, 'a' AS k"
    log.table.create(of.spark.sql(row).schema)
    return Cleaned(log.table, row, lambda: log.clean_up(1))


@pytest.mark.classic("one session for each thread")
@pytest.mark.breadth
@pytest.mark.parametrize("of", [tombstones, changes])
def test_what_a_run_removes_may_be_compacted_meanwhile(
    of: Callable[[DeltaTable], Cleaned], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its DELETE and another's OPTIMIZE of the same files, again and again, until the DELETE has lost once."""
    table = DeltaTable(spark, path=str(tmp_path / "t"))
    table.create(spark.sql("SELECT 'a' AS k").schema)
    cleaned, lost, stop = of(table), [], threading.Event()
    passed = conflicts.Conflicts.passed

    def seen(self: conflicts.Conflicts, error: BaseException) -> bool:
        lost.extend([error] if conflicts.is_conflict(error) else [])
        return passed(self, error)

    def compact() -> None:
        with_another_session = spark.newSession()
        while not stop.is_set():
            with contextlib.suppress(Exception):  # it has lost
                with_another_session.sql(f"OPTIMIZE {cleaned.table.sql}").collect()

    def removed() -> bool:
        cleaned.fill_and_empty()
        return bool(lost)

    monkeypatch.setattr(conflicts.Conflicts, "passed", seen)
    other = threading.Thread(target=compact)
    other.start()
    try:
        wait_until(removed, seconds=240, what="a conflict")
    finally:
        stop.set()
        other.join()
    cleaned.fill_and_empty()
    assert cleaned.table.spark.sql(f"SELECT * FROM {cleaned.table.sql}").isEmpty()


@pytest.mark.classic("its runs are processes of their own")
@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_run_goes_on_beside_it(kind: str, lake: Lake, topic: Topic) -> None:
    keys = 4
    committed: list[int] = []
    stop, failed = threading.Event(), []

    def observe(event: Event) -> None:
        if event.step is Step.COMMITTED:
            committed.append(event.epoch.number)

    def go() -> None:
        try:
            lake.pipeline(kind, trigger={"interval": "0.1 seconds"}).run(stop=stop, observers=[observe])
        except Exception as error:
            failed.append(error)

    running = threading.Thread(target=go)
    running.start()
    sent = 0
    command = [sys.executable, "-m", "connector", "maintain", str(lake.file(kind)), "--json"]
    try:
        topic.send_rows([("k0", 0)])
        wait_until(lambda: committed or failed, 60, "the first epoch")
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            while child.poll() is None and not failed:
                epochs, sent = len(committed), sent + 1
                topic.send_rows([(f"k{sent % keys}", sent)])
                wait_until(lambda epochs=epochs: len(committed) > epochs or failed, 60, "an epoch")
            assert child.stdout is not None
            found = json.loads(child.stdout.read())
        assert child.returncode == 0
    finally:
        stop.set()
        running.join()
    assert not failed
    assert found[0]["files"] >= 1
    optimized = [commit for commit in lake.commits(kind) if commit["commitInfo"]["operation"] == "OPTIMIZE"]
    # The files of a MERGE go soon: OPTIMIZE may find them gone again and again.
    assert optimized or kind == "upsert"
    rows = [(f"k{n % keys}", n) for n in range(sent + 1)]
    assert lake.rows(kind) == sorted(rows if kind == "append" else dict(rows).items())


@pytest.mark.breadth
def test_files_that_a_run_rewrites_all_the_time_are_left_and_the_rest_is_done(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send_rows((f"k{n}", n) for n in range(4))
    lake.pipeline("append", **SEVERAL_EPOCHS).run()
    old = aged(lake.path(), "old", timedelta(days=8))

    def rewritten(_: object) -> None:
        raise RuntimeError("[DELTA_CONCURRENT_DELETE_READ] A concurrent MERGE removed files")

    monkeypatch.setattr("sinks.delta.maintenance._compact", rewritten)
    (done,) = upkeep(lake).values()
    assert (done.into, done.unused, old.exists()) == (0, 1, False)
    assert done.small > 1
    assert "left: a run" in repr(Maintained(lake.pipeline("append").config, [done], dry_run=False))


@dataclass
class Three:
    """A table, objects and a topic that move together."""

    lake: Lake
    s3: Store
    topic: str
    options: dict[str, Any]

    def pipeline(self) -> Pipeline:
        return Pipeline.from_options(self.options)

    def cleared(self, *, dry_run: bool = False) -> dict[tuple[str, str], int | None]:
        found = maintain(self.pipeline().config, dry_run=dry_run)
        return {(Path(each.place).name, each.what): each.count for each in found if isinstance(each, Cleared)}

    def leftovers(self) -> tuple[int, int, int]:
        """Staged for the table, begun uploads, staged for the topic."""
        folders = (self.lake.path(place) / "_lakelock" / "staging" / self.options["name"] for place in ("table", "log"))
        table, topic = (len(list(each.iterdir())) if each.exists() else 0 for each in folders)
        return table, len(self.s3.uploads()), topic

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.lake.frame("table").collect())


@pytest.fixture
def three(lake: Lake, s3: Store) -> Three:
    out = f"{lake.topic.name}-out"
    lake.topic.broker.create_topic(out, 1)
    options = lake.options(
        name=f"three-{out}",  # of a topic, the broker knows where the pipeline stands
        sinks=[
            {"type": "delta_append", "path": str(lake.path("table"))},
            {"type": "s3_objects", "url": f"s3://{s3.bucket}/objects", "format": "json_lines"}
            | {"endpoint": s3.endpoint, "region": "us-east-1", "path_style": True},
            {"type": "kafka_topic", "topic": out},
        ],
        coordinator={"path": str(lake.path("log"))},
        epoch={"max_records": 2},
    )
    return Three(lake, s3, out, options)


class Killed(BaseException):
    """Nothing of the run goes on."""


def test_what_a_replaced_run_prepared_later_is_thrown_away_and_nothing_else(three: Three) -> None:
    """The one way in which leftovers outlive the next run: who was replaced wakes up, prepares, and is fenced."""
    three.lake.topic.send_rows([("a", 0), ("b", 1)], partition=0)
    begun, asleep, awake = threading.Event(), threading.Event(), threading.Event()
    ended: list[Exception] = []

    def sleep(event: Event) -> None:
        if event.step is Step.BEGUN:
            begun.set()
        if event.step is Step.WRITING:
            assert begun.wait(120)
            asleep.set()
            assert awake.wait(120)

    def replaced() -> None:
        try:
            three.pipeline().run(observers=[sleep])
        except Exception as error:
            ended.append(error)

    zombie = threading.Thread(target=replaced)
    zombie.start()
    assert asleep.wait(120)
    three.pipeline().run()
    awake.set()
    zombie.join(120)
    assert [type(each) for each in ended] == [Fenced]
    assert three.leftovers() == (1, 1, 1)

    kinds = [("table", "leftovers"), ("objects", "leftovers"), (f"kafka:{three.topic}", "leftovers")]
    # Of the objects an upload and its receipt.
    assert three.cleared(dry_run=True) == {**dict(zip(kinds, (1, 2, 1), strict=True)), ("log", "entries"): 0}
    assert three.leftovers() == (1, 1, 1)
    three.cleared()
    assert three.leftovers() == (0, 0, 0)
    assert three.numbers() == [0, 1]


@pytest.mark.breadth
def test_what_was_decided_is_left_where_nobody_is_at_work_too(three: Three) -> None:
    three.lake.topic.send_rows([("c", 2)], partition=0)

    def kill(event: Event) -> None:
        if event.step is Step.DECIDED:
            raise Killed

    with pytest.raises(Killed):
        three.pipeline().run(observers=[kill])
    assert three.leftovers() == (1, 1, 1)
    assert set(three.cleared().values()) == {0}
    assert three.leftovers() == (1, 1, 1)
    recovered = three.pipeline().recover()
    assert (recovered.did, three.numbers()) == (Did.ROLLED_FORWARD, [2])


@pytest.mark.breadth
def test_old_entries_of_the_log_are_removed_beside_a_run_and_nothing_is_forgotten_that_counts(three: Three) -> None:
    three.lake.topic.send_rows((("a", number) for number in range(10)), partition=0)
    three.pipeline().run()
    ages = "CASE WHEN epoch = 2 THEN now() - INTERVAL 29 DAYS ELSE at - INTERVAL 31 DAYS END"
    three.lake.spark.sql(f"UPDATE delta.`{three.lake.path('log')}` SET at = {ages}")
    entries = Counter(row["epoch"] for row in three.lake.frame("log").collect())

    three.lake.topic.send_rows([("a", 10)], partition=0)
    told: list[dict[tuple[str, str], int | None]] = []

    def beside(event: Event) -> None:
        # Everything is prepared, and the log's last entry is this epoch's beginning: only then it is removed.
        if event.step is Step.PREPARED:
            told.extend([three.cleared(dry_run=True), three.cleared()])

    three.pipeline().run(observers=[beside])
    old = entries[1] + entries[3] + entries[4]
    assert [each["log", "entries"] for each in told] == [old, old]
    assert {row["epoch"] for row in three.lake.frame("log").collect()} == {2, 5, 6}
    assert three.numbers() == list(range(11))

    assert three.pipeline().run().rows == 0
    assert [each.number for each in past(three.pipeline().config, three.lake.spark)] == [6, 5, 2]
    assert snapshot_of(three.pipeline().config, three.lake.spark, 2).epoch == 2
    with pytest.raises(ConfigurationError, match="no epoch 1"):
        snapshot_of(three.pipeline().config, three.lake.spark, 1)


@pytest.mark.breadth
def test_the_command_says_what_it_did(lake: Lake, topic: Topic) -> None:
    topic.send_rows((f"k{n}", n) for n in range(4))
    lake.pipeline("append", **SEVERAL_EPOCHS).run()
    command = ["maintain", str(lake.file())]
    assert "would be put together" in CliRunner().invoke(app, [*command, "--dry-run"]).stdout
    assert "put together into 1" in CliRunner().invoke(app, command).stdout
