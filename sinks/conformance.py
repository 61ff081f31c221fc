"""The behaviours that every sink must show. Subclass :class:`SinkConformance` in a test, and give it your sink.

::

    class TestMySink(SinkConformance):
        def make_sink(self): ...          # the same table at each call, as a new process would open it
        def make_rows(self, values): ...  # rows for these values, with offsets 0, 1, 2, ... of partition t-0
        def read_values(self): ...        # what a reader of the table sees, in any order
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Generic, TypeVar

from sinks.contract import Epoch, Position, Sink
from sinks.errors import Fenced, LakelockError, PositionMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition

Rows = TypeVar("Rows")
Error = TypeVar("Error", bound=LakelockError)
_AT = TopicPartition("t", 0)


class SinkConformance(ABC, Generic[Rows]):
    """Each test gets an empty table."""

    @abstractmethod
    def make_sink(self) -> Sink[Rows]: ...

    @abstractmethod
    def make_rows(self, values: Sequence[str], first_offset: int) -> Rows: ...

    @abstractmethod
    def read_values(self) -> list[str]: ...

    def epoch(self, sink: Sink[Rows], start: int, end: int, *, owner: str = "run-1") -> Epoch:
        """The next epoch of this sink, with the offsets ``[start, end)``."""
        expected = sink.position()
        return Epoch(
            pipeline="conformance",
            number=expected.epoch + 1 if expected else 1,
            owner=owner,
            ranges=(OffsetRange("t", 0, start, end),),
            offsets=Offsets({_AT: end}),
            topics={"t": "topic-id"},
            read_to=datetime(2026, 1, 1, tzinfo=timezone.utc),
            expected=expected,
        )

    def test_an_empty_sink_has_no_position(self) -> None:
        assert self.make_sink().position() is None

    def test_the_position_is_that_of_the_last_commit(self) -> None:
        sink = self.make_sink()
        sink.write(self.epoch(sink, 0, 2), self.make_rows(["a", "b"], 0))
        expected = Position(
            epoch=1,
            offsets=Offsets({_AT: 2}),
            topics={"t": "topic-id"},
            owner="run-1",
            read_to=datetime(2026, 1, 1, tzinfo=timezone.utc),
        )
        assert sink.position() == expected
        assert self.make_sink().position() == expected, "a new process must see the same"
        assert sorted(self.read_values()) == ["a", "b"]

    def test_a_commit_returns_the_position_that_it_made(self) -> None:
        sink = self.make_sink()
        committed = sink.write(self.epoch(sink, 0, 2), self.make_rows(["a", "b"], 0))
        assert committed.position == sink.position()
        assert not committed.already
        assert committed.rows in (2, None)

    def test_an_epoch_without_rows_moves_the_position(self) -> None:
        sink = self.make_sink()
        sink.write(self.epoch(sink, 0, 5), self.make_rows([], 0))
        found = sink.position()
        assert found is not None
        assert found.offsets == Offsets({_AT: 5})
        assert self.read_values() == []

    def test_writing_an_epoch_again_changes_nothing_and_says_so(self) -> None:
        sink = self.make_sink()
        epoch = self.epoch(sink, 0, 2)
        sink.write(epoch, self.make_rows(["a", "b"], 0))
        again = self.make_sink().write(epoch, self.make_rows(["a", "b"], 0))
        assert again.already
        assert sorted(self.read_values()) == ["a", "b"]

    def test_a_replaced_writer_is_fenced_and_told_who_won(self) -> None:
        sink = self.make_sink()
        zombie = self.epoch(sink, 0, 2, owner="zombie")
        sink.write(self.epoch(sink, 0, 3, owner="winner"), self.make_rows(["a", "b", "c"], 0))
        error = _refused(Fenced, lambda: self.make_sink().write(zombie, self.make_rows(["a", "b"], 0)))
        assert (error.owner, error.epoch) == ("winner", 1)
        assert sorted(self.read_values()) == ["a", "b", "c"]

    def test_a_writer_replaced_several_epochs_ago_is_fenced(self) -> None:
        sink = self.make_sink()
        zombie = self.epoch(sink, 0, 1, owner="zombie")
        for offset, value in enumerate("abc"):
            sink.write(self.epoch(sink, offset, offset + 1, owner="winner"), self.make_rows([value], offset))
        error = _refused(Fenced, lambda: self.make_sink().write(zombie, self.make_rows(["a"], 0)))
        assert error.owner == "winner"
        assert sorted(self.read_values()) == ["a", "b", "c"]

    def test_an_epoch_planned_from_another_position_is_refused(self) -> None:
        sink = self.make_sink()
        first = self.epoch(sink, 0, 1)
        sink.write(first, self.make_rows(["a"], 0))
        outdated = replace(first, number=2, offsets=Offsets({_AT: 2}))
        error = _refused(PositionMismatch, lambda: sink.write(outdated, self.make_rows(["b"], 1)))
        assert "expected" in str(error)
        assert "found" in str(error)
        assert self.read_values() == ["a"]


def _refused(kind: type[Error], write: Callable[[], object]) -> Error:
    try:
        write()
    except kind as error:
        return error
    raise AssertionError(f"it was committed, where {kind.__name__} was to be raised")
