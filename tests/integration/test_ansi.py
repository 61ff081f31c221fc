"""Spark 4 has ANSI arithmetic by default, Spark 3.5 hasn't, and a session of the user's may say either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Lake, Topic
from pyspark.sql import SparkSession

from connector.audit import audit

ANSI = "spark.sql.ansi.enabled"
SINKS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {},
    "history": {"key": "k"},
    "aggregate": {"group_by": "k", "aggregates": {"sum": "sum(n)", "mean": "avg(n)", "p": "approx_percentile(n, 0.5)"}},
}
ODD = [
    ("a", {"k": "a", "n": 2**31 - 1}),
    ("b", {"k": "b", "n": 2**31}),  # for no INT
    ("c", {"k": "c", "n": "7"}),
    ("c", {"k": "c", "n": "7.5"}),
    ("d", {"k": "d", "n": 7.0}),
    ("d", {"k": "d", "n": "seven"}),
    ("a", {"k": "a", "n": 1}),
    ("c", None),
    ("e", {"k": "e", "n": None}),
]


@pytest.fixture
def dialects(spark: SparkSession) -> Iterator[Iterator[str]]:
    """The session has one after the other."""
    before = spark.conf.get(ANSI)

    def each() -> Iterator[str]:
        for ansi in ("true", "false"):
            spark.conf.set(ANSI, ansi)
            yield ansi

    yield each()
    spark.conf.set(ANSI, str(before))


@pytest.mark.breadth
@pytest.mark.parametrize("kind", SINKS)
def test_tables_and_letters_are_the_same_with_ansi_arithmetic_and_without(
    kind: str, dialects: Iterator[str], lake: Lake, topic: Topic
) -> None:
    topic.send(*ODD, partition=0)
    rows: dict[str, list[str]] = {}
    letters: dict[str, list[str]] = {}
    for ansi in dialects:
        place, aside = lake.folder / ansi / kind, lake.folder / ansi / "letters"
        pipeline = lake.pipeline(
            kind,
            sink={**SINKS[kind], "path": str(place)},
            value={"format": "json", "mode": "permissive", "schema": "k STRING, n INT"},
            on_bad_record="dead_letter",
            dead_letters={"path": str(aside)},
        )
        pipeline.run()
        assert lake.spark is not None
        for held, at in ((rows, place), (letters, aside)):
            frame = lake.spark.read.format("delta").load(str(at)).drop("_noted_at", "_table")
            held[ansi] = sorted(map(str, frame.collect()))
        assert audit(pipeline.config).ok
    assert rows["true"] == rows["false"]
    assert letters["true"] == letters["false"] != []
