"""The rules of a table in words, and the columns that a pipeline can't fill."""

from __future__ import annotations

from pyspark.sql import types as T

from sinks.delta.detail import Detail
from sinks.delta.limits import faults, told
from sinks.spark.limits import of_partition

VARCHAR = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
TABLE = T.StructType(
    [
        T.StructField("k", T.StringType(), nullable=False),
        T.StructField("v", T.StringType(), metadata=VARCHAR),
        T.StructField("at", T.StructType([T.StructField("zip", T.StringType(), nullable=False)])),
        T.StructField("twice", T.LongType()),
        T.StructField("id", T.LongType()),
    ]
)


def test_the_rules_of_a_table_are_told_a_line_each() -> None:
    detail = Detail("t", {"delta.constraints.small": "n < 100", "other": "x"}, generated={"twice": "n * 2"})
    assert told(detail, TABLE) == [
        "CHECK small: n < 100", "NOT NULL: k, at.zip", "v is VARCHAR(3)", "twice is generated: n * 2",
    ]  # fmt: skip
    assert told(Detail("t", {}), T.StructType([T.StructField("n", T.LongType())])) == []


def test_what_a_pipeline_can_not_do_to_a_table_is_said_at_once() -> None:
    detail = Detail("t", {"delta.appendOnly": "TRUE"}, identities=["id"])
    rows = T.StructType([T.StructField("ID", T.LongType())])
    assert faults(detail, TABLE, rows, ["ID"]) == [
        "column id is GENERATED ALWAYS AS IDENTITY, and the pipeline has values for it",
    ]


def test_a_value_that_delta_generates_has_the_limits_of_one_in_a_column() -> None:
    for kind in (T.StringType(), T.TimestampType(), T.DateType()):
        given = [(limit.broken.replace("`p`", "(f(`x`))"), limit.detail) for limit in of_partition("p", kind)]
        made = [(limit.broken, limit.detail) for limit in of_partition("p", kind, made="f(`x`)")]
        assert given == made
        assert bool(made) == (kind != T.DateType())


def test_where_folders_tell_times_in_utc_no_hour_comes_twice() -> None:
    known, in_utc = (of_partition("p", T.TimestampType(), in_utc=each) for each in (False, True))
    assert [limit.detail.split(", ")[0] for limit in in_utc] == ["its p is before the year 1"]
    assert in_utc == [limit for limit in known if "twice" not in limit.detail]
    assert of_partition("p", T.StringType(), in_utc=True) == of_partition("p", T.StringType())
