"""Where a value in Avro ends: fastavro alone takes some bytes that are none."""

from __future__ import annotations

from typing import NoReturn

from connector.audit.avro_schema import Node, Schema, kind_of


def end_of(schema: Schema, node: Node, content: bytes, at: int) -> int:
    """Where the value that begins at ``at`` ends. Raises ValueError or IndexError for what fastavro takes although it
    is no value: the index of a branch that isn't there, or a number of too many bytes."""
    node = schema.at(node)
    if isinstance(node, list):
        branch, at = _number(content, at)
        return end_of(schema, node[branch], content, at) if 0 <= branch < len(node) else _none(branch)
    kind = kind_of(node)
    if kind == "record":
        for each in node["fields"]:
            at = end_of(schema, each["type"], content, at)
        return at
    if kind in ("array", "map"):
        while True:
            count, at = _number(content, at)
            if count == 0:
                return at
            if count < 0:
                _, at = _number(content, at)
            for _ in range(abs(count)):
                at = end_of(schema, "string", content, at) if kind == "map" else at
                at = end_of(schema, node["values" if kind == "map" else "items"], content, at)
    if kind in ("int", "long", "enum"):
        number, at = _number(content, at, most=10 if kind == "long" else 5)
        return at if kind != "enum" or 0 <= number < len(node["symbols"]) else _none(number)
    length = {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": 0}.get(kind)
    if length is None:
        length, at = _number(content, at)
    end = at + (node["size"] if kind == "fixed" else length)
    return end if at <= end <= len(content) else _none(end)


def _number(content: bytes, at: int, most: int = 10) -> tuple[int, int]:
    """The number at ``at``, and where it ends."""
    found = 0
    for place in range(most):
        byte = content[at + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at + place + 1
    raise ValueError


def _none(found: int) -> NoReturn:
    raise ValueError(found)
