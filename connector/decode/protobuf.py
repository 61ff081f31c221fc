"""Decodes Protobuf with one message of a descriptor file, or with the schema that each record names in a registry.

A Java class of ours decodes, straight into the declared columns, by a plan that the driver makes of the schemas: see
`protobuf_plan`. It is registered as a function of SQL, with the columns as its result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.decode.format import NeverPlain, SchemaFixed, problem_of
from connector.decode.framed import new_fields
from connector.decode.held import holds, lacks
from connector.decode.json_new_fields import grown
from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_plan import MessagePlan, Misfit, of_one, of_several
from connector.decode.protobuf_schema import Message, Messages, ProtobufSchema
from connector.decode.registry.record_schemas import RecordSchemas
from connector.decode.registry.registry import Part, Registry
from connector.spark.jars import PROTOBUF_JAR
from sinks.errors import ConfigurationError, JarsMissing, UnusableSchema
from sinks.spark.row_errors import problem as first_line
from sinks.spark.schema_changes import OnNewColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

PACKAGE = "lakelock.protobuf"
_CLASS = f"{PACKAGE}.Decode"
_PARSED = "_parsed_protobuf"


def _parsed(records: DataFrame, value: Column, plan: bytes, columns: StructType) -> DataFrame:
    """The records with STRUCT<value, problem> in the column `_PARSED`: a column of its own, so that it's made once."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    result = StructType().add("value", columns).add("problem", StringType())
    # A function has one type of result.
    name = f"lakelock_protobuf_{hashlib.sha256(result.json().encode()).hexdigest()[:16]}"
    try:
        records.sparkSession.udf.registerJavaFunction(name, _CLASS, result)
    except PySparkException as error:
        raise JarsMissing(
            f"Spark has no {PROTOBUF_JAR.name}, which decodes Protobuf: {first_line(error)}.",
            hint="A session that Lakelock starts has it. Add it to the jars of your own (spark.jars): `python -c "
            '"from connector.spark import jars; print(jars.PROTOBUF_JAR)"` says where it is.',
        ) from None
    return records.withColumn(_PARSED, F.call_udf(name, value, F.lit(plan)))


def _judged(records: DataFrame, value: Column, why: Column, into: str) -> DataFrame:
    """Value and problem. ``why``: a problem of the header, or null."""
    from pyspark.sql import functions as F

    parsed = F.col(_PARSED)
    found = F.when(value.isNotNull(), F.coalesce(why, parsed["problem"])).cast("string")
    return records.withColumns({into: parsed["value"], problem_of(into): found}).drop(_PARSED)


class ProtobufFile(SchemaFixed):
    """Bare messages, all of one type."""

    def __init__(self, messages: Messages, name: str, declared: StructType | None, *, option: str) -> None:
        """``name``: the message's full name. ``declared``: the columns; None: one for each field. ``option``: the one
        of the format, for messages. Raises ConfigurationError and UnusableSchema."""
        message = messages.of(name)
        if message is None:
            raise ConfigurationError(
                f"{option}.message: {name!r} isn't in the descriptor file, which has {_few(messages.names)}."
            )
        self.type = columns_of(message) if declared is None else declared
        try:
            plan = MessagePlan(message, self.type)
        except Misfit as misfit:
            raise ConfigurationError(
                f"{option}.schema: {misfit}.", hint="docs/sources.md lists the columns that a field may have."
            ) from None
        if plan.missing:
            raise _no_such_fields(option, plan.missing, [message])
        self._plan = of_one(name, plan.bytes)

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`. Don't filter by it: Spark would move the filter down and decode every record twice."""
        from pyspark.sql import functions as F

        parsed = _parsed(records, F.col(column), self._plan, self.type)
        return _judged(parsed, F.col(column), F.lit(None), into)


class ProtobufOfRegistry(NeverPlain):
    """Messages after the ID of their schema and the message's indexes. Each is read by its own writer's schema.

    All schemas of the subject are requested at once, others when a record names them: see `RecordSchemas`.
    """

    def __init__(
        self,
        registry: Registry[ProtobufSchema],
        topics: Sequence[str],
        part: Part,
        message: str | None = None,
        declared: StructType | None = None,
        on_new_column: OnNewColumn | None = None,
        held: Collection[str] = (),
    ) -> None:
        """``message``: its full name; None: the newest schema's first one. ``declared``: the columns; None: those of
        the newest schema, and ``on_new_column`` says what becomes of fields that other schemas have, as for
        `AvroOfRegistry`, like ``held``.

        Raises UnusableSchema, UnknownSchema, RegistryUnreachable and ConfigurationError.
        """
        self._declared, self._on_new_column, self._held = declared is not None, on_new_column, held
        self._part = part
        newest = {topic: registry.latest(topic, part).schema for topic in topics}
        found = {topic: _message(schema, message) for topic, schema in newest.items()}
        self._name = next(iter(found.values())).full_name
        columns = {topic: columns_of(each) if declared is None else declared for topic, each in found.items()}
        if len({(each.full_name, columns[topic].json()) for topic, each in found.items()}) > 1:
            raise ConfigurationError(
                f"The topics {', '.join(topics)} have different schemas in the registry, and one table can't have "
                "both.",
                hint="Write the message and the columns: message, schema. Or say which schema to take them from: "
                "registry.subject.",
            )
        self.type = next(iter(columns.values()))
        self._messages: dict[str, tuple[ProtobufSchema, Message]] = {}
        self._schemas = RecordSchemas(registry, topics, part, self._learn)
        self._schemas.request_versions()
        self._check_columns(part)

    def _check_columns(self, part: Part) -> None:
        """Raises ConfigurationError for a declared column that no version has a field for: it may be misspelled."""
        messages = [message for _, message in self._messages.values()]
        lacking = [set(MessagePlan(message, self.type).missing) for message in messages]
        if self._declared and lacking and set.intersection(*lacking):
            raise _no_such_fields(part, sorted(set.intersection(*lacking)), messages)

    def _learn(self, schema_id: str, schema: ProtobufSchema) -> str | None:
        """Decode records with this schema from now on. Returns why they can't be."""
        message = schema.message(self._name)
        if message is None:
            return f"has no message {self._name}"
        columns = self.type
        if not self._declared:
            adds = self._on_new_column == "add"
            try:
                written = columns_of(message)
            except UnusableSchema:
                if self._on_new_column != "ignore":
                    raise
                written = type(columns)()  # nobody asks what it has
            columns = _struct(grown(columns, written) if adds else grown(columns, written, partial(holds, self._held)))
            fields = new_fields(columns, written) if self._on_new_column != "ignore" else ()
            if why := lacks(fields, "the newest schema at the run's start", self._part):
                return why
        try:
            MessagePlan(message, columns)
        except Misfit as misfit:
            return f"can't be read as the columns: {misfit}"
        self.type = columns
        self._messages[schema_id] = schema, message
        return None

    def begin_epoch(self) -> None:
        """See `Format.begin_epoch`."""
        self._schemas.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See `Format.resolve`, and `RecordSchemas.resolve`."""
        self._schemas.resolve(ids, records)

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See `Format.decoded`. Don't filter by it: Spark would move the filter down and decode every record twice."""
        from pyspark.sql import functions as F

        plans = {
            int(schema_id): (self._name, schema.messages.paths, MessagePlan(message, self.type).bytes)
            for schema_id, (schema, message) in self._messages.items()
        }
        value = F.col(column)
        parsed = _parsed(records, value, of_several(plans), self.type)
        return _judged(parsed, value, self._schemas.problem(value, None), into)


def _message(schema: ProtobufSchema, name: str | None) -> Message:
    found = schema.message(name or next(iter(schema.messages.paths.values())))
    if found is None:
        raise ConfigurationError(
            f"message: {name!r} isn't in the newest schema, {schema.of}. It has "
            f"{_few(list(schema.messages.paths.values()))}.",
            hint="A message of a schema that it imports doesn't count: the record's schema has to define it.",
        )
    return found


def _struct(kind: object) -> StructType:
    from pyspark.sql.types import StructType

    assert isinstance(kind, StructType)
    return kind


def _no_such_fields(option: str, missing: Sequence[str], messages: Sequence[Message]) -> ConfigurationError:
    fields = list(dict.fromkeys(field.name for message in reversed(messages) for field in message.fields))
    return ConfigurationError(
        f"{option}.schema: {messages[-1].full_name} has no field {', '.join(missing)}. Its fields are {_few(fields)}.",
        hint="A column has the name of its field. The case doesn't matter.",
    )


def _few(names: Sequence[str]) -> str:
    most = 20
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])
