"""What a schema registry can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from connector.decode.avro_schema import AvroSchema
from connector.decode.registry.wire_format import Wire

Part: TypeAlias = Literal["key", "value"]


@dataclass(frozen=True)
class WriterSchema:
    id: str
    """As the registry writes it: a number of Confluent's, a UUID of Glue's."""
    schema: AvroSchema


class Registry(Protocol):
    """Answers are kept for the run: a schema never changes under its id.

    Every method may raise `RegistryUnreachable`, after all retries, `UnusableSchema`, and `ConfigurationError` where
    the registry refuses us.
    """

    @property
    def wire(self) -> Wire: ...

    def schema(self, schema_id: str) -> WriterSchema:
        """Raises `UnknownSchema` where the registry has none of this id."""
        ...

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema]:
        """All versions of the topic's subject that can be used, by id; empty where there is no such subject."""
        ...

    def latest(self, topic: str, part: Part) -> WriterSchema:
        """The subject's newest version when it is first asked for. Raises `UnknownSchema` where there is none."""
        ...
