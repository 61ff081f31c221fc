"""What the auditor asks of Spark."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from connector.audit.debezium import events
from connector.audit.decode import decoded
from connector.audit.formats import Form, Forms
from connector.config import DebeziumFormat


@pytest.mark.classic("Spark's plan is looked at")
def test_a_record_is_read_once_and_not_again_for_those_without_a_problem(spark: SparkSession) -> None:
    row = "id INT, name STRING, amount DECIMAL(10,2)"
    kind = StructType.fromDDL(row) if hasattr(StructType, "fromDDL") else spark.createDataFrame([], row).schema
    of_events = events(DebeziumFormat(format="debezium", schema=row), kind)
    records = spark.range(1).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key", "CAST(CAST(id AS STRING) AS BINARY) AS value", "'t' AS topic",
        "0 AS partition", "id AS offset", "current_timestamp() AS timestamp",
    )  # fmt: skip
    forms = Forms(Form(of_events.columns, events=of_events), None, False, None)
    found = decoded(records, forms, ["id"], ruled=False).frame.where("_problem IS NULL")
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("BatchEvalPython") == 1, "the names are looked at once"
    assert len(plan) < 200_000
