"""Which runs get a JVM that starts fast and works slowly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, cast

import pytest

from connector.config import parse
from connector.engine.short_runs import is_short
from connector.protocol.recover import TopicsHeld
from connector.source.consumer_group import ConsumerGroup
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
APPEND: dict[str, object] = {"type": "delta_append", "path": "a"}
UPSERT: dict[str, object] = {"type": "delta_upsert", "path": "u", "key": "k"}


@dataclass(frozen=True)
class Group:
    offset: int

    def committed(self) -> Offsets:
        return Offsets({AT: self.offset})


@pytest.mark.parametrize(
    ("sink", "begins", "ends", "short"),
    [
        (APPEND, 20_000_000, 20_100_000, True),
        (APPEND, 20_000_000, 20_100_001, False),
        (UPSERT, 2_900_000, 3_000_000, True),
        (UPSERT, 2_899_999, 3_000_000, False),
        (UPSERT, 3_000_000, 3_000_001, False),
    ],
)
def test_a_run_is_short_if_few_records_wait_and_its_tables_are_small(
    sink: dict[str, object], begins: int, ends: int, short: bool
) -> None:
    options: dict[str, Any] = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
        "value": {"format": "json", "schema": "k STRING"},
        "sinks": [sink],
    }
    held = TopicsHeld(Offsets({AT: 0}), Offsets({AT: ends}), {}, datetime.now(timezone.utc))
    group = cast("ConsumerGroup", Group(begins))
    assert is_short(parse(options), held, group) is short
    assert not is_short(parse({**options, "trigger": {"interval": 0}}), held, group)
