from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine import one_table
from connector.engine.epoch import Reading
from connector.engine.one_table import OneTable
from connector.source import reader
from connector.source.reader import Reader
from sinks.offsets import TopicPartition


def test_after_a_topic_was_recreated_nothing_is_read_that_was_kept_of_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark keeps what it has polled by the name of the consumer group: the same one for the epochs of a topic."""
    groups: list[str] = []

    def read(_: object, kafka: Mapping[str, str], *__: object, **___: object) -> None:
        groups.append(kafka["group.id"])

    monkeypatch.setattr(reader.records, "read", read)
    monkeypatch.setattr(one_table, "letters_table", lambda *_: None)
    monkeypatch.setattr(one_table, "retire", lambda *_, **__: None)
    unused: Any = None
    options: Any = SimpleNamespace(kafka_options={})
    of_kafka = Reader(options, unused)
    reading = Reading(of_kafka, {}, timing=None, letters=None, forget=of_kafka.forget)
    table: Any = SimpleNamespace(table=None, commits=None)
    monkeypatch.setattr(one_table, "Tombstones", lambda *_: SimpleNamespace(table=None))
    destination = OneTable(unused, "run", unused, unused, table, reading, None, lambda _: None)

    of_kafka(())
    of_kafka(())
    destination.retire(unused, {})
    of_kafka(())
    assert groups[0] == groups[1] != groups[2]


def test_what_was_polled_under_another_leader_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []
    monkeypatch.setattr(reader.records, "read", lambda _, kafka, *__, **___: groups.append(kafka["group.id"]))
    options: Any = SimpleNamespace(kafka_options={})
    of_kafka = Reader(options, None)  # type: ignore[arg-type]
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    for leaders in ({a: 1}, {a: 1, b: 7}, {b: 7}, {a: 2, b: 7}, {a: 2}, {a: 2, b: 6}):
        of_kafka.led_by(leaders)
        of_kafka(())
    first, *others = groups
    assert [group == first for group in others] == [True, True, False, False, False]
    assert others[2] == others[3] != others[4]
