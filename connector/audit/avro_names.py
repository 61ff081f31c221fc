"""Whether a record in Avro is of another type than those of its topic's subject, as the auditor tells.

By the names of records without their namespaces, because the bytes and the fields don't tell a refund from an order. A
name that any version of the subject has or had, or has as an alias, is of the same type under another name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from connector.audit.avro_schema import Node, Schema, kind_of
from connector.audit.registries import Schemas, Texts
from sinks.errors import ConfigurationError, UnusableSchema


def of_other_types(
    writers: Mapping[bytes, Texts], reader: Schema, versions: Iterable[Schema], schemas: Schemas, topics: Sequence[str]
) -> Collection[bytes]:
    """The headers of ``writers`` whose records aren't of the topics' types. ``versions``: those that are known.

    Asks for more only if there are such. Raises RegistryUnreachable."""
    if not _records(reader):
        return ()
    known = {name for each in (reader, *versions) for name in _names(each)}
    others = {header: sent for header, texts in writers.items() if not known & (sent := _sent(texts)) and sent}
    if not others:
        return ()
    for topic in topics:
        with suppress(ConfigurationError):  # it may refuse to show what the file doesn't name
            known |= {name for texts in schemas.former(topic) for name in _of_version(texts)}
    return [header for header, sent in others.items() if not known & sent]


def _sent(texts: Texts) -> set[str]:
    """The names of a writer's records. Empty: it has none, or can't be used."""
    with suppress(UnusableSchema):
        return {_last(each["name"]) for each in _records(Schema.of(texts, defaults=False))}
    return set()


def _of_version(texts: Texts) -> set[str]:
    with suppress(UnusableSchema):
        return _names(Schema.of(texts, defaults=False))
    return set()


def _names(schema: Schema) -> set[str]:
    """The names of the records that a value may be, and those that they had before."""
    return {_last(name) for each in _records(schema) for name in (each["name"], *each.get("aliases", ()))}


def _records(schema: Schema) -> list[Node]:
    nodes = schema.root if isinstance(schema.root, list) else [schema.root]
    return [each for each in map(schema.at, nodes) if kind_of(each) == "record"]


def _last(name: str) -> str:
    return name.rpartition(".")[2]
