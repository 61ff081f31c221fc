"""Avro by an encoder that isn't Spark's: schemas, values, and values as a producer with a registry sends them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro


def record(*fields: Mapping[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def encoded(schema: object, value: object) -> bytes:
    buffer = io.BytesIO()
    # It changes the schema that it parses.
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return buffer.getvalue()


def framed(schema_id: int, schema: object, value: object) -> bytes:
    """As in Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + encoded(schema, value)
