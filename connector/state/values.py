"""Aggregates that keep some of the records' own values, or count them."""

from __future__ import annotations

from collections.abc import Callable

from connector.state.monoid import Monoid, joined

COORDINATES = ("_topic", "_partition", "_offset")


class Count(Monoid):
    """The number of records, or of those where x isn't NULL."""

    identity = "0L"

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        return "1L" if self.arguments == ("*",) else f"CAST(({self.arguments[0]}) IS NOT NULL AS BIGINT)"

    def plus(self, left: str, right: str) -> str:
        return f"coalesce({left}, 0L) + coalesce({right}, 0L)"

    def present(self, state: str) -> str:
        return f"coalesce({state}, 0L)"

    def gather(self) -> str:
        return f"count({self.arguments[0]})"

    def total(self, states: str) -> str:
        return f"coalesce(sum({states}), 0L)"


class _OfValues(Monoid):
    """States made of values of x."""

    def __init__(self, x: str, *more: str) -> None:
        super().__init__(x, *more)
        self._x = f"({x})"

    def typed(self, types: Callable[[str], str]) -> Monoid:
        known = super().typed(types)
        if isinstance(known, _OfValues) and types(self.arguments[0]) in ("FLOAT", "DOUBLE"):
            # -0.0 equals 0.0: which of them stayed would depend on which came first.
            known._x = f"({known._x} + CAST(0 AS {types(self.arguments[0])}))"
        return known


class Min(_OfValues):
    """The smallest x."""

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        return self._x

    def plus(self, left: str, right: str) -> str:
        return f"least({left}, {right})"

    def total(self, states: str) -> str:
        return f"min({states})"


class Max(_OfValues):
    """The largest x."""

    def __init__(self, x: str) -> None:
        super().__init__(x)

    def lift(self) -> str:
        return self._x

    def plus(self, left: str, right: str) -> str:
        return f"greatest({left}, {right})"

    def total(self, states: str) -> str:
        return f"max({states})"


class First(Monoid):
    """The x of the record with the smallest order; of several, of the one with the smallest coordinates.

    As in Spark's min_by, x may be NULL, and records whose order is NULL don't count. To pass over the NULLs:
    ``first(x, CASE WHEN x IS NOT NULL THEN _timestamp END)``.
    """

    def __init__(self, x: str, order: str = "_timestamp") -> None:
        super().__init__(x, order)

    def lift(self) -> str:
        x, order = self.arguments
        at = ", ".join(f"'{name}', {name}" for name in COORDINATES)
        state = f"named_struct('at', named_struct('order', {order}, {at}), 'value', {x})"
        return f"CASE WHEN ({order}) IS NOT NULL THEN {state} END"

    def plus(self, left: str, right: str) -> str:
        return joined(left, right, f"CASE WHEN ({left}).at <= ({right}).at THEN {left} ELSE {right} END")

    def present(self, state: str) -> str:
        return f"({state}).value"

    def total(self, states: str) -> str:
        return f"min_by({states}, ({states}).at)"


class Last(First):
    """As First, with the largest order and coordinates."""

    def plus(self, left: str, right: str) -> str:
        return joined(left, right, f"CASE WHEN ({left}).at > ({right}).at THEN {left} ELSE {right} END")

    def total(self, states: str) -> str:
        return f"max_by({states}, ({states}).at)"


class _Several(_OfValues):
    """At most n values of x, sorted. The state is bounded; a batch's values of one group have to fit into memory."""

    def __init__(self, x: str, n: str) -> None:
        super().__init__(x, n)
        self.n = _how_many(n)

    def lift(self) -> str:
        return f"CASE WHEN {self._x} IS NOT NULL THEN array({self._x}) END"

    def present(self, state: str) -> str:
        return f"coalesce({state}, array())"


class CollectSet(_Several):
    """The n smallest distinct values of x: unlike "any n", these don't depend on the order of the records."""

    def plus(self, left: str, right: str) -> str:
        return joined(left, right, f"slice(sort_array(array_union({left}, {right})), 1, {self.n})")

    def gather(self) -> str:
        return f"slice(sort_array(collect_set({self._x})), 1, {self.n})"

    def total(self, states: str) -> str:
        return f"slice(sort_array(array_distinct(flatten(collect_list({states})))), 1, {self.n})"


class TopN(_Several):
    """The n largest values of x with their repeats, the largest first."""

    def plus(self, left: str, right: str) -> str:
        return joined(left, right, f"slice(sort_array(concat({left}, {right}), false), 1, {self.n})")

    def gather(self) -> str:
        return f"slice(sort_array(collect_list({self._x}), false), 1, {self.n})"

    def total(self, states: str) -> str:
        return f"slice(sort_array(flatten(collect_list({states})), false), 1, {self.n})"


def _how_many(n: str) -> int:
    if not n.isdecimal() or int(n) < 1:
        raise ValueError(f"n is how many values are kept, a whole number from 1 on, not {n!r}")
    return int(n)
