"""What a delivery has to do, and what it has done. A delivery knows its work by these functions alone."""

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


@dataclass(frozen=True)
class Work:
    """One run of epochs that the sink's own position decides on (``transactional``).

    ``run_epoch`` takes the epoch and the offsets that still lie behind it.
    """

    pipeline: str
    owner: str
    topics: Topics
    position: Callable[[], Position | None]
    run_epoch: Callable[[Epoch, int], Committed]
    max_records: int
    group: Group
    observe: Observer
    continue_on_data_loss: bool = False
    max_bytes: int | None = None
    target_duration: timedelta | None = None
    target_latency: timedelta | None = None
    """How long a record may wait for its commit: with an interval only."""
    retire: Callable[[Epoch, Mapping[str, str]], Committed] | None = None
    """Commit an epoch that gives topics other names, as they were made again; None: that stops the run."""
    starts: Callable[[Position, TopicsHeld, Mapping[str, str]], Offsets] = lambda *_: Offsets()
    """Where topics that were made again begin, if not at their beginning."""
    fold: Callable[[Position], None] | None = None
    """After an epoch, and at the end of a round; None: nothing is merged on read."""
    settle: Callable[[], None] | None = None
    """After the last epoch of a round: nothing is to be left open until the next."""
    restored: Callable[[Position], None] = lambda _: None
    """At a position that a RESTORE has brought back, before anything is committed after it: it may be done again."""
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
