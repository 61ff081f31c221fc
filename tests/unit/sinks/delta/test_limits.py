"""The rules of a table in words, and the columns that a pipeline can't fill."""

from __future__ import annotations

from pyspark.sql import types as T

from sinks.delta.detail import Detail
from sinks.delta.limits import faults, told

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
