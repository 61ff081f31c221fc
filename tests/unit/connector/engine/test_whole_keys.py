"""A key that is a STRUCT is never left without one of its fields: two keys would become one row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.config import parse
from connector.engine import decoders
from connector.engine.decoders import _formats, _without_new_columns


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


LESS = columns(id=LongType())
MORE = columns(id=LongType(), region=StringType())


def test_with_new_columns_ignored_the_key_keeps_its_fields() -> None:
    rows: Any = SimpleNamespace(schema=columns(_Key=MORE, at=MORE, more=LongType(), _offset=LongType()))
    rows.selectExpr = lambda *selected: selected
    table: Any = SimpleNamespace(schema=columns(_key=LESS, at=LESS), detail=lambda: "there is one")
    at = "CASE WHEN `at` IS NOT NULL THEN named_struct('id', `at`.`id`) END AS `at`"
    assert _without_new_columns(rows, table, ["_offset"], key=["_key"]) == ("`_Key`", at, "`_offset`")
    narrowed: Any = _without_new_columns(rows, table, ["_offset"])
    assert narrowed[0].endswith("END AS `_Key`")


@pytest.mark.parametrize(
    ("sink", "ignores"),
    [
        ({"type": "delta_upsert", "key": "kafka_key"}, False),
        ({"type": "delta_upsert", "key": ["id"]}, True),
        ({"type": "delta_append"}, True),
        ({"type": "delta_aggregate", "group_by": ["_key"], "aggregates": {"n": "count(*)"}}, False),
        ({"type": "delta_aggregate", "group_by": ["id"], "aggregates": {"n": "count(*)"}}, True),
    ],
)
def test_a_key_as_a_whole_is_not_read_without_new_fields(
    sink: dict[str, Any], ignores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that the key's subject gets while a run is at work makes bad records, until the next start refuses it."""
    asked: dict[str, Any] = {}

    def format_of(part: str, *_: Any, **options: Any) -> Any:
        asked[part] = options["on_new_column"]

    monkeypatch.setattr(decoders, "record_format", format_of)
    monkeypatch.setattr(decoders, "names_schema", lambda *_: False)
    monkeypatch.setattr(decoders, "with_schema_name", lambda *_: None)
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "avro", "registry": {"url": "http://there"}},
            **({} if sink["type"] == "delta_aggregate" else {"on_new_column": "ignore"}),
            "key": {"format": "avro", "registry": {"url": "http://there"}}, "sinks": [{**sink, "path": "/tmp/t"}],
        }
    )  # fmt: skip
    nothing: Any = None
    _formats(config, nothing, {}, nothing, ())
    assert asked == {"value": "ignore", "key": "ignore" if ignores else None}, "an aggregate always ignores the others"


@pytest.mark.parametrize("transform", [None, "SELECT *, 1 AS city FROM records"])
def test_a_group_of_an_aggregate_is_read_with_the_fields_of_its_table(
    transform: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a field that the newest schema of a registry has dropped, no run would go on with the table."""
    asked: dict[str, Any] = {}

    def format_of(part: str, *_: Any, **options: Any) -> Any:
        asked[part] = set(options["held"])

    monkeypatch.setattr(decoders, "record_format", format_of)
    monkeypatch.setattr(decoders, "names_schema", lambda *_: False)
    monkeypatch.setattr(decoders, "with_schema_name", lambda *_: None)
    avro = {"format": "avro", "registry": {"url": "http://there"}}
    groups = {"type": "delta_aggregate", "group_by": ["_key", "city", "At"], "aggregates": {"region": "count(*)"}}
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": avro, "key": avro, "sinks": [{**groups, "path": "/tmp/t"}],
            **({"transform": transform} if transform is not None else {}),
        }
    )  # fmt: skip
    schema = columns(_key=MORE, city=StringType(), at=MORE, region=LongType(), _state=LESS)
    detail = SimpleNamespace(generated={}, identities=())
    table: Any = SimpleNamespace(schema=schema, detail=lambda: detail, was_there=lambda: True)
    nothing: Any = None
    _formats(config, nothing, {0: table}, nothing, ())
    inside = {"at.id", "at.region", "_key.id", "_key.region"}
    of_value = inside if transform is not None else {*inside, "_key", "city", "at"}
    assert asked == {"value": of_value, "key": {"id", "region"}}
