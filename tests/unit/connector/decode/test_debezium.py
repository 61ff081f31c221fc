"""The position of a change in its database's log, as SQL of the pipeline and of the auditor, run in SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from connector.audit import debezium as auditor
from connector.decode import debezium as pipeline

BINLOG = ["file", "pos", "row"]


def positions(places: Sequence[tuple[str, int, int]]) -> list[str]:
    """Those of these events of MySQL, on which pipeline and auditor agree."""
    of_auditor = auditor._place(BINLOG)
    assert of_auditor is not None
    connection = sqlite3.connect(":memory:")
    for name, arguments, function in (
        ("concat", -1, lambda *texts: "".join(map(str, texts))),
        ("lpad", 3, lambda text, length, fill: str(text).rjust(length, fill)),
        ("repeat", 2, lambda text, times: text * times),
        ("substring_index", 3, lambda text, mark, _: text.rsplit(mark, 1)[-1]),
        ("regexp_extract", 3, lambda text, pattern, group: re.search(pattern, text)[group]),  # type: ignore[index]
    ):
        connection.create_function(name, arguments, function)
    connection.execute("CREATE TABLE at (file TEXT, pos INT, row INT)")
    connection.executemany("INSERT INTO at VALUES (?, ?, ?)", places)
    sqls = pipeline._position("at", set(BINLOG)), of_auditor
    found = connection.execute(f"SELECT {', '.join(sqls)} FROM at ORDER BY at.rowid").fetchall()
    assert all(ours == theirs for ours, theirs in found)
    return [ours for ours, _ in found]


def test_a_change_in_a_later_log_of_mysql_is_later_however_many_digits_its_number_has() -> None:
    logs = [1, 99, 10**5, 10**6 - 2, 10**6 - 1, 10**6, 10**6 + 1, 10**7 - 1, 10**7, 2**31 - 1]
    in_order = [(f"mysql-bin.{log:06}", pos, row) for log in logs for pos in (4, 10**9) for row in (0, 11)]
    found = positions(in_order)
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_positions_that_are_in_tables_stay() -> None:
    assert positions([("a.b.000007", 5, 1), ("binlog.7", 5, 1), ("mysql-bin.999999", 5, 0)]) == [
        f"{file}:00000000000000000005:{row:010}"
        for file, row in (("a.b.000007", 1), ("binlog.7", 1), ("mysql-bin.999999", 0))
    ]
