"""The YAML of README and docs: whole pipeline files, and parts of one, are valid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pages import ROOT, Block, blocks

from connector.config import SinkBySink, Template, parse

PAGES = [file.relative_to(ROOT).as_posix() for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
EXAMPLES = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page), start=1)
    if block.language == "yaml"
]
WHOLE = {
    "name": "p",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}},
    "value": {"format": "json", "schema": "origin STRING, dep_delay INT, event_time TIMESTAMP"},
    "sinks": [{"type": "delta_append", "path": "lake/p"}],
}


def completed(part: Any) -> dict[str, Any]:
    """A pipeline with this part: a list is its sinks, and ``kafka`` is of its source."""
    if isinstance(part, list):
        return {**WHOLE, "sinks": part}
    if "kafka" in part:
        return {**WHOLE, "source": {**WHOLE["source"], **part}}  # type: ignore[dict-item]
    return {**WHOLE, **part}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_pipeline(example: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret in ("KAFKA_PASSWORD", "REGISTRY_PASSWORD"):
        monkeypatch.setenv(secret, "secret")
    monkeypatch.setenv("ALERTS_URL", "https://hooks.example.com/secret")
    (tmp_path / "ca.pem").write_text("a certificate")
    monkeypatch.chdir(tmp_path)
    options = completed(yaml.safe_load(example.text))
    if "route" in options:
        del options["sinks"]
        parse({"coordinator": {"path": "lake/_log"}, **options})
    elif "tables" in options:
        del options["sinks"]
        assert Template(
            "page", options, lambda document, origin, moved: parse(document, origin=origin, moved=moved)
        ).source
    elif options.get("together") == "eventual":
        several = SinkBySink(
            "page", options, lambda document, origin, moved: parse(document, origin=origin, moved=moved)
        )
        assert all(several.pipeline(part) for part in several.parts)
    else:
        parse(options)
