"""What an epoch is, what a sink says of itself, and what it promises. Readable in a minute; imports no Spark.

A sink promises, for every epoch it is handed:

* **atomic**: the rows, the next offsets and the epoch's number become visible together or not at all;
* **fenced**: of several writers of one epoch number exactly one succeeds, the others get ``Fenced``;
* **repeatable**: an epoch that this owner has committed already is not written again, and the sink says so;
* **honest**: ``write`` returns only when the commit that stands was seen to be its own. It never takes the absence
  of an error for success, and never guesses: an outcome it can't find out is ``CommitUnknown``.

A crash between any two calls leaves the position of the last commit that landed. Nothing else is to be kept: a sink
is rebuilt from its position alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from sinks.event_time import Clock
from sinks.gaps import added, joined, latest
from sinks.offsets import OffsetRange, Offsets, TopicPartition


class Folded(NamedTuple):
    """What a change log says of the table that its changes are for."""

    table: str
    """Delta's id of it. Empty where the platform doesn't tell."""
    epoch: int
    """An epoch that the table had by then."""


@dataclass(frozen=True)
class Position:
    """What a sink holds: the next offsets to read, and the highest epoch number that is taken.

    After a table was restored the offsets are older than the epoch: numbers only grow.
    """

    epoch: int
    offsets: Offsets
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic name -> topic id that the offsets belong to; empty where it isn't known."""
    owner: str = ""
    """The run that made the commit."""
    read_to: datetime | None = None
    """Everything that Kafka held at this time is in the sink."""
    since: Offsets = field(default_factory=Offsets)
    """Where the pipeline began, per partition: with ``offsets`` the range that the sink claims to hold."""
    lost: tuple[OffsetRange, ...] = ()
    """Ranges within the claim that Kafka no longer held, and that the user chose to go on without."""
    delivery: str = "transactional"
    """The delivery that made the commit. With another than ``transactional`` the commit only tells where it began:
    how far it has come is in the offsets of its consumer group."""
    group: str = field(default="", compare=False)
    """The name of that consumer group. Empty for a transactional position, and for one of Lakelock 0.2."""
    clock: Clock = field(default_factory=Clock)
    batch: str = ""
    """Of a streaming query, "<query id>/<batch id>"; of a retry through a route, "dead letters/<version>", with the
    version of the table of letters that was read; else empty."""
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Kafka's leader epochs when the log reached these very offsets: what is written later has higher ones. Empty for
    other offsets, and where the broker doesn't say."""
    began_at: datetime | None = None
    """A time right before the first record was read. None: it isn't known."""
    missed: tuple[OffsetRange, ...] = ()
    """Ranges of compacted topics that were read so late that Kafka may have forgotten deletes in them. The user chose
    to go on without."""
    read_to_of: Mapping[str, datetime | None] = field(default_factory=dict)
    """Topics with a time of their own, in place of ``read_to`` and ``began_at``. None: it isn't known."""
    gone: Mapping[str, datetime | None] = field(default_factory=dict)
    """Topics that Kafka no longer has, and the time up to which their records were surely read. None: to the end."""
    tombstones_kept: Mapping[str, timedelta] = field(default_factory=dict)
    """Of compacted topics the shortest ``delete.retention.ms`` that looks have seen since everything was read."""
    version: int | None = field(default=None, compare=False)
    """The sink's own version at which it says so (Delta: the table version)."""
    table: str = field(default="", compare=False)
    """Delta's id of the table that the commit was made for."""
    folded: Folded | None = field(default=None, compare=False)
    """Of a change log. None: it isn't one's, or one of an earlier version."""
    committed_at: datetime | None = field(default=None, compare=False)
    refresh_after: datetime | None = field(default=None, compare=False)
    """From then on the position wants to be written again though nothing changed, or the sink may forget it."""
    source: str = field(default="commit", compare=False)
    """How the position was found: ``commit``, ``restored``, ``cloned``, ``rows`` or ``group``."""
    of_others: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Topic name -> topic id by the commits of other pipelines, where only rows show the position and the pipeline has
    made none of them."""
    restored_to: int | None = field(default=None, compare=False)
    """The epoch that it was restored to, where it was and nothing was committed since."""
    went_back: bool = field(default=False, compare=False)
    """A RESTORE has undone epochs, and nothing tells which ones."""
    undid_offsets: bool = field(default=False, compare=False)
    """A RESTORE to a consumer group's delivery has undone transactional epochs. The group got their offsets as well."""
    replaced: str = field(default="", compare=False)
    """How somebody else has replaced what the pipeline had written, if so: then the sink doesn't hold it."""

    def moved_to(self, offsets: Offsets) -> Position:
        """Where other offsets are known to be the next ones, as a consumer group's are."""
        return self if offsets == self.offsets else replace(self, offsets=offsets, leaders={})

    @property
    def stands_at(self) -> int:
        """The epoch whose offsets it has. ``epoch`` is a later one after a RESTORE: its number is taken."""
        return self.epoch if self.restored_to is None else self.restored_to

    @property
    def lacks_epochs(self) -> bool:
        """Whether a RESTORE has undone epochs, and nothing was committed since. One to the newest epoch undoes none."""
        return self.went_back or self.restored_to not in (None, self.epoch)

    @property
    def passed_none(self) -> bool:
        """Whether no record has been read since the pipeline began, as where the topic was empty until now.

        Only a transactional position says so: with other deliveries it tells where the consumer group began.
        """
        return self.delivery == "transactional" and not self.partitions_read

    @property
    def partitions_read(self) -> Set[TopicPartition]:
        """The partitions of which records were read, and the sink may have rows."""
        return {at for at, next_ in self.offsets.items() if next_ > self.since.get(at, 0)}

    def same_place(self, other: Position) -> bool:
        """Whether this position, as a sink gives it, is where ``other`` is: the same epoch and the same next offsets.

        These two decide what the next epoch may be. Other fields don't count: a sink in two-phase commit keeps only
        the epoch, owner and offsets. The owner doesn't count either: whoever made the last commit, the next epoch
        starts from the same offsets. A position with ``source="rows"`` is read from the rows, because the history was
        cleaned. Rows don't show offsets that were read without giving rows, so there the epoch number decides alone,
        unless a RESTORE has undone epochs.
        With ``source="group"`` the offsets are those of a consumer group, of which Kafka removes the ones of a topic
        that is deleted. Those that are left were committed together with the others.
        """
        if self.epoch != other.epoch:
            return False
        if self.source == "group":
            return all(other.offsets.get(at) == next_ for at, next_ in self.offsets.items())
        return self.offsets == other.offsets or (self.source == "rows" and not self.lacks_epochs)

    def holds(self, epoch: Epoch) -> bool:
        """Whether the sink's last commit is this very epoch.

        Unlike ``same_place``, this compares the owner: another run's epoch of this number is not this epoch, even if it
        ends at the same offsets. An empty owner is unknown, as it is for a position that is read from the rows.
        """
        return self.owner in ("", epoch.owner) and self.same_place(epoch.position())

    def describe(self) -> str:
        """For messages: ``epoch 7 with {"flights":{"0":123}}``."""
        return f"epoch {self.epoch} with {self.offsets.to_json()}"


def describe(position: Position | None) -> str:
    """A position in a message, where a sink may have none."""
    return position.describe() if position is not None else "no position"


_KEPT = (
    "offsets", "topics", "owner", "read_to", "since", "lost", "delivery", "group", "clock", "batch", "leaders",
    "began_at", "missed", "read_to_of", "gone", "tombstones_kept",
)  # fmt: skip
"""What an epoch and the position after it both have."""


@dataclass(frozen=True)
class Epoch:
    """One numbered unit of work: ``ranges``, committed as a whole, move the sink from ``expected`` to ``offsets``."""

    pipeline: str
    number: int
    owner: str
    ranges: tuple[OffsetRange, ...]
    offsets: Offsets
    topics: Mapping[str, str]
    read_to: datetime | None
    expected: Position | None
    """The position the epoch was planned from; None: the sink held none."""
    since: Offsets = field(default_factory=Offsets)
    """As in ``Position``: kept from the first epoch on."""
    lost: tuple[OffsetRange, ...] = ()
    """As in ``Position``: of all epochs so far, this one's included."""
    delivery: str = "transactional"
    clock: Clock = field(default_factory=Clock)
    """Event time after this epoch."""
    backlog: frozenset[TopicPartition] | None = None
    """Partitions of which Kafka holds more than this epoch reads. None: nobody has asked, so the watermark stays."""
    group: str = ""
    """As in ``Position``."""
    batch: str = ""
    """As in ``Position``. It only says where the rows came from: what decides are the offsets."""
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    """As in ``Position``."""
    began_at: datetime | None = None
    """As in ``Position``."""
    missed: tuple[OffsetRange, ...] = ()
    """As in ``Position``: of all epochs so far, this one's included."""
    read_to_of: Mapping[str, datetime | None] = field(default_factory=dict)
    """As in ``Position``."""
    gone: Mapping[str, datetime | None] = field(default_factory=dict)
    """As in ``Position``."""
    tombstones_kept: Mapping[str, timedelta] = field(default_factory=dict)
    """As in ``Position``."""
    attempt: int = 0
    """With a coordinator: the number under which it began the epoch. It grows with every begin, of any run, so what is
    prepared under a lower one is nobody's any more. 0: one commit, no coordinator."""

    @classmethod
    def that_left(cls, position: Position, *, pipeline: str) -> Epoch:
        """The epoch that left this position, as far as that tells: not what it read, nor what was there before."""
        same = {name: getattr(position, name) for name in _KEPT}
        return cls(pipeline=pipeline, number=position.epoch, ranges=(), expected=None, **same)

    @classmethod
    def of_no_records(cls, position: Position, *, pipeline: str, owner: str) -> Epoch:
        """The transactional epoch that comes after ``position``, and leaves everything where it is."""
        return replace(
            cls.that_left(position, pipeline=pipeline),
            number=position.epoch + 1,
            owner=owner,
            expected=position,
            delivery="transactional",
            group="",
            clock=position.clock.carried(),
            batch="",
        )

    @property
    def passed(self) -> Offsets:
        """The offsets that the epoch goes on from, behind all records that the sink holds."""
        return self.expected.offsets if self.expected is not None else Offsets()

    @property
    def span(self) -> int:
        """Offsets that it reads: no fewer than its records."""
        return sum(range_.span for range_ in self.ranges)

    def of_table(self, stands: Position | None) -> Epoch:
        """The epoch as one table of several commits it, which stands there. It claims what it has read itself: it may
        have been added later."""
        own = replace(self, expected=stands)
        if stands is None or not stands.since:
            return own
        lost, missed = joined(stands.lost, self.lost_now), latest(stands.missed, self.missed_now)
        return replace(own, since=stands.since, lost=lost, missed=missed)

    def position(self) -> Position:
        """What a sink holds after it."""
        return Position(self.number, **{name: getattr(self, name) for name in _KEPT})

    def follows(self, position: Position | None) -> bool:
        """Whether a sink with this position is where the epoch was planned from, so that the epoch may be committed.

        None is a sink that has no position: only a pipeline's first epoch follows it.
        """
        if position is None or self.expected is None:
            return position is None and self.expected is None
        return position.same_place(self.expected)

    @property
    def late_now(self) -> int:
        """Records of this epoch that came after their window was closed, once its clock is known."""
        return self.clock.late - (self.expected.clock.late if self.expected is not None else 0)

    @property
    def lost_now(self) -> tuple[OffsetRange, ...]:
        """Ranges that this epoch is the first to leave out."""
        return added(self.lost, self.expected.lost if self.expected is not None else ())

    @property
    def missed_now(self) -> tuple[OffsetRange, ...]:
        """Ranges that this epoch is the first to be too late for."""
        return added(self.missed, self.expected.missed if self.expected is not None else ())


@dataclass(frozen=True)
class Committed:
    """A commit that stands and is our own."""

    position: Position
    rows: int | None
    """Rows that the commit added or changed; None where the sink can't tell."""
    already: bool = False
    """The epoch had been committed by this owner before: this call wrote nothing."""
    bytes: int | None = None
    """Of the files that the commit added; None where the sink doesn't say."""
    unchanged: int | None = None
    """Rows of the epoch that changed nothing, as a stale update does; None where the sink doesn't say."""
    changed: int | None = None
    """Of ``rows`` those that were in the sink before, and were updated or deleted; None where it doesn't say."""
    reads: Mapping[str, Any] = field(default_factory=dict)
    """With two-phase commit: how a reader sees the sink as of this commit, as ``{"version": 7}``. Goes into the log."""


Rows = TypeVar("Rows", contravariant=True)
_RESTORES, _BACK_TO = "restores", "back_to"
"""In the receipt of a rewind."""


@dataclass(frozen=True)
class Prepared:
    """What a sink has made durable, and no reader sees: with it any process can commit, even one that never saw the
    rows."""

    rows: int
    checksum: str
    """Of the rows, whatever their order and the files they are in: prepared again, the same rows have the same. Empty
    if nothing was staged: then only the same pipeline file is sure to give the same rows again."""
    receipt: Mapping[str, str]
    """Where it is, in the sink's own words. Small: it is kept in the coordinator log."""
    after: int | None = None
    """The sink's last epoch before this one (0: none), where epochs without rows pass a sink by. With ``rows`` 0 this
    one does. None: every epoch is in the sink."""

    @classmethod
    def going_back(cls, version: int, epoch: int, *, of_route: bool) -> Prepared:
        """The part of a table in a rewind: it goes back to ``version``, which it had as of ``epoch``."""
        receipt = {_RESTORES: str(version), _BACK_TO: str(epoch)}
        return cls(0, "", receipt, epoch if of_route else None)

    @property
    def restores(self) -> int | None:
        """The version that the table is restored to before the commit. None: the epoch is no rewind."""
        return int(self.receipt[_RESTORES]) if _RESTORES in self.receipt else None

    @property
    def back_to(self) -> int | None:
        """The epoch that a rewind goes back to; 0: before the first one. None: the epoch is no rewind."""
        return int(self.receipt[_BACK_TO]) if _BACK_TO in self.receipt else None

    @property
    def passes_by(self) -> bool:
        """Whether the sink gets no rows and no commit."""
        return self.after is not None and not self.rows and self.restores is None


class Sink(Protocol[Rows]):
    """A place that epochs are written to. ``Rows`` is what it takes: a DataFrame, or a list in the reference sink."""

    def position(self) -> Position | None:
        """Read from the sink itself at every call, never from memory; None: no epoch has ever been committed."""
        ...

    def write(self, epoch: Epoch, rows: Rows) -> Committed:
        """Commit the epoch's rows and position in one step.

        Raises Fenced (another run took the epoch), PositionMismatch (the sink no longer holds ``epoch.expected``),
        CommitSkipped, CommitUnknown; after any other error nothing was written.
        """
        ...


class Participant(Protocol):
    """A place that takes its part of an epoch when a coordinator says so. Only ``commit`` makes anything visible, and
    it is the same whoever calls it, and how often: several processes may even do so at once.
    """

    @property
    def name(self) -> str:
        """What the coordinator log calls it: unique in its pipeline, and the same in every run."""
        ...

    def position(self) -> Position | None:
        """The last epoch that was committed, read from the sink itself; None: there was none. Of the position only
        ``epoch``, ``owner`` and ``offsets`` count: the coordinator log has the rest."""
        ...

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Make the rows visible together with the position ``(epoch.number, epoch.owner, epoch.offsets)``.

        A no-op that says so (``already``) where this very epoch, of this owner, is there. Whatever of it an earlier
        call left half done is completed. Raises Fenced (another owner's epoch of this number is there, or any of a
        higher one: somebody has gone on meanwhile), PositionMismatch (the sink holds another position than
        ``epoch.expected``), PreparedLost (what was prepared is gone, and the epoch isn't there), CommitUnknown.
        """
        ...

    def abort(self, before: int) -> None:
        """Throw away all that is prepared under attempts lower than ``before``, by any process. Never raises for what
        isn't there any more; never touches what was committed."""
        ...


class TwoPhaseSink(Participant, Protocol[Rows]):
    """A place that takes part in two-phase commit: an epoch is in all sinks of the pipeline, or in none.

    ``prepare`` does all that can fail for a reason of its own (room, rights, rows that don't fit): after the decision
    an epoch has to be committed, if need be by a process that starts much later.
    """

    def prepare(self, epoch: Epoch, rows: Rows) -> Prepared:
        """Make the rows durable where no reader looks, under ``epoch.attempt``. Each call makes something of its own,
        also for an attempt that has been prepared before. A crash on the way leaves what ``abort`` finds."""
        ...
