"""Decodes Kafka's bytes into the user's columns, finds problems of records, and applies the user's transform."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from connector.audit import exact_json
from connector.audit.avro import Avro
from connector.audit.debezium import Events
from connector.audit.formats import Form, Forms
from connector.audit.framed import Framed
from connector.audit.json_valid import Valid
from connector.audit.kafkas_key import of_kafkas_key
from connector.audit.names import respelled
from connector.audit.protobuf import Protobuf
from connector.audit.records import LACKS, PROBLEM, RAW, TOMBSTONE, Records, coordinates, digest
from connector.audit.schema_names import NAME
from connector.audit.values import defaults_of, paths_lacking
from connector.config import COORDINATES
from connector.config.own_schema import SCHEMA_NAME
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import MapType, StructField

NAMED = "lakelock_named"
"""The table that a record of a route names, where its table has a schema of its own."""
_AT = "lakelock at"
_FOUND = "lakelock_problem"
"""What is wrong with a record, while its columns are made."""
_TEXT = "lakelock_text_"
"""The texts in Kafka's key that stand for numbers and the like."""
_STAR_INSIDE = re.compile(r"(?i)(?<!count)\s*\(\s*(\w+\s*\.\s*)?\*")
"""In a SELECT what makes one value of all columns, as ``struct(*)``: of a column more it would make another one."""
_WHOLE, _FIRST = "lakelock_record", "lakelock_first"


@dataclass(frozen=True)
class _Read:
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


def decoded_for(
    table: str, records: DataFrame, forms: Forms, key: Sequence[str], *, ruled: bool, exact: bool
) -> Records:
    """As ``decoded``, for one table of a route whose records have a schema of their own. They have one more column,
    ``NAMED``: the table that a record names by the schema of all records. A record that doesn't fit that one has its
    problem; one that names another table has no other."""
    from pyspark.sql import functions as F

    route = forms.route
    assert route is not None
    assert route.value is not None
    whole = records.withColumn(_WHOLE, F.struct(*records.columns))
    by = replace(forms, value=route.value, route=replace(route, value=None))
    every = decoded(whole, by, route.keys, ruled=ruled, exact=exact, kept=[_WHOLE]).frame
    named = every.select(f"{_WHOLE}.*", F.expr(route.sql).alias(NAMED), F.col(PROBLEM).alias(_FIRST))
    own = replace(forms, route=None, require=None)
    found = decoded(named, own, key or route.keys, ruled=ruled, exact=exact, kept=[NAMED, _FIRST])
    of_own = F.when(F.expr(f"{NAMED} <=> {literal(table)}"), F.col(PROBLEM))
    frame = found.frame.withColumn(PROBLEM, F.coalesce(F.col(_FIRST), of_own)).drop(_FIRST)
    return replace(found, frame=frame, shown=coordinates(records))


def decoded(
    records: DataFrame, forms: Forms, key: Sequence[str], *,
    ruled: bool, exact: bool | None = None, kept: Sequence[str] = (),
) -> Records:  # fmt: skip
    """Every record, those with a problem as well. Problems are tombstone, value, key, rule and route.

    With ``key`` a tombstone is a record too: Kafka's key says which row it deletes. ``ruled``: records may have been
    set aside, so the rule of ``require`` and the route are checked, and there is ``_raw``. Without it every record of
    the claim has met the rule. ``kept``: columns of ``records`` that stay. Raises ConfigurationError.

    ``exact``: a record with a number that its type can't hold has a problem; None: if ``ruled``. Otherwise it has no
    ``_timestamp``. Its row has one, and so it is never right, whatever stands there for the number.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    names = forms.value.names
    frame, value = _read(names.read(records) if names is not None else records, "value", forms.value)
    tombstone = F.col("value").isNull()
    of_key = None
    if forms.key is not None:
        frame, of_key = _read(frame, "key", forms.key)
    frame = _judged(frame, value, of_key, takes_tombstones=bool(key), exact=ruled if exact is None else exact)
    problem = F.col(_FOUND)
    texts = [part for part in forms.value.columns if forms.key is not None and _text_for(part, key, forms.key)]
    for part in texts:
        frame = frame.withColumn(_TEXT + part.name, _of_tombstone(part, key, forms.key, of_key))

    def field(part: StructField) -> Column:
        content = F.when(~tombstone, value.field(part))
        if part in texts:
            text = exact_json.of_text(part.dataType, identifier(_TEXT + part.name))
            content = F.when(tombstone, F.expr(text)).otherwise(content)
        elif part.name in key:
            content = F.when(tombstone, _of_tombstone(part, key, forms.key, of_key)).otherwise(content)
        # Spark keeps what it could read of a record that is no JSON. A filter would make it parse everything twice.
        return F.when(problem.isNull(), content).alias(part.name)

    columns = list(forms.value.columns)
    selected = [field(part) for part in columns]
    if forms.key is not None and of_key is not None:
        columns.append(StructField("_key", forms.key.type))
        selected.append(F.when(problem.isNull() & F.col("key").isNotNull(), of_key.value).alias("_key"))
    if forms.headers:
        columns.append(StructField("_headers", _map_of_headers()))
        selected.append(F.expr(_LAST_OF_EACH).alias("_headers"))
    defaults = defaults_of(value.defaults, of_key.defaults if of_key is not None else None)
    frame = frame.select(
        *selected,
        *(F.col(name.removeprefix("_")).alias(name) for name in COORDINATES),
        tombstone.alias(TOMBSTONE),
        problem.alias(PROBLEM),
        *([F.expr(f"nullif({NAME}, '')").alias(SCHEMA_NAME)] if names is not None else []),
        *([paths_lacking(value.lacks, of_key.lacks if of_key is not None else None).alias(LACKS)] if defaults else []),
        *([digest("timestamp").alias(RAW)] if ruled else []),
        *kept,
    )
    frame = _with_rules(frame, forms) if ruled else frame
    return Records(frame, StructType(columns), defaults=defaults, shown=coordinates(records))


def _judged(frame: DataFrame, value: _Read, of_key: _Read | None, *, takes_tombstones: bool, exact: bool) -> DataFrame:
    """The records with what is wrong with each, in ``_FOUND``. ``exact``: as in ``decoded``."""
    from pyspark.sql import functions as F

    tombstone = F.col("value").isNull()
    rounded = ~tombstone & value.readable & ~value.exact
    problem = F.when(~tombstone & ~(value.exact if exact else value.readable), "value")
    if not takes_tombstones:
        problem = F.when(tombstone, "tombstone").otherwise(problem)
    if of_key is not None:
        there = F.col("key").isNotNull()
        rounded |= there & of_key.readable & ~of_key.exact
        problem = F.coalesce(problem, F.when(there & ~(of_key.exact if exact else of_key.readable), "key"))
    frame = frame.withColumn(_FOUND, _once(problem))
    if exact:
        return frame
    return frame.withColumn("timestamp", F.when(~F.coalesce(rounded, F.lit(False)), F.col("timestamp")))


def _with_rules(frame: DataFrame, forms: Forms) -> DataFrame:
    """The records, those that break the rule of ``require`` or name no table with a problem. Raises
    ConfigurationError."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    if forms.require is not None:
        broken = F.expr(f"NOT {TOMBSTONE} AND ({forms.require}) IS NOT TRUE")
        try:
            frame = frame.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), F.when(broken, "rule")))
            _ = frame.schema  # makes Spark Connect analyse the frame here
        except PySparkException as error:
            said = next(line for line in str(error).splitlines() if line.strip())
            raise ConfigurationError(f"require: Spark doesn't take it: {said.strip()}") from None
    if forms.route is not None and forms.route.refused:
        unnamed = F.when(F.expr(f"({forms.route.sql}) IS NULL"), "route")
        frame = frame.withColumn(PROBLEM, F.coalesce(F.col(PROBLEM), unnamed))
    return frame


def _once(problem: Column) -> Column:
    """What is wrong with a record: it takes every field to know it, and every column asks for it.

    Spark moves a filter on a column below the place where it is computed, and computes it there once more: of a few
    columns, that is a megabyte of plan, and every record is parsed twice. It doesn't move one on a column that depends
    on the task, and this one says that it does.
    """
    from pyspark.sql import functions as F

    return F.coalesce(problem, F.when(F.spark_partition_id() < 0, "nowhere"))


def _read_events(records: DataFrame, column: str, form: Form, events: Events) -> tuple[DataFrame, _Read]:
    """Debezium's events: the columns are those of their rows, and of the events themselves."""
    from pyspark.sql import functions as F

    frame, whole = _read(
        records, column, Form(events.envelope, form.permissive, binary=form.binary, framed=form.framed)
    )
    text = _body(column) if form.framed is not None else column
    event, sent = f"event_{column}", f"binary_{column}.value" if form.binary is not None else f"parsed_{text}"
    frame = frame.withColumn(event, F.expr(events.event(sent)))
    sound = F.expr(events.sound(event))

    def field(part: StructField) -> Column:
        return F.expr(events.field(part, event))

    value = F.struct(*(field(part).alias(part.name) for part in events.columns))
    return frame, _Read(value, field, whole.readable & sound, whole.exact & sound, whole.lacks, whole.defaults)


def _read_binary(records: DataFrame, column: str, binary: Avro | Protobuf) -> tuple[DataFrame, _Read]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    into = f"binary_{column}"
    value, readable = F.col(f"{into}.value"), F.col(into).isNotNull()
    of_fields = isinstance(binary.type, StructType)
    read = _Read(value, lambda part: value[part.name] if of_fields else value, readable, readable)
    if isinstance(binary, Avro) and binary.defaults:
        read = replace(read, lacks=F.col(f"{into}.lacks"), defaults=binary.defaults)
    return binary.read(records, column, into), read


def _body(column: str) -> str:
    """The column with the JSON text of a value after a header."""
    return f"body_{column}"


def _read_framed(records: DataFrame, column: str, form: Form, framed: Framed) -> tuple[DataFrame, _Read]:
    from pyspark.sql import functions as F

    body = _body(column)
    frame, of_body = _read(framed.read(records, column, body), body, replace(form, framed=None))
    readable, exact = (F.col(body).isNotNull() & each for each in (of_body.readable, of_body.exact))
    return frame, replace(of_body, readable=F.coalesce(readable, F.lit(False)), exact=F.coalesce(exact, F.lit(False)))


def _read_valid(records: DataFrame, column: str, form: Form, valid: Valid) -> tuple[DataFrame, _Read]:
    from pyspark.sql import functions as F

    into = f"valid_{column}"
    frame, read = _read(valid.read(records, column, into), column, replace(form, valid=None))
    return frame, replace(read, readable=read.readable & F.col(into), exact=read.exact & F.col(into))


def _read_name() -> _Read:
    from pyspark.sql import functions as F

    name, known = F.col(NAME), F.col(NAME).isNotNull()
    return _Read(name, lambda _: name, known, known)


def _read(records: DataFrame, column: str, form: Form) -> tuple[DataFrame, _Read]:
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
        return records, _Read(F.col(column), lambda _: F.col(column), F.lit(True), F.lit(True))
    if not isinstance(form.type, StructType):
        return records, _Read(text, lambda _: text, _is_utf8(column), _is_utf8(column))

    taken, bad, parsed = {name.lower() for name in form.type.names}, "malformed", f"parsed_{column}"
    while bad in taken:
        bad += "_"
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
    return frame, _Read(value, field, readable & rounded, readable & exact)


def _is_utf8(column: str) -> Column:
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(F.col(column).cast("string"))
    return F.encode(F.decode(F.col(column), "UTF-8"), "UTF-8") == F.col(column)  # before Spark 4


def _map_of_headers() -> MapType:
    from pyspark.sql.types import BinaryType, MapType, StringType

    return MapType(StringType(), BinaryType())


_NAMES = "reverse(transform(headers, header -> header.key))"
_LAST_OF_EACH = (
    "IF(headers IS NULL, NULL, map_from_entries(filter(headers, "
    f"(header, i) -> array_position({_NAMES}, header.key) = size(headers) - i)))"
)
"""SQL: the headers as a map; of several headers of one name, the last."""


def _of_tombstone(part: StructField, key: Sequence[str], form: Form | None, read: _Read | None) -> Column:
    """A key column of a tombstone: decoded as ``form`` says, or guessed from Kafka's key if there is no ``form``."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if form is None or read is None:
        return of_kafkas_key(part, alone=len(key) == 1)
    if isinstance(form.type, StructType):
        return read.field(form.type[part.name]) if part.name in form.type.names else F.lit(None)
    return read.value if len(key) == 1 else F.lit(None)


def _text_for(part: StructField, key: Sequence[str], form: Form) -> bool:
    """Whether Kafka's key holds a text for a column of another type, as ``"142"`` for a BIGINT."""
    from pyspark.sql.types import AtomicType, StringType, StructType

    kind = form.type
    if isinstance(kind, StructType):
        if part.name not in kind.names:
            return False
        kind = kind[part.name].dataType
    elif len(key) > 1:
        return False
    other = isinstance(part.dataType, AtomicType) and not isinstance(part.dataType, StringType)
    return part.name in key and other and isinstance(kind, StringType)


def transformed(every: Records, sql: str | None, *, strict: bool = False) -> Records:
    """The rows that the user's SELECT makes of the records without a problem.

    ``strict``: keep the records with a problem beside them. Raises ConfigurationError if Spark doesn't take the SELECT.
    """
    if sql is None:
        return every if strict else replace(every, frame=every.frame.where(f"{PROBLEM} IS NULL"))
    if _STAR_INSIDE.search(sql):
        every = replace(every, frame=every.frame.drop(LACKS), defaults={})
    made = replace(_selected(every.frame.where(f"{PROBLEM} IS NULL"), sql), defaults=every.defaults, shown=every.shown)
    if strict:
        bad = every.frame.where(f"{PROBLEM} IS NOT NULL").select(*COORDINATES, TOMBSTONE, PROBLEM)
        return replace(made, frame=made.frame.unionByName(bad, allowMissingColumns=True))
    return made


def _selected(records: DataFrame, sql: str) -> Records:
    """The result of the SELECT, with the coordinates added to its list."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    kept = [*COORDINATES, TOMBSTONE, *([LACKS] if LACKS in records.columns else [])]
    records.drop(PROBLEM, RAW).createOrReplaceTempView("records")
    head = _select_list(sql)
    try:
        result = records.sparkSession.sql(f"{sql[:head]} struct({', '.join(kept)}) AS `{_AT}`, {sql[head:]}")
        own = StructType([part for part in result.schema if part.name not in (_AT, *kept)])
    except PySparkException as error:
        said = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"transform: Spark doesn't take it: {said.strip()}") from None
    frame = result.select(
        *(F.col(identifier(name)) for name in own.names),
        *(F.col(f"`{_AT}`.{name}").alias(name) for name in kept),
        F.lit(None).cast("string").alias(PROBLEM),
    )
    return Records(frame, own, several=True)


def _select_list(sql: str) -> int:
    """The index at which the list of a SELECT begins: after the word, and after a hint if there is one."""
    end = 0
    for token in re.finditer(r"--[^\n]*|/\*.*?\*/|\S+?\b", sql, re.DOTALL):
        if end and not token[0].startswith("/*+"):
            break
        if end or token[0].upper() == "SELECT":
            end = token.end()
    return end
