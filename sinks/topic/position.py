"""A sink's position as the committed offsets of a consumer group, each with the epoch in its metadata."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, UnsupportedFormat
from sinks.kafka import ANSWER_WITHIN_MS, Clients
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPartition

FORMAT = 1


REFRESH_AFTER = timedelta(days=3)
"""Kafka forgets the offsets of a group that nobody uses: after seven days, unless it is told otherwise."""


class _Mark(NamedTuple):
    epoch: int
    owner: str
    at: float = 0.0
    """Seconds since 1970."""


class GroupPosition:
    """Only the sink's own transactions write to ``group``: offsets that somebody else put there are refused."""

    def __init__(self, clients: Clients, *, pipeline: str, group: str) -> None:
        self._clients = clients
        self._pipeline = pipeline
        self._group = group

    def to_commit(self, epoch: Epoch) -> dict[KafkaPartition, OffsetAndMetadata]:
        from kafka.structs import OffsetAndMetadata
        from kafka.structs import TopicPartition as KafkaPartition

        mark = {"lakelock": FORMAT, "pipeline": self._pipeline, "epoch": epoch.number, "owner": epoch.owner}
        mark["at"] = int(time.time())
        text = json.dumps(mark, separators=(",", ":"))
        return {KafkaPartition(*at): OffsetAndMetadata(offset, text, -1) for at, offset in epoch.offsets.items()}

    def now(self) -> Position | None:
        """What is committed at this moment: a transaction that has no end yet may still change it."""
        return self._position(self._clients.ask(self._listed))

    def settled(self, of: Iterable[TopicPartition]) -> Position | None:
        """What is committed once the outcome of every transaction is known; ``of``: partitions to look at besides
        those that are listed. Raises BrokerUnreachable.

        To wait for it is more than caution: the answer that a transaction has ended may come before the group's
        coordinator shows its offsets. Who read the older ones would send the epoch a second time.
        """
        from kafka.structs import TopicPartition as KafkaPartition

        wanted = {KafkaPartition(*at) for at in of}

        def settled() -> Mapping[KafkaPartition, OffsetAndMetadata]:
            for at in sorted(wanted | self._listed().keys()):
                # Told only when no transaction can change it any more. The offsets themselves are taken from the list,
                # which is one answer: no commit can come between two partitions.
                self._clients.consumer.committed(at, timeout_ms=ANSWER_WITHIN_MS)
            return self._listed()

        return self._position(self._clients.ask(settled))

    def _listed(self) -> dict[KafkaPartition, OffsetAndMetadata]:
        found = self._clients.admin.list_group_offsets({self._group: None}).get(self._group, {})
        return {at: each for at, each in found.items() if each.offset >= 0}

    def _position(self, found: Mapping[KafkaPartition, OffsetAndMetadata]) -> Position | None:
        """Of partitions that the pipeline no longer reads, offsets of older epochs remain: they don't count."""
        marks = {at: self._mark(each.metadata) for at, each in found.items()}
        if not marks:
            return None
        last = max(marks.values())
        offsets = {TopicPartition(*at): each.offset for at, each in found.items() if marks[at] == last}
        refresh = datetime.fromtimestamp(last.at, tz=timezone.utc) + REFRESH_AFTER
        return Position(epoch=last.epoch, owner=last.owner, offsets=Offsets(offsets), refresh_after=refresh)

    def _mark(self, text: str) -> _Mark:
        try:
            mark = json.loads(text)
            written, pipeline = int(mark["lakelock"]), str(mark["pipeline"])
            found = _Mark(int(mark["epoch"]), str(mark["owner"]), float(mark.get("at", 0)))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"Consumer group {self._group!r} has offsets that this pipeline didn't commit.",
                hint="A kafka_topic sink keeps its position there: give it a group that nothing else uses.",
            ) from None
        if written > FORMAT:
            raise UnsupportedFormat(f"The offsets of consumer group {self._group!r} were written by a newer Lakelock.")
        if pipeline != self._pipeline:
            raise ConfigurationError(
                f"Consumer group {self._group!r} holds the position of pipeline {pipeline!r}.",
                hint="Give each pipeline a group of its own.",
            )
        return found
