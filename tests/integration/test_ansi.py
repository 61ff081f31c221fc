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


def test_tables_and_letters_are_the_same_with_ansi_arithmetic_and_without(
    dialects: Iterator[str], lake: Lake, topic: Topic
) -> None:
    topic.send(*ODD, partition=0)
    found: dict[str, list[Any]] = {}
    for ansi in dialects:
        held = found.setdefault(ansi, [])
        for kind, sink in SINKS.items():
            place, letters = lake.folder / ansi / kind, lake.folder / ansi / f"letters-{kind}"
            pipeline = lake.pipeline(
                kind,
                sink={**sink, "path": str(place)},
                value={"format": "json", "mode": "permissive", "schema": "k STRING, n INT"},
                on_bad_record="dead_letter",
                dead_letters={"path": str(letters)},
            )
            pipeline.run()
            assert lake.spark is not None
            for at in (place, letters):
                frame = lake.spark.read.format("delta").load(str(at))
                columns = [name for name in frame.columns if name != "_noted_at"]
                held.append((kind, sorted(map(str, frame.select(*columns).collect()))))
            assert audit(pipeline.config).ok
    assert found["true"] == found["false"]
    assert len(found["true"][1][1]) > 0
