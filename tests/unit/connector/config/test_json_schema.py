"""The JSON schema of the pipeline file: it takes every file of the repository, and no option that is misspelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from pages import ROOT, Block, completed, yaml_blocks
from typer.testing import CliRunner

from connector.cli.app import app
from connector.config import parse
from connector.config.json_schema import json_schema
from connector.config.reference import SECTIONS

SCHEMA = json_schema()
VALIDATOR = Draft7Validator(SCHEMA)
FILES = [
    *sorted((ROOT / "connector").rglob("*.yaml")), ROOT / "deploy/databricks/pipelines/flights.yaml",
    ROOT / "deploy/emr/pipeline.yaml", ROOT / "deploy/kubernetes/flights.yaml", ROOT / "docker/pipeline.yaml",
]  # fmt: skip
FREE = {
    "kafka",
    "spark",
    "options",
    "aggregates",
    "states",
    "offsets",
    "start",
    "overrides",
    "properties",
    "comments",
    "rename",
    "cast",
    "header",
    "add",
}
"""Mappings whose keys are names of the user's."""


class Yaml12(yaml.SafeLoader):
    """YAML as editors read it: only true and false are booleans, and ``on`` is text."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in ways if not tag.endswith(":bool") or first in "tTfF"]
    for first, ways in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def as_editor(text: str) -> Any:
    """What an editor checks: JSON's values, in which a time is a text."""
    return json.loads(json.dumps(yaml.load(text, Loader=Yaml12), default=str))


def faults(document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}"[:300] for error in VALIDATOR.iter_errors(document)]


def example(block: Block) -> dict[str, Any]:
    options = completed(as_editor(block.text))
    if {"route", "tables"} & options.keys():
        del options["sinks"]
    return options


WHOLE = [
    *(pytest.param(as_editor(file.read_text()), id=str(file.relative_to(ROOT))) for file in FILES),
    *(pytest.param(example(block), id=name) for name, block in yaml_blocks()),
]


def test_it_is_a_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_every_pipeline_file_of_the_repository_is_looked_at() -> None:
    found = [
        file
        for file in [*ROOT.glob("*/**/*.yaml"), *ROOT.glob("*/**/*.yml")]
        if "golden" not in file.parts and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
        if isinstance(document := yaml.safe_load(file.read_text()), dict) and {"name", "source"} <= document.keys()
    ]
    assert set(found) <= set(FILES)


@pytest.mark.parametrize("document", WHOLE)
def test_a_right_file_is_taken(document: Any) -> None:
    assert faults(document) == []


def misspelled(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """The document with one of its options misspelled, for each of them."""
    here: Any = document
    for part in path:
        here = here[part]
    if isinstance(here, list):
        for index in range(len(here)):
            yield from misspelled(document, (*path, index))
    elif isinstance(here, dict):
        for name in here:
            if not path or path[-1] not in FREE:
                changed: Any = deepcopy(document)
                at = changed
                for part in path:
                    at = at[part]
                at[f"{name}s"] = at.pop(name)
                yield f"{path} {name}", changed
            if name != "options":
                yield from misspelled(document, (*path, name))


@pytest.mark.parametrize("document", WHOLE)
def test_no_misspelled_option_is_taken(document: Any) -> None:
    taken = [where for where, changed in misspelled(document) if not faults(changed)]
    assert taken == []


@pytest.mark.parametrize(
    "case", ["many_faults", "misspelled", "no_mappings", "only_names", "route", "sinks", "two_sinks", "wrong_values"]
)
def test_a_wrong_file_is_refused(case: str) -> None:
    assert faults(as_editor((ROOT / f"tests/golden/{case}.yaml").read_text()))


SMALLEST = {
    "name": "p",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}},
    "value": {"format": "json", "schema": "a INT"},
    "sinks": [{"type": "delta_append", "path": "lake/p"}],
}
SOURCE: dict[str, Any] = SMALLEST["source"]  # type: ignore[assignment]


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {**SOURCE, "topics": "t.*"}},
        {"source": {**SOURCE, "start": {"t": {"0": 5, "1": -2}}}},
        {"source": {**SOURCE, "start": {"timestamp": "2026-11-01T00:00:00Z"}}},
        {"source": {**SOURCE, "on_data_loss": {"continue": "10 minutes"}}},
        {"source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1", "fetch.max.bytes": 5, "check.crcs": True}}},
        {"epoch": {"max_records": "${env:RECORDS}"}},
        {"delivery": "${env:DELIVERY}"},
        {"trigger": {"interval": 0}},
        {"trigger": {"interval": "${env:EVERY}"}},
        {"metrics": {"push": "http://gateway:9091"}},
        {"metrics": {"push": {"url": "http://gateway:9091", "username": "me", "password": "${env:PASSWORD}"}}},
        {"value": {"format": "avro", "registry": {"url": ["http://a", "http://b"], "token": "${file:/token}"}}},
        {"value": {"format": "avro", "registry": {"glue": {"region": "eu-central-1"}}}},
        {"value": {"format": "protobuf", "descriptor_file": "a.desc", "message": "a.B"}},
        {"value": {"format": "protobuf", "registry": {"url": "http://a"}, "schema": "id BIGINT"}},
        {"sinks": [{"type": "delta_upsert", "table": "a.b.c", "key": "a", "ignore_null_updates": ["a"]}]},
        {"sinks": [{"type": "delta_history", "path": "h", "key": ["a"], "stored_as_scd_type": 2}]},
    ],
)
def test_what_the_file_takes_the_schema_takes(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"RECORDS": "5", "DELIVERY": "transactional", "EVERY": "1 minute", "PASSWORD": "x"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    document = {**SMALLEST, **changes}
    assert faults(document) == []
    if "token" not in str(document):
        parse(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"delivery": "exactly_once"},
        {"epoch": {"max_records": 0}},
        {"trigger": {"interval": "10 parsecs"}},
        {"sinks": [{"type": "delta_append"}]},
        {"sinks": [{"type": "delta_append", "path": "a", "table": "b"}]},
        {"sinks": [{"type": "delta_merge", "path": "a"}]},
        {"sinks": []},
        {"route": {"by": "a", "sink": {"type": "delta_append", "path": "{a}"}}},
        {"value": {"format": "avro", "registry": {"url": "http://a", "username": "me", "password": "literal"}}},
    ],
)
def test_what_the_file_refuses_the_schema_refuses(changes: dict[str, Any]) -> None:
    assert faults({**SMALLEST, **changes})


def test_every_option_has_a_description() -> None:
    for model in SECTIONS.values():
        definition = SCHEMA if model.__name__ == "PipelineConfig" else SCHEMA["definitions"][model.__name__]
        for name, field in model.model_fields.items():
            assert definition["properties"][field.alias or name]["description"]
    told = SCHEMA["definitions"]["Retry"]["properties"]["longest_wait"]
    assert told["default"] == "1 minute"
    assert told["description"].startswith("The longest wait between two attempts.")


def test_the_commands_write_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema"])
    assert json.loads(printed.stdout) == SCHEMA
    written = CliRunner().invoke(app, ["init", str(tmp_path / "p.yaml")])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "p.yaml").read_text().splitlines()[0] == "# yaml-language-server: $schema=./pipeline.schema.json"
    assert (tmp_path / "pipeline.schema.json").read_text() == printed.stdout
    (tmp_path / "pipeline.schema.json").write_text("{}")
    assert CliRunner().invoke(app, ["init", str(tmp_path / "q.yaml"), "--example", "word_count"]).exit_code == 0
    assert (tmp_path / "pipeline.schema.json").read_text() == "{}", "it may be somebody's own"
