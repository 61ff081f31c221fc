"""What became of each record of a history, and how far each run got. Charts and pictures show this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from connector.lab.check.history import Happened, History, Sent
from connector.lab.check.verdict import Kind, Report
from sinks.offsets import OffsetRange, TopicPartition

LEGEND: Mapping[str, str] = {
    "never": "lost: the table doesn't have it",
    "stale": "stale: an older update of its key stands",
    "again": "twice or more in the table",
    "odd": "unexpected: not as sent, or too early",
    "blip": "older or missing for a while, right in the end",
    "hidden": "never written, but a newer update hides it",
    "waiting": "not read yet when the lab stopped",
    "once": "in the table, once",
    "was": "replaced by a newer update of its key",
}
"""The fates of a record, worst first. A cell for a group of records shows the worst fate."""

WORST = tuple(LEGEND)
_KINDS = {Kind.LOST: "never", Kind.STALE: "stale", Kind.UNEXPECTED: "odd", Kind.REGRESSED: "blip"}

Lane: TypeAlias = tuple[str, frozenset[str]]
_READ = ("read", frozenset({"planned", "polled", "read"}))
_POLLED = ("polled", _READ[1])
_WROTE = ("wrote", frozenset({"committed"}))
_OFFSETS = ("offsets", frozenset({"offsets_committed"}))
_LANES = {
    "auto_commit": (_POLLED, _OFFSETS, _WROTE),
    "transactional": (_READ, ("rows+offsets", frozenset({"committed"}))),
}


def lanes_of(delivery: str) -> Sequence[Lane]:
    """The steps of a batch in the delivery's order: the name of each, and the events that announce it."""
    return _LANES.get(delivery, (_POLLED, _WROTE, _OFFSETS))


@dataclass(frozen=True)
class Fate:
    """What became of a record: a word of `LEGEND`, the number of its rows or writes, and a sentence."""

    word: str
    times: int
    text: str


def fates(history: History, report: Report) -> dict[tuple[TopicPartition, int], Fate]:
    """What became of each record that was sent."""
    last = history.versions[-1].rows if history.versions else ()
    rows = Counter((row.at, row.offset) for row in last)
    stood = {(row.at, row.offset) for version in history.versions for row in version.rows}
    committed = [range_ for event in history.events if event.what == "committed" for range_ in event.ranges]
    written = Counter(
        (sent.at, sent.offset)
        for sent in history.sent
        for range_ in committed
        if range_.at == sent.at and range_.start <= sent.offset < range_.end
    )
    anomalous: dict[tuple[TopicPartition, int], str] = {}
    for anomaly in reversed(report.anomalies):
        if (word := _KINDS.get(anomaly.kind)) is not None:
            anomalous[TopicPartition(anomaly.topic, anomaly.partition), anomaly.offset] = word
    result = {}
    for sent in history.sent:
        place = (sent.at, sent.offset)
        times = rows[place]
        if place in anomalous:
            word = anomalous[place]
        elif times > 1:
            word = "again"
        elif times == 1:
            word = "once"
        elif not history.drained or not history.versions:
            word = "waiting"
        elif history.sink != "upsert":
            word = "never"
        else:
            # Only events tell what was written.
            word = "hidden" if committed and not written[place] and place not in stood else "was"
        result[place] = Fate(word, max(times, written[place]), _sentence(sent, word, times, written[place]))
    return result


def _sentence(sent: Sent, word: str, rows: int, written: int) -> str:
    copies = f" ({rows} rows)" if rows > 1 else ""
    writes = f"; written {written} times" if written > 1 else ""
    return f"offset {sent.offset}, key {sent.key}: {LEGEND[word]}{copies}{writes}"


def ranges(at: TopicPartition, events: Sequence[Happened], words: frozenset[str]) -> list[OffsetRange]:
    """The ranges of a partition in the events with these words, in order, without repeats."""
    return list(
        dict.fromkeys(r for event in events if event.what in words for r in event.ranges if r.at == at and r.span)
    )


def stored_at(at: TopicPartition, events: Sequence[Happened], lanes: Sequence[Lane], before: int) -> int:
    """The stored offset after these events: the group's, or with ``transactional`` the table's."""
    words = lanes[-1][1] if len(lanes) == 2 else _OFFSETS[1]
    return max((range_.end for range_ in ranges(at, events, words)), default=before)


def behind(history: History, arrived: Sequence[tuple[float, int]] = ()) -> tuple[list[tuple[float, int]], list[float]]:
    """How many of the topic's records the table didn't have yet, and when runs were killed.

    All times are seconds since the first run began. ``arrived``: when records were sent, in seconds since the lab
    began, and how many; by default all of them before the first run.
    """
    first = history.events[0].seconds if history.events else 0.0
    if sum(number for _, number in arrived) != len(history.sent):
        arrived = [(first, len(history.sent))]  # somebody else has sent some
    changes = [(max(at, first), number) for at, number in arrived]
    changes += [(at, -number) for at, number in _taken_in(history)]
    lacked = [(0.0, sum(number for at, number in changes if at <= first))]
    for at, number in sorted(change for change in changes if change[0] > first):
        lacked.append((at - first, lacked[-1][1] + number))
    return lacked, [event.seconds - first for event in history.events if event.what == "crashed"]


def _taken_in(history: History) -> Iterator[tuple[float, int]]:
    """When records came into the table: the seconds, and how many were new.

    A run that finishes an epoch of a killed one announces each sink, and no commit: the last sink counts, if the run
    ended by itself.
    """
    ended = {event.run for event in history.events if event.what == "done"}
    last = {(event.run, event.ranges): event for event in history.events if event.what == "sink_committed"}
    finished = [event for event in last.values() if event.run in ended]
    reached: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, list[int]] = {}
    for sent in history.sent:
        offsets.setdefault(sent.at, []).append(sent.offset)
    commits = [event for event in history.events if event.what == "committed"]
    for event in sorted([*commits, *finished], key=lambda event: event.seconds):
        new = 0
        for range_ in event.ranges:
            before = reached.get(range_.at, 0)
            new += sum(before <= offset < range_.end for offset in offsets.get(range_.at, ()))
            reached[range_.at] = max(before, range_.end)
        yield event.seconds, new


def started(at: TopicPartition, events: Sequence[Happened], stored: int) -> int:
    """The offset at which a run started: as the run announced, or that of its first read."""
    for words in (frozenset({"resumed"}), _READ[1]):
        starts = [r.start for event in events if event.what in words for r in event.ranges if r.at == at]
        if starts:
            return min(starts)
    return stored
