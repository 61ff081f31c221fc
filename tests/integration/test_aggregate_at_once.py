"""Where few partitions have an epoch's records, they are added up in one step: with the rows that two steps give."""

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from bench import START

from connector.derive.aggregate import _Partials
from connector.state import aggregate, bound
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = {
    "records": "count(*)", "named": "count(k)", "total": "sum(n)", "mean": "avg(n)",
    "least": "min(t)", "most": "max(k)", "first": "first(n)", "last": "last(k, n)",
}  # fmt: skip
PLACED = "k STRING, n INT, t TIMESTAMP, x DOUBLE, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
RANGES = (OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 0, 50), OffsetRange("it's-1", 1, 7, 90))


def partials(spark: "SparkSession", *group_by: str, **aggregates: str) -> _Partials:
    texts = [aggregate(text) for text in aggregates.values()]
    states = dict(zip(aggregates, bound(spark, PLACED, texts), strict=True))
    return _Partials(None, SimpleNamespace(group_by=group_by, window=None), states)  # type: ignore[arg-type]


@pytest.mark.compiled
@pytest.mark.parametrize("group_by", [("k",), ("_topic", "n"), ()])
def test_one_step_gives_the_rows_of_two(spark: "SparkSession", group_by: tuple[str, ...]) -> None:
    dice = random.Random(2013)

    def row(place: OffsetRange, offset: int) -> tuple[Any, ...]:
        n = dice.choice((None, -(2**31), 2**31 - 1, dice.randrange(-9, 9)))
        at = START + timedelta(minutes=dice.randrange(9))
        return dice.choice((None, "a", "b", "c")), n, at, None, place.topic, place.partition, offset, at

    rows = [row(place, offset) for place in RANGES for offset in range(place.start, place.start + 40)]
    alone = [("alone", 77, START, None, "t", 1, 48, START), (None, 78, None, None, "t", 0, 49, START)]
    ours = partials(spark, *group_by, **AT_ONCE)

    def sorted_rows(frame: "DataFrame") -> list[str]:
        return sorted(repr({**row.asDict(recursive=True), "_offsets": sorted((row["_offsets"] or {}).items())})
                      for row in frame.collect())  # fmt: skip

    for some in ([*rows, *alone], []):
        records = spark.createDataFrame(some, PLACED)
        one, two = ours.of(records, RANGES), ours.of(records)
        assert one.schema == two.schema
        assert sorted_rows(one) == sorted_rows(two)
        assert len(sorted_rows(one)) > 3 or not (some and group_by)


def test_a_record_of_another_partition_fails_the_one_step(spark: "SparkSession") -> None:
    """Without its offset in the row, a replay would add it again."""
    ours = partials(spark, "k", records="count(*)")
    for topic, partition in (("t", 2), ("it's-1", 0), ("T", 0), (None, 0), ("t", None)):
        records = spark.createDataFrame([("a", 1, START, None, topic, partition, 5, START)], PLACED)
        with pytest.raises(Exception, match="not_of_epoch"):
            ours.of(records, RANGES).collect()


@pytest.mark.parametrize(
    ("text", "partitions", "shuffles"),
    [("sum(n)", 8, 1), ("sum(n)", 9, 2), ("sum(n)", 0, 2), ("sum(x)", 1, 2), ("avg(x)", 1, 2), ("variance(n)", 1, 2),
     ("approx_count_distinct(n)", 1, 2), ("approx_percentile(x, 0.5)", 1, 2), ("top_n(n, 2)", 1, 2)],
)  # fmt: skip
def test_one_step_is_for_few_partitions_and_for_states_that_come_out_the_same(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str], text: str, partitions: int, shuffles: int
) -> None:
    ranges = [OffsetRange("t", number, 0, 9) for number in range(partitions)]
    records = spark.createDataFrame([("a", 1, START, None, "t", 0, 5, START)], PLACED).repartition(2)
    partials(spark, "k", records="count(*)", more=text).of(records, ranges).explain()
    plan = capsys.readouterr().out
    assert plan.count("Exchange hashpartitioning") == shuffles
    assert ("ObjectHashAggregate" in plan) == (shuffles == 2)
