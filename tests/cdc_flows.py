"""Eighteen flows of change events, each with the rule that its table has to meet.

The flows and the rules are those of "I Tried to Break Lakeflow AUTO CDC" by Ivan Vydrin
(github.com/ivanvyd/lakeflow-auto-cdc-torture-test), told anew with records of our own: that repository has no licence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SOURCE = "https://github.com/ivanvyd/lakeflow-auto-cdc-torture-test"
SCHEMA = (
    "parcel INT, state STRING, depot STRING, note STRING, seq INT, step INT, happened TIMESTAMP, arrived TIMESTAMP, "
    "scanned TIMESTAMP, op STRING"
)
NOISE = 12
"""Updates in which only the time of the last scan is new."""


@dataclass(frozen=True)
class Event:
    """A change of a flow's parcel, in a partition of the topic."""

    partition: int
    value: Mapping[str, Any]


def event(
    state: str | None,
    seq: int = 1,
    *,
    partition: int = 0,
    minute: int = 0,
    arrived: int = 0,
    scanned: int = 0,
    **more: Any,
) -> Event:
    """Minutes are those after ten o'clock."""
    times = {"happened": at(minute), "arrived": at(arrived), "scanned": at(scanned)}
    held = {"state": state, "depot": "Riga", "note": "fragile", "seq": seq, "step": 1, "op": "set"}
    return Event(partition, {**held, **times, **more})


def gone(seq: int, partition: int = 0) -> Event:
    return event(None, seq, partition=partition, depot=None, note=None, op="gone")


def at(minute: int) -> str:
    return f"2026-09-01T10:{minute:02}:00Z"


ANOTHER = event("there")
"""Of a parcel of no flow, first of all: whatever becomes of the others, it stays as it is."""


@dataclass(frozen=True)
class Flow:
    """One flow. What it has to hold is the rule's; ``found`` is what a table holds that breaks it by design."""

    name: str
    """As its source numbers them."""
    about: str
    rule: str
    why: str
    auto_cdc: bool
    """Whether the rule held there."""
    kind: str
    """Of sink: upsert or history."""
    sink: Mapping[str, Any]
    deliveries: Sequence[Sequence[Event]]
    """What each run finds new in the topic."""
    columns: str
    """What the rule is about, in DataFusion's SQL."""
    demanded: Sequence[tuple[Any, ...]]
    found: Sequence[tuple[Any, ...]] | None = None
    cuts: Sequence[int] = (100,)
    """The largest number of records in an epoch. Of several, a table for each."""

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What the table holds."""
        return sorted(self.demanded if self.found is None else self.found, key=repr)

    @property
    def parcel(self) -> int:
        return FLOWS.index(self) + 1

    @property
    def holds(self) -> bool:
        return self.found is None or sorted(self.found, key=repr) == sorted(self.demanded, key=repr)


BY_SEQ: dict[str, Any] = {
    "sequence_by": "seq", "apply_as_deletes": "op = 'gone'", "except_column_list": ["op", "scanned"],
}  # fmt: skip
BY_TIME = {**BY_SEQ, "sequence_by": "happened"}
VERSIONS: dict[str, Any] = {**BY_SEQ, "except_column_list": ["op", "scanned", "seq", "step", "happened", "arrived"]}
"""A history of what the parcel is, not of the times that come with it."""
OF_TIMES: dict[str, Any] = {"sequence_by": "happened", "except_column_list": VERSIONS["except_column_list"]}
WITH_SCANS: dict[str, Any] = {**OF_TIMES, "except_column_list": ["op", "seq", "step", "happened", "arrived"]}

PERIODS = 'state, "__START_AT", "__END_AT"'
CLOCKED = "state, to_char(\"__START_AT\", '%H:%M'), to_char(\"__END_AT\", '%H:%M')"
KNOWN = f"{CLOCKED}, to_char(\"__SYSTEM_START_AT\", '%H:%M'), to_char(\"__SYSTEM_END_AT\", '%H:%M')"

LATE = [[event("moving", 12)], [event("new", 10, partition=1)]]
TIED = [[event("moving", 10), event("held", 10, step=2)]]
CLOCKS = [[event("held", 2, minute=5, arrived=6)], [event("moving", 1, minute=0, arrived=10, partition=1)]]
SPARSE = [[event("moving", 1), event("moving", 2, note=None, depot="Oslo")]]
DELETED = [[event("moving", 17), gone(20)], [event("held", 18, partition=1)]]
LIFE = [event("new", 10), event("moving", 20), event("moving", 30, depot="Oslo"), event("held", 40), gone(50)]
SCANS = [[event("moving", minute=minute, scanned=minute) for minute in range(NOISE + 1)]]
BELIEFS = [
    [event("new", 1, minute=0, arrived=1)],
    [event("moving", 2, minute=2, arrived=3)],
    [event("held", 3, minute=4, arrived=5)],
]
KNOWN_LATER = [
    ("new", "10:00", None, "10:01", "10:03"), ("new", "10:00", "10:02", "10:03", None),
    ("moving", "10:02", None, "10:03", "10:05"), ("moving", "10:02", "10:04", "10:05", None),
    ("held", "10:04", None, "10:05", None),
]  # fmt: skip

FLOWS = [
    Flow(
        "1A", "the same event twice", "One row, as the event says", "Both copies give the same row",
        True, "upsert", BY_SEQ, [[event("moving", 10)] * 2], "state, seq", [("moving", 10)],
    ),
    Flow(
        "1B", "the same event again in a later run", "The row stays as it was", "Both copies give the same row",
        True, "upsert", BY_SEQ, [[event("moving", 10)], [event("moving", 10, partition=1)]], "state, seq",
        [("moving", 10)],
    ),
    Flow(
        "2A", "an older event arrives later", "The newer state stays", "`sequence_by` is the order, not the arrival",
        True, "upsert", BY_SEQ, LATE, "state, seq", [("moving", 12)],
    ),
    Flow(
        "2B", "an older event arrives later, into a history", "Both versions, in their order",
        "A late event becomes a version at its place", True, "history", VERSIONS, LATE, PERIODS,
        [("new", 10, 12), ("moving", 12, None)],
    ),
    Flow(
        "3A", "two states with one sequence, and nothing else to tell them apart",
        "It is defined which state wins, and the same one does however the records are read",
        "The record that is later in Kafka wins: a tie goes by topic, partition and offset. That is the source's order "
        "if it sends a key's changes to one partition, in their order and once",
        False, "upsert", BY_SEQ, TIED, "state", [("held",)], cuts=(1, 10),
    ),
    Flow(
        "3B", "two states with one sequence; a column that would order them isn't in `sequence_by`",
        "The later state stays", "As 3A. AUTO CDC came out right in that run, by an order that nothing promises",
        True, "upsert", BY_SEQ, TIED, "state", [("held",)],
    ),
    Flow(
        "3C", "the same with both columns in `sequence_by`", "The later state stays, although it arrives first",
        "`sequence_by: struct(happened, step)` orders by the first column, then by the second",
        True, "upsert", {**BY_SEQ, "sequence_by": "struct(happened, step)"},
        [[event("held", 10, step=2)], [event("moving", 10, partition=1)]], "state", [("held",)],
    ),
    Flow(
        "4A", "ordered by the time of arrival", "The state that happened last stays",
        "By design: `sequence_by: arrived` asks for the last to arrive. No tool can know that another clock was meant",
        False, "upsert", {**BY_SEQ, "sequence_by": "arrived"}, CLOCKS, "state", [("held",)], found=[("moving",)],
    ),
    Flow(
        "4B", "ordered by the time of the change", "The state that happened last stays",
        "`sequence_by: happened`", True, "upsert", BY_TIME, CLOCKS, "state", [("held",)],
    ),
    Flow(
        "5A", "an update has a null in a column that it doesn't mean to change", "The column keeps its value",
        "By design: a null is a value, unless the file says otherwise (5B)", False, "upsert", BY_SEQ, SPARSE,
        "depot, note", [("Oslo", "fragile")], found=[("Oslo", None)],
    ),
    Flow(
        "5B", "the same with `ignore_null_updates`", "The column keeps its value", "`ignore_null_updates: true`",
        True, "upsert", {**BY_SEQ, "ignore_null_updates": True}, SPARSE, "depot, note", [("Oslo", "fragile")],
        cuts=(2,),
    ),
    Flow(
        "6A", "a delete, then an older update", "The row stays deleted",
        "The delete is remembered for `tombstone_retention`", True, "upsert", BY_SEQ, DELETED, "state", [],
    ),
    Flow(
        "6B", "a delete, then an older update, into a history",
        "The late version stands between the older one and the delete, which ends it",
        "A version keeps the delete that ended it", True, "history", VERSIONS, DELETED, PERIODS,
        [("moving", 17, 18), ("held", 18, 20)],
    ),
    Flow(
        "7A", "a whole life, deleted at its end, sent a second time", "The row stays deleted",
        "No event is newer than the delete", True, "upsert", BY_SEQ, [LIFE, LIFE], "state", [],
    ),
    Flow(
        "7B", "a whole life sent a second time, into a history", "Each version once, with its period",
        "An event that comes again takes its own place", True, "history", VERSIONS, [LIFE, LIFE],
        f"depot, {PERIODS}",
        [("Riga", "new", 10, 20), ("Riga", "moving", 20, 30), ("Oslo", "moving", 30, 40), ("Riga", "held", 40, 50)],

    ),
    Flow(
        "8A", f"{NOISE} updates that change only the time of the last scan, into a history of all columns",
        "One version, as nothing of the parcel has changed",
        "By design: every column is tracked, unless the file says otherwise (8B)", False, "history", WITH_SCANS, SCANS,
        CLOCKED, [("moving", "10:00", None)],
        found=[
            ("moving", f"10:{minute:02}", f"10:{minute + 1:02}" if minute < NOISE else None)
            for minute in range(NOISE + 1)
        ],
        cuts=(7,),
    ),
    Flow(
        "8B", "the same with that column not tracked", "One version, as nothing of the parcel has changed",
        "`track_history_except_column_list: scanned`", True, "history",
        {**WITH_SCANS, "track_history_except_column_list": "scanned"}, SCANS, CLOCKED, [("moving", "10:00", None)],
        cuts=(7,),
    ),
    Flow(
        "9", "two times of each change: when it was valid, and when it became known",
        "Five rows, each with the period in which it was valid and the one in which it was believed",
        "`stored_as_scd_type: bitemporal` with `system_sequence_by: arrived`",
        True, "history", {**OF_TIMES, "stored_as_scd_type": "bitemporal", "system_sequence_by": "arrived"}, BELIEFS,
        KNOWN, KNOWN_LATER,
    ),
]  # fmt: skip


def pipelines() -> list[list[Flow]]:
    """The flows by pipeline: those with the same options share one."""
    found: dict[str, list[Flow]] = {}
    for flow in FLOWS:
        found.setdefault(repr((flow.kind, flow.sink, flow.cuts)), []).append(flow)
    return list(found.values())
