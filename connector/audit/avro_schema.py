"""Avro schemas, as the auditor reads them: parsed by fastavro, with the types that Spark has for their values."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from connector.audit.registries import Texts
from sinks.errors import ConfigurationError, UnusableSchema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Node: TypeAlias = Any
"""A part of a schema as fastavro has parsed it: a name, the list of a union, or an object."""
_MEANING = "lakelock"
"""The name that ``logicalType`` gets, so that fastavro leaves the plain value."""
NARROW: Mapping[str, type] = {"int": type("Int", (int,), {}), "float": type("Float", (float,), {})}
"""What fastavro makes of the narrower number in a writer's union that has the wider one, too: Python has one type."""
_IS_NARROW = "lakelock-narrow"
_DIFFER = ("decimal", "date", "time-", "timestamp-", "local-timestamp-")
"""The beginnings of the logical types that change what a value means."""
_LARGEST = 38
"""Digits of Spark's DECIMAL."""


@dataclass(frozen=True)
class Schema:
    """A parsed schema."""

    root: Node
    names: Mapping[str, Node]

    @classmethod
    def of(cls, texts: Texts, *, defaults: bool = True) -> Schema:
        """``defaults``: a writer's have no effect, and fastavro refuses those of another type, which Spark doesn't.

        Raises UnusableSchema, and ConfigurationError where fastavro isn't installed.
        """
        try:
            import fastavro
        except ModuleNotFoundError:
            raise ConfigurationError(
                "`lakelock verify` reads Avro with fastavro, which isn't installed, so that it shares no code with the "
                "pipeline.",
                hint="pip install 'lakelock[avro]', on a cluster on its executors too.",
            ) from None

        names: dict[str, Node] = {}
        root: Node = None
        try:
            for text in texts:
                try:
                    node = json.loads(text)
                except ValueError:
                    node = text.strip()  # a primitive type may be given as its bare name
                root = fastavro.parse_schema(_renamed(node, defaults), names)
        except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnusableSchema(
                f"fastavro can't read the Avro schema: {error}.", hint="Correct the schema, or give schema_file."
            ) from None
        return cls(root, names)

    @property
    def name(self) -> str:
        """The full name of the root. Empty: it has none."""
        root = self.at(self.root)
        return str(root.get("name", "")) if isinstance(root, dict) else ""

    def at(self, node: Node) -> Node:
        """The definition of a node, which may be a name."""
        return self.names.get(node, node) if isinstance(node, str) else node


def _renamed(node: Node, defaults: bool) -> Node:
    if isinstance(node, list):
        made = [_renamed(each, defaults) for each in node]
        return made if defaults else _told_apart(made)
    if not isinstance(node, dict):
        return node
    return {
        (_MEANING if name == "logicalType" else name): each if name == "default" else _renamed(each, defaults)
        for name, each in node.items()
        if defaults or name != "default"
    }


def _told_apart(branches: list[Node]) -> list[Node]:
    """A union whose narrower numbers are marked."""
    kinds = [each.get("type") if isinstance(each, dict) else each for each in branches]
    narrow = {one for one, other in (("int", "long"), ("float", "double")) if one in kinds and other in kinds}

    def marked(branch: Node) -> Node:
        return {**(branch if isinstance(branch, dict) else {"type": branch}), "logicalType": _IS_NARROW}

    return [
        marked(each) if isinstance(kind, str) and kind in narrow else each
        for each, kind in zip(branches, kinds, strict=True)
    ]


def learn_marks() -> None:
    """Have fastavro make values of their own types of marked numbers, in this process."""
    from fastavro.read import LOGICAL_READERS

    for kind, of in NARROW.items():
        LOGICAL_READERS[f"{kind}-{_IS_NARROW}"] = lambda value, *_, of=of: of(value)


def python_type(node: Node) -> type | None:
    """The type of a marked number's values. None: it isn't marked."""
    is_narrow = isinstance(node, dict) and node.get("logicalType") == _IS_NARROW
    return NARROW[node["type"]] if is_narrow else None


def kind_of(node: Node) -> str:
    """The kind of a type."""
    kind = str(node["type"] if isinstance(node, dict) else node)
    return "record" if kind == "error" else kind


def aliases_of(node: Node) -> list[str]:
    """The full names that a type had before."""
    space = node["name"].rpartition(".")[0]
    return [each if "." in each or not space else f"{space}.{each}" for each in node.get("aliases", ())]


def same_record(written: Node, beside: Sequence[Node], read: Sequence[Node]) -> Node | None:
    """Which of the reader's types a writer's record is, where a value may be one of several: by the name. None: none of
    them. ``beside``: the types of the writer's union. A record alone on both sides is the same by any name, and so is
    the reader's only one if none of the writer's has its name."""
    sent, there = ([each for each in types if kind_of(each) == "record"] for types in (beside, read))
    found = {each["name"]: _by_name(each, sent, there) for each in sent}
    if len(there) == 1 and not any(found.values()):
        return there[0]
    return found[written["name"]]


def _by_name(written: Node, sent: Sequence[Node], there: Sequence[Node]) -> Node | None:
    def last(node: Node) -> str:
        return str(node["name"]).rpartition(".")[2]

    former = [each for each in there if written["name"] in aliases_of(each)]
    alike = [each for each in there if last(each) == last(written)]
    alone = len(alike) == 1 and [last(each) for each in sent].count(last(written)) == 1
    today = [each for each in there if each["name"] == written["name"]]
    return next(iter((*former, *today, *(alike if alone else ()))), None)


def meaning(node: Node) -> tuple[Any, ...]:
    """The logical type that changes what the value means: its name, and of a decimal its precision and scale. Empty:
    there is none."""
    name = node.get(_MEANING) if isinstance(node, dict) else None
    if not isinstance(name, str) or not name.startswith(_DIFFER):
        return ()
    if name != "decimal":
        return (name,)
    precision, scale = node.get("precision"), node.get("scale", 0)
    sound = all(isinstance(each, int) and not isinstance(each, bool) for each in (precision, scale))
    return (name, precision, scale) if sound and 0 < precision >= scale >= 0 else ()


def spark_type(schema: Schema, node: Node, above: tuple[int, ...] = ()) -> DataType:
    """The type of the values in Spark. Raises UnusableSchema for a type that Spark has none for."""
    from pyspark.sql import types as T

    node = schema.at(node)
    if id(node) in above:
        raise UnusableSchema("An Avro type that contains itself has no columns.", hint="Give a schema_file without it.")
    inner = (*above, id(node)) if isinstance(node, dict) else above
    if isinstance(node, list):
        return _type_of_union([spark_type(schema, each, inner) for each in node if schema.at(each) != "null"])
    kind, means = kind_of(node), meaning(node)
    if means[:1] == ("decimal",) and kind in ("bytes", "fixed"):
        _, precision, scale = means
        if precision > _LARGEST:
            raise UnusableSchema(f"Spark's DECIMAL has at most {_LARGEST} digits, not {precision}.")
        return T.DecimalType(precision, scale)
    if kind == "record":
        return T.StructType(
            [T.StructField(each["name"], spark_type(schema, each["type"], inner)) for each in node["fields"]]
        )
    if kind == "array":
        return T.ArrayType(spark_type(schema, node["items"], inner))
    if kind == "map":
        return T.MapType(T.StringType(), spark_type(schema, node["values"], inner))
    if kind == "int" and means == ("date",):
        return T.DateType()
    if kind == "long" and means in (("timestamp-millis",), ("timestamp-micros",)):
        return T.TimestampType()
    if kind == "long" and means in (("local-timestamp-millis",), ("local-timestamp-micros",)):
        return T.TimestampNTZType()
    plain = {
        "null": T.NullType, "boolean": T.BooleanType, "int": T.IntegerType, "long": T.LongType, "float": T.FloatType,
        "double": T.DoubleType, "bytes": T.BinaryType, "fixed": T.BinaryType, "string": T.StringType,
        "enum": T.StringType,
    }  # fmt: skip
    return plain[kind]()


def _type_of_union(branches: Sequence[DataType]) -> DataType:
    """As Spark maps unions: of two widths of a number the wider one, of other types one field for each."""
    from pyspark.sql import types as T

    if len(branches) == 1:
        return branches[0]
    kinds = {type(each) for each in branches}
    for narrow, wide in ((T.IntegerType, T.LongType), (T.FloatType, T.DoubleType)):
        if kinds == {narrow, wide}:
            return wide()
    return T.StructType([T.StructField(f"member{number}", kind) for number, kind in enumerate(branches)])


def arrow_type(kind: DataType) -> Any:
    """Spark's type as Arrow has it."""
    import pyarrow as pa
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return pa.struct([(each.name, arrow_type(each.dataType)) for each in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, T.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    plain = {
        T.NullType: pa.null(), T.BooleanType: pa.bool_(), T.IntegerType: pa.int32(), T.LongType: pa.int64(),
        T.FloatType: pa.float32(), T.DoubleType: pa.float64(), T.BinaryType: pa.binary(), T.StringType: pa.string(),
        T.DateType: pa.date32(), T.TimestampType: pa.timestamp("us", "UTC"), T.TimestampNTZType: pa.timestamp("us"),
    }  # fmt: skip
    return plain[type(kind)]


def in_json(kind: DataType, value: Any) -> Any:
    """A value as Arrow takes it, in the form in which Spark reads it from JSON."""
    from pyspark.sql import types as T

    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return {each.name: in_json(each.dataType, value.get(each.name)) for each in kind}
    if isinstance(kind, T.ArrayType):
        return [in_json(kind.elementType, each) for each in value]
    if isinstance(kind, T.MapType):
        return {name: in_json(kind.valueType, each) for name, each in value}
    if isinstance(kind, T.BinaryType):
        return b64encode(value).decode()
    if isinstance(kind, T.DecimalType):
        return str(value)
    if isinstance(kind, T.DateType):
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        at = (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat()
        return f"{at}Z" if isinstance(kind, T.TimestampType) else at
    return value


def lacking(reader: Schema, writer: Schema) -> dict[str, Node]:
    """The reader's fields that the writer lacks, at any depth, by their path: of those whose default isn't null."""
    found: dict[str, Node] = {}
    _lacking(reader, writer, reader.root, writer.root, "", (), found)
    return found


def _lacking(
    reader: Schema, writer: Schema, read: Node, written: Node, path: str, above: tuple[int, ...], found: dict[str, Node]
) -> None:
    wanted, sent = _values(reader, read), _values(writer, written)
    for node in (each for each in sent if id(each) not in above):
        number = _partner(node, sent, wanted)
        if number is None or kind_of(wanted[number]) != kind_of(node):
            continue
        one, within = wanted[number], _within(path, number, len(wanted))
        inside = (*above, id(node)) if isinstance(node, dict) else above
        for part, name in (("items", "element"), ("values", "value")):
            if isinstance(node, dict) and part in node:
                _lacking(reader, writer, one[part], node[part], f"{within}.{name}", inside, found)
        if kind_of(node) != "record":
            continue
        there = {each["name"]: each["type"] for each in node["fields"]}
        for each in one["fields"]:
            inner = f"{within}.{each['name']}".removeprefix(".")
            source = next((name for name in (each["name"], *each.get("aliases", ())) if name in there), None)
            if source is not None:
                _lacking(reader, writer, each["type"], there[source], inner, inside, found)
            elif each.get("default") is not None:
                found[inner] = each


def _partner(node: Node, sent: Sequence[Node], wanted: Sequence[Node]) -> int | None:
    """The number of the reader's type that has the parts of this one of a writer's union. None: there is none."""
    if len(sent) == len(wanted) == 1:
        return 0
    alike = [each for each in wanted if kind_of(each) == kind_of(node)]
    one = same_record(node, sent, wanted) if alike and kind_of(node) == "record" else next(iter(alike), None)
    return next((number for number, each in enumerate(wanted) if each is one), None)


def _within(path: str, number: int, of: int) -> str:
    """The path of a type of a union of so many."""
    return f"{path}.member{number}".removeprefix(".") if of > 1 else path


def _values(schema: Schema, node: Node) -> list[Node]:
    """The types of a value that isn't null."""
    node = schema.at(node)
    branches = [schema.at(each) for each in node] if isinstance(node, list) else [node]
    return [each for each in branches if kind_of(each) != "null"]


def grown(versions: Sequence[Schema], takes: Callable[[str], bool] = lambda _: True) -> Schema:
    """The newest schema, with the fields that only older ones have, at any depth. Each may be missing. ``takes``: says
    of the path of such a field whether it is added. Its enums take every symbol."""
    newest = versions[-1]
    spark_type(newest, newest.root)  # a type that contains itself can't be written out
    root = _written_out(newest, newest.root)
    for older in reversed(versions[:-1]):
        try:
            spark_type(older, older.root)
        except UnusableSchema:
            continue
        root = _grown(root, _written_out(older, older.root), "", takes)
    return Schema(root, newest.names)


def _written_out(schema: Schema, node: Node) -> Node:
    """The node, with definitions in place of names."""
    node = schema.at(node)
    if isinstance(node, list):
        return [_written_out(schema, each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {part: _written_out(schema, node[part]) for part in ("items", "values") if part in node}
    if kind_of(node) == "record":
        made["fields"] = [{**each, "type": _written_out(schema, each["type"])} for each in node["fields"]]
    if kind_of(node) == "enum":  # whatever symbols the writer has, the column can hold them
        node = {name: each for name, each in node.items() if name not in ("symbols", "default")}
    return {**node, **made}


def _grown(read: Node, written: Node, path: str, takes: Callable[[str], bool]) -> Node:
    ours, theirs = ([each for each in union if each != "null"] for union in map(_as_union, (read, written)))
    made = list(ours)
    for each in theirs:
        number = _partner(each, theirs, ours)
        if number is not None:
            made[number] = _grown_type(made[number], each, _within(path, number, len(ours)), takes)
    rest = iter(made)
    union = [each if each == "null" else next(rest) for each in _as_union(read)]
    return union if isinstance(read, list) else union[0]


def _as_union(node: Node) -> list[Node]:
    return node if isinstance(node, list) else [node]


def _grown_type(read: Node, written: Node, path: str, takes: Callable[[str], bool]) -> Node:
    if not isinstance(read, dict) or kind_of(read) != kind_of(written):
        return read
    made = {part: _grown(read[part], written[part], path, takes) for part in ("items", "values") if part in read}
    if kind_of(read) == "record":
        there = {name: each for each in read["fields"] for name in (each["name"], *each.get("aliases", ()))}
        theirs = {id(there[each["name"]]): each["type"] for each in written["fields"] if each["name"] in there}

        def inner(name: str) -> str:
            return f"{path}.{name}" if path else name

        made["fields"] = [
            {**each, "type": _grown(each["type"], theirs[id(each)], inner(each["name"]), takes)}
            if id(each) in theirs
            else each
            for each in read["fields"]
        ] + [_optional(each) for each in written["fields"] if each["name"] not in there and takes(inner(each["name"]))]
    return {**read, **made}


def _optional(field: Node) -> Node:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return {"name": field["name"], "type": ["null", *(kind for kind in kinds if kind != "null")], "default": None}
