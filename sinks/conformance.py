"""The behaviours that every sink must show. Subclass one of these classes in a test and pass in your sink.

::

    class TestMySink(TwoPhaseConformance):
        def make_sink(self): ...     # the same place at each call, as a new process would open it
        def make_rows(self, values, first_offset): ...  # rows with these values, starting at this offset of t-0
        def read_values(self): ...   # what a reader sees, in any order

Use :class:`SinkConformance` for a sink that writes an epoch in one commit (``Sink``), and :class:`TwoPhaseConformance`
for a sink that takes part in two-phase commit (``TwoPhaseSink``).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import Generic, TypeVar

from sinks.contract import Committed, Epoch, Position, Prepared, Sink, TwoPhaseSink
from sinks.errors import Fenced, LakelockError, PositionMismatch, PreparedLost
from sinks.offsets import OffsetRange, Offsets, TopicPartition

Rows = TypeVar("Rows")
Error = TypeVar("Error", bound=LakelockError)
_AT = TopicPartition("t", 0)


class SinkConformance(ABC, Generic[Rows]):
    """The behaviours of a ``Sink``. Each test starts with an empty table."""

    @abstractmethod
    def make_sink(self) -> Sink[Rows]:
        """A new sink object for the test's place, as a new process would open it."""

    @abstractmethod
    def make_rows(self, values: Sequence[str], first_offset: int) -> Rows:
        """Rows with these values, at consecutive offsets of partition 0 of topic ``t``."""

    @abstractmethod
    def read_values(self) -> list[str]:
        """The values that a reader sees, in any order."""

    def epoch(self, sink: Sink[Rows], start: int, end: int, *, owner: str = "run-1") -> Epoch:
        """The sink's next epoch, with the offsets ``[start, end)``."""
        return _next_epoch(sink.position(), start, end, owner)

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


class TwoPhaseConformance(ABC, Generic[Rows]):
    """The behaviours of a ``TwoPhaseSink``. Each test starts with an empty place."""

    @abstractmethod
    def make_sink(self) -> TwoPhaseSink[Rows]:
        """A new sink object for the test's place, as a new process would open it."""

    @abstractmethod
    def make_rows(self, values: Sequence[str], first_offset: int) -> Rows:
        """Rows with these values, at consecutive offsets of partition 0 of topic ``t``."""

    @abstractmethod
    def read_values(self) -> list[str]:
        """The values that a reader sees, in any order."""

    def epoch(self, start: int, end: int, *, attempt: int, owner: str = "run-1") -> Epoch:
        """The sink's next epoch, with the offsets ``[start, end)``."""
        return replace(_next_epoch(self.make_sink().position(), start, end, owner), attempt=attempt)

    def put(self, first: int, values: str, *, attempt: int) -> Epoch:
        """Prepare and commit an epoch with one row per letter of ``values``."""
        epoch = self.epoch(first, first + len(values), attempt=attempt)
        sink = self.make_sink()
        sink.commit(epoch, sink.prepare(epoch, self.make_rows(values, first)))
        return epoch

    def stands(self) -> tuple[int, str, Offsets] | None:
        """The committed epoch, its owner and its offsets, or None before the first commit."""
        position = self.make_sink().position()
        return (position.epoch, position.owner, position.offsets) if position else None

    def test_an_empty_sink_has_no_position(self) -> None:
        assert self.make_sink().position() is None

    def test_it_has_the_same_name_in_every_run(self) -> None:
        assert self.make_sink().name == self.make_sink().name != ""

    def test_what_is_prepared_is_not_to_be_seen(self) -> None:
        prepared = self.make_sink().prepare(self.epoch(0, 2, attempt=1), self.make_rows("ab", 0))
        assert prepared.rows == 2
        assert self.read_values() == []
        assert self.stands() is None

    def test_a_process_that_never_saw_the_rows_commits_them(self) -> None:
        epoch = self.epoch(0, 2, attempt=1)
        prepared = _as_logged(self.make_sink().prepare(epoch, self.make_rows("ab", 0)))
        committed = self.make_sink().commit(epoch, prepared)
        assert not committed.already
        assert sorted(self.read_values()) == ["a", "b"]
        assert self.stands() == (1, "run-1", Offsets({_AT: 2}))
        assert (committed.position.epoch, committed.position.offsets) == (1, Offsets({_AT: 2}))

    def test_epoch_follows_epoch(self) -> None:
        self.put(0, "ab", attempt=1)
        self.put(2, "c", attempt=2)
        assert sorted(self.read_values()) == ["a", "b", "c"]
        assert self.stands() == (2, "run-1", Offsets({_AT: 3}))

    def test_an_epoch_without_rows_moves_the_position(self) -> None:
        epoch, sink = self.epoch(0, 5, attempt=1), self.make_sink()
        prepared = sink.prepare(epoch, self.make_rows([], 0))
        assert prepared.rows == 0
        sink.commit(epoch, prepared)
        assert self.stands() == (1, "run-1", Offsets({_AT: 5}))
        assert self.read_values() == []

    def test_committing_again_changes_nothing_and_says_so(self) -> None:
        epoch, sink = self.epoch(0, 2, attempt=1), self.make_sink()
        prepared = sink.prepare(epoch, self.make_rows("ab", 0))
        sink.commit(epoch, prepared)
        assert sink.commit(epoch, prepared).already
        assert self.make_sink().commit(epoch, prepared).already
        assert sorted(self.read_values()) == ["a", "b"]

    def test_two_processes_that_commit_at_once_commit_once(self) -> None:
        epoch = self.epoch(0, 2, attempt=1)
        prepared = self.make_sink().prepare(epoch, self.make_rows("ab", 0))

        def commit(sink: TwoPhaseSink[Rows]) -> Committed:
            return sink.commit(epoch, prepared)

        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(commit, [self.make_sink(), self.make_sink()]))
        assert [each.position.epoch for each in both] == [1, 1]
        assert sorted(self.read_values()) == ["a", "b"]

    def test_prepared_twice_only_what_is_committed_counts(self) -> None:
        epoch, sink = self.epoch(0, 2, attempt=1), self.make_sink()
        sink.prepare(epoch, self.make_rows("xy", 0))
        prepared = sink.prepare(epoch, self.make_rows("ab", 0))
        sink.commit(epoch, prepared)
        assert sorted(self.read_values()) == ["a", "b"]

    def test_the_same_rows_have_the_same_checksum_and_others_another(self) -> None:
        epoch, sink = self.epoch(0, 2, attempt=1), self.make_sink()
        first = sink.prepare(epoch, self.make_rows("ab", 0))
        assert self.make_sink().prepare(epoch, self.make_rows("ab", 0)).checksum == first.checksum
        assert sink.prepare(epoch, self.make_rows("ac", 0)).checksum != first.checksum

    def test_what_was_aborted_can_not_be_committed(self) -> None:
        epoch = self.epoch(0, 2, attempt=1)
        prepared = self.make_sink().prepare(epoch, self.make_rows("ab", 0))
        self.make_sink().abort(before=2)
        self.make_sink().abort(before=2)
        _refused(PreparedLost, lambda: self.make_sink().commit(epoch, prepared))
        assert self.read_values() == []
        assert self.stands() is None

    def test_an_abort_leaves_later_attempts_and_what_is_committed(self) -> None:
        self.put(0, "a", attempt=1)
        epoch = self.epoch(1, 2, attempt=3)
        prepared = self.make_sink().prepare(epoch, self.make_rows("b", 1))
        self.make_sink().abort(before=3)
        self.make_sink().commit(epoch, prepared)
        assert sorted(self.read_values()) == ["a", "b"]

    def test_a_commit_after_the_abort_that_followed_it_is_there_already(self) -> None:
        """A process was paused in its commit, while another process rolled the epoch forward and continued."""
        epoch, sink = self.epoch(0, 2, attempt=1), self.make_sink()
        prepared = sink.prepare(epoch, self.make_rows("ab", 0))
        self.make_sink().commit(epoch, prepared)
        self.make_sink().abort(before=2)
        assert sink.commit(epoch, prepared).already
        assert sorted(self.read_values()) == ["a", "b"]

    def test_a_replaced_writer_is_fenced_and_told_who_won(self) -> None:
        zombie = self.epoch(0, 2, attempt=1, owner="zombie")
        prepared = self.make_sink().prepare(zombie, self.make_rows("ab", 0))
        winner = self.put(0, "abc", attempt=2)
        error = _refused(Fenced, lambda: self.make_sink().commit(zombie, prepared))
        assert (error.owner, error.epoch) == (winner.owner, 1)
        assert sorted(self.read_values()) == ["a", "b", "c"]

    def test_a_commit_that_comes_after_the_next_epoch_changes_nothing_even_by_its_own_run(self) -> None:
        """Another process recovers the epoch, while the epoch's own run is still alive and continues."""
        late, sink = self.epoch(0, 1, attempt=1), self.make_sink()
        prepared = sink.prepare(late, self.make_rows("a", 0))
        sink.commit(late, prepared)
        self.put(1, "b", attempt=2)
        with suppress(Fenced):
            assert self.make_sink().commit(late, prepared).already
        assert sorted(self.read_values()) == ["a", "b"]

    def test_an_epoch_planned_from_another_position_is_refused(self) -> None:
        first = self.put(0, "a", attempt=1)
        outdated = replace(first, number=2, offsets=Offsets({_AT: 2}), attempt=2)
        sink = self.make_sink()
        prepared = sink.prepare(outdated, self.make_rows("b", 1))
        error = _refused(PositionMismatch, lambda: sink.commit(outdated, prepared))
        assert "expected" in str(error)
        assert "found" in str(error)
        assert self.read_values() == ["a"]


def _next_epoch(expected: Position | None, start: int, end: int, owner: str) -> Epoch:
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


def _as_logged(prepared: Prepared) -> Prepared:
    """``prepared`` as it comes back from the coordinator log, which stores text."""
    receipt = json.loads(json.dumps(dict(prepared.receipt)))
    return Prepared(prepared.rows, prepared.checksum, receipt)


def _refused(kind: type[Error], write: Callable[[], object]) -> Error:
    try:
        write()
    except kind as error:
        return error
    raise AssertionError(f"the commit succeeded, but {kind.__name__} was expected")
