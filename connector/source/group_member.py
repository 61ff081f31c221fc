"""This run as a member of the pipeline's consumer group: polls batches, holds unfinished records, commits offsets.

The group can take a partition away whenever the member polls, and at any time after it was silent for too long. The
member then drops the records that it holds of the partition, because the next owner starts at the group's committed
offset. Records below an offset that the client itself has committed (auto-commit) must still be written by this member,
because no other member reads them.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.structs import TopicPartition as KafkaPartition

from connector.config import EveryRecords, PipelineConfig
from connector.protocol.recover import reached, resumed
from connector.protocol.steps import Event, Observer, Step
from connector.source.consumer_group import ConsumerGroup, offset_to_commit
from connector.source.topics import KafkaSource
from sinks.contract import Epoch, Position
from sinks.errors import BrokerUnreachable, OffsetsLost
from sinks.kafka import answering, client_options
from sinks.offsets import OffsetRange, Offsets, TopicPartition

log = logging.getLogger("lakelock.member")

DEFAULT_MAX_POLL_RECORDS = 10_000
_POLL_MS = 200
_LOOK_AFTER_SECONDS = 5.0
_AUTO_COMMIT_WITHIN_SECONDS = 30.0
"""How long to wait beyond the client's own auto-commit interval."""
_TAKEN_OVER = (CommitFailedError, IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)


@dataclass
class _Part:
    """The polled records of one partition, ``[start, end)``, in order. Gaps in the offsets hold no record."""

    start: int
    end: int
    records: list[Any] = field(default_factory=list)

    def split(self, offset: int) -> tuple[_Part, _Part]:
        """The records before ``offset``, and the rest."""
        offset = min(max(offset, self.start), self.end)
        before = [record for record in self.records if record.offset < offset]
        return _Part(self.start, offset, before), _Part(offset, self.end, self.records[len(before) :])


_Parts = dict[KafkaPartition, _Part]
_Partitions = Callable[[Iterable[KafkaPartition]], None]


class GroupMember:
    """A member of the pipeline's consumer group.

    ``max.poll.records`` (10,000 by default), ``epoch.max_records`` and ``commit_every`` limit a batch. ``position`` is
    the table's: a partition without a committed offset starts there, and a partition that was added since starts at its
    beginning.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        owner: str,
        source: KafkaSource,
        group: ConsumerGroup,
        position: Position,
        stop: threading.Event,
        observe: Observer,
    ) -> None:
        self._config, self._owner, self._position = config, owner, position
        self._source, self._group, self._observe, self._stop = source, group, observe, stop
        self._interval = config.interval
        self._auto_commit = config.delivery == "auto_commit"
        self._target = source.look()
        self._looked = time.monotonic()
        self._next: dict[KafkaPartition, int] = {}
        """The next offset to poll of every assigned partition."""
        self._held: _Parts = {}
        """Polled records that were neither handed out (auto-commit: nor committed by the client) nor dropped."""
        self._auto_committed: _Parts = {}
        self._handed_out: Sequence[_Part] = ()
        self._batches = 0

        options = config.source.kafka_options
        self._servers = options["bootstrap.servers"]
        # Unlike that of an earlier member of the same run, which the group may not have missed yet.
        self._client_id = f"lakelock-{owner}-{uuid.uuid4().hex[:8]}"
        with answering(self._servers, group=group.name):
            self._consumer = KafkaConsumer(
                **{
                    "max_poll_records": DEFAULT_MAX_POLL_RECORDS,
                    **client_options(KafkaConsumer, options),
                    "client_id": self._client_id,
                    "group_id": group.name,
                    "enable_auto_commit": self._auto_commit,
                    # The client must never choose an offset.
                    "auto_offset_reset": "none",
                    "isolation_level": "read_committed",
                    "allow_auto_create_topics": False,
                }
            )
            self._consumer.subscribe(list(config.source.topics), listener=_Listener(self._assigned, self._revoked))
            # This requests the topics' metadata. Without it the group's leader would at first assign no partition.
            self._consumer.end_offsets([KafkaPartition(topic, 0) for topic in config.source.topics])
        # A batch isn't polled whole and committed in pieces: max.poll.interval.ms limits the time between two polls.
        bounds = (config.epoch.max_records, self._consumer.config["max_poll_records"], _commit_every(config))
        self._max_records = min(bound for bound in bounds if bound is not None)

    def close(self) -> None:
        """Leave the group. The next owner reads the records that are held."""
        self._held, self._next = {}, {}
        self._consumer.close(autocommit=False)

    @property
    def records(self) -> list[Any]:
        """kafka-python's records of the batch that was handed out last."""
        return [record for part in self._handed_out for record in part.records]

    # --- the calls of a delivery

    def batches(self) -> Iterator[Epoch]:
        """Yield batches, until ``stop`` is set, or without an interval until all records from the start are read.

        Raises BrokerUnreachable or OffsetsLost.
        """
        while not self._stop.is_set():
            self._collect()
            if self._held or self._auto_committed:
                polled = self._held
                if not self._auto_commit:
                    self._held = {}  # with auto-commit they stay held until the client has committed them
                yield self._hand_out(polled, Step.PLANNED)
            if self._interval is None and self._caught_up():
                return

    def auto_committed(self) -> Epoch:
        """Wait until the client has committed the polled records, and return them as a batch.

        Raises BrokerUnreachable if that takes too long.
        """
        patience = self._consumer.config["auto_commit_interval_ms"] / 1000 + _AUTO_COMMIT_WITHIN_SECONDS
        deadline = time.monotonic() + patience
        try:
            while self._held:
                # Poll to let the client commit, not for records. Pause each time, because partitions may be added.
                self._consumer.pause(*self._consumer.assignment())
                if time.monotonic() > deadline:
                    raise BrokerUnreachable(
                        f"The Kafka client has not committed the offsets of consumer group {self._group.name!r} within "
                        f"{patience:.0f} seconds. The polled records were not written.",
                        hint="Check that the broker is reachable and that the user may commit (READ on the group).",
                    )
                self._poll(1)
                self._keep_auto_committed()
        finally:
            self._consumer.resume(*self._consumer.paused())
        committed, self._auto_committed = self._auto_committed, {}
        return self._hand_out(committed, Step.OFFSETS_COMMITTED)

    def commit(self, batch: Epoch) -> None:
        """Commit the offsets of a written batch. If the partitions have a new owner, it reads the batch again."""
        wanted = {KafkaPartition(*range_.at): offset_to_commit(range_.end) for range_ in batch.ranges}
        with answering(self._servers, group=self._group.name):
            try:
                self._consumer.commit(wanted)
            except _TAKEN_OVER as error:
                self._next.clear()  # until the partitions are assigned again
                log.warning(
                    "batch %d was written, but its offsets could not be committed (%s): its partitions were given to "
                    "another member, which reads them again",
                    batch.number,
                    type(error).__name__,
                )
                return
        self._observe(Event(Step.OFFSETS_COMMITTED, batch, behind=self.behind))

    # --- polling

    def _collect(self) -> None:
        """Poll until the batch is full or the interval is over. Without an interval, until no records are left."""
        deadline = time.monotonic() + (self._interval.total_seconds() if self._interval else 0.0)
        while not self._stop.is_set():
            kept = (*self._held.values(), *self._auto_committed.values())
            room = self._max_records - sum(len(part.records) for part in kept)
            if room <= 0:
                return
            found = self._poll(room)
            if (time.monotonic() >= deadline) if self._interval else (not found or self._reached()):
                return

    def _poll(self, max_records: int) -> bool:
        """Poll once. Returns whether there were any records."""
        with answering(self._servers, group=self._group.name):
            try:
                found = self._consumer.poll(timeout_ms=_POLL_MS, max_records=max_records)
            except OffsetOutOfRangeError:
                raise OffsetsLost(
                    f"Kafka's retention removed records that consumer group {self._group.name!r} was about to read.",
                    hint="Run the pipeline again. It says which offsets are missing and how to continue.",
                ) from None
            except KafkaError as error:
                if error.__cause__ is not None:  # raised by _assigned or _revoked
                    raise error.__cause__ from None
                raise
            for at, start in self._next.items():
                # Not the last record's offset: transaction markers and aborted records have offsets too.
                end = self._consumer.position(at)
                if end is not None and end > start:
                    part = self._held.setdefault(at, _Part(start, start))
                    part.records += found.get(at, ())
                    part.end = self._next[at] = end
        if not found:
            self._refuse_silence()
        return bool(found)

    def _refuse_silence(self) -> None:
        """Raise BrokerUnreachable if no broker answers. kafka-python itself would wait for ever."""
        if time.monotonic() - self._looked > _LOOK_AFTER_SECONDS:
            self._source.look()
            self._looked = time.monotonic()

    def _caught_up(self) -> bool:
        """Whether this member has read its partitions up to the ends at the start."""
        return self._reached() if self._next else self._group.committed().reaches(self._target.ends)

    def _reached(self) -> bool:
        """Whether every partition of this member is polled up to its end at the start."""
        ends = self._target.ends
        return bool(self._next) and all(self._next[at] >= ends.get(TopicPartition(*at), 0) for at in self._next)

    # --- assignment of partitions; kafka-python calls these while it polls

    def _assigned(self, partitions: Iterable[KafkaPartition]) -> None:
        mine = set(partitions)
        if not mine:
            return
        held = self._source.look()
        stood = self._position.moved_to(reached(self._position, self._group.committed(), held, self._group.name))
        goes_on = self._config.source.continue_on_data_loss
        resumption = resumed(stood, held, self._source, continue_on_data_loss=goes_on)
        for at in mine:
            self._next[at] = resumption.offsets[TopicPartition(*at)]
            self._consumer.seek(at, self._next[at])
        note = "; ".join(
            f"lost {gap}: no longer in Kafka" for gap in resumption.lost if KafkaPartition(*gap.at) in mine
        )
        starts = self._epoch({at: _Part(self._next[at], self._next[at]) for at in mine})
        self._observe(Event(Step.RESUMED, starts, behind=self.behind, note=note))

    def _revoked(self, partitions: Iterable[KafkaPartition]) -> None:
        if self._auto_commit and self._held:
            self._keep_auto_committed()
        for at in partitions:
            self._next.pop(at, None)
            dropped = self._held.pop(at, None)
            if dropped is not None:
                log.info("%s-%d was taken away: [%d, %d) is left to its next owner", *at, dropped.start, dropped.end)

    def _keep_auto_committed(self) -> None:
        """Keep records that the client has committed: a rebalance must not drop them."""
        committed = self._group.committed()
        # Ask this after the offsets: while this member is in the group, no other member has committed its partitions.
        if not self._group.has_member(self._client_id):
            return
        for at, part in list(self._held.items()):
            done, rest = part.split(committed.get(TopicPartition(*at), 0))
            if done.end > done.start:
                before = self._auto_committed.get(at)
                start, records = (before.start, before.records) if before else (done.start, [])
                self._auto_committed[at] = _Part(start, done.end, records + done.records)
            if rest.end > rest.start:
                self._held[at] = rest
            else:
                del self._held[at]

    # --- batches

    def _hand_out(self, parts: _Parts, step: Step) -> Epoch:
        if step is Step.PLANNED:
            self._batches += 1
        self._handed_out = list(parts.values())
        epoch = self._epoch(parts)
        self._observe(Event(step, epoch, behind=self.behind))
        return epoch

    def _epoch(self, parts: Mapping[KafkaPartition, _Part]) -> Epoch:
        """A batch as an epoch, numbered within this run."""
        ranges = tuple(OffsetRange(at.topic, at.partition, part.start, part.end) for at, part in sorted(parts.items()))
        return Epoch(
            pipeline=self._config.name,
            number=self._batches,
            owner=self._owner,
            ranges=ranges,
            offsets=Offsets({range_.at: range_.end for range_ in ranges}),
            topics=self._position.topics,
            read_to=None,
            expected=None,
            delivery=self._config.delivery,
        )

    @property
    def behind(self) -> int:
        """The number of offsets that this member's partitions are behind the ends at the start, or at the last poll."""
        fetched = {at: self._consumer.highwater(at) or 0 for at in self._consumer.assignment()}
        ends = {at: max(self._target.ends.get(TopicPartition(*at), 0), fetched.get(at, 0)) for at in self._next}
        return sum(max(0, ends[at] - offset) for at, offset in self._next.items())


def _commit_every(config: PipelineConfig) -> int | None:
    """The number of records per commit. None for the whole batch."""
    if isinstance(config.commit_every, EveryRecords):
        return config.commit_every.records
    return 1 if config.commit_every == "record" else None


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, assigned: _Partitions, revoked: _Partitions) -> None:
        self._assigned, self._revoked = assigned, revoked

    def on_partitions_assigned(self, assigned: Iterable[KafkaPartition]) -> None:
        self._assigned(assigned)

    def on_partitions_revoked(self, revoked: Iterable[KafkaPartition]) -> None:
        self._revoked(revoked)

    def on_partitions_lost(self, lost: Iterable[KafkaPartition]) -> None:
        self._revoked(lost)
