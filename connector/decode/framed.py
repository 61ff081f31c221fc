"""JSON after the header that Confluent's serializers write: a zero byte, and the ID of a schema in four bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from connector.decode.format import problem_of
from connector.decode.held import holds, is_own, lacks, taken_names
from connector.decode.json import Json
from connector.decode.json_new_fields import grown
from connector.decode.json_plan import Plan, of_several
from connector.decode.json_schema import JsonSchema
from connector.decode.registry.record_schemas import RecordSchemas
from connector.decode.registry.registry import Part, Registry
from connector.decode.registry.wire_format import ConfluentWire
from connector.decode.validated import validated as judged
from connector.source.columnar import PlainValues
from connector.spark.compat import from_ddl
from sinks.errors import ConfigurationError, UnusableSchema
from sinks.spark.schema_changes import OnNewColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_WIRE = ConfluentWire()


class Framed:
    """A format of JSON values, each after Confluent's header. Whichever schema the header names, all are read alike."""

    def __init__(self, json: Json) -> None:
        self._json = json

    @property
    def header(self) -> int:
        """See ``Format.header``."""
        return _WIRE.length

    @property
    def comments(self) -> Mapping[str, str]:
        """See ``Format.comments``."""
        return self._json.comments

    @property
    def type(self) -> StructType:
        """See ``Format.type``."""
        return self._json.type

    @property
    def plain(self) -> PlainValues | None:
        """See ``Format.plain``."""
        plain = self._json.plain
        return None if plain is None else replace(plain, framed=True)

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``. A wrong header says it all."""
        from pyspark.sql import functions as F

        body, problem = f"_body{into}", problem_of(into)
        found = self._json.decoded(records.selectExpr("*", f"{_WIRE.body(column)} AS {body}"), body, into)
        wrong = F.coalesce(self._wrong(F.col(column)), F.col(problem))
        return found.withColumn(problem, wrong).drop(body)

    def _wrong(self, value: Column) -> Column:
        """STRING: what is wrong with the header of a value."""
        return _WIRE.problem(value)

    def of_plain(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.of_plain``."""
        return self._json.of_plain(records, column, into)

    def with_faults(self, bad: DataFrame, value: str, column: str, into: str) -> DataFrame | None:
        """See ``Format.with_faults``."""
        return self._json.with_faults(bad, _WIRE.body(value), column, into)

    def begin_epoch(self) -> None:
        """See ``Format.begin_epoch``."""
        self._json.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See ``Format.resolve``."""
        self._json.resolve(ids, records.selectExpr(f"{_WIRE.body('bytes')} AS bytes"))


class FramedOfRegistry(Framed):
    """As ``Framed``, of schemas in a registry. A record whose schema the registry doesn't have, or that is no JSON
    Schema, is a bad record."""

    def __init__(
        self,
        json: Json,
        registry: Registry[JsonSchema],
        topics: Sequence[str],
        part: Part,
        on_new_column: OnNewColumn | None = None,
        held: Collection[str] = (),
        *,
        declared: bool,
        validated: bool = False,
    ) -> None:
        """``declared``: the columns are declared in the pipeline file. Else they are those of the subject's newest
        schema, and ``on_new_column`` says what becomes of fields that other schemas have: as for `AvroOfRegistry`, like
        ``held``. ``validated``: a record that its schema doesn't allow is a bad record.

        Raises UnusableSchema, UnknownSchema or RegistryUnreachable.
        """
        super().__init__(json)
        self._on_new_column, self._held, self._part = on_new_column, held, part
        self._declared, self._validated = declared, validated
        self._plans: dict[str, Plan] = {}
        self._schemas = RecordSchemas(registry, topics, part, self._learn)
        self._schemas.request_versions()

    @property
    def plain(self) -> PlainValues | None:
        """See ``Format.plain``."""
        plain = None if self._validated else super().plain
        return None if plain is None else replace(plain, schema_ids=tuple(map(int, self._schemas.taken)))

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``."""
        found = super().decoded(records, column, into)
        return judged(found, column, into, of_several(self._plans)) if self._validated else found

    def _wrong(self, value: Column) -> Column:
        return self._schemas.problem(value, None)

    def begin_epoch(self) -> None:
        """See ``Format.begin_epoch``."""
        super().begin_epoch()
        self._schemas.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See ``Format.resolve``. The IDs of the registry are numbers; the JSON format's own aren't."""
        wanted = list(ids)
        of_registry = [schema_id for schema_id in wanted if schema_id.isdecimal()]
        if of_registry:
            self._schemas.resolve(of_registry, records)
        others = [schema_id for schema_id in wanted if schema_id not in of_registry]
        if others:
            super().resolve(others, records)

    def _learn(self, schema_id: str, schema: JsonSchema) -> str | None:
        """Take records with this schema from now on. Returns why they can't be. Raises UnusableSchema."""
        if self._validated:
            self._plans[schema_id] = Plan(schema)
        if self._declared:
            return None
        try:
            written = struct_of(schema)
        except UnusableSchema:
            if self._on_new_column != "ignore":
                raise
            written = type(self.type)()  # nobody asks what it has
        adds = self._on_new_column == "add"
        if adds and (why := taken_names([name for name in new_fields(self.type, written) if is_own(name)])):
            return why
        more = grown(self.type, written) if adds else grown(self.type, written, partial(holds, self._held))
        assert isinstance(more, type(written))
        self._json.type = more
        if self._on_new_column == "ignore":
            return None
        return lacks(new_fields(more, written), "the newest schema at the run's start", self._part)


def newest_columns(registry: Registry[JsonSchema], topics: Sequence[str], part: Part) -> str:
    """The columns of the newest JSON Schema of these topics, as Spark DDL.

    Raises UnusableSchema, UnknownSchema, RegistryUnreachable, and ConfigurationError if the topics' schemas differ.
    """
    found = {topic: registry.latest(topic, part).schema.columns for topic in topics}
    if len(set(found.values())) > 1:
        raise ConfigurationError(
            f"The topics {', '.join(found)} have different schemas in the registry, and one table can't have both.",
            hint="Write the columns beside the registry, schema:, or say which schema to read the records with: "
            "registry.subject.",
        )
    return next(iter(found.values()))


def struct_of(schema: JsonSchema) -> StructType:
    """The columns of a JSON Schema. Raises UnusableSchema."""
    from pyspark.sql.types import StructType

    kind = from_ddl(schema.columns)
    assert isinstance(kind, StructType)
    return kind


def new_fields(known: DataType, written: DataType, path: str = "") -> list[str]:
    """The paths of the fields that ``known`` lacks. The case of names doesn't matter, as when JSON is read."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(known, StructType) and isinstance(written, StructType):
        there = {field.name.lower(): field.dataType for field in known}
        found = []
        for field in written:
            at, name = f"{path}.{field.name}" if path else field.name, field.name.lower()
            found += new_fields(there[name], field.dataType, at) if name in there else [at]
        return found
    if isinstance(known, ArrayType) and isinstance(written, ArrayType):
        return new_fields(known.elementType, written.elementType, path)
    if isinstance(known, MapType) and isinstance(written, MapType):
        return new_fields(known.valueType, written.valueType, path)
    return []
