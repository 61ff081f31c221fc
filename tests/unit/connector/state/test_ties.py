"""Which of several rows of one record is the first, and the last: the monoids' own SQL, run in SQLite."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pytest
from spark_in_sqlite import STRUCTS, database, struct

from connector.state.values import First, Last


class _By:
    """Spark's ``min_by`` and ``max_by``."""

    larger: bool

    def __init__(self) -> None:
        self.best: tuple[Any, Any] | None = None

    def step(self, value: Any, rank: Any) -> None:
        # As Spark: of equals the later one.
        if rank is not None and (self.best is None or rank == self.best[0] or (rank > self.best[0]) is self.larger):
            self.best = rank, value

    def finalize(self) -> Any:
        return self.best and self.best[1]


class MinBy(_By):
    larger = False


class MaxBy(_By):
    larger = True


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    connection = database()
    connection.create_aggregate("min_by", 2, MinBy)
    connection.create_aggregate("max_by", 2, MaxBy)
    connection.create_function("map", -1, lambda *_: "")
    connection.create_function("to_json", 2, lambda blob, _: json.dumps(STRUCTS[blob]))
    yield connection
    connection.close()


def in_sqlite(sql: str) -> str:
    return re.sub(r"\((\w+)\)\.(at|value)", r"field(\1, '\2')", sql)


def state(value: str | None, offset: int = 7) -> bytes:
    return struct(at=struct(order=1, _topic="t", _partition=0, _offset=offset), value=value)


@pytest.mark.parametrize(("kind", "chosen"), [(First, "a"), (Last, "c")])
@pytest.mark.parametrize("several", [True, False])
def test_of_the_rows_of_one_record_the_same_counts_in_every_order(
    sqlite: sqlite3.Connection, kind: type[First], chosen: str, *, several: bool
) -> None:
    monoid = kind("x")
    monoid.several = several
    plus, total = in_sqlite(monoid.plus("l", "r")), in_sqlite(monoid.total("s"))

    def added(left: bytes | None, right: bytes | None) -> bytes | None:
        found: bytes | None = sqlite.execute(f"SELECT {plus} FROM (SELECT ? AS l, ? AS r)", [left, right]).fetchone()[0]
        return found

    def summed(states: Sequence[bytes | None]) -> bytes | None:
        rows = " UNION ALL ".join(["SELECT ? AS s"] * len(states))
        found: bytes | None = sqlite.execute(f"SELECT {total} FROM ({rows})", states).fetchone()[0]
        return found

    other = state("z", 8) if kind is First else state("", 6)
    states = [state("b"), state("a"), None, state("c"), other]
    orders = [*itertools.permutations(states)]
    seen = {*map(summed, orders), *(reduce(added, order) for order in orders)}
    assert state(chosen) in seen
    assert len(seen) == (1 if several else 3), "without it, the order of the rows decides"
