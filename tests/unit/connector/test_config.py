"""The pipeline file: every fault at once, each with its option and what to write instead."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from connector.config import FromTimestamp, Interval, PipelineConfig, load, parse
from sinks.errors import ConfigurationError

GOLDEN = Path(__file__).parents[2] / "golden"

SMALLEST = """
name: p
source: {topics: [t], kafka: {bootstrap.servers: "127.0.0.1:9092"}}
value: {format: json, schema: "a INT"}
sinks: [{type: delta_append, path: lake/p}]
"""


def options(**changes: object) -> dict[str, object]:
    return yaml.safe_load(SMALLEST) | changes


def fault(**changes: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(options(**changes))
    assert caught.value.exit_code == 2
    return str(caught.value)


def source(**changes: object) -> dict[str, object]:
    return {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}} | changes


def test_the_smallest_file_has_safe_defaults() -> None:
    config = parse(options())
    assert config.delivery == "transactional"
    assert config.source.start == "earliest"
    assert config.source.on_data_loss == "fail"
    assert config.trigger == "available_now"
    assert config.epoch.max_records == 2_000_000


def test_the_file_that_init_writes_is_valid() -> None:
    import connector

    written = Path(connector.__file__).parent / "pipeline.yaml"
    assert load(written).name == "latest_flights"


@pytest.mark.parametrize("case", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_wrong_file_is_explained(case: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(GOLDEN / f"{case}.yaml")
    said = str(caught.value).replace(str(GOLDEN / f"{case}.yaml"), "pipeline.yaml")
    assert said + "\n" == (GOLDEN / f"{case}.txt").read_text(encoding="utf-8")


def test_a_start_may_be_a_time_or_offsets() -> None:
    by_time = parse(options(source=source(start={"timestamp": "2026-11-01T00:00:00Z"}))).source.start
    assert by_time == FromTimestamp(timestamp=datetime(2026, 11, 1, tzinfo=timezone.utc))
    by_offset = parse(options(source=source(start={"t": {"0": 120, "1": -2}}))).source.start
    assert by_offset.offsets == {"t": {0: 120, 1: -2}}
    of_a_topic_called_timestamp = parse(options(source=source(start={"timestamp": {"0": 1}}))).source.start
    assert of_a_topic_called_timestamp.offsets == {"timestamp": {0: 1}}


@pytest.mark.parametrize(
    ("text", "length"),
    [("10 seconds", 10), ("1 second", 1), ("1.5 minutes", 90), ("2 hours", 7200), ("1 day", 86400)],
)
def test_an_interval_is_a_number_and_a_unit(text: str, length: float) -> None:
    assert parse(options(trigger={"interval": text})).trigger == Interval(interval=timedelta(seconds=length))


def test_a_key_may_be_one_column() -> None:
    assert parse(options(sinks=[{"type": "delta_upsert", "path": "x", "key": "a"}])).sinks[0].key == ("a",)


@pytest.mark.parametrize("name", ["enable.auto.commit", "isolation.level", "auto.offset.reset"])
def test_options_that_the_guarantee_rests_on_are_refused(name: str) -> None:
    assert f"{name} is Lakelock's own to set" in fault(source=source(kafka={"bootstrap.servers": "b:1", name: "x"}))


def test_secrets_come_from_the_environment_and_from_files_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    (tmp_path / "truststore").write_text("swordfish\n")
    kafka = {
        "bootstrap.servers": "b:1",
        "sasl.jaas.config": 'Login required password="${env:PASSWORD}";',
        "ssl.truststore.password": "${file:%s}" % (tmp_path / "truststore"),
    }
    config = parse(options(source=source(kafka=kafka)))
    assert config.source.kafka_options["sasl.jaas.config"] == 'Login required password="hunter2";'
    assert config.source.kafka_options["ssl.truststore.password"] == "swordfish"
    assert isinstance(config.source.kafka["sasl.jaas.config"], SecretStr)
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "hunter2" not in shown
        assert "swordfish" not in shown


def test_a_missing_secret_names_the_option_but_no_value() -> None:
    said = fault(source=source(kafka={"bootstrap.servers": "b:1", "ssl.key.password": "${env:NOT_SET_ANYWHERE}"}))
    assert "source.kafka.ssl.key.password: the environment variable NOT_SET_ANYWHERE isn't set" in said


def test_a_fault_beside_a_secret_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    kafka = {"bootstrap.servers": "b:1", "group.id": "${env:PASSWORD}", "x": ["${env:PASSWORD}"]}
    assert "hunter2" not in fault(source=source(kafka=kafka))


def test_a_file_that_is_not_there_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        load(tmp_path / "nowhere.yaml")


def test_numbers_and_booleans_in_kafka_options_are_text() -> None:
    config = parse(options(source=source(kafka={"bootstrap.servers": "b:1", "fetch.max.bytes": 1, "check.crcs": True})))
    assert config.source.kafka_options["fetch.max.bytes"] == "1"
    assert config.source.kafka_options["check.crcs"] == "true"


def test_a_config_is_immutable() -> None:
    config: PipelineConfig = parse(options())
    with pytest.raises(ValueError, match="frozen"):
        config.name = "q"
