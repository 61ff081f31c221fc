"""A pipeline's topics up to a point in time, for a replay of a stretch of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from connector.protocol.recover import Remaining, TopicsHeld
from connector.source.topics import KafkaSource
from sinks.offsets import Offsets, TopicPartition


@dataclass(frozen=True)
class Until:
    """The topics up to a point in time."""

    topics: KafkaSource
    time: datetime

    def look(self) -> TopicsHeld:
        """What Kafka holds before ``time``."""
        held = self.topics.look()
        last = self.topics.at(self.time, held)
        ends = Offsets({at: min(end, last[at]) for at, end in held.ends.items()})
        # What came later isn't before the ends, so the table must not call itself complete up to now.
        until = min(held.asked_at, self.time.astimezone(timezone.utc))
        return replace(held, ends=ends, asked_at=until, clock=held.asked_at)

    def starting(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """A function that resolves the configured start, at most to the ends."""
        start = self.topics.starting(held)
        return lambda: Offsets({at: min(offset, held.ends[at]) for at, offset in start().items()})

    def began(self, held: TopicsHeld) -> Callable[[], Offsets]:
        """See ``KafkaSource.began``."""
        return self.topics.began(held)

    def remaining(self, held: TopicsHeld) -> Remaining:
        """See ``KafkaSource.remaining``."""
        return self.topics.remaining(held)

    def record_bytes(self, offsets: Offsets, ends: Offsets) -> Mapping[TopicPartition, float]:
        """See ``KafkaSource.record_bytes``."""
        return self.topics.record_bytes(offsets, ends)

    def deleted(self, topics: Collection[str]) -> Collection[str]:
        """See ``KafkaSource.deleted``."""
        return self.topics.deleted(topics)
