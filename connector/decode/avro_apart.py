"""Keeps a record of a type that the reader's schema lacks from being read as another type.

Of a writer's union some types may be readable and others not. Avro finds that out record by record, but by rules of its
own: it takes a record for any other with fields that fit. So it gets a writer's schema in which no branch fits unless
`avro_resolution` says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from connector.decode.avro_resolution import Resolution
from connector.decode.avro_schema import AvroSchema, Node, full_name, kind_of, parse
from connector.decode.avro_unions import aliases
from sinks.errors import UnusableSchema


@lru_cache(maxsize=256)  # each epoch asks again, and a schema of a hundred fields takes ten milliseconds
def told_apart(writer: AvroSchema, reader: AvroSchema) -> tuple[AvroSchema, Sequence[str]]:
    """The writer's schema, with a type that nothing is read as in place of each branch of a union that doesn't fit; and
    the names of the records among these. The writer's schema isn't recursive.

    Raises UnusableSchema if one type would have to be two: where the reader's schema has it as two types.
    """
    made = _Apart(writer, reader)
    root = made.of(writer.root, reader.root)
    if not made.unread:
        return writer, []
    return parse(json.dumps(made.defined_once(root, set()))), made.records


class _Apart:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        self._resolution = Resolution(writer, reader)
        self._forms: dict[str, Node] = {}
        """Full name -> what the type has become, with names in place of the named types in it."""
        self.unread, self.records = False, list[str]()

    def of(self, written: Node, read: Node | None, beside: Sequence[Node] = ()) -> Node:
        """The writer's type, in which every named type is its name. ``read``: None for what Avro skips, because no type
        of the reader's is made of it."""
        written = self._writer.definition(written)
        if isinstance(written, list):
            union = [self._writer.definition(each) for each in written]
            return [self._branch(number, each, read, union) for number, each in enumerate(union)]
        if not isinstance(written, dict):
            return written
        as_read = self._read_as(written, read, beside)
        made = dict(written)
        for part in ("items", "values"):
            if part in written:
                made[part] = self.of(written[part], as_read.get(part))
        if "fields" in written:
            types = _by_source(written, as_read)
            kinds = (self.of(each["type"], types.get(each["name"])) for each in written["fields"])
            made["fields"] = [{**each, "type": kind} for each, kind in zip(written["fields"], kinds, strict=True)]
        return self._named(made)

    def _branch(self, number: int, written: Node, read: Node | None, union: Sequence[Node]) -> Node:
        has_parts = isinstance(written, dict) and read is not None
        if not has_parts or self._resolution.misfit(written, read, "the value", union) is None:
            return self.of(written, read, union)
        self.unread = True
        if kind_of(written) == "record" and full_name(written) not in self.records:
            self.records.append(full_name(written))
        # Of no bytes: Avro ends with an error before it reads any.
        return self._named({"type": "fixed", "name": f"lakelock_unread_{number}", "namespace": "", "size": 0})

    def _read_as(self, written: Node, read: Node | None, beside: Sequence[Node]) -> dict[str, Node]:
        """The definition in the reader's schema. Empty: there is none that fits, or it has no parts."""
        branches = [] if read is None else self._resolution.branches(written, beside, self._reader.definition(read))
        fits = (each for each in branches if self._resolution.misfit(written, each, "the value") is None)
        found = next(fits, None)
        return found if isinstance(found, dict) else {}

    def _named(self, made: Node) -> Node:
        name = full_name(made)
        if name and self._forms.setdefault(name, made) != made:
            raise UnusableSchema(
                f"The Avro schema has {name} in several places, of which each is read as another type, with a union in "
                "it of types that the reader's schema lacks.",
                hint="Give each place a type of its own name, or a schema_file with all types of the union.",
            )
        return name or made

    def defined_once(self, node: Node, defined: set[str]) -> Node:
        """The node, with each named type defined where it appears first."""
        if isinstance(node, list):
            return [self.defined_once(each, defined) for each in node]
        if isinstance(node, str):
            if node in defined or node not in self._forms:
                return node
            defined.add(node)
            node = self._forms[node]
        made = dict(node)
        for part in ("items", "values"):
            if part in node:
                made[part] = self.defined_once(node[part], defined)
        if "fields" in node:
            made["fields"] = [{**each, "type": self.defined_once(each["type"], defined)} for each in node["fields"]]
        return made


def _by_source(written: Node, read: Node) -> dict[str, Node]:
    """Name of the writer's field -> the type that the reader's has."""
    there, found = {each["name"] for each in written["fields"]}, {}
    for each in read.get("fields", ()):
        source = next((name for name in (each["name"], *aliases(each)) if name in there), None)
        if source is not None:
            found[source] = each["type"]
    return found
