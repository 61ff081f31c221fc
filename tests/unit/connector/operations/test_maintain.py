"""What `maintain` leaves alone, without a table."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import parse
from connector.operations import maintain as maintaining
from connector.operations.maintain import Maintained, maintain, needs_old_files
from connector.protocol.decided import Row, State
from sinks.contract import Epoch
from sinks.delta import maintenance
from sinks.delta.maintenance import Upkeep
from sinks.offsets import Offsets

OPTIONS: dict[str, Any] = {
    "name": "p",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "value": {"format": "string"},
    "sinks": [{"type": "delta_append", "path": "lake/t"}],
}
CONFIG = parse(OPTIONS)


def row(state: State = State.DECIDED, *, batch: str = "", back_to: int | None = None) -> Row:
    epoch = Epoch("p", 7, "me", (), Offsets(), {}, None, None, batch=batch)
    return Row(state, epoch, "me", of_rewind=back_to)


@pytest.mark.parametrize(
    ("in_doubt", "needed_by"),
    [
        (None, None),
        (row(), None),
        (row(back_to=3), 7),
        (row(back_to=0), 7),
        (row(batch="dead letters/5"), 7),
        (row(State.BEGUN, batch="dead letters/5"), None),
    ],
)
def test_what_the_recovery_of_an_epoch_reads_is_left(in_doubt: Row | None, needed_by: int | None) -> None:
    assert needs_old_files(in_doubt) == needed_by


def test_the_page_names_the_epoch_and_the_way_on() -> None:
    shown = str(Maintained(CONFIG, [Upkeep("t", 1, 1, 0, 0, None, needed_by=7)], dry_run=False))
    assert "epoch 7 is in doubt" in shown
    assert "lakelock recover" in shown


@pytest.mark.parametrize("fault", ["its files are gone", "it can't be looked at"])
def test_a_table_that_cannot_be_maintained_keeps_no_other_from_it(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ValueError(fault)

    def table(_: Any, *, path: str | None, name: str | None) -> Any:
        label = str(path or name).rpartition("/")[2]

        def exists() -> bool:
            if label == "b" and fault == "it can't be looked at":
                raise broken
            return True

        return SimpleNamespace(label=label, location="", exists=exists)

    def upkeep(table: Any, **_: Any) -> Any:
        if table.label == "b":
            raise broken
        return Upkeep(table.label, 1, 1, 0, 0, 0)

    beside = SimpleNamespace(label="beside", exists=lambda: False)
    monkeypatch.setattr(maintaining, "given_or_new", lambda *_, **__: nullcontext())
    monkeypatch.setattr(maintaining, "_log", lambda *_: None)
    monkeypatch.setattr(maintaining, "DeltaTable", table)
    monkeypatch.setattr(maintaining, "Tombstones", lambda *_: SimpleNamespace(table=beside, aside=beside))
    monkeypatch.setattr(maintaining, "ChangeLog", lambda *_, **__: SimpleNamespace(table=beside))
    monkeypatch.setattr(maintaining, "require_conditional_writes", lambda *_: None)
    monkeypatch.setattr(maintaining, "upkeep", upkeep)
    sinks = [{"type": "delta_append", "path": f"/{name}"} for name in "abc"]
    config = parse({**OPTIONS, "sinks": sinks, "coordinator": {"path": "/log"}})
    done = maintain(config)
    assert [each.table for each in done if isinstance(each, Upkeep)] == ["a", "c"]
    assert done.failed == {"b": broken}
    assert "b couldn't be maintained" in str(done)
    with caplog.at_level(logging.WARNING, "lakelock.pipeline"), pytest.raises(ValueError, match=fault):
        done.whole()
    assert [record.getMessage() for record in caplog.records] == [f"'b' couldn't be maintained: {fault}"]


@pytest.mark.parametrize(("doubts", "unused", "needs"), [([None, None], 5, None), ([7], None, 7), ([None, 7], None, 7)])
def test_whether_an_epoch_needs_old_files_is_asked_right_before_they_are_removed(
    doubts: list[int | None], unused: int | None, needs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of a route take hours, and a rewind may be decided and killed meanwhile."""
    did: list[str] = []

    def sql(text: str) -> Any:
        did.append(text)
        return SimpleNamespace(count=lambda: 5, collect=list)

    monkeypatch.setattr(maintenance, "_files", lambda _: (9, 100, 0))
    detail = SimpleNamespace(file_retention=timedelta(days=7))
    table: Any = SimpleNamespace(label="t", sql="t", detail=lambda: detail, spark=SimpleNamespace(sql=sql))
    done = maintenance.upkeep(table, rehearse=False, needed_by=lambda: doubts.pop(0))
    assert (done.unused, done.needed_by) == (unused, needs)
    assert ("VACUUM t" in did) is (unused is not None)


def test_a_table_that_is_not_vacuumed_needs_nobodys_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_files", lambda _: (9, 100, 0))
    table: Any = SimpleNamespace(label="t", detail=lambda: None)
    done = maintenance.upkeep(table, rehearse=False, vacuum=False, needed_by=lambda: pytest.fail("nothing is removed"))
    assert done.unused is None
