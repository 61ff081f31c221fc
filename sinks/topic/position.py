"""A sink's position as the committed offsets of a consumer group, with the epoch in their metadata."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, TopicMissing, UnsupportedFormat
from sinks.kafka import ANSWER_WITHIN_MS, Clients
from sinks.offsets import Offsets, TopicPartition
from sinks.topic.target import Described, described

if TYPE_CHECKING:
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPartition

FORMAT = 1


REFRESH_AFTER = timedelta(days=3)
"""Kafka forgets the offsets of an unused group, by default after seven days. They are committed again after this."""


class _Mark(NamedTuple):
    epoch: int
    owner: str
    at: float = 0.0
    """Seconds since 1970, in UTC."""
    target: str = ""
    """The id of the target topic. Empty in marks of earlier versions."""


class GroupPosition:
    """The position in the offsets of ``group``. Only the sink's own transactions may write to that group.

    All offsets of an epoch are committed together, each with the mark of the epoch. Kafka removes the offsets of a
    topic that is deleted, and takes none for it: the marks of the others say which epoch it is.

    ``target`` is the topic that the messages go to. A position that belongs to another topic of that name says so in
    ``replaced``. ``topics`` are those that the pipeline reads: of others no offsets are committed beside these, as
    their rights may be gone with them. None: any. Raises ConfigurationError if the group has other offsets,
    UnsupportedFormat if a newer Lakelock wrote them.
    """

    def __init__(
        self, clients: Clients, *, pipeline: str, group: str, target: str, topics: Container[str] | None = None
    ) -> None:
        self._clients = clients
        self._topics = topics
        self._target = target
        self._pipeline = pipeline
        self._group = group

    def to_commit(self, epoch: Epoch) -> dict[KafkaPartition, OffsetAndMetadata]:
        """The offsets to commit with an epoch, with the epoch and its owner in their metadata.

        Without those of topics that are gone, and of partitions that a recreated topic doesn't have: no broker would
        ever take them. Raises TopicMissing if none is left.
        """
        from kafka.structs import OffsetAndMetadata
        from kafka.structs import TopicPartition as KafkaPartition

        there = self._there(epoch.offsets.topics)
        offsets = {at: offset for at, offset in epoch.offsets.items() if _is_there(at, there)}
        if not offsets:
            raise TopicMissing(
                f"None of the topics {', '.join(sorted(epoch.offsets.topics))} is in Kafka at {self._clients.servers}: "
                "a kafka_topic sink commits its position as offsets of them.",
                hint="The topics of the source and the target topic must be in one Kafka cluster.",
            )
        read = {at: offset for at, offset in offsets.items() if self._reads(at.topic)}
        offsets = read or offsets  # an epoch that was decided before all topics changed needs a mark, too
        mark = {"lakelock": FORMAT, "pipeline": self._pipeline, "epoch": epoch.number, "owner": epoch.owner}
        mark |= {"at": int(time.time()), "target": _id(self._target, there)}
        text = json.dumps(mark, separators=(",", ":"))
        return {KafkaPartition(*at): OffsetAndMetadata(offset, text, -1) for at, offset in offsets.items()}

    def now(self) -> Position | None:
        """The committed position at this moment. An unfinished transaction may still change it."""
        return self._position(self._clients.ask(self._listed), self._there(()))

    def settled(self, of: Iterable[TopicPartition]) -> Position | None:
        """The committed position, once the outcome of every transaction is known.

        ``of`` are partitions to check besides those that have offsets. Raises BrokerUnreachable.

        Waiting is necessary: a transaction may be reported as ended before the group's coordinator shows its offsets.
        A run that read the older offsets would send the epoch a second time.
        """
        from kafka.structs import TopicPartition as KafkaPartition

        partitions = list(of)
        there = self._there({at.topic for at in partitions})
        wanted = {KafkaPartition(*at) for at in partitions if _is_there(at, there)}

        def settled() -> Mapping[KafkaPartition, OffsetAndMetadata]:
            for at in sorted(wanted | self._listed().keys()):
                # The broker answers this only when no transaction can change the offset any more. The offsets come from
                # the list, which is one answer: no commit can fall between two partitions.
                self._clients.consumer.committed(at, timeout_ms=ANSWER_WITHIN_MS)
            return self._listed()

        return self._position(self._clients.ask(settled), there)

    def _reads(self, topic: str) -> bool:
        return self._topics is None or topic in self._topics

    def _there(self, topics: Iterable[str]) -> Mapping[str, Described]:
        """These topics and the target, without topics that aren't there.

        Topics that are read no more need no rights beside one that is read. Alone they have the only marks, which the
        broker doesn't list without: then it is the right that is missing, and no topic.
        """
        topics = set(topics)
        left = {name for name in topics if name != self._target and not self._reads(name)}
        left = left if any(self._reads(name) for name in topics) else set()
        return self._clients.ask(lambda: described({self._target, *topics}, self._clients, left=left))

    def _listed(self) -> dict[KafkaPartition, OffsetAndMetadata]:
        found = self._clients.admin.list_group_offsets({self._group: None}).get(self._group, {})
        return {at: each for at, each in found.items() if each.offset >= 0}

    def _position(
        self, found: Mapping[KafkaPartition, OffsetAndMetadata], there: Mapping[str, Described]
    ) -> Position | None:
        """The position of the newest mark. ``there``: the topics that are there.

        Partitions that are no longer read keep older marks, which don't count.
        """
        marks = {at: self._mark(each.metadata) for at, each in found.items()}
        if not marks:
            return None
        last = max(marks.values())
        offsets = {TopicPartition(*at): each.offset for at, each in found.items() if marks[at] == last}
        refresh = datetime.fromtimestamp(last.at, tz=timezone.utc) + REFRESH_AFTER
        replaced = f"topic {self._target!r} was deleted, and one of its name was created"
        return Position(
            epoch=last.epoch,
            owner=last.owner,
            offsets=Offsets(offsets),
            refresh_after=refresh,
            source="group",
            replaced=replaced if last.target and last.target != _id(self._target, there, last.target) else "",
        )

    def _mark(self, text: str) -> _Mark:
        try:
            mark = json.loads(text)
            written, pipeline = int(mark["lakelock"]), str(mark["pipeline"])
            target = str(mark.get("target", ""))
            found = _Mark(int(mark["epoch"]), str(mark["owner"]), float(mark.get("at", 0)), target)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigurationError(
                f"Consumer group {self._group!r} has offsets that this pipeline didn't commit.",
                hint="A kafka_topic sink stores its position there, so nothing else may use the group. Stop what does, "
                "and remove its offsets: kafka-consumer-groups.sh --delete-offsets --group GROUP --topic TOPIC. The "
                "next run goes by the offsets that are left, or by the coordinator log. For a new pipeline, choose "
                "another group.",
            ) from None
        if written > FORMAT:
            raise UnsupportedFormat(f"The offsets of consumer group {self._group!r} were written by a newer Lakelock.")
        if pipeline != self._pipeline:
            raise ConfigurationError(
                f"Consumer group {self._group!r} holds the position of pipeline {pipeline!r}.",
                hint="Give each pipeline its own group.",
            )
        return found


def _is_there(at: TopicPartition, there: Mapping[str, Described]) -> bool:
    return at.topic in there and at.partition in there[at.topic].partitions


def _id(topic: str, there: Mapping[str, Described], missing: str = "") -> str:
    return there[topic].id if topic in there else missing
