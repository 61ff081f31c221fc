"""What a delivery needs from the rest of the system, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from connector.delivery.retries import NONE, Patience
from connector.display import Line, Page, Shown
from connector.protocol.recover import Starts, TopicsHeld
from connector.protocol.steps import Observer
from sinks.contract import Committed, Epoch, Position
from sinks.offsets import Offsets, TopicPartition
from sinks.plurals import plural


class Topics(Starts, Protocol):
    """What a delivery asks the source about Kafka's topics."""

    def look(self) -> TopicsHeld:
        """What Kafka holds now of the pipeline's topics. Raises TopicMissing, BrokerUnreachable."""
        ...

    def record_bytes(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """The mean size, in bytes, of the next few records of each partition between ``offsets`` and ``ends``."""
        ...

    def deleted(self, topics: Collection[str]) -> Collection[str]:
        """Those of these topics that Kafka doesn't have. Raises BrokerUnreachable."""
        ...


class Group(Protocol):
    """The consumer group, seen from outside. None of these methods joins it."""

    name: str

    def committed(self, also: Collection[str] = ()) -> Offsets:
        """The next offsets that the group has committed, of the pipeline's topics, and ``also`` of these."""
        ...

    def store(self, offsets: Offsets) -> None:
        """Commit these next offsets for the group. Raises GroupActive while it has members."""
        ...

    def has_members(self) -> bool:
        """Whether any consumer is a member of the group now."""
        ...


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

        ``behind``: the offsets that Kafka holds after this epoch, for the progress that the run reports. Raises Fenced
        if another run has committed this epoch's number.
        """
        ...

    def restored(self, position: Position) -> None:
        """Do what a RESTORE asks for. Called before anything is committed after it; may be called again."""
        return

    def tidied(self, position: Position | None) -> Position | None:
        """Remove what epochs left behind that weren't committed, or that a RESTORE has undone.

        Called once at the start of a run, and after ``restored``. May commit an epoch without records. Returns the
        position after it.
        """
        return position

    def added(self, topics: Collection[str]) -> Offsets:
        """The next offsets of these topics after what is in sums. Added once more, it would count twice.

        Empty: the destination has no sums.
        """
        return Offsets()

    def fold(self, position: Position) -> None:
        """Fold the change log into the table, if a fold is due. Called after an epoch, and after a round."""
        return

    def finish(self) -> None:
        """Wait for what still goes on beside the epochs. Called at the end of the run."""
        return

    def settle(self) -> None:
        """Leave nothing open until the next round. Called after the last epoch of a round."""
        return

    def starts(self, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        """Where recreated topics begin, if not at their beginning.

        ``names``: old topic -> the name that it retires to.
        """
        return Offsets()

    def retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        """Commit an epoch that gives recreated topics their new names in all that is stored of them."""
        raise ValueError(f"{type(self).__name__} can't give recreated topics other names.")


@dataclass(frozen=True)
class Work:
    """One run of epochs whose position is in the destination itself (``transactional``). ``owner`` is the run's id."""

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
    """How long a record may wait for its commit. Only for runs with an interval."""
    patience: Patience = NONE


class Member(Protocol):
    """This run as a member of the consumer group. A batch is an epoch whose ranges were polled."""

    def batches(self) -> Iterator[Epoch]:
        """Polled batches, until the run is to end. Asking for the next one drops the records of the last."""
        ...

    def auto_committed(self) -> Epoch:
        """Wait until the client has committed the batch by itself.

        Returns the part that it has committed, mostly all.
        """
        ...

    def commit(self, batch: Epoch) -> None:
        """Commit the batch's offsets and wait for the answer.

        Partitions that another member took over are left to it.
        """
        ...


@dataclass(frozen=True)
class GroupWork:
    """One run as a member of a consumer group. ``write`` writes a batch and returns the number of rows."""

    member: Member
    write: Callable[[Epoch], int]


@dataclass(frozen=True, repr=False)
class Delivered(Shown):
    """What a run has delivered."""

    epochs: int = 0
    rows: int = 0
    position: Position | None = None
    """The table's position. None if the delivery keeps its offsets elsewhere."""
    behind: int | None = None
    """Offsets that Kafka held when the run last looked and that aren't committed. None: the delivery doesn't say."""
    limited: bool = False
    """Whether the run ended because it had committed as many epochs as it was to."""

    def page(self) -> Page:
        """Epochs and rows, and where the table is."""
        said = f"{plural(self.epochs, 'epoch')}, {plural(self.rows, 'row')} written"
        if self.position is not None:
            said += f"; the table is at epoch {self.position.epoch}"
        if self.behind is not None:
            said += f", {plural(self.behind, 'offset')} behind"
        return Page([Line("", f"{said}.")])

    def plus(self, rows: int) -> Delivered:
        """The counts after one more epoch with this number of rows."""
        return Delivered(self.epochs + 1, self.rows + rows)
