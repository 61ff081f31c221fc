"""What catches up with the other sinks of a pipeline, and what doesn't."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Topic

from connector.delivery.ports import Destination
from connector.engine import assembly as module
from connector.engine.assembly import Assembly
from connector.engine.joining import Joining
from connector.engine.outputs import Table
from sinks.contract import Committed, Epoch, Position
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition


def test_only_a_table_catches_up() -> None:
    config: Any = None
    joining = Joining(config, "run", config, lambda _: nullcontext(None), lambda _: None)
    with pytest.raises(ConfigurationError, match="'topic:x' was added to the pipeline, which has begun"):
        joining(config, {"topic:x": None})


def test_a_run_that_is_to_end_leaves_the_rest_to_the_next() -> None:
    class Table:
        def run_epoch(self, *_: Any) -> Any:
            raise AssertionError("no epoch begins after the signal")

    config: Any = SimpleNamespace(of_rows=False)
    table: Any = Table()
    joining = Joining(config, "run", config, lambda _: nullcontext(table), lambda _: None, lambda: True)
    assert joining(config, {"b": None}) == {"b": None}


class Tidying(Destination):
    """Notes what is asked of it. To tidy up, it commits an epoch without records."""

    def __init__(self, position: Position | None) -> None:
        self.at = position
        self.asked: list[str] = []

    def position(self) -> Position | None:
        return self.at

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        assert epoch.expected == self.at
        self.asked.append(f"epoch {epoch.number}")
        self.at = epoch.position()
        return Committed(self.at, rows=epoch.span)

    def restored(self, position: Position) -> None:
        self.asked.append("restored")

    def tidied(self, position: Position | None) -> Position | None:
        self.asked.append("tidied")
        if position is not None:  # two epochs without records, at most
            self.at = replace(position, epoch=position.epoch + 2, restored_to=None)
        return self.at


@pytest.mark.parametrize(
    ("at", "restored_to", "expected"),
    [
        (None, None, ["tidied", "epoch 9"]),
        (3, None, ["tidied", "epoch 9"]),
        (3, 2, ["restored", "tidied", "epoch 9"]),
        (6, None, ["tidied", "epoch 9"]),
        (7, None, ["epoch 9"]),
        (8, None, ["epoch 9"]),
        (8, 2, ["restored", "epoch 9"]),
        (9, None, []),
    ],
)
def test_what_epochs_left_behind_is_removed_before_a_table_catches_up(
    at: int | None, restored_to: int | None, expected: list[str]
) -> None:
    """An epoch of its own that was killed may have noted deletes. The last one needs the number of the others."""
    topic = Topic([[("k", number) for number in range(20)]])
    place = TopicPartition("t", 0)
    stands = Epoch("p", 9, "others", (), Offsets({place: 20}), {"t": topic.id}, None, None, Offsets({place: 0}))
    position = None
    if at is not None:
        offsets = Offsets({place: 20 if at == 9 else 5})
        position = Position(at, offsets, {"t": topic.id}, since=Offsets({place: 0}), restored_to=restored_to)
    table = Tidying(position)
    config: Any = SimpleNamespace(
        of_rows=False, epoch=SimpleNamespace(max_records=100), source=SimpleNamespace(continue_on_data_loss=False)
    )
    source: Any = topic
    came = Joining(config, "run", source, lambda _: nullcontext(table), lambda _: None)(stands, {"b": position})
    assert table.asked == expected
    there = came["b"]
    assert there is not None
    assert there.same_place(stands.position())


def test_rows_that_only_a_query_makes_are_not_read_again() -> None:
    config: Any = SimpleNamespace(of_rows=True)
    table: Any = nullcontext(SimpleNamespace())
    joining = Joining(config, "run", config, lambda _: table, lambda _: None)
    with pytest.raises(ConfigurationError, match="only the query makes rows"):
        joining(config, {"b": None})


def test_a_table_of_a_streaming_query_catches_up_from_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch's rows are of the query's session: the MERGE of the table's own session wouldn't find them."""
    table: Any = object.__new__(Table)
    object.__setattr__(table, "table", SimpleNamespace(label="b"))
    config: Any = SimpleNamespace(alone=lambda _: SimpleNamespace(source=None, reads_headers=False))
    unused: Any = None
    of_query = Assembly(config, "run", unused, unused, unused, unused, [table], unused, read=lambda *_: unused)
    monkeypatch.setattr(module, "is_connect", lambda _: True)
    monkeypatch.setattr(module, "no_records", lambda _: None)
    monkeypatch.setattr(module, "outputs", lambda *_: nullcontext([table]))
    monkeypatch.setattr(Assembly, "one_table", lambda self, _: self)
    monkeypatch.setattr(module, "Reader", lambda *_, headers: lambda: "kafka")
    with of_query._alone(lambda _: None, "b") as alone:
        made: Any = alone
        assert made.read is None
        assert made.of_kafka() == "kafka"


def test_a_table_whose_topics_are_gone_before_it_has_read_them_is_refused() -> None:
    topic = Topic([[("k", number) for number in range(20)]])
    place, gone = TopicPartition("t", 0), TopicPartition("day-1", 0)
    stands = Epoch("p", 9, "others", (), Offsets({place: 20, gone: 100}), {"t": topic.id}, None, None)
    position = Position(3, Offsets({place: 5, gone: 50}), {"t": topic.id}, since=Offsets({place: 0, gone: 0}))
    table, source = Tidying(position), SimpleNamespace(continue_on_data_loss=False)
    config: Any = SimpleNamespace(of_rows=False, epoch=SimpleNamespace(max_records=100), source=source)
    of: Any = topic
    joining = Joining(config, "run", of, lambda _: nullcontext(table), lambda _: None)
    with pytest.raises(OffsetsLost, match=r"b lacks records .* gone from Kafka: day-1-0 \[50, 100\)"):
        joining(stands, {"b": position})
    source.continue_on_data_loss = True
    there = joining(stands, {"b": table.at})["b"]
    assert there is not None
    assert (there.lost, there.offsets) == ((OffsetRange("day-1", 0, 50, 100),), stands.offsets)
