import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from connector.delivery.ports import Delivered
from connector.protocol.steps import Event, Step
from connector.telemetry.run_report import RunReport
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BrokerUnreachable, ConfigurationError, Fenced
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)


def epoch(number: int, end: int) -> tuple[Epoch, Committed]:
    ranges = (OffsetRange("t", 0, end - 10, end),)
    made = Epoch("p", number, "run-1", ranges, Offsets({AT: end}), topics={}, read_to=None, expected=None)
    return made, Committed(made.position(), rows=9)


def ran(report: RunReport, *, behind: int) -> Delivered:
    for number in (1, 2):
        made, committed = epoch(number, number * 10)
        report(Event(Step.PLANNED, made, behind=behind))
        report(Event(Step.COMMITTED, made, committed, behind))
    return Delivered(2, 18, Position(2, Offsets({AT: 20}), version=7), behind=behind)


def test_what_a_run_did_is_told_in_a_line_and_in_a_file(tmp_path: Path) -> None:
    said: list[str] = []
    with RunReport("p.yaml", said.append, tmp_path / "r.json") as report:
        assert json.loads((tmp_path / "r.json").read_text())["state"] == "running"
        report.pipeline = "p"
        report.ended(ran(report, behind=5), table="lake/t", stopped=False)
    found = json.loads((tmp_path / "r.json").read_text())
    assert said[0].startswith("p: done. 2 epochs, 18 rows written in ")
    assert said[0].endswith("; the table is at epoch 2, 5 offsets behind.")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert (found["pipeline"], found["run"], found["state"], found["exit_code"]) == ("p", "run-1", "done", 0)
    assert (found["epochs"], found["records"], found["rows"], found["lag"]) == (2, 20, 18, 5)
    assert (found["epoch"], found["offsets"], found["tables"]) == (2, {"t": {"0": 20}}, {"lake/t": 7})


def test_what_a_run_left_out_is_in_its_last_line(tmp_path: Path) -> None:
    said: list[str] = []
    with RunReport("p", said.append, tmp_path / "r.json") as report:
        made, committed = epoch(1, 10)
        made = replace(made, lost=(OffsetRange("t", 0, 2, 7),))
        for letters in (5, 3):  # the first attempt wasn't committed
            report(Event(Step.PLANNED, made))
            report(Event(Step.READ, made, letters=letters))
        report(Event(Step.COMMITTED, made, committed))
        report(Event(Step.COMMITTED, *epoch(2, 20)))
        report.ended(Delivered(2, 18, None), table=None, stopped=False)
    assert said[0].startswith("p: done. 2 epochs, 18 rows written, 3 records set aside, up to 5 lost in ")
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["set_aside"], found["lost"]) == (3, 5)


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (BrokerUnreachable("away", hint="wait"), "failed", 1),
        (ConfigurationError("wrong"), "refused", 2),
        (Fenced("replaced", owner="run-2", epoch=3), "fenced", 3),
        (KeyboardInterrupt(), "failed", 1),
        (ValueError("unknown"), "failed", 1),
    ],
)
def test_an_error_ends_it_with_its_own_code_and_what_was_done_before(
    error: BaseException, state: str, code: int, tmp_path: Path
) -> None:
    said: list[str] = []

    def fail() -> None:
        with RunReport("p", said.append, tmp_path / "r.json") as report:
            ran(report, behind=5)
            raise error

    with pytest.raises(type(error)):
        fail()
    found = json.loads((tmp_path / "r.json").read_text())
    assert said[0].startswith(f"p: {state}, exit code {code}. 2 epochs, 18 rows written")
    assert (found["state"], found["exit_code"], found["epoch"]) == (state, code, 2)
    assert found["error"]["type"] == type(error).__name__
    assert found["error"]["message"] == str(error)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--report"), RunReport("p", print, tmp_path / "no" / "r.json"):
        pytest.fail("it went on")


def test_a_file_that_is_lost_meanwhile_does_not_change_how_the_run_ended(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    said: list[str] = []
    with RunReport("p", said.append, folder / "r.json") as report:
        shutil.rmtree(folder)
        report.ended(ran(report, behind=5), table=None, stopped=False)
    assert said[0].startswith("p: done.")


def test_a_run_that_ends_by_max_epochs_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with RunReport("p", said.append, tmp_path / "r.json") as report:
        report.ended(replace(ran(report, behind=5), limited=True), table=None, stopped=False)
    assert said[0].startswith("p: done. 2 epochs")
    assert said[0].endswith("5 offsets behind. It ended there because of --max-epochs; the next run goes on.")
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["state"], found["exit_code"], found["max_epochs_reached"]) == ("done", 0, True)
