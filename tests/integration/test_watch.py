"""What a person on call looks at: status of several pipelines, the history of one, and the page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from conftest import wait_until
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app

if TYPE_CHECKING:
    from conftest import Lake


def written(lake: Lake, name: str, **options: object) -> Path:
    file = lake.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**lake.options(), "name": name, **options}), encoding="utf-8")
    return file


def said(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.mark.breadth
def test_the_history_of_a_table_tells_epochs_and_a_restore(lake: Lake) -> None:
    file = written(lake, "letters", epoch={"max_records": 2})
    assert "no epoch yet" in said("history", file)
    lake.topic.send_rows([("a", 1), ("b", 2), ("c", 3)], partition=0)
    Pipeline.from_file(file).run()
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    lake.topic.send_rows([("d", 4)], partition=0)
    Pipeline.from_file(file).run()
    epochs = json.loads(said("history", file, "--json"))["epochs"]
    assert [(each["epoch"], each["records"], each["rows"], each["state"]) for each in epochs] == [
        (3, 2, 2, "committed"),
        (2, 1, 1, "taken back"),
        (1, 2, 2, "committed"),
    ]
    assert epochs[0]["ranges"] == [[lake.topic.name, 0, 2, 4]]
    assert [each["epoch"] for each in json.loads(said("history", file, "--json", "--last", "1"))["epochs"]] == [3]
    assert "restored before it, in version 3" in " ".join(said("history", file).split())


@pytest.mark.breadth
def test_the_history_of_several_sinks_has_the_commit_of_each(lake: Lake) -> None:
    sinks = [{"type": "delta_append", "path": str(lake.path(name))} for name in ("two", "one", "three")]
    file = written(lake, "both", sinks=sinks, coordinator={"path": str(lake.path("log"))})
    lake.topic.send_rows([("a", 1), ("b", 2)], partition=0)
    Pipeline.from_file(file).run()
    (epoch,) = json.loads(said("history", file, "--json"))["epochs"]
    assert (epoch["state"], epoch["records"], epoch["rows"]) == ("done", 2, 6)
    assert list(epoch["commits"]) == [sink["path"] for sink in sinks]


@pytest.mark.breadth
def test_the_history_of_a_table_merged_on_read_is_that_of_its_changes(lake: Lake) -> None:
    sink = {"type": "delta_upsert", "path": str(lake.path("upsert")), "key": "k", "merge": "on_read"}
    file = written(lake, "late", sinks=[{**sink, "fold": {"epochs": 100}}])
    for number in range(3):
        lake.topic.send_rows([("a", number)], partition=0)
        Pipeline.from_file(file).run()
    Pipeline.from_file(file).fold()
    epochs = json.loads(said("history", file, "--json"))["epochs"]
    assert [(each["epoch"], each["records"], each["state"]) for each in epochs][:2] == [
        (3, 1, "committed"),
        (2, 1, "committed"),
    ]
    (looked,) = json.loads(said("status", lake.folder, "--json"))
    assert (looked["epoch"], looked["total_lag"]) == (3, 0)


def test_a_broken_file_hides_no_other_pipeline_of_the_folder(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1)], partition=0)
    Pipeline.from_file(written(lake, "good")).run()
    written(lake, "wrong", strat=1)
    (lake.folder / "compose.yaml").write_text("services: {}")
    good, wrong = json.loads(said("status", lake.folder, "--json", code=2))
    assert (good["pipeline"], good["epoch"], good["total_lag"]) == ("good", 1, 0)
    assert "unknown option" in wrong["error"]
    shown = said("status", lake.folder, code=2)
    assert "up to date" in shown
    assert "can't be read" in shown


@pytest.mark.classic("the command is a process of its own")
@pytest.mark.breadth
def test_watch_prints_again_and_ends_with_0_at_ctrl_c(lake: Lake) -> None:
    file = written(lake, "watched")
    command = [sys.executable, "-m", "connector", "status", str(file), "--watch", "--every", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        shown = [json.loads(watching.stdout.readline())[0]["total_lag"]]
        lake.topic.send_rows([("a", 1)], partition=0)
        wait_until(lambda: json.loads(watching.stdout.readline())[0]["total_lag"] == 1, what="a new record")
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
    assert (shown, watching.returncode) == ([0], 0)
