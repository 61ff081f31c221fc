"""What an entry of the coordinator log says when it is read back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.engine import coordinator_log
from connector.engine.coordinator_log import Log, _row, _values, newest_first
from connector.protocol.decided import LogHeld, Row, State
from sinks.contract import Epoch, Position, Prepared
from sinks.delta.detail import Detail
from sinks.offsets import Offsets

STANDS = Position(4, Offsets.from_dict({"t": {"0": 7}}), owner="before")
EPOCH = Epoch.of_no_records(STANDS, pipeline="p", owner="me")


@pytest.mark.parametrize("tables", [["a"], []], ids=["a table", "no table"])
@pytest.mark.parametrize("to", [0, 2])
def test_a_rewind_stays_a_rewind_also_without_tables(tables: list[str], to: int) -> None:
    prepared = {name: Prepared.going_back(3, to, of_route=True) for name in tables}
    found = read_back(Row(State.DECIDED, EPOCH, "me", prepared, config="c", of_rewind=to))
    assert (found.back_to, found.prepared) == (to, prepared)


def test_an_epoch_without_tables_is_no_rewind() -> None:
    found = read_back(Row(State.DECIDED, EPOCH, "me", {}, config="c"))
    assert (found.back_to, found.prepared) == (None, {})


@given(st.lists(st.sampled_from(State), min_size=1, max_size=600))
def test_the_newest_entries_tell_what_all_of_them_do(states: list[State]) -> None:
    rows = [Row(state, replace(EPOCH, number=entry), "me") for entry, state in enumerate(states, start=1)]
    opened: list[int] = []

    def behind(entry: int, last: int) -> LogHeld:
        there = rows[entry:last]
        opened.append(len(there))
        decided = [row for row in there if row.state is State.DECIDED]
        return LogHeld(last, there[-1] if there else None, decided[-1] if decided else None)

    every = behind(0, len(rows))
    opened.clear()
    assert newest_first(len(rows), behind) == every
    ago = states[::-1].index(State.DECIDED) + 1 if State.DECIDED in states else len(rows)
    assert max(opened) <= max(16, 16 * ago), "however long the log is"
    assert len(opened) <= 3


def test_a_new_log_takes_removals_whatever_the_session_s_tables_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """`maintain` removes old entries."""
    monkeypatch.setattr(coordinator_log, "_schema", lambda: None)
    made: list[Any] = []
    run: Any = Log.__new__(Log)
    run._table = SimpleNamespace(detail=lambda: None, create=lambda columns, layout: made.append(layout.properties))
    run.create()
    assert made == [{"delta.appendOnly": "false"}]


@pytest.mark.parametrize("append_only", [False, True])
def test_a_log_that_takes_appends_only_keeps_its_entries_and_the_rest_is_maintained(
    append_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    statements: list[str] = []

    def sql(text: str) -> Any:
        statements.append(text.split()[0])
        return SimpleNamespace(first=lambda: [3], collect=lambda: [])

    run: Any = Log.__new__(Log)
    run._pipeline = "p"
    run._table = SimpleNamespace(
        spark=SimpleNamespace(sql=sql), sql="delta.`/log`", label="/log",
        detail=lambda: Detail("/log", {"delta.appendOnly": str(append_only).lower()}),
    )  # fmt: skip
    run.read = lambda: LogHeld(9, Row(State.DONE, EPOCH, "me"))
    removed = run.forget(datetime(2026, 1, 1, tzinfo=timezone.utc), rehearse=False)
    assert (removed, statements) == ((0, ["SELECT"]) if append_only else (3, ["SELECT", "DELETE"]))
    rehearsed = run.forget(datetime(2026, 1, 1, tzinfo=timezone.utc), rehearse=True)
    assert rehearsed == removed, "a rehearsal promises what is done"
    assert ("ALTER TABLE delta.`/log` SET TBLPROPERTIES ('delta.appendOnly' = 'false')" in caplog.text) == append_only


def read_back(row: Row) -> Row:
    values: dict[str, Any] = _values("p", 8, row)
    return _row({**values, "sinks": values["sinks"].items()})  # type: ignore[arg-type]
