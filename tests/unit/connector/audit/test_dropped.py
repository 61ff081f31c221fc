"""Fields that the newest schema of a registry has dropped: the auditor reads them where the table has their column."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from avro_bytes import field, record
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType
from registry import RegistryServer, registry_server

from connector.audit.dropped import of_event, readable, takes, with_fields_of
from connector.audit.formats import forms, of_registry
from connector.config import ConfluentRegistry, PipelineConfig, parse


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


PAY = columns(amount=LongType())
TABLE = columns(id=LongType(), Discount=LongType(), pay=columns(amount=LongType(), bonus=LongType()))


def pipeline(value: Mapping[str, Any], **more: Any) -> PipelineConfig:
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}}
    sinks = [{"type": "delta_append", "path": "/tmp/t"}]
    return parse({"name": "p", "source": source, "value": dict(value), "sinks": sinks, **more})


def row(*fields: object, name: str = "Row") -> dict[str, Any]:
    return record(*fields, name=name)


OLD_PAY = record(field("amount", "long"), field("bonus", "long"), field("other", "long"), name="Pay")
OLD = row(field("id", "long"), field("discount", "long"), field("gone", "string"), field("pay", ["null", OLD_PAY]))
NEW = row(field("id", "long"), field("pay", ["null", record(field("amount", "long"), name="Pay")]))


def event(row: object) -> dict[str, Any]:
    return record(
        field("before", ["null", row]), field("after", ["null", "Row"]), field("op", "string"), name="Envelope"
    )


def json_of(avro: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a JSON Schema."""

    def of(kind: Any) -> Any:
        kind = kind[1] if isinstance(kind, list) else kind
        return json_of(kind) if isinstance(kind, dict) else {"type": "integer" if kind == "long" else "string"}

    return {"type": "object", "properties": {each["name"]: of(each["type"]) for each in avro["fields"]}}


PROTO = """syntax = "proto3"; package p;
message Row {{ int64 id = 1; Pay pay = 2; {row} }}
message Pay {{ int64 amount = 1; {pay} }}"""
OLD_PROTO = PROTO.format(pay="int64 bonus = 2; int64 other = 3;", row="int64 discount = 3; string gone = 4;")
NEW_PROTO = PROTO.format(pay="", row="")

KINDS = {"avro": (OLD, NEW, "AVRO"), "json": (json_of(OLD), json_of(NEW), "JSON"),
         "protobuf": (OLD_PROTO, NEW_PROTO, "PROTOBUF")}  # fmt: skip


def read(registry: RegistryServer, format: str, table: StructType | None, **more: Any) -> set[str]:
    old, new, kind = KINDS[format]
    registry.register("t-value", 1, old, kind)
    registry.register("t-value", 2, new, kind)
    config = pipeline({"format": format, "registry": {"url": registry.url}}, **more)
    return dropped_in(forms(config, table).value.columns)


def dropped_in(found: DataType) -> set[str]:
    """The fields that the newest schema lacks."""
    assert isinstance(found, StructType)
    assert isinstance(found["pay"].dataType, StructType)
    inner = {f"pay.{name}" for name in found["pay"].dataType.names}
    return {*found.names, *inner} - {"id", "pay", "pay.amount"}


@pytest.mark.parametrize("format", KINDS)
def test_a_dropped_field_is_read_where_the_table_has_a_column_for_it(registry: RegistryServer, format: str) -> None:
    assert read(registry, format, TABLE) == {"discount", "pay.bonus"}


@pytest.mark.parametrize("format", KINDS)
def test_with_add_all_dropped_fields_are_read_and_without_a_table_none(registry: RegistryServer, format: str) -> None:
    assert read(registry, format, None) == set()
    assert read(registry, format, None, on_new_column="add") == {"discount", "gone", "pay.bonus", "pay.other"}


@pytest.mark.parametrize(
    ("grows", "found"), [(False, {"discount", "pay.bonus"}), (True, {"discount", "gone", "pay.bonus", "pay.other"})]
)
def test_a_dropped_column_of_a_database_is_in_both_rows_of_its_events(
    registry: RegistryServer, grows: bool, found: set[str]
) -> None:
    registry.register("t-value", 1, event(OLD))
    registry.register("t-value", 2, event(NEW))
    of = ConfluentRegistry(url=registry.url)
    envelope = of_registry("value", of, ["t"], None, of_event(takes(TABLE, grows=grows))).type
    assert isinstance(envelope, StructType)
    assert [dropped_in(envelope[name].dataType) for name in ("before", "after")] == [found, found]


def test_a_given_schema_says_what_is_read(registry: RegistryServer, tmp_path: Path) -> None:
    (tmp_path / "given.avsc").write_text(json.dumps(row(field("id", "long"))))
    registry.register("t-value", 1, OLD)
    value = {"format": "avro", "registry": {"url": registry.url}, "schema_file": str(tmp_path / "given.avsc")}
    assert forms(pipeline(value), TABLE).value.columns.names == ["id"]


def test_a_field_in_an_array_has_the_path_of_its_field(registry: RegistryServer) -> None:
    stop = [record(field("a", "long"), field("b", "long"), name="S"), record(field("a", "long"), name="S")]
    for number, each in enumerate(stop, 1):
        registry.register("t-value", number, row(field("stops", {"type": "array", "items": each})))
    config = pipeline({"format": "avro", "registry": {"url": registry.url}})
    table = columns(stops=ArrayType(columns(a=LongType(), B=LongType())))
    found = forms(config, table).value.columns["stops"].dataType
    assert found == ArrayType(columns(a=LongType(), b=LongType()))


def test_the_key_is_looked_for_in_its_own_column(registry: RegistryServer) -> None:
    for subject in ("t-key", "t-value"):
        registry.register(subject, 1, row(field("k", "int"), field("region", "string")))
        registry.register(subject, 2, row(field("k", "int")))
    avro = {"format": "avro", "registry": {"url": registry.url}}
    found = forms(
        pipeline(avro, key=avro), columns(k=IntegerType(), _key=columns(k=IntegerType(), region=StringType()))
    )
    assert found.key is not None
    assert found.key.columns.names == ["k", "region"]
    assert found.value.columns.names == ["k"]


def test_the_columns_that_json_has_given_a_table_are_read_by_the_tables_types() -> None:
    of_numbers = MapType(IntegerType(), StringType())
    table = columns(
        K=StringType(), at=columns(City=StringType(), zip=LongType()), size=LongType(), odd=of_numbers,
        _offset=LongType(), _key=StringType(), stops=ArrayType(columns(odd=of_numbers)),
    )  # fmt: skip
    declared = columns(k=StringType(), at=columns(city=StringType()), later=StringType())
    assert with_fields_of(declared, readable(table)) == columns(
        k=StringType(), at=columns(city=StringType(), zip=LongType()), later=StringType(), size=LongType()
    )


def test_no_column_of_lakelocks_own_comes_from_a_field() -> None:
    for grows in (True, False):
        taken = takes(columns(_op=StringType(), id=LongType()), grows=grows)
        assert (taken("_Op"), taken("id"), of_event(taken)("after._op")) == (False, True, False)
    assert takes(columns(_key=columns(_op=StringType())), under="_key")("_op")


def grouped(
    registry: RegistryServer, table: StructType, group_by: Sequence[str] = ("_key", "pay"), **more: Any
) -> list[str]:
    """The fields of Kafka's key, of the value, and of its column ``pay``."""
    pay = [record(field("a", "long"), field("b", "long"), name="P"), record(field("a", "long"), name="P")]
    registry.register("t-key", 1, row(field("k", "int"), field("region", "string")))
    registry.register("t-key", 2, row(field("k", "int")))
    registry.register("t-value", 1, row(field("region", "string"), field("pay", pay[0])))
    registry.register("t-value", 2, row(field("pay", pay[1])))
    avro = {"format": "avro", "registry": {"url": registry.url}}
    aggregate = {"type": "delta_aggregate", "group_by": [*group_by], "aggregates": {"n": "count(*)"}}
    found = forms(pipeline(avro, key=avro, sinks=[{**aggregate, "path": "/tmp/t"}], **more), table)
    assert found.key is not None
    inner = found.value.columns["pay"].dataType
    assert isinstance(inner, StructType)
    return [*found.key.columns.names, *found.value.columns.names, *inner.names]


def test_the_groups_of_an_aggregate_have_the_fields_that_they_have_in_its_table(registry: RegistryServer) -> None:
    key = columns(k=IntegerType(), region=StringType())
    both = columns(a=LongType(), b=LongType())
    table = columns(_key=key, pay=both, region=LongType())
    assert grouped(registry, table) == ["k", "region", "pay", "a", "b"], "a result is no field"
    less = columns(_key=columns(k=IntegerType()), pay=columns(a=LongType()), region=LongType())
    assert grouped(registry, less) == ["k", "pay", "a"]
    one = {"transform": "SELECT *, 1 AS region FROM records"}
    by_result = columns(_key=key, pay=both, Region=LongType())
    assert grouped(registry, by_result, group_by=["_key", "region"]) == ["k", "region", "pay", "region", "a"]
    assert grouped(registry, by_result, group_by=["_key", "region"], **one) == ["k", "region", "pay", "a"]
