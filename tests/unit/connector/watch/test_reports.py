"""Reports that runs have left, real ones and anything else that may lie beside them."""

from __future__ import annotations

import json
from pathlib import Path

import hostile
import pytest
from hypothesis import given

from connector.telemetry.run_report import RunReport
from connector.watch.reports import _report, reports_in
from sinks.errors import BadRecord


def left(folder: Path, name: str, file: str, error: Exception | None = None) -> None:
    def run() -> None:
        with RunReport(name, lambda _: None, folder / file) as report:
            report.run = "run-1"
            if error is not None:
                raise error
            report.stopped()

    if error is None:
        run()
        return
    with pytest.raises(type(error)):
        run()


def test_the_newest_report_of_a_pipeline_says_how_its_run_ended(tmp_path: Path) -> None:
    left(tmp_path, "flights", "b.json", BadRecord("not JSON", hint="Mend it."))
    left(tmp_path, "other", "c.json")
    left(tmp_path, "flights", "a.json")
    found = reports_in([tmp_path])
    assert (found["flights"].state, found["flights"].bad) == ("stopped", False)
    assert found["other"].state == "stopped"
    failed = reports_in([tmp_path / "b.json"])["flights"]
    assert (failed.state, failed.bad, failed.run) == ("failed", True, "run-1")
    assert (failed.error, failed.message, failed.hint) == ("BadRecord", "not JSON", "Mend it.")


def test_a_report_of_several_pipelines_is_one_of_each(tmp_path: Path) -> None:
    one = {"pipeline": "one", "state": "done", "started": "2026-11-01T12:00:00+00:00", "seconds": 60, "error": None}
    both = {"state": "failed", "exit_code": 1, "pipelines": [one, {**one, "pipeline": "two", "state": "failed"}]}
    (tmp_path / "all.json").write_text(json.dumps(both))
    found = reports_in([tmp_path])
    assert {name: report.state for name, report in found.items()} == {"one": "done", "two": "failed"}
    assert f"{found['one'].ended:%H:%M}" == "12:01"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", "{}", '{"pipelines": [3, null]}', '{"pipeline": "p", "state": "done"}', "[" * 100_000,
     '{"pipeline": "p", "state": "done", "started": "soon", "seconds": 1}', "\udc80"],
)  # fmt: skip
def test_what_is_no_report_is_passed_over(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    left(tmp_path, "flights", "b.json")
    assert set(reports_in([tmp_path, tmp_path / "missing.json"])) == {"flights"}


@given(hostile.TEXTS)
def test_any_text_in_a_report_is_text(text: str) -> None:
    error = {"type": text, "message": text, "hint": None}
    fields = {"pipeline": text, "state": text, "started": "2026-11-01T12:00:00", "seconds": "nan", "error": error}
    report = _report(fields)
    assert report is not None
    assert (report.pipeline, report.message, report.hint, report.seconds) == (text, text, "", 0.0)
