"""Turns Kafka records into columns: those of the value, optionally key and headers, and the coordinates.

A bad record has a problem, ``STRUCT<reason, detail>``. Either the problem fails the query, or the record stays a
separate row with everything that Kafka gave, for the dead letters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from connector.config.own_schema import SCHEMA_NAME
from connector.config.transform_sql import column_words
from connector.decode.debezium import OP
from connector.decode.format import NOTHING, UNKNOWN, Format, problem_of
from connector.decode.tombstone_key import of_tombstone
from connector.decode.unquoted import unquoted
from connector.source.columnar import ODD, PLAIN, PlainValues
from connector.source.records import HEADER_TYPE
from sinks.delta.table import COORDINATES
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem, raise_sql
from sinks.spark.sql import identifier, literal
from sinks.spark.types import is_utf8, sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from connector.decode.own_columns import OwnColumns
    from connector.decode.steps import Steps

KEY = "_key"
HEADERS = "_headers"
TOMBSTONE = "_tombstone"
"""A boolean column, for sinks that take deletes: whether Kafka's value is null, so that the record deletes its key."""
PROBLEM = "_problem"
"""STRUCT<reason: STRING, detail: STRING>, null for a good record. The column exists only with dead letters."""
PROBLEM_TYPE = "STRUCT<reason: STRING, detail: STRING>"
SHOWN = "lakelock shown"
"""The start of the value of the field that is wrong, where a second look at a bad record has found it; else null."""
RAW = "_raw"
"""STRUCT<key: BINARY, value: BINARY, headers: ARRAY<STRUCT<key, value>>>: the record itself, with dead letters."""

ROUTE = "_lakelock_route"
"""STRING, the name of the record's table, where one topic has many; null: it names none."""

CARRIED = (*COORDINATES, TOMBSTONE, PROBLEM, RAW, ROUTE)
"""Columns that aren't the user's, and stay with a record through the transform."""

_RIGHT = "lakelock right"
SHOWN_OF_A_BAD_VALUE = 200
"""Characters."""
_COORDINATES = {name: name.removeprefix("_") for name in COORDINATES}


@dataclass(frozen=True)
class Routing:
    """Which table a record is for. ``by``: SQL over its columns. ``values``: the only ones with a table; None: all."""

    by: str
    values: tuple[str, ...] | None = None
    otherwise: Literal["elsewhere", "problem", "failure"] = "problem"
    """What a record is that names no table: one for somewhere else, a bad one, or the end of the run."""
    never: tuple[str, ...] = ("",)
    """Values that name no table."""

    @property
    def sql(self) -> str:
        """SQL of ``_lakelock_route``."""
        named = f"CAST(({self.by}) AS STRING)"
        # Python would see another text, so that the rows are counted for a table that then takes none of them.
        taken = is_utf8(f"CAST({named} AS BINARY)")
        if self.values is not None:
            taken = f"{named} IN ({', '.join(map(literal, self.values))})"
        return f"CASE WHEN {taken} AND {named} NOT IN ({', '.join(map(literal, self.never))}) THEN {named} END"


@dataclass(frozen=True)
class RecordDecoder:
    """Decodes records.

    ``tombstones`` are the columns that identify the row that a null value deletes. With None a null value is a problem.
    ``require`` is a condition on the columns that must be true. With ``letters`` bad records stay. With ``raw`` the
    record as Kafka gave it is added, even if a problem fails the query. With ``route`` each record names its table.
    ``own``: the columns of records with a schema of their own, each as one more column. ``steps`` change the columns.
    """

    value: Format
    key: Format | None = None
    headers: bool = False
    tombstones: tuple[str, ...] | None = None
    require: str | None = None
    letters: bool = False
    raw: bool = False
    route: Routing | None = None
    own: tuple[OwnColumns, ...] = ()
    steps: Steps | None = None
    quotes: bool = True
    """Whether an error may show the start of a value. A record with sensitive columns is never quoted: where it is
    malformed, nobody knows which of them a text belongs to."""
    names_schema: bool = False
    """Whether ``value`` has the column ``_schema``, which is for ``require`` and ``route`` only."""
    leaves_out: bool = False
    """Whether ``value`` knows records that say nothing of a row. They are left out, as by a filter."""
    spares_deletes: bool = False
    """Whether ``require`` judges Debezium's deletes and truncates only if it asks for the kind of an event."""
    asks_as: str = ""
    """What stands before ``value`` or ``key`` where a query asks for a schema: of several decoders, whose it is."""

    def __call__(self, records: DataFrame) -> DataFrame:
        """Columns: the value's, ``_key``, ``_headers``, ``_tombstone``, the coordinates, ``_problem``, ``_raw``, and
        with a route ``_lakelock_route``."""
        frame = self._decoded_value(records)
        if self.key is not None:
            frame = self.key.decoded(frame, "key", "_of_key")
        frame = frame.selectExpr(*self._columns(), f"{self._problem()} AS {PROBLEM}", f"{_raw(records)} AS {RAW}")
        if self.leaves_out:
            frame = frame.where(f"NOT {PROBLEM}.reason <=> {literal(NOTHING)}")
        if self.require is not None:
            frame = self._ruled(frame, self.require)
        if self.route is not None:
            frame = _routed(frame, self.route)
        if self.names_schema:
            frame = frame.drop(SCHEMA_NAME)
        for own in self.own:
            frame = own.added(frame, self.key)
        if self.steps is not None:
            frame = self.steps.applied(frame)
        if not self.letters:
            frame = _failing(frame, self.value.header, quotes=self.quotes)
        return frame if self.raw else frame.drop(RAW)

    def _decoded_value(self, records: DataFrame) -> DataFrame:
        """The value as ``_of_value``, and its problem. What the columnar reader has decoded isn't decoded again."""
        value, problem = "_of_value", problem_of("_of_value")
        if PLAIN not in records.columns:
            return self.value.decoded(records, "value", value)
        if ODD not in records.columns:
            return self.value.of_plain(records, PLAIN, value)
        odd = records.selectExpr("*", f"CASE WHEN {ODD} THEN value END AS _odd_value")
        both = self.value.of_plain(self.value.decoded(odd, "_odd_value", "_of_odd"), PLAIN, "_of_plain")
        return both.selectExpr(
            *records.columns,
            f"CASE WHEN {ODD} THEN {_only_fields('_of_odd', self.value)} ELSE _of_plain END AS {value}",
            f"CASE WHEN {ODD} THEN {problem_of('_of_odd')} ELSE {problem_of('_of_plain')} END AS {problem}",
        )  # fmt: skip

    def explained(self, bad: DataFrame) -> DataFrame:
        """Bad records with ``_raw``. Their problem names the field that is wrong, if a second look at them finds it.

        One more column: ``_shown``, the start of the field's value, or null.
        """
        shown, details = ["CAST(NULL AS STRING)"], [f"{PROBLEM}.detail"]
        names = bad.columns
        # A record that has a schema of its own is looked at by that one alone.
        of_own = [("value", own.format, f"coalesce({own.mine}, false)") for own in self.own]
        shared = " AND ".join(f"NOT {mine}" for _, _, mine in of_own) or "true"
        of_parts = [(part, format, shared if part == "value" else "true") for part, format in self._parts.items()]
        for number, (part, format, mine) in enumerate([*of_parts, *of_own]):
            fault = f"_fault_{number}"
            looked = format.with_faults(bad, f"{RAW}.{part}", part, fault)
            if looked is not None:
                bad = looked
                of_part = f"CASE WHEN {PROBLEM}.reason = {literal(part)} AND {mine} THEN"
                details.insert(0, f"{of_part} concat('its {part}: ', {fault}.fault) END")
                shown.insert(0, f"{of_part} {fault}.shown END" if self.quotes else "CAST(NULL AS STRING)")
        told = f"named_struct('reason', {PROBLEM}.reason, 'detail', coalesce({', '.join(details)})) AS {PROBLEM}"
        kept = (told if name == PROBLEM else identifier(name) for name in names)
        return bad.selectExpr(*kept, f"coalesce({', '.join(shown)}) AS {identifier(SHOWN)}")

    def named(self, records: DataFrame, *, whatever: bool = False) -> DataFrame:
        """Of records without a problem the ``value``, and the table that it names by a route; ``whatever``: also by a
        value that gets none."""
        route = replace(self.route, values=None) if self.route is not None and whatever else self.route
        every = replace(self, own=(), steps=None, letters=True, raw=True, route=route)(records)
        return every.where(f"{PROBLEM} IS NULL").selectExpr(ROUTE, f"{RAW}.value AS value")

    @property
    def comments(self) -> Mapping[str, str]:
        """Column -> the comment that the schema of the values has for it. Empty with steps, which make columns."""
        return self.value.comments if self.steps is None else {}

    @property
    def keeps_truncates(self) -> bool:
        """Whether a filter leaves no truncate out that another decoder of the same file keeps."""
        return self.steps is None or self.steps.truncates != "false"

    @property
    def plain(self) -> PlainValues | None:
        """What the columnar reader may decode in place of this decoder."""
        return self.value.plain

    def header(self, part: str) -> int:
        """The number of bytes before the text of a value or a key."""
        format = self._parts.get(part)
        return format.header if format is not None else 0

    @property
    def _parts(self) -> Mapping[str, Format]:
        return {"value": self.value, "key": self.key} if self.key is not None else {"value": self.value}

    @property
    def _formats(self) -> Mapping[str, Format]:
        """By what a schema to ask for says that they read."""
        return {**self._parts, **{own.part: own.format for own in self.own}}

    def begin_epoch(self) -> None:
        """Say that what is decoded from now on is of another epoch."""
        for format in self._formats.values():
            format.begin_epoch()

    def resolve(self, part: str, schema_id: str, records: DataFrame) -> bool:
        """Request a schema, or learn it from ``records``. Then the query that failed for it can run again.

        Returns whether there are more columns now.
        """
        format = self._formats[part]
        before = format.type
        format.resolve([schema_id], records.selectExpr(f"{part if part in self._parts else 'value'} AS bytes"))
        return format.type != before

    def _columns(self) -> list[str]:
        of_key = of_tombstone(self.value, self.key, self.tombstones or (), "_of_key", "key")
        columns = columns_of(self.value, "_of_value", "value", of_key)
        selected = [f"{sql} AS {identifier(name)}" for name, sql in columns.items()]
        if self.key is not None:
            selected.append(f"{_only_fields('_of_key', self.key)} AS {KEY}")
        if self.headers:
            # As in Kafka's own clients: if a name appears twice, the last header counts.
            later = "exists(slice(headers, i + 2, size(headers)), later -> later.key = each.key)"
            last = f"map_from_entries(filter(headers, (each, i) -> NOT {later}))"
            selected.append(f"CASE WHEN headers IS NOT NULL THEN {last} END AS {HEADERS}")
        if self.tombstones is not None:
            selected.append(f"value IS NULL AS {TOMBSTONE}")
        return selected + [f"{kafkas} AS {name}" for name, kafkas in _COORDINATES.items()]

    def _problem(self) -> str:
        """SQL of ``_problem``: what is wrong with the value or the key.

        Spark can't tell that it depends only on the record, so it moves no filter before it. A filter over decoded
        columns that was moved would decode every record again, once for each column that it uses.
        """
        whens = ["WHEN spark_partition_id() < 0 THEN NULL"]
        if self.tombstones is None:
            whens.append(f"WHEN value IS NULL THEN {told('tombstone', 'has no value (a tombstone)')}")
        if self.leaves_out:  # whatever its key is
            whens.append(f"WHEN {problem_of('_of_value')} = {literal(NOTHING)} THEN {told(NOTHING, '')}")
        whens += [self._problem_with(part, format) for part, format in self._parts.items()]
        return f"CASE {' '.join(whens)} END"

    def _problem_with(self, part: str, format: Format) -> str:
        wrong = problem_of(f"_of_{part}")
        said = wrong if self.quotes else unquoted(wrong, list(fields_of(format)))
        return problem_with(part, wrong, part, asks_for=f"{self.asks_as}{part}", said=said)

    def _ruled(self, frame: DataFrame, require: str) -> DataFrame:
        from pyspark.sql.types import BooleanType

        hint = 'Write a condition over the columns of a record, as in "amount >= 0".'
        kind = type_of(frame, "require", require, hint)
        if not isinstance(kind, BooleanType):
            raise ConfigurationError(f"require: {require!r} is {sql_type(kind).upper()}, not BOOLEAN.")
        obeyed = obeys(frame.columns, require, spares_deletes=self.spares_deletes)
        broken = told("rule", f"breaks the rule {require}")
        return also(frame, f"CASE WHEN ({obeyed}) IS NOT TRUE THEN {broken} END")


def obeys(columns: Collection[str], rule: str, *, spares_deletes: bool) -> str:
    """SQL: whether a record with these columns obeys the rule. Debezium's deletes have few values and its truncates
    none, so where they delete rows, they aren't judged by a rule that doesn't ask what an event does."""
    always = [TOMBSTONE] if TOMBSTONE in columns else []
    if spares_deletes and OP in columns and OP not in {word.lower() for word in column_words(rule)}:
        always.append(f"coalesce({OP} IN ('d', 't'), false)")
    return " OR ".join([*always, f"({rule})"])


def columns_of(format: Format, read: str, sent: str, of_key: Mapping[str, str]) -> dict[str, str]:
    """SQL of each column of a value that is decoded as ``read``. ``sent``: SQL of its bytes; where they are null, a
    tombstone's columns are those of ``of_tombstone``, ``of_key``."""
    columns = {name: f"{read}{path}" for name, path in fields_of(format).items()}
    for name in columns.keys() & of_key.keys():
        columns[name] = f"CASE WHEN {sent} IS NULL THEN {of_key[name]} ELSE {columns[name]} END"
    return columns


def problem_with(part: str, wrong: str, sent: str, *, asks_for: str, said: str | None = None) -> str:
    """SQL of the WHENs of ``_problem`` for a value or key. ``wrong``: what its format says, and ``said``, if not all of
    it is to be said; ``sent``: SQL of its bytes.

    A problem that asks for a schema ends the query, and says for what, ``asks_for``.
    """
    schema_id = f"substring({wrong}, {len(UNKNOWN) + 1})"
    asked = raise_sql("unknown_schema", part=literal(asks_for), id=schema_id)
    detail = f"named_struct('reason', '{part}', 'detail', concat('its {part}: ', {said or wrong}))"
    return (
        f"WHEN startswith({wrong}, {literal(UNKNOWN)}) THEN {asked} "
        f"WHEN {sent} IS NOT NULL AND {wrong} IS NOT NULL THEN {detail}"
    )


def fields_of(format: Format) -> Mapping[str, str]:
    """Column -> its path in a decoded value. A value without fields is one column, ``value``."""
    from pyspark.sql.types import StructType

    kind = format.type
    return {name: f".{identifier(name)}" for name in kind.names} if isinstance(kind, StructType) else {"value": ""}


def _only_fields(value: str, format: Format) -> str:
    """SQL of a decoded value, without a STRUCT's extra fields."""
    from pyspark.sql.types import StructType

    if not isinstance(format.type, StructType):
        return value
    pairs = ", ".join(f"{literal(name)}, {value}{path}" for name, path in fields_of(format).items())
    return f"CASE WHEN {value} IS NOT NULL THEN named_struct({pairs}) END"


def told(reason: str, detail: str) -> str:
    """SQL of a problem, with its reason and details."""
    return f"named_struct('reason', {literal(reason)}, 'detail', {literal(detail)})"


def _raw(records: DataFrame) -> str:
    headers = "headers" if "headers" in records.columns else f"CAST(NULL AS {HEADER_TYPE})"
    return f"named_struct('key', key, 'value', value, 'headers', {headers})"


def _routed(frame: DataFrame, route: Routing) -> DataFrame:
    """The frame with ``_lakelock_route``. Raises ConfigurationError if Spark doesn't take the expression."""
    from pyspark.sql.types import AtomicType

    hint = "Write an expression over the columns of a record, as in event_type, or CAST(_headers['type'] AS STRING) "
    hint += f"with headers: true. {SCHEMA_NAME} needs value: {{format: avro}} with Confluent's registry."
    kind = type_of(frame, "route.by", route.by, hint)
    if not isinstance(kind, AtomicType):
        raise ConfigurationError(f"route.by: {route.by!r} is {sql_type(kind).upper()}, and has to be one value.")
    named = frame.selectExpr("*", f"CASE WHEN {PROBLEM} IS NULL THEN {route.sql} END AS {ROUTE}")
    if route.otherwise == "elsewhere":
        return named
    detail = f"names no table: route.by ({route.by}) is null, not one of route.values, or no UTF-8 text"
    at_fault = told("route", detail)
    if route.otherwise == "failure":
        at_fault = raise_sql(
            "bad_record", topic="_topic", partition="_partition", offset="_offset", reason="'route'",
            detail=literal(detail),
        )  # fmt: skip
    return also(named, f"CASE WHEN {ROUTE} IS NULL THEN {at_fault} END")


def type_of(frame: DataFrame, option: str, sql: str, hint: str) -> DataType:
    """The type of a user's expression over a record's columns. Raises ConfigurationError if Spark doesn't take it."""
    from pyspark.errors import PySparkException

    try:
        return frame.drop(PROBLEM, RAW).selectExpr(f"({sql}) AS found").schema["found"].dataType
    except PySparkException as error:
        raise ConfigurationError(f"{option}: Spark doesn't take {sql!r}: {problem(error)}", hint=hint) from None


def also(frame: DataFrame, wrong: str) -> DataFrame:
    """The frame, of which records without a problem so far have this one. ``wrong``: SQL of ``_problem``."""
    found = f"coalesce({PROBLEM}, {wrong}) AS {PROBLEM}"
    return frame.selectExpr(*(found if name == PROBLEM else identifier(name) for name in frame.columns))


def _failing(frame: DataFrame, header: int, *, quotes: bool) -> DataFrame:
    """Fail the query at a problem, whichever columns it uses. ``header``: bytes of a value that nobody can read."""
    value = f"{RAW}.value"
    if header:
        value = f"IF(startswith({value}, X'00'), substring({value}, {header + 1}), {value})"
    columns = [name for name in frame.columns if name != PROBLEM]
    start = {"value": f"substring(CAST({value} AS STRING), 1, {SHOWN_OF_A_BAD_VALUE})"} if quotes else {}
    bad = raise_sql(
        "bad_record", topic="_topic", partition="_partition", offset="_offset", reason=f"{PROBLEM}.reason",
        detail=f"{PROBLEM}.detail", **start,
    )  # fmt: skip
    checked = frame.selectExpr("*", f"CASE WHEN {PROBLEM} IS NULL THEN true ELSE {bad} END AS {identifier(_RIGHT)}")
    return checked.selectExpr(
        *(f"CASE WHEN {identifier(_RIGHT)} THEN {identifier(name)} END AS {identifier(name)}" for name in columns)
    )


def refuse_tombstones(rows: DataFrame) -> DataFrame:
    """``rows`` without ``_tombstone``. A tombstone fails the query, with its coordinates."""
    bad = raise_sql(
        "bad_record", topic="_topic", partition="_partition", offset="_offset", reason="'tombstone'",
        detail="'has no value (a tombstone)'",
    )  # fmt: skip
    checked = f"CASE WHEN {TOMBSTONE} THEN {bad} ELSE _offset END AS _offset"
    names = (name for name in rows.columns if name != TOMBSTONE)
    return rows.selectExpr(*(checked if name == "_offset" else identifier(name) for name in names))
