"""Which change log counts: that of this very table, as long as the table has what the log knows as folded."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.audit.claim import Metadata
from connector.audit.on_read import OnRead
from sinks.contract import Committed, Epoch, Folded, Position
from sinks.delta import merge_on_read
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.metadata import CommitMetadata
from sinks.delta.standing import Standing
from sinks.errors import PositionMismatch
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


def position(epoch: int, table: str = "", folded: Folded | None = None) -> Position:
    return Position(epoch, Offsets({AT: epoch}), owner="r", version=epoch, table=table, folded=folded)


def audited(table: Position, log: Position) -> bool:
    def of(stands: Position) -> Metadata:
        return Metadata(stands.epoch, stands.epoch, {}, {}, {}, (), "transactional", stands.table, stands.folded)

    beside: Any = SimpleNamespace(
        metadata=lambda *_: (None, of(log)), newest=0, restored_after=lambda _: False, replaced_after=lambda _: False
    )
    it: Any = SimpleNamespace(change_log=lambda: beside, restored_after=lambda _: False)
    return OnRead.of(it, it.change_log(), "p", of(table)).counts


CASES = {
    "its own": (position(150, "a"), Folded("a", 140), True),
    "folded as far as the log knows": (position(150, "a"), Folded("a", 150), True),
    "of a table that lay here before": (position(1, "b"), Folded("a", 1), False),
    "the table was set back": (position(150, "a"), Folded("a", 180), False),
    "of an earlier version": (position(150, "a"), None, True),
    "the platform tells no id": (position(150, "a"), Folded("", 140), True),
    "it told none then": (position(150), Folded("a", 140), True),
}


@pytest.mark.parametrize(("table", "folded", "counts"), CASES.values(), ids=CASES)
def test_a_log_counts_for_its_own_table_which_has_what_the_log_knows_as_folded(
    table: Position, folded: Folded | None, counts: bool
) -> None:
    log = position(200, "log", folded)
    standing = Standing(table, log)
    assert standing.goes_on is counts
    assert audited(table, log) is counts
    stands = standing.position
    assert stands is not None
    assert stands.offsets == (log if counts else table).offsets
    assert stands.epoch == 200, "the log's numbers are taken"
    assert (standing.unfolded, standing.given_up) == ((200 - table.epoch, 0) if counts else (0, 200 - table.epoch))


@given(st.lists(st.sampled_from(["append", "fold", "clean", "back", "on_write", "undo"]), max_size=30), st.data())
def test_a_log_that_counts_has_every_epoch_that_the_table_lacks(steps: list[str], data: st.DataObject) -> None:
    """Whatever the order of appends, folds and cleanings, and whichever backup the table's files are set back to."""
    backups, table, seen = [1], 1, 1
    log, newest, emptied = 1, Folded("a", 1), 1
    for step in steps:
        counts = Standing(position(table, "a"), position(log, "log", newest)).goes_on
        if step == "append":
            if counts:
                seen = data.draw(st.integers(seen, table))  # a fold beside the run may not be seen yet
                log, newest = log + 1, Folded("a", seen)
            else:
                table = log = max(log, table) + 1
                newest, emptied, seen = Folded("a", table), table, table
        elif step == "fold" and counts:
            table = log
        elif step == "clean" and counts:
            emptied = max(emptied, min(data.draw(st.sampled_from([*backups, table])), newest.epoch))
        elif step == "on_write":  # a run of another configuration closes the log, and merges an epoch
            if counts or log >= table:
                log += counts
                table = max(log, table) + 2
            if newest.epoch < log or counts:
                log, newest = log + 1, Folded("a", table)
                emptied = log
            table += 1
        elif step == "undo" and counts and log > table:  # the log's last epoch: what was before it is folded
            table = log + 2
            if data.draw(st.booleans()):  # else the run is killed before it empties the log
                log, newest = log + 1, Folded("a", table)
                emptied = log
            assert not Standing(position(table, "a"), position(log, "log", newest)).goes_on
        elif step == "back":
            table = data.draw(st.sampled_from(backups))
            # Before its next append a run looks at the table, and stops where the log doesn't count.
            seen = min(seen, table)
        backups.append(table)
        if Standing(position(table, "a"), position(log, "log", newest)).goes_on:
            assert emptied <= table


def test_a_fold_between_the_two_looks_is_no_table_that_was_set_back() -> None:
    tables = [position(5, "a"), position(8, "a")]
    it: Any = SimpleNamespace(spark=None, position=lambda: tables.pop(0) if len(tables) > 1 else tables[0])
    log: Any = SimpleNamespace(looked_for=nullcontext, position=lambda: position(9, "log", Folded("a", 8)))
    standing = MergeOnRead(it, it, log, it, it, pipeline="p").standing()
    assert (standing.goes_on, standing.unfolded) == (True, 1)
    tables[:] = [position(5, "a")]
    assert not MergeOnRead(it, it, log, it, it, pipeline="p").standing().goes_on


def test_an_epoch_is_taken_out_of_a_log_by_a_fold_of_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_on_read, "range_of", lambda changes, key: "")
    stands = {"table": position(3, "a"), "log": position(7, "log", Folded("a", 3))}
    read: list[tuple[int, int]] = []

    def write(epoch: Epoch, rows: object, *, within: str) -> Committed:
        assert epoch.expected == stands["table"]
        stands["table"] = replace(position(epoch.number, "a"), offsets=epoch.offsets)
        return Committed(stands["table"], 1)

    def empty(epoch: Epoch, folded: Folded) -> None:
        assert epoch.expected == stands["log"]
        stands["log"] = replace(position(epoch.number, "log", folded), offsets=epoch.offsets)

    def rows_sql(after: int, until: int) -> str:
        read.append((after, until))
        return "changes"

    it: Any = SimpleNamespace(
        spark=SimpleNamespace(sql=lambda _: None), position=lambda: stands["table"], live_view=None, lineage=list
    )
    log: Any = SimpleNamespace(
        looked_for=nullcontext,
        position=lambda: stands["log"],
        rows_sql=rows_sql,
        empty=empty,
        started_with=lambda: (None, ""),
    )
    kept: Any = SimpleNamespace(
        table=SimpleNamespace(write=write), reduce=SimpleNamespace(of=lambda rows: rows), key=("k",)
    )
    reading = MergeOnRead(it, it, log, it, lambda *_: kept, pipeline="p")
    epoch = Epoch.of_no_records(position(6), pipeline="p", owner="r")
    with pytest.raises(PositionMismatch, match="Another run has gone on"):
        reading.take_back(replace(epoch, owner="another"))
    reading.take_back(epoch)
    assert read == [(3, 6)], "all but the epoch itself"
    standing = reading.standing()
    assert not standing.goes_on
    assert standing.position is not None
    assert (standing.position.offsets, standing.given_up) == (position(6).offsets, 0)
    assert standing.position.epoch > 8, "above every number that the log has taken"
    with pytest.raises(PositionMismatch):
        reading.take_back(epoch)


def test_what_a_log_says_of_its_table_is_in_its_commits() -> None:
    epoch = replace(Epoch.that_left(position(3), pipeline="p"), expected=None)
    for folded in (Folded("id", 2), Folded("", 0), None):
        written = CommitMetadata.of(epoch, "log", folded)
        assert CommitMetadata.from_json(written.to_json(), pipeline="p") == written
