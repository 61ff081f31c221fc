"""Avro schemas as values: parsed from JSON, with references resolved, and whether one can be read as another.

Spark resolves a writer's schema to a reader's schema record by record. This module checks what Spark can't tell, on the
driver and before the first record: that two schemas never fit, or that they fit by their bytes only. For example Avro
would read an amount with two decimals as one with four, because its resolution ignores logical types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sinks.errors import UnusableSchema

Node: TypeAlias = Any
"""A schema as its JSON is parsed: a name, the list of a union, or an object."""

_PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
# Other attributes don't affect the encoding, with one exception: with "avro.java.string" Avro would make Java strings,
# in which bytes that aren't UTF-8 are silently replaced.
_KEPT = ("symbols", "size", "aliases", "default", "logicalType", "precision", "scale")
_UNITS = ("millis", "micros", "nanos")
_MEANINGFUL = {
    "decimal",
    "date",
    *(f"{kind}-{unit}" for kind in ("time", "timestamp", "local-timestamp") for unit in _UNITS),
}
_KEPT_OF_A_FIELD = ("name", "default", "aliases", "order")


@dataclass(frozen=True)
class AvroSchema:
    """A parsed Avro schema."""

    root: Node
    """With full names, every reference resolved where it appears first, and nothing that doesn't affect the data."""
    names: Mapping[str, Node]
    """Full name -> definition, for each named type."""
    recursive: str | None
    """The full name of a type that contains itself. None if there is none."""

    @property
    def text(self) -> str:
        """The schema as JSON text."""
        return json.dumps(self.root)

    def definition(self, node: Node) -> Node:
        """The definition of a node, which may be a name."""
        return self.names.get(node, node) if isinstance(node, str) else node


def parse(text: str, references: Iterable[AvroSchema] = ()) -> AvroSchema:
    """Parse a schema's JSON text. Raises `UnusableSchema` if it is malformed, or names an undefined type."""
    try:
        node = json.loads(text)
    except RecursionError:
        raise UnusableSchema("An Avro schema is nested too deeply to be read.") from None
    except ValueError:
        # A primitive type may be given as its bare name.
        node = text.strip()
    referenced = {name: node for schema in references for name, node in schema.names.items()}
    reading = _Reading(referenced)
    root = reading.read(node, "")
    return AvroSchema(root, reading.names, reading.recursive)


class _Reading:
    def __init__(self, referenced: Mapping[str, Node]) -> None:
        self.names: dict[str, Node] = {}
        self.recursive: str | None = None
        self._referenced = referenced
        self._open: list[str] = []

    def read(self, node: Node, namespace: str) -> Node:
        if isinstance(node, str):
            return node if node in _PRIMITIVE else self._named(node, namespace)
        if isinstance(node, list):
            return [self.read(branch, namespace) for branch in node]
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            if kind is None:
                raise UnusableSchema(f"An Avro schema is malformed: {_short(node)} isn't a type.")
            return self.read(kind, namespace)
        kept = {name: node[name] for name in _KEPT if name in node}
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(node, kind, kept, namespace)
        if kind in ("array", "map"):
            items = "items" if kind == "array" else "values"
            return {"type": kind, items: self.read(_part(node, items), namespace)}
        if kind in _PRIMITIVE:
            return {"type": kind, **kept}
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Node:
        in_full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (in_full, name):
            if candidate in self._open:
                self.recursive = candidate
            if candidate in self.names:
                return candidate
            if candidate in self._referenced:
                return self.read(self._referenced[candidate], "")
        raise UnusableSchema(f"An Avro schema is malformed: it names the type {name!r}, which nothing defines.")

    def _defined(self, node: Node, kind: str, kept: dict[str, Node], namespace: str) -> Node:
        name = str(_part(node, "name"))
        if "." in name:
            namespace, name = name.rsplit(".", 1)
        else:
            namespace = node.get("namespace", namespace) or ""
        in_full = f"{namespace}.{name}" if namespace else name
        if in_full in self.names:
            raise UnusableSchema(f"An Avro schema is malformed: it defines the type {in_full!r} twice.")
        made: Node = {"type": kind, "name": name, "namespace": namespace, **kept}
        self.names[in_full] = made
        if kind in ("record", "error"):
            self._open.append(in_full)
            made["fields"] = [
                {**{key: field[key] for key in _KEPT_OF_A_FIELD if key in field},
                 "type": self.read(_part(field, "type"), namespace)}
                for field in _part(node, "fields")
            ]  # fmt: skip
            self._open.pop()
        return made


def _part(node: Node, name: str) -> Node:
    if not isinstance(node, dict) or name not in node:
        raise UnusableSchema(f"An Avro schema is malformed: {_short(node)} has no {name!r}.")
    return node[name]


def _short(node: Node) -> str:
    text = json.dumps(node)
    return text if len(text) <= 80 else text[:77] + "..."


def misfit(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """Why values with the writer's schema can't be read with the reader's. None if they can.

    If only some can, as those of one branch of a union, the others are found record by record.
    """
    try:
        return _Resolution(writer, reader).misfit(writer.root, reader.root, "the value", frozenset())
    except _Clash as clash:
        return str(clash)


class _Clash(Exception):
    """Raised where Avro would read a value wrongly."""


class _Resolution:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader

    def misfit(self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]]) -> str | None:
        written, read = self._writer.definition(written), self._reader.definition(read)
        if isinstance(written, list):
            found = [self.misfit(branch, read, where, above) for branch in written]
            return None if not found or None in found else found[0]
        if isinstance(read, list):
            return self._one_of(written, read, where, above)
        kind, wanted = _kind(written), _kind(read)
        if kind != wanted and wanted not in PROMOTED.get(kind, ()):
            return f"{where} is {kind}, which can't be read as {wanted}"
        _same_meaning(written, read, where)
        if kind in ("enum", "fixed"):
            if full_name(written) not in (full_name(read), *_aliases(read)):
                return f"{where} is the {kind} {full_name(written)}, which can't be read as {full_name(read)}"
            if written.get("size") != read.get("size"):
                return f"{where} has {written['size']} bytes, which can't be read as {read['size']}"
        if kind == "array":
            return self.misfit(written["items"], read["items"], f"an item of {where}", above)
        if kind == "map":
            return self.misfit(written["values"], read["values"], f"a value of {where}", above)
        pair = (full_name(written), full_name(read))
        if kind == "record" and pair not in above:
            return self._record(written, read, where, above | {pair})
        return None

    def _one_of(self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]]) -> str | None:
        """Choose a branch as Avro does: one of the same type, by name if it has one, else one it can be promoted to."""
        branches = [self._reader.definition(branch) for branch in read]
        same = [branch for branch in branches if _kind(branch) == _kind(written)]
        same.sort(key=lambda branch: full_name(branch) != full_name(written))
        others = [branch for branch in branches if branch not in same]
        found = None
        for branch in (*same, *others):
            problem = self.misfit(written, branch, where, above)
            if problem is None:
                return None
            found = found or problem
        return found or f"{where} is {_kind(written)}, and the reader's union is empty"

    def _record(self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]]) -> str | None:
        there = {field["name"]: field for field in written["fields"]}
        for field in read["fields"]:
            name = field["name"]
            path = name if where == "the value" else f"{where}.{name}"
            source = next((there[known] for known in (name, *_aliases(field)) if known in there), None)
            if source is None:
                if "default" not in field:
                    return f"{path} isn't in it, and has no default in the reader's schema"
                continue
            problem = self.misfit(source["type"], field["type"], path, above)
            if problem is not None:
                return problem
        return None


def _kind(node: Node) -> str:
    kind = str(node["type"] if isinstance(node, dict) else node)
    return "record" if kind == "error" else kind


def full_name(node: Node) -> str:
    """The full name of a named type."""
    if not isinstance(node, dict) or "name" not in node:
        return ""
    return f"{node['namespace']}.{node['name']}" if node.get("namespace") else str(node["name"])


def _aliases(node: Node) -> tuple[str, ...]:
    """The aliases: full names for a type, as they are for a field."""
    space = node.get("namespace") or ""
    return tuple(alias if "." in alias or not space else f"{space}.{alias}" for alias in node.get("aliases", ()))


def _same_meaning(written: Node, read: Node, where: str) -> None:
    of_writer, of_reader = (node.get("logicalType") if isinstance(node, dict) else None for node in (written, read))
    if not {of_writer, of_reader} <= _MEANINGFUL:
        return
    if of_writer == of_reader == "decimal":
        exact = written.get("scale", 0) == read.get("scale", 0) and written.get("precision", 0) <= read.get(
            "precision", 0
        )
    else:
        exact = of_writer == of_reader
    if not exact:
        raise _Clash(f"{where} is {_meaning(written)}, which Avro would misread as {_meaning(read)}")


def _meaning(node: Node) -> str:
    kind = str(node["logicalType"])
    return f"decimal({node.get('precision')},{node.get('scale', 0)})" if kind == "decimal" else kind
