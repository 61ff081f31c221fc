"""A log without a commit, as a run leaves it that was killed while it made its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks.delta.torn_log import cleared

TORN = ".00000000000000000000.json.24afb4a0-9173-4d3d-a982-b5ae366cb91f.tmp"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / TORN).touch()
    (log / f".{TORN}.crc").touch()
    return log


def test_it_is_removed_if_nothing_was_committed(log: Path) -> None:
    assert cleared(log.parent)
    assert not log.exists()


@pytest.mark.parametrize("other", ["00000000000000000000.json", "00000000000000000010.checkpoint.parquet", "notes.txt"])
def test_a_log_with_anything_else_is_left_alone(log: Path, other: str) -> None:
    (log / other).touch()
    before = sorted(log.rglob("*"))
    assert not cleared(log.parent)
    assert sorted(log.rglob("*")) == before


def test_a_commit_that_another_process_has_staged_stays(log: Path) -> None:
    (log / "_staged_commits" / "1.json").touch()
    assert not cleared(log.parent)
    assert (log / "_staged_commits" / "1.json").exists()


def test_no_log_is_nothing_to_remove(tmp_path: Path) -> None:
    assert not cleared(tmp_path)
