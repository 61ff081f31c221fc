"""Decodes Kafka's bytes into the user's columns, finds problems of records, and applies the user's transform."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.audit import exact_json
from connector.audit.debezium import OP
from connector.audit.formats import Form, Forms
from connector.audit.kafkas_key import of_kafkas_key
from connector.audit.read import Read
from connector.audit.read import read as read_by
from connector.audit.records import LACKS, PLACE, PROBLEM, RAW, TOMBSTONE, Records, coordinates, digest
from connector.audit.schema_names import NAME
from connector.audit.values import defaults_of, paths_lacking
from connector.config import COORDINATES
from connector.config.own_schema import SCHEMA_NAME
from connector.config.transform_sql import column_words
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import MapType, StructField, StructType

NAMED = "lakelock_named"
"""The table that a record of a route names, where its table has a schema of its own."""
_AT = "lakelock at"
_FOUND = "lakelock_problem"
"""What is wrong with a record, while its columns are made."""
_CONTROL = "control"
"""That of one that says nothing of a row, and isn't wrong."""
_IN_KEY = "lakelock_key_"
"""The columns of Kafka's key whose types aren't those of the value."""
_STAR_INSIDE = re.compile(r"(?i)(?<!count)\s*\(\s*(\w+\s*\.\s*)?\*")
"""In a SELECT what makes one value of all columns, as ``struct(*)``: of a column more it would make another one."""
_WHOLE, _FIRST = "lakelock_record", "lakelock_first"


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
    frame, value = read_by(names.read(records) if names is not None else records, "value", forms.value)
    tombstone = F.col("value").isNull()
    of_key = None
    if forms.key is not None:
        frame, of_key = read_by(frame, "key", forms.key)
    frame = _judged(frame, value, of_key, takes_tombstones=bool(key), exact=ruled if exact is None else exact)
    problem = F.col(_FOUND)
    cast = _casts(forms.value.columns, key, forms.key) if forms.key is not None else {}
    for name in cast:
        part = forms.value.columns[name]
        frame = frame.withColumn(_IN_KEY + name, _of_tombstone(part, key, forms.key, of_key))

    def field(part: StructField) -> Column:
        content = F.when(~tombstone, value.field(part))
        if part.name in cast:
            content = F.when(tombstone, F.expr(cast[part.name])).otherwise(content)
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
    frame, left_out = _without_control(frame) if value.control is not None else (frame, None)
    frame = _with_rules(frame, forms) if ruled else frame
    return Records(frame, StructType(columns), defaults=defaults, shown=coordinates(records), left_out=left_out)


def _without_control(frame: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """The records without those that say nothing of a row, and these as ``Records.left_out``."""
    from pyspark.sql import functions as F

    these = F.col(PROBLEM).eqNullSafe(_CONTROL)
    return frame.where(~these), frame.where(these).select(*PLACE, RAW) if RAW in frame.columns else None


def _judged(frame: DataFrame, value: Read, of_key: Read | None, *, takes_tombstones: bool, exact: bool) -> DataFrame:
    """The records with what is wrong with each, in ``_FOUND``. ``exact``: as in ``decoded``."""
    from pyspark.sql import functions as F

    tombstone = F.col("value").isNull()
    rounded = ~tombstone & value.readable & ~value.exact
    problem = F.when(~tombstone & ~(value.exact if exact else value.readable), "value")
    if value.control is not None:
        problem = F.when(value.control, _CONTROL).otherwise(problem)
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
        broken = F.expr(breaks(frame.columns, forms.require, spares_deletes=forms.spares_deletes))
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


def breaks(columns: Collection[str], rule: str, *, spares_deletes: bool) -> str:
    """SQL: whether a record breaks the rule. ``columns``: its. Unless the rule asks for the kind of an event, it isn't
    about events that may have the key alone, or nothing: deletes and truncates, in a file where they delete rows."""
    spared = [TOMBSTONE]
    if spares_deletes and OP in columns and OP not in {word.lower() for word in column_words(rule)}:
        spared.append(f"coalesce({OP} IN ('d', 't'), false)")
    return f"NOT ({' OR '.join(spared)}) AND ({rule}) IS NOT TRUE"


def _once(problem: Column) -> Column:
    """What is wrong with a record: it takes every field to know it, and every column asks for it.

    Spark moves a filter on a column below the place where it is computed, and computes it there once more: of a few
    columns, that is a megabyte of plan, and every record is parsed twice. It doesn't move one on a column that depends
    on the task, and this one says that it does.
    """
    from pyspark.sql import functions as F

    return F.coalesce(problem, F.when(F.spark_partition_id() < 0, "nowhere"))


def _map_of_headers() -> MapType:
    from pyspark.sql.types import BinaryType, MapType, StringType

    return MapType(StringType(), BinaryType())


_NAMES = "reverse(transform(headers, header -> header.key))"
_LAST_OF_EACH = (
    "IF(headers IS NULL, NULL, map_from_entries(filter(headers, "
    f"(header, i) -> array_position({_NAMES}, header.key) = size(headers) - i)))"
)
"""SQL: the headers as a map; of several headers of one name, the last."""


def _of_tombstone(part: StructField, key: Sequence[str], form: Form | None, read: Read | None) -> Column:
    """A key column of a tombstone: decoded as ``form`` says, or guessed from Kafka's key if there is no ``form``."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if form is None or read is None:
        return of_kafkas_key(part, alone=len(key) == 1)
    if isinstance(form.type, StructType):
        return read.field(form.type[part.name]) if part.name in form.type.names else F.lit(None)
    return read.value if len(key) == 1 else F.lit(None)


def _casts(columns: StructType, key: Sequence[str], form: Form) -> dict[str, str]:
    """SQL of the key columns that have another type in Kafka's key than in the value, as the value's: a column has one
    type. Raises ConfigurationError."""
    from pyspark.sql.types import StructField, StructType

    alone = StructType([StructField(each, form.type) for each in key if len(key) == 1])
    sent = form.type if isinstance(form.type, StructType) else alone
    found = {}
    for name in [each for each in columns.names if each in key and each in sent.names]:
        kind, wanted = sent[name].dataType, columns[name].dataType
        if sql_type(kind) != sql_type(wanted):
            value = exact_json.cast(kind, wanted, identifier(_IN_KEY + name))
            if value is None:
                raise ConfigurationError(f"key: {name} has another type than in the value, and no exact cast to it.")
            found[name] = value
    return found


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
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    records = records.drop(PROBLEM, RAW)
    kept = [*COORDINATES, TOMBSTONE, *([LACKS] if LACKS in records.columns else [])]
    _refuse_made(records, sql, kept)
    result = _result(records, sql, kept)
    own = StructType([part for part in result.schema if part.name.lower() not in (_AT, *kept)])
    frame = result.select(
        *(F.col(identifier(name)) for name in own.names),
        *(F.col(f"`{_AT}`.{name}").alias(name) for name in kept),
        F.lit(None).cast("string").alias(PROBLEM),
    )
    return Records(frame, own, several=True)


def _refuse_made(records: DataFrame, sql: str, kept: Sequence[str]) -> None:
    """Raises ConfigurationError if the SELECT makes another column of a name that is Lakelock's own.

    A column has its mark also in the result, if it is selected as it is. What is computed has none.
    """
    from pyspark.sql import functions as F

    for name in kept:
        records = records.withColumn(name, F.col(name).alias(name, metadata={_AT: name}))
    place, *own = _result(records, sql, kept).schema
    for part in (*place.dataType, *own):  # type: ignore[misc]
        name = part.name.lower()
        if name in (*kept, PROBLEM, RAW) and part.metadata.get(_AT) != name:
            raise ConfigurationError(f"transform: {name} is a column of Lakelock's own; give yours another name.")


def _result(records: DataFrame, sql: str, kept: Sequence[str]) -> DataFrame:
    from pyspark.errors import PySparkException

    view = f"audited_{uuid.uuid4().hex}"  # no other thread of the session has it, and Connect looks for it later
    records.createOrReplaceTempView(view)
    head = _select_list(sql)
    named = f"WITH records AS (SELECT * FROM {view})"
    try:
        result = records.sparkSession.sql(f"{named} {sql[:head]} struct({', '.join(kept)}) AS `{_AT}`, {sql[head:]}")
        _ = result.schema  # makes Spark Connect analyse the frame here
    except PySparkException as error:
        said = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"transform: Spark doesn't take it: {said.strip()}") from None
    return result


def _select_list(sql: str) -> int:
    """The index at which the list of a SELECT begins: after the word, and after a hint if there is one."""
    end = 0
    for token in re.finditer(r"--[^\n]*|/\*.*?\*/|\S+?\b", sql, re.DOTALL):
        if end and not token[0].startswith("/*+"):
            break
        if end or token[0].upper() == "SELECT":
            end = token.end()
    return end
