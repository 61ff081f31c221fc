"""`lakelock view` says of a view that no run renews when to make it again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from connector.cli import view
from connector.cli.app import app


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", [["--name", "v"], []], ids=["own", "of_the_table"])
def test_a_view_of_a_name_of_its_own_is_to_be_made_again(
    name: list[str], create: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = SimpleNamespace(view=lambda *_, **__: "CREATE OR REPLACE VIEW v AS\nSELECT 1")
    monkeypatch.setattr(view, "Pipeline", SimpleNamespace(from_file=lambda *_, **__: pipeline))
    done = CliRunner().invoke(app, ["view", "p.yaml", *name, *(["--create"] if create else [])])
    assert done.exit_code == 0, done.output
    assert done.stdout == ("done: the view shows the current rows.\n" if create else f"{pipeline.view()};\n")
    assert ("Make this view again after a DELETE" in done.stderr) == bool(name)
