"""The YAML of README and docs: whole pipeline files, and parts of one, are valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pages import Block, completed, yaml_blocks

from connector.config import SinkBySink, Template, parse

EXAMPLES = [pytest.param(block, id=name) for name, block in yaml_blocks()]


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
