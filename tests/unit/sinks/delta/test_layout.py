"""The SQL that makes a table, and how one that is there differs."""

from pyspark.errors import IllegalArgumentException
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from sinks.delta.detail import Detail
from sinks.delta.layout import NO_LAYOUT, Layout
from sinks.errors import ConfigurationError

COLUMNS = StructType([StructField("id", IntegerType()), StructField("day", StringType())])
WHOLE = Layout(
    partition_by=["day"],
    properties={"delta.enableChangeDataFeed": "true"},
    comment="all of today's orders",
    comments={"id": "the customer's ${env:HOME}\n\U000e0001"},
    declared={"id": "older", "day": 'a "day"'},
)


def test_the_sql_of_every_clause() -> None:
    assert WHOLE.create_sql("`t`", COLUMNS).splitlines() == [
        "CREATE TABLE IF NOT EXISTS `t` (",
        "  `id` int COMMENT 'the customer\\u0027s \\u0024{env:HOME}\\u000a\\U000e0001',",
        "  `day` string COMMENT 'a \"day\"'",
        ")",
        "USING delta",
        "PARTITIONED BY (`day`)",
        "COMMENT 'all of today\\u0027s orders'",
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    ]


def test_without_a_layout_there_are_columns_only() -> None:
    assert (
        NO_LAYOUT.create_sql("`t`", COLUMNS) == "CREATE TABLE IF NOT EXISTS `t` (`id` int, `day` string)\nUSING delta"
    )
    clustered = Layout(cluster_by=["id", "day"]).create_sql("`t`", COLUMNS)
    assert clustered.endswith("CLUSTER BY (`id`, `day`)")


def test_a_name_that_needs_column_mapping_brings_it_unless_the_layout_says_how() -> None:
    special = StructType([StructField("of day", IntegerType())])
    assert "'delta.columnMapping.mode' = 'name'" in NO_LAYOUT.create_sql("`t`", special)
    by_id = Layout(properties={"delta.columnMapping.mode": "id"})
    assert "'delta.columnMapping.mode' = 'id'" in by_id.create_sql("`t`", special)
    assert by_id.detail(special).column_mapping == "id"


def test_lakelocks_own_properties_win() -> None:
    own = WHOLE.with_properties({"delta.enableChangeDataFeed": "false"})
    assert own.detail(COLUMNS).properties == {"delta.enableChangeDataFeed": "false"}
    assert own.detail(COLUMNS).partitions == ["day"]


def test_what_differs_is_told_and_what_the_layout_does_not_say_is_not_compared() -> None:
    assert WHOLE.differences(Detail("", {})) == [
        "partition_by: day, and the table isn't partitioned",
        "properties: delta.enableChangeDataFeed = true, and the table hasn't got it",
    ]
    other = Detail("", {"delta.enablechangedatafeed": "false"}, partitions=["id"], clusters=["id"])
    assert Layout(["day"], ["day"], WHOLE.properties).differences(other) == [
        "partition_by: day, and the table is partitioned by id",
        "cluster_by: day, and the table is clustered by id",
        "properties: delta.enableChangeDataFeed = true, and the table has false",
    ]
    assert NO_LAYOUT.differences(other) == []
    same = Detail("", {"delta.enableChangeDataFeed": "TRUE", "delta.x": "1"}, partitions=["Day"])
    assert WHOLE.differences(same) == []


def test_properties_that_a_table_shows_in_another_way_are_not_compared() -> None:
    properties = {"delta.feature.clustering": "supported", "delta.minReaderVersion": "3", "api.token": "x"}
    assert Layout(properties=properties).differences(Detail("", {"api.token": "*********(redacted)"})) == []


def test_other_comments_are_told_but_not_those_of_the_schema() -> None:
    there = StructType([StructField("id", IntegerType(), metadata={"comment": "x"}), StructField("day", StringType())])
    assert WHOLE.other_comments(Detail("", {}, comment="orders"), there) == [
        "comment: the table's is 'orders'", "comments: the table has other ones of id",
    ]  # fmt: skip
    assert NO_LAYOUT.other_comments(Detail("", {}, comment="orders"), there) == []


def test_only_what_delta_says_of_the_layout_is_a_fault_of_the_file() -> None:
    refused = WHOLE.refused("t", RuntimeError("[DELTA_UNKNOWN_CONFIGURATION] no\nmore"))
    assert isinstance(refused, ConfigurationError)
    assert refused.message == "Delta doesn't make the table 't' as its sink says: [DELTA_UNKNOWN_CONFIGURATION] no"
    assert WHOLE.refused("t", IllegalArgumentException("Invalid Parquet version string: nine")) is not None
    assert Layout(["day"]).refused("t", IllegalArgumentException("another")) is None
    assert WHOLE.refused("t", RuntimeError("Connection refused")) is None
    own = NO_LAYOUT.with_properties({"lakelock.shape.70": "7b7d"})
    for layout in (NO_LAYOUT, own):
        assert layout.refused("t", RuntimeError("[DELTA_X] no")) is None
    assert own.refused("t", IllegalArgumentException("another")) is None


def test_a_folder_that_can_not_be_made_is_no_fault_of_the_layout() -> None:
    layout = Layout(properties={"delta.appendOnly": "false"})
    assert layout.refused("t", RuntimeError("[DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/t/_delta_log")) is None
    assert layout.refused("t", RuntimeError("[DELTA_UNKNOWN_CONFIGURATION] delta.x")) is not None
