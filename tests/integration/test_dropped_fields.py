"""A field that producers have dropped from the registry's newest schema, in records that were written before."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from audits import counts, verify
from avro_bytes import framed
from conftest import Lake, Topic
from protobuf_bytes import field
from protobuf_bytes import framed as framed_protobuf
from registry import RegistryServer, registry_server

from sinks.errors import BadRecord

DISCOUNT = {"name": "discount", "type": ["null", "long"], "default": None}
NEW = {"type": "record", "name": "Row", "fields": [{"name": "k", "type": "string"}]}
OLD = {**NEW, "fields": [*NEW["fields"], DISCOUNT]}  # type: ignore[misc]
PROTO = 'syntax = "proto3"; package p; message Row { string k = 1; %s }'


def event(row: object) -> dict[str, Any]:
    fields = {"before": ["null", row], "after": ["null", "Row"], "op": "string"}
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def header(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def json_schema(*names: str) -> dict[str, Any]:
    kinds = {"k": "string", "discount": "integer"}
    return {"type": "object", "properties": {name: {"type": kinds[name]} for name in names}}


def old(format: str, k: str, discount: int) -> bytes:
    """A record with the first schema."""
    row = {"k": k, "discount": discount}
    if format == "json":
        return header(1) + json.dumps(row).encode()
    if format == "protobuf":
        return framed_protobuf(1, field(1, k.encode()) + field(2, discount))
    if format == "debezium":
        return framed(1, event(OLD), {"before": None, "after": row, "op": "c"})
    return framed(1, OLD, row)


SCHEMAS = {
    "avro": (OLD, NEW, "AVRO"), "json": (json_schema("k", "discount"), json_schema("k"), "JSON"),
    "protobuf": (PROTO % "int64 discount = 2;", PROTO % "", "PROTOBUF"), "debezium": (event(OLD), event(NEW), "AVRO"),
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("format", "more"),
    [
        ("avro", {}), ("json", {}), ("protobuf", {}), ("debezium", {}), ("avro", {"on_new_column": "add"}),
        ("avro", {"on_new_column": "ignore"}), ("avro", {"on_new_column": "fail"}),
    ],
)  # fmt: skip
def test_older_records_keep_a_field_that_the_newest_schema_lacks(
    lake: Lake, topic: Topic, registry: RegistryServer, format: str, more: dict[str, Any]
) -> None:
    before, after, kind = SCHEMAS[format]
    registry.register(f"{topic.name}-value", 1, before, kind)
    given = {"value": {"format": format, "registry": {"url": registry.url}}, **more}
    topic.send((None, old(format, "a", 5)), partition=0)
    lake.pipeline(**given).run()
    topic.send((None, old(format, "b", 6)), partition=0)
    registry.register(f"{topic.name}-value", 2, after, kind)
    lake.pipeline(**given).run()
    assert lake.sql("SELECT k, discount FROM {t} ORDER BY k") == [("a", 5), ("b", 6)]
    assert verify(lake, **given).ok
    lake.spark.sql(f"UPDATE delta.`{lake.path()}` SET discount = NULL WHERE k = 'b'")  # type: ignore[union-attr]
    assert counts(verify(lake, **given))["altered"] == 1


@pytest.mark.breadth
@pytest.mark.parametrize("format", SCHEMAS)
def test_without_a_column_for_it_the_record_is_a_bad_one_unless_the_file_says_more(
    lake: Lake, topic: Topic, registry: RegistryServer, format: str
) -> None:
    for number_, schema in enumerate(SCHEMAS[format][:2], 1):
        registry.register(f"{topic.name}-value", number_, schema, SCHEMAS[format][2])
    given = {"value": {"format": format, "registry": {"url": registry.url}}}
    topic.send((None, old(format, "a", 5)), partition=0)
    with pytest.raises(BadRecord, match=r"schema id 1 has fields that .* lacks: .*discount.*on_new_column: add"):
        lake.pipeline(**given).run()
    lake.pipeline(name="ignores", **given, on_new_column="ignore").run()
    assert "discount" not in lake.frame().columns


@pytest.mark.breadth
@pytest.mark.parametrize("format", ["avro", "protobuf", "json", "debezium"])
def test_a_column_that_was_dropped_from_the_table_is_missed(
    lake: Lake, topic: Topic, registry: RegistryServer, format: str
) -> None:
    schema, _, kind = SCHEMAS[format]
    registry.register(f"{topic.name}-value", 1, schema, kind)
    given = {"value": {"format": format, "registry": {"url": registry.url}}}
    topic.send((None, old(format, "a", 5)), partition=0)
    lake.pipeline(**given).run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("ALTER TABLE {t} DROP COLUMN discount")
    found = verify(lake, **given)
    assert (found.verdict.exit_code, counts(found)) == (4, {"expected": 1, "found": 1})
    assert "for which the table has no column: discount. Somebody has dropped it" in str(found)
    assert verify(lake, **given, on_new_column="ignore").ok


@pytest.mark.breadth
@pytest.mark.parametrize("format", ["avro", "protobuf", "json", "debezium"])
def test_a_schema_that_has_grown_since_is_no_dropped_column(
    lake: Lake, topic: Topic, registry: RegistryServer, format: str
) -> None:
    grown, first, kind = SCHEMAS[format]
    registry.register(f"{topic.name}-value", 1, first, kind)
    given = {"value": {"format": format, "registry": {"url": registry.url}}}
    row = {"k": "a"}
    sent = {
        "json": header(1) + json.dumps(row).encode(), "protobuf": framed_protobuf(1, field(1, b"a")),
        "avro": framed(1, NEW, row), "debezium": framed(1, event(NEW), {"before": None, "after": row, "op": "c"}),
    }  # fmt: skip
    topic.send((None, sent[format]), partition=0)
    lake.pipeline(**given).run()
    registry.register(f"{topic.name}-value", 2, grown, kind)
    found = verify(lake, **given)
    assert found.ok, str(found)
    assert any("no column for these fields, which aren't compared: discount" in note for note in found.notes)
