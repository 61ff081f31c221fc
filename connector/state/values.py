"""Aggregates that count records or keep some of their values."""

from __future__ import annotations

from collections.abc import Callable

from connector.state.monoid import Monoid, joined
from sinks.spark.sql import struct_sql, to_json

COORDINATES = ("_topic", "_partition", "_offset")


class Count(Monoid):
    """The number of records, or of those where x isn't NULL."""

    identity = "0L"

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        """1 for a record that counts, else 0."""
        return "1L" if self.arguments == ("*",) else f"CAST(({self.arguments[0]}) IS NOT NULL AS BIGINT)"

    def plus(self, left: str, right: str) -> str:
        """The sum of two counts."""
        return f"coalesce({left}, 0L) + coalesce({right}, 0L)"

    def present(self, state: str) -> str:
        """The count; 0 for no records."""
        return f"coalesce({state}, 0L)"

    def gather(self) -> str:
        """SQL's own count over a group."""
        return f"count({self.arguments[0]})"

    def total(self, states: str) -> str:
        """The sum of a group's counts."""
        return f"coalesce(sum({states}), 0L)"


class _OfValues(Monoid):
    """Aggregates whose states are values of x."""

    def __init__(self, x: str, *more: str) -> None:
        super().__init__(x, *more)
        self._x = f"({x})"

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows its types."""
        known = super().typed(types)
        if isinstance(known, _OfValues) and types(self.arguments[0]) in ("FLOAT", "DOUBLE"):
            # -0.0 equals 0.0. Without this, the order of the records would decide which of them stays.
            known._x = f"({known._x} + CAST(0 AS {types(self.arguments[0])}))"
        return known


class Min(_OfValues):
    """The smallest x."""

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        """x itself."""
        return self._x

    def plus(self, left: str, right: str) -> str:
        """The smaller of two states. NULL is ignored."""
        return f"least({left}, {right})"

    def total(self, states: str) -> str:
        """The smallest of a group's states."""
        return f"min({states})"


class Max(_OfValues):
    """The largest x."""

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        """x itself."""
        return self._x

    def plus(self, left: str, right: str) -> str:
        """The larger of two states. NULL is ignored."""
        return f"greatest({left}, {right})"

    def total(self, states: str) -> str:
        """The largest of a group's states."""
        return f"max({states})"


class First(Monoid):
    """The x of the record with the smallest ``order``; among equals, the one with the smallest coordinates. Of several
    rows of one record with the same order, the x whose JSON sorts first.

    As in Spark's min_by, x may be NULL, and records whose order is NULL don't count. To skip NULLs: ``first(x, CASE
    WHEN x IS NOT NULL THEN _timestamp END)``.
    """

    several = False
    """Whether a record may make several rows. By itself the state of each record has another ``at``."""

    def __init__(self, x: str, order: str = "_timestamp") -> None:
        super().__init__(x, order)

    def lift(self) -> str:
        """A struct of ``at`` (order and coordinates) and the ``value`` of x; NULL if the order is NULL."""
        x, order = self.arguments
        at = ", ".join(f"'{name}', {name}" for name in COORDINATES)
        state = f"named_struct('at', named_struct('order', {order}, {at}), 'value', {x})"
        return f"CASE WHEN ({order}) IS NOT NULL THEN {state} END"

    def plus(self, left: str, right: str) -> str:
        """The state with the smaller ``at``."""
        smaller = f"{self._rank(left)} <= {self._rank(right)}"
        return joined(left, right, f"CASE WHEN {smaller} THEN {left} ELSE {right} END")

    def present(self, state: str) -> str:
        """The ``value`` of the state."""
        return f"({state}).value"

    def total(self, states: str) -> str:
        """The state of a group with the smallest ``at``."""
        return f"min_by({states}, {self._rank(states)})"

    def _rank(self, state: str) -> str:
        """SQL that tells states apart, and NULL for NULL."""
        if not self.several:
            return f"({state}).at"
        value = to_json(struct_sql({"value": f"({state}).value"}))
        return f"CASE WHEN ({state}) IS NOT NULL THEN {struct_sql({'at': f'({state}).at', 'value': value})} END"


class Last(First):
    """As First, with the largest order and coordinates, and the x whose JSON sorts last."""

    def plus(self, left: str, right: str) -> str:
        """The state with the larger ``at``."""
        larger = f"{self._rank(left)} > {self._rank(right)}"
        return joined(left, right, f"CASE WHEN {larger} THEN {left} ELSE {right} END")

    def total(self, states: str) -> str:
        """The state of a group with the largest ``at``."""
        return f"max_by({states}, {self._rank(states)})"


class _Several(_OfValues):
    """At most n values of x, sorted.

    The state is bounded, but the values that one batch has of a group must fit into memory.
    """

    def __init__(self, x: str, n: str) -> None:
        super().__init__(x, n)
        self.n = _how_many(n)

    def lift(self) -> str:
        """An array of x alone; NULL if x is NULL."""
        return f"CASE WHEN {self._x} IS NOT NULL THEN array({self._x}) END"

    def present(self, state: str) -> str:
        """The array; empty for no records."""
        return f"coalesce({state}, array())"


class CollectSet(_Several):
    """The n smallest distinct values of x. Unlike any n values, these don't depend on the order of the records."""

    def plus(self, left: str, right: str) -> str:
        """The n smallest values of both arrays together."""
        return joined(left, right, f"slice(sort_array(array_union({left}, {right})), 1, {self.n})")

    def gather(self) -> str:
        """The n smallest distinct values of a group."""
        return f"slice(sort_array(collect_set({self._x})), 1, {self.n})"

    def total(self, states: str) -> str:
        """The n smallest values of all arrays of a group."""
        return f"slice(sort_array(array_distinct(flatten(collect_list({states})))), 1, {self.n})"


class TopN(_Several):
    """The n largest values of x, repeats included, the largest first."""

    def plus(self, left: str, right: str) -> str:
        """The n largest values of both arrays together."""
        return joined(left, right, f"slice(sort_array(concat({left}, {right}), false), 1, {self.n})")

    def gather(self) -> str:
        """The n largest values of a group."""
        return f"slice(sort_array(collect_list({self._x}), false), 1, {self.n})"

    def total(self, states: str) -> str:
        """The n largest values of all arrays of a group."""
        return f"slice(sort_array(flatten(collect_list({states})), false), 1, {self.n})"


def _how_many(n: str) -> int:
    if not n.isdecimal() or int(n) < 1:
        raise ValueError(f"n is how many values are kept, a whole number from 1 on, not {n!r}")
    return int(n)
