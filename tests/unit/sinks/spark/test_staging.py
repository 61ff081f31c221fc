"""Which staged rows are removed, and by whom."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.spark import staging as module
from sinks.spark.files import listed
from sinks.spark.staging import Staging

MINE, LATER, OTHERS = "000000000001-aaaaaaaa", "000000000002-aaaaaaaa", "000000000001-bbbbbbbb"


@pytest.mark.parametrize("folder", ["gs://b/t", "abfss://c@a.dfs.core.windows.net/t", "hdfs://n/t", "s3://b/t", "/t"])
def test_rows_of_epochs_that_are_over_are_removed_in_every_kind_of_store(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing by Spark costs a job, so there a run removes what it has staged, and ``maintain`` the rest."""
    there, spark = {MINE, LATER, OTHERS}, None
    monkeypatch.setattr(module, "folders", lambda *_: sorted(there))
    monkeypatch.setattr(module, "remove", lambda _, folder: there.discard(folder.rpartition("/")[2]))
    staging: Any = Staging(spark, folder)  # type: ignore[arg-type]
    staging._own = {MINE, LATER}
    staging.clear(2)
    assert there == ({LATER} if listed(folder) else {LATER, OTHERS})
    staging.clear_all(2)
    assert there == {LATER}
