"""Staged rows are all there, or it is said that they aren't."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinks.errors import PreparedLost
from sinks.spark import files
from sinks.spark.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_of_which_a_file_is_gone_are_lost(spark: SparkSession, tmp_path: Path) -> None:
    staging = Staging(spark, str(tmp_path / "staged"))
    prepared = staging.put(spark.range(0, 30, 1, 3).toDF("n"), 1)
    assert sorted(row[0] for row in staging.get(prepared).collect()) == list(range(30))
    first, *others = sorted((tmp_path / "staged").glob("*/part-*"))
    assert len(others) == 2
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        staged = staging.get(prepared)
        first.rename(tmp_path / first.name)
        with pytest.raises(Exception, match=first.name):
            staged.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(PreparedLost, match="2 of 3 files"):
        staging.get(prepared)
    (tmp_path / first.name).rename(first)
    assert staging.get(prepared).count() == 30
    (first.parent / "_SUCCESS").unlink()
    assert staging.get(prepared).count() == 30
    shutil.copy(first, first.with_name("part-of-another.parquet"))
    with pytest.raises(PreparedLost, match="or there are other files"):
        staging.get(prepared)
    none = staging.put(spark.range(0).toDF("n"), 2)
    assert (none.rows, staging.get(none).count()) == (0, 0)


@pytest.mark.breadth
def test_staged_rows_are_removed_where_only_spark_can(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at gs://, abfss:// and hdfs://: rows that stayed there would be a second copy of the table, for ever."""
    monkeypatch.setattr(files, "_local", lambda _: None)
    folder = tmp_path / "_lakelock" / "staging [1]"
    run, killed = Staging(spark, str(folder)), Staging(spark, str(folder))
    assert run.prepared(9) == []
    rows = spark.range(3).toDF("n")
    first, second, left = run.put(rows, 1), run.put(rows, 2), killed.put(rows, 1)

    def there() -> set[str]:
        return {file.parent.name for file in folder.glob("*/*.parquet")}

    run.clear(2)
    assert there() == {second.receipt["staged"], left.receipt["staged"]}
    assert run.get(second).count() == 3
    with pytest.raises(PreparedLost):
        run.get(first)
    assert [each.rpartition("/")[2] for each in run.prepared(2)] == [left.receipt["staged"]]
    run.clear_all(2)
    assert there() == {second.receipt["staged"]}
    assert run.prepared(2) == []
