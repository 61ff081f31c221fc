"""Event time as far as a sink holds it: what each epoch held, how far each partition is, and the watermark. Pure.

From Gearpump: a mapping from offsets to application time is kept with the state, the clock of the whole is the minimum
over the parts, and whoever goes back in time starts from the smallest offset that is still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sinks.offsets import TopicPartition


class Seen(NamedTuple):
    """Of records of one partition: smallest and largest event time, and Kafka's newest timestamp."""

    low: datetime
    high: datetime
    newest: datetime

    def plus(self, other: Seen) -> Seen:
        return Seen(min(self.low, other.low), max(self.high, other.high), max(self.newest, other.newest))


@dataclass(frozen=True)
class Clock:
    """Empty where the pipeline asks for no event time."""

    of_epoch: Mapping[TopicPartition, Seen] = field(default_factory=dict)
    """Of the records of this epoch alone."""
    so_far: Mapping[TopicPartition, Seen] = field(default_factory=dict)
    watermark: datetime | None = None
    """No partition, but for idle ones, is expected to bring anything older: the minimum of their largest times."""
    late: int = 0
    """Records that came after their window was closed, of all epochs."""

    def carried(self) -> Clock:
        """For an epoch that reads nothing."""
        return replace(self, of_epoch={})

    def advanced(
        self,
        seen: Mapping[TopicPartition, Seen],
        *,
        backlog: frozenset[TopicPartition],
        idle_after: timedelta,
        late: int = 0,
    ) -> Clock:
        """The clock after an epoch. ``backlog``: the partitions of which Kafka holds more.

        A partition that was read to its end, and whose newest record is by ``idle_after`` older than the newest of all,
        is idle and set aside. Both are Kafka's timestamps: what a replay finds doesn't depend on when it runs.
        """
        so_far = dict(self.so_far)
        for at, times in seen.items():
            so_far[at] = so_far[at].plus(times) if at in so_far else times
        watermark = self.watermark
        if so_far and backlog <= so_far.keys():
            newest = max(times.newest for times in so_far.values())
            active = [times.high for at, times in so_far.items() if at in backlog or newest - times.newest < idle_after]
            found = min(active)
            watermark = found if watermark is None else max(watermark, found)
        return Clock(dict(seen), so_far, watermark, self.late + late)

    def to_dict(self) -> dict[str, object]:
        """As in a commit's metadata."""
        return {
            "times": _nested({at: [_text(times.low), _text(times.high)] for at, times in self.of_epoch.items()}),
            "so_far": _nested({at: [_text(time) for time in times] for at, times in self.so_far.items()}),
            "watermark": _text(self.watermark) if self.watermark else None,
            "late": self.late,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Clock:
        """Raises TypeError, ValueError, KeyError where it has another shape."""
        watermark, late = fields.get("watermark"), fields.get("late", 0)
        return cls(
            _flat(fields.get("times"), lambda times: Seen(times[0], times[1], times[1])),
            _flat(fields.get("so_far"), lambda times: Seen(*times)),
            datetime.fromisoformat(str(watermark)) if watermark else None,
            late if isinstance(late, int) else 0,
        )


Value = TypeVar("Value")


def _nested(flat: Mapping[TopicPartition, Value]) -> dict[str, dict[str, Value]]:
    nested: dict[str, dict[str, Value]] = {}
    for at, value in sorted(flat.items()):
        nested.setdefault(at.topic, {})[str(at.partition)] = value
    return nested


def _flat(nested: object, read: Callable[[list[datetime]], Seen]) -> dict[TopicPartition, Seen]:
    if not isinstance(nested, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): read([datetime.fromisoformat(time) for time in times])
        for topic, partitions in nested.items()
        for partition, times in partitions.items()
    }


def _text(time: datetime) -> str:
    return time.isoformat()
