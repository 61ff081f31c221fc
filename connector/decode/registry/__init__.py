"""Schema registries: which schema a record was written with. Asked on the driver alone, once for each id in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from connector.config.registry import GlueRegistry, RegistryOptions
from connector.decode.schema import AvroSchema
from connector.decode.wire import Wire

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


def opened(options: RegistryOptions) -> Registry:
    """Nothing is asked yet."""
    from connector.decode.registry.confluent import Confluent
    from connector.decode.registry.glue import Glue

    return Glue(options.glue) if isinstance(options, GlueRegistry) else Confluent(options)
