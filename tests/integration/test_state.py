"""The built-in aggregates keep the laws, agree with Spark's own, and fail where they can't be exact."""

from __future__ import annotations

import datetime
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connector.audit.functions import recomputed
from connector.spark.jars import built_for
from connector.spark.tuning import INTERPRETED
from connector.state import NAMES, Monoid, aggregate, bound, check_laws
from connector.state.values import First
from sinks.spark.row_errors import raised
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.compiled

VALUES = "i INT, l BIGINT, d DECIMAL(20,4), x DOUBLE, f FLOAT, s STRING, b BOOLEAN, t TIMESTAMP"
SCHEMA = f"{VALUES}, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
LITTLE = {
    "spark.sql.shuffle.partitions": "1",
    **INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
}
"""Compiling and adapting take longer than running, where there is so little to run."""

times = st.datetimes(datetime.datetime(2013, 1, 1), datetime.datetime(2013, 1, 3)).map(
    lambda time: time.replace(tzinfo=datetime.timezone.utc)
)
few = st.sampled_from
values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(10**15), 10**15),
        "d": st.none() | st.decimals(-(10**8), 10**8, places=4),
        "x": st.none() | few([0.1, 0.2, -0.0, 0.0, 1e10, 1e-9]) | st.floats(-1e9, 1e9),
        "f": st.none() | st.floats(-1e6, 1e6, width=32),
        "s": st.none()
        | few(["", "a", "b", "ä"])
        | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
        "b": st.none() | st.booleans(),
        "t": st.none() | times,
        "_timestamp": times | st.just(datetime.datetime(2013, 1, 1, tzinfo=datetime.timezone.utc)),
        "_partition": st.integers(0, 2),
    }
)


def with_offsets(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**record, "_topic": "t", "_offset": offset} for offset, record in enumerate(records)]


def varied(examples: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    """Hypothesis begins with the simplest draw, in which everything is NULL: one draw has to be another."""
    return sum(record["x"] is not None for example in examples for record in example) > 9


examples = st.lists(st.lists(values, min_size=1, max_size=9).map(with_offsets), min_size=12, max_size=25).filter(varied)
"""Many lists of records in one draw: a query over all of them takes as long as one over a single list."""

one_draw = settings(
    max_examples=1,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
QUANTILE = "quantile(x, 0.5)"
LAWFUL = [
    "count(*)", "count(s)", "sum(l)", "sum(d)", "sum(x)", "min(x)", "min(s)", "max(t)", "max(b)",
    "avg(i)", "avg(d)", "mean(f)", "variance(x)", "var_pop(d)", "stddev(l)", "stddev_pop(i)",
    "first(s)", "min_by(struct(s, i), x)", "last(x)", "max_by(x, i % 2)", "collect_set(x, 3)", "top_n(s, 2)",
    "approx_count_distinct(s)", "approx_percentile(x, 0.5)",
]  # fmt: skip

LIKE_OTHERS = {
    "count(s)", "sum(l)", "min(x)", "min(s)", "max(t)", "avg(d)", "mean(f)", "var_pop(d)", "stddev(l)",
    "stddev_pop(i)", "last(x)", "max_by(x, i % 2)",
}  # fmt: skip
"""For each there is one of the same class, or of its arguments' types."""


@pytest.fixture
def little(spark: SparkSession) -> Iterator[SparkSession]:
    with with_settings(spark, LITTLE):
        yield spark


@pytest.mark.breadth
@pytest.mark.parametrize(
    "text",
    [
        *(pytest.param(text, marks=pytest.mark.draws) if text in LIKE_OTHERS else text for text in LAWFUL),
        pytest.param(QUANTILE, marks=pytest.mark.spark4("KLL sketches")),
    ],
)
@one_draw
@given(examples=examples)
def test_the_laws_hold(little: SparkSession, text: str, examples: list[list[dict[str, Any]]]) -> None:
    check_laws(little, aggregate(text), SCHEMA, examples)


TIED = "named_struct('s', s, 'i', i, 't', t)"


@pytest.mark.breadth
@pytest.mark.parametrize(("text", "chosen"), [(f"first({TIED})", ("a", 10)), (f"last({TIED}, i)", ("b", 10))])
def test_of_the_rows_of_one_record_the_same_is_the_first_or_the_last(
    little: SparkSession, text: str, chosen: tuple[str, int]
) -> None:
    """Whatever their order and the cut, and the auditor chooses the same by its own rule."""
    time = datetime.datetime(2013, 1, 1, tzinfo=datetime.timezone.utc)
    record = {"t": time, "_topic": "t", "_partition": 0, "_offset": 7, "_timestamp": time}
    rows = [{"s": s, "i": i, **record} for s, i in (("b", 10), ("a", 10), ("a", 9), (None, 9), ("b", None))]
    examples = [[*order] for order in itertools.permutations(rows)][::7]
    monoid = aggregate(text)
    assert isinstance(monoid, First)
    monoid.several = True
    check_laws(little, monoid, SCHEMA, examples)
    (ours,) = bound(little, SCHEMA, [monoid])
    for order in examples[:2]:
        frame = little.createDataFrame(order, SCHEMA)
        part = recomputed(text, "a", option="aggregates.a", own=set(), records=frame, several=True)
        assert part is not None
        found = frame.agg(expression(ours.present(ours.gather()), "r_a"))
        again = frame.selectExpr(*(f"{sql} AS {name}" for name, sql in part.arguments.items())).agg(
            *(column.alias(name) for name, column in part.aggregates.items())
        )
        (row,) = found.crossJoin(again).selectExpr("r_a.s", "r_a.i", f"{part.equal} AS equal").collect()
        assert (row["s"], row["i"], row["equal"]) == (*chosen, True)


def test_every_aggregate_is_tried() -> None:
    assert {type(aggregate(text)) for text in [*LAWFUL, QUANTILE]} == set(NAMES.values())


def sums(spark: SparkSession, texts: Sequence[str], schema: str, rows: Sequence[Sequence[object]]) -> tuple[Any, ...]:
    """What readers see after each row was a batch of its own, but the last two, which were one."""
    monoids = bound(spark, schema, [aggregate(text, OWN) for text in texts])
    numbered = [(min(number, len(rows) - 2), *row) for number, row in enumerate(rows)]
    parts = spark.createDataFrame(numbered, f"_batch INT, {schema}").groupBy("_batch")
    partial = parts.agg(*(expression(m.gather(), f"s{n}") for n, m in enumerate(monoids)))
    total = partial.groupBy().agg(*(expression(m.total(f"s{n}"), f"s{n}") for n, m in enumerate(monoids)))
    return tuple(total.select(*(expression(m.present(f"s{n}"), f"s{n}") for n, m in enumerate(monoids))).collect()[0])


def expression(sql: str, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.expr(sql).alias(name)


NO_QUANTILE = built_for.installed().spark == "3.5"
MERGED = {
    "count(*)": "count(*)",
    "sum(i)": "sum(i)",
    "sum(x)": "sum(x)",
    "min(x)": "min(x)",
    "avg(d)": "avg(d)",
    "variance(i)": "variance(i)",
    "first(s)": "min_by(s, struct(_timestamp, _topic, _partition, _offset))",
    "last(map('s', s), x)": "max_by(map('s', s), CASE WHEN x IS NOT NULL THEN struct(x, _offset) END)",
    "collect_set(s, 3)": "slice(sort_array(collect_set(s)), 1, 3)",
    "top_n(i, 4)": "slice(sort_array(collect_list(i), false), 1, 4)",
    "approx_count_distinct(l)": "count(DISTINCT l)",
    "approx_percentile(x, 0.9)": "percentile_approx(x, 0.9, 100000)",
    "quantile(i, 0.25)": "CAST(percentile_approx(i, 0.25, 100000) AS DOUBLE)",
}
if NO_QUANTILE:
    del MERGED["quantile(i, 0.25)"]


@pytest.mark.breadth
def test_states_merged_into_a_table_are_what_spark_says_of_all_records(little: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(2013)
    start = datetime.datetime(2013, 1, 1, tzinfo=datetime.timezone.utc)

    def record(offset: int) -> tuple[object, ...]:
        row = [
            dice.randrange(-50, 50),
            dice.randrange(10**13),
            Decimal(dice.randrange(10**9)).scaleb(-4),
            dice.gauss(100, 30),
            dice.gauss(0, 1),
            dice.choice("abcdefgh"),
            dice.random() < 0.5,
            start,
        ]
        some = [value if dice.random() < 0.9 else None for value in row]
        at = start + datetime.timedelta(minutes=dice.randrange(60))
        return {0: "old", 399: "new"}.get(offset, dice.choice("pqr")), *some, "t", dice.randrange(3), offset, at

    schema = f"g STRING, {SCHEMA}"
    records = [record(offset) for offset in range(400)]
    monoids = bound(little, schema, [aggregate(text) for text in MERGED])
    each = list(enumerate(monoids))
    target = f"delta.`{tmp_path / 'table'}`"

    def states(batch: list[tuple[object, ...]]) -> DataFrame:
        frame = little.createDataFrame(batch, schema).groupBy("g", "_partition")
        partial = frame.agg(*(expression(m.gather(), f"s{n}") for n, m in each)).groupBy("g")
        total = partial.agg(*(expression(m.total(f"s{n}"), f"s{n}") for n, m in each))
        packed = ", ".join(f"'s{n}', s{n}" for n, _ in each)
        seen = (expression(m.present(f"s{n}"), f"v{n}") for n, m in each)
        return total.select("g", expression(f"named_struct({packed})", "_state"), *seen)

    states(records[:150]).write.format("delta").save(str(tmp_path / "table"))
    states(records[150:]).createOrReplaceTempView("batch")
    plus = {n: m.plus(f"t._state.`s{n}`", f"s._state.`s{n}`") for n, m in each}
    update = ", ".join(f"t.v{n} = {m.present(plus[n])}" for n, m in each)
    state = ", ".join(f"'s{n}', {plus[n]}" for n, _ in each)
    little.sql(
        f"MERGE INTO {target} t USING batch s ON t.g = s.g "
        f"WHEN MATCHED THEN UPDATE SET t._state = named_struct({state}), {update} WHEN NOT MATCHED THEN INSERT *"
    )
    found = little.read.format("delta").load(str(tmp_path / "table")).drop("_state").orderBy("g").collect()
    own = (expression(sql, f"v{n}") for n, sql in enumerate(MERGED.values()))
    expected = little.createDataFrame(records, schema).groupBy("g").agg(*own).orderBy("g").collect()
    assert [row["g"] for row in found] == ["new", "old", "p", "q", "r"]
    for ours, theirs in zip(found, expected, strict=True):
        for text, our, their in zip(MERGED, ours[1:], theirs[1:], strict=True):
            close = 0.02 if text.startswith("approx") else 1e-6
            if isinstance(their, float | int | Decimal):
                assert float(our) == pytest.approx(float(their), rel=close, abs=1e-6), text
            else:
                assert our == their, text


OF_NOTHING = {
    **dict.fromkeys(("count(x)", "approx_count_distinct(x)"), 0),
    **dict.fromkeys(("sum(x)", "min(x)", "max(x)", "avg(x)", "var_pop(x)", "stddev(x)", "first(x)", "last(x, x)")),
    **dict.fromkeys(("approx_percentile(x, 0.5)", *(() if NO_QUANTILE else ("quantile(x, 0.5)",)))),
    "collect_set(x, 2)": [],
    "top_n(x, 2)": [],
}


@pytest.mark.breadth
def test_nulls_add_nothing(little: SparkSession) -> None:
    rows = [(None, "t", 0, n, None) for n in range(3)]
    schema = "x DOUBLE, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
    assert dict(zip(OF_NOTHING, sums(little, list(OF_NOTHING), schema, rows), strict=True)) == OF_NOTHING


def test_sums_are_exact_and_of_the_usual_type(little: SparkSession) -> None:
    big = 2**63 - 1
    rows = [(big, 0.1, Decimal("0.01")), (big, 0.2, Decimal("0.02")), (-big, 1e15, None), (-1, -1e15, None)]
    texts = ["sum(l)", "sum(x)", "sum(d)", "avg(d)", "avg(l)"]
    found = sums(little, texts, "l BIGINT, x DOUBLE, d DECIMAL(38, 18)", rows)
    assert found == (big - 1, 0.3, Decimal("0.03"), Decimal("0.015"), (big - 1) / 4)


def test_a_variance_survives_values_far_from_zero(little: SparkSession) -> None:
    rows = [(1_700_000_000_000 + n, 1e9 + n / 8, Decimal(n).scaleb(-9)) for n in (1, 2, 4, 9)]
    found = sums(
        little, ["variance(l)", "variance(x)", "var_pop(d)", "stddev(l)"], "l BIGINT, x DOUBLE, d DECIMAL(18, 9)", rows
    )
    sample = 38 / 3
    assert found == pytest.approx((sample, sample / 64, 38 / 4 * 1e-18, math.sqrt(sample)), rel=1e-9)


FAILING = [
    ("sum(x)", "x BIGINT", [2**63 - 1, 1, 0], "overflow"),
    ("sum(x)", "x DOUBLE", [1e19, 0.0, 0.0], "overflow"),
    ("sum(x)", "x DOUBLE", [9e18, 9e18, 0.0], "overflow"),
    ("sum(x)", "x DOUBLE", [0.0, 9e18, 9e18], "overflow"),
    ("sum(x)", "x DECIMAL(38, 0)", [Decimal(10) ** 37, Decimal(0), Decimal(0)], "overflow"),
    ("avg(x)", "x DECIMAL(38, 2)", [Decimal("9e34")] * 3, "overflow"),
    ("variance(x)", "x BIGINT", [2**60, 0, 0], "overflow"),
    ("stddev(x)", "x DOUBLE", [1e12, 0.0, 0.0], "overflow"),
    ("sum(x)", "x DOUBLE", [math.nan, 1.0, 1.0], "not_a_number"),
    ("avg(x)", "x FLOAT", [1.0, 1.0, math.inf], "not_a_number"),
    ("var_pop(x)", "x DOUBLE", [1.0, -math.inf, 1.0], "not_a_number"),
    ("approx_percentile(x, 0.5)", "x DOUBLE", [1.0, -math.inf, 1.0], "not_a_number"),
]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.breadth
def test_what_has_no_exact_result_fails_the_query(little: SparkSession, ansi: str) -> None:
    with with_settings(little, {"spark.sql.ansi.enabled": ansi}):
        for text, schema, column, kind in FAILING:
            with pytest.raises(Exception) as error:
                sums(little, [text], schema, [(x,) for x in column])
            data = raised(error.value)
            assert data is not None, (text, error.value)
            assert (data["kind"], data["aggregate"]) == (kind, text)


@pytest.mark.breadth
def test_percentiles_are_within_a_hundredth_and_the_same_every_time(little: SparkSession) -> None:
    dice = random.Random(7)
    column = sorted([0.0, *(dice.choice((-1, 1)) * dice.lognormvariate(0, 9) for _ in range(999))])
    shuffled = dice.sample(column, len(column))
    texts = [f"approx_percentile(x, {p})" for p in ("0", "0.01", "0.25", ".5", "0.9", "1")]
    found = sums(little, texts, "x DOUBLE", [(x,) for x in shuffled])
    exact = [column[max(1, math.ceil(p * len(column))) - 1] for p in (0, Fraction("0.01"), 0.25, 0.5, 0.9, 1)]
    assert found == pytest.approx(exact, rel=0.0100001)


class BitOr(Monoid):
    identity = "0"

    def lift(self) -> str:
        return self.arguments[0]

    def plus(self, left: str, right: str) -> str:
        return f"{left} | {right}"


class Longest(Monoid):
    """The longest text, of several the last in the alphabet: a state of more than it shows."""

    def lift(self) -> str:
        return f"named_struct('n', length({self.arguments[0]}), 'text', {self.arguments[0]})"

    def plus(self, left: str, right: str) -> str:
        return f"greatest({left}, {right})"

    def present(self, state: str) -> str:
        return f"({state}).text"


class InOrder(Monoid):
    """All texts in the order of their offsets."""

    commutative = False
    identity = "''"

    def lift(self) -> str:
        return self.arguments[0]

    def plus(self, left: str, right: str) -> str:
        return f"concat({left}, {right})"


class Middle(BitOr):
    def plus(self, left: str, right: str) -> str:
        return f"CAST(({left} + {right}) / 2 AS INT)"


class Smallest(BitOr):
    def plus(self, left: str, right: str) -> str:
        return f"least({left}, {right})"


class Newest(InOrder):
    commutative = True

    def plus(self, left: str, right: str) -> str:
        return f"CASE WHEN {right} = '' THEN {left} ELSE {right} END"


class Hasty(BitOr):
    def gather(self) -> str:
        return f"coalesce(max({self.arguments[0]}), 0)"


OWN = {"bit_or": BitOr, "longest": Longest, "path": InOrder}


@pytest.mark.parametrize("text", ["bit_or(i)", "longest(s)", "path(s)"])
@one_draw
@given(examples=examples)
def test_monoids_of_ones_own_keep_the_laws(little: SparkSession, text: str, examples: list[Any]) -> None:
    check_laws(little, aggregate(text, OWN), SCHEMA, examples)


@pytest.mark.parametrize(
    ("monoid", "law"),
    [
        (Middle("i"), "(a + b) + c = a + (b + c)"),
        (Smallest("i"), "0 + lift(record) = lift(record)"),
        (Newest("s"), "a + b = b + a"),
        (Hasty("i"), "gather(records) = lift"),
    ],
)
def test_a_broken_one_is_refused_with_the_law_and_the_records(little: SparkSession, monoid: Monoid, law: str) -> None:
    records = with_offsets([{"i": i, "s": s} for i, s in ((1, "a"), (2, "b"), (4, "c"), (9, "d"))])
    with pytest.raises(AssertionError) as error:
        check_laws(little, monoid, SCHEMA, [records, records[:3]])
    assert f"{monoid} breaks the law {law}" in str(error.value)
    assert "'s': 'a'" in str(error.value)
    assert "'s': 'd'" not in str(error.value), "the smaller example is enough"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sum(s)", r"sum\(s\) needs a number and gets STRING: try CAST\(... AS DOUBLE\)"),
        ("approx_percentile(t, 0.5)", "needs a number and gets TIMESTAMP"),
        ("max(nobody)", r"max\(nobody\): .*nobody"),
        ("max(map(s, i))", r"max\(map\(s, i\)\): .*order"),
        ("sum(count(i))", r"sum\(count\(i\)\): "),
        ("sum(rand())", r"sum\(rand\(\)\): .*(?i:nondeterministic)"),
        ("approx_count_distinct(no_such_thing(i))", "no_such_thing"),
    ],
)
def test_a_mistake_in_an_argument_is_found_before_anything_runs(little: SparkSession, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bound(little, SCHEMA, [aggregate(text)])
