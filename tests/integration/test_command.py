"""The command, as a user has it: a process, its output, its exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import Lake, Topic, lakelock, wait_until
from typer.testing import CliRunner

from connector.cli.app import app
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.spark.jars import archive
from connector.spark.java import QUICK_START

pytestmark = pytest.mark.classic("its runs are processes of their own")


def test_help_teaches_the_commands_and_the_exit_codes() -> None:
    said = lakelock("--help").stdout
    for word in ("run", "check", "status", "init", "broker", "demo", "Exit codes", "3 fenced"):
        assert word in said


def test_init_writes_a_filethat_check_accepts_and_never_overwrites(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    assert lakelock("init", file).returncode == 0
    assert yaml.safe_load(file.read_text())["name"] == "latest_flights"
    file.write_text("mine")
    again = lakelock("init", file)
    assert (again.returncode, file.read_text()) == (2, "mine")
    assert "exists already" in again.stderr
    assert yaml.safe_load(lakelock("init").stdout)["delivery"] == "transactional"


def test_a_wrong_fileends_with_2_at_once_without_a_stack_trace(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: p\nsource: {topics: [t], kafka: {bootstrap.servers: 'b:1'}, strat: latest}\n")
    started = time.monotonic()
    done = lakelock("run", file)
    assert done.returncode == 2
    assert "source.strat: unknown option, did you mean start?" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - started < 10


@pytest.mark.breadth
def test_a_broker_that_does_not_answer_is_reported_without_a_long_wait(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    lakelock("init", file)
    file.write_text(file.read_text().replace("127.0.0.1:9092", "127.0.0.1:9"))
    started = time.monotonic()
    done = lakelock("check", file)
    assert time.monotonic() - started < 25, "10 seconds of patience, and the start of a command on a busy machine"
    assert done.returncode == 1
    assert "No Kafka broker at 127.0.0.1:9 answered" in done.stderr
    assert "Traceback" not in done.stderr


def said(*arguments: object) -> str:
    """The command in this process, with the session that is there: what it does is the same, and it starts at once."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.breadth
def test_run_check_and_status_from_a_file(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake.folder)
    topic.send_rows([("a", number) for number in range(10)], partition=0)
    assert archive.find() is not None, "`lakelock jars` makes it"
    # With this the JVM refuses to start where the archive of classes isn't for it and these jars.
    strict = {**SHORT_LIVED, "spark.driver.extraJavaOptions": f"-Xshare:on {QUICK_START}"}
    file = lake.file(sink={"path": "relative"}, spark=strict)
    assert "will be made" in said("check", file)
    assert not (lake.folder / "relative").exists()
    ran = lakelock("run", file, "--set", "epoch.max_records=6", "--report", "report.json", cwd=lake.folder)
    assert ran.returncode == 0, ran.stderr
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("append: done. 2 epochs, 10 rows written")
    assert last.endswith("at epoch 2, 0 offsets behind.")
    lines = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    assert [(each["event"], each["epoch"], each["offsets"], each["behind"]) for each in lines] == [
        ("epoch", 1, 6, 4), ("epoch", 2, 4, 0),
    ]  # fmt: skip
    assert {each["run"] for each in lines} == {lake.metadata("relative")[-1]["owner"]}
    report = json.loads((lake.folder / "report.json").read_text())
    assert (report["state"], report["epochs"], report["records"], report["lag"]) == ("done", 2, 10, 0)
    assert report["tables"] == {"relative": 2}
    assert report["offsets"] == {topic.name: {"0": 10, "1": 0}}
    assert (lake.folder / "relative" / "_delta_log").is_dir()
    topic.send_rows([("a", 10)], partition=1)
    fields = json.loads(said("status", file, "--json"))
    assert (fields["epoch"], fields["total_lag"]) == (2, 1)
    assert fields["offsets"] == {topic.name: {"0": 10, "1": 0}}
    assert fields["lag"] == {topic.name: {"0": 0, "1": 1}}
    shown = said("status", file)
    assert topic.name in shown
    assert "last commit" in shown


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["transactional", "manual_commit"])
def test_a_run_ends_after_so_many_epochs_and_the_next_goes_on(delivery: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", number) for number in range(10)], partition=0)
    options = {"delivery": delivery, "trigger": {"interval": "1 second"}, "epoch": {"max_records": 3}}
    file = lake.file(**options)
    last = said("run", file, "--max-epochs", 2).splitlines()[-1]
    assert last.startswith(f"append: done. 2 {'epochs' if delivery == 'transactional' else 'batches'}, 6 rows")
    assert last.endswith("It ended there because of --max-epochs; the next run goes on.")
    assert lake.rows() == [("a", number) for number in range(6)]
    lake.pipeline(**options).run(max_epochs=1)
    assert lake.rows() == [("a", number) for number in range(9)]
    assert lakelock("run", file, "--max-epochs", 0).returncode == 2


@pytest.mark.breadth
def test_a_bad_record_is_one_paragraph_without_a_stack_trace(lake: Lake, topic: Topic) -> None:
    topic.send(("a", b"broken"), partition=0)
    file = lake.file()
    done = lakelock("run", file, "--report", lake.folder / "report.json")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("append: failed, exit code 1. 0 epochs")
    report = json.loads((lake.folder / "report.json").read_text())
    assert (report["exit_code"], report["error"]["type"], report["lag"]) == (1, "BadRecord", 1)
    assert f"{topic.name}-0, offset 0" in done.stderr
    assert "broken" in done.stderr
    told = json.loads(next(line for line in done.stderr.splitlines() if line.startswith("{")))
    assert (told["event"], told["level"], told["error"], told["exit_code"]) == ("error", "error", "BadRecord", 1)
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 8
    aside = ["--set", "on_bad_record=dead_letter", "--set", f"dead_letters.path={lake.folder / 'letters'}"]
    last = said("run", file, *aside, "--report", lake.folder / "report.json").splitlines()[-1]
    assert ". 1 epoch, 0 rows written, 1 record set aside in " in last
    assert json.loads((lake.folder / "report.json").read_text())["set_aside"] == 1


def of_group(group: int) -> bool:
    """Whether a process of this group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.breadth
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to-the-run", "to-its-group"])
def test_a_signal_ends_the_run_after_its_epoch(
    send: Callable[[int, int], None], number: signal.Signals, lake: Lake, topic: Topic
) -> None:
    """A terminal sends Ctrl-C to the whole group of processes, and systemd SIGTERM: also to the JVM of Spark."""
    topic.send_rows([("a", number) for number in range(2000)], partition=0)
    file = lake.file(epoch={"max_records": 20}, trigger={"interval": "1 second"})
    command = [sys.executable, "-m", "connector", "run", str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stderr=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if '"epoch": 2' in line:
                send(process.pid, number)
                break
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "stopping after the running epoch" in err
    assert out.splitlines()[-1].startswith("append: stopped. ")
    epochs = lake.metadata()[-1]["epoch"]
    assert 2 <= epochs < 100
    assert len(lake.rows()) == epochs * 20
    wait_until(lambda: not of_group(process.pid), what="the end of the JVM")
    lake.pipeline(epoch={"max_records": 2000}).run()
    assert lake.rows() == [("a", number) for number in range(2000)]


@pytest.mark.breadth
def test_a_second_signal_abandons_the_epoch(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", number) for number in range(200)], partition=0)
    file = lake.file("upsert", epoch={"max_records": 20}, trigger={"interval": "1 second"})
    command = [sys.executable, "-m", "connector", "run", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if '"epoch": 2' in line:
                os.kill(process.pid, signal.SIGTERM)
            if "stopping after" in line:
                os.kill(process.pid, signal.SIGTERM)
                break
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "second signal" in err
    assert "Traceback" not in err
    position = lake.pipeline("upsert").status().position
    assert position is not None
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == [("a", 199)]
