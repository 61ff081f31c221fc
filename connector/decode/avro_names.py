"""Whether a schema is of another type of records than those of a subject.

Avro doesn't compare the names of two records: it would read a refund as an order where the fields fit. The subject says
which names its records have had. A version of it may have been renamed, so every version's name counts, and its
aliases; namespaces don't, because they change with a producer's packages, and in Debezium's events with the topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from connector.decode.avro_schema import AvroSchema, Node, full_name, kind_of
from connector.decode.avro_unions import aliases
from connector.decode.registry.registry import Part, Registry
from sinks.errors import ConfigurationError, UnusableSchema


class SubjectNames:
    """The names of the records in the topics' subjects. The registry is asked when a name is met that isn't known."""

    def __init__(self, registry: Registry[AvroSchema], topics: Sequence[str], part: Part, latest: AvroSchema) -> None:
        self._registry, self._topics, self._part = registry, topics, part
        self._latest = [full_name(each) for each in _records(latest)]
        self._known: set[str] = set()
        self._add([latest])

    def other_type(self, writer: AvroSchema) -> str | None:
        """Why records with this schema are of another type, or None. Raises RegistryUnreachable."""
        sent = _records(writer)
        if not sent or not self._latest or self._has(sent):
            return None
        for topic in self._topics:
            self._add(each.schema for each in self._registry.known(topic, self._part).values())
        # A registry may refuse to show what the file doesn't name.
        for topic in () if self._has(sent) else self._topics:
            with suppress(ConfigurationError, UnusableSchema):
                self._add(each.schema for each in self._registry.former(topic, self._part))
        if self._has(sent):
            return None
        names, ours = " or ".join(map(full_name, sent)), " or ".join(self._latest)
        return (
            f"is of the record {names}, and those of its subject are {ours}. Of another type: give each a table "
            f"(route, by: _schema). Of the same: add the name to the schema's aliases, or give {self._part}.schema_file"
        )

    def _has(self, sent: Sequence[Node]) -> bool:
        return any(each["name"] in self._known for each in sent)

    def _add(self, schemas: Iterator[AvroSchema] | Sequence[AvroSchema]) -> None:
        for record in (record for schema in schemas for record in _records(schema)):
            self._known |= {record["name"], *(alias.rpartition(".")[2] for alias in aliases(record))}


def _records(schema: AvroSchema) -> list[Node]:
    """The record that a value is, or those that it may be."""
    nodes = schema.root if isinstance(schema.root, list) else [schema.root]
    return [each for each in map(schema.definition, nodes) if kind_of(each) == "record"]
