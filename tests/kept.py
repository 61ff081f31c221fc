"""Changes that lack values, as those of a database that sends a large value only if it changes, and what a table holds
after them, in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from conftest import Topic

COLUMNS = ("a", "b")
KEYS = [f"k{number}" for number in range(40)]
"""Each has a sequence of its own: an epoch costs the same for one key as for forty."""
Row = dict[str, str | None]


@dataclass(frozen=True)
class Change:
    """``op``: u (created or updated), d (deleted), t (all rows deleted). ``values`` has no entry for a column that
    wasn't sent; None is a null that was."""

    key: str
    op: str
    values: Mapping[str, str | None]
    seq: int
    partition: int
    offset: int

    def order(self, *, sequenced: bool) -> tuple[int, ...]:
        return (self.seq, self.partition, self.offset) if sequenced else (self.offset,)


def rows_of(changes: Iterable[Change], *, sequenced: bool) -> dict[str, tuple[str | None, ...]]:
    """The rows of an upsert: the changes, applied one after the other."""
    rows: dict[str, Row] = {}
    for change in sorted(set_of(changes), key=lambda change: change.order(sequenced=sequenced)):
        if change.op == "t":
            rows.clear()
        elif change.op == "d":
            rows.pop(change.key, None)
        else:
            rows[change.key] = {**dict.fromkeys(COLUMNS), **rows.get(change.key, {}), **change.values}
    return {key: tuple(row[name] for name in COLUMNS) for key, row in rows.items()}


def versions_of(changes: Iterable[Change], *, sequenced: bool, tracked: Sequence[str]) -> list[tuple[Any, ...]]:
    """The versions of a history: key, a, b, start, end."""
    last: dict[tuple[str, int], Change] = {}
    every = sorted(set_of(changes), key=lambda change: (change.partition, change.offset))
    for change in (change for change in every if change.op != "t"):
        last[change.key, change.seq if sequenced else change.offset] = change
    for truncate in (change for change in every if change.op == "t"):
        for key in {key for key, _ in last}:
            last.setdefault((key, truncate.seq), truncate)
    rows: dict[str, Row] = {}
    current: dict[str, list[Any]] = {}
    versions: list[list[Any]] = []
    for (key, at), change in sorted(last.items()):
        before = rows.pop(key, None)
        if change.op == "u":
            rows[key] = {**dict.fromkeys(COLUMNS), **(before or {}), **change.values}
            if before is not None and all(rows[key][name] == before[name] for name in tracked):
                current[key][1:3] = (rows[key][name] for name in COLUMNS)
                continue
        if before is not None:
            current[key][4] = at
        if change.op == "u":
            current[key] = [key, *(rows[key][name] for name in COLUMNS), at, None]
            versions.append(current[key])
    return sorted(map(tuple, versions), key=repr)


def set_of(changes: Iterable[Change]) -> Iterable[Change]:
    return {(change.partition, change.offset): change for change in changes}.values()


def drawn(seed: int, *, sequenced: bool, truncates: bool = False, count: int = 240) -> list[list[Change]]:
    """Epochs of changes: each partition is read at its own pace, and some of it again.

    With a sequence the changes of a key are in any partition, in any order, and some have the same sequence.
    """
    random = Random(seed)
    logs: list[list[Change]] = [[], [], []]
    for number in range(count):
        key = random.choice(KEYS)
        partition = random.randrange(3) if sequenced else KEYS.index(key) % 3
        op = random.choice("uuuuud")
        values = {name: random.choice("xyz") for name in COLUMNS if random.random() < 0.6}
        values = {name: None if random.random() < 0.25 else value for name, value in values.items()}
        if truncates and number in (count // 3, count // 2):
            op = "t"
        log = logs[partition]
        log.append(Change(key, op, values if op == "u" else {}, random.randrange(25), partition, len(log)))
    at, epochs = [0, 0, 0], []
    for last in (False, False, False, True):
        epoch: list[Change] = []
        for number, log in enumerate(logs):
            end = len(log) if last else random.randint(at[number], min(len(log), at[number] + count // 8))
            epoch += log[max(0, at[number] - random.choice([0, 0, 5])) : end]
            at[number] = end
        random.shuffle(epoch)
        epochs.append(epoch)
    return epochs


GONE = "__debezium_unavailable_value"
AS_SENT = {"doc": GONE, "photo": f'{{"{GONE}":"{GONE}"}}'}
"""What stands for a value that is left as it was: a text's, and that of an hstore in JSON."""
SCHEMA = "id INT, doc STRING, photo STRING, n INT"
Message = tuple[int, dict[str, Any] | None]


class Database:
    """A table with large columns, and what Debezium tells of its changes: key and event, in order."""

    def __init__(self, seed: int, keys: int = 30) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._random, self._keys, self._lsn = Random(seed), keys, 0

    def changes(self, count: int) -> list[Message]:
        return [message for _ in range(count) for message in self._change()]

    def _change(self) -> list[Message]:
        key, random = self._random.randrange(self._keys), self._random
        row = self.rows.get(key)
        if row is not None and random.random() < 0.2:
            del self.rows[key]
            return [(key, self._event("d", {**row, "doc": GONE})), (key, None)]
        large = {name: random.choice([None, f"{name}{random.randrange(99)}"]) for name in ("doc", "photo")}
        left = [name for name in large if row is not None and random.random() < 0.5]
        new = {"id": key, **large, **{name: row[name] for name in left if row is not None}, "n": random.randrange(9)}
        self.rows[key] = new
        return [(key, self._event("u" if row else "c", {**new, **{name: AS_SENT[name] for name in left}}))]

    def _event(self, op: str, row: dict[str, Any]) -> dict[str, Any]:
        self._lsn += 1
        return {
            "before" if op == "d" else "after": row,
            "op": op,
            "ts_ms": 1,
            "source": {"connector": "postgresql", "lsn": self._lsn},
        }

    @property
    def held(self) -> dict[int, tuple[Any, ...]]:
        return {key: (row["doc"], row["photo"], row["n"]) for key, row in self.rows.items()}


def send(topic: Topic, messages: list[Message], random: Random | None = None) -> None:
    """``random``: to partitions and in an order that say nothing. Else in order, a key to one partition."""
    messages = random.sample(messages, len(messages)) if random else messages
    chosen = random.choices(range(2), k=len(messages)) if random else [key % 2 for key, _ in messages]
    for partition in range(2):
        some = (message for message, at in zip(messages, chosen, strict=True) if at == partition)
        topic.send(*((json.dumps({"id": key}), event) for key, event in some), partition=partition)


def keeping(unavailable: str = "keep", **sink: Any) -> dict[str, Any]:
    value = {"format": "debezium", "schema": SCHEMA, "unavailable": unavailable}
    return {"value": value, "sink": {"key": "id", **sink}, "epoch": {"max_records": 60}}
