"""The requests that a schema registry answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from connector.decode.avro_schema import AvroSchema
from connector.decode.registry.wire_format import Wire

Part: TypeAlias = Literal["key", "value"]


@dataclass(frozen=True)
class WriterSchema:
    """A schema in a registry."""

    id: str
    """The ID as the registry writes it: a number in Confluent's, a UUID in Glue's."""
    schema: AvroSchema


class Registry(Protocol):
    """A schema registry. Answers are cached for the run, because a schema never changes under its ID.

    Every method may raise `RegistryUnreachable` after all retries, `UnusableSchema` if an answer or a schema is broken,
    and `ConfigurationError` if the registry refuses access.
    """

    @property
    def wire(self) -> Wire:
        """How records name their schema."""
        ...

    def schema(self, schema_id: str) -> WriterSchema:
        """The schema with this ID. Raises `UnknownSchema` if the registry has none."""
        ...

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema]:
        """All usable versions that the topic's subject has now, by ID. Empty if the subject doesn't exist."""
        ...

    def latest(self, topic: str, part: Part) -> WriterSchema:
        """The newest version of the subject at the first request. Raises `UnknownSchema` if there is none."""
        ...
