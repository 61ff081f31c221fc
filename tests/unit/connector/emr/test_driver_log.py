"""What the driver's log says of the end of a run, and what `lakelock emr submit` makes of it."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

from connector.cli import several
from connector.cli.emr import _told
from connector.emr import driver_log
from connector.emr.jobs import State
from connector.telemetry.run_report import EXIT_CODES, RunReport

FAILED = "shop-a: failed, exit code 1. Nothing was begun.\n"
DONE = "shop-b: done. 3 epochs, 300 rows written in 9.1 s; the table is at epoch 3, 0 offsets behind.\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("2 pipelines: 1 done, 1 failed; exit code 1.\n", 1),
        ("2 pipelines: 1 done, 1 fenced; exit code 3.\nand a line of Spark's\n", 3),
        ("1,200 pipelines: 1,200 done.\n", 0),
        ("1 pipeline: 1 stopped.\n", 0),
        ("", None),
    ],
)
def test_of_several_pipelines_the_line_after_all_counts(end: str, code: int | None) -> None:
    assert driver_log.exit_code(FAILED + DONE + end, several=True) == code


def test_the_line_that_counts_is_the_one_that_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody changes one of the two alone."""
    said: list[str] = []
    monkeypatch.setattr(several, "say_line", said.append)
    for states in (["done", "refused", "failed"], ["done"]):
        several.say_end([RunReport("p", said.append, state=state) for state in states])
    assert [driver_log.exit_code(line, several=True) for line in said] == [1, 0]


@pytest.mark.parametrize("name", ["flights", "my flights.yaml", "a: done.yaml"])
@pytest.mark.parametrize("state", EXIT_CODES)
def test_the_last_line_of_a_run_gives_its_exit_code(state: str, name: str) -> None:
    """It has the file's name until that of the pipeline is known."""
    last = RunReport(name, print, state=state, exit_code=EXIT_CODES[state]).line()
    log = "\n".join([FAILED, "26/11/28 WARN Shop: stopped, and more", last, "26/11/28 INFO Shutdown: failed nothing"])
    assert driver_log.exit_code(log) == EXIT_CODES[state]


class Log:
    """S3 with one log, of which each look sees more."""

    class exceptions:
        class NoSuchKey(Exception):
            pass

    def __init__(self, *looks: str) -> None:
        self.looks = list(looks)

    def get_object(self, **_: str) -> dict[str, Any]:
        text = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {"Body": io.BytesIO(gzip.compress(text.encode()))}


def test_a_log_of_several_pipelines_is_waited_for_until_all_have_ended() -> None:
    end = "2 pipelines: 1 done, 1 failed; exit code 1."
    s3 = Log(FAILED, FAILED + DONE, FAILED + DONE + end)
    log = driver_log.wait_for_end(s3, "s3://b/stdout.gz", 60, lambda _: None, several=True)
    assert log.endswith(end)


class Job:
    id = look = stop = "j"

    def log(self, stream: str) -> str:
        return f"s3://b/{stream}.gz"


@pytest.mark.parametrize(("end", "code"), [("done", 0), ("failed", 1)])
def test_a_job_that_failed_is_never_told_as_done(end: Any, code: int) -> None:
    assert _told(Job(), Log(DONE), State("WORD", end=end), 0.0, several=False) == code  # type: ignore[arg-type]
