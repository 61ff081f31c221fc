"""A state type: how a record becomes a state, how two states become one, and what readers see.

The idea is Gearpump's: state that obeys the monoid laws can be computed in parts, in any grouping, and put together.
The SQL goes into queries and into MERGE's SET clause, also through Spark Connect: no Python function, no subquery,
nothing random. ``typed`` comes before all use, since SQL text alone doesn't know the columns' types.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from connector.spark.compat import local_frame
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Monoid(ABC):
    """An aggregate. A subclass needs ``lift`` and ``plus``; each method gives SQL text for the SQL that it gets.

    The laws, which ``check_laws`` tests: ``plus`` is associative, ``identity`` on either side of it changes nothing,
    it is commutative unless the class says otherwise, and ``gather`` and ``total`` agree with it. What a reader sees
    is then the same for every way to cut the records into batches.
    """

    commutative: ClassVar[bool] = True
    """False: the order of records matters. They are added by offset, which orders the records of one partition only."""

    identity: str = "NULL"
    """The state of no records."""

    name: str = ""

    def __init__(self, *arguments: str) -> None:
        """``arguments``: SQL expressions over the record's columns, as in ``name(argument, argument)``."""
        self.arguments = arguments
        self.name = self.name or type(self).__name__
        self._state_type = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows its types; ``types`` gives the SQL type of an expression over the record's columns."""
        known = copy.copy(self)
        known._state_type = types(self.lift())
        return known

    @abstractmethod
    def lift(self) -> str:
        """The state of one record; NULL adds nothing."""

    @abstractmethod
    def plus(self, left: str, right: str) -> str:
        """The sum of two states, either of which may be the identity."""

    def present(self, state: str) -> str:
        """What readers see of a state."""
        return state

    def gather(self) -> str:
        """Aggregate: the state of a group of records."""
        if self.commutative:
            return self.total(self.lift())
        state = f"CASE WHEN {self.lift()} IS NOT NULL THEN named_struct('at', _offset, 'state', {self.lift()}) END"
        by_offset = "(_one, _two) -> CASE WHEN _one.at < _two.at THEN -1 WHEN _one.at > _two.at THEN 1 ELSE 0 END"
        return self._sum(f"transform(array_sort(collect_list({state}), {by_offset}), _one -> _one.state)")

    def total(self, states: str) -> str:
        """Aggregate: the sum of a group's states, NULL among them or not."""
        return self._sum(f"collect_list({states})")

    def same(self, left: str, right: str) -> str:
        """Whether two presented values count as equal when the laws are checked."""
        return f"({left}) <=> ({right})"

    def _sum(self, states: str) -> str:
        if not self._state_type:
            raise RuntimeError(f"{self} doesn't know its types yet: pass it through bound() first")
        # The casts: reduce wants one type throughout, and SQL widens decimals as it adds them.
        zero = f"CAST({self.identity} AS {self._state_type})"
        plus = f"CAST({self.plus('_left', '_right')} AS {self._state_type})"
        return f"reduce({states}, {zero}, (_left, _right) -> {plus})"


def joined(left: str, right: str, both: str) -> str:
    """``plus`` where NULL is the identity; ``both`` is the sum of two states that aren't."""
    return f"CASE WHEN {left} IS NULL THEN {right} WHEN {right} IS NULL THEN {left} ELSE {both} END"


def let(name: str, value: str, body: str) -> str:
    """SQL's missing ``let name = value in body``: the value is computed, and written, once.

    The body may mention other names of the query only if none of them is ``name``: the lambda's variable hides them.
    """
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def bound(spark: SparkSession, schema: StructType | str, monoids: Sequence[Monoid]) -> list[Monoid]:
    """The monoids, typed for records of this schema (with the coordinates ``_topic``, ``_partition``, ...).

    Spark analyses all of their SQL on no rows, without a job: raises ValueError with the first mistake that it finds.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import AtomicType, NullType

    empty = local_frame(spark, [], schema)

    def types(expression: str) -> str:
        kind = empty.selectExpr(f"{expression} AS x").schema["x"].dataType
        # Names of nested fields stay as they are.
        return sql_type(kind).upper() if isinstance(kind, AtomicType | NullType) else sql_type(kind)

    typed = []
    for monoid in monoids:
        try:
            known = monoid.typed(types)
            states = empty.selectExpr(f"{known.gather()} AS state").selectExpr(f"{known.total('state')} AS state")
            _ = states.selectExpr(known.present(known.plus("state", "state"))).schema
        except AnalysisException as error:
            raise ValueError(f"{monoid}: {str(error).split('; line ')[0].splitlines()[0]}") from None
        typed.append(known)
    return typed
