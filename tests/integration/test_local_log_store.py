"""Commits on a local disk: the name of a commit is given once, whatever else is there. In ``test_s3`` three drivers
commit at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.classic("a server's own session writes the commits")
def test_a_commit_on_a_local_disk_is_a_link_not_a_rename(spark: SparkSession, tmp_path: Path) -> None:
    row, log = spark.range(1), tmp_path / "table é#%20" / "_delta_log"
    row.write.format("delta").save(str(log.parent))
    # Hadoop's rename takes the checksum along. One that is left of a commit that is gone says nothing of the next.
    names = {each.name for each in log.iterdir()}
    assert f"{0:020d}.json" in names
    assert f".{0:020d}.json.crc" not in names
    (log / f".{1:020d}.json.crc").write_bytes(b"crc\0\0\0\2\0\1\2\3\4")
    row.write.format("delta").mode("append").save(str(log.parent))
    assert spark.read.format("delta").load(str(log.parent)).count() == 2
    assert [each.name for each in log.iterdir() if each.suffix == ".tmp"] == []
    assert (log / f"{1:020d}.json").stat().st_nlink == 1
