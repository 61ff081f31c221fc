"""What a run does beside its first steps can't harm it."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.engine import rehearsal
from connector.engine.rehearsal import rehearsed, worthwhile
from connector.protocol.recover import TopicsHeld
from sinks.offsets import OffsetRange, Offsets, TopicPartition

SPARK: Any = None


def config(*sinks: dict[str, Any]) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "k STRING"},
            "sinks": list(sinks) or [{"type": "delta_append", "path": "a"}],
        }
    )


def held(**ends: tuple[int, int]) -> TopicsHeld:
    at = {name: TopicPartition("t", number) for number, name in enumerate(ends)}
    begins = Offsets({at[name]: begin for name, (begin, _) in ends.items()})
    finds = Offsets({at[name]: end for name, (_, end) in ends.items()})
    return TopicsHeld(begins, finds, {}, datetime.now(timezone.utc))


@pytest.mark.parametrize(
    ("topics", "part"),
    [
        (held(a=(0, 10), b=(0, 5_000)), OffsetRange("t", 1, 4_000, 5_000)),
        (held(a=(70, 80), b=(4_999, 5_000)), OffsetRange("t", 0, 70, 80)),
        (held(a=(70, 70)), None),
        (held(), None),
    ],
)
def test_it_reads_the_newest_records_of_the_longest_partition(
    monkeypatch: pytest.MonkeyPatch, topics: TopicsHeld, part: OffsetRange | None
) -> None:
    read: list[OffsetRange] = []
    monkeypatch.setattr(rehearsal, "_rehearse", lambda _config, _spark, these: read.append(these))
    with rehearsed(config(), SPARK, topics):
        pass
    assert read == ([part] if part else [])


def test_its_errors_are_nobodys() -> None:
    with rehearsed(config(), SPARK, held(a=(0, 10))):  # there is no Spark
        pass


def test_a_run_that_ends_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_END_SECONDS", 0.01)
    ends = threading.Event()
    monkeypatch.setattr(rehearsal, "_rehearse", lambda *_: ends.wait(20))
    began = time.monotonic()
    with pytest.raises(KeyError), rehearsed(config(), SPARK, held(a=(0, 10))):
        raise KeyError
    assert time.monotonic() - began < 10
    ends.set()


def test_a_run_that_merges_has_none() -> None:
    append, upsert = {"type": "delta_append", "path": "a"}, {"type": "delta_upsert", "path": "u", "key": "k"}
    assert worthwhile(config(append))
    assert not worthwhile(config(upsert))
