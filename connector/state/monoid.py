"""The base class of state types: how a record becomes a state, how two states are added, and what readers see.

The idea is Gearpump's: state that obeys the monoid laws can be computed in parts, in any grouping, and put together.
The SQL goes into queries and into MERGE's SET clause, also through Spark Connect. So it has no Python function, no
subquery and nothing random. ``typed`` has to be called first, as SQL text alone doesn't know the columns' types.
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
    """An aggregate. A subclass defines ``lift`` and ``plus``.

    Each method returns SQL text for the SQL text that it gets.

    ``check_laws`` tests the laws: ``plus`` is associative; ``identity`` on either side of it changes nothing; it is
    commutative unless the class says otherwise; ``gather`` and ``total`` agree with it. Then readers see the same
    result for every way to cut the records into batches.
    """

    commutative: ClassVar[bool] = True
    """False: the order of records matters. They are then added by offset, which orders only the records of one
    partition."""

    identity: str = "NULL"
    """The state of no records."""

    name: str = ""

    depends_on: str = ""
    """Known once it is ``typed``: what its states depend on and neither their type nor the text shows. A table
    remembers it, and states that depend on something else aren't added to its own. Empty: nothing."""

    def __init__(self, *arguments: str) -> None:
        """``arguments``: SQL expressions over the record's columns, as in ``name(argument, argument)``."""
        self.arguments = arguments
        self.name = self.name or type(self).__name__
        self._state_type = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"

    def typed(self, types: Callable[[str], str]) -> Monoid:
        """A copy that knows its types. ``types`` gives the SQL type of an expression over the record's columns."""
        known = copy.copy(self)
        known._state_type = types(self.lift())
        return known

    @abstractmethod
    def lift(self) -> str:
        """The state of one record. NULL adds nothing."""

    @abstractmethod
    def plus(self, left: str, right: str) -> str:
        """The sum of two states, either of which may be the identity."""

    def present(self, state: str) -> str:
        """What readers see of a state."""
        return state

    def gather(self) -> str:
        """An aggregate expression: the state of a group of records. Equal to the ``total`` of their ``lift``."""
        if self.commutative:
            return self.total(self.lift())
        state = f"CASE WHEN {self.lift()} IS NOT NULL THEN named_struct('at', _offset, 'state', {self.lift()}) END"
        by_offset = "(_one, _two) -> CASE WHEN _one.at < _two.at THEN -1 WHEN _one.at > _two.at THEN 1 ELSE 0 END"
        return self._sum(f"transform(array_sort(collect_list({state}), {by_offset}), _one -> _one.state)")

    def total(self, states: str) -> str:
        """An aggregate expression: the sum of a group's states. NULLs among them are ignored."""
        return self._sum(f"collect_list({states})")

    def same(self, left: str, right: str) -> str:
        """Whether two presented values count as equal when ``check_laws`` compares them."""
        return f"({left}) <=> ({right})"

    def _sum(self, states: str) -> str:
        if not self._state_type:
            raise RuntimeError(f"{self} doesn't know its types yet: pass it through bound() first")
        # The casts keep one type throughout, as reduce needs: SQL widens decimals when it adds them.
        zero = f"CAST({self.identity} AS {self._state_type})"
        plus = f"CAST({self.plus('_left', '_right')} AS {self._state_type})"
        return f"reduce({states}, {zero}, (_left, _right) -> {plus})"


def joined(left: str, right: str, both: str) -> str:
    """``plus`` for a monoid whose identity is NULL. ``both`` is the sum of two states that aren't NULL."""
    return f"CASE WHEN {left} IS NULL THEN {right} WHEN {right} IS NULL THEN {left} ELSE {both} END"


def bound(spark: SparkSession, schema: StructType | str, monoids: Sequence[Monoid]) -> list[Monoid]:
    """The monoids, typed for records of this schema (with the coordinates ``_topic``, ``_partition``, ...).

    Spark analyses all of their SQL over no rows, without a job. Raises ValueError with the first mistake that it finds.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import AtomicType, NullType

    empty = local_frame(spark, [], schema)

    def types(expression: str) -> str:
        kind = empty.selectExpr(f"{expression} AS x").schema["x"].dataType
        # Names of nested fields keep their case.
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
