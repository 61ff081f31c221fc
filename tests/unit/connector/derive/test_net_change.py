"""The net change of a key, by the query's own text in SQLite, against a plain statement."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from spark_in_sqlite import STRUCTS, database

from connector.derive.net_change import net_of
from sinks.delta.upsert_rule import DELETED_BY, UpsertRule

COLUMNS = ("k", "v", "_topic", "_partition", "_offset", "_timestamp", "_delete", "_truncate", "_sequence")
OLD, NEW = "#id/t", "t"


class MaxBy:
    """Spark's ``max_by``."""

    def __init__(self) -> None:
        self.best: tuple[Any, Any] | None = None

    def step(self, value: Any, rank: Any) -> None:
        if self.best is None or rank > self.best[0]:
            self.best = rank, value

    def finalize(self) -> Any:
        return self.best and self.best[1]


@dataclass(frozen=True)
class Change:
    topic: str
    partition: int
    offset: int
    deletes: bool = False

    @property
    def row(self) -> tuple[object, ...]:
        value = None if self.deletes else str(self)
        return (1, value, self.topic, self.partition, self.offset, 0, self.deletes, False, self.offset)


def in_sqlite(sql: str) -> str:
    def named(match: re.Match[str]) -> str:
        names = [name.strip(" `") for name in match[1].split(",")]
        return "named_struct(" + ", ".join(f"'{name}', `{name}`" for name in names) + ")"

    sql = re.sub(r"(?<!named_)struct\(([^()]*)\)", named, sql)
    return re.sub(r"\b(latest|deleted|first|last)\.`?(\w+)`?", r"field(\1, '\2')", sql)


def net(changes: Sequence[Change], **rule: bool) -> dict[str, Any]:
    """The net change of the one key."""
    connection = database()
    connection.create_aggregate("max_by", 2, MaxBy)
    connection.execute(f"CREATE TABLE changes ({', '.join(COLUMNS)})")
    marks = ", ".join("?" * len(COLUMNS))
    connection.executemany(f"INSERT INTO changes VALUES ({marks})", [change.row for change in changes])
    columns = [name for name in COLUMNS if name != "_sequence" or rule.get("sequenced")]
    reduction = net_of(columns, UpsertRule(("k",), **rule))
    values = ", ".join(f"{sql} AS `{name}`" for name, sql in {**reduction.groups, **reduction.aggregates}.items())
    grouped = f"SELECT {values} FROM changes GROUP BY {', '.join(reduction.groups.values())}"
    (row,) = connection.execute(in_sqlite(f"SELECT {reduction.row} FROM ({grouped})")).fetchone()
    return dict(STRUCTS[row])


def test_letters_of_a_deleted_topic_are_older_than_all_of_the_new_one() -> None:
    """Whatever partitions and offsets they have."""
    new = [Change(NEW, 0, offset, deletes) for offset in (2, 4) for deletes in (False, True)]
    old = [Change(OLD, partition, offset, deletes) for partition in (0, 1) for offset in (1, 9) for deletes in (0, 1)]
    for some in itertools.chain(itertools.product(new, old), itertools.product(old, new)):
        order = sorted(some, key=lambda change: (change.topic, change.offset))
        updates, deletes = ([each for each in order if each.deletes == which] for which in (False, True))
        found = net(some)
        assert found["v"] == (str(updates[-1]) if updates else None)
        place = {"topic": deletes[-1].topic, "partition": deletes[-1].partition} if deletes else None
        deleted = STRUCTS[found[DELETED_BY]] if found[DELETED_BY] else None
        assert place == (deleted and {name: deleted[name] for name in place or ()})


@pytest.mark.parametrize("topic", [NEW, OLD])
def test_a_key_in_two_partitions_of_a_topic_fails_the_query(topic: str) -> None:
    assert net([Change(topic, 1, 4), Change(topic, 1, 7)])["_offset"] == 7
    with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
        net([Change(topic, 0, 4), Change(topic, 1, 7)])
    if topic == NEW:
        with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
            net([Change(topic, 0, 4), Change(OLD, 0, 4), Change(topic, 1, 7)])


def test_a_sequence_of_offsets_is_no_order_across_partitions() -> None:
    moved, stays = [Change(NEW, 0, 4), Change(NEW, 1, 3)], [Change(NEW, 1, 4), Change(NEW, 1, 3)]
    assert net(moved, sequenced=True)["_offset"] == net(stays, sequenced=True, by_offset=True)["_offset"] == 4
    with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
        net(moved, sequenced=True, by_offset=True)
