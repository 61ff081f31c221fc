"""The Delta sinks show what every sink must."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from another_engine import query
from conftest import own_session

from connector.spark.compat import from_ddl
from sinks.conformance import SinkConformance, TwoPhaseConformance
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.history import DeltaHistory
from sinks.delta.table import DeltaTable
from sinks.delta.two_phase import TwoPhaseDelta
from sinks.delta.upsert import DeltaUpsert
from sinks.delta.upsert_rule import UpsertRule
from sinks.delta.version_columns import VersionColumns
from sinks.errors import KeyMoved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"


class DeltaConformance(SinkConformance["DataFrame"]):
    @pytest.fixture(autouse=True)
    def _table(self, spark: "SparkSession", tmp_path: Path) -> None:
        self.spark = own_session(spark)
        self.path = str(tmp_path / "table")
        DeltaTable(self.spark, path=self.path).create(from_ddl(SCHEMA))

    def make_sink(self) -> DeltaAppend | DeltaUpsert | DeltaHistory:
        table = DeltaTable(self.spark, path=self.path)
        return self.of(table, PipelineCommits(table, pipeline="conformance", topics=["t"]))

    def of(self, table: DeltaTable, commits: PipelineCommits) -> DeltaAppend | DeltaUpsert | DeltaHistory:
        return DeltaAppend(table, commits)

    def make_rows(self, values: Sequence[str], first_offset: int) -> "DataFrame":
        now = datetime(2026, 1, 1, tzinfo=timezone.utc)
        rows = [(value, "t", 0, offset, now) for offset, value in enumerate(values, start=first_offset)]
        return self.spark.createDataFrame(rows, SCHEMA)

    def read_values(self) -> list[str]:
        return [key for (key,) in query(self.path, "SELECT k FROM t")]


@pytest.mark.breadth
class TestDeltaAppend(DeltaConformance):
    pass


class TestDeltaUpsert(DeltaConformance):
    def of(self, table: DeltaTable, commits: PipelineCommits) -> DeltaAppend | DeltaUpsert | DeltaHistory:
        return DeltaUpsert(table, commits, rule=UpsertRule(["k"]))

    @pytest.mark.breadth
    def test_an_update_with_an_offset_at_or_below_the_stored_one_is_ignored(self) -> None:
        sink = self.make_sink()
        sink.write(self.epoch(sink, 0, 6), self.make_rows(["k"], 5))
        before = self.spark.read.format("delta").load(self.path).collect()
        for offset in (4, 5):
            sink.write(self.epoch(sink, 6, 7), self.make_rows(["k"], offset))
            assert self.spark.read.format("delta").load(self.path).collect() == before
        sink.write(self.epoch(sink, 6, 7), self.make_rows(["k"], 6))
        assert self.spark.read.format("delta").load(self.path).collect()[0]["_offset"] == 6


@pytest.mark.breadth
class TestDeltaHistory(DeltaConformance):
    columns = VersionColumns(key=["k"], tracked=[], untracked=[])

    @pytest.fixture(autouse=True)
    def _table(self, spark: "SparkSession", tmp_path: Path) -> None:
        self.spark = own_session(spark)
        self.path = str(tmp_path / "table")
        DeltaTable(self.spark, path=self.path).create(self.columns.table(from_ddl(SCHEMA)))

    def of(self, table: DeltaTable, commits: PipelineCommits) -> DeltaAppend | DeltaUpsert | DeltaHistory:
        return DeltaHistory(table, commits, columns=self.columns)

    def make_rows(self, values: Sequence[str], first_offset: int) -> "DataFrame":
        return super().make_rows(values, first_offset).selectExpr("*", "false AS _delete")


class TwoPhaseDeltaConformance(TwoPhaseConformance["DataFrame"]):
    @pytest.fixture(autouse=True)
    def _table(self, spark: "SparkSession", tmp_path: Path) -> None:
        self.spark = spark
        self.path = str(tmp_path / "a table [of] mine")
        DeltaTable(spark, path=self.path).create(from_ddl(SCHEMA))

    def make_sink(self) -> TwoPhaseDelta:
        table = DeltaTable(own_session(self.spark), path=self.path)
        commits = PipelineCommits(table, pipeline="conformance", topics=["t"])
        return TwoPhaseDelta(table, self.of(table, commits), pipeline="conformance")

    def of(self, table: DeltaTable, commits: PipelineCommits) -> DeltaAppend | DeltaUpsert:
        return DeltaAppend(table, commits)

    def make_rows(self, values: Sequence[str], first_offset: int) -> "DataFrame":
        now = datetime(2026, 1, 1, tzinfo=timezone.utc)
        rows = [(value, "t", 0, offset, now) for offset, value in enumerate(values, start=first_offset)]
        return self.spark.createDataFrame(rows, SCHEMA)

    def read_values(self) -> list[str]:
        return [key for (key,) in query(self.path, "SELECT k FROM t")]


@pytest.mark.breadth
class TestTwoPhaseAppend(TwoPhaseDeltaConformance):
    pass


@pytest.mark.breadth
class TestTwoPhaseUpsert(TwoPhaseDeltaConformance):
    def of(self, table: DeltaTable, commits: PipelineCommits) -> DeltaAppend | DeltaUpsert:
        return DeltaUpsert(table, commits, rule=UpsertRule(["k"]))

    def test_a_key_that_left_its_partition_is_found_before_anything_is_decided(self) -> None:
        self.put(0, "ab", attempt=1)
        moved = self.make_rows("b", 2).selectExpr("k", "_topic", "1 AS _partition", "_offset", "_timestamp")
        with pytest.raises(KeyMoved):
            self.make_sink().prepare(self.epoch(2, 3, attempt=2), moved)
