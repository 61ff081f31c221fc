"""Several pipelines of one command."""

import json
from pathlib import Path

from typer.testing import CliRunner

from connector.cli.app import app


def test_a_run_without_a_pipeline_file_is_reported_too(tmp_path: Path) -> None:
    """A scheduler would else read how the last run ended."""
    report = tmp_path / "report.json"
    report.write_text('{"state": "done", "exit_code": 0}')
    done = CliRunner().invoke(app, ["run", str(tmp_path), "--report", str(report)])
    assert (done.exit_code, "There is no pipeline file in" in done.output) == (2, True)
    assert json.loads(report.read_text()) == {"state": "refused", "exit_code": 2, "pipelines": []}
