"""The history of one run of the crash lab: Kafka's records, the processes' events, and every table version.

A history can be saved, so that a later checker can judge it again. Uses the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, get_args

from sinks.offsets import OffsetRange, Offsets, TopicPartition

FORMAT = 1
"""The format of the file. Other formats are refused, because they could lead to a wrong verdict."""

Sink = Literal["append", "upsert", "routed"]
"""``routed``: two tables that records name by a route, as one: every record is in one of them."""
SINKS: tuple[Sink, ...] = get_args(Sink)
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class _Record:
    topic: str
    partition: int
    offset: int
    key: str
    value: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Sent(_Record):
    """A record that Kafka holds."""


class Row(_Record):
    """A row of the table, with the coordinates of its record. A row never equals a `Sent`."""


@dataclass(frozen=True)
class Happened:
    """An event: what a process announced, or what the lab did to the process.

    ``run``: 0 is the first process, 1 the process after the first restart. ``seconds`` since the lab began. ``what``:
    started, resumed, planned, polled, read, offsets_committed, writing, committed, crashed, done. Readers of a history
    ignore other words. ``ranges``: the offsets of the event, half-open. For resumed, they are an empty range per
    partition at its next offset.
    """

    run: int
    seconds: float
    what: str
    ranges: tuple[OffsetRange, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Version:
    """One version of the table, read by time travel.

    ``claims``: the next offsets in the version's own commit. The version claims to hold everything before them. None:
    a consumer group keeps the offsets, so the version claims nothing.
    """

    number: int
    rows: tuple[Row, ...]
    claims: Offsets | None = None


@dataclass(frozen=True)
class History:
    """One cell of the lab: a delivery into a sink that was killed at one point, restarted, and read.

    ``since``: the pipeline's first offset per partition, 0 for partitions that aren't there. ``drained``: whether the
    last process ended by itself, after reading the topic to its end. ``error``: why the lab itself failed, or None.
    """

    delivery: str
    sink: Sink
    crash_point: str
    """Empty if nothing was killed."""
    sent: tuple[Sent, ...]
    events: tuple[Happened, ...]
    versions: tuple[Version, ...]
    """Ordered by number."""
    since: Offsets = field(default_factory=Offsets)
    drained: bool = True
    error: str | None = None

    def to_json(self) -> str:
        """The history as JSON, with one line per record, event and version."""
        head = {
            "format": FORMAT,
            "delivery": self.delivery,
            "sink": self.sink,
            "crash_point": self.crash_point,
            "since": self.since.to_dict(),
            "drained": self.drained,
            "error": self.error,
        }
        lists: dict[str, list[list[object]]] = {
            "sent": [_record(sent) for sent in self.sent],
            "events": [
                [event.run, event.seconds, event.what, [_range(range_) for range_ in event.ranges], event.note]
                for event in self.events
            ],
            "versions": [
                [
                    version.number,
                    None if version.claims is None else version.claims.to_dict(),
                    [_record(row) for row in version.rows],
                ]
                for version in self.versions
            ],
        }
        parts = [f" {_line(name)}: {_line(value)}" for name, value in head.items()]
        for name, items in lists.items():
            lines = ",\n".join(f"  {_line(item)}" for item in items)
            parts.append(f" {_line(name)}: [\n{lines}\n ]" if items else f" {_line(name)}: []")
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> History:
        """Read a history from JSON. Raises ValueError if the text isn't a history of this format."""
        try:
            document = json.loads(text)
            if not isinstance(document, Mapping) or document.get("format") != FORMAT:
                raise ValueError(f"a history of format {FORMAT} was expected")
            return _history(document)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not a history: {error!r}") from error

    def save(self, path: Path) -> None:
        """Write the history to a file. Raises OSError."""
        path.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> History:
        """Read a history from a file. Raises ValueError if it isn't a history of this format, and OSError."""
        return cls.from_json(path.read_text(encoding="utf-8"))


def _history(document: Mapping[str, object]) -> History:
    sink = _is(str, document["sink"])
    known = next((each for each in SINKS if each == sink), None)
    if known is None:
        raise ValueError(f"a history's sink is one of {', '.join(SINKS)}, not {sink!r}")
    error = document["error"]
    return History(
        delivery=_is(str, document["delivery"]),
        sink=known,
        crash_point=_is(str, document["crash_point"]),
        sent=tuple(_of(Sent, item) for item in _items(document["sent"])),
        events=tuple(_event(item) for item in _items(document["events"])),
        versions=tuple(_version(item) for item in _items(document["versions"])),
        since=Offsets.from_dict(document["since"]),
        drained=_is(bool, document["drained"]),
        error=None if error is None else _is(str, error),
    )


def _event(item: object) -> Happened:
    run, seconds, what, ranges, note = _items(item)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError(f"{seconds!r} is not a number of seconds")
    return Happened(
        run=_integer(run),
        seconds=float(seconds),
        what=_is(str, what),
        ranges=tuple(_offset_range(range_) for range_ in _items(ranges)),
        note=_is(str, note),
    )


def _version(item: object) -> Version:
    number, claims, rows = _items(item)
    return Version(
        number=_integer(number),
        rows=tuple(_of(Row, row) for row in _items(rows)),
        claims=None if claims is None else Offsets.from_dict(claims),
    )


def _record(record: Sent | Row) -> list[object]:
    return [record.topic, record.partition, record.offset, record.key, record.value]


def _of(kind: Callable[[str, int, int, str, int], T], item: object) -> T:
    topic, partition, offset, key, value = _items(item)
    return kind(_is(str, topic), _integer(partition), _integer(offset), _is(str, key), _integer(value))


def _range(range_: OffsetRange) -> list[object]:
    return [range_.topic, range_.partition, range_.start, range_.end]


def _offset_range(item: object) -> OffsetRange:
    topic, partition, start, end = _items(item)
    return OffsetRange(_is(str, topic), _integer(partition), _integer(start), _integer(end))


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError(f"a list was expected, not {value!r}")
    return value


def _is(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not a {kind.__name__}")
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return _is(int, value)
