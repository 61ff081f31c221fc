"""Which columns Delta fills, by what is left of a table's log."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from connector.audit.table import AuditedTable


def columns(*filled: str) -> str:
    told = {"delta.generationExpression": "n * 2"}
    return json.dumps(
        {"fields": [{"name": name, "metadata": told if name in filled else {}} for name in ("n", "twice")]}
    )


def rows(*found: object) -> Any:
    """What every query gives here: of methods that narrow it, nothing is looked at."""
    frame = SimpleNamespace(first=lambda: found[0] if found else None, collect=lambda: list(found))
    frame.where = frame.selectExpr = lambda _: frame
    return frame


class Log:
    """A log whose newest columns are in these files; None: there are no such files."""

    def __init__(self, commits: object, checkpoints: object) -> None:
        self.files = {"json": commits, "parquet": checkpoints}
        self.paths: list[str] = []

    def schema(self, _: str) -> Log:
        return self

    def _read(self, kind: str, path: str) -> Any:
        self.paths.append(path)
        if self.files[kind] is None:
            raise AnalysisException("[PATH_NOT_FOUND]")
        return rows({"newest": self.files[kind] or None})

    def json(self, path: str) -> Any:
        return self._read("json", path)

    def parquet(self, path: str) -> Any:
        return self._read("parquet", path)


def filled(commits: object, checkpoints: object, version: str = "4") -> frozenset[str] | None:
    table = AuditedTable.__new__(AuditedTable)
    log = Log(commits, checkpoints)

    def sql(text: str) -> Any:
        kept = {"key": "delta.minWriterVersion", "value": version}
        return rows(kept) if text.startswith("SHOW") else rows({"location": "file:/t"})

    table._spark, table._sql = SimpleNamespace(sql=sql, read=log), "t"  # type: ignore[assignment]
    found = table.filled()
    assert log.paths in ([], ["file:/t/_delta_log/*.json", "file:/t/_delta_log/*.checkpoint*.parquet"])
    return found


NONE = ()
"""Files without columns: commits that didn't change them."""


@pytest.mark.parametrize("commits", [None, NONE])
def test_columns_that_only_a_checkpoint_tells_are_known(commits: object) -> None:
    assert filled(commits, ("007.checkpoint.parquet", columns("twice"))) == {"twice"}


def test_the_newest_file_counts() -> None:
    old, new = columns(), columns("twice")
    assert filled(("008.json", new), ("007.checkpoint.parquet", old)) == {"twice"}
    assert filled(("006.json", old), ("007.checkpoint.parquet", new)) == {"twice"}


def test_where_nothing_tells_nobody_knows() -> None:
    assert filled(NONE, None) is None
    assert filled(None, None) is None
    assert filled(None, None, version="2") == frozenset()
