"""Event time as a sink stores it: the times of each epoch, the progress of each partition, and the watermark. Pure.

The idea is Gearpump's: the state keeps a mapping from offsets to application time, the clock of the whole is the
minimum over its parts, and a rewind starts from the smallest offset that is still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple, TypeVar

from sinks.offsets import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICRO = timedelta(microseconds=1)
_BEFORE_ALL = datetime.min.replace(tzinfo=timezone.utc)
FIRST, LAST = ((each.replace(tzinfo=timezone.utc) - _EPOCH) // _MICRO for each in (datetime.min, datetime.max))
"""The microseconds since 1970 that a datetime can hold: the years 1 to 9999. Spark's and Kafka's times go further."""


def time_at(micros: int) -> datetime:
    """The time so many microseconds after 1970, or the nearest one that a datetime can hold."""
    return _EPOCH + timedelta(microseconds=min(max(micros, FIRST), LAST))


class Seen(NamedTuple):
    """The times of some records of one partition: smallest and largest event time, and Kafka's newest timestamp."""

    low: datetime
    high: datetime
    newest: datetime

    def plus(self, other: Seen) -> Seen:
        """The times of both sets of records."""
        return Seen(min(self.low, other.low), max(self.high, other.high), max(self.newest, other.newest))


@dataclass(frozen=True)
class Clock:
    """Event time as of an epoch. It is empty when the pipeline uses no event time."""

    of_epoch: Mapping[TopicPartition, Seen] = field(default_factory=dict)
    """The times of this epoch's records alone."""
    so_far: Mapping[TopicPartition, Seen] = field(default_factory=dict)
    watermark: datetime | None = None
    """The minimum of the partitions' largest event times, without idle partitions. Older records are late."""
    late: int = 0
    """The number of records, over all epochs, that arrived after their window was closed."""
    column: str | None = None
    """The column of the times, if the clock has seen the time of every row so far. Empty: it hasn't, as where the
    pipeline file named another column before, or none. None: the clock doesn't say, as an earlier version's."""
    partly: str | None = None
    """Of a clock that hasn't: the column of the times that it has. None: it doesn't say."""
    retired: datetime | None = None
    """The largest event time of rows that no partition here tells of: those of topics that have retired since, and of
    a sink beside that with the windows."""

    def carried(self) -> Clock:
        """The clock after an epoch that reads no records."""
        return replace(self, of_epoch={})

    def knows(self, column: str, read: Set[TopicPartition]) -> bool:
        """Whether the clock has the time of every row, by this column. ``read``: the partitions that may have rows.

        An earlier version's clock doesn't say its column. It is taken for this one if it has times of all partitions.
        """
        return read <= self.so_far.keys() if self.column is None else self.column == column

    @property
    def times_of(self) -> str | None:
        """The column of its times, of every row or not. None: it doesn't say."""
        return self.column or self.partly

    def by(self, column: str | None) -> Clock:
        """The clock with times of this column only, as lateness is judged by: without those of another column.

        Times of a clock that doesn't say its column are taken for this one's.
        """
        if self.times_of in (None, column):
            return self
        return Clock(late=self.late, column="", partly=column)

    def of_column(self, column: str, read: Set[TopicPartition]) -> Clock:
        """The clock before an epoch whose times are of this column. ``read``: as in ``knows``."""
        if self.knows(column, read):
            return replace(self, column=column, partly=None)
        return replace(self.by(column), column="", partly=column)

    def without_times(self) -> Clock:
        """The clock after rows whose event times nobody has looked at."""
        if not self.so_far and not self.column:
            return self.carried()
        return replace(self.carried(), column="", partly=self.times_of)

    def without_topics(self, names: Collection[str]) -> Clock:
        """The clock after these topics have retired. They bring no more records, and hold no watermark back."""
        highs = [seen.high for at, seen in self.so_far.items() if at.topic in names]
        left = {at: seen for at, seen in self.so_far.items() if at.topic not in names}
        return replace(self, so_far=left, retired=max([*highs, *_some(self.retired)], default=None))

    def beside(self, time: datetime) -> Clock:
        """The clock after an epoch of which another sink has rows until ``time``. They make no row late."""
        known = [*(seen.high for seen in self.so_far.values()), *_some(self.retired)]
        return replace(self, retired=time) if time > max(known, default=_BEFORE_ALL) else self

    def all_before(self, time: datetime, column: str, read: Set[TopicPartition]) -> bool:
        """Whether every row is known to be older than ``time``, by this column. ``read``: as in ``knows``."""
        highs = [*(seen.high for seen in self.so_far.values()), *_some(self.retired)]
        return self.knows(column, read) and bool(highs) and max(highs) < time

    def joined(self, other: Clock, column: str | None) -> Clock:
        """The clock of two sinks that have read the same records, by this column.

        One sink may have been without event time, or have had another column: one that has joined the pipeline, or left
        it. None: the pipeline names no column now.
        """
        column = column or self.times_of or other.times_of
        mine, others = self.by(column), other.by(column)
        known = mine.column if others.column in (None, mine.column) else ""
        return Clock(
            mine.of_epoch,
            _plus(mine.so_far, others.so_far),
            max([*_some(mine.watermark), *_some(others.watermark)], default=None),
            max(mine.late, others.late),
            known,
            None if known else mine.times_of or others.times_of,
            max([*_some(mine.retired), *_some(others.retired)], default=None),
        )

    def advanced(
        self,
        seen: Mapping[TopicPartition, Seen],
        *,
        backlog: frozenset[TopicPartition] | None,
        idle_after: timedelta,
        late: int = 0,
    ) -> Clock:
        """The clock after an epoch. ``backlog`` are the partitions in which Kafka holds more records.

        None: nobody knows which ones do. Any partition may, so the watermark stays.
        A partition is idle, and doesn't count for the watermark, when it was read to its end and its newest record is
        older by ``idle_after`` than the newest of all partitions. Both times are Kafka's timestamps, so a replay gives
        the same watermark whenever it runs.
        """
        so_far = _plus(self.so_far, seen)
        watermark = self.watermark
        if so_far and backlog is not None and backlog <= so_far.keys():
            newest = max(times.newest for times in so_far.values())
            # The partition with the newest record isn't idle, however short the time after which others are.
            found = min(
                times.high
                for at, times in so_far.items()
                if at in backlog or times.newest == newest or newest - times.newest < idle_after
            )
            watermark = found if watermark is None else max(watermark, found)
        return replace(self, of_epoch=dict(seen), so_far=so_far, watermark=watermark, late=self.late + late)

    def to_dict(self) -> dict[str, object]:
        """The clock as it is stored in a commit's metadata."""
        fields: dict[str, object] = {
            "times": _nested({at: [_text(times.low), _text(times.high)] for at, times in self.of_epoch.items()}),
            "so_far": _nested({at: [_text(time) for time in times] for at, times in self.so_far.items()}),
            "watermark": _text(self.watermark) if self.watermark else None,
            "late": self.late,
        }
        if self.column is not None:
            fields["column"] = self.column
        if self.partly is not None:
            fields["partly"] = self.partly
        if self.retired is not None:
            fields["retired"] = _text(self.retired)
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Clock:
        """The clock from a commit's metadata. Raises TypeError, ValueError or KeyError for any other shape."""
        watermark, late, column = fields.get("watermark"), fields.get("late", 0), fields.get("column")
        retired, partly = fields.get("retired"), fields.get("partly")
        return cls(
            _flat(fields.get("times"), lambda times: Seen(times[0], times[1], times[1])),
            _flat(fields.get("so_far"), lambda times: Seen(*times)),
            datetime.fromisoformat(str(watermark)) if watermark else None,
            late if isinstance(late, int) else 0,
            column if isinstance(column, str) else None,
            partly if isinstance(partly, str) else None,
            datetime.fromisoformat(str(retired)) if retired else None,
        )


Value = TypeVar("Value")


def _plus(one: Mapping[TopicPartition, Seen], other: Mapping[TopicPartition, Seen]) -> dict[TopicPartition, Seen]:
    """The times of both, by partition."""
    return {**one, **{at: one[at].plus(times) if at in one else times for at, times in other.items()}}


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


def _some(time: datetime | None) -> list[datetime]:
    return [] if time is None else [time]


def _text(time: datetime) -> str:
    return time.isoformat()
