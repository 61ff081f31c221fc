"""A layout that doesn't fit the table's columns is refused, with its option."""

from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from connector.config import DeltaAppendSink
from connector.derive.layout import laid_out
from sinks.delta.detail import Detail
from sinks.delta.limits import faults
from sinks.errors import ConfigurationError

COLUMNS = StructType(
    [
        StructField("id", IntegerType()),
        StructField("day", DateType()),
        StructField("name", StringType()),
        StructField("best", StringType()),
        StructField("tags", ArrayType(StringType())),
        StructField("blob", BinaryType()),
        StructField("open", BooleanType()),
        StructField("at", StructType([StructField(f"f{n}", IntegerType()) for n in range(24)])),
        StructField("late", TimestampType()),
        StructField("later", TimestampType()),
        StructField("_commit_version", IntegerType()),
        StructField("of day", IntegerType()),
        StructField("_sequence", IntegerType()),
        StructField("_offset", IntegerType()),
    ]
)
CARRIED = ("id", "day", "name", "tags", "blob")
STATS = "delta.dataSkippingStatsColumns"
FEED = "delta.enableChangeDataFeed"
MODE = "delta.columnMapping.mode"


def sink(**options: Any) -> DeltaAppendSink:
    return DeltaAppendSink(type="delta_append", path="t", **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"partition_by": "Day"}, "partition_by: 'Day' isn't a column"),
        ({"cluster_by": "nope"}, "cluster_by: 'nope' isn't a column"),
        ({"comments": {"nope": "x"}}, "comments: 'nope' isn't a column"),
        ({"partition_by": "_sequence"}, "keeps for itself"),
        ({"cluster_by": "_sequence"}, "keeps for itself"),
        ({"partition_by": "tags"}, "type ARRAY<STRING>"),
        ({"partition_by": "at"}, "type STRUCT<"),
        ({"partition_by": "blob"}, "type BINARY"),
        ({"partition_by": "_offset"}, "another value in each record"),
        ({"partition_by": "best"}, "works out"),
        ({"cluster_by": "open"}, "type BOOLEAN"),
        ({"cluster_by": "tags"}, "type ARRAY<STRING>"),
        ({"cluster_by": "later"}, "no statistics of 'later'"),
        ({"cluster_by": "id", "properties": {STATS: "day, name"}}, "no statistics of 'id'"),
        ({"cluster_by": "day", "properties": {"delta.dataSkippingNumIndexedCols": 1}}, "no statistics of 'day'"),
        ({"properties": {STATS: "id, nope"}}, "nope isn't a column"),
        ({"properties": {FEED: "true"}}, "change data feed has a column"),
        ({"properties": {MODE: "none"}}, "'of day' needs column mapping"),
    ],
)
def test_it_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        laid_out(sink(**options), COLUMNS, CARRIED)
    assert caught.value.message.startswith(f"sinks[0].{next(iter(options))}: ")
    assert told in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": ["day", "name", "open"]},
        {"cluster_by": ["id", "day", "name", "late"]},
        {"cluster_by": "later", "properties": {STATS: "id,`later`"}},
        {"cluster_by": "later", "properties": {"delta.dataSkippingNumIndexedCols": -1}},
        {"properties": {MODE: "id"}},
        {"comments": {"_sequence": "when"}},
    ],
)
def test_it_fits(options: dict[str, Any]) -> None:
    made = laid_out(sink(**options), COLUMNS, CARRIED, {"id": "declared", "best": "of another column"})
    for name in ("partition_by", "cluster_by"):
        wanted = options.get(name, ())
        assert list(getattr(made, name)) == ([wanted] if isinstance(wanted, str) else list(wanted))
    assert made.declared == {"id": "declared"}


@pytest.mark.parametrize(
    ("zone", "twice"),
    [
        ("UTC", False), ("+05:30", False), ("GMT-3", False), ("Asia/Tokyo", False), ("Etc/UTC", False),
        ("America/New_York", True), ("Europe/Berlin", True), ("no zone of Python's", True),
    ],
)  # fmt: skip
def test_a_time_that_is_worked_out_is_a_folder_only_where_no_hour_comes_twice(zone: str, twice: bool) -> None:
    """Such as the start of a window: Delta reads it back from the folder's name, as the first of the two."""
    with pytest.raises(ConfigurationError, match="hour that comes twice") if twice else nullcontext():
        laid_out(sink(partition_by="late"), COLUMNS, CARRIED, zone=zone)
    laid_out(sink(partition_by="late"), COLUMNS, (*CARRIED, "late"), zone=zone)
    laid_out(sink(cluster_by="late"), COLUMNS, CARRIED, zone=zone)
    made_by_hand = faults(Detail("t", {}, partitions=["late"]), COLUMNS, COLUMNS, CARRIED, zone=zone)
    assert len(made_by_hand) == (1 if twice else 0)
