"""When a record has come into a table, by its log."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.landed import Landings


def commit(table: Path, version: int, at: float, *files: Mapping[int, int]) -> None:
    """``files``: the highest offset by partition."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines: list[object] = [{"commitInfo": {}}]
    for number, offsets in enumerate(files):
        name = f"{version} {number}.parquet"
        rows = {"_partition": list(offsets), "_offset": list(offsets.values())}
        pq.write_table(pa.table(rows), table / name)
        lines.append({"add": {"path": name.replace(" ", "%20")}})
    file = log / f"{version:020d}.json"
    file.write_text("\n".join(map(json.dumps, lines)))
    os.utime(file, (at, at))


def waits(landings: Landings, partition: int, *offsets: int) -> list[float]:
    return landings.waits(partition, np.array(offsets), np.full(len(offsets), 10.0)).tolist()


def test_a_record_waits_until_the_first_commit_that_has_its_offset_or_a_higher_one(tmp_path: Path) -> None:
    commit(tmp_path, 0, 10.0)
    commit(tmp_path, 1, 11.0, {0: 4}, {1: 2})
    commit(tmp_path, 2, 13.0, {0: 9, 1: 2})
    landings = Landings(tmp_path)
    assert waits(landings, 0, 0, 4, 5, 9) == [1.0, 1.0, 3.0, 3.0]
    assert waits(landings, 1, 2) == [1.0]
    assert landings.reached() == [9, 2, -1, -1]


def test_a_commit_that_rewrites_old_rows_brings_none(tmp_path: Path) -> None:
    commit(tmp_path, 0, 11.0, {0: 4})
    commit(tmp_path, 1, 12.0, {0: 2})
    commit(tmp_path, 2, 13.0, {0: 6})
    assert waits(Landings(tmp_path), 0, 3, 5) == [1.0, 3.0]


def test_a_record_has_landed_once_the_change_log_has_it_and_the_fold_is_later(tmp_path: Path) -> None:
    commit(tmp_path, 0, 11.0, {0: 0})
    commit(tmp_path / "_lakelock" / "changes", 0, 12.0, {0: 5})
    landings = Landings(tmp_path)
    assert waits(landings, 0, 5) == [2.0]
    commit(tmp_path, 1, 20.0, {0: 5})
    assert waits(landings, 0, 0, 5) == [1.0, 2.0]
