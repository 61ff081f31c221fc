"""Approximate aggregates with a state of bounded size. Their states can be added in any grouping."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from fractions import Fraction

from connector.state.monoid import Monoid, joined
from connector.state.numbers import numeric
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import let, literal


class ApproxCountDistinct(Monoid):
    """The approximate number of distinct values of x, within about 2 %.

    It is Spark's HyperLogLog sketch (Apache DataSketches), of up to 4 kB. Values go in as their 64-bit hash, because
    the sketch itself takes few types and ignores the empty string.
    """

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows how x is hashed. Spark analyses x and raises AnalysisException if it is no expression."""
        known = copy.copy(self)
        known.depends_on = hashed_as(types(self.arguments[0]))
        return known

    def lift(self) -> str:
        """Not available: raises NotImplementedError. Use ``gather``."""
        raise NotImplementedError(f"{self}: Spark makes no sketch of a single value, only of a group: use gather()")

    def plus(self, left: str, right: str) -> str:
        """The union of two sketches."""
        return joined(left, right, f"hll_union({left}, {right})")

    def present(self, state: str) -> str:
        """The sketch's estimate; 0 for no records."""
        return f"coalesce(hll_sketch_estimate({state}), 0L)"

    def gather(self) -> str:
        """The sketch of a group's values that aren't NULL."""
        x = f"({self.arguments[0]})"
        return f"hll_sketch_agg(CASE WHEN {x} IS NOT NULL THEN xxhash64({x}) END)"

    def total(self, states: str) -> str:
        """The union of a group's sketches."""
        return f"hll_union_agg({states})"


def hashed_as(kind: str) -> str:
    """The type, or the widest one whose values have the same hashes: of a number the hash isn't that of its value.

    Empty: it isn't remembered. A struct may get a field, and the hash passes over the nulls in it.
    """
    if kind in ("TINYINT", "SMALLINT", "INT"):
        return "INT"
    decimal = re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", kind)
    if decimal is not None:
        return f"DECIMAL({18 if int(decimal[1]) <= 18 else 38},{decimal[2]})"
    return "" if kind == "VOID" or "STRUCT<" in kind else kind


class Quantile(Monoid):
    """The approximate p-th quantile of x, within about 1.5 % of its rank.

    It is Spark's KLL sketch (Karnin, Lang and Liberty, FOCS 2016), a state of a few kB. Up to 200 values it is exact.
    Beyond that it uses random numbers: the same records, computed again, may give a neighbouring value. If the result
    has to be the same every time, use ``approx_percentile``.
    """

    def __init__(self, x: str, p: str) -> None:
        super().__init__(x, p)
        _check_p(p)

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy whose state is BINARY. Raises ValueError if x is no number."""
        numeric(self, types(self.arguments[0]))
        known = copy.copy(self)
        known._state_type = "BINARY"
        return known

    def lift(self) -> str:
        """Not available: raises NotImplementedError. Use ``gather``."""
        raise NotImplementedError(f"{self}: Spark makes no sketch of a single value, only of a group: use gather()")

    def plus(self, left: str, right: str) -> str:
        """The merge of two sketches."""
        return joined(left, right, f"kll_sketch_merge_double({left}, {right})")

    def present(self, state: str) -> str:
        """The sketch's p-th quantile; NULL for no values."""
        return f"CASE WHEN {state} IS NOT NULL THEN kll_sketch_get_quantile_double({state}, {self.arguments[1]}D) END"

    def gather(self) -> str:
        """The sketch of a group's values; NULL if all are NULL."""
        x = _finite(self, self.arguments[0])
        return f"CASE WHEN count({self.arguments[0]}) > 0 THEN kll_sketch_agg_double({x}) END"


_STATE = "MAP<INT, BIGINT>"
_ERROR = 0.01
_BASE = (1 + _ERROR) / (1 - _ERROR)
_ZERO = 100_000
"""Larger than any bucket's number, so that it keeps them apart: keys of positive values are above 0, of negative values
below 0, and zero has key 0."""


class ApproxPercentile(Monoid):
    """A value within 1 % of the p-th percentile of x: the value with rank ceil(p * n).

    It counts values by the logarithm of their size (DDSketch: Masson, Rim and Lee, VLDB 2019), in at most 35 buckets
    for every factor of two. It uses no random numbers, unlike ``quantile``: the same records always give the same
    result.
    """

    def __init__(self, x: str, p: str) -> None:
        super().__init__(x, p)
        _check_p(p)

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows its types. Raises ValueError if x is no number."""
        numeric(self, types(self.arguments[0]))
        return super().typed(types)

    def lift(self) -> str:
        """A map with the bucket of x, counted once; NULL if x is NULL."""
        bucket = self._bucket()
        return f"CASE WHEN ({self.arguments[0]}) IS NOT NULL THEN map({bucket}, 1L) END"

    def plus(self, left: str, right: str) -> str:
        """The counts of both maps, added per bucket."""
        both = f"map_zip_with({left}, {right}, (_bucket, _l, _r) -> coalesce(_l, 0L) + coalesce(_r, 0L))"
        return joined(left, right, both)

    def gather(self) -> str:
        """The map of a group's buckets to their counts. Equal to the sum of the maps of its records, but faster.

        All buckets are sorted; the counts follow from where each bucket begins.
        """
        counts = "transform(_begins, (_from, _i) -> coalesce(get(_begins, _i + 1), size(_all) + 1L) - _from)"
        begins = let("_begins", "transform(_each, _bucket -> array_position(_all, _bucket))", counts)
        counted = let("_each", "array_distinct(_all)", f"map_from_arrays(_each, {begins})")
        x = f"({self.arguments[0]})"
        everything = f"sort_array(collect_list(CASE WHEN {x} IS NOT NULL THEN {self._bucket()} END))"
        return let("_all", everything, f"CAST({counted} AS {_STATE})")

    def present(self, state: str) -> str:
        """The middle of the bucket that holds the rank; NULL for no values."""
        n = "reduce(map_values(_state), 0L, (_sum, _n) -> _sum + _n)"
        start = f"named_struct('left', greatest(1L, CAST(ceil({self.arguments[1]}BD * {n}) AS BIGINT)), 'found', NULL)"
        types = "STRUCT<left: BIGINT, found: INT>"
        step = (
            "CASE WHEN _at.found IS NOT NULL THEN _at "
            "WHEN _at.left <= _next.value THEN named_struct('left', 0L, 'found', _next.key) "
            "ELSE named_struct('left', _at.left - _next.value, 'found', CAST(NULL AS INT)) END"
        )
        middle = f"2 * pow({_BASE!r}D, abs(_at.found) - {_ZERO}) / ({_BASE!r}D + 1)"
        value = f"CASE WHEN _at.found = 0 THEN 0D ELSE sign(_at.found) * {middle} END"
        start = f"CAST({start} AS {types})"
        percentile = f"reduce(sort_array(map_entries(_state)), {start}, (_at, _next) -> {step}, _at -> {value})"
        return let("_state", state, percentile)

    def _bucket(self) -> str:
        x = f"CAST(({self.arguments[0]}) AS DOUBLE)"
        number = f"CAST(ceil(ln(abs({x})) / {math.log(_BASE)!r}D) AS INT)"
        return f"CASE WHEN ({_finite(self, x)}) = 0 THEN 0 ELSE CAST(sign({x}) AS INT) * ({_ZERO} + {number}) END"


def _check_p(p: str) -> None:
    try:
        inside = 0 <= Fraction(p) <= 1
    except (ValueError, ZeroDivisionError):
        inside = False
    if not inside or "/" in p or "_" in p:
        raise ValueError(f"p is a number from 0 to 1, such as 0.95, not {p!r}")


def _finite(monoid: Monoid, expression: str) -> str:
    """The expression as a DOUBLE; NaN and infinity fail the query."""
    x = f"CAST(({expression}) AS DOUBLE)"
    wrong = raise_sql("not_a_number", aggregate=literal(str(monoid)))
    return f"CASE WHEN isnan({x}) OR abs({x}) = DOUBLE('Infinity') THEN CAST({wrong} AS DOUBLE) ELSE {x} END"
