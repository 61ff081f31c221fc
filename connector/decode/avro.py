"""Decodes Avro with one schema, or with the schema that each record names in a registry. Uses Spark's ``from_avro``.

``from_avro`` leaves bytes after the value unread, and turns bytes that it can't read into a row of nulls, which looks
like a row of nulls that was written. So the value is decoded as the first field of a record. The known bytes of a
second field are appended: ``from_avro`` finds them only if the value took exactly all of its own bytes.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from connector.decode.avro_apart import told_apart
from connector.decode.avro_evolution import checked_decimals, grown, moved, new_fields, unrounded, with_symbols
from connector.decode.avro_names import SubjectNames
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import AvroSchema, full_name, parse
from connector.decode.avro_units import without_names
from connector.decode.format import NOTHING, NeverPlain, SchemaFixed, problem_of
from connector.decode.held import is_own, lacks, taken_names
from connector.decode.registry.record_schemas import RecordSchemas
from connector.decode.registry.registry import Part, Registry
from sinks.errors import ConfigurationError, JarsMissing, UnusableSchema
from sinks.spark.row_errors import problem as first_line
from sinks.spark.schema_changes import OnNewColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

log = logging.getLogger("lakelock.decode")

MALFORMED = "not exactly one Avro value of its schema, or text in it that isn't UTF-8"
# No two bytes are equal, so no part of them at the end of a value looks like their beginning.
_END = bytes.fromhex("4c616b65106f9d3b")
_END_AS_DOUBLE = struct.unpack("<d", _END)[0]
_ROUNDED = "a whole number in it isn't exactly one of the FLOAT or DOUBLE that its column is"
_APART = "of a type in a union that the reader's schema doesn't have there"
_PARSED = "_parsed_avro"
_READER = "the reader's schema"
_OF_FILE = "The Avro schema in the file that schema_file names"


def enveloped(value: Column, writer: AvroSchema, reader: AvroSchema) -> Column:
    """STRUCT<value, end>. Compute it once, in a column of its own, and check it with `_whole`."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    ended, options = F.concat(value, F.lit(_END)), _options(reader)
    if not hasattr(F, "is_valid_utf8"):  # before Spark 4
        return from_avro(ended, _envelope(writer), options)
    # from_avro would pass the options as a map(). Spark evaluates that while it plans a query, and two threads that
    # plan queries over one frame, as two sinks do, mix their options up. The map of from_json is safe.
    as_map = F.from_json(F.lit(json.dumps(options)), "MAP<STRING, STRING>")
    return F.call_function("from_avro", ended, F.lit(_envelope(writer)), as_map)


def _options(reader: AvroSchema) -> dict[str, str]:
    # The mode of dates is explicit, because a session's setting for old files would shift dates before 1582.
    return {"mode": "PERMISSIVE", "avroSchema": _envelope(reader), "datetimeRebaseMode": "CORRECTED"}


def _envelope(schema: AvroSchema) -> str:
    fields = [{"name": "value", "type": without_names(schema.root)}, {"name": "end", "type": "double"}]
    return json.dumps({"type": "record", "name": "lakelock_envelope", "fields": fields})


def _whole(parsed: Column, kind: DataType) -> Column:
    """Whether this `enveloped` is exactly one value with valid text. Never null."""
    from pyspark.sql import functions as F

    ended = F.coalesce(parsed["end"] == F.lit(_END_AS_DOUBLE), F.lit(False))
    valid = (F.coalesce(_is_text(text), F.lit(True)) for text in _texts(kind, parsed["value"]))
    return reduce(and_, valid, ended)


def _is_text(value: Column) -> Column:
    """`is_utf8` for a STRING that Avro made of unchecked bytes."""
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(value)
    found = value.cast("binary")
    return F.encode(F.decode(found, "UTF-8"), "UTF-8") == found  # before Spark 4


def _texts(kind: DataType, value: Column) -> Iterator[Column]:
    """STRINGs that are valid UTF-8 if and only if all text in the value is. A blank can't complete a character."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StringType):
        yield value
    elif isinstance(kind, StructType):
        for field in kind:
            yield from _texts(field.dataType, value[field.name])
    elif isinstance(kind, MapType):
        yield from _texts(ArrayType(kind.keyType), F.map_keys(value))
        yield from _texts(ArrayType(kind.valueType), F.map_values(value))
    elif isinstance(kind, ArrayType):
        items = kind.elementType
        if isinstance(items, StringType):
            yield F.array_join(value, " ")
        elif isinstance(items, StructType):
            for field in items:
                yield from _texts(ArrayType(field.dataType), value[field.name])
        elif isinstance(items, ArrayType):
            yield from _texts(items, F.flatten(F.filter(value, lambda item: item.isNotNull())))
        elif isinstance(items, MapType):
            pairs = F.flatten(F.transform(F.filter(value, lambda item: item.isNotNull()), F.map_entries))
            entries = StructType().add("key", items.keyType).add("value", items.valueType)
            yield from _texts(ArrayType(entries), pairs)


def _stays(written: DataType, read: DataType, value: Column) -> Column:
    """Whether a value, of the type ``written``, is the same as one of the type ``read``. Never null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    yes = F.lit(True)
    if written == read:
        return yes
    if isinstance(written, StructType) and isinstance(read, StructType):
        fields = zip(written, read, strict=True)
        return reduce(and_, (_stays(one.dataType, other.dataType, value[one.name]) for one, other in fields), yes)
    if isinstance(written, ArrayType) and isinstance(read, ArrayType):
        one, other = written.elementType, read.elementType
        return F.coalesce(F.forall(value, lambda item: _stays(one, other, item)), yes)
    if isinstance(written, MapType) and isinstance(read, MapType):
        return _stays(ArrayType(written.valueType), ArrayType(read.valueType), F.map_values(value))
    if isinstance(read, DecimalType):
        return F.coalesce(F.abs(value) < F.lit(Decimal(10 ** (read.precision - read.scale))), yes)
    rounded = value.cast(read)
    too_large = rounded >= F.lit(2.0**63)  # for the cast back
    return F.coalesce(F.when(too_large, F.lit(False)).otherwise(rounded.cast("bigint") == value), yes)


def _as_type(parsed: Column, written: DataType, read: DataType) -> Column:
    """An `enveloped` of the type ``written`` as one of the type ``read``, which isn't whole if the value would change.

    ``parsed`` has to be a column of its own, because several expressions use it.
    """
    from pyspark.sql import functions as F

    made = F.struct(parsed["value"].cast(read).alias("value"), parsed["end"].alias("end"))
    return F.when(_stays(written, read, parsed["value"]), made)


def _judged(records: DataFrame, value: Column, kind: DataType, why: Column, into: str) -> DataFrame:
    """Value and problem from the column `_PARSED`. ``why`` is the problem if the value isn't whole."""
    from pyspark.sql import functions as F

    parsed = F.col(_PARSED)
    problem = F.when(_whole(parsed, kind), F.lit(None)).when(value.isNotNull(), why)
    judged = records.withColumns({into: parsed["value"], problem_of(into): problem.cast("string")})
    return judged.drop(_PARSED)


def _type(spark: SparkSession, reader: AvroSchema) -> DataType:
    """The Spark type of the values. Raises `UnusableSchema` if Spark has none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if reader.recursive is not None:
        raise UnusableSchema(
            f"The type {reader.recursive} of the Avro schema is recursive, which Spark's columns don't support.",
            hint="Have the producer send that part in another way, such as JSON in a string. No reader's schema helps.",
        )
    try:
        envelope = enveloped(F.lit(None).cast("binary"), reader, reader)
        return spark.range(0).select(envelope["value"].alias("value")).schema["value"].dataType
    except TypeError:
        # PySpark's message for a missing class.
        raise JarsMissing(
            "Spark has no spark-avro, which decodes Avro.",
            hint="`lakelock jars` fetches it. A session of your own needs org.apache.spark:spark-avro_2.13 (Spark 3.5: "
            "spark-avro_2.12), in Spark's version, in spark.jars.packages.",
        ) from None
    except PySparkException as error:
        raise UnusableSchema(
            f"Spark can't read the Avro schema: {first_line(error)}.",
            hint="Give a reader's schema without the part that Spark can't read: schema_file.",
        ) from None


class AvroFile(SchemaFixed):
    """Plain Avro bytes, all with one schema."""

    def __init__(self, spark: SparkSession, schema: str) -> None:
        """``schema`` is JSON text. Raises `UnusableSchema`."""
        self._spark, self._schema = spark, parse(schema, of=_OF_FILE)
        self.type = _type(spark, self._schema)

    @property
    def comments(self) -> Mapping[str, str]:
        """The docs of the fields."""
        return self._schema.docs

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`. Don't filter by it: Spark would move the filter down and decode every record twice."""
        from pyspark.sql import functions as F

        value, wide = F.col(column), checked_decimals(self._schema)
        parsed = records.withColumn(_PARSED, enveloped(value, self._schema, wide))
        if wide != self._schema:
            parsed = parsed.withColumn(_PARSED, _as_type(F.col(_PARSED), _type(self._spark, wide), self.type))
        return _judged(parsed, value, self.type, F.lit(MALFORMED), into)


class AvroOfRegistry(NeverPlain):
    """Avro bytes after the ID of their schema, read with one reader's schema: a given one, or the subject's latest.

    All schemas of the subject are requested at once, others when a record names them: see `RecordSchemas`.
    """

    def __init__(
        self,
        spark: SparkSession,
        registry: Registry[AvroSchema],
        topics: Sequence[str],
        part: Part,
        reader: str | None = None,
        on_new_column: OnNewColumn | None = None,
        held: Collection[str] = (),
        rows: Collection[str] = (),
        leaves_out: Callable[[str], bool] = lambda _: False,
        *,
        fixed: bool = False,
        one_type: bool = False,
    ) -> None:
        """``reader`` is JSON text. ``on_new_column`` says what to do with fields that the reader's schema lacks.

        ``add`` adds them to it, ``ignore`` ignores them, ``fail`` makes a problem. With None they are ignored if a
        reader's schema was given, and otherwise a problem. ``held``: the paths of fields that a table has a column for,
        in lower case. They are never ignored, unless a reader's schema was given. ``rows``: the fields that become the
        columns, by default the value itself. None of Lakelock's own is ever added to them. ``leaves_out``: by its full
        name, whether the records of a schema say nothing of a row. ``fixed``: once the versions that the subject has
        now are known, the type stays as it is. ``one_type``: without a given reader's schema, records of another
        type than the subject's are problems.

        Raises `UnusableSchema`, `UnknownSchema` or `RegistryUnreachable`.
        """
        self._spark = spark
        self._wire = registry.wire
        self._reader = parse(reader, of=_OF_FILE) if reader is not None else _latest(registry, topics, part)
        self._given = reader is not None
        self._latest, self._held, self._part, self._rows = self._reader, () if self._given else held, part, rows
        self._lacking = ("its subject's newest schema at the run's start", "") if fixed else (_READER, part)
        self._leaves_out = leaves_out
        judged = one_type and not self._given
        self._names = SubjectNames(registry, topics, part, self._reader) if judged else None
        self._grows = on_new_column == "add" and not self._given
        self._refuses_fields = on_new_column == "fail" or (on_new_column is None and not self._given)
        self._moved: set[str] = set()
        self.writers: dict[str, AvroSchema] = {}
        """ID -> the schema, of those whose records can be read."""
        self.type = _type(spark, self._reader)
        self.schemas = RecordSchemas(registry, topics, part, self._learn)
        self.schemas.request_versions()
        if fixed:
            self._held = ()

    @property
    def comments(self) -> Mapping[str, str]:
        """The docs of the fields."""
        return self._reader.docs

    def _learn(self, schema_id: str, writer: AvroSchema) -> str | None:
        """Decode records with this schema from now on. Returns why they can't be."""
        if self._leaves_out(full_name(writer.root)):
            return NOTHING
        if self._names is not None and (why := self._names.other_type(writer)):
            return why
        before = self._reader
        try:
            if not writer.recursive:
                if self._grows and (why := taken_names(self._own(writer))):
                    return why
                if not self._given:
                    self._reader = with_symbols(self._reader, writer)
                self._grow(writer)
                if self._reader != before:
                    self.type = _type(self._spark, self._reader)
            # Avro needs a stack frame for each level of a value, even in a part that nobody reads. A deep value would
            # end the JVM.
            why = f"{writer.recursive} is recursive" if writer.recursive else self._misfit(writer)
            if why is not None:
                return f"can't be read as the reader's schema: {why}"
            # Of those that were to be added, some may have had no room.
            fields = new_fields(self._reader, writer) if self._refuses_fields or self._grows else ()
            if why := lacks(fields, self._lacking[0], "" if self._grows else self._lacking[1]):
                return why
        except UnusableSchema:
            self._reader = before
            raise
        self.writers[schema_id] = writer
        self._warn_of_moved(writer)
        return None

    def _warn_of_moved(self, writer: AvroSchema) -> None:
        """Of types of a union whose number is another one's now: nothing in a table tells by which it was written."""
        for path in moved(self._latest, writer):
            if path.lower() in self._held and path not in self._moved:
                self._moved.add(path)
                log.warning(
                    "The types of the Avro union %s are in another order, or others, in the newest schema than in an "
                    "older version. In rows that were written by the older one member0, member1 and so on may be other "
                    "types. Add types at the end only, give the older order as schema_file, or replay the topic into a "
                    "new table.",
                    path,
                )

    def _misfit(self, writer: AvroSchema) -> str | None:
        reader = unrounded(self._reader, writer)
        told_apart(writer, reader)  # raises where it can't be done
        return misfit(writer, reader)

    def _own(self, writer: AvroSchema) -> list[str]:
        """The writer's new fields that would be columns of Lakelock's own. Those of a key are inside of one column."""
        new = new_fields(self._latest, writer) if self._part == "value" else ()
        return [path for path in new if is_own(path, self._rows)]

    def _grow(self, writer: AvroSchema) -> None:
        # By their paths in the latest schema: of two older versions one may have the wider type.
        lacking, own = new_fields(self._latest, writer), self._own(writer)
        only = None if self._grows else [path for path in lacking if path.lower() in self._held and path not in own]
        if only is not None and not only:
            return
        try:
            self._reader = grown(self._reader, writer, only)
        except UnusableSchema:
            return  # ``misfit`` tells whether the writer's records fit all the same

    def begin_epoch(self) -> None:
        """See `Format.begin_epoch`."""
        self.schemas.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See `Format.resolve`, and `RecordSchemas.resolve`."""
        self.schemas.resolve(ids, records)

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`. Don't filter by it: Spark would move the filter down and decode every record twice."""
        from pyspark.sql import functions as F

        value = F.col(column)
        payload = F.substring(value, self._wire.length + 1, 2**31 - 1)
        # IDs whose schemas describe the same data, and differ only in a comment, share a decoder.
        alike: dict[str, list[str]] = {}
        for schema_id, writer in self.writers.items():
            alike.setdefault(writer.text, []).append(schema_id)
        parsed = None
        why = [MALFORMED]
        for number, ids in enumerate(alike.values()):
            mine, writer = self.schemas.one_of(value, ids), self.writers[ids[0]]
            as_written = unrounded(self._reader, writer)
            if as_written != self._reader:
                why.append(_ROUNDED)
            writer, others = told_apart(writer, as_written)
            why += [f"{_APART}: {name}" for name in others]
            as_written = checked_decimals(as_written)
            envelope = enveloped(payload, writer, as_written)
            if as_written != self._reader:
                column = f"{_PARSED}_{number}"
                records = records.withColumn(column, F.when(mine, envelope))
                envelope = _as_type(F.col(column), _type(self._spark, as_written), self.type)
            parsed = F.when(mine, envelope) if parsed is None else parsed.when(mine, envelope)
        if parsed is None:
            parsed = F.when(F.lit(False), enveloped(payload, self._reader, self._reader))
        kept = records.columns
        problem = self.schemas.problem(value, ", or ".join(dict.fromkeys(why)))
        judged = _judged(records.withColumn(_PARSED, parsed), value, self.type, problem, into)
        return judged.drop(*(name for name in kept if name.startswith(_PARSED)))


def _latest(registry: Registry[AvroSchema], topics: Sequence[str], part: Part) -> AvroSchema:
    found = {topic: registry.latest(topic, part).schema for topic in topics}
    if len({schema.text for schema in found.values()}) > 1:
        raise ConfigurationError(
            f"The topics {', '.join(found)} have different schemas in the registry, and one table can't have both.",
            hint="Say which schema to read the records with: schema_file, or registry.subject.",
        )
    return next(iter(found.values()))
