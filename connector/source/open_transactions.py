"""Transactions that haven't ended. Nobody who reads what is committed may read behind their first record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka.errors import KafkaError

from connector.protocol.recover import HeldBack
from connector.source.few_records import FewRecords
from sinks.event_time import time_at
from sinks.kafka.leaders import End
from sinks.offsets import TopicPartition
from sinks.plurals import plural

log = logging.getLogger("lakelock.source")

_LONG = timedelta(minutes=1)
"""Producers that end their transactions do so sooner."""
_SECONDS = 2.0


@dataclass
class OpenTransactions:
    """Those of the topics of one source. It warns of a long one, once for each partition."""

    kafka: Mapping[str, str]
    """The options of Kafka's client."""
    _told: set[TopicPartition] = field(default_factory=set)
    _known: dict[TopicPartition, tuple[int, datetime | None]] = field(default_factory=dict)
    """Where committed reading ends in a partition -> since when."""
    _few: FewRecords = field(init=False)

    def __post_init__(self) -> None:
        # A broker that is away, a user that may describe the topic and not read it, or a topic that was made again:
        # without the time the look says less, and is right all the same.
        self._few = FewRecords(self.kafka, "read_uncommitted", passes_over=KafkaError)

    def held_back(self, ends: Mapping[TopicPartition, End]) -> dict[TopicPartition, HeldBack]:
        """What they hold back, for the partitions that have one."""
        stable = {at: end.offset for at, end in ends.items() if end.held_back}
        self._told &= stable.keys()
        self._known = {at: known for at, known in self._known.items() if stable.get(at) == known[0]}
        asked = {at: offset for at, offset in stable.items() if at not in self._known}
        if asked:
            self._known |= {at: (stable[at], since) for at, since in self._since(asked).items()}
        since = {at: began for at, (_, began) in self._known.items() if began is not None}
        now = datetime.now(timezone.utc)
        for at in stable.keys() - self._told:
            if at in since and now - since[at] > _LONG:
                self._told.add(at)
                log.warning(
                    "%s-%s: a transaction has been open since %s UTC, and nobody may read behind it: %s. Kafka ends it "
                    "after its producer's transaction.timeout.ms; `kafka-transactions.sh find-hanging` finds one that "
                    "Kafka doesn't end.",
                    *at,
                    f"{since[at]:%Y-%m-%d %H:%M:%S}",
                    plural(ends[at].held_back, "offset waits", "offsets wait"),
                )
        return {at: HeldBack(ends[at].held_back, since.get(at)) for at in stable}

    def close(self) -> None:
        """Close the connection. The next question connects again."""
        self._few.close()

    def _since(self, stable: Mapping[TopicPartition, int]) -> dict[TopicPartition, datetime | None]:
        """Kafka's timestamp of the first record of the oldest transaction of each partition; None: it has none.

        ``stable``: the offset of that record, where committed reading ends. Partitions that don't answer in time, or
        can't be read, are missing.
        """
        behind = {at: offset + 1 for at, offset in stable.items()}
        first = {at: records[0] for at, records in self._few.next(stable, behind, _SECONDS).items() if records}
        return {at: time_at(each.timestamp * 1000) if each.timestamp >= 0 else None for at, each in first.items()}
