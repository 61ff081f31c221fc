"""Carries out the option ``steps``: each step is one selection over the columns that the step before it has left.

``planned`` makes the selections from names and types alone, so that a wrong step stops the run before it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS, Step
from connector.config.nearest import did_you_mean
from connector.decode.debezium import OP
from connector.decode.exact_cast import as_text, exactly
from connector.decode.mask import hashed, key_of_mask
from connector.decode.records import CARRIED, KEY, PROBLEM, RAW, TOMBSTONE, also, told, type_of
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier, literal
from sinks.spark.types import is_utf8, sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_OF_A_FILTER = 'Write a condition over the columns before this step, of one record alone, as in "amount > 0".'
Kinds = Mapping[str, "DataType"]
"""Column -> type."""


@dataclass(frozen=True)
class Made:
    """A column after a step: its type, its SQL over the columns before, and SQL that is true where a record is bad."""

    name: str
    kind: DataType
    sql: str
    wrong: str = "false"
    detail: str = ""


@dataclass(frozen=True)
class Selection:
    """What a step makes of the columns before it."""

    at: str
    """The step, for messages."""
    columns: Sequence[Made]
    where: str | None = None
    """SQL: which records stay. None: all."""
    salt: str | None = field(default=None, repr=False)

    @property
    def problem(self) -> str | None:
        """SQL of ``_problem``, over the columns before. None: no record can be bad."""
        bad = [f"WHEN {made.wrong} THEN {told('step', made.detail)}" for made in self.columns if made.detail]
        return f"CASE {' '.join(bad)} END" if bad else None


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a pipeline file.

    ``truncates``: SQL over a record's columns, whether a filter keeps Debezium's truncates.
    """

    steps: Sequence[Step]
    truncates: str

    def applied(self, frame: DataFrame) -> DataFrame:
        """Decoded records, after the steps. A record for which a step fails has a ``_problem``, and stays.

        Raises ConfigurationError.
        """
        kinds = {field.name: field.dataType for field in frame.schema if field.name not in CARRIED}
        for selection in planned(self.steps, kinds):
            frame = _selected(frame, selection, self.truncates)
        return frame


def _selected(frame: DataFrame, selection: Selection, truncates: str) -> DataFrame:
    if selection.where is not None:
        return _filtered(frame, selection.at, selection.where, truncates)
    if selection.salt is not None:
        key_of_mask(frame.sparkSession, selection.salt)
    if selection.problem is not None:
        frame = also(frame, selection.problem)
    carried = (identifier(name) for name in frame.columns if name in CARRIED)
    return frame.selectExpr(*(f"{made.sql} AS {identifier(made.name)}" for made in selection.columns), *carried)


def _filtered(frame: DataFrame, at: str, condition: str, truncates: str) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import BooleanType

    kind = type_of(frame, at, condition, _OF_A_FILTER)
    if not isinstance(kind, BooleanType):
        raise ConfigurationError(f"{at}: {condition!r} is {sql_type(kind).upper()}, not BOOLEAN.")
    try:
        kept = frame.where(stays(frame.columns, condition, truncates))
        _ = kept.schema  # makes Spark Connect analyse the frame here
    except PySparkException as error:
        raise ConfigurationError(f"{at}: Spark doesn't take it: {problem(error)}", hint=_OF_A_FILTER) from None
    return kept


def stays(columns: Collection[str], condition: str, truncates: str) -> str:
    """SQL: whether a filter keeps a record with these columns. Bad records and deletes have few values, so they aren't
    judged by them, nor are ``truncates``, where their sink takes them."""
    always = [f"{PROBLEM} IS NOT NULL"]
    always += [TOMBSTONE] if TOMBSTONE in columns else []
    always += [f"coalesce({OP} = 'd' OR ({OP} = 't' AND {truncates}), false)"] if OP in columns else []
    return f"{' OR '.join(always)} OR ({condition})"


def planned(steps: Sequence[Step], kinds: Kinds) -> Iterator[Selection]:
    """One selection for each step over columns of these ``kinds``. Raises ConfigurationError for a column that isn't
    there, two columns of one name, and a type that the step doesn't take."""
    for index, step in enumerate(steps):
        at = f"steps[{index}].{step.kind}"
        for name in step.takes:
            _refuse_unknown(name, kinds, at)
        if step.filter is not None:
            yield Selection(at, (), where=step.filter)
            continue
        columns = list(_MAKE[step.kind](step, kinds, at))
        _refuse_names(columns, kinds, at)
        yield Selection(at, columns, salt=step.salt.get_secret_value() if step.salt is not None else None)
        kinds = {made.name: made.kind for made in columns}


def _refuse_unknown(name: str, kinds: Kinds, at: str) -> None:
    own = name in OWN_COLUMNS and name != KEY
    if own or name not in kinds:
        why = "is a column of Lakelock's own" if own else f"isn't a column here{did_you_mean(name, kinds)}"
        there = ", ".join(each for each in kinds if each not in OWN_COLUMNS or each == KEY)
        raise ConfigurationError(f"{at}: {name} {why}.", hint=f"The columns before this step are {there or 'none'}.")


def _refuse_names(columns: Sequence[Made], kinds: Kinds, at: str) -> None:
    names = [made.name.lower() for made in columns]
    for made in reversed(columns):
        if names.count(made.name.lower()) > 1:
            raise ConfigurationError(f"{at}: column {made.name} is there twice (upper and lower case are the same).")
        if made.name not in kinds and made.name.lower() in OWN_COLUMNS:
            raise ConfigurationError(f"{at}: {made.name} is a column of Lakelock's own; give it another name.")
    if not columns:
        raise ConfigurationError(f"{at}: leaves no column.")


def _as_it_is(name: str, kinds: Kinds) -> Made:
    return Made(name, kinds[name], identifier(name))


def _renamed(step: Step, kinds: Kinds, _: str) -> Iterator[Made]:
    yield from (Made(step.option.get(name, name), kind, identifier(name)) for name, kind in kinds.items())


def _dropped(step: Step, kinds: Kinds, _: str) -> Iterator[Made]:
    yield from (_as_it_is(name, kinds) for name in kinds if name not in step.option)


def _changed(
    one: Callable[[Step, str, DataType, str], Iterator[Made]], step: Step, kinds: Kinds, at: str
) -> Iterator[Made]:
    """The columns that a step names, each in its place as ``one`` makes it, and the others as they are."""
    for name, kind in kinds.items():
        yield from one(step, name, kind, at) if name in step.option else [_as_it_is(name, kinds)]


def _masked(step: Step, name: str, kind: DataType, at: str) -> Iterator[Made]:
    from pyspark.sql import types as T

    taken = (T.StringType, T.BinaryType, T.IntegralType, T.DecimalType, T.BooleanType, T.DateType)
    if not isinstance(kind, taken):
        raise ConfigurationError(
            f"{at}: {name} is {sql_type(kind).upper()}, whose values have no one text to hash.",
            hint="Flatten a STRUCT, drop the column, or give it as text by a transform of an earlier pipeline.",
        )
    assert step.salt is not None
    text = identifier(name) if isinstance(kind, T.BinaryType) else as_text(identifier(name))
    yield Made(name, T.StringType(), hashed(f"CAST({text} AS BINARY)", step.salt.get_secret_value()))


def _flat(_: Step, name: str, kind: DataType, at: str) -> Iterator[Made]:
    from pyspark.sql.types import StructType

    def fields(prefix: str, of: StructType, path: str) -> Iterator[Made]:
        for part in of:
            column, sql = f"{prefix}_{part.name}", f"{path}.{identifier(part.name)}"
            if isinstance(part.dataType, StructType):
                yield from fields(column, part.dataType, sql)
            else:
                yield Made(column, part.dataType, sql)

    if not isinstance(kind, StructType):
        raise ConfigurationError(f"{at}: {name} is {sql_type(kind).upper()}, and has to be a STRUCT.")
    yield from fields(name, kind, identifier(name))


def _cast(step: Step, name: str, kind: DataType, at: str) -> Iterator[Made]:
    wanted = type_named(step.option[name])
    value = exactly(kind, wanted, identifier(name))
    if value is None:
        raise ConfigurationError(
            f"{at}: {name} is {sql_type(kind).upper()}, and has no exact {step.option[name]}.",
            hint="A cast goes from text to any type, from a number to a number, and from a number, a boolean or a date "
            "to text. Use a transform for what depends on a time zone, or loses something.",
        )
    wrong = f"{identifier(name)} IS NOT NULL AND {value} IS NULL"
    yield Made(name, wanted, value, wrong, f"its {name} can't be cast to {step.option[name]} exactly ({at})")


def _of_headers(step: Step, kinds: Kinds, at: str) -> Iterator[Made]:
    from pyspark.sql.types import StringType

    yield from (_as_it_is(name, kinds) for name in kinds)
    for name, header in step.option.items():
        bytes_ = f"try_element_at(filter({RAW}.headers, _header -> _header.key = {literal(header)}), -1).value"
        wrong = f"NOT {is_utf8(bytes_)}"
        yield Made(
            name, StringType(), f"CAST({bytes_} AS STRING)", wrong, f"its header {header} is no UTF-8 text ({at})"
        )


def _added(step: Step, kinds: Kinds, _: str) -> Iterator[Made]:
    from pyspark.sql import types as T

    yield from (_as_it_is(name, kinds) for name in kinds)
    for name, value in step.option.items():
        if isinstance(value, bool):
            yield Made(name, T.BooleanType(), str(value).lower())
        elif isinstance(value, int | float):
            kind = T.LongType() if isinstance(value, int) else T.DoubleType()
            yield Made(name, kind, f"CAST('{value!r}' AS {sql_type(kind)})")
        else:
            yield Made(name, T.StringType(), literal(value))


_MAKE: Mapping[str, Callable[[Step, Kinds, str], Iterator[Made]]] = {
    "rename": _renamed,
    "drop": _dropped,
    "mask": partial(_changed, _masked),
    "flatten": partial(_changed, _flat),
    "cast": partial(_changed, _cast),
    "header": _of_headers,
    "add": _added,
}


def type_named(text: str) -> DataType:
    """The type that ``cast`` names."""
    from pyspark.sql import types as T

    if text.startswith("DECIMAL"):
        digits, scale = text.removeprefix("DECIMAL(").rstrip(")").split(",")
        return T.DecimalType(int(digits), int(scale))
    named = (
        T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.StringType,
        T.DateType, T.TimestampType, T.TimestampNTZType,
    )  # fmt: skip
    return next(kind() for kind in named if kind().simpleString().upper() == text)
