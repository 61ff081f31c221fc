"""Reads Kafka's value or key by its format: each field, and whether nothing was lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connector.audit import exact_json
from connector.audit.avro import Avro
from connector.audit.debezium import Events
from connector.audit.formats import Form
from connector.audit.framed import Framed
from connector.audit.json_valid import Valid
from connector.audit.names import respelled
from connector.audit.protobuf import Protobuf
from connector.audit.schema_names import NAME
from sinks.spark.sql import identifier, unlike

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


@dataclass(frozen=True)
class Read:
    """Kafka's value or key, decoded."""

    value: Column
    """Only meaningful if ``readable``."""
    field: Callable[[StructField], Column]
    """Null for a number that its type can't hold exactly."""
    readable: Column
    exact: Column
    """Whether it is readable, and no number of it had to be rounded."""
    lacks: Column | None = None
    """The paths of fields with a default that its own schema lacks. None: no such schema has any."""
    defaults: Mapping[str, str] | None = None
    """Of these fields: path -> the default, in JSON."""
    control: Column | None = None
    """Whether the value says nothing of a row, and its record is left out. None: no value does."""


def _read_events(records: DataFrame, column: str, form: Form, events: Events) -> tuple[DataFrame, Read]:
    """Debezium's events: the columns are those of their rows, and of the events themselves."""
    from pyspark.sql import functions as F

    frame, whole = read(records, column, Form(events.envelope, form.permissive, binary=form.binary, framed=form.framed))
    text = _body(column) if form.framed is not None else column
    event, sent = f"event_{column}", f"binary_{column}.value" if form.binary is not None else f"parsed_{text}"
    frame = frame.withColumn(event, F.expr(events.event(sent)))
    sound = F.expr(events.sound(event))

    def field(part: StructField) -> Column:
        return F.expr(events.field(part, event))

    value = F.struct(*(field(part).alias(part.name) for part in events.columns))
    control = (
        F.col(f"binary_{column}.control")
        if form.binary is not None
        else whole.readable & F.expr(events.control(event, f"CAST({text} AS STRING)"))
    )
    readable, exact = whole.readable & sound, whole.exact & sound
    return frame, Read(value, field, readable, exact, whole.lacks, whole.defaults, F.coalesce(control, F.lit(False)))


def _read_binary(records: DataFrame, column: str, binary: Avro | Protobuf) -> tuple[DataFrame, Read]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    into = f"binary_{column}"
    value, readable = F.col(f"{into}.value"), F.col(into).isNotNull()
    of_fields = isinstance(binary.type, StructType)
    found = Read(value, lambda part: value[part.name] if of_fields else value, readable, readable)
    if isinstance(binary, Avro) and binary.defaults:
        found = replace(found, lacks=F.col(f"{into}.lacks"), defaults=binary.defaults)
    return binary.read(records, column, into), found


def _body(column: str) -> str:
    """The column with the JSON text of a value after a header."""
    return f"body_{column}"


def _read_framed(records: DataFrame, column: str, form: Form, framed: Framed) -> tuple[DataFrame, Read]:
    from pyspark.sql import functions as F

    body = _body(column)
    frame, of_body = read(framed.read(records, column, body), body, replace(form, framed=None))
    readable, exact = (F.col(body).isNotNull() & each for each in (of_body.readable, of_body.exact))
    return frame, replace(of_body, readable=F.coalesce(readable, F.lit(False)), exact=F.coalesce(exact, F.lit(False)))


def _read_valid(records: DataFrame, column: str, form: Form, valid: Valid) -> tuple[DataFrame, Read]:
    from pyspark.sql import functions as F

    into = f"valid_{column}"
    frame, found = read(valid.read(records, column, into), column, replace(form, valid=None))
    return frame, replace(found, readable=found.readable & F.col(into), exact=found.exact & F.col(into))


def _read_name() -> Read:
    from pyspark.sql import functions as F

    name, known = F.col(NAME), F.col(NAME).isNotNull()
    return Read(name, lambda _: name, known, known)


def read(records: DataFrame, column: str, form: Form) -> tuple[DataFrame, Read]:
    """The records with columns more, and what is in the bytes of ``column``."""
    if form.names is not None and form.names.alone:
        return records, _read_name()
    if form.valid is not None:
        return _read_valid(records, column, form, form.valid)
    if form.events is not None:
        return _read_events(records, column, form, form.events)
    if form.binary is not None:
        return _read_binary(records, column, form.binary)
    if form.framed is not None:
        return _read_framed(records, column, form, form.framed)
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    text = F.col(column).cast("string")
    if isinstance(form.type, BinaryType):
        return records, Read(F.col(column), lambda _: F.col(column), F.lit(True), F.lit(True))
    if not isinstance(form.type, StructType):
        return records, Read(text, lambda _: text, _is_utf8(column), _is_utf8(column))

    bad, parsed = unlike("malformed", form.type.names), f"parsed_{column}"
    fields = exact_json.read_as(form.type, permissive=form.permissive)
    assert isinstance(fields, StructType)
    rules = exact_json.LENIENT if form.permissive else exact_json.STRICT
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad, **rules}
    schema = StructType([*fields.fields, StructField(bad, StringType())])
    marked, spelled = f"marked_{column}", f"spelled_{column}"
    sent = f"CAST({column} AS STRING)"
    frame = respelled(records, form.type, sent, _is_utf8(column), spelled, permissive=form.permissive)
    frame = frame.withColumn(marked, F.expr(exact_json.marked(spelled, permissive=form.permissive)))
    frame = frame.withColumn(parsed, F.from_json(F.col(marked), schema, options))

    def field(part: StructField) -> Column:
        return F.expr(exact_json.value(part.dataType, f"{parsed}.{identifier(part.name)}", permissive=form.permissive))

    readable = F.col(parsed).isNotNull() & F.col(f"{parsed}.{identifier(bad)}").isNull() & _is_utf8(column)
    readable &= F.expr(exact_json.has_only_numbers(marked, permissive=form.permissive))
    rounded, exact = (
        F.expr(exact_json.is_exact(form.type, parsed, permissive=form.permissive, rounded=rounded))
        for rounded in (True, False)
    )
    value = F.struct(*(field(part).alias(part.name) for part in form.type))
    return frame, Read(value, field, readable & rounded, readable & exact)


def _is_utf8(column: str) -> Column:
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(F.col(column).cast("string"))
    return F.encode(F.decode(F.col(column), "UTF-8"), "UTF-8") == F.col(column)  # before Spark 4
