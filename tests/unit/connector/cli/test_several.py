"""Several pipelines of one command."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from connector.cli import several
from connector.cli.app import app
from sinks.errors import NoRecordYet, UnknownSchema


def test_a_run_without_a_pipeline_file_is_reported_too(tmp_path: Path) -> None:
    """A scheduler would else read how the last run ended."""
    report = tmp_path / "report.json"
    report.write_text('{"state": "done", "exit_code": 0}')
    done = CliRunner().invoke(app, ["run", str(tmp_path), "--report", str(report)])
    assert (done.exit_code, "There is no pipeline file in" in done.output) == (2, True)
    assert json.loads(report.read_text()) == {"state": "refused", "exit_code": 2, "pipelines": []}


def test_a_topic_without_a_record_yet_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def file(name: str) -> Any:
        return SimpleNamespace(name=name, file="shop.yaml", usable=lambda: name)

    def act(config: Any) -> None:
        if config != "b":
            raise NoRecordYet("orders has no record yet") if config == "a" else UnknownSchema("no JSON")

    found = [file("a"), file("b")]
    monkeypatch.setattr(several, "is_one", lambda _: False)
    monkeypatch.setattr(several, "pipeline_files", lambda _: [])
    monkeypatch.setattr(several, "read", lambda *_, **__: found)
    monkeypatch.setattr(several, "without_clashes", lambda files: files)
    monkeypatch.setattr(several, "one_session", lambda *_, **__: nullcontext())
    several.each([], [], act, name="check", debug=False)
    assert "orders has no record yet" in capsys.readouterr().err
    found.append(file("c"))
    with pytest.raises(typer.Exit):
        several.each([], [], act, name="check", debug=False)
