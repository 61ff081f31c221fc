"""Upkeep of a pipeline's tables: fewer files, the same rows, and a pipeline that goes on where it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Lake, Topic, wait_until

from connector.maintain import maintain
from connector.protocol.steps import Event, Step
from connector.shown import print_upkeep
from sinks.delta.change_log import FOLDER as CHANGES

ON_READ = {"sink": {"merge": "on_read"}}
SEVERAL_EPOCHS = {"epoch": {"max_records": 2}}


def upkeep(lake: Lake, kind: str = "append", *, dry_run: bool = False, **changes: Any) -> dict[str, Any]:
    """By the table's name."""
    done = maintain(lake.pipeline(kind, **changes).config, dry_run=dry_run)
    return {Path(each.table).name: each for each in done}


def aged(folder: Path, name: str, age: timedelta) -> Path:
    """A file as a run leaves it that is killed before its commit."""
    file = folder / f"part-00000-{name}.snappy.parquet"
    file.write_bytes(b"PAR1")
    then = time.time() - age.total_seconds()
    os.utime(file, (then, then))
    return file


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


def test_nothing_is_removed_of_a_table_that_keeps_files_too_shortly(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)])
    lake.pipeline().run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 10 minutes')")
    old = aged(lake.path(), "old", timedelta(days=8))
    (done,) = upkeep(lake).values()
    assert done.unused is None
    assert old.exists()


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


def test_files_that_a_run_rewrites_all_the_time_are_left_and_the_rest_is_done(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.send_rows((f"k{n}", n) for n in range(4))
    lake.pipeline("append", **SEVERAL_EPOCHS).run()
    old = aged(lake.path(), "old", timedelta(days=8))

    def rewritten(_: object) -> None:
        raise RuntimeError("[DELTA_CONCURRENT_DELETE_READ] A concurrent MERGE removed files")

    monkeypatch.setattr("sinks.delta.upkeep._compact", rewritten)
    (done,) = upkeep(lake).values()
    assert (done.into, done.unused, old.exists()) == (0, 1, False)
    assert done.small > 1
    print_upkeep("p", [done], dry_run=False)
    assert "left: a run rewrites them" in capsys.readouterr().out


def test_the_command_says_what_it_did(lake: Lake, topic: Topic) -> None:
    topic.send_rows((f"k{n}", n) for n in range(4))
    lake.pipeline("append", **SEVERAL_EPOCHS).run()
    command = [sys.executable, "-m", "connector", "maintain", str(lake.file())]
    said = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True).stdout
    assert "would be put together" in said
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "put together into 1" in said
