"""Schema registries, which have the schema of each record. Only the driver asks, once per ID in a run."""

from __future__ import annotations

from connector.config.registry import ConfluentRegistry, GlueRegistry, RegistryOptions
from connector.decode.avro_schema import AvroSchema, parse
from connector.decode.json_schema import JsonSchema
from connector.decode.json_schema import parse as json_schema
from connector.decode.protobuf_schema import ProtobufSchema
from connector.decode.protobuf_schema import parse as protobuf_schema
from connector.decode.registry.registry import Language, Registry

AVRO = Language(
    "AVRO",
    lambda text, references, of: parse(text, [each.schema for each in references], of=f"The Avro schema in {of}"),
)

JSON = Language("JSON", json_schema, follows_references=False)

JSON_WITH_REFERENCES = Language("JSON", json_schema)
"""To validate with. What a schema refers to in others gives no columns."""

PROTOBUF = Language("PROTOBUF", protobuf_schema)


def opened_json(options: ConfluentRegistry, *, references: bool = False) -> Registry[JsonSchema]:
    """A registry for these options, with JSON Schemas. ``references``: with those that they refer to, too. It sends no
    request yet."""
    from connector.decode.registry.confluent import Confluent

    return Confluent(options, JSON_WITH_REFERENCES if references else JSON)


def opened_protobuf(options: ConfluentRegistry) -> Registry[ProtobufSchema]:
    """A registry for these options, with .proto sources. It sends no request yet."""
    from connector.decode.registry.confluent import Confluent

    return Confluent(options, PROTOBUF)


def opened(options: RegistryOptions) -> Registry[AvroSchema]:
    """A registry for these options, with schemas in Avro. It sends no request yet."""
    from connector.decode.registry.confluent import Confluent
    from connector.decode.registry.glue import Glue

    return Glue(options.glue) if isinstance(options, GlueRegistry) else Confluent(options, AVRO)
