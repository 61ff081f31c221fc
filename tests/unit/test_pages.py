"""The YAML of README and docs: whole pipeline files, and parts of one, are valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pages import ROOT, Block, blocks, completed, yaml_blocks

from connector.config import SinkBySink, Template, load_any, parse

EXAMPLES = [pytest.param(block, id=name) for name, block in yaml_blocks()]


def test_a_run_that_passes_a_gap_ends_then() -> None:
    """With the interval of the file it would go on, and pass the next gap, too."""
    pages = [file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").glob("*.md")]
    passing = [
        command
        for page in pages
        for block in blocks(page)
        for command in block.commands
        if command.startswith("lakelock run ") and "source.on_" in command
    ]
    assert len(passing) >= 4
    assert all("--set trigger=available_now" in command for command in passing), passing


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_pipeline(example: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("KAFKA_PASSWORD", "REGISTRY_PASSWORD"):
        monkeypatch.setenv(secret, "secret")
    monkeypatch.setenv("MASK_SALT", "as long as a salt has to be")
    monkeypatch.setenv("ALERTS_URL", "https://hooks.example.com/secret")
    (tmp_path / "ca.pem").write_text("a certificate")
    monkeypatch.chdir(tmp_path)
    options = completed(yaml.safe_load(example.text))
    if "route" in options or "tables" in options:
        del options["sinks"]
    if "route" in options:
        options = {"coordinator": {"path": "lake/_log"}, **options}
    if "tables" not in options and options.get("together") != "eventual":
        parse(options)
        return
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(options))
    several = load_any(tmp_path / "pipeline.yaml")
    if isinstance(several, Template):
        assert several.source
    else:
        assert isinstance(several, SinkBySink)
        assert all(several.pipeline(part) for part in several.parts)
