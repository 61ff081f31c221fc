"""Records as changes to the rows of a key: what each one is (update, delete, truncate) and where in the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connector.config import COORDINATES, DeltaHistorySink, DeltaUpsertSink, KeyedSink
from connector.config.transform_sql import column_words
from connector.config.unavailable import UNAVAILABLE
from connector.decode.debezium import METADATA, OP
from connector.decode.records import CARRIED, TOMBSTONE, told
from connector.derive.sequence import has_null, named_twice
from sinks.delta.recorded_columns import SYSTEM
from sinks.delta.upsert_rule import key_sql
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem, raise_sql
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


OF_ONE_TABLE = (
    "is a truncate of one table, and the rows are of several topics. Write apply_as_truncates: 'false' if it is to "
    f"delete none of them. With sequence_by, {OP} = 't' lets it delete all of them"
)


def changes(records: DataFrame, sink: KeyedSink) -> DataFrame:
    """The table's columns, the coordinates, then

    * ``_sequence``, with ``sequence_by`` only: changes are ordered by (_sequence, _topic, _partition, _offset), else by
      ``_offset``, within the one partition that a key must stay in;
    * ``_system_sequence``, in a bitemporal history only: when the change was recorded;
    * ``_delete`` and ``_truncate``, booleans, never null;
    * ``_unavailable``, if the records have it: the names of the columns that an update leaves as they are.

    A null in the key, or anywhere in a sequence, fails the query with the record's coordinates: it could never win or
    lose.
    """
    from pyspark.sql import functions as F

    if (over := passed_over(sink, records.columns)) != "false":
        records = records.where(f"NOT {over}")
    deleting, recorded = f"coalesce({_deletes(sink, records.columns)}, false)", recorded_by(sink)
    marked = records.selectExpr(
        "*",
        *([f"({sink.sequence_by}) AS _sequence"] if sink.sequence_by else []),
        *([f"({recorded}) AS {SYSTEM}"] if recorded is not None else []),
        f"{TOMBSTONE} OR {deleting} AS _delete",
        f"{truncates(sink, records.columns)} AS _truncate",
    )
    no_key = no_row(sink, records.columns)
    where = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    columns, of_one = literal(", ".join(sink.key)), of_one_table(sink, records.columns)
    null_key = raise_sql(
        "null_key", key=key_sql(sink.key), columns=columns, tombstone=TOMBSTONE, truncate=of_one, **where
    )
    by = literal(sink.sequence_by or "")
    null_sequence = raise_sql("null_sequence", key=key_sql(sink.key), by=by, tombstone=TOMBSTONE, **where)
    checks = f"WHEN NOT _truncate AND ({no_key}) THEN {null_key} "
    if sink.sequence_by:
        checks += f"WHEN {has_null('_sequence', marked.schema['_sequence'].dataType)} THEN {null_sequence} "
    if recorded is not None:
        null_system = raise_sql("null_system_sequence", key=key_sql(sink.key), tombstone=TOMBSTONE, **where)
        checks += f"WHEN {has_null(SYSTEM, marked.schema[SYSTEM].dataType)} THEN {null_system} "
    # The check replaces a column that every row needs: the optimizer can't drop it.
    checked = marked.withColumn("_offset", F.expr(f"CASE {checks}ELSE _offset END"))
    added = [*(["_sequence"] if sink.sequence_by else []), *([SYSTEM] if recorded is not None else [])]
    added += ["_delete", "_truncate"]
    added += [UNAVAILABLE] if UNAVAILABLE in records.columns else []
    return checked.select(*(identifier(name) for name in (*table_columns(records.columns, sink), *COORDINATES, *added)))


def problem_with(records: DataFrame, sink: KeyedSink) -> str:
    """SQL of ``_problem``: why a record can't be a change of this sink's, null where it can. ``records``: none."""

    def none(sequence: str) -> str:
        kind = records.selectExpr("*", f"({sequence}) AS found").schema[-1].dataType
        return has_null(f"({sequence})", kind)

    no_key = told("no_key", f"has a null in its key {', '.join(sink.key)}")
    over = passed_over(sink, records.columns)
    needed = f"NOT {over} AND " if over != "false" else ""
    bad = f"{needed}NOT {truncates(sink, records.columns)} AND ({no_row(sink, records.columns)})"
    whens = f"WHEN {bad} THEN {no_key}"
    if (of_one := of_one_table(sink, records.columns)) != "false":
        whens = f"WHEN {bad} AND {of_one} THEN {told('no_key', OF_ONE_TABLE)} {whens}"
    if sink.sequence_by:
        no_sequence = told("no_sequence", "has no sequence (sequence_by is null, or has a null in it)")
        whens += f" WHEN {needed}({none(sink.sequence_by)}) THEN {no_sequence}"
    if (recorded := recorded_by(sink)) is not None:
        no_system = told("no_sequence", "has no recorded time (system_sequence_by is null, or has a null in it)")
        whens += f" WHEN {needed}({none(recorded)}) THEN {no_system}"
    return f"CASE {whens} END"


def recorded_by(sink: KeyedSink) -> str | None:
    """SQL of when a change was recorded. None: the table doesn't keep it."""
    return sink.recorded_by if isinstance(sink, DeltaHistorySink) else None


def _deletes(sink: KeyedSink, columns: Sequence[str]) -> str:
    """What the database says of a change counts, unless the file says something else."""
    return sink.apply_as_deletes or (f"{OP} = 'd'" if OP in columns else "false")


def updates(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether a record's values become those of a row. ``columns``: those of the decoded records."""
    return f"NOT {deletes(sink, columns)}"


def deletes(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether a record deletes rows, or says nothing of the table."""
    others = (f"coalesce({_deletes(sink, columns)}, false)", truncates(sink, columns), passed_over(sink, columns))
    return f"({' OR '.join((TOMBSTONE, *(each for each in others if each != 'false')))})"


def is_sent(column: str) -> str:
    """SQL over records or changes with ``_unavailable``: whether one has a value for a column. It may be null.

    A transform may write the column's name in another case than the record, whose array has the record's.
    """
    names = f"transform({UNAVAILABLE}, name -> lower(name))"
    return f"NOT coalesce(array_contains({names}, lower({literal(column)})), false)"


def _refuse_other_unavailable(records: DataFrame) -> None:
    made = sql_type(records.schema[UNAVAILABLE].dataType).upper() if UNAVAILABLE in records.columns else ""
    if made and made != "ARRAY<STRING>":
        raise ConfigurationError(
            f"transform: {UNAVAILABLE} is {made}, and has to be ARRAY<STRING>, the names of the columns that the "
            "database didn't send."
        )


def truncates(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether a record deletes all older rows. ``columns``: those of the decoded records.

    Of Debezium's truncates, those of a table with ``deletes: soft``, of a bitemporal history, and of an order that
    begins with offsets are bad records, whatever a step has made of their key. So are those of several topics, unless
    the file says what they are to delete: each is of one table, and rows don't tell of which table they were.
    """
    condition = sink.apply_as_truncates
    soft = isinstance(sink, DeltaUpsertSink) and sink.deletes == "soft"
    takes = not sink.by_offset and not soft and recorded_by(sink) is None and not sink.several_topics
    if condition is None and OP in columns and takes:
        condition = f"{OP} = 't'"
    if condition is None or condition == "false":
        return "false"
    return f"(NOT {TOMBSTONE} AND coalesce({condition}, false))"


def of_one_table(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether a record is one of Debezium's truncates that could only delete the rows of all topics."""
    several = OP in columns and sink.several_topics and sink.apply_as_truncates is None
    return f"coalesce({OP} = 't', false)" if several else "false"


def no_row(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether a record that deletes no older rows is no row either: it lacks a key, or is Debezium's truncate."""
    is_truncate = f" OR (NOT {TOMBSTONE} AND coalesce({OP} = 't', false))" if OP in columns else ""
    return f"{_no_key(sink)}{is_truncate}"


def passed_over(sink: KeyedSink, columns: Sequence[str]) -> str:
    """SQL: whether one of Debezium's records says nothing of the table. ``columns``: those of the decoded records."""
    if OP not in columns:
        return "false"
    # The delete before a tombstone said the same, and where it stands in the order.
    over = [TOMBSTONE] if sink.sequence_by is not None else []
    # The file says that truncates are to delete nothing.
    over += [f"coalesce({OP} = 't', false)"] if sink.apply_as_truncates == "false" else []
    return f"({' OR '.join(over)})" if over else "false"


def _no_key(sink: KeyedSink) -> str:
    return " OR ".join(f"{identifier(column)} IS NULL" for column in sink.key)


def table_columns(columns: list[str], sink: KeyedSink) -> list[str]:
    """Those of the decoded columns that the table has, without the coordinates."""
    if sink.column_list is not None:
        return [name for name in columns if name in sink.column_list]
    own = [name for name in columns if name not in (*CARRIED, *METADATA)]
    return [name for name in own if name not in (sink.except_column_list or ())]


def check_expressions(records: DataFrame, sink: KeyedSink) -> None:
    """Raises ConfigurationError where Spark doesn't take an expression, or it gives what can't order or decide."""
    _refuse_other_unavailable(records)
    from pyspark.errors import PySparkException
    from pyspark.sql.types import ArrayType, AtomicType, BooleanType, DataType, MapType, StructType

    def kind(option: str) -> DataType | None:
        expression = getattr(sink, option, None)
        if expression is None:
            return None
        try:
            # With the other columns, as it will be used: an aggregate isn't one value per record.
            return records.selectExpr("*", f"({expression}) AS found").schema[-1].dataType
        except PySparkException as error:
            raise ConfigurationError(
                f"{sink.option(option)}: Spark doesn't take {expression!r}: {problem(error)}",
                hint="Write an expression over the record's columns, and _topic, _partition, _offset, _timestamp.",
            ) from None

    def can_be_ordered(of: DataType) -> bool:
        if isinstance(of, ArrayType):
            return can_be_ordered(of.elementType)
        if isinstance(of, StructType):
            return all(can_be_ordered(field.dataType) for field in of)
        return isinstance(of, AtomicType) and not isinstance(of, MapType) and of.simpleString() != "variant"

    given = sink.apply_as_deletes or "false"
    if OP in records.columns and given != "false" and OP not in {word.lower() for word in column_words(given)}:
        raise ConfigurationError(
            f"{sink.option('apply_as_deletes')}: {sink.apply_as_deletes!r} doesn't say what becomes of the rows that "
            f"the database deletes ({OP} = 'd').",
            hint=f"Write {OP} = 'd' OR ({sink.apply_as_deletes}). To keep such rows, write {OP} <> 'd' AND (...).",
        )
    for option in ("sequence_by", "system_sequence_by"):
        found = kind(option)
        if found is not None and not can_be_ordered(found):
            raise ConfigurationError(
                f"{sink.option(option)}: {getattr(sink, option)!r} is {found.simpleString().upper()}, "
                "which has no order.",
                hint="Give a number, a text, a date or a timestamp that grows with each change of a key.",
            )
        if found is not None and (twice := named_twice(found)):
            raise ConfigurationError(
                f"{sink.option(option)}: {getattr(sink, option)!r} has several fields called {twice}.",
                hint="Name each: struct(a.at AS first, b.at AS second).",
            )
    for option in ("apply_as_deletes", "apply_as_truncates"):
        if (found := kind(option)) is not None and not isinstance(found, BooleanType):
            raise ConfigurationError(
                f"{sink.option(option)}: {getattr(sink, option)!r} is {found.simpleString().upper()}, not BOOLEAN.",
                hint="Write a condition, as in \"op = 'delete'\".",
            )
