"""Which version a table goes back to."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from sinks.contract import Epoch, Position
from sinks.delta import taken_back
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit, Unwritten, find, lineage
from sinks.delta.restore import Target, before_event_time, before_offsets, of_epoch
from sinks.delta.taken_back import TakesBack, of_another
from sinks.errors import Fenced
from sinks.event_time import Clock, Seen
from sinks.offsets import Offsets, TopicPartition

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def commit(
    version: int,
    epoch: int,
    offsets: tuple[int, int],
    highs: tuple[int, int] | None,
    column: str | None = "t",
    retired: int | None = None,
) -> Commit:
    clock = Clock(column=column if highs is None else None)
    if highs:
        clock = Clock(
            so_far={place: Seen(NOON, at(high), at(high)) for place, high in zip((P0, P1), highs, strict=True)},
            column=column,
            retired=None if retired is None else at(retired),
        )
    metadata = CommitMetadata("p", Position(epoch, Offsets({P0: offsets[0], P1: offsets[1]}), owner="run", clock=clock))
    return Commit(version, NOON, "WRITE", {}, metadata.to_json())


def restore(version: int, to: int | None) -> Commit:
    return Commit(version, NOON, "RESTORE", {"version": None if to is None else str(to)}, None)


CREATE = Commit(0, NOON, "CREATE TABLE", {}, None)
HISTORY = [
    CREATE,
    commit(1, 1, (5, 5), (10, 12)),
    commit(2, 2, (9, 7), (20, 13)),
    Commit(3, NOON, "OPTIMIZE", {}, None),
    commit(4, 3, (12, 9), (21, 30)),
]


def where(found: Target | None) -> tuple[int, int, Mapping[TopicPartition, int]] | None:
    return found and (found.version, found.epoch, dict(found.stood.offsets) if found.stood else {})


def own(version: int, metadata: CommitMetadata) -> bool:
    return True


def led_to(history: list[Commit]) -> list[tuple[Commit, CommitMetadata]]:
    by_version = {commit.version: commit for commit in history}
    return list(lineage(max(by_version), by_version.get, pipeline="p"))


def test_back_to_the_newest_version_without_a_record_of_that_time() -> None:
    assert where(before_event_time(led_to(HISTORY), at(25), "t", own)) == (2, 2, {P0: 9, P1: 7})
    assert where(before_event_time(led_to(HISTORY), at(31), "t", own)) == (4, 3, {P0: 12, P1: 9})


def test_the_time_itself_is_read_again() -> None:
    assert where(before_event_time(led_to(HISTORY), at(20), "t", own)) == (1, 1, {P0: 5, P1: 5})


def test_back_to_before_the_first_epoch() -> None:
    assert where(before_event_time(led_to(HISTORY), at(0), "t", own)) == (0, 0, {})


def before_first(history: list[Commit]) -> Callable[[int], bool]:
    by_version = {commit.version: commit for commit in history}
    return lambda version: isinstance(find(version, by_version.get, own, pipeline="p"), Unwritten)


def began(made: Commit) -> Commit:
    """The same commit, of a pipeline that says where it began."""
    read = CommitMetadata.from_json(made.user_metadata, pipeline="p")
    assert read is not None
    metadata = replace(read, position=replace(read.position, since=Offsets({P0: 2, P1: 2})))
    return replace(made, user_metadata=metadata.to_json())


TAKEN_BACK = [CREATE, *map(began, HISTORY[1:3]), restore(3, 0)]
"""Epochs 1 and 2, and a RESTORE to before them."""


def test_back_to_before_the_first_epoch_a_second_time() -> None:
    history = [*TAKEN_BACK, began(commit(4, 3, (2, 2), None)), began(commit(5, 4, (5, 5), (10, 12)))]
    first = before_first(history)
    assert where(of_epoch(led_to(history), 0, own, first)) == (4, 0, {}), "the rewind's own epoch, of no records"
    assert where(before_event_time(led_to(history), at(0), "t", own, first)) == (4, 0, {})
    assert where(before_offsets(led_to(history), Offsets({P0: 1, P1: 2}), own, first)) == (4, 0, {})
    assert where(of_epoch(led_to(history), 4, own, first)) == (5, 4, {P0: 5, P1: 5})
    cleaned = led_to(history[4:])
    assert where(of_epoch(cleaned, 0, own, before_first(history[4:]))) == (4, 0, {})


def test_back_to_before_the_first_epoch_after_a_restore_by_hand() -> None:
    """The next epoch then has records and a higher number. Without the history before it nothing says so."""
    history = [*TAKEN_BACK, began(commit(4, 3, (5, 5), (10, 12)))]
    assert where(of_epoch(led_to(history), 0, own, before_first(history))) == (3, 0, {})
    assert of_epoch(led_to(history[2:]), 0, own, before_first(history[2:])) is None
    clone = [Commit(0, NOON, "CLONE", {"source": "s", "sourceVersion": "7"}, None), began(commit(1, 8, (9, 9), None))]
    assert of_epoch(led_to(clone), 0, own, before_first(clone)) is None, "the epochs before are its source's"


def test_a_cleaned_history_does_not_reach_back_that_far() -> None:
    assert before_event_time(led_to(HISTORY[2:]), at(0), "t", own) is None


def test_an_epoch_without_event_times_may_hold_anything() -> None:
    history = [CREATE, commit(1, 1, (5, 5), (10, 12)), commit(2, 2, (9, 7), None), commit(3, 3, (9, 8), (10, 12))]
    assert where(before_event_time(led_to(history[:3]), at(13), "t", own)) == (1, 1, {P0: 5, P1: 5})


def test_a_version_has_to_know_the_time_of_every_row_by_this_column() -> None:
    """Empty: ``event_time`` was added later, or was another column before."""
    for column in ("", "another"):
        history = [*HISTORY[:2], commit(2, 2, (9, 7), (20, 13), column)]
        assert where(before_event_time(led_to(history), at(25), "t", own)) == (1, 1, {P0: 5, P1: 5})
        assert before_event_time(led_to(history[2:]), at(25), "t", own) is None


def test_a_partition_that_gave_no_rows_is_no_doubt() -> None:
    clock = Clock(so_far={P0: Seen(NOON, at(10), at(10))}, column="t")
    metadata = CommitMetadata("p", Position(1, Offsets({P0: 5, P1: 5}), owner="run", clock=clock))
    history = [CREATE, Commit(1, NOON, "WRITE", {}, metadata.to_json())]
    assert where(before_event_time(led_to(history), at(11), "t", own)) == (1, 1, {P0: 5, P1: 5})
    history[1] = replace(history[1], user_metadata=unsaid(metadata).to_json())
    assert where(before_event_time(led_to(history), at(11), "t", own)) == (0, 0, {}), "an earlier version's commit"


def unsaid(metadata: CommitMetadata) -> CommitMetadata:
    return replace(metadata, position=replace(metadata.position, clock=replace(metadata.position.clock, column=None)))


def test_a_commit_of_an_earlier_version_counts_if_it_has_times_of_all_partitions() -> None:
    history = [CREATE, commit(1, 1, (5, 5), (10, 12), None), commit(2, 2, (9, 7), (20, 13), None)]
    assert where(before_event_time(led_to(history), at(20), "t", own)) == (1, 1, {P0: 5, P1: 5})


def test_the_rows_of_a_topic_that_retired_keep_their_times() -> None:
    history = [*HISTORY[:2], commit(2, 2, (9, 7), (20, 13), retired=40)]
    assert where(before_event_time(led_to(history), at(35), "t", own)) == (1, 1, {P0: 5, P1: 5})
    assert where(before_event_time(led_to(history), at(41), "t", own)) == (2, 2, {P0: 9, P1: 7})


def test_by_offsets_no_partition_is_behind() -> None:
    assert where(before_offsets(led_to(HISTORY), Offsets({P0: 11, P1: 9}), own)) == (2, 2, {P0: 9, P1: 7})
    assert where(before_offsets(led_to(HISTORY), Offsets({P0: 11, P1: 6}), own)) == (1, 1, {P0: 5, P1: 5})
    assert where(before_offsets(led_to(HISTORY), Offsets({P0: 1, P1: 6}), own)) == (0, 0, {})


def test_by_offsets_topics_that_are_not_read_any_more_do_not_count() -> None:
    assert where(before_offsets(led_to(HISTORY), Offsets({P0: 10}), own)) == (2, 2, {P0: 9, P1: 7})


def test_the_lineage_follows_a_restore_and_leaves_out_what_it_undid() -> None:
    history = [*HISTORY, restore(5, 2), commit(6, 4, (10, 8), (22, 14))]
    assert [metadata.epoch for _, metadata in led_to(history)] == [4, 2, 1]
    assert [metadata.epoch for _, metadata in led_to([*HISTORY, restore(5, None)])] == []


def test_a_stale_copy_of_the_metadata_is_no_commit_of_the_pipeline() -> None:
    copy = Commit(5, NOON, "UPDATE", {}, HISTORY[2].user_metadata)
    found = before_event_time(led_to([*HISTORY, copy]), at(25), "t", lambda version, _: version != 5)
    assert where(found) == (2, 2, {P0: 9, P1: 7})


def test_a_table_goes_back_to_no_version_with_an_epoch_after_the_goal() -> None:
    assert of_another(8, 5, 5, goal=5) is None
    assert of_another(8, 3, 3, goal=5) is None, "epochs passed it by"
    assert of_another(8, None, None, goal=5) is None, "it got its first rows later"
    assert of_another(8, 4, None, goal=5) is None, "rows that a rewind before took back, or none"
    assert "is of epoch 6" in str(of_another(8, 6, 5, goal=5))
    assert "isn't in its history any more" in str(of_another(8, None, 5, goal=5))
    assert "holds epoch 8 already" in str(of_another(8, 8, None, goal=5))
    assert "holds epoch 1 already" in str(of_another(8, 1, None, goal=0))


@pytest.mark.parametrize("stands", [(3, "run"), (4, "rewind"), (5, "run")])
def test_deletes_are_forgotten_before_the_commit_and_never_those_of_a_later_epoch(
    stands: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletes are those of before the question where the table stands."""
    steps: list[str] = []
    number, owner = stands

    def says(step: str, result: Any = None) -> Any:
        return lambda *_, **__: (steps.append(step), result)[1]

    nothing = SimpleNamespace(where=lambda _: nothing, select=lambda *_: nothing)
    spark = SimpleNamespace(table=lambda _: nothing)
    table: Any = SimpleNamespace(
        detail=lambda: True, label="t", forget=lambda: None, sql="t", schema=SimpleNamespace(names=[]), spark=spark
    )
    at = Position(number, Offsets({P0: 5}), owner=owner, restored_to=2)
    commits: Any = SimpleNamespace(position=says("ask", at), topics=["t"])
    left = SimpleNamespace(delete=says("forget"))
    tombstones: Any = SimpleNamespace(left_over=says("look", left), went_back=says("bring back"))
    monkeypatch.setattr(taken_back, "restore", says("restore"))
    monkeypatch.setattr(taken_back, "DeltaAppend", lambda *_: SimpleNamespace(write=says("commit")))
    rewind = Epoch("p", 4, "rewind", (), Offsets({P0: 2}), {}, None, at, Offsets())
    back = TakesBack(table, commits, [], tombstones)
    if number == 5:
        with pytest.raises(Fenced):
            back.take(rewind, 1, goal=2)
    else:
        back.take(rewind, 1, goal=2)
    whole = ["look", "ask", "restore", "forget", "ask", "bring back", "commit"]
    assert steps == (whole if number == 3 else whole[:2])


@pytest.mark.parametrize(("goal", "back_to"), [(8, 8), (5, 5), (None, 5), (0, 5)])
def test_what_was_forgotten_up_to_the_goal_stays_forgotten_in_a_table_that_it_passed_by(
    goal: int | None, back_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry forgets the deletes of its letters in all tables, also in those that get no row of it."""
    went: list[tuple[int, int]] = []
    nothing = SimpleNamespace(where=lambda _: nothing, select=lambda *_: nothing)
    table: Any = SimpleNamespace(
        detail=lambda: True, label="t", forget=lambda: None, sql="t", schema=SimpleNamespace(names=[]),
        spark=SimpleNamespace(table=lambda _: nothing),
    )  # fmt: skip
    at = Position(9, Offsets({P0: 5}), owner="run", restored_to=5)
    commits: Any = SimpleNamespace(position=lambda: at, topics=["t"])
    tombstones: Any = SimpleNamespace(
        left_over=lambda *_: None, went_back=lambda _, restored_to, number: went.append((restored_to, number))
    )
    monkeypatch.setattr(taken_back, "restore", lambda *_, **__: None)
    monkeypatch.setattr(taken_back, "DeltaAppend", lambda *_: SimpleNamespace(write=lambda *_: None))
    rewind = Epoch("p", 10, "rewind", (), Offsets({P0: 5}), {}, None, at, Offsets())
    TakesBack(table, commits, [], tombstones).take(rewind, 1, goal=goal)
    assert went == [(back_to, 10)]
