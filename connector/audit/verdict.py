"""What an audit found, and how it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rich.console import Console

from connector.audit.claim import Claim, Range
from connector.display import Grid, Line, Page, Shown, Tone, print_page
from sinks.plurals import plural

FAULTS = {
    "lost": "expected, and not in the table",
    "duplicated": "a further row of the same record or key",
    "stale": "an older update of the key is there instead of the newest",
    "resurrected": "the key's newest record is a tombstone, and its row is there",
    "altered": "of the right record, key or group, with other values",
    "unexpected": "a row that no record of the claim has made, or one that is set aside",
    "gone_before": "the table held the row before the pipeline's first epoch, and has lost it",
    "letters_lost": "the record isn't right, and is not among the dead letters",
    "letters_duplicated": "a further dead letter of the same record",
    "letters_altered": "a dead letter that doesn't hold what the record holds",
    "letters_unexpected": "a dead letter of no record, or of one that is right",
}
NO_FAULTS = {
    "ahead": "written, but its offset is not committed yet",
    "held_before": "the table held the row before the pipeline's first epoch",
    "doubtful": "missing or not as expected, which records that weren't compared may explain",
    "moved": "the key has records in several partitions, whose offsets can't be compared",
    "unreadable": "the record can't be read as the file says, so what it made wasn't compared",
    "unchecked": "Kafka no longer holds what would confirm or refute the row",
    "letters_unconfirmed": "a dead letter of a record that the auditor, less strict than the pipeline, can read, or "
    "that is late only by a smaller allowed_lateness than the file has",
    "letters_unchecked": "Kafka no longer holds the dead letter's record",
    "letters_ahead": "a dead letter beyond the claim, of an epoch that this version does not hold",
}
_ENOUGH = 1000
"""Of so many rows that can't be checked, more than one has to be confirmed by its record."""
_SIZES = ("expected", "found", "records", "letters")
COUNTS = (*_SIZES, *FAULTS, *NO_FAULTS)
_OF_RECORDS = ("records", *(kind for kind in COUNTS if kind.startswith("letters")))
"""Counts that are known per partition even if rows are groups."""


@dataclass(frozen=True)
class Place:
    """Where a finding is: the coordinates of the row (of the record, if it is lost), and the key or group."""

    topic: str | None
    partition: int | None
    offset: int | None
    key: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: at, key."""
        return {"at": [self.topic, self.partition, self.offset], "key": self.key}

    def __str__(self) -> str:
        where = [] if self.topic is None else [f"{self.topic}-{self.partition}, offset {self.offset}"]
        key = [] if self.key is None else [f"key {json.dumps(self.key, ensure_ascii=False)}"]
        return ", ".join([*where, *key]) or "no coordinates"


@dataclass(frozen=True)
class PartitionAudit:
    """The counts of one topic-partition. Topic and partition are None for groups, and for rows outside the claim.

    ``counts`` has every name of ``COUNTS``. ``first`` has the lowest coordinates of every fault, ahead and unchecked
    that isn't zero.
    """

    topic: str | None
    partition: int | None
    counts: Mapping[str, int]
    first: Mapping[str, Place] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: topic, partition, the counts, first."""
        first = {kind: place.to_dict() for kind, place in self.first.items()}
        return {"topic": self.topic, "partition": self.partition, **self.counts, "first": first}


class Verdict(Enum):
    """Whether the table holds exactly what it claims."""

    EXACT = "exact"
    NOT_EXACT = "not exact"
    UNKNOWN = "unknown"
    """There is no fault, but what could be checked doesn't show that nothing is missing."""

    @property
    def exit_code(self) -> int:
        """The exit code of `lakelock verify`: 0, 1 or 4."""
        return {Verdict.EXACT: 0, Verdict.NOT_EXACT: 1, Verdict.UNKNOWN: 4}[self]

    @property
    def tone(self) -> Tone:
        """The tone in which the verdict is shown."""
        return _TONES[self]


_TONES: Mapping[Verdict, Tone] = {Verdict.EXACT: "good", Verdict.NOT_EXACT: "bad", Verdict.UNKNOWN: "warning"}


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """What a table holds, next to what it claims to hold.

    Every expected row is found, lost, stale, altered, doubtful or unreadable, or resurrected if deleted rows stay,
    marked as such. Every row of the table is found, duplicated, stale, resurrected, altered, unexpected, ahead, held
    before, doubtful, moved, unreadable or unchecked. A key that is moved has no expected row.

    If bad records are set aside, every one of the ``records`` that Kafka shows is in the table or one of the
    ``letters``, or else it counts as letters_lost, letters_altered or letters_unexpected. Otherwise these counts are 0.
    """

    pipeline: str
    table: str
    version: int
    claim: Claim
    partitions: Sequence[PartitionAudit]
    unchecked: Sequence[Range]
    """Ranges of the claim that Kafka no longer holds."""
    notes: Sequence[str] = ()
    grouped: bool = False
    """Whether rows are groups of records of all partitions."""

    @property
    def totals(self) -> dict[str, int]:
        """Every count of ``COUNTS``, summed over the partitions."""
        return {name: sum(part.counts[name] for part in self.partitions) for name in COUNTS}

    @property
    def verdict(self) -> Verdict:
        """NOT_EXACT with any fault; else UNKNOWN if too little could be checked; else EXACT."""
        totals = self.totals
        if any(totals[fault] for fault in FAULTS):
            return Verdict.NOT_EXACT
        return Verdict.UNKNOWN if self.unknown else Verdict.EXACT

    @property
    def ok(self) -> bool:
        """Whether there is no fault, and enough could be checked to say so."""
        return self.verdict is Verdict.EXACT

    @property
    def unknown(self) -> Sequence[str]:
        """Sentences: why the table can't be called exact, although there is no fault."""
        totals = self.totals
        claimed = sum(end - self.claim.since[at] for at, end in self.claim.offsets.items())
        gone = sum(part.end - part.start for part in self.unchecked)
        left = sum(part.end - part.start for part in self.claim.lost)
        sentences = list(self.claim.unknown)
        if claimed and claimed <= gone + left:
            sentences.append("Kafka no longer holds any of the records that the table claims to hold.")
        elif not sentences and (gone or totals["unchecked"]) and totals["found"] * _ENOUGH <= totals["unchecked"]:
            sentences.append(
                f"Next to nothing was compared: Kafka no longer holds the records of "
                f"{plural(totals['unchecked'], 'row')}, and what it holds confirms {totals['found']:,}."
            )
        if totals["ahead"] > totals["found"]:
            sentences.append(
                f"Less was compared than lies ahead of the consumer group's offsets: {totals['found']:,} of "
                f"{plural(totals['found'] + totals['ahead'], 'group' if self.grouped else 'row')}. Verify again when "
                "the pipeline is at rest. If it says the same then, the group's offsets are lower than those that the "
                "table was written with."
            )
        if doubtful := totals["doubtful"]:
            sentences.append(
                f"{plural(doubtful, 'row is', 'rows are')} missing or not as expected. Records that weren't "
                "compared may explain this: they are gone from Kafka, can't be read, came after the claim, or are dead "
                "letters in a topic."
                + (" Verify again when the pipeline is at rest." if self.claim.delivery != "transactional" else "")
            )
        if moved := totals["moved"]:
            sentences.append(
                f"{plural(moved, 'key has', 'keys have')} records in several partitions. Without sequence_by, or with "
                "one of _offset, offsets are their order, and offsets of two partitions can't be compared. So nothing "
                "tells which record of such a key is the last: an update, or a delete. Set sequence_by, or have the "
                "producer send the sink's key as the message key."
            )
        if unreadable := totals["unreadable"]:
            sentences.append(
                f"{plural(unreadable, 'record')} can't be read as the pipeline file says, so what "
                "they made wasn't compared. Was the file changed since they were written?"
            )
        return sentences

    @property
    def first(self) -> dict[str, Place]:
        """The first place of each kind of finding."""
        places: dict[str, Place] = {}
        for part in self.partitions:
            for kind, place in part.first.items():
                places.setdefault(kind, place)
        return {kind: places[kind] for kind in COUNTS if kind in places}

    def page(self) -> Page:
        """The partitions, the totals, the first of each kind of fault, the notes, and last the verdict."""
        meaning = {**FAULTS, **NO_FAULTS}
        lines = [f"first {_words(kind)} ({meaning[kind]}): {place}" for kind, place in self.first.items()]
        lines += [f"unchecked: {gap}, no longer in Kafka" for gap in self.unchecked]
        lines += [f"note: {note}" for note in self.notes]
        return Page(
            [
                Line("", f"{self.pipeline}: {self.table}, version {self.version}"),
                self._counts(),
                *(Line("", line) for line in lines),
                Line("", str(self), self.verdict.tone),
            ]
        )

    def _counts(self) -> Grid:
        """A row per partition, and the totals. Counts that are 0 everywhere are left out, except the important ones."""
        totals = self.totals
        columns = [name for name in COUNTS if totals[name] or name in ("expected", "found", "lost", "duplicated")]
        claim = {tuple(at): (self.claim.since[at], end) for at, end in self.claim.offsets.items()}
        rows = []
        for part in self.partitions:
            since, end = claim.get((part.topic, part.partition), ("", ""))
            nowhere = "groups" if self.grouped else "from nowhere in the claim"
            where = (nowhere, "") if part.topic is None else (part.topic, str(part.partition))
            here = (name in _OF_RECORDS or not self.grouped or part.topic is None for name in columns)
            counts = (f"{part.counts[name]:,}" if known else "" for name, known in zip(columns, here, strict=True))
            rows.append((*where, str(since), str(end), *counts))
        total = ("all", "", "", "", *(f"{totals[name]:,}" for name in columns))
        headings = ("topic", "partition", "from", "to", *map(_words, columns))
        return Grid(headings, rows, right=frozenset(headings[1:]), total=total)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``. Offsets are next offsets, ranges ``[topic, partition, start, end)``.

        ::

            pipeline, table, version, delivery
            claim       {"since": {topic: {partition: offset}}, "offsets": the same, "lost": [range, ...]}
            verdict     "exact", "not exact" or "unknown"; the exit code is then 0, 1 or 4
            unknown     [sentence, ...]: why nothing can be called exact
            ok          whether the verdict is "exact"
            totals      {"expected": rows, "found": ..., "lost", "duplicated", "stale", "resurrected", "altered",
                        "unexpected", "gone_before", "ahead", "held_before", "doubtful", "moved", "unreadable",
                        "unchecked"; of records that are set aside "records", "letters", "letters_lost",
                        "letters_duplicated", "letters_altered", "letters_unexpected", "letters_unconfirmed",
                        "letters_unchecked", "letters_ahead"; else these are 0}
            partitions  [{"topic", "partition", the counts, "first": {kind: {"at": [topic, partition, offset],
                        "key": {column: value} or null}}}]; topic and partition null: groups, or from nowhere in the
                        claim
            unchecked   [range, ...] that Kafka no longer holds
            notes       [sentence, ...]
        """
        return {
            "pipeline": self.pipeline,
            "table": self.table,
            "version": self.version,
            "delivery": self.claim.delivery,
            "claim": self.claim.to_dict(),
            "verdict": self.verdict.value,
            "unknown": list(self.unknown),
            "ok": self.ok,
            "totals": self.totals,
            "partitions": [part.to_dict() for part in self.partitions],
            "unchecked": [list(part) for part in self.unchecked],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """One line: ``exact: 990 expected, 990 found; 1,000 records = 990 rows + 10 dead letters``."""
        totals = self.totals
        off = ", ".join(f"{_words(fault)} {totals[fault]:,}" for fault in FAULTS if totals[fault])
        said = f"{totals['expected']:,} expected, {totals['found']:,} found"
        records, letters = totals["records"], totals["letters"]
        if records or letters:
            taken = records - letters
            rows = plural(taken, "row") if taken == totals["expected"] else f"{taken:,} for the table"
            made_of = "," if off else f" = {rows} +"
            said += f"; {plural(records, 'record')}{made_of} {plural(letters, 'dead letter')}"
        if totals["held_before"]:
            said += f"; {totals['held_before']:,} held before"
        for kind in ("ahead", "doubtful", "moved", "unreadable"):
            said += f"; {totals[kind]:,} {kind}" if totals[kind] else ""
        if totals["unchecked"]:
            said += f"; {plural(totals['unchecked'], 'group' if self.grouped else 'row')} unchecked"
        if off:
            return f"NOT EXACT: {off}; {said}"
        span = sum(part.end - part.start for part in self.unchecked)
        checked = f"{said}; {plural(span, 'offset')} could not be checked" if span else said
        return f"UNKNOWN: {' '.join(self.unknown)} {checked}" if self.unknown else f"exact: {checked}"


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def partitions(found: Iterable[Mapping[str, Any]], claim: Claim) -> list[PartitionAudit]:
    """The query's counts: one entry per partition of the claim, and one for rows outside the claim if there are any.

    ``found``: {kind, topic, partition, count, first: {topic, partition, offset, key as JSON}}.
    """
    counts: dict[tuple[str | None, int | None], dict[str, int]] = {(*at,): {} for at in sorted(claim.offsets)}
    first: dict[tuple[str | None, int | None], dict[str, Place]] = {}
    for entry in found:
        at = (entry["topic"], entry["partition"])
        of_kind = counts.setdefault(at, {})
        of_kind[entry["kind"]] = of_kind.get(entry["kind"], 0) + entry["count"]
        if entry["kind"] not in _SIZES:
            place = entry["first"]
            key = None if place["key"] is None else json.loads(place["key"])
            first.setdefault(at, {}).setdefault(
                entry["kind"], Place(place["topic"], place["partition"], place["offset"], key)
            )
    return [
        PartitionAudit(*at, {name: counted.get(name, 0) for name in COUNTS}, first.get(at, {}))
        for at, counted in counts.items()
    ]


def show(audit: Audit, console: Console) -> None:
    """Print the audit, as ``lakelock verify`` does."""
    print_page(audit.page(), console)
