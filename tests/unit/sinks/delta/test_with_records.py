"""SQL over a small table names the partitions that it has records of, however many a position has: run in SQLite."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sinks.delta.dead_letters import DeadLetters
from sinks.delta.which_tombstones import ahead_sql, passed_sql
from sinks.delta.with_records import with_records
from sinks.offsets import OffsetRange, Offsets, TopicPartition

HOURS = [f"events-{hour:06}" for hour in range(100)]
POSITION = Offsets({TopicPartition(hour, partition): 5 for hour in HOURS for partition in range(3)})
records = st.lists(st.tuples(st.sampled_from([*HOURS[-3:], "new"]), st.integers(0, 3), st.integers(0, 9)), max_size=6)


class Table:
    """As a DeltaTable, as far as it is asked. It keeps its queries."""

    def __init__(self, *rows: tuple[str, int, int]) -> None:
        self.sql, self.label, self.spark = "t", "t", SimpleNamespace(sql=self._asked)
        self.rows, self.asked = sqlite3.connect(":memory:"), []  # type: ignore[var-annotated]
        self.rows.row_factory = sqlite3.Row
        self.rows.create_function("startswith", 2, lambda text, start: text and text.startswith(start))
        columns = "_topic, _partition, _offset, pipeline, _retry, _retried_epoch, _retried_at, _table"
        self.rows.execute(f"CREATE TABLE t ({columns})")
        for row in rows:
            self.rows.execute("INSERT INTO t VALUES (?, ?, ?, 'p', NULL, NULL, NULL, 'mine')", row)

    def _asked(self, sql: str) -> Any:
        self.asked.append(sql)
        return SimpleNamespace(collect=self.rows.execute(sql).fetchall)

    def exists(self) -> bool:
        return True

    def where(self, sql: str) -> list[tuple[Any, ...]]:
        found = self.rows.execute(f"SELECT _topic, _partition, _offset FROM t WHERE {sql} ORDER BY 1, 2, 3")
        return [tuple(row) for row in found]


class Letters(DeadLetters):
    def __init__(self, table: Any) -> None:
        super().__init__(table, pipeline="p", of=lambda: ["mine"])
        self._ready, self.longest = True, 0

    def _run(self, sql: str) -> int:
        self.longest = max(self.longest, len(sql))
        return self.table.rows.execute(  # type: ignore[attr-defined, no-any-return]
            sql.replace("current_timestamp()", "'now'").replace("7L", "7")
        ).rowcount

    def _count(self, where: str) -> int:
        return len(self.table.where(where))  # type: ignore[attr-defined]


@given(records)
def test_the_same_records_are_before_a_position_and_ahead_of_it(rows: list[tuple[str, int, int]]) -> None:
    table: Any = Table(*rows)
    part = with_records(POSITION, table)
    assert table.where(passed_sql(part)) == table.where(passed_sql(POSITION))
    assert table.where(ahead_sql(part)) == table.where(ahead_sql(POSITION))
    assert part.keys() == POSITION.keys() & {(topic, partition) for topic, partition, _ in rows}


def test_the_sql_grows_with_the_table_and_not_with_the_position() -> None:
    """After a year of topics of an hour, six partitions each, of which Kafka keeps two."""
    year = Offsets({TopicPartition(f"events-{hour:06}", part): 1000 for hour in range(8758) for part in range(6)})
    table: Any = Table(("events-008757", 3, 999))
    assert len(passed_sql(with_records(year, table))) < 100
    few = Offsets({TopicPartition("t", part): 1000 for part in range(200)})
    asked = len(table.asked)
    assert with_records(few, table) is few
    assert len(table.asked) == asked, "what is short needs no query"


@given(records, st.sets(st.integers(0, 9)))
def test_letters_are_closed_by_short_sql_as_by_long(rows: list[tuple[str, int, int]], lost: set[int]) -> None:
    unread = [OffsetRange(at.topic, at.partition, offset, offset + 1) for at in POSITION for offset in sorted(lost)]
    later = Offsets(dict.fromkeys(POSITION, 8))
    ahead = [row for row in rows if row[0] == "new" or row[1] == 3 or row[2] >= 5]
    closed = [row for row in ahead if row[0] != "new" and row[1] < 3 and row[2] < 8 and row[2] not in lost]
    table: Any = Table(*rows)
    letters = Letters(table)
    assert letters.mark_ahead("run", POSITION) == len(ahead)
    assert letters.close_ahead("run", later, 7, unread=unread) == len(closed)
    assert letters.marked_ahead("run", POSITION) == len(ahead) - len(closed)
    assert letters.longest < 8000
