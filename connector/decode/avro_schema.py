"""Avro schemas as values: parsed from JSON, with references resolved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from connector.decode.avro_units import named, without_names
from sinks.errors import UnusableSchema

Node: TypeAlias = Any
"""A schema as its JSON is parsed: a name, the list of a union, or an object."""

_PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAME = re.compile(r"[^\W\d]\w*")
_DEEPEST = 100
"""Levels of types within types. Python, Avro and Spark all need stack frames for each."""
_DEEPEST_JSON = 500
"""Levels of JSON: a level of types takes up to five, and a default value may have any number."""
_HINT = "Correct the schema: the Avro specification says what it may hold. In a registry, register it as a new version."
# Other attributes don't affect the encoding, with one exception: with "avro.java.string" Avro would make Java strings,
# in which bytes that aren't UTF-8 are silently replaced. Connect's names of units say what a number counts.
_LOGICAL = ("logicalType", "precision", "scale")
_KEPT_OF_A_NAMED_TYPE = ("symbols", "size", "aliases", "default", *_LOGICAL)
_KEPT_OF_A_FIELD = ("name", "default", "aliases")


@dataclass(frozen=True)
class AvroSchema:
    """A parsed Avro schema."""

    root: Node
    """With full names, every reference resolved where it appears first, and nothing that doesn't affect the data."""
    names: Mapping[str, Node]
    """Full name -> definition, for each named type."""
    recursive: str | None
    """The full name of a type that contains itself. None if there is none."""
    docs: Mapping[str, str]
    """Field of the root -> its ``doc``."""

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def text(self) -> str:
        """The schema as JSON text. Schemas that differ in nothing but Connect's names of units have the same."""
        return json.dumps(without_names(self.root))

    def definition(self, node: Node) -> Node:
        """The definition of a node, which may be a name."""
        return self.names.get(node, node) if isinstance(node, str) else node


def parse(text: str, references: Iterable[AvroSchema] = (), *, of: str = "The Avro schema") -> AvroSchema:
    """Parse a schema's JSON text. ``of`` names the schema in messages.

    Raises `UnusableSchema` if it isn't valid Avro, or nested too deeply. Avro's parser in Spark reads whatever passes:
    there a fault would be an error of a task, which nobody understands.
    """
    referenced = {name: node for schema in references for name, node in schema.names.items()}
    reading = _Reading(referenced, of)
    loaded = _loaded(text, of)
    root = reading.read(loaded, "", 0)
    if _height(root, {}) > _DEEPEST:
        raise _too_deep(of)
    return AvroSchema(root, reading.names, reading.recursive, _docs(loaded))


def _docs(root: Node) -> Mapping[str, str]:
    """The docs of a valid schema's fields. Only a record's ``fields`` are known to be some."""
    fields = root["fields"] if isinstance(root, dict) and root.get("type") in ("record", "error") else ()
    return {each["name"]: each["doc"] for each in fields if isinstance(each.get("doc"), str) and each["doc"]}


def _loaded(text: str, of: str) -> Node:
    try:
        node = json.loads(text, parse_constant=_no_json)
    except RecursionError:
        raise _too_deep(of) from None
    except ValueError as error:
        if not text.strip() or text.lstrip()[0] in '{["':
            raise _malformed(of, f"{_short(text)} isn't JSON ({error})") from None
        # A primitive type may be given as its bare name.
        return text.strip()
    level = [node]
    for _ in range(_DEEPEST_JSON):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return node
    raise _too_deep(of)


def _inside(node: Node) -> Iterable[Node]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} isn't a number of JSON")


def _malformed(of: str, why: str) -> UnusableSchema:
    return UnusableSchema(f"{of} is malformed: {why}.", hint=_HINT)


def _too_deep(of: str) -> UnusableSchema:
    return UnusableSchema(
        f"{of} is nested too deeply: more than {_DEEPEST} levels of types, or {_DEEPEST_JSON} of JSON.",
        hint="Split what is nested so deeply into records of its own topic, or send it as a string.",
    )


class _Reading:
    def __init__(self, referenced: Mapping[str, Node], of: str) -> None:
        self.names: dict[str, Node] = {}
        self.recursive: str | None = None
        self._referenced = referenced
        self._of = of
        self._open: list[str] = []

    def read(self, node: Node, namespace: str, level: int) -> Node:
        if level > _DEEPEST:
            raise _too_deep(self._of)
        if isinstance(node, str):
            return node if node in _PRIMITIVE else self._named(node, namespace, level)
        if isinstance(node, list):
            return self._union([self.read(branch, namespace, level + 1) for branch in node], node)
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            if not isinstance(kind, dict | list):
                raise self._malformed(f"{_short(node)} isn't a type")
            return self.read(kind, namespace, level + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(node, kind, namespace, level)
        if kind in ("array", "map"):
            items = "items" if kind == "array" else "values"
            return {"type": kind, items: self.read(self._part(node, items), namespace, level + 1)}
        if kind in _PRIMITIVE:
            return {"type": kind, **_kept(node, _LOGICAL), **named(node, kind)}
        return self._named(kind, namespace, level)

    def _malformed(self, why: str) -> UnusableSchema:
        return _malformed(self._of, why)

    def _union(self, branches: list[Node], node: Node) -> Node:
        kinds = [self._kind_in_union(branch) for branch in branches]
        if not kinds or None in kinds or len(set(kinds)) < len(kinds):
            raise self._malformed(
                f"the union {_short(node)} has to hold at least one type, each type once, and no other union"
            )
        return branches

    def _kind_in_union(self, branch: Node) -> str | None:
        """What a union may have once. None: another union, which it may not have."""
        if isinstance(branch, list):
            return None
        return full_name(branch) or kind_of(branch)

    def _named(self, name: str, namespace: str, level: int) -> Node:
        in_full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (in_full, name):
            if candidate in self._open:
                self.recursive = candidate
            if candidate in self.names:
                return candidate
            if candidate in self._referenced:
                return self.read(self._referenced[candidate], "", level)
        raise self._malformed(f"it names the type {_short(name)}, which nothing defines")

    def _defined(self, node: Node, kind: str, namespace: str, level: int) -> Node:
        name, space = self._text(node, "name"), node.get("namespace")
        if space is not None and not isinstance(space, str):
            raise self._malformed(f"the namespace of {_short(name)} is {_short(space)}, which isn't text")
        if "." in name:
            namespace, name = name.rsplit(".", 1)
        elif space is not None:
            namespace = space
        in_full = f"{namespace}.{name}" if namespace else name
        if not _NAME.fullmatch(name) or in_full in _PRIMITIVE:
            raise self._malformed(f"{_short(in_full)} can't be the name of a type")
        if in_full in self.names:
            raise self._malformed(f"it defines the type {_short(in_full)} twice")
        self._check_aliases(node, in_full)
        made: Node = {"type": kind, "name": name, "namespace": namespace, **_kept(node, _KEPT_OF_A_NAMED_TYPE)}
        self.names[in_full] = made
        if kind == "enum":
            self._check_enum(node, in_full)
        elif kind == "fixed":
            size = self._part(node, "size")
            if not _is_count(size):
                raise self._malformed(f"the size of {_short(in_full)} is {_short(size)}, which isn't a number of bytes")
        else:
            self._open.append(in_full)
            made["fields"] = self._fields(node, in_full, namespace, level)
            self._open.pop()
        return made

    def _fields(self, node: Node, of: str, namespace: str, level: int) -> list[Node]:
        fields = self._part(node, "fields")
        if not isinstance(fields, list):
            raise self._malformed(f"the fields of {_short(of)} are {_short(fields)}, which isn't a list")
        made, names = [], set()
        for field in fields:
            name = self._text(field, "name")
            if not _NAME.fullmatch(name):
                raise self._malformed(f"{_short(name)} can't be the name of a field of {_short(of)}")
            if name in names:
                raise self._malformed(f"{_short(of)} has the field {_short(name)} twice")
            names.add(name)
            self._check_aliases(field, name)
            kept = {key: field[key] for key in _KEPT_OF_A_FIELD if key in field}
            made.append({**kept, "type": self.read(self._part(field, "type"), namespace, level + 1)})
        return made

    def _check_enum(self, node: Node, of: str) -> None:
        symbols = self._part(node, "symbols")
        if not _are_texts(symbols) or not all(map(_NAME.fullmatch, symbols)) or len(set(symbols)) < len(symbols):
            raise self._malformed(
                f"the symbols of {_short(of)} are {_short(symbols)}, which isn't a list of names, each once"
            )
        default = node.get("default")
        if isinstance(default, str) and default not in symbols:
            raise self._malformed(f"the default of {_short(of)} is {_short(default)}, which isn't a symbol of it")

    def _check_aliases(self, node: Node, of: str) -> None:
        aliases = node.get("aliases", [])
        if not _are_texts(aliases) or not all(_NAME.fullmatch(alias.rsplit(".", 1)[-1]) for alias in aliases):
            raise self._malformed(f"the aliases of {_short(of)} are {_short(aliases)}, which isn't a list of names")

    def _text(self, node: Node, name: str) -> str:
        text = self._part(node, name)
        if not isinstance(text, str):
            raise self._malformed(f"the {name} of {_short(node)} isn't text")
        return text

    def _part(self, node: Node, name: str) -> Node:
        if not isinstance(node, dict) or name not in node:
            raise self._malformed(f"{_short(node)} has no {name!r}")
        return node[name]


def _kept(node: Node, names: Iterable[str]) -> dict[str, Node]:
    """The attributes that affect the data. An invalid logical type has no effect, as the specification says."""
    logical = node.get("logicalType", "")
    valid = isinstance(logical, str) and (logical != "decimal" or _is_decimal(node))
    return {name: node[name] for name in names if name in node and (valid or name not in _LOGICAL)}


def _is_decimal(node: Node) -> bool:
    precision, scale = node.get("precision"), node.get("scale", 0)
    return _is_count(precision) and _is_count(scale) and bool(0 < precision >= scale)


def _is_count(value: Node) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _are_texts(value: Node) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _height(node: Node, heights: dict[str, int]) -> int:
    """The levels of types in a node, with every named type filled in. ``heights``: those of the types so far.

    Each type is defined where it appears first, so its height is known wherever else it is named. Within itself it
    counts nothing.
    """
    if isinstance(node, str):
        return heights.get(node, 0)
    if isinstance(node, list):
        return 1 + max(_height(branch, heights) for branch in node)
    inner = [field["type"] for field in node.get("fields", ())] + [node[of] for of in ("items", "values") if of in node]
    height = 1 + max((_height(each, heights) for each in inner), default=0)
    if "name" in node:
        heights[full_name(node)] = height
    return height


def _short(node: Node) -> str:
    text = json.dumps(node)
    return text if len(text) <= 80 else text[:77] + "..."


def kind_of(node: Node) -> str:
    """The kind of a type: that of an error is record."""
    kind = str(node["type"] if isinstance(node, dict) else node)
    return "record" if kind == "error" else kind


def full_name(node: Node) -> str:
    """The full name of a named type."""
    if not isinstance(node, dict) or "name" not in node:
        return ""
    return f"{node['namespace']}.{node['name']}" if node.get("namespace") else str(node["name"])
