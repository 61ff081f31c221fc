"""The requests that a schema registry answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from connector.decode.registry.wire_format import Wire

Part: TypeAlias = Literal["key", "value"]
Schema = TypeVar("Schema")
Schema_co = TypeVar("Schema_co", covariant=True)


@dataclass(frozen=True)
class Reference(Generic[Schema]):
    """A schema that another one refers to."""

    name: str
    """The name by which it does: in Protobuf the path of an import. Empty: the registry doesn't say it."""
    schema: Schema


@dataclass(frozen=True)
class Language(Generic[Schema]):
    """A language that schemas are written in."""

    kind: str
    """Its name in registries, as AVRO."""
    parse: Callable[[str, Sequence[Reference[Schema]], str], Schema]
    """Of a schema's text, of those that it refers to, and of words for messages: what the schema is of. Raises
    `UnusableSchema`."""
    follows_references: bool = True
    """Whether a schema needs those that it refers to. Else ``parse`` gets none."""


@dataclass(frozen=True)
class WriterSchema(Generic[Schema_co]):
    """A schema in a registry."""

    id: str
    """The ID as the registry writes it: a number in Confluent's, a UUID in Glue's."""
    schema: Schema_co


class Registry(Protocol[Schema_co]):
    """A schema registry. Answers are cached for the run, because a schema never changes under its ID.

    Every method may raise `RegistryUnreachable` after all retries, `UnusableSchema` if an answer or a schema is broken,
    and `ConfigurationError` if the registry refuses access.
    """

    @property
    def wire(self) -> Wire:
        """How records name their schema."""
        ...

    def schema(self, schema_id: str) -> WriterSchema[Schema_co]:
        """The schema with this ID. Raises `UnknownSchema` if the registry has none."""
        ...

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema[Schema_co]]:
        """All usable versions that the topic's subject has now, by ID, oldest first. Empty if the subject doesn't
        exist."""
        ...

    def former(self, topic: str, part: Part) -> Sequence[WriterSchema[Schema_co]]:
        """All usable versions that the topic's subject has or had, as far as the registry still shows those that were
        deleted. Where the options name another subject, those of the topic's own as well."""
        ...

    def latest(self, topic: str, part: Part) -> WriterSchema[Schema_co]:
        """The newest version of the subject at the first request. Raises `UnknownSchema` if there is none."""
        ...
