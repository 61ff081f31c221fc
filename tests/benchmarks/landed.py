"""When each record has come into a table, by the table's own log. The same way for every writer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq

from benchmarks.sizes import PARTITIONS


@dataclass(frozen=True)
class Landing:
    at: float
    """When the commit was written, in seconds since 1970."""
    last: Sequence[int]
    """The highest offset of each partition in the rows that the commit has added; -1: it has none."""


class Landings:
    """The commits of a table and, if it is merged on read, of its change log. Reads each commit once."""

    def __init__(self, table: Path) -> None:
        self._tables = (table, table / "_lakelock" / "changes")
        self._known: dict[Path, Landing] = {}

    def read(self) -> list[Landing]:
        """All commits so far, in the order of time."""
        for table in self._tables:
            for commit in sorted((table / "_delta_log").glob("*.json")):
                if commit not in self._known:
                    self._known[commit] = _landing(table, commit)
        return sorted(self._known.values(), key=lambda landing: landing.at)

    def reached(self) -> list[int]:
        """The highest offset of each partition."""
        return [max((landing.last[number] for landing in self.read()), default=-1) for number in range(PARTITIONS)]

    def waits(self, partition: int, offsets: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """The seconds from the time at which each record was sent until the commit that has it.

        A partition's records are committed in their order, and the last record of an epoch is always among its rows:
        no later one has replaced it. So a record is in the first commit that has its offset or a higher one.
        """
        landings = self.read()
        reached = np.maximum.accumulate([landing.last[partition] for landing in landings])
        times = np.array([landing.at for landing in landings])
        waits: np.ndarray = times[np.searchsorted(reached, offsets)] - sent
        return waits


def _landing(table: Path, commit: Path) -> Landing:
    last = [-1] * PARTITIONS
    for path in _added(commit):
        rows = pq.read_table(table / path, columns=["_partition", "_offset"], partitioning=None)
        highest = rows.group_by("_partition").aggregate([("_offset", "max")])
        for number, offset in zip(*(highest[name].to_pylist() for name in ("_partition", "_offset_max")), strict=True):
            last[number] = max(last[number], offset)
    return Landing(commit.stat().st_mtime, last)


def _added(commit: Path) -> Iterator[str]:
    for line in commit.read_text(encoding="utf-8").splitlines():
        if (add := json.loads(line).get("add")) is not None:
            yield unquote(add["path"])
