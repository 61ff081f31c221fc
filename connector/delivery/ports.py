"""What a delivery needs from the rest of the system, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from connector.delivery.retries import NONE, Patience
from connector.protocol.recover import Remaining, TopicsHeld
from connector.protocol.steps import Observer
from sinks.contract import Committed, Epoch, Position
from sinks.offsets import Offsets, TopicPartition


class Topics(Protocol):
    """What the delivery asks of the source."""

    def look(self) -> TopicsHeld: ...

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]: ...

    def remaining(self, held: TopicsHeld) -> Remaining: ...

    def record_bytes(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """The mean size of the next few records of each partition."""
        ...


class Group(Protocol):
    """The consumer group, seen from outside: none of these joins it."""

    name: str

    def committed(self) -> Offsets:
        """The offsets that the group has committed, of the pipeline's topics."""
        ...

    def store(self, offsets: Offsets) -> None:
        """Commit these for the group. Raises GroupActive while it has members."""
        ...

    def has_members(self) -> bool: ...


class Destination(Protocol):
    """Where the epochs of a run go: one table, or several sinks that a coordinator moves together.

    Only `position` and `run_epoch` differ for every destination. The other methods have a default that does nothing.
    """

    @property
    def takes_recreated(self) -> bool:
        """Whether `retire` may be called. If not, a recreated topic stops the run."""
        return False

    def position(self) -> Position | None:
        """Where the pipeline stands, read from the destination itself. None: it holds no epoch yet."""
        ...

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        """Read the epoch's offset ranges and commit them with the next offsets, all or nothing.

        ``behind``: the offsets that Kafka holds after this epoch, for the progress that the run reports.
        """
        ...

    def restored(self, position: Position) -> None:
        """Do what a RESTORE asks for. Called before anything is committed after it; may be called again."""
        return

    def fold(self, position: Position) -> None:
        """Fold changes that were appended into the table, if a fold is due. Called after an epoch and a round."""
        return

    def settle(self) -> None:
        """Leave nothing open until the next round. Called after the last epoch of a round."""
        return

    def starts(self, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        """Where recreated topics begin, if not at their beginning. ``names``: the old topics' new names."""
        return Offsets()

    def retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        """Commit an epoch that gives recreated topics their new names in whatever is stored of them."""
        raise ValueError(f"{type(self).__name__} can't give recreated topics other names.")


@dataclass(frozen=True)
class Work:
    """One run of epochs whose position is in the destination itself (``transactional``)."""

    pipeline: str
    owner: str
    topics: Topics
    destination: Destination
    max_records: int
    group: Group
    observe: Observer
    continue_on_data_loss: bool = False
    max_bytes: int | None = None
    target_duration: timedelta | None = None
    target_latency: timedelta | None = None
    """How long a record may wait for its commit: with an interval only."""
    patience: Patience = NONE


class Member(Protocol):
    """This run as a member of the consumer group. A batch is an epoch whose ranges were polled."""

    def batches(self) -> Iterator[Epoch]:
        """Polled batches, until the run is to end. Between two of them nothing of the first is held any more."""
        ...

    def auto_committed(self) -> Epoch:
        """Wait until the client has committed the batch on its own clock; the part of it that it has: mostly all."""
        ...

    def commit(self, batch: Epoch) -> None:
        """Commit the batch's offsets, and wait for the answer. What another member has taken over is left to it."""
        ...


@dataclass(frozen=True)
class GroupWork:
    """One run as a member of a consumer group. ``write`` returns the rows written."""

    member: Member
    write: Callable[[Epoch], int]


@dataclass(frozen=True)
class Delivered:
    epochs: int = 0
    rows: int = 0
    position: Position | None = None
    """Of the table, where the delivery keeps one there."""
    behind: int | None = None
    """Offsets that Kafka held when the run last looked, and that aren't committed; None: the delivery doesn't say."""

    def plus(self, rows: int) -> Delivered:
        return Delivered(self.epochs + 1, self.rows + rows)
