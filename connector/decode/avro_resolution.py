"""Whether values with one Avro schema can be read with another.

Spark resolves a writer's schema to a reader's schema record by record. This module checks what Spark can't tell, on the
driver and before the first record: that two schemas never fit, or that they fit by their bytes only. For example Avro
would read an amount with two decimals as one with four, because its resolution ignores logical types.
"""

from __future__ import annotations

from collections.abc import Sequence

from connector.decode.avro_schema import AvroSchema, Node, full_name, kind_of
from connector.decode.avro_unions import aliases, record_of
from connector.decode.avro_units import other_unit

PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
ROUNDED = {("int", "float"), ("long", "float"), ("long", "double")}
"""Promotions after which different numbers may be the same."""
_BY_A_FILE = "a schema_file with the type as it was sent reads these records, dead_letters keeps them aside"
_UNITS = ("millis", "micros", "nanos")
_MEANINGFUL = {
    "decimal",
    "date",
    *(f"{kind}-{unit}" for kind in ("time", "timestamp", "local-timestamp") for unit in _UNITS),
}


def misfit(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """Why values with the writer's schema can't be read with the reader's. None if they can.

    If only some can, as those of one branch of a union, the others are found record by record: see `avro_apart`.
    """
    return Resolution(writer, reader).misfit(writer.root, reader.root, "the value")


class _Clash(Exception):
    """Raised where Avro would read a value wrongly."""


class Resolution:
    """How the types of a writer's schema are read as those of a reader's."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader

    def misfit(self, written: Node, read: Node, where: str, beside: Sequence[Node] = ()) -> str | None:
        """See `misfit`, of a type within each. ``beside``: as for `branches`."""
        try:
            return self._misfit(written, read, where, frozenset(), beside)
        except _Clash as clash:
            return str(clash)

    def branches(self, written: Node, beside: Sequence[Node], read: Node) -> list[Node]:
        """The reader's types that a writer's may be read as, in Avro's order: one of the same type, by name if it has
        one, else one it can be promoted to. All are definitions. ``beside``: those of the writer's union."""
        reads = [self._reader.definition(each) for each in (read if isinstance(read, list) else [read])]
        same = [each for each in reads if kind_of(each) == kind_of(written)]
        if same and kind_of(written) == "record":
            one = record_of(written, beside or [written], same)
            return [] if one is None else [one]
        same.sort(key=lambda each: full_name(each) != full_name(written))
        return [*same, *(each for each in reads if each not in same)]

    def _misfit(
        self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]], beside: Sequence[Node] = ()
    ) -> str | None:
        written, read = self._writer.definition(written), self._reader.definition(read)
        if isinstance(written, list):
            union = [self._writer.definition(each) for each in written]
            found = [self._misfit(branch, read, where, above, union) for branch in union]
            return None if None in found else found[0]
        why = f"{where} is the record {full_name(written)}, which the reader's schema doesn't have there"
        problems = []
        for branch in self.branches(written, beside, read):
            problem = self._of_type(written, branch, where, above)
            if problem is None:
                return None
            problems.append(problem)
        return problems[0] if problems else why

    def _of_type(self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]]) -> str | None:
        """Neither is a union."""
        kind, wanted = kind_of(written), kind_of(read)
        if kind != wanted and wanted not in PROMOTED.get(kind, ()):
            return f"{where} is {kind}, which can't be read as {wanted}"
        _same_meaning(written, read, where)
        if (kind, wanted) in ROUNDED:
            raise _Clash(f"{where} is {kind}, which Avro would round as {wanted}")
        if kind in ("enum", "fixed"):
            if full_name(written) not in (full_name(read), *aliases(read)):
                return f"{where} is the {kind} {full_name(written)}, which can't be read as {full_name(read)}"
            if written.get("size") != read.get("size"):
                return f"{where} has {written['size']} bytes, which can't be read as {read['size']}"
        if kind == "array":
            return self._misfit(written["items"], read["items"], f"an item of {where}", above)
        if kind == "map":
            return self._misfit(written["values"], read["values"], f"a value of {where}", above)
        pair = (full_name(written), full_name(read))
        if kind == "record" and pair not in above:
            return self._record(written, read, where, above | {pair})
        return None

    def _record(self, written: Node, read: Node, where: str, above: frozenset[tuple[str, str]]) -> str | None:
        there = {field["name"]: field for field in written["fields"]}
        for field in read["fields"]:
            name = field["name"]
            path = name if where == "the value" else f"{where}.{name}"
            source = next((there[known] for known in (name, *aliases(field)) if known in there), None)
            if source is None:
                if "default" not in field:
                    return f"{path} isn't in it, and has no default in the reader's schema"
                continue
            problem = self._misfit(source["type"], field["type"], path, above)
            if problem is not None:
                return problem
        return None


def _same_meaning(written: Node, read: Node, where: str) -> None:
    of_writer, of_reader = (node.get("logicalType") if isinstance(node, dict) else None for node in (written, read))
    if of_writer not in _MEANINGFUL and of_reader in _MEANINGFUL and kind_of(written) != kind_of(read):
        # Of the same type it may be named later what the value has always been. The bytes of a text are no number.
        raise _Clash(f"{where} is {kind_of(written)}, which Avro would misread as {_meaning(read)}")
    if of_writer == "decimal" and kind_of(read) == "string":
        # A registry takes the change, as bytes may become text. The text would be the bytes of the number: { for 1.23.
        raise _Clash(f"{where} is {_meaning(written)}, of which Avro would take the bytes for the text; {_BY_A_FILE}")
    units = other_unit(written, read)
    if units is not None:
        raise _Clash(f"{where} is {units[0]}, which would be misread as {units[1]}; {_BY_A_FILE}")
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
