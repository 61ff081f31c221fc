"""Avro, as the auditor reads it: by fastavro, on the executors, each record with the schema that it names.

fastavro reads the bytes with the writer's schema. This module makes of that what the reader's schema says, as Avro's
specification has it, but strictly: a value of another meaning or range isn't readable.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from connector.audit.avro_end import end_of
from connector.audit.avro_meaning import OtherMeaning, check_meaning
from connector.audit.avro_names import of_other_types
from connector.audit.avro_schema import (
    Node,
    Schema,
    aliases_of,
    arrow_type,
    in_json,
    kind_of,
    lacking,
    learn_marks,
    meaning,
    python_type,
    same_record,
    spark_type,
)
from connector.audit.batches import headers, with_column
from connector.audit.control import is_of_control
from connector.audit.dropped import column_of_event
from connector.audit.registries import Schemas, Texts
from sinks.errors import UnusableSchema

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Make: TypeAlias = Callable[[Any], Any]

_PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
    "string": ("bytes",), "bytes": ("string",),
}  # fmt: skip
_BITS = {"int": 32, "long": 64}
_SCALE: Mapping[tuple[Any, ...], int] = {("timestamp-millis",): 1000, ("local-timestamp-millis",): 1000}


class _Unfit(Exception):
    """A value, or every value with a schema, can't be read as the reader's schema."""


class Fit:
    """What the values of one schema become when they are read by another."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._writer, self._reader = writer, reader

    def made(self) -> Make:
        """Of the value that fastavro gives, that of ``spark_type``, as Arrow takes it. Raises _Unfit: no value fits."""
        try:
            return self._fit(self._writer.root, self._reader.root, ())
        except OtherMeaning as error:
            raise _Unfit from error

    def _fit(self, written: Node, read: Node, above: tuple[int, ...], beside: Sequence[Node] = ()) -> Make:
        """``beside``: the types of the writer's union, if it has one."""
        written, read = self._writer.at(written), self._reader.at(read)
        if id(written) in above:
            raise _Unfit  # a type that contains itself
        above = (*above, id(written)) if isinstance(written, dict) else above
        if isinstance(written, list):
            return self._of_union(written, read, above)
        if isinstance(read, list):
            return self._into_union(written, read, above, beside)
        if beside and kind_of(written) == kind_of(read) == "record" and same_record(written, beside, [read]) is None:
            raise _Unfit
        kind, wanted = kind_of(written), kind_of(read)
        if kind != wanted and wanted not in _PROMOTED.get(kind, ()):
            raise _Unfit
        check_meaning(written, read)
        if kind in ("enum", "fixed"):
            _same_name(written, read)
        if kind == "record":
            return self._record(written, read, above)
        if kind == "array":
            item = self._fit(written["items"], read["items"], above)
            return lambda value: [item(each) for each in value]
        if kind == "map":
            entry = self._fit(written["values"], read["values"], above)
            return lambda value: [(name, entry(each)) for name, each in value.items()]
        return _scalar(read, kind, wanted)

    def _of_union(self, written: Node, read: Node, above: tuple[int, ...]) -> Make:
        """fastavro names the type of a branch that has a name. The others differ in Python's types, or by marks."""
        ways: dict[object, Make] = {}
        union = [self._writer.at(branch) for branch in written]
        for node in union:
            kind = kind_of(node)
            of = node["name"] if kind in ("record", "enum", "fixed") else python_type(node) or _PYTHON[kind]
            try:
                ways[of] = self._fit(node, read, above, union)
            except _Unfit:
                ways[of] = _unfit
        if all(way is _unfit for way in ways.values()):
            raise _Unfit

        def made(value: Any) -> Any:
            named = isinstance(value, tuple)
            return ways[value[0] if named else type(value)](value[1] if named else value)

        return made

    def _into_union(self, written: Node, read: Node, above: tuple[int, ...], beside: Sequence[Node]) -> Make:
        """The branch that Avro takes: one of the same type, by its name if it has one, else one to promote to."""
        branches = [self._reader.at(each) for each in read]
        outside = above[:-1] if isinstance(written, dict) else above
        same = [each for each in branches if kind_of(each) == kind_of(written)]
        others = [each for each in branches if each not in same]
        if kind_of(written) == "record" and same:
            same, others = [each for each in [same_record(written, beside or [written], same)] if each is not None], []
        elif isinstance(written, dict) and "name" in written:
            same.sort(key=lambda each: each["name"] != written["name"])
        values = [each for each in branches if each != "null"]
        for branch in [*same, *others]:
            try:
                make = self._fit(written, branch, outside)
            except _Unfit:
                continue
            if len(values) == 1 or branch == "null" or {kind_of(each) for each in values} in _WIDENED:
                return make
            name = f"member{next(at for at, each in enumerate(values) if each is branch)}"
            return lambda value: {name: make(value)}
        raise _Unfit

    def _record(self, written: Node, read: Node, above: tuple[int, ...]) -> Make:
        there = {each["name"]: each for each in written["fields"]}
        parts: list[tuple[str, str, Make]] = []
        fixed: dict[str, Any] = {}
        for each in read["fields"]:
            name = each["name"]
            source = next((known for known in (name, *each.get("aliases", ())) if known in there), None)
            if source is not None:
                parts.append((name, source, self._fit(there[source]["type"], each["type"], above)))
            elif "default" in each:
                fixed[name] = None  # as in rows from before the field. The pipeline sets later ones aside
                with suppress(_Unfit):
                    fixed[name] = Fit(self._reader, self._reader).default(each["type"], each["default"])
            else:
                raise _Unfit
        return lambda value: {**fixed, **{name: make(value[source]) for name, source, make in parts}}

    def default(self, node: Node, value: Any) -> Any:
        """The value of a default, which stands for the first type of a union. Raises _Unfit: its type can't hold it."""
        definition = self._reader.at(node)
        first = definition[0] if isinstance(definition, list) else definition
        try:
            make = self._fit(first, node, ())
            return make(_from_json(self._reader, first, value))
        except Exception as error:  # fastavro checks what is outermost in it only
            raise _Unfit from error


def _same_name(written: Node, read: Node) -> None:
    if written["name"] not in (read["name"], *aliases_of(read)) or written.get("size") != read.get("size"):
        raise _Unfit


_PYTHON: Mapping[str, type] = {
    "null": type(None), "boolean": bool, "int": int, "long": int, "float": float, "double": float, "bytes": bytes,
    "string": str, "array": list, "map": dict,
}  # fmt: skip
_WIDENED = ({"int", "long"}, {"float", "double"})


def _unfit(value: object) -> NoReturn:
    raise _Unfit(value)


def _from_json(schema: Schema, node: Node, value: Any) -> Any:
    """What fastavro would give for a default."""
    node = schema.at(node)
    if isinstance(node, list):
        first = schema.at(node[0])
        found = _from_json(schema, first, value)
        return (first["name"], found) if kind_of(first) in ("record", "enum", "fixed") else found
    kind = kind_of(node)
    if kind in ("bytes", "fixed"):  # as Java has it
        content = value.encode("latin-1", "replace")
        return content[: node["size"]].ljust(node["size"], b"\0") if kind == "fixed" else content
    if kind in ("float", "double"):
        return float(value)
    if kind == "array":
        return [_from_json(schema, node["items"], each) for each in value]
    if kind == "map":
        return {name: _from_json(schema, node["values"], each) for name, each in value.items()}
    if kind == "record":
        fields = {each["name"]: each for each in node["fields"]}
        return {
            name: _from_json(schema, each["type"], value.get(name, each.get("default")))
            for name, each in fields.items()
        }
    return value


def _scalar(read: Node, kind: str, wanted: str) -> Make:
    means = meaning(read)
    if means[:1] == ("decimal",):
        _, precision, scale = means
        return lambda value: _decimal(value, precision, scale)
    if kind in _BITS:
        low, high, scale = -(2 ** (_BITS[kind] - 1)), 2 ** (_BITS[kind] - 1), _SCALE.get(means, 1)

        def whole(value: int) -> Any:
            if not low <= value < high or not low <= value * scale < high:
                raise _Unfit
            return _exactly(value, wanted) if wanted in ("float", "double") else value * scale

        return whole
    if kind == "enum" and "symbols" in read:
        symbols, default = set(read["symbols"]), read.get("default")
        return lambda value: value if value in symbols else _unfit(value) if default is None else default
    if kind == "string" and wanted == "bytes":
        return lambda value: value.encode()
    if kind == "bytes" and wanted == "string":
        return lambda value: value.decode()
    return lambda value: value


def _exactly(value: int, wanted: str) -> float:
    """A whole number as a float or double that is the same number."""
    form = "<f" if wanted == "float" else "<d"
    found: float = struct.unpack(form, struct.pack(form, value))[0]
    return found if found == value else _unfit(value)


def _decimal(value: bytes, precision: int, scale: int) -> Decimal:
    unscaled = int.from_bytes(value, "big", signed=True)
    if not value:  # no number, as Java has it
        raise _Unfit
    if abs(unscaled) >= 10**precision:
        raise _Unfit
    return Decimal(unscaled).scaleb(-scale)


@dataclass(frozen=True)
class Avro:
    """Kafka's value or key in Avro. ``schemas`` has those of its writers."""

    schemas: Schemas
    reader: Schema
    versions: Sequence[Schema] = ()
    """Those of the registry."""
    of_event: bool = False
    """Whether the values are Debezium's events."""
    topics: Sequence[str] = ()
    """Those whose subjects say which types of records are read. Empty: any that fit."""

    @cached_property
    def defaults(self) -> Mapping[str, str]:
        """Of the fields that some version of the schema lacks: the path of the column or of a field in it -> a JSON
        object that has the default as ``v``. Of defaults that aren't null."""
        fields = {path: each for version in self.versions for path, each in lacking(self.reader, version).items()}
        fit, found = Fit(self.reader, self.reader), {}
        for path, each in fields.items():
            kind = spark_type(self.reader, each["type"])
            # Not of one that its type can't hold, and not of a time after the year 9999, which has no text.
            with suppress(_Unfit, OverflowError):
                value = in_json(kind, fit.default(each["type"], each["default"]))
                found[self._column(path)] = json.dumps({"v": value})
        return found

    def _column(self, path: str) -> str:
        return column_of_event(path) if self.of_event else path

    def _lacks(self, texts: Texts) -> Sequence[str]:
        """The paths among ``defaults`` that a writer lacks."""
        try:
            paths = {self._column(path) for path in lacking(self.reader, Schema.of(texts, defaults=False))}
        except UnusableSchema:
            return ()
        return [path for path in self.defaults if path in paths]

    @property
    def type(self) -> DataType:
        """Of a value. Raises UnusableSchema."""
        return spark_type(self.reader, self.reader.root)

    def read(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """``records`` with the column ``into``: STRUCT<value, lacks, control>, or null where no value can be read.

        ``lacks`` has the paths among ``defaults`` that the record's own schema lacks. ``control``: of events, that the
        record says nothing of a row, and there is no value.

        Asks for the schema of each header that the records have. Raises RegistryUnreachable, ConfigurationError.
        """
        from pyspark.sql import types as T

        named = headers(records, column, self.schemas.header)
        writers = {header: self.schemas.of(header) for header in named}
        known = self._of_its_types({header: texts for header, texts in writers.items() if texts is not None})
        lacks = {header: self._lacks(texts) for header, texts in known.items()}
        length, kind, reader = self.schemas.header, self.type, self.reader
        control = {header for header, texts in known.items() if self.of_event and _is_control(texts)}
        made = T.StructType().add("value", kind).add("lacks", T.ArrayType(T.StringType()))
        made = made.add("control", T.BooleanType())
        schema = T.StructType([*records.schema.fields, T.StructField(into, made)])

        def decode(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            yield from decoded(batches, column, into, length, known, reader, kind, lacks, control)

        return records.mapInArrow(decode, schema)

    def _of_its_types(self, known: Mapping[bytes, Texts]) -> Mapping[bytes, Texts]:
        """Without the writers of other types. Control events stay, which are of no table."""
        if not self.topics:
            return known
        judged = {header: texts for header, texts in known.items() if not (self.of_event and _is_control(texts))}
        others = of_other_types(judged, self.reader, self.versions, self.schemas, self.topics)
        return {header: texts for header, texts in known.items() if header not in others}


def _is_control(texts: Texts) -> bool:
    try:
        return is_of_control(Schema.of(texts, defaults=False).name)
    except UnusableSchema:
        return False


def decoded(
    batches: Iterable[RecordBatch],
    column: str,
    into: str,
    length: int,
    writers: Mapping[bytes, Texts],
    reader: Schema,
    kind: DataType,
    lacks: Mapping[bytes, Sequence[str]],
    control: Collection[bytes] = (),
) -> Iterator[RecordBatch]:
    """On an executor: the batches with one more column. ``length``: of the header. ``kind``: of a value. ``lacks``: of
    each header what its schema lacks. ``control``: the headers of values that say nothing of a row."""
    import pyarrow
    from fastavro import schemaless_reader, schemaless_writer

    arrow = pyarrow.struct(
        [("value", arrow_type(kind)), ("lacks", pyarrow.list_(pyarrow.string())), ("control", pyarrow.bool_())]
    )
    learn_marks()
    ways: dict[bytes, tuple[Schema, Make] | None] = {}
    for header, texts in writers.items():
        try:
            writer = Schema.of(texts, defaults=False)
            spark_type(writer, writer.root)  # a type that contains itself isn't read, whoever would leave it out
            ways[header] = writer, Fit(writer, reader).made()
        except (_Unfit, UnusableSchema):
            ways[header] = None

    def value_of(content: bytes | None) -> dict[str, Any] | None:
        if content is not None and content[:length] in control:
            return {"control": True}
        way = ways.get(content[:length]) if content is not None else None
        if way is None or content is None:
            return None
        (writer, make), payload = way, content[length:]
        rest, again = io.BytesIO(payload), io.BytesIO()
        try:
            found = schemaless_reader(rest, writer.root, None, return_named_type=True)
            schemaless_writer(again, writer.root, found)
            if again.getvalue() != payload and end_of(writer, writer.root, payload, 0) != len(payload):
                return None
            return {"value": make(found), "lacks": lacks.get(content[:length], ())}
        except Exception:  # whatever bytes that are no value make it say
            return None

    yield from with_column(batches, column, into, arrow, value_of)
