"""The position of a change in its database's log, as SQL of the pipeline and of the auditor, run in SQLite."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence

import pytest

from connector.audit import debezium as auditor
from connector.decode.source_position import position

Event = tuple[str, int, str | None, object, object]
"""The op, the row, its value, and the two fields of the source."""
BINLOG, LSNS = ["file", "pos", "row"], ["commit_lsn", "change_lsn", "event_serial_no"]
LSN, SCN = ["lsn", "sequence"], ["scn", "commit_scn"]


def positions(fields: Sequence[str], events: Sequence[tuple[object, ...]], op: str = "u") -> list[str]:
    """Those of these events' sources, on which pipeline and auditor agree."""
    of_auditor = auditor._place(fields, f"'{op}'")
    assert of_auditor is not None
    connection = sqlite3.connect(":memory:")
    for name, arguments, function in (
        ("concat", -1, lambda *texts: None if None in texts else "".join(map(str, texts))),
        ("lpad", 3, lambda text, length, fill: None if text is None else str(text).rjust(length, fill)),
        ("repeat", 2, lambda text, times: text * times),
        ("overlay", 4, lambda text, put, at, taken: text[: at - 1] + put + text[at - 1 + taken :]),
        ("substring_index", 3, lambda text, mark, _: text.rsplit(mark, 1)[-1]),
        ("regexp_extract", 3, extracted),
        ("greatest", -1, lambda *texts: max((text for text in texts if text is not None), default=None)),
        ("from_json", 2, lambda text, _: text),
        ("get", 2, lambda array, at: None if array is None else json.loads(array)[at]),
        ("translate", 3, lambda text, gone, _: None if text is None else text.translate(dict.fromkeys(map(ord, gone)))),
    ):
        connection.create_function(name, arguments, function)
    connection.execute(f"CREATE TABLE at ({', '.join(fields)})")
    connection.executemany(f"INSERT INTO at VALUES ({', '.join('?' * len(fields))})", events)
    of_pipeline = position("event", fields).replace("event.source.", "at.").replace("event.op", f"'{op}'")
    found = connection.execute(f"SELECT {of_pipeline}, {of_auditor} FROM at ORDER BY at.rowid").fetchall()
    assert all(ours == theirs for ours, theirs in found)
    return [ours for ours, _ in found]


def extracted(text: str | None, pattern: str, group: int) -> str | None:
    found = re.search(pattern, text) if text is not None else None
    return found[group] if found else "" if text is not None else None


def test_a_change_in_a_later_log_of_mysql_is_later_however_many_digits_its_number_has() -> None:
    logs = [1, 99, 10**5, 10**6 - 2, 10**6 - 1, 10**6, 10**6 + 1, 10**7 - 1, 10**7, 2**31 - 1]
    found = positions(BINLOG, [(f"mysql-bin.{log:06}", pos, 0) for log in logs for pos in (4, 99, 10**9)])
    assert found == sorted(found)
    assert len(set(found)) == len(found)


FILES = ["a.b.000007", "binlog.7", "mysql-bin.999999"]


def test_what_a_snapshot_has_read_keeps_the_position_that_is_in_tables() -> None:
    assert positions(BINLOG, [(file, 5, 0) for file in FILES], "r") == [f"{file}:{5:020}:{0:010}" for file in FILES]


def test_a_change_of_mysql_is_behind_what_tables_have_of_its_place() -> None:
    """An earlier version told rows of one event apart by their number in it."""
    for file, found in zip(FILES, positions(BINLOG, [(file, 5, 1) for file in FILES]), strict=True):
        assert f"{file}:{5:020}:{0:010}" < f"{file}:{5:020}:{10**10 - 1}" < found < f"{file}:{6:020}:{0:010}"


def test_a_change_without_a_place_in_the_log_of_mariadb_has_no_position() -> None:
    """MariaDB from 11.4 leaves 0 for the end of an event, and Debezium takes its length from that."""
    assert positions(BINLOG, [("mariadb-bin.000002", pos, 0) for pos in (-57, -1)]) == [None, None]
    assert None not in positions(BINLOG, [("mariadb-bin.000002", 0, 0), ("mariadb-bin.000002", 4, None)])


@pytest.mark.parametrize("kind", ["each event", "each transaction"])
@pytest.mark.parametrize("upgraded", [False, True])
def test_the_newest_position_in_a_binlog_is_that_of_the_last_change(kind: str, upgraded: bool) -> None:
    """``kind``: what has a place of its own. An event may change a row twice, and rows count anew in each event.

    Also where an earlier version has placed the first events, and stopped amid a transaction. It may have left a row
    wrong that none of the later events changes.
    """
    for seed in range(60):
        draw, rows = random.Random(seed), dict.fromkeys(range(4), "old")
        events, end = [("r", number, "old", 500, 0) for number in rows], 500
        for _ in range(12):
            place, end = end, end + 42
            for _ in range(draw.randrange(1, 4)):
                for row in range(draw.randrange(1, 5)):
                    number, value = draw.randrange(4), f"{end}:{row}"
                    gone = number in rows and draw.random() < 0.3
                    rows.pop(number) if gone else rows.__setitem__(number, value)
                    at = end if kind == "each event" else place
                    events.append(("d" if gone else "u", number, value, at, row))
                end += 60
        events += events[draw.randrange(len(events)) :]  # Debezium sends them again
        cut = draw.randrange(len(events)) if upgraded else 0
        newest: dict[int, tuple[str, int]] = {}
        sources = [("binlog.000001", place, row) for *_, place, row in events]
        read, changed = positions(BINLOG, sources, "r"), positions(BINLOG, sources)
        for at, (op, number, _, place, row) in enumerate(events):
            found = read[at] if op == "r" else changed[at]
            earlier = f"binlog.000001:{place:020}:{row:010}"
            newest[number] = max(newest.get(number, ("", 0)), (earlier if at < cut else found, at))
        right = {number for _, number, *_ in events[cut:]} if kind == "each transaction" else set(range(4))
        last = {number: events[newest[number][1]] for number in right}
        assert {number: value for number, (op, _, value, *_) in last.items() if op != "d"} == {
            number: value for number, value in rows.items() if number in right
        }


def test_a_later_change_of_informix_is_later_however_many_digits_its_number_has() -> None:
    numbers = [0, 7, 23 * 2**32, 24 * 2**32, 627404540485812, 10**15, 2**63 - 1]
    found = positions(LSNS, [(str(commit), str(change), None) for commit in numbers for change in numbers])
    assert found == sorted(found)
    assert len(set(found)) == len(numbers) ** 2
    assert found[0] > "627404540760620:627404540485812:"  # as a table may have it


COMMIT, CHANGE = "00000027:00000758:0005", "00000027:00000758:0003"


def test_what_a_snapshot_of_sql_server_has_read_and_a_change_of_db2_keep_their_position() -> None:
    read = positions(LSNS, [(COMMIT, CHANGE, 1), (COMMIT, None, None)], "r")
    assert read == [f"{COMMIT}:{CHANGE}:0000000001", f"{COMMIT}::"]
    assert positions(LSNS[:2], [(COMMIT, CHANGE)]) == positions(LSNS, [(COMMIT, CHANGE, None)]) == [
        f"{COMMIT}:{CHANGE}:"
    ]  # fmt: skip


def test_changes_of_one_commit_of_sql_server_follow_each_other_as_in_kafka() -> None:
    """An update that moves a row in a unique index is a delete and an insert, which may come first in the log. Debezium
    sends them by the number of their statement, which events don't have."""
    deleted, inserted = positions(LSNS, [(COMMIT, "00000027:00000758:0004", 1), (COMMIT, CHANGE, 1)])
    assert deleted == inserted
    for old in (*positions(LSNS, [(COMMIT, None, None)], "r"), f"{COMMIT}:00000027:00000758:ffff:9999999999"):
        assert old < inserted, "what tables have of this commit, and what a snapshot has read"
    (later,) = positions(LSNS, [("00000027:00000758:0006", CHANGE, 1)])
    assert inserted < f"00000027:00000758:0006:{CHANGE}:0000000001" < later


def test_what_a_snapshot_reads_is_older_than_what_was_open_then() -> None:
    """The change is before the snapshot in the log, and its transaction is committed behind it."""
    (old,) = positions(LSN, [(200, '[null,"200"]')], "r")
    assert old < min(positions(LSN, [(150, '["200","150"]'), (150, '["210","150"]')]))
    (old,) = positions(SCN, [("200", None)], "r")
    assert old < min(positions(SCN, [("150", "250")]))


def test_a_change_that_no_commit_has_overtaken_has_the_position_that_is_in_tables() -> None:
    told = [None, '[null,"150"]', '["149","150"]', "[null,null]"]
    assert positions(LSN, [(150, each) for each in told]) == [f"{150:020}"] * 4
    assert positions(LSN, [(150, each) for each in told], "r") == positions(["lsn"], [(150,)]) * 4
    assert positions(SCN, [("150", None), ("150", "149"), ("150", "null")]) == [f"{150:020}"] * 3


def test_an_incremental_snapshot_of_postgresql_has_a_position_without_an_lsn() -> None:
    told = ['["140","150"]', '["150","150"]', '[null,"150"]', "[null,null]", None]
    assert positions(LSN, [(None, each) for each in told], "r") == [*[f"{150:020}"] * 3, None, None]


class Database:
    """Transactions that lock the rows they change, and the events that Debezium makes of them, commit by commit.

    ``kind``: postgresql, whose events have the place of the last commit before their transaction; oracle, with the
    commit of their own; or rac: before 3.2 of Debezium, the last one of the same thread of redo.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self._random, self._end = kind, random.Random(seed), 1000
        self._open: list[list[tuple[int, int, str | None]]] = []
        self._last: list[int | None] = [None, None]
        self.rows: dict[int, str] = {}

    def events(self, steps: int, *, snapshots_of_open: bool = True) -> Iterator[Event]:
        for _ in range(steps):
            step = self._random.choice(["begin", "change", "change", "change", "commit", "snapshot", "chunk"])
            if step == "begin" and len(self._open) < 3:
                self._open.append([])
            elif step == "change" and self._open:
                self._change(self._random.choice(self._open))
            elif step == "commit" and self._open:
                yield from self._commit(self._open.pop(self._random.randrange(len(self._open))))
            elif step in ("snapshot", "chunk") and (snapshots_of_open or not self._open):
                yield from self._snapshot() if step == "snapshot" else self._chunk()
        for transaction in self._open:
            yield from self._commit(transaction)
        self._open = []

    def _change(self, transaction: list[tuple[int, int, str | None]]) -> None:
        locked = {row for other in self._open if other is not transaction for row, _, _ in other}
        free = [row for row in range(6) if row not in locked]
        if free:
            transaction.append((self._random.choice(free), self._end, self._random.choice([None, f"at {self._end}"])))
            self._end += self._random.choice([0 if self.kind == "oracle" else 1, 1, 7])

    def _commit(self, transaction: list[tuple[int, int, str | None]], thread: int | None = None) -> Iterator[Event]:
        thread = 0 if self.kind == "postgresql" else self._random.randrange(2) if thread is None else thread
        before, self._end = self._last[thread], self._end + self._random.choice([1, 9])
        self._last[thread] = commit = self._end
        if self.kind == "rac":
            self._end += 1
        for number, (row, place, value) in enumerate(transaction, start=1):
            self.rows.pop(row, None) if value is None else self.rows.__setitem__(row, value)
            last = number == len(transaction) and self.kind == "rac"
            told = commit if last or self.kind == "oracle" else before
            yield "d" if value is None else "u", row, value, place, told

    def _snapshot(self) -> Iterator[Event]:
        place, self._end = self._end, self._end + 1
        yield from self._read(place, None)
        self._none_changed(0, 1)

    def _chunk(self) -> Iterator[Event]:
        """Of an incremental snapshot: within the transaction that signals its end, or behind it."""
        place, before, self._end = self._end, self._last[0], self._end + 1
        self._none_changed(0)
        if self.kind == "postgresql":
            yield from self._read(None, self._random.choice([(before, place), (self._last[0], self._last[0])]))
        else:
            yield from self._read(place, self._last[0])
        if self.kind == "rac":
            self._none_changed(0, 1)

    def _read(self, place: int | None, told: object) -> Iterator[Event]:
        for row, value in self.rows.items():
            yield "r", row, value, place, told

    def _none_changed(self, *threads: int) -> None:
        """A transaction that changes no row commits. Nothing tells that the next one commits behind a snapshot."""
        for thread in threads:
            list(self._commit([], thread))


def placed(kind: str, events: Sequence[Event], *, earlier: bool) -> list[str | None]:
    """``earlier``: as the versions before had it, by the change's own place."""
    found: list[str | None] = []
    for op, _, _, place, told in events:
        if kind == "postgresql":
            parts = told if isinstance(told, tuple) else (told, place)
            sequence = json.dumps([part and str(part) for part in parts], separators=(",", ":"))
            fields, source = (["lsn"], (place,)) if earlier else (LSN, (place, sequence))
        else:
            fields, source = (["scn"], (str(place),)) if earlier else (SCN, (str(place), told and str(told)))
        found += positions(fields, [source], op)
    return found


@pytest.mark.parametrize("kind", ["postgresql", "oracle", "rac"])
@pytest.mark.parametrize("upgraded", [False, True])
def test_the_newest_position_of_a_row_is_that_of_its_last_change(kind: str, upgraded: bool) -> None:
    """Also where the positions of the first events are in a table as an earlier version made them, and where Debezium
    sends the last events again."""
    for seed in range(40):
        database, draw = Database(kind, seed), random.Random(seed)
        first = list(database.events(20, snapshots_of_open=False)) if upgraded else []
        events = list(database.events(30))
        events += [*first, *events][draw.randrange(len(first) + len(events) + 1) :]
        found = [*placed(kind, first, earlier=True), *placed(kind, events, earlier=False)]
        newest: dict[int, tuple[str, int, str | None]] = {}
        for number, (place, event) in enumerate(zip(found, [*first, *events], strict=True)):
            if place is not None:
                newest[event[1]] = max(newest.get(event[1], ("", 0, None)), (place, number, event[2]))
        assert {row: value for row, (_, _, value) in newest.items() if value is not None} == database.rows
