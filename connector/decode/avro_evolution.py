"""Changes of Avro schemas: the new fields of a newer schema, and one schema that has room for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from connector.decode.avro_resolution import PROMOTED, ROUNDED
from connector.decode.avro_schema import AvroSchema, Node, full_name, kind_of, parse
from connector.decode.avro_unions import aliases, in_union, type_of, values

_DIGITS_OF_64_BITS, _MOST_DIGITS = 18, 38
"""Of decimals in Spark: up to the first it stores them as 64 bits."""
_NUMBERS = frozenset(("int", "long", "float", "double"))


def new_fields(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """The paths of the writer's fields that the reader's schema lacks and would ignore."""
    return list(dict.fromkeys(_new(reader, reader.root, writer, writer.root, "", frozenset())))


def grown(reader: AvroSchema, writer: AvroSchema, only: Collection[str] | None = None) -> AvroSchema:
    """The reader's schema, extended by the writer's new fields and wider numbers. A field that may be missing is null.

    ``only``: the paths of the fields that are added or widened. None: all. Raises UnusableSchema if no schema has room
    for both.
    """
    schema = parse(json.dumps(_once(_grown(reader, reader.root, writer, writer.root, only, ""), set())))
    return replace(schema, docs={**writer.docs, **reader.docs})


def unrounded(reader: AvroSchema, writer: AvroSchema) -> AvroSchema:
    """The reader's schema, with the writer's whole number wherever Avro would make a FLOAT or a DOUBLE of one.

    In a union of several types a number stays as it is, and `misfit` refuses it.
    """
    root = _unrounded(reader.root, writer, writer.root)
    return reader if root == reader.root else parse(json.dumps(_once(root, set())))


def checked_decimals(schema: AvroSchema) -> AvroSchema:
    """The schema, with a higher precision for each decimal of which Spark would keep only the low 64 bits.

    Up to 18 digits it keeps those, whatever the bytes hold: of 2^64 + 5 it makes 5. Of any other it checks the digits.
    """

    def checked(node: Node) -> Node:
        kind, size = node["type"], node.get("size", 0)
        is_decimal = node.get("logicalType") == "decimal" and kind in ("bytes", "fixed")
        if not is_decimal or node["precision"] > _DIGITS_OF_64_BITS or (kind == "fixed" and size <= 8):
            return node
        # Avro takes no more digits for a fixed than its bytes can hold.
        most = _MOST_DIGITS if kind == "bytes" else min(_MOST_DIGITS, len(str(2 ** (8 * size - 1))) - 1)
        return {**node, "precision": most}

    root = _changed(schema.root, checked)
    return schema if root == schema.root else parse(json.dumps(root))


def with_symbols(reader: AvroSchema, writer: AvroSchema) -> AvroSchema:
    """The reader's schema, whose enums have the writer's symbols, too.

    A column holds any of them. Avro would write the enum's default in place of one that the newest schema has dropped.
    """
    sent = {name: node["symbols"] for name, node in writer.names.items() if kind_of(node) == "enum"}

    def complete(node: Node) -> Node:
        if kind_of(node) != "enum":
            return node
        written = [symbol for name in (full_name(node), *aliases(node)) for symbol in sent.get(name, ())]
        return {**node, "symbols": list(dict.fromkeys((*node["symbols"], *written)))}

    root = _changed(reader.root, complete)
    return reader if root == reader.root else replace(parse(json.dumps(root)), docs=reader.docs)


def moved(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """The paths of the unions in which a number, as of ``member1``, is another type's than in the writer's schema. New
    types at the end move none."""
    return list(dict.fromkeys(_moved(reader, reader.root, writer, writer.root, "", frozenset())))


def _moved(
    reader: AvroSchema, read: Node, writer: AvroSchema, written: Node, path: str, above: frozenset[str]
) -> Iterator[str]:
    ours, theirs = (
        [schema.definition(each) for each in values(schema.definition(node))]
        for schema, node in ((reader, read), (writer, written))
    )
    for number, each in enumerate(theirs):
        found = type_of(each, theirs, ours)
        at = next((place for place, known in enumerate(ours) if known is found), None)
        now = ours[number] if number < len(ours) else None
        # A type that the reader lacks is mixed with none, unless another one has its number.
        other = now is not None and kind_of(now) not in PROMOTED.get(kind_of(each), ()) if at is None else at != number
        if other or (len(ours) > 1) is not (len(theirs) > 1):
            yield path
        if at is None or not isinstance(each, dict) or not isinstance(ours[at], dict) or full_name(each) in above:
            continue
        for part in ("items", "values"):
            if part in each and part in ours[at]:
                yield from _moved(reader, ours[at][part], writer, each[part], path, above)
        there = {field["name"]: field["type"] for field in each.get("fields", ())}
        inside, within = above | {full_name(each)} - {""}, in_union(path, at, len(ours))
        for field in ours[at].get("fields", ()):
            source = next((name for name in (field["name"], *aliases(field)) if name in there), None)
            if source is not None:
                inner = f"{within}.{field['name']}" if within else field["name"]
                yield from _moved(reader, field["type"], writer, there[source], inner, inside)


def _changed(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node, with what ``change`` makes of each definition in it. References stay references."""
    if isinstance(node, list):
        return [_changed(each, change) for each in node]
    if not isinstance(node, dict):
        return node
    made = {**node, **{part: _changed(node[part], change) for part in ("items", "values") if part in node}}
    if "fields" in node:
        made["fields"] = [{**each, "type": _changed(each["type"], change)} for each in node["fields"]]
    return change(made)


def _unrounded(read: Node, writer: AvroSchema, written: Node) -> Node:
    """References stay references, as in `_grown`."""
    written = writer.definition(written)
    if isinstance(read, list) or isinstance(written, list):
        one, other = _value(read), writer.definition(_value(written))
        if isinstance(one, list) or isinstance(other, list):
            return read
        value = _unrounded(one, writer, other)
        return [each if each == "null" else value for each in read] if isinstance(read, list) else value
    if (kind_of(written), kind_of(read)) in ROUNDED:
        return kind_of(written)
    if not isinstance(read, dict) or not isinstance(written, dict) or read["type"] != written["type"]:
        return read
    made = dict(read)
    if read["type"] == "record":
        made["fields"] = []
        theirs = {each["name"]: each["type"] for each in written["fields"]}
        for each in read["fields"]:
            name = next((name for name in (each["name"], *each.get("aliases", ())) if name in theirs), None)
            kind = each["type"] if name is None else _unrounded(each["type"], writer, theirs[name])
            same = kind == each["type"]
            # A default is of the other type, and not needed.
            kept = each if same else {part: each[part] for part in ("name", "aliases") if part in each}
            made["fields"].append({**kept, "type": kind})
    for part in ("items", "values"):
        if part in read and part in written:
            made[part] = _unrounded(read[part], writer, written[part])
    return made


def _new(
    reader: AvroSchema, read: Node, writer: AvroSchema, written: Node, path: str, above: frozenset[str]
) -> Iterator[str]:
    for at, one, other in _pairs(reader, read, writer, written):
        inner = in_union(path, at, len(values(reader.definition(read))))
        yield from _new_in_type(reader, reader.definition(one), writer, writer.definition(other), inner, above)


def _new_in_type(
    reader: AvroSchema, read: Node, writer: AvroSchema, written: Node, path: str, above: frozenset[str]
) -> Iterator[str]:
    if not isinstance(read, dict) or not isinstance(written, dict) or read["type"] != written["type"]:
        return
    if written["type"] == "record" and full_name(written) not in above:
        there = {name: each for each in read["fields"] for name in (each["name"], *each.get("aliases", ()))}
        for each in written["fields"]:
            inner = f"{path}.{each['name']}" if path else each["name"]
            if each["name"] not in there:
                yield inner
            else:
                of = there[each["name"]]["type"]
                yield from _new(reader, of, writer, each["type"], inner, above | {full_name(written)})
    for part in ("items", "values"):
        if part in written and part in read:
            yield from _new(reader, read[part], writer, written[part], path, above)


def _pairs(reader: AvroSchema, read: Node, writer: AvroSchema, written: Node) -> Iterator[tuple[int, Node, Node]]:
    """The types of two unions, or of one, that belong together: the number of the reader's without null, and both."""
    ours, theirs = values(reader.definition(read)), values(writer.definition(written))
    one, other = [reader.definition(each) for each in ours], [writer.definition(each) for each in theirs]
    for each, definition in zip(theirs, other, strict=True):
        found = type_of(definition, other, one)
        if found is not None:
            at = next(number for number, known in enumerate(one) if known is found)
            yield at, ours[at], each


def _grown(
    reader: AvroSchema, read: Node, writer: AvroSchema, written: Node, only: Collection[str] | None, path: str
) -> Node:
    """References stay references. The type that they name is extended where it is defined."""
    made = values(read)
    for at, _, other in _pairs(reader, read, writer, written):
        made[at] = _grown_type(reader, made[at], writer, other, only, in_union(path, at, len(made)))
    if isinstance(read, list):
        rest = iter(made)
        return ["null" if each == "null" else next(rest) for each in read]
    is_null = isinstance(written, list) and "null" in written and only is None
    return ["null", made[0]] if is_null else made[0]


def _grown_type(
    reader: AvroSchema, read: Node, writer: AvroSchema, written: Node, only: Collection[str] | None, path: str
) -> Node:
    """Neither is a union."""
    if isinstance(read, str) and isinstance(written, str):
        wider = only is None and read in _NUMBERS and written in PROMOTED.get(read, ())
        return written if wider else read
    written = writer.definition(written)
    if not isinstance(read, dict) or not isinstance(written, dict) or read["type"] != written["type"]:
        return read
    grown = dict(read)
    if read["type"] == "record":
        names = {name: each["name"] for each in read["fields"] for name in (each["name"], *each.get("aliases", ()))}
        theirs = {names[each["name"]]: each["type"] for each in written["fields"] if each["name"] in names}

        def inner(name: str) -> str:
            return f"{path}.{name}" if path else name

        def both(each: Node) -> Node:
            at = inner(each["name"])
            return _grown(reader, each["type"], writer, theirs[each["name"]], None if at in (only or ()) else only, at)

        grown["fields"] = [
            {**each, "type": both(each)}
            if each["name"] in theirs
            else (_optional(each, reader) if only is None else each)
            for each in read["fields"]
        ] + [
            _optional({"name": each["name"], "type": each["type"]}, writer)
            for each in written["fields"]
            if each["name"] not in names and (only is None or inner(each["name"]) in only)
        ]
    for part in ("items", "values"):
        if part in read and part in written:
            grown[part] = _grown(reader, read[part], writer, written[part], only, path)
    return grown


def _value(node: Node) -> Node:
    """The other type, for a union of null and one type."""
    if isinstance(node, list):
        values = [each for each in node if each != "null"]
        return values[0] if len(values) == 1 else node
    return node


def _optional(field: Node, schema: AvroSchema) -> Node:
    """A field of this schema that a record may lack."""
    if "default" in field:
        return field
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    kinds = [schema.definition(each) for each in branches if each != "null"]
    return {**field, "type": ["null", *kinds], "default": None}


def _once(node: Node, defined: set[str]) -> Node:
    """Define each named type where it appears first, and use its name after that."""
    if isinstance(node, list):
        return [_once(each, defined) for each in node]
    if not isinstance(node, dict):
        return node
    name = full_name(node)
    if name in defined:
        return name
    if name:
        defined.add(name)
    made = dict(node)
    if "fields" in node:
        made["fields"] = [{**each, "type": _once(each["type"], defined)} for each in node["fields"]]
    for part in ("items", "values"):
        if part in node:
            made[part] = _once(node[part], defined)
    return made
