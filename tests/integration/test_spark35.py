"""What Spark 3.5 and its Hadoop lack is said before anything is touched."""

from __future__ import annotations

import pytest
from conftest import Lake, lakelock
from pyspark.sql import SparkSession

from connector.lab.bench.pipelines import SHORT_LIVED
from sinks.errors import ConfigurationError, UnsafeStore
from sinks.s3.hadoop import LOG_STORES, require_conditional_writes

pytestmark = pytest.mark.spark35


def test_a_quantile_needs_spark_4(lake: Lake) -> None:
    pipeline = lake.pipeline("aggregate", sink={"group_by": "k", "aggregates": {"p95": "quantile(n, 0.95)"}})
    with pytest.raises(ConfigurationError, match=r"sinks\[0\].aggregates.p95: quantile needs Spark 4.1") as error:
        pipeline.run()
    assert "approx_percentile" in error.value.hint
    assert not lake.path("aggregate").exists()


def test_columns_of_new_json_fields_need_spark_4(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=r"on_new_column: add, of JSON, needs Spark 4.0"):
        lake.pipeline(on_new_column="add").run()
    assert not lake.path().exists()


def test_a_table_on_s3_needs_spark_4(lake: Lake) -> None:
    file = lake.file(sink={"path": "s3a://bucket/table"}, spark=SHORT_LIVED)
    told = lakelock("run", file)
    assert told.returncode == 2
    assert "Tables on S3 need Spark 4" in told.stderr


def test_in_a_session_of_the_users_too(spark: SparkSession) -> None:
    assert spark.conf.get("spark.delta.logStore.s3a.impl", None) == LOG_STORES[0]
    with pytest.raises(UnsafeStore, match=r"Hadoop 3\.3"):
        require_conditional_writes(spark, "s3a://bucket/table")
