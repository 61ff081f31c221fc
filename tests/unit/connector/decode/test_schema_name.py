"""The column ``_schema``: which names it knows, and that no field may have its name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from connector.decode.avro import AvroOfRegistry
from connector.decode.avro_schema import AvroSchema, parse
from connector.decode.schema_name import SchemaNames, WithSchemaName
from sinks.errors import ConfigurationError


@dataclass
class Own:
    """Reads the records of one value."""

    writers: dict[str, AvroSchema] = field(default_factory=dict)
    type: StructType = field(default_factory=lambda: StructType().add("id", LongType()))


def avro(**own: Any) -> AvroOfRegistry:
    return cast(AvroOfRegistry, Own(**own))


def schema(name: str) -> AvroSchema:
    fields = [{"name": "id", "type": "long"}]
    return parse(json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields}))


def test_what_the_tables_of_a_route_know_is_not_asked_for_again() -> None:
    order, refund = schema("Order"), schema("Refund")
    known = [avro(writers={"1": order, "3": order}), avro(writers={"2": refund, "1": order}), avro()]
    names = SchemaNames(cast(Any, None), known)
    assert names._names == {"1": "shop.Order", "3": "shop.Order", "2": "shop.Refund"}
    assert sorted(names._schemas.taken) == ["1", "2", "3"]
    assert cast(StructType, names.type).names == ["_schema"]


def test_a_field_of_this_name_is_refused() -> None:
    assert cast(StructType, WithSchemaName(avro()).type).names == ["id", "_schema"]
    with pytest.raises(ConfigurationError, match="the records have a field of this name"):
        WithSchemaName(avro(type=StructType().add("_Schema", StringType())))
