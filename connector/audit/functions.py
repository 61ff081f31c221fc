"""The aggregates of a delta_aggregate sink, computed a second time by plain functions of Spark SQL over all records.

Sums and averages are exact: floating-point numbers are added up as decimals, too. Variances and sketches are compared
within the tolerance that their definition leaves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.errors import ConfigurationError
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_ULPS = "1e-15D"
"""The relative error allowed of exact results that are shown as floating-point numbers, or divided."""
_CLOSE = "1e-9D"
"""The relative error allowed of results that are computed in floating point."""
_ROUNDED = "5e-10D"
"""What each floating-point number adds to the magnitude: the pipeline adds it up rounded to 18 decimal places."""
_DISTINCT = "CASE WHEN {0} < 10 THEN 0D WHEN {0} <= 300 THEN 1D ELSE 0.1D * {0} END"
"""The error allowed of approximate counts. Up to 384 values the sketch keeps the hash of each, and at most a few share
one. Beyond, its standard error is up to 1.6 %: among many groups that are right, some are four times that off."""
_OF_DOUBLES = "DECIMAL(38, 18)"
"""What floating-point numbers are added up as."""
_RANKS = 0.03
_VALUES = "0.011D"
"""Percentiles may lie between the exact values of ranks this much lower and higher, with a relative error of 1.1 %."""

_INFINITE = "DOUBLE('Infinity')"
"""NaN isn't less than this either."""

_COORDINATES = "_topic, _partition, _offset"
_AS_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of to_json with which equal values have the same text in every session."""


@dataclass(frozen=True)
class Recomputed:
    """One aggregate of the sink, as SQL that computes it again and compares it with the table."""

    name: str
    arguments: Mapping[str, str]
    """SQL over the record's columns, by the names that ``aggregates`` uses."""
    aggregates: Mapping[str, Column]
    """Aggregate expressions over the arguments, by the names that ``equal`` uses."""
    equal: str
    """SQL: whether r_``name``, the table's value, is right. Null counts as no."""


def recomputed(
    text: str, name: str, *, option: str, own: Set[str], records: DataFrame, several: bool = False
) -> Recomputed | None:
    """How to compute the aggregate ``text`` again, as in ``sum(dep_delay)``.

    None if it is one of the user's ``own``.

    ``name``: its column. ``option``: where it is in the pipeline file, for messages. ``several``: whether a record may
    make several rows. Raises ConfigurationError.
    """
    from pyspark.errors import PySparkException

    function, arguments = _call(text, option)
    if function in own:
        return None
    try:
        make = _at(_AT[function], several=several) if function in _AT else _FUNCTIONS[function]
        return make(records, name, *arguments)
    except KeyError:
        raise ConfigurationError(f"{option}: the auditor doesn't know {function!r}.") from None
    except (TypeError, ValueError):
        raise ConfigurationError(f"{option}: {text!r} doesn't have the arguments of {function}.") from None
    except PySparkException as error:
        problem = next(line for line in str(error).splitlines() if line.strip())
        raise ConfigurationError(f"{option}: Spark doesn't take {text!r}: {problem.strip()}") from None


def _call(text: str, option: str) -> tuple[str, list[str]]:
    match = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if match is None:
        raise ConfigurationError(f"{option}: {text!r} isn't an aggregate, such as count(*) or sum(amount).")
    arguments, depth = [""], 0
    for piece in re.findall(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|.", match[2], re.DOTALL):
        depth += (piece in ("(", "[")) - (piece in (")", "]"))
        if piece == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += piece
    return match[1].lower(), [argument.strip() for argument in arguments]


def _type(records: DataFrame, sql: str) -> DataType:
    return records.selectExpr(f"{sql} AS x").schema[0].dataType


def _exactly(name: str, arguments: Mapping[str, str], sql: str) -> Recomputed:
    from pyspark.sql import functions as F

    return Recomputed(name, arguments, {f"e_{name}": F.expr(sql)}, f"r_{name} <=> e_{name}")


def _closely(name: str, arguments: Mapping[str, str], sql: str, *, size: str) -> Recomputed:
    """Equal within a relative error. ``size``: SQL of the magnitude it is relative to."""
    from pyspark.sql import functions as F

    return Recomputed(
        name,
        arguments,
        {f"e_{name}": F.expr(sql), f"e_{name}_size": F.expr(size)},
        f"((r_{name} IS NULL AND e_{name} IS NULL) OR "
        f"{_within(f'abs(CAST(r_{name} AS DOUBLE) - e_{name})', f'{_CLOSE} * e_{name}_size')})",
    )


def _within(difference: str, allowed: str) -> str:
    """SQL: whether a difference is allowed. With NaN or infinity among the values everything would be, and a run takes
    no such values."""
    return f"({allowed} < {_INFINITE} AND {difference} <= {allowed})"


def _added(
    name: str, arguments: Mapping[str, str], of_x: str, decimal: str, *, average: bool = False, least: str = "0D"
) -> Recomputed:
    """A sum or an average whose values are added up as decimals, and within a relative error where they don't fit.

    ``decimal``: the SQL type to add them up in. ``least``: an error that is always allowed.
    """
    from pyspark.sql import functions as F

    function, x, value = "avg" if average else "sum", f"CAST({of_x} AS DOUBLE)", f"try_cast({of_x} AS {decimal})"
    total = f"CAST(CASE WHEN count({of_x}) = count({value}) THEN try_sum({value}) END AS DOUBLE)"
    exact = f"{total} / nullif(count({of_x}), 0)" if average else total
    rounded = f"{_ROUNDED} * {'1' if average else f'count({of_x})'}"
    e, about, size = f"e_{name}", f"e_{name}_about", f"e_{name}_size"
    allowed = f"CASE WHEN {e} IS NOT NULL THEN {_ULPS} * abs({e}) ELSE {_CLOSE} * {size} END + {least}"
    return Recomputed(
        name,
        arguments,
        {
            e: F.expr(exact),
            about: F.expr(f"{function}({x})"),
            size: F.expr(f"{function}(abs({x})) + {rounded}"),
        },
        f"((r_{name} IS NULL AND {about} IS NULL) OR "
        f"{_within(f'abs(CAST(r_{name} AS DOUBLE) - coalesce({e}, {about}))', allowed)})",
    )


def _count(_: DataFrame, name: str, x: str) -> Recomputed:
    return _exactly(name, {f"{name}_x": "1" if x == "*" else x}, f"count({name}_x)")


def _sum(records: DataFrame, name: str, x: str) -> Recomputed:
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    kind, of_x = _type(records, x), f"{name}_x"
    if isinstance(kind, DoubleType | FloatType):
        return _added(name, {of_x: x}, of_x, _OF_DOUBLES)
    if isinstance(kind, DecimalType):
        return _exactly(name, {of_x: x}, f"try_sum({of_x})")
    # A partial sum may overflow although the final sum doesn't, so sum as decimals.
    return _exactly(name, {of_x: f"CAST({x} AS DECIMAL(38, 0))"}, f"try_cast(try_sum({of_x}) AS BIGINT)")


def _average(records: DataFrame, name: str, x: str) -> Recomputed:
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    kind, of_x = _type(records, x), f"{name}_x"
    if isinstance(kind, DecimalType):
        # The average is rounded, to four places more than the values have.
        least = f"1e-{max(kind.scale, 2) + 4}D"
        return _added(name, {of_x: x}, of_x, f"DECIMAL(38, {kind.scale})", average=True, least=least)
    decimal = _OF_DOUBLES if isinstance(kind, DoubleType | FloatType) else "DECIMAL(38, 0)"
    return _added(name, {of_x: x}, of_x, decimal, average=True)


def _spread(function: str) -> Callable[[DataFrame, str, str], Recomputed]:
    """Variances and standard deviations, of values rounded to 6 places (floating point) or to 2 to 9 (decimals)."""

    def make(records: DataFrame, name: str, x: str) -> Recomputed:
        from pyspark.sql.types import DecimalType, DoubleType, FloatType

        kind, of_x = _type(records, x), f"{name}_x"
        if isinstance(kind, DoubleType | FloatType):
            x = f"round(CAST({x} AS DOUBLE), 6)"
        elif isinstance(kind, DecimalType):
            x = f"round({x}, {min(kind.scale, 9)})"
        arguments, sql = {of_x: f"CAST({x} AS DOUBLE)"}, f"{function}({of_x})"
        # Where all values are large and alike, floating point leaves some difference.
        if function.startswith("var"):
            return _closely(name, arguments, sql, size=f"{sql} + 1e-6D * avg({of_x} * {of_x})")
        return _closely(name, arguments, sql, size=f"{sql} + 1e-2D * sqrt(avg({of_x} * {of_x}))")

    return make


def _extreme(function: str) -> Callable[[DataFrame, str, str], Recomputed]:
    def make(_: DataFrame, name: str, x: str) -> Recomputed:
        return _exactly(name, {f"{name}_x": x}, f"{function}({name}_x)")

    return make


def _at(function: str, *, several: bool) -> Callable[..., Recomputed]:
    """The x of the smallest or largest (order, topic, partition, offset). A record without an order doesn't count. Of
    ``several`` rows of one record, the one whose x has the smallest or largest JSON."""

    def make(_: DataFrame, name: str, x: str, order: str = "_timestamp") -> Recomputed:
        of_x, of_order = f"{name}_x", f"{name}_o"
        ranks = [order, _COORDINATES]
        if several:
            options = ", ".join(literal(text) for option in _AS_JSON.items() for text in option)
            ranks.append(f"to_json(struct({x} AS value), map({options}))")
        arguments = {of_x: x, of_order: f"CASE WHEN {order} IS NOT NULL THEN struct({', '.join(ranks)}) END"}
        return _exactly(name, arguments, f"{function}({of_x}, {of_order})")

    return make


def _collect_set(_: DataFrame, name: str, x: str, n: str) -> Recomputed:
    return _exactly(name, {f"{name}_x": x}, f"slice(array_sort(collect_set({name}_x)), 1, {int(n)})")


def _top_n(_: DataFrame, name: str, x: str, n: str) -> Recomputed:
    largest = f"slice(reverse(array_sort(collect_list({name}_x))), 1, {int(n)})"
    return _exactly(name, {f"{name}_x": x}, largest)


def _count_distinct(_: DataFrame, name: str, x: str) -> Recomputed:
    from pyspark.sql import functions as F

    return Recomputed(
        name,
        {f"{name}_x": x},
        {f"e_{name}": F.expr(f"count(DISTINCT {name}_x)")},
        f"abs(r_{name} - e_{name}) <= {_DISTINCT.format(f'e_{name}')}",
    )


def _percentile(_: DataFrame, name: str, x: str, p: str) -> Recomputed:
    from pyspark.sql import functions as F

    low, high = max(float(p) - _RANKS, 0.0), min(float(p) + _RANKS, 1.0)
    return Recomputed(
        name,
        {f"{name}_x": f"CAST({x} AS DOUBLE)"},
        {
            f"e_{name}_{side}": F.expr(f"percentile_disc({rank!r}D) WITHIN GROUP (ORDER BY {name}_x)")
            for side, rank in (("low", low), ("high", high))
        },
        f"((r_{name} IS NULL AND e_{name}_low IS NULL) OR "
        f"(greatest(abs(e_{name}_low), abs(e_{name}_high)) < {_INFINITE} AND "
        f"r_{name} >= e_{name}_low - {_VALUES} * abs(e_{name}_low) AND "
        f"r_{name} <= e_{name}_high + {_VALUES} * abs(e_{name}_high)))",
    )


_AT = {"first": "min_by", "min_by": "min_by", "last": "max_by", "max_by": "max_by"}
_FUNCTIONS: Mapping[str, Callable[..., Recomputed]] = {
    "count": _count,
    "sum": _sum,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "avg": _average,
    "mean": _average,
    "variance": _spread("var_samp"),
    "var_samp": _spread("var_samp"),
    "var_pop": _spread("var_pop"),
    "stddev": _spread("stddev_samp"),
    "stddev_samp": _spread("stddev_samp"),
    "stddev_pop": _spread("stddev_pop"),
    "collect_set": _collect_set,
    "top_n": _top_n,
    "approx_count_distinct": _count_distinct,
    "approx_percentile": _percentile,
    "percentile_approx": _percentile,
    "quantile": _percentile,
}
