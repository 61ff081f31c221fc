"""What Kafka holds of the pipeline's topics."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import (
    KafkaConnectionError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import TopicPartition as KafkaPartition

from connector.config import FromOffsets, FromTimestamp, Source, Start, TopicPattern
from connector.protocol.gone import Looks
from connector.protocol.recover import Remaining, Remains, TopicsHeld, refuse_refilled
from connector.protocol.topic_ids import refuse_recreated
from connector.source.asked_again import asked_again
from connector.source.few_records import FewRecords
from connector.source.given_offsets import given_offset
from connector.source.open_transactions import OpenTransactions
from connector.source.topic_settings import Tombstones, cleanup_policies
from connector.source.translated_offsets import refuse_without_position
from sinks.contract import Epoch
from sinks.errors import BrokerUnreachable, SourceError, TopicMissing
from sinks.event_time import time_at
from sinks.kafka import ANSWER_WITHIN_MS, answering, client_options, not_authorized
from sinks.kafka.leaders import ends_of_leaders, log_beginnings, log_ends
from sinks.offsets import OffsetRange, Offsets, TopicPartition

_Told = TypeVar("_Told")

_SAMPLED_PARTITIONS = 16
SAMPLED_RECORDS = 200
"""Of a partition."""
_UNKNOWN_TOPIC = 3


@dataclass(frozen=True)
class _Partitions:
    ids: Mapping[str, str]
    brokers: Mapping[TopicPartition, int]
    """The leading broker of every partition, -1 for none."""


def no_looks(source: Source) -> Looks:
    """The looks at these topics, before the first one."""
    return Looks(lambda name: isinstance(source.topics, TopicPattern) and name in source.topics)


class KafkaSource:
    """The topics of one pipeline. It reads as ``read_committed``, is in no consumer group and stores nothing."""

    def __init__(self, options: Source, *, with_deletes: bool = False, looks: Looks | None = None) -> None:
        """``with_deletes``: whether a delete in the topics changes a row of a sink. ``looks``: what earlier runs of
        this process have seen of the topics; None: there was none."""
        self._options = options
        self._with_deletes = with_deletes
        self._tombstones = Tombstones()
        self._servers = options.kafka_options["bootstrap.servers"]
        self._admin_client: KafkaAdminClient | None = None
        self._few = FewRecords(options.kafka_options)
        self._open = OpenTransactions(options.kafka_options)
        self._looks = no_looks(options) if looks is None else looks

    @property
    def _admin(self) -> KafkaAdminClient:
        """Asks about topics and offsets. It connects at the first question, and again after ``close``."""
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(**client_options(KafkaAdminClient, self._options.kafka_options))
        return self._admin_client

    def close(self) -> None:
        """Close the clients. The next request connects again."""
        self._open.close()
        self._few.close()
        admin, self._admin_client = self._admin_client, None
        if admin is not None:
            admin.close()

    def topics(self) -> list[str]:
        """The topics: those of a list, or those that match the pattern now. Raises TopicMissing, BrokerUnreachable."""

        def named() -> list[str]:
            with answering(self._servers):
                return self._named()

        return _patiently(named)

    def look(self) -> TopicsHeld:
        """What Kafka holds now: the beginnings and ends of all partitions. Raises TopicMissing or BrokerUnreachable."""
        return self._looks.after(_patiently(self._look))

    def _look(self) -> TopicsHeld:
        asked_at = datetime.now(timezone.utc)
        with answering(self._servers):
            partitions = self._partitions()
            # Beginnings last: retention may move a beginning in between, but never an end.
            found = log_ends(self._admin, partitions.brokers)
            beginnings = log_beginnings(self._admin, partitions.brokers)
        leaders = {at: end.leader for at, end in found.items() if end.leader is not None}
        return TopicsHeld(
            Offsets(beginnings),
            Offsets({at: end.offset for at, end in found.items()}),
            partitions.ids,
            asked_at,
            leaders,
            partial(self._ends_of, current=leaders),
            self._open.held_back(found),
            keeps=self.tombstones_kept(partitions.ids),
        )

    def refuse_changed(self, epoch: Epoch) -> None:
        """Check after the read that the topics are still the ones that the epoch was planned on.

        Raises TopicRecreated if a topic was recreated, and OffsetsLost if a partition's log was truncated. A deleted
        topic passes, because the records that were read are its own.
        """
        names = sorted({range_.topic for range_ in epoch.ranges} & epoch.topics.keys())
        if not names:
            return

        def described() -> Sequence[Mapping[str, Any]]:
            with answering(self._servers):
                found: Sequence[Mapping[str, Any]] = self._admin.describe_topics(names)
                return found

        there = [topic for topic in _patiently(described) if topic["error_code"] != _UNKNOWN_TOPIC]
        refuse_recreated(epoch.topics, {topic["name"]: self._id(topic) for topic in there})
        ends = {range_.at: range_.end for range_ in epoch.ranges}
        refuse_refilled(ends, self._ends_of({at: epoch.leaders[at] for at in ends if at in epoch.leaders}, _led(there)))

    def deleted(self, topics: Collection[str]) -> Collection[str]:
        """Those of these topics that Kafka doesn't have. Raises BrokerUnreachable."""
        return self._with_error(_UNKNOWN_TOPIC, topics)

    def hidden(self, topics: Collection[str]) -> Collection[str]:
        """Those of these topics that the user may not describe: a list of all topics leaves them out without a word."""
        return self._with_error(TopicAuthorizationFailedError.errno, topics)

    def _with_error(self, code: int, topics: Collection[str]) -> Collection[str]:
        with answering(self._servers):
            found = self._admin.describe_topics(sorted(topics)) if topics else ()
        return {topic["name"] for topic in found if topic["error_code"] == code}

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str | None]:
        """The ``cleanup.policy`` of these topics. None: it can't be read. Raises BrokerUnreachable."""
        return cleanup_policies(self._admin, self._servers, topics)

    def tombstones_kept(self, topics: Collection[str]) -> Mapping[str, timedelta] | None:
        """See ``TopicsHeld.keeps``, ``Tombstones.kept``. Raises BrokerUnreachable."""
        return self._tombstones.kept(self._admin, self._servers, topics) if self._with_deletes else None

    def _ends_of(
        self,
        leaders: Mapping[TopicPartition, int],
        led: Mapping[TopicPartition, int] | None = None,
        current: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> Mapping[TopicPartition, int]:
        """See ``TopicsHeld.ends_of``. Deleted partitions are left out. ``led`` are the leaders, if just asked, and
        ``current`` their epochs, as far as a look knows them."""

        def ask() -> Mapping[TopicPartition, int]:
            nonlocal led
            with answering(self._servers):
                now = led or _led(self._admin.describe_topics(sorted({at.topic for at in leaders})))
                led = None
                asked = {at: epoch for at, epoch in leaders.items() if at in now}
                return ends_of_leaders(self._admin, asked, now, current)

        return _patiently(ask) if leaders else {}

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """A function that gives the configured start, for a pipeline without a position. Raises ConfigurationError."""

        def start() -> Offsets:
            refuse_without_position(self._options)
            return Offsets(self._start(self._options.start, held.ends, held))

        return start

    def began(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """A function that gives the offsets at which a pipeline began, by the configured start.

        ``latest`` meant the ends of another time. So it tells nothing, and every partition begins at 0.
        """
        start = self._options.start
        return lambda: Offsets() if start in ("earliest", "latest") else Offsets(self._start(start, held.ends, held))

    def _start(self, start: Start, ends: Mapping[TopicPartition, int], held: TopicsHeld) -> dict[TopicPartition, int]:
        if isinstance(start, FromOffsets):
            return {at: given_offset(start, at, held) for at in ends}
        if isinstance(start, FromTimestamp):
            return self._at(start.timestamp, ends)
        return dict(ends) if start == "latest" else {at: held.beginnings[at] for at in ends}

    def at(self, when: datetime, held: TopicsHeld) -> Offsets:
        """Per partition, the offset of the first record at or after ``when``, or the end if there is none."""
        return Offsets(self._at(when, held.ends))

    def remaining(self, held: TopicsHeld) -> Remaining:
        """A function that says what is left of partitions with lost records, according to ``on_data_loss``."""

        def remaining(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Remains]:
            oldest = self._first(dict.fromkeys(partitions, 0))
            ahead = int(self._options.ahead.total_seconds() * 1000)
            now = held.asked_at.timestamp() * 1000
            # What is younger isn't about to go. A clock that is wrong makes a record look younger than now.
            skipped = {at: found.timestamp + ahead for at, found in oldest.items() if found.timestamp + ahead <= now}
            start = self._first(skipped) if ahead else {}
            return {
                at: Remains(
                    # Without a record that is so much younger, retention may remove all of them before they are read.
                    (start[at].offset if at in start else held.ends[at]) if ahead and at in skipped
                    else held.beginnings[at],
                    time_at(oldest[at].timestamp * 1000) if at in oldest else None,
                )
                for at in partitions
            }  # fmt: skip

        return remaining

    def _at(self, when: datetime, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = self._first(dict.fromkeys(ends, math.ceil(when.timestamp() * 1000)))
        return {at: found[at].offset if at in found else end for at, end in ends.items()}

    def _first(self, millis: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Offset and timestamp of the first record at or after a time in milliseconds, for partitions that have one."""
        if not millis:
            return {}
        with answering(self._servers):
            times = {KafkaPartition(*at): time for at, time in millis.items()}
            found = self._few.consumer.offsets_for_times(times, timeout_ms=ANSWER_WITHIN_MS)
        return {TopicPartition(*at): first for at, first in found.items() if first}

    def record_bytes(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """The mean size in bytes of the next few records of each partition, key and value. Empty ones are left out."""
        next_few = self._peek(offsets, ends)
        return {
            at: sum(len(record.key or b"") + len(record.value or b"") for record in records) / len(records)
            for at, records in next_few.items()
            if records
        }

    def sample(self, ranges: Sequence[OffsetRange]) -> list[Any]:
        """kafka-python's first records of some of the ranges, of all topics: a few hundred kilobytes. Fewer if Kafka
        doesn't answer in time."""
        return [record for records in self.samples(ranges).values() for record in records]

    def samples(self, ranges: Sequence[OffsetRange]) -> Mapping[TopicPartition, list[Any]]:
        """The same by partition: empty where a range has only offsets without a record. Those that weren't looked at,
        or didn't answer in time, are missing."""
        some: dict[str, list[OffsetRange]] = {}
        for each in ranges:
            some.setdefault(each.topic, []).append(each)
        each_has = max(1, _SAMPLED_PARTITIONS // max(1, len(some)))
        chosen = [each for of_topic in some.values() for each in of_topic[:each_has]][:_SAMPLED_PARTITIONS]
        starts, ends = (
            Offsets({each.at: each.start for each in chosen}),
            Offsets({each.at: each.end for each in chosen}),
        )
        return {
            at: [record for record in records[:SAMPLED_RECORDS] if record.offset < ends[at]]
            for at, records in self._peek(starts, ends).items()
        }

    def next_times(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, datetime | None]:
        """Kafka's timestamp of the next record of each partition that has offsets before ``ends``.

        None where there is no record at them. Partitions that don't answer in time are missing.
        """
        next_few = self._peek(offsets, ends)
        return {at: time_at(records[0].timestamp * 1000) if records else None for at, records in next_few.items()}

    def _peek(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, list[Any]]:
        """See ``FewRecords.next``."""
        with answering(self._servers):
            return self._few.next(offsets, ends)

    def _partitions(self) -> _Partitions:
        ids, there = {}, []
        pattern = isinstance(self._options.topics, TopicPattern)
        named = self._named()
        for topic in self._admin.describe_topics([*named, *self._looks.lacked_by(named)]):
            name = topic["name"]
            if topic["error_code"] == _UNKNOWN_TOPIC and pattern:
                continue  # deleted, or not known to this broker yet
            if topic["error_code"] == _UNKNOWN_TOPIC:
                self._looks.lacks(name, datetime.now(timezone.utc))
                raise self._missing(name)
            if topic["error_code"] == TopicAuthorizationFailedError.errno and self._looks.hides(name):
                continue
            ids[name] = self._id(topic)
            there.append(topic)
        return _Partitions(ids, _led(there))

    def _id(self, topic: Mapping[str, Any]) -> str:
        """The ID of a described topic. Raises NotAuthorized or SourceError."""
        name, error = topic["name"], topic["error_code"]
        if error == TopicAuthorizationFailedError.errno:
            raise not_authorized(f"Kafka at {self._servers}", "Topic", f"topic {name!r}")
        if error:
            raise SourceError(f"Kafka refuses to describe topic {name!r}: error {error}.")
        return str(topic["topic_id"])

    def _named(self) -> list[str]:
        pattern = self._options.topics
        if not isinstance(pattern, TopicPattern):
            return list(pattern)
        there = self._admin.list_topics()
        names = sorted(name for name in there if name in pattern)
        if not names:
            listed = ", ".join(sorted(name for name in there if not name.startswith("__"))[:10]) or "none"
            raise TopicMissing(
                f"No topic in Kafka at {self._servers} matches source.topics, {pattern.pattern!r}.",
                hint=f"Topics there: {listed}. The regular expression must match a topic's whole name.",
            )
        return names

    def _missing(self, topic: str) -> TopicMissing:
        known = [name for name in self._admin.list_topics() if not name.startswith("__")]
        near = difflib.get_close_matches(topic, known, n=1)
        listed = ", ".join(sorted(known)[:10]) or "none"
        return TopicMissing(
            f"Topic {topic!r} isn't in Kafka at {self._servers}.",
            topic=topic,
            hint=f"Did you mean {near[0]!r} in source.topics?" if near else f"Topics there: {listed}.",
        )


def _led(described: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The leading broker of each partition."""
    return {
        TopicPartition(topic["name"], part["partition_index"]): part["leader_id"]
        for topic in described
        for part in topic["partitions"]
    }


def _patiently(question: Callable[[], _Told]) -> _Told:
    """Call ``question``, and retry it while a broker restarts, or partitions or their leaders are too new.

    kafka-python itself gives up at once.
    """
    return asked_again(
        question,
        may_pass=_may_be_back,
        wait=lambda asked: min(1.0, 0.05 * 2 ** min(asked - 1, 10)),
        seconds=ANSWER_WITHIN_MS / 1000,
    )


def _may_be_back(error: BaseException) -> bool:
    lost, elsewhere = (KafkaConnectionError, NodeNotReadyError), (LeaderNotAvailableError, NotLeaderForPartitionError)
    passing = (*lost, *elsewhere, UnknownLeaderEpochError, UnknownTopicOrPartitionError)
    return isinstance(error, BrokerUnreachable) and isinstance(error.__cause__, passing)
