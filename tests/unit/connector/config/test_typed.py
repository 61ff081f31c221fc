"""Pipelines of options in Python, and the text of pipeline files that they write."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import typed_pipeline
import yaml
from pydantic import SecretStr, ValidationError

from connector.config import DeltaPlace, PipelineConfig, load, load_any, loads, options, parse
from connector.config.options import KAFKA_KEY, KafkaTopic, Table, Text
from connector.config.sink_by_sink import SinkBySink
from connector.config.yaml_text import read_yaml, write_yaml
from lakelock import Json, Kafka, LakelockError, Pipeline, Upsert

ROOT = Path(__file__).parents[4]
FILES = sorted(
    file.relative_to(ROOT)
    for folder in ("connector", "deploy", "docker", "tests", "notebooks", "docs")
    for file in (ROOT / folder).rglob("*.y*ml")
)
SECRETS = {name: f"s3cret-{name}" for name in ("KAFKA_PASSWORD", "SCHEMA_PASSWORD", "MAIL_PASSWORD")}
BROKER = {"bootstrap.servers": "127.0.0.1:9092"}
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="s3cret";'
REFERENCE = re.compile(r"\$\{env:([A-Z0-9_]+)\}")


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def same(one: PipelineConfig, other: PipelineConfig) -> bool:
    """Also where relative paths lead."""
    places = [[place.folder for place in each.sinks if isinstance(place, DeltaPlace)] for each in (one, other)]
    return one.model_dump() == other.model_dump() and places[0] == places[1]


def set_variables(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in REFERENCE.findall(text):
        if name not in os.environ:
            monkeypatch.setenv(name, JAAS if "JAAS" in name else "s3cret-value")


def pipelines(file: Path) -> list[PipelineConfig]:
    """Those of a file. Empty if it isn't a pipeline file, or a wrong one."""
    try:
        found = load_any(file)
        if isinstance(found, PipelineConfig):
            return [found]
        return [found.pipeline(part) for part in (found.parts if isinstance(found, SinkBySink) else ["orders"])]
    except LakelockError:
        return []


@pytest.mark.parametrize("file", FILES, ids=str)
def test_every_file_in_the_repository_is_written_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables((ROOT / file).read_text(encoding="utf-8"), monkeypatch)
    for config in pipelines(ROOT / file):
        text = Pipeline(config).to_yaml()
        again = loads(text, folder=(ROOT / file).parent)
        assert same(again, config)
        assert "s3cret" not in text
        assert set(REFERENCE.findall(text)) == set(REFERENCE.findall(str(config.document)))


def test_most_files_of_the_repository_are_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    for file in FILES:
        set_variables((ROOT / file).read_text(encoding="utf-8"), monkeypatch)
    named = {str(file) for file in FILES if pipelines(ROOT / file)}
    assert {"connector/cli/pipeline.yaml", "docker/pipeline.yaml", "deploy/databricks/pipelines/flights.yaml"} <= named
    assert len([name for name in named if name.startswith("connector/examples/")]) == 4


def test_the_files_that_pages_show_are_written_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)):
            set_variables(block, monkeypatch)
            file = tmp_path / f"{page.stem}-{number}.yaml"
            file.write_text(block, encoding="utf-8")
            for config in pipelines(file):
                assert same(loads(Pipeline(config).to_yaml(), folder=tmp_path), config), file.name
                written += 1
    assert written >= 5


@pytest.mark.parametrize(
    "make",
    [typed_pipeline.shortest, typed_pipeline.with_most_options, typed_pipeline.merged_on_read, typed_pipeline.routed],
)
def test_options_in_python_are_those_of_the_file_that_they_write(make: Callable[[], Pipeline]) -> None:
    made = make()
    text = made.to_yaml()
    assert same(Pipeline.from_yaml(text).config, made.config)
    assert Pipeline.from_yaml(text).to_yaml() == text
    assert not [name for name, value in SECRETS.items() if value in text or name in str(made)]


def test_the_shortest_pipeline_is_this_file() -> None:
    assert typed_pipeline.shortest().to_yaml() == (
        "name: orders\n"
        "source:\n"
        "  topics: [orders]\n"
        "  kafka:\n"
        "    bootstrap.servers: 127.0.0.1:9092\n"
        "value:\n"
        "  format: json\n"
        "  schema: order_id BIGINT, amount DOUBLE\n"
        "sinks:\n"
        "- type: delta_upsert\n"
        "  path: lake/orders\n"
        "  key: [order_id]\n"
    )


def test_a_reference_in_python_is_looked_up_and_written_as_a_reference() -> None:
    made = typed_pipeline.with_most_options()
    assert made.config.source.kafka_options["sasl.password"] == SECRETS["KAFKA_PASSWORD"]
    registry = made.config.value.registry  # type: ignore[union-attr]
    assert registry is not None
    assert registry.password.get_secret_value() == SECRETS["SCHEMA_PASSWORD"]
    assert made.config.sinks[-1].arguments["password"] == SECRETS["MAIL_PASSWORD"]  # type: ignore[union-attr]
    assert "sasl.password: ${env:KAFKA_PASSWORD}" in made.to_yaml()


def test_a_secret_itself_is_taken_and_never_written() -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    made = Pipeline(
        name="p",
        source=Kafka(topics=("t",), kafka={**BROKER, **login, "sasl.password": SecretStr("hunter2")}),
        value=Json(schema="a INT"),
        sinks=[Upsert(path="lake/t", key=("a",))],
    )
    assert made.config.source.kafka_options["sasl.password"] == "hunter2"
    with pytest.raises(LakelockError, match=r"source\.kafka\.sasl\.password: a secret is never written") as caught:
        made.to_yaml()
    assert "hunter2" not in str(caught.value) + caught.value.hint
    with pytest.raises(ValidationError) as refused:
        Kafka(topics=("t",), kafka={**BROKER, **login, "sasl.password": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_secret_of_an_own_class_that_stands_in_the_file_is_not_written_again() -> None:
    given = typed_pipeline.shortest().config.document
    assert isinstance(given, dict)
    own = {"type": "custom", "name": "mail", "sink": "m:C", "options": {"login": [{"api_token": "hunter2"}]}}
    config = parse({**given, "sinks": [own], "coordinator": {"path": "lake/log"}})
    with pytest.raises(LakelockError, match=re.escape("sinks[0].options.login[0].api_token: a secret")):
        Pipeline(config).to_yaml()


def test_a_topic_has_kafkas_key_under_its_name_in_the_rows() -> None:
    """Only a table's key has a word of its own for it."""
    sinks = [KafkaTopic(topic="out", key=("_key",)), Upsert(path="lake/t", key=KAFKA_KEY)]
    given = {"source": Kafka(topics=("t",), kafka=BROKER), "value": Json(schema="a INT"), "key": Text()}
    made = Pipeline(name="p", sinks=sinks, coordinator=Table(path="lake/log"), **given)  # type: ignore[arg-type]
    assert [sink.key for sink in made.config.sinks] == [("_key",), ("_key",)]  # type: ignore[union-attr]
    assert same(Pipeline.from_yaml(made.to_yaml()).config, made.config)


@pytest.mark.parametrize(
    "text", ["no", "~", "1e3", "0x10", "010", "12:30", "2026-11-01", "=", "<<", "a\x85b", "\x85\n ", "\u2028\n"]
)
def test_a_text_stays_the_text_that_it_is(text: str) -> None:
    document = {"text": text, "list": [text, ""], text: 1}
    assert read_yaml(write_yaml(document), "pipeline")[0] == document


def test_a_changed_copy_writes_what_it_is() -> None:
    config = typed_pipeline.shortest().config
    changed = config.model_copy(update={"headers": True})
    assert yaml.safe_load(Pipeline(changed).to_yaml())["headers"] is True
    assert "headers" not in Pipeline(config).to_yaml()


def test_an_override_is_part_of_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(typed_pipeline.shortest().to_yaml(), encoding="utf-8")
    text = Pipeline.from_file(file, ["epoch.max_records=7"]).to_yaml()
    assert loads(text).epoch.max_records == 7


def test_the_text_may_belong_to_a_folder(tmp_path: Path) -> None:
    text = typed_pipeline.shortest().to_yaml()
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    assert same(Pipeline.from_yaml(text, folder=tmp_path).config, load(tmp_path / "p.yaml"))


def test_wrong_options_are_told_with_their_names() -> None:
    with pytest.raises(LakelockError, match=r"pipeline 'P!' has 2 faults(.|\n)*name: (.|\n)*sinks: is empty"):
        Pipeline(name="P!", source=Kafka(topics=("t",), kafka=BROKER), value=Json(schema="a INT"), sinks=[])
    with pytest.raises(TypeError, match="either a configuration or options, not both: name"):
        Pipeline(typed_pipeline.shortest().config, name="p")  # type: ignore[call-overload]


def test_a_pipeline_takes_every_option_of_a_file() -> None:
    assert set(options.PipelineOptions.__annotations__) | {"spark"} == set(PipelineConfig.model_fields)


@pytest.mark.parametrize("length", [1, 999, 1_000, 250_000, 1_000_000, 90_000_000, 3_600_000_000, 86_400_000_000, 0])
def test_a_duration_keeps_its_length(length: int) -> None:
    made = Pipeline(
        name="p",
        source=Kafka(topics=("t",), kafka=BROKER),
        value=Json(schema="a INT"),
        sinks=[Upsert(path="lake/t", key=("a",), tombstone_retention=timedelta(microseconds=length))],
    )
    (sink,) = made.config.sinks
    assert sink.tombstone_retention == timedelta(microseconds=length)  # type: ignore[union-attr]
    assert same(Pipeline.from_yaml(made.to_yaml()).config, made.config)
