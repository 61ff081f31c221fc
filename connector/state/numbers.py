"""Sums, averages and variances that don't depend on how the records are cut into batches.

Addition of floating-point numbers isn't associative, so everything is summed exactly, in decimals. The sum of two
DECIMAL(38, s) has 39 digits, and Spark rounds it. It doesn't round the sum of two DECIMAL(37, s), so states have 37
digits. A value that doesn't fit fails the query: no sum wraps around or becomes NULL, with or without
``spark.sql.ansi.enabled``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from connector.state.monoid import Monoid, joined
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import let, literal

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FLOATS = ("FLOAT", "DOUBLE")
_MOST_DECIMALS = 30


@dataclass(frozen=True)
class Number:
    """How numbers of one SQL type are summed: as decimals of ``digits`` digits, ``scale`` of them after the point."""

    sql: str
    floating: bool
    scale: int
    digits: int = 37

    @property
    def decimal(self) -> str:
        """The SQL type that values are summed in."""
        return f"DECIMAL({self.digits}, {self.scale})"

    @property
    def always_fits(self) -> bool:
        """Whether every value of the SQL type fits into ``decimal``."""
        digits = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}.get(self.sql, 38)
        if self.is_decimal:
            precision, places = map(int, re.findall(r"\d+", self.sql))
            digits = precision - places
        return not self.floating and digits <= self.digits - self.scale

    @property
    def is_integer(self) -> bool:
        """Whether the SQL type is an integer: any sum of an epoch's values fits into ``decimal``."""
        return self.sql in _INTEGERS

    @property
    def is_decimal(self) -> bool:
        """Whether the SQL type itself is a decimal."""
        return self.sql.startswith("DECIMAL")


def numeric(monoid: Monoid, sql: str) -> Number:
    """How numbers of the SQL type ``sql`` are summed.

    Raises ValueError if it is no number, or has too many decimals.
    """
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", sql)
    if not (decimal or sql in _INTEGERS or sql in _FLOATS):
        raise ValueError(f"{monoid} needs a number and gets {sql}: try CAST(... AS DOUBLE)")
    scale = int(decimal[2]) if decimal else 18 if sql in _FLOATS else 0
    if scale > _MOST_DECIMALS:
        raise ValueError(f"{monoid} gets {sql}: CAST it to {_MOST_DECIMALS} decimals or fewer")
    return Number(sql, sql in _FLOATS, scale)


class _Exact(Monoid):
    """An aggregate of numbers that is computed exactly."""

    def __init__(self, x: str) -> None:
        super().__init__(x)
        self._number: Number | None = None

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows the type of x. Raises ValueError if x is no number."""
        known = copy.copy(self)
        known._number = self._of(numeric(self, types(self.arguments[0])))
        return Monoid.typed(known, types)  # calls lift, which needs the number

    def _of(self, number: Number) -> Number:
        return number

    @property
    def number(self) -> Number:
        """How x is summed. Raises RuntimeError before ``typed``."""
        if self._number is None:
            raise RuntimeError(f"{self} doesn't know its types yet: pass it through bound() first")
        return self._number

    def _value(self) -> str:
        """x as a decimal, or a failure. It doesn't show the value, which may be sensitive: Spark logs it."""
        x = f"({self.arguments[0]})"
        if self.number.always_fits:
            return f"CAST({x} AS {self.number.decimal})"
        wrong = self._too_large()
        if self.number.floating:
            nothing = raise_sql("not_a_number", aggregate=literal(str(self)))
            wrong = f"CASE WHEN isnan({x}) OR abs({x}) = DOUBLE('Infinity') THEN {nothing} ELSE {wrong} END"
        return f"CASE WHEN {x} IS NOT NULL THEN coalesce(try_cast({x} AS {self.number.decimal}), {wrong}) END"

    def _added(self) -> str:
        """An aggregate expression: the exact sum of a group's x; NULL if it doesn't fit, or all x are NULL.

        A decimal per record is slow. An integer is x = high * 2^32 + low, and each half is summed in a long: exactly,
        for up to 2^31 records. Of more a half may not fit, and try_sum makes that NULL: no sum is ever wrong.
        """
        if not self.number.is_integer:
            return f"try_sum({self._value()})"
        x = f"CAST(({self.arguments[0]}) AS BIGINT)"
        high, low = f"try_sum(shiftright({x}, 32))", f"try_sum({x} & 4294967295L)"
        return f"CAST({high} AS DECIMAL(19, 0)) * 4294967296BD + CAST({low} AS DECIMAL(19, 0))"

    def _too_large(self) -> str:
        return raise_sql("overflow", aggregate=literal(str(self)))

    def _fitting(self, sum_: str, scale: int) -> str:
        """A sum that isn't NULL, or was NULL because it overflowed, as a decimal of 37 digits."""
        return f"coalesce(try_cast({sum_} AS DECIMAL(37, {scale})), {self._too_large()})"


class Sum(_Exact):
    """The exact sum of x, presented with the type that SQL's sum has: BIGINT, DECIMAL(38, s) or DOUBLE.

    A DOUBLE or FLOAT is first rounded to 18 decimals, and has to be below 1e19. Of integers, a group may have 2^31
    records in one epoch; if more fail, ``epoch.max_records`` has to be smaller.
    """

    def lift(self) -> str:
        """x as a decimal; NULL if x is NULL."""
        return self._value()

    def plus(self, left: str, right: str) -> str:
        """The sum of two states. Fails the query if it doesn't fit."""
        return joined(left, right, self._fitting(f"{left} + {right}", self.number.scale))

    def present(self, state: str) -> str:
        """The sum in SQL's type. Fails the query if a sum of integers doesn't fit into a BIGINT."""
        if self.number.floating:
            return f"CAST({state} AS DOUBLE)"
        if self.number.is_decimal:
            return f"CAST({state} AS DECIMAL(38, {self.number.scale}))"
        return f"CASE WHEN {state} IS NOT NULL THEN coalesce(try_cast({state} AS BIGINT), {self._too_large()}) END"

    def gather(self) -> str:
        """The exact sum of a group's x; NULL if all are NULL."""
        return self._of_any(self.arguments[0], self._added())

    def total(self, states: str) -> str:
        """The exact sum of a group's states; NULL if all are NULL."""
        return self._of_any(states, f"try_sum({states})")

    def _of_any(self, counted: str, sum_: str) -> str:
        return f"CASE WHEN count({counted}) > 0 THEN {self._fitting(sum_, self.number.scale)} END"


class _Moments(_Exact):
    """Aggregates whose states are structs: ``n``, the number of values, and sums by name, as decimals."""

    def _sums(self) -> dict[str, tuple[str, int]]:
        """For one value: each sum's name, the SQL that it adds up, and its scale."""
        return {"sum": (self._value(), self.number.scale)}

    def lift(self) -> str:
        """A struct with ``n`` = 1 and the sums of one value; NULL if x is NULL."""
        sums = (f"'{name}', CAST({sql} AS DECIMAL(37, {scale}))" for name, (sql, scale) in self._sums().items())
        return f"CASE WHEN ({self.arguments[0]}) IS NOT NULL THEN named_struct('n', 1L, {', '.join(sums)}) END"

    def plus(self, left: str, right: str) -> str:
        """The struct of both states' sums. Fails the query if one doesn't fit."""
        sums = (
            f"'{name}', {self._fitting(f'({left}).{name} + ({right}).{name}', scale)}"
            for name, (_, scale) in self._sums().items()
        )
        return joined(left, right, f"named_struct('n', ({left}).n + ({right}).n, {', '.join(sums)})")

    def gather(self) -> str:
        """The struct of a group of records; NULL if all x are NULL."""
        sums = {name: f"try_sum({sql})" for name, (sql, _) in self._sums().items()}
        return self._struct(f"count({self.arguments[0]})", sums)

    def total(self, states: str) -> str:
        """The struct of a group's states; NULL if all are NULL."""
        n = f"coalesce(sum(({states}).n), 0L)"
        return self._struct(n, {name: f"try_sum(({states}).{name})" for name in self._sums()})

    def _struct(self, n: str, added: dict[str, str]) -> str:
        sums = (f"'{name}', {self._fitting(added[name], scale)}" for name, (_, scale) in self._sums().items())
        return f"CASE WHEN {n} > 0 THEN named_struct('n', {n}, {', '.join(sums)}) END"


class Average(_Moments):
    """The exact sum divided by the number of values.

    The result is a DOUBLE; for decimals it is a decimal with 4 places more than x has, 6 at least.
    """

    def gather(self) -> str:
        """The struct of a group of records; NULL if all x are NULL."""
        return self._struct(f"count({self.arguments[0]})", {"sum": self._added()})

    def present(self, state: str) -> str:
        """The quotient of sum and ``n``; NULL for no values."""
        if not self.number.is_decimal:
            return f"CAST(({state}).sum AS DOUBLE) / ({state}).n"
        # The scale of a quotient follows from the types: 34 digits leave it four places more than the dividend.
        scale = max(self.number.scale, 2)
        result, n = f"DECIMAL(38, {scale + 4})", "CAST(_state.n AS DECIMAL(18, 0))"
        average = (
            f"coalesce(CAST(try_cast(_state.sum AS DECIMAL(34, {scale})) / {n} AS {result}), "
            f"try_cast(_state.sum / {n} AS {result}), {self._too_large()})"
        )
        return let("_state", state, f"CASE WHEN _state.n > 0 THEN {average} END")


class Variance(_Moments):
    """The variance of a sample, from the exact sums of x and of its squares.

    A square has twice the decimals of x, so x has 18 digits here: integers up to 1e16; DOUBLE rounded to 6 decimals, up
    to 1e12; decimals rounded to 2 to 9 places. To choose otherwise, write ``variance(CAST(x AS DECIMAL(18, 9)))``.
    """

    population = False
    root = False

    def _of(self, number: Number) -> Number:
        scale = 6 if number.floating else min(max(number.scale, 2), 9)
        return replace(number, scale=scale, digits=18)

    def _sums(self) -> dict[str, tuple[str, int]]:
        x, scale = self._value(), self.number.scale
        return {"sum": (x, scale), "squares": (f"({x}) * ({x})", 2 * scale)}

    def present(self, state: str) -> str:
        """The variance, computed so that no large numbers cancel out in floating point.

        With c close to the mean and e = mean - c:

            mean of the squares - mean squared = (mean of the squares - c*c) - 2*c*e - e*e

        The part in parentheses is computed in decimals.
        """
        scale = self.number.scale
        n = "CAST(_state.n AS DECIMAL(18, 0))"
        centre = f"CAST(_state.sum / {n} AS DECIMAL(18, {scale}))"
        # Spark gives a quotient the decimals that its type leaves free: the narrowest type that fits is most exact.
        widths = [*(width for width in (18, 25) if width < 37 - 2 * scale), 37 - 2 * scale]
        bracket = ", ".join(
            f"CAST(try_cast(_state.squares AS {narrow}) / {n} - try_cast(_centre * _centre AS {narrow}) AS DOUBLE)"
            for narrow in (f"DECIMAL({width + 2 * scale}, {2 * scale})" for width in widths)
        )
        rest = f"CAST(_state.sum - _centre * {n} AS DOUBLE) / _state.n"
        variance = let(
            "_centre",
            centre,
            let("_rest", rest, f"coalesce({bracket}) - 2 * CAST(_centre AS DOUBLE) * _rest - _rest * _rest"),
        )
        result = f"greatest(0D, coalesce({variance}, {self._too_large()}))"
        if not self.population:
            result = f"{result} * _state.n / (_state.n - 1)"
        if self.root:
            result = f"sqrt({result})"
        return let("_state", state, f"CASE WHEN _state.n > {0 if self.population else 1} THEN {result} END")


class PopulationVariance(Variance):
    """The variance of a whole population: divided by n instead of n - 1."""

    population = True


class Deviation(Variance):
    """The standard deviation of a sample; see Variance."""

    root = True


class PopulationDeviation(PopulationVariance):
    """The standard deviation of a whole population; see Variance."""

    root = True
