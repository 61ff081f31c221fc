"""A schema of its own for a value of a route, as the pipeline file has it: of JSON, and of Avro in a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.config import AvroFormat, PipelineConfig, load, parse
from connector.config.own_schema import names_schema
from connector.config.registry import ConfluentRegistry
from sinks.errors import ConfigurationError

SINK = {"type": "delta_upsert", "path": "lake/{kind}", "key": "id"}
REGISTRY = {"url": "http://r"}
AVRO = {"format": "avro", "registry": REGISTRY}
SHARED = {"format": "avro", "registry": {**REGISTRY, "subject": "shared"}}
BOTH = {
    "by": "_schema",
    "sink": {"type": "delta_upsert", "path": "lake/{route}", "key": "id"},
    "overrides": {
        "shop.Order": {"value": {"subject": "shop.Order"}},
        "shop.Refund": {"value": {"schema_file": "/schemas/refund.avsc"}},
    },
}


def routed(route: Any, **changes: Any) -> PipelineConfig:
    options = {
        "name": "shop",
        "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "kind STRING, id INT"},
        "coordinator": {"path": "lake/_log"},
        "route": {"by": "kind", "sink": SINK, **route},
    }
    return parse({name: value for name, value in {**options, **changes}.items() if value is not None})


def own(**value: Any) -> dict[str, Any]:
    return {"overrides": {"refund": {"value": value}}}


def test_the_records_of_a_value_are_read_by_its_own_subject_or_file() -> None:
    config = routed(BOTH, value=AVRO)
    order, refund = config.routed("shop.Order"), config.routed("shop.Refund")
    assert isinstance(order.value, AvroFormat)
    assert isinstance(order.value.registry, ConfluentRegistry)
    assert (order.value.registry.subject, order.value.schema_file) == ("shop.Order", None)
    assert order.schema_option == "route.overrides.shop.Order.value.subject"
    assert isinstance(refund.value, AvroFormat)
    assert refund.value.schema_file == "/schemas/refund.avsc"
    assert order.route is not None
    assert order.route.named_by == config.value


@pytest.mark.parametrize(
    ("route", "value", "bare"),
    [
        ({}, AVRO, True),
        ({"values": ["shop.Order", "shop.Refund"]}, AVRO, True),
        ({"values": ["shop.Order", "shop.Refund", "shop.Return"]}, AVRO, False),
        ({"other": "ignore"}, AVRO, True),
        ({"other": {"type": "delta_append", "path": "lake/others"}}, AVRO, False),
        ({"overrides": {**BOTH["overrides"], "shop.Return": {"sink": {}}}}, AVRO, False),  # type: ignore[dict-item]
        ({}, SHARED, False),
        ({}, {**AVRO, "schema_file": "shared.avsc"}, False),
    ],
)
def test_records_share_no_columns_where_each_table_has_a_schema_and_the_value_names_none(
    route: Any, value: Any, bare: bool
) -> None:
    config = routed({**BOTH, **route}, value=value)
    assert config.route is not None
    assert config.route.bare(config.value) == bare
    only = tuple(BOTH["overrides"]) if bare and "values" not in route else config.route.values  # type: ignore[arg-type]
    assert config.route.only(config.value) == only


def test_a_value_without_a_schema_has_no_table_where_records_share_no_columns() -> None:
    config = routed(BOTH, value=AVRO)
    with pytest.raises(ConfigurationError, match="has no schema of its records") as refused:
        config.routed("shop.Return")
    assert "route.overrides.shop.Return.value" in (refused.value.hint or "")


def test_a_pattern_of_topics_needs_no_subject_for_what_records_share() -> None:
    source = {"topics": "shop-.*", "kafka": {"bootstrap.servers": "b:1"}}
    routed(BOTH, value=AVRO, source=source)
    with pytest.raises(ConfigurationError, match="give subject"):
        routed({**BOTH, "values": ["shop.Order", "shop.Refund", "x"]}, value=AVRO, source=source)


@pytest.mark.parametrize(
    ("by", "require", "value", "named"),
    [
        ("_schema", None, AVRO, True),
        ("IF(_SCHEMA = 'shop.Order', 'a', 'b')", None, AVRO, True),
        ("CAST(_headers['t'] AS STRING)", "`_schema` IS NOT NULL", SHARED, True),
        ("'_schema'", None, AVRO, False),
        ("_schema", None, {"format": "json", "schema": "_schema STRING, id INT"}, False),
        ("_schema", None, {"format": "avro", "registry": {"glue": {}}, "schema_file": "x"}, False),
    ],
)
def test_the_name_of_a_records_schema_is_read_where_an_expression_names_it(
    by: str, require: Any, value: Any, named: bool
) -> None:
    sink = {"type": "delta_append", "path": "lake/{route}"}
    config = routed({"by": by, "sink": sink}, value=value, require=require, headers=True)
    assert names_schema(config, config.value) == named


@pytest.mark.parametrize(
    ("value", "route", "changes", "said"),
    [
        (AVRO, own(schema="id INT"), {}, "value.schema: is for JSON. Of Avro name the subject in the registry"),
        (AVRO, own(), {}, "route.overrides.refund.value: give one of schema"),
        (AVRO, own(subject="a", schema_file="b"), {}, "route.overrides.refund.value: give one of schema"),
        (
            {"format": "json", "schema": "id INT, kind STRING"},
            own(subject="a"),
            {},
            "route.overrides.refund.value.subject: needs value: {format: avro, registry: {url: ...}}. Of JSON write",
        ),
        (
            {"format": "avro", "schema_file": "x"},
            own(schema_file="y"),
            {},
            "with Confluent's API, which has the schema",
        ),
        (
            {"format": "avro", "schema_file": "x", "registry": {"glue": {}}},
            own(subject="y"),
            {},
            "with Confluent's API, which has the schema",
        ),
        (
            {"format": "debezium", "registry": REGISTRY},
            own(subject="y"),
            {},
            "Records in debezium have the schema of the file",
        ),
        (
            {"format": "protobuf", "registry": REGISTRY},
            own(schema_file="y"),
            {},
            "Records in protobuf have the schema of the file",
        ),
        (
            AVRO,
            own(subject="y"),
            {"on_new_column": "fail"},
            "on_new_column: fail doesn't work with a schema of its own",
        ),
        (AVRO, own(subject="y"), {"transform": "SELECT id FROM records"}, "transform doesn't work with a schema of"),
        (AVRO, own(subject="y"), {"event_time": "at"}, "event_time: at has to be a field of every record"),
    ],
)
def test_what_does_not_go_with_a_schema_of_its_own_is_told(value: Any, route: Any, changes: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        routed(route, value=value, **changes)
    assert said in refused.value.message


def test_a_schema_of_json_shapes_the_rows_as_before_there_was_another_kind() -> None:
    """An epoch in doubt knows the hash that the version before has made."""
    assert routed(own(schema="id INT, why STRING")).shape == "c260346779f59703"


def test_a_schema_file_of_its_own_lies_beside_the_pipeline_file_and_shapes_the_rows(tmp_path: Path) -> None:
    file, schema = tmp_path / "shop.yaml", tmp_path / "refund.avsc"
    document = {
        "name": "shop",
        "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "b:1"}},
        "value": AVRO,
        "coordinator": {"path": "lake/_log"},
        "route": {**BOTH, "overrides": {"*": {"value": {"schema_file": "refund.avsc"}}}},
    }
    file.write_text(yaml.safe_dump(document))
    shapes = []
    for text in ("one", "other"):
        schema.write_text(text)
        config = load(file)
        assert config.routed("*").value.schema_file == str(schema)  # type: ignore[union-attr]
        shapes.append(config.shape)
    assert shapes[0] != shapes[1]
