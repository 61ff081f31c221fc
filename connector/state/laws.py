"""Whether a monoid keeps the laws that the connector relies on, for the tests of people who write their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.spark.compat import local_frame
from connector.state.monoid import Monoid, bound
from sinks.spark.sql import literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

Record = Mapping[str, object]
_ALL = 3
"""The batch that holds all of an example's records; 0, 1 and 2 are its cut into three."""


@dataclass(frozen=True)
class _Case:
    """One example in one of its cuts into three batches."""

    records: Sequence[Record]
    batches: Sequence[int]
    """Of each record: 0, 1 or 2."""


def check_laws(
    spark: SparkSession, monoid: Monoid, schema: StructType | str, examples: Sequence[Sequence[Record]]
) -> None:
    """Check a monoid on examples. Raises AssertionError with the law that doesn't hold, and its smallest example.

    ``examples``: lists of records, best drawn by hypothesis, with the columns of ``schema``; all are checked in one
    query, so pass many at once. Each list is cut into three batches, in several ways; the laws are associativity and
    identity over the states of the batches, commutativity where the monoid claims it, and that ``gather``, ``total``
    and the cut make no difference. What is compared is what readers see, by ``monoid.same``.
    """
    (monoid,) = bound(spark, schema, [monoid])
    cases = [_Case(records, cut) for records in examples for cut in _cuts(len(records), monoid.commutative)]
    broken = _broken_laws(_states(spark, monoid, schema, cases), monoid)
    if not broken:
        return
    worst = min(broken, key=lambda row: (len(cases[row["_example"]].records), row["_example"]))
    case = cases[worst["_example"]]
    law, left, right = worst["broken"][0]
    parts = [
        [dict(record) for record, at in zip(case.records, case.batches, strict=True) if at == batch]
        for batch in range(_ALL)
    ]
    of_batches = (f"{name}: {worst[name]}, from {batch}" for name, batch in zip("abc", parts, strict=True))
    raise AssertionError("\n".join([f"{monoid} breaks the law {law}: {left} is not {right}", *of_batches]))


def _states(spark: SparkSession, monoid: Monoid, schema: StructType | str, cases: Sequence[_Case]) -> DataFrame:
    """One row per case, with the states that the laws are about.

    a, b, c: of the batches; all: of all records at once; one: of a single record; added: of all records, by plus alone;
    total: of a, b and c; zero: the identity.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegerType, StructType

    fields = local_frame(spark, [], schema).schema
    rows = [
        (number, batch, *(record.get(name) for name in fields.names))
        for number, case in enumerate(cases)
        for record, at in zip(case.records, case.batches, strict=True)
        for batch in (at, _ALL)
    ]
    table = StructType().add("_example", IntegerType()).add("_batch", IntegerType())
    for field in fields:
        table.add(field)
    one, added = "NULL", "NULL"
    if _lifts(monoid):  # by plus alone, where gather and total may have ways of their own
        one = f"any_value({monoid.lift()}, true)"
        added = Monoid.total(monoid, monoid.lift()) if monoid.commutative else Monoid.gather(monoid)
    gathered = {"state": monoid.gather(), "one": one, "added": added}
    batches = local_frame(spark, rows, table).groupBy("_example", "_batch")
    states = batches.agg(*(F.expr(sql).alias(name) for name, sql in gathered.items()))
    zero = f"CAST({monoid.identity} AS {sql_type(states.schema['state'].dataType)})"

    def of_batch(column: str, batch: int) -> Column:
        return F.expr(f"coalesce(any_value({column}) FILTER (WHERE _batch = {batch}), {zero})")

    return states.groupBy("_example").agg(
        *(of_batch("state", batch).alias(name) for batch, name in enumerate("abc")),
        *(of_batch(name if name != "all" else "state", _ALL).alias(name) for name in ("all", "one", "added")),
        F.expr(monoid.total(f"CASE WHEN _batch < {_ALL} THEN state END")).alias("total"),
        F.expr(zero).alias("zero"),
    )


def _broken_laws(states: DataFrame, monoid: Monoid) -> list[Row]:
    """The cases in which a law doesn't hold: _example, broken (each law with its two sides), a, b and c as text."""
    from pyspark.sql import functions as F

    frame = states
    # Column by column: written as one expression, each plus would repeat its operands several times.
    for sums in _SUMS:
        frame = frame.withColumns({name: F.expr(monoid.plus(*operands)) for name, operands in sums.items()})
    laws = _laws(monoid)
    sides = sorted({side for _, *both in laws for side in both})
    frame = frame.withColumns({f"see_{side}": F.expr(monoid.present(side)) for side in sides})
    broken = []
    for law, left, right in laws:
        shown = f"{literal(law)}, CAST(see_{left} AS STRING), CAST(see_{right} AS STRING)"
        broken.append(f"CASE WHEN ({monoid.same(f'see_{left}', f'see_{right}')}) IS NOT TRUE THEN array({shown}) END")
    return (
        frame.withColumn("broken", F.expr(f"filter(array({', '.join(broken)}), _law -> _law IS NOT NULL)"))
        .where("size(broken) > 0")
        .select("_example", "broken", *(F.col(name).cast("string") for name in "abc"))
        .collect()
    )


_SUMS = (
    {
        "ab": ("a", "b"),
        "ba": ("b", "a"),
        "bc": ("b", "c"),
        "zero_a": ("zero", "a"),
        "a_zero": ("a", "zero"),
        "zero_one": ("zero", "one"),
        "one_zero": ("one", "zero"),
    },
    {"ab_c": ("ab", "c"), "a_bc": ("a", "bc")},
)


def _laws(monoid: Monoid) -> list[tuple[str, str, str]]:
    """Each law's name, and the columns of its two sides."""
    laws = [
        ("(a + b) + c = a + (b + c)", "ab_c", "a_bc"),
        ("0 + a = a", "zero_a", "a"),
        ("a + 0 = a", "a_zero", "a"),
    ]
    if _lifts(monoid):
        # A wrong identity may hide in every state that was gathered, but not in that of one record.
        laws += [("0 + lift(record) = lift(record)", "zero_one", "one")]
        laws += [("lift(record) + 0 = lift(record)", "one_zero", "one")]
    if monoid.commutative:
        laws += [("a + b = b + a", "ab", "ba"), ("total(a, b, c) = a + b + c", "total", "ab_c")]
    if _lifts(monoid):
        laws += [("gather(records) = lift(record) + lift(record) + ...", "all", "added")]
    return [*laws, ("gather(all records) = a + b + c, for any cut", "all", "ab_c")]


def _cuts(length: int, commutative: bool) -> list[list[int]]:
    """The cuts, as the batch of each record: in thirds; all in one; dealt out, where the order doesn't matter."""
    thirds = [min(2, index * 3 // max(length, 1)) for index in range(length)]
    return [thirds, [1] * length, *([[index % 3 for index in range(length)]] if commutative else [])]


def _lifts(monoid: Monoid) -> bool:
    """Whether the monoid says what the state of one record is."""
    try:
        monoid.lift()
    except NotImplementedError:
        return False
    return True
