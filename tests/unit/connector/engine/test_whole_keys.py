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
            "value": {"format": "avro", "registry": {"url": "http://there"}}, "on_new_column": "ignore",
            "key": {"format": "avro", "registry": {"url": "http://there"}}, "sinks": [{**sink, "path": "/tmp/t"}],
        }
    )  # fmt: skip
    nothing: Any = None
    _formats(config, nothing, {}, nothing, ())
    assert asked == {"value": "ignore", "key": "ignore" if ignores else None}
