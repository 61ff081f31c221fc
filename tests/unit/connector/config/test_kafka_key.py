"""``key: kafka_key``: rows that are identified by Kafka's key."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import KeyedSink, PipelineConfig, StringFormat, parse
from sinks.errors import ConfigurationError

FILE = {
    "name": "shop",
    "source": {"topics": ["orders"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "value": {"format": "json", "schema": "id INT"},
    "sinks": [{"type": "delta_upsert", "path": "lake/orders", "key": "kafka_key"}],
}


def key(config: PipelineConfig) -> tuple[str, ...]:
    (sink,) = config.sinks
    assert isinstance(sink, KeyedSink)
    return sink.key


def test_it_is_text_unless_the_file_says_otherwise() -> None:
    config = parse(FILE)
    assert key(config) == ("_key",)
    assert isinstance(config.key, StringFormat)
    declared = parse({**FILE, "key": {"format": "json", "schema": "id INT"}})
    assert key(declared) == ("_key",)
    assert declared.key is not None
    assert declared.key.format == "json"


def test_a_list_names_columns() -> None:
    config = parse({**FILE, "sinks": [{**FILE["sinks"][0], "key": ["kafka_key"]}]})  # type: ignore[dict-item]
    assert key(config) == ("kafka_key",)
    assert config.key is None


@pytest.mark.parametrize("schema", ["kafka_key INT", "id INT, `KAFKA_KEY` STRING"])
def test_a_column_of_this_name_is_no_guess(schema: str) -> None:
    with pytest.raises(ConfigurationError, match=r"means Kafka's key, and value.schema has a column of this name"):
        parse({**FILE, "value": {"format": "json", "schema": schema}})


def test_a_route_may_have_it_for_one_value() -> None:
    options: dict[str, Any] = {name: value for name, value in FILE.items() if name != "sinks"}
    sink = {"type": "delta_append", "path": "lake/{route}"}
    override = {"a": {"sink": {"type": "delta_upsert", "key": "kafka_key"}}}
    config = parse(
        {**options, "coordinator": {"path": "_log"}, "route": {"by": "id", "sink": sink, "overrides": override}}
    )
    assert isinstance(config.key, StringFormat)
    assert key(config.routed("a")) == ("_key",)


def test_beside_a_key_of_columns_the_format_has_to_be_told() -> None:
    both = [*FILE["sinks"], {"type": "delta_upsert", "path": "lake/by_id", "key": "id"}]  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match=r"sinks\[0\].key: is kafka_key, and sinks\[1\].key names columns"):
        parse({**FILE, "sinks": both, "coordinator": {"path": "_log"}})
    config = parse(
        {**FILE, "sinks": both, "coordinator": {"path": "_log"}, "key": {"format": "json", "schema": "id INT"}}
    )
    assert [sink.key for sink in config.sinks] == [("_key",), ("id",)]  # type: ignore[union-attr]
