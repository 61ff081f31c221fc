"""A run that was replaced leaves no deletes behind, and no dead letters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine.dead_letters import UnlessReplaced
from sinks.contract import Committed, Epoch, Position
from sinks.delta import commit as commits_module
from sinks.delta import history, upsert
from sinks.delta.commit import PipelineCommits
from sinks.delta.fence import fenced, refuse_replaced_by
from sinks.delta.history import DeltaHistory
from sinks.delta.metadata import CommitMetadata
from sinks.delta.noted import forgotten_if_fenced
from sinks.delta.position import Commit
from sinks.delta.upsert import Deletes, DeltaUpsert
from sinks.delta.upsert_rule import UpsertRule
from sinks.delta.version_columns import VersionColumns
from sinks.errors import CommitSkipped, CommitUnknown, Fenced, KeyMoved, PositionMismatch, TableReplaced
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
STOOD = Position(10, Offsets({AT: 70}), version=4)
EPOCH = Epoch("p", 11, "me", (), Offsets({AT: 80}), {}, None, STOOD, Offsets())
FENCED = fenced(EPOCH, "lake/t", owner="other", number=11)


def upserting(monkeypatch: pytest.MonkeyPatch, steps: list[str], *, already: Callable[[], Committed | None]) -> Any:
    """An upsert of one delete into a table that has tombstones already; ``already``: what others have committed."""

    def says(step: str, result: Any = None) -> Any:
        return lambda *_, **__: (steps.append(step), result)[1]

    def asked(_: Epoch) -> Committed | None:
        steps.append("ask")
        return already()

    @contextmanager
    def gives(what: Any) -> Any:
        yield what

    monkeypatch.setattr(upsert, "pruning", lambda *_: gives(("changes", "")))
    monkeypatch.setattr(upsert, "once_kept", lambda changes, _: gives(changes))
    monkeypatch.setattr(upsert, "merge_epoch", says("commit"))
    monkeypatch.setattr(upsert.Merges, "deletes", lambda *_: Deletes(added=1, truncates=False, newest_truncate=None))
    monkeypatch.setattr(upsert.Merges, "beside", lambda *_: ("source", SimpleNamespace(command=lambda *_: "")))
    monkeypatch.setattr(upsert.Merges, "keyed", lambda _, rows: rows)
    monkeypatch.setattr(upsert.Merges, "stored", lambda *_: "stored")
    monkeypatch.setattr(upsert.Merges, "_deletes_of", lambda *_: "deletes")
    tombstones = SimpleNamespace(
        expire_now_and_then=lambda *_: None,
        add=lambda _, by=None: steps.append(f"note by {by}"),
        forget_noted=lambda by: steps.append(f"forget {by}"),
    )
    monkeypatch.setattr(upsert, "Tombstones", lambda *_: tombstones)
    table: Any = SimpleNamespace(label="t")
    commits: Any = SimpleNamespace(already=asked, label="t", stands=lambda _: False, find=lambda _: None)
    rule = UpsertRule(("k",), sequenced=True)
    return DeltaUpsert(table, commits, rule=rule)


def test_a_run_that_was_replaced_notes_no_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def replaced() -> None:
        raise FENCED

    sink = upserting(monkeypatch, steps, already=replaced)
    with pytest.raises(Fenced):
        sink.write(EPOCH, "rows")
    assert [step for step in steps if step.startswith(("note", "commit"))] == []


def test_what_it_has_noted_before_the_other_was_sooner_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def replaced_after_the_note() -> None:
        if any(step.startswith("note") for step in steps):
            raise FENCED

    sink = upserting(monkeypatch, steps, already=replaced_after_the_note)
    with pytest.raises(Fenced):
        sink.write(EPOCH, "rows")
    assert steps == ["ask", "note by me/11", "ask", "forget me/11"]


@pytest.mark.parametrize("sooner", ["before its plan", "amid its write"])
def test_a_history_forgets_the_deletes_that_a_replaced_run_has_noted(
    sooner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    @contextmanager
    def pruned(*_: object) -> Any:
        yield "events", ""

    @contextmanager
    def again(events: Any, _: str) -> Any:
        yield events

    def fences(*_: object) -> None:
        raise FENCED

    def changed(versions: Any, *_: object, epoch: Epoch, **__: object) -> None:
        steps.append(f"note by {epoch.owner}/{epoch.number}")

    monkeypatch.setattr(history, "pruning", pruned)
    monkeypatch.setattr(history, "once_kept", again)
    monkeypatch.setattr(history, "merge_sql", lambda *_: "")
    monkeypatch.setattr(history, "merge_epoch", lambda *_: steps.append("merge"))
    monkeypatch.setattr(history._Versions, "changed", changed)
    forgets = SimpleNamespace(forget_noted=lambda by: steps.append(f"forget {by}"))
    monkeypatch.setattr(history, "Tombstones", lambda *_: forgets)
    commits: Any = SimpleNamespace(
        already=fences if sooner == "before its plan" else lambda _: None,
        find=lambda _: None,
        refuse_another=fences,
        stands=lambda _: False,
    )
    table: Any = SimpleNamespace(label="t", sql="t")
    sink = DeltaHistory(table, commits, columns=VersionColumns(("k",), ("n",), ()))
    rows: Any = SimpleNamespace(schema=None)
    with pytest.raises(Fenced):
        sink.write(EPOCH, rows)
    written = [] if sooner == "before its plan" else ["note by me/11", "merge"]
    assert steps == [*written, "forget me/11"]


@pytest.mark.parametrize(
    ("error", "forgets"),
    [
        (FENCED, True),
        (CommitSkipped("a higher number is taken"), True),
        (CommitUnknown("it may stand"), False),
        (PositionMismatch("a RESTORE: the next run tidies up"), False),
        (TableReplaced("the epoch may have been committed before"), False),
        (KeyMoved("the next run reads its records again"), False),
    ],
)
@pytest.mark.parametrize("stands", [False, True])
def test_only_notes_of_an_epoch_that_never_will_be_committed_are_forgotten(
    error: Exception, forgets: bool, stands: bool
) -> None:
    forgotten: list[str] = []
    tombstones: Any = SimpleNamespace(forget_noted=forgotten.append)
    commits: Any = SimpleNamespace(stands=lambda _: stands)
    with pytest.raises(type(error)), forgotten_if_fenced(tombstones, commits, EPOCH):
        raise error
    assert forgotten == (["me/11"] if forgets and not stands else [])


def test_that_the_notes_can_not_be_removed_does_not_hide_that_the_run_was_replaced() -> None:
    def fails(_: object) -> bool:
        raise OSError("no answer")

    tombstones: Any = SimpleNamespace(forget_noted=fails)
    for stands in (fails, lambda _: False):
        commits: Any = SimpleNamespace(stands=stands)
        with pytest.raises(Fenced), forgotten_if_fenced(tombstones, commits, EPOCH):
            raise FENCED


def test_an_epoch_stands_also_where_another_run_has_gone_on_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

    def epoch(version: int, number: int, owner: str) -> Commit:
        position = Position(number, Offsets({AT: number}), owner=owner)
        return Commit(version, noon, "MERGE", {}, CommitMetadata("p", position).to_json())

    history: list[Commit] = []
    monkeypatch.setattr(
        commits_module,
        "PastCommits",
        lambda _: SimpleNamespace(after=lambda base: [each for each in history if each.version > base][::-1]),
    )
    table: Any = SimpleNamespace(log=SimpleNamespace(holds_txn=lambda *_: True), was_missing=False)
    commits = PipelineCommits(table, pipeline="p", topics=())
    history[:] = [epoch(5, 11, "other")]
    assert not commits.stands(EPOCH)
    history[:] = [epoch(4, 11, "me"), epoch(5, 12, "other")]
    assert not commits.stands(EPOCH), "before its plan: of another time"
    history[:] = [Commit(5, noon, "OPTIMIZE", {}, None), epoch(6, 11, "me"), epoch(7, 12, "other")]
    assert commits.stands(EPOCH)


@pytest.mark.parametrize(
    ("stands", "refused"),
    [
        (None, False),
        (Position(10, Offsets(), owner="other"), False),
        (Position(11, Offsets(), owner="me"), False),
        (Position(11, Offsets(), owner="other"), True),
        (Position(12, Offsets(), owner="other"), True),
    ],
)
def test_a_run_that_was_replaced_stores_no_dead_letter(stands: Position | None, refused: bool) -> None:
    added: list[Epoch] = []
    place: Any = SimpleNamespace(add=lambda _, epoch: added.append(epoch))
    guarded = UnlessReplaced(place, lambda epoch: refuse_replaced_by(stands, epoch, "t"))
    letters: Any = None
    if refused:
        with pytest.raises(Fenced, match="run other has committed epoch"):
            guarded.add(letters, EPOCH)
    else:
        guarded.add(letters, EPOCH)
    assert added == ([] if refused else [EPOCH])
