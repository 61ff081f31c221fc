"""What a bitemporal history is, in plain Python: the history at each recorded time, put together to rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from another_engine import query

Row = tuple[Any, ...]
"""key, a, b, start, end, recorded, until, partition, offset."""


@dataclass(frozen=True)
class Change:
    """One record. ``a`` and ``b`` are the value; ``op``: u, d (a row that says delete) or t (a tombstone)."""

    key: str
    seq: int
    recorded: int
    partition: int
    offset: int
    op: str = "u"
    a: int | None = 0
    b: int | None = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Of events with one sequence the last by this counts."""
        return self.recorded, self.partition, self.offset


def history_at(changes: Iterable[Change], recorded: int) -> list[Row]:
    """The history (SCD type 2) of one key's changes that are on record at a time, without that time."""
    latest: dict[int, Change] = {}
    for change in changes:
        held = latest.get(change.seq)
        if change.recorded <= recorded and (held is None or change.order > held.order):
            latest[change.seq] = change
    versions: list[list[Any]] = []
    open_ = False
    for seq, change in sorted(latest.items()):
        if open_ and change.op == "u" and tuple(versions[-1][1:3]) == (change.a, change.b):
            continue
        if open_:
            versions[-1][4] = seq
        open_ = change.op == "u"
        if open_:
            versions.append([change.key, change.a, change.b, seq, None, change.partition, change.offset])
    return [tuple(version) for version in versions]


def rows_of(changes: Iterable[Change]) -> list[Row]:
    """The rows of a table, without those that are valid for no time."""
    of_key: dict[str, list[Change]] = {}
    for change in changes:
        of_key.setdefault(change.key, []).append(change)
    found: list[Row] = []
    for own in of_key.values():
        since: dict[Row, int] = {}
        for time in sorted({change.recorded for change in own}):
            now = history_at(own, time)
            found += [(*row[:5], since[row], time, *row[5:]) for row in since if row not in now]
            since = {row: since.get(row, time) for row in now}
        found += [(*row[:5], at, None, *row[5:]) for row, at in since.items()]
    return sorted(found, key=repr)


def logs_of(seed: int, partitions: int = 2, *, number: int = 150, keys: int = 12) -> list[list[Change]]:
    """Per partition its log: keys with ties, corrections, deletes and unchanged values, late in either time."""
    random = Random(seed)
    logs: list[list[Change]] = [[] for _ in range(partitions)]
    for _ in range(number):
        partition = random.randrange(partitions)
        log, key = logs[partition], random.randrange(keys)
        a, b = random.choices([None, 0, 1], k=2)
        times = random.randrange(6), random.randrange(6)
        # Offsets have gaps. Some keys have deletes only.
        op = random.choice("dt" if key < 2 else "uuuudt")
        log.append(Change(f"k{key}", *times, partition, 2 * len(log), op, a, b))
    return logs


def shuffled(random: Random, changes: Sequence[Change]) -> list[Change]:
    """The same in another order."""
    return random.sample(changes, len(changes))


SCHEMA = "k STRING, a INT, b INT, seq INT, sys INT, op STRING"
ROWS = (
    'k, a, b, "__START_AT", "__END_AT", "__SYSTEM_START_AT", "__SYSTEM_END_AT", _partition, _offset FROM t '
    'WHERE "__SYSTEM_END_AT" IS NULL OR "__SYSTEM_END_AT" > "__SYSTEM_START_AT"'
)


def options(**changes: Any) -> dict[str, Any]:
    """Those of a pipeline for the records below."""
    sink = {
        "key": "k", "stored_as_scd_type": "bitemporal", "sequence_by": "seq", "system_sequence_by": "sys",
        "apply_as_deletes": "op = 'd'", "column_list": ["k", "a", "b"], **changes.pop("sink", {}),
    }  # fmt: skip
    return {"schema": SCHEMA, "sink": sink, **changes}


def record(change: Change) -> tuple[str, dict[str, Any]]:
    """As a topic has it. A tombstone has no sequence, so it is a delete that says so."""
    op = "d" if change.op == "t" else change.op
    values = {"a": change.a, "b": change.b, "seq": change.seq, "sys": change.recorded}
    return change.key, {"k": change.key, **values, "op": op}


def as_sent(logs: Sequence[Sequence[Change]]) -> list[Change]:
    """The changes of these logs with the offsets that Kafka gives them."""
    return [replace(change, offset=offset) for log in logs for offset, change in enumerate(log)]


def rows_in(table: Path) -> list[Row]:
    """The rows of a table, without those that are valid for no time, by another engine."""
    return sorted(map(tuple, query(table, f"SELECT {ROWS}")), key=repr)
