"""Sums of integers are added up in two longs, and come out as sums of decimals do."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from connector.spark.tuning import INTERPRETED
from connector.state import aggregate, bound
from sinks.spark.row_errors import raised
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.compiled

INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}


def expression(sql: str, name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.expr(sql).alias(name)


@pytest.fixture
def little(spark: "SparkSession") -> Iterator["SparkSession"]:
    with with_settings(spark, {"spark.sql.shuffle.partitions": "1", **INTERPRETED}):
        yield spark


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_of_integers_in_two_longs_are_those_of_decimals(little: "SparkSession", ansi: str) -> None:
    """In every type, with its extremes and NULLs. ``total`` adds the same numbers up as decimals."""
    dice = random.Random(2013)
    edges = [-1, 0, 1, 2**32 - 1, 2**32, -(2**32), 2**31, -(2**31) - 1, 2**62]
    rows: list[tuple[int | None, ...]] = [(-1, *(None for _ in INTEGERS)) for _ in range(3)]
    for number in range(300):
        most = dice.choice(edges)
        row = (dice.choice((-(2**bits), 2**bits - 1, dice.randrange(2**bits), most)) for bits in INTEGERS.values())
        held = (x if -(2**bits) <= x < 2**bits else None for x, bits in zip(row, INTEGERS.values(), strict=True))
        rows.append((number % 7, *held))
    schema = "g INT, " + ", ".join(f"x_{sql} {sql}" for sql in INTEGERS)
    with with_settings(little, {"spark.sql.ansi.enabled": ansi}):
        monoids = bound(little, schema, [aggregate(f"{f}(x_{sql})") for f in ("sum", "avg") for sql in INTEGERS])
        states = [
            expression(sql, f"{way}_{n}")
            for n, m in enumerate(monoids)
            for way, sql in (("gather", m.gather()), ("total", m.total(m.lift())))
        ]
        found = little.createDataFrame(rows, schema).groupBy("g").agg(*states)
        for n in range(len(monoids)):
            assert found.schema[f"gather_{n}"].dataType == found.schema[f"total_{n}"].dataType
            assert found.schema[f"gather_{n}"].nullable
        groups = found.collect()
    for group in groups:
        for n, monoid in enumerate(monoids):
            assert group[f"gather_{n}"] == group[f"total_{n}"], monoid
        for n, column in enumerate(INTEGERS):
            own = [x for g, *held in rows if g == group["g"] and (x := held[n]) is not None]
            assert group[f"gather_{n}"] == (sum(own) if own else None), column
    assert len(groups) == 8


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_half_that_does_not_fit_into_its_long_fails_the_query(little: "SparkSession", ansi: str) -> None:
    """That needs more than 2^31 records, so here the lower half is nearly the whole number."""
    with with_settings(little, {"spark.sql.ansi.enabled": ansi}):
        rows = little.createDataFrame([(2**62,), (2**62,), (None,)], "x BIGINT")
        for text in ("sum(x)", "avg(x)"):
            (monoid,) = bound(little, "x BIGINT", [aggregate(text)])
            wide = monoid.gather().replace("& 4294967295L", "& 9223372036854775807L")
            assert wide != monoid.gather()
            with pytest.raises(Exception) as error:
                rows.agg(expression(wide, "state")).collect()
            data = raised(error.value)
            assert data is not None, error.value
            assert (data["kind"], data["aggregate"]) == ("overflow", text)


def test_what_an_argument_raises_is_raised_in_a_sum(little: "SparkSession") -> None:
    """``try_sum`` makes NULL of a sum that doesn't fit, not of an argument that fails."""
    with with_settings(little, {"spark.sql.ansi.enabled": "true"}):
        for text in ("sum(x + x)", "avg(x + x)"):
            (monoid,) = bound(little, "x INT", [aggregate(text)])
            rows = little.createDataFrame([(2**31 - 1,), (1,)], "x INT")
            with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
                rows.agg(expression(monoid.gather(), "state")).collect()
