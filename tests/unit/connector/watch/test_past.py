"""The epochs that commits tell of, without a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from connector.engine.coordinator_log import Entry
from connector.operations.history import of_commits, of_entries, without_copies
from connector.operations.merged_history import merged
from connector.protocol.decided import Row, State
from sinks.contract import Epoch, Position, Prepared
from sinks.delta.delta_log import written
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit, Written
from sinks.delta.restore import BY_REWIND
from sinks.offsets import OffsetRange, Offsets, TopicPartition

START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def offsets(next_: int, topic: str = "t") -> Offsets:
    return Offsets({TopicPartition(topic, 0): next_})


def ours(version: int, epoch: int, next_: int, owner: str = "run-a", **changes: Any) -> Commit:
    metadata = CommitMetadata("p", Position(epoch, offsets(next_), owner=owner, **{"since": offsets(0), **changes}))
    return Commit(version, START + timedelta(seconds=10 * version), "WRITE", {}, metadata.to_json(), Written(rows=5))


def other(version: int, operation: str, /, **parameters: str) -> Commit:
    return Commit(version, START + timedelta(seconds=10 * version), operation, parameters, None)


CREATED = other(0, "CREATE TABLE")


def test_an_epoch_is_what_its_commit_adds_to_the_one_before() -> None:
    second, first = of_commits([ours(3, 2, 30), other(2, "OPTIMIZE"), ours(1, 1, 10), CREATED], "p", "lake/t")
    assert (first.number, first.records, first.rows, first.since_last) == (1, 10, 5, None)
    assert (second.records, second.since_last, second.commits) == (20, 20.0, {"lake/t": "version 3"})
    assert second.ranges == (OffsetRange("t", 0, 10, 30),)
    assert (first.notes, second.notes) == ((), ())


def test_where_the_history_was_cut_it_is_not_guessed_what_the_oldest_epoch_read() -> None:
    assert [each.records for each in of_commits([ours(8, 5, 50), ours(7, 4, 40)], "p", "t")] == [10, None]


def test_after_a_restore_epochs_go_on_from_what_was_restored() -> None:
    commits = [ours(4, 3, 25), other(3, "RESTORE", version="1"), ours(2, 2, 20), ours(1, 1, 10), CREATED]
    third, second, first = of_commits(commits, "p", "t")
    assert (third.records, third.notes) == (15, ("the table was restored before it, in version 3",))
    assert (second.state, second.notes) == ("taken back", ("taken back by the RESTORE of version 3",))
    assert first.state == "committed"


def test_epochs_that_a_restore_of_a_restore_brought_back_are_committed() -> None:
    began = [CREATED, ours(1, 1, 10), ours(2, 2, 20), other(3, "RESTORE", version="1")]

    def states(*more: Commit) -> list[str]:
        return [each.state for each in of_commits([*began, *more], "p", "t")]

    assert states() == ["taken back", "committed"]
    again = other(4, "RESTORE", version="2")
    assert states(again) == ["committed", "committed"]
    assert states(again, ours(5, 3, 30)) == ["committed", "committed", "committed"]
    third, *_ = of_commits([*began, again, ours(5, 3, 30)], "p", "t")
    assert third.ranges == (OffsetRange("t", 0, 20, 30),)
    # Also where what was restored is itself a RESTORE, and what came between is undone.
    assert states(ours(4, 3, 15), other(5, "RESTORE", version="3")) == ["taken back", "taken back", "committed"]


def test_after_a_clone_and_a_restore_to_a_time_nobody_knows_which_epochs_are_left() -> None:
    for over, how in (
        (other(3, "CLONE", source="s", sourceVersion="7"), "the clone in version 3"),
        (other(3, "RESTORE", timestamp="2026-11-01"), "the RESTORE of version 3"),
    ):
        commits = [CREATED, ours(1, 1, 10), ours(2, 2, 20), over, ours(4, 8, 80)]
        newest, *older = of_commits(commits, "p", "t")
        assert (newest.state, newest.ranges, newest.records) == ("committed", None, None)
        assert [(each.state, each.notes) for each in older] == [
            ("committed", (f"{how} may have taken it back",)), ("committed", (f"{how} may have taken it back",))
        ]  # fmt: skip
    back = [CREATED, ours(1, 1, 10), other(2, "CLONE"), ours(3, 4, 40), other(4, "RESTORE", version="1")]
    assert [each.state for each in of_commits(back, "p", "t")] == ["taken back", "committed"]
    (first_of_clone,) = of_commits([other(0, "CLONE"), ours(1, 4, 40)], "p", "t")
    assert (first_of_clone.state, len(first_of_clone.notes)) == ("committed", 1)


def test_a_rewind_is_told_as_one() -> None:
    restore = replace(other(3, "RESTORE", version="1"), user_metadata=BY_REWIND)
    commits = [ours(4, 3, 10), restore, ours(2, 2, 20), ours(1, 1, 10), CREATED]
    third, second, _ = of_commits(without_copies(commits, lambda version: version in (1, 2, 4)), "p", "t")
    assert third.notes == ("the table was rewound before it, in version 3",)
    assert (second.state, second.notes) == ("taken back", ("taken back by the rewind of version 3",))


def test_a_copy_of_our_metadata_in_a_commit_of_somebody_else_is_no_epoch() -> None:
    commits = without_copies([ours(2, 1, 10), ours(1, 1, 10), CREATED], lambda version: version == 1)
    found = of_commits(commits, "p", "t")
    assert [each.commits for each in found] == [{"t": "version 1"}]


def test_a_table_merged_on_read_has_versions_of_its_own_and_shows_what_a_restore_has_undone() -> None:
    """Epoch 1 is merged into the table, 2 to 5 are in the log, 3 is where the fold was. Then back to epoch 1."""
    log = [
        CREATED, replace(ours(1, 1, 10), parameters={"mode": "Overwrite"}), ours(2, 2, 20), ours(3, 3, 30),
        ours(4, 4, 40), ours(5, 5, 50),
    ]  # fmt: skip
    table = [CREATED, ours(1, 1, 10), other(2, "OPTIMIZE"), ours(3, 3, 30, owner="folds")]

    def told(table: list[Commit], log: list[Commit]) -> list[tuple[Any, ...]]:
        history = merged(table, log, "p")
        found = of_commits(history.commits, "p", "t", history.names)
        return [(each.number, each.state, each.records, each.commits["t"]) for each in found]

    first = (1, "committed", 10, "version 1")
    assert told(table, log) == [
        (5, "committed", 10, "change log"), (4, "committed", 10, "change log"), (3, "committed", 10, "version 3"),
        (2, "committed", 10, "change log"), first,
    ]  # fmt: skip
    assert told([CREATED, ours(1, 1, 10)], []) == [first]
    undone = [
        (5, "taken back", 10, "change log"), (4, "taken back", 10, "change log"), (3, "taken back", 10, "version 3"),
        (2, "taken back", 10, "change log"), first,
    ]  # fmt: skip
    restored = [*table, other(4, "RESTORE", version="2")]
    assert told(restored, log) == undone
    goes_on = [*restored, ours(5, 6, 15)]
    started = [*log, replace(ours(6, 6, 15), parameters={"mode": "Overwrite"}), ours(7, 7, 25)]
    assert told(goes_on, started) == [
        (7, "committed", 10, "change log"), (6, "committed", 5, "version 5"), *undone,
    ]  # fmt: skip
    history = merged(goes_on, started, "p")
    notes = {each.number: each.notes for each in of_commits(history.commits, "p", "t", history.names)}
    assert notes[6] == ("the table was restored before it, in version 4",)
    assert notes[5] == ("taken back by the RESTORE of version 4",)


def test_a_restore_to_a_version_that_the_history_lacks_undoes_all_that_it_shows() -> None:
    history = merged([ours(8, 5, 50), other(9, "RESTORE", version="3")], [ours(20, 6, 60)], "p")
    found = of_commits(history.commits, "p", "t", history.names)
    assert [(each.number, each.state) for each in found] == [(6, "taken back"), (5, "taken back")]


def test_what_is_unusual_is_said() -> None:
    gap = OffsetRange("t", 0, 10, 15)
    commits = [
        CREATED,
        ours(1, 1, 10),
        ours(2, 2, 20, lost=(gap,)),
        ours(3, 3, 30, owner="run-b", lost=(gap,), delivery="idempotent"),
        ours(4, 5, 40, batch="query/7", lost=(gap,), delivery="idempotent"),
    ]
    fifth, third, second, _ = of_commits(commits, "p", "t")
    assert (second.lost, third.lost) == ((gap,), ())
    assert third.notes == ("delivery changed from transactional to idempotent",)
    assert fifth.notes == (
        "epoch numbers from 4 to 4 have no commit",
        "run run-a goes on after another run's epoch: two were active",
        "batch query/7 of a streaming query",
    )


def entry(number: int, state: State, epoch: int, run: str = "run-a", **row: Any) -> Entry:
    of = Epoch("both", epoch, "run-a", (OffsetRange("t", 0, 0, 8),), offsets(8), {}, None, None)
    return Entry(number, Row(state, of, run, **row), START + timedelta(seconds=number))


def test_an_epoch_of_several_sinks_has_the_commit_of_each_and_says_who_finished_it() -> None:
    (found,) = of_entries(
        [
            entry(1, State.BEGUN, 1),
            entry(2, State.DECIDED, 1, prepared={"a": Prepared(3, "", {}), "b": Prepared(4, "", {})}),
            entry(3, State.DONE, 1, "run-b", reads={"a": {"version": 7}, "b": {"ends": {"out": {"0": 9}}}}),
        ]
    )
    assert (found.state, found.records, found.rows, found.took) == ("done", 8, 7, 2.0)
    assert found.phases == {"prepare": 1.0, "commit": 1.0}
    assert found.commits == {"a": "version 7", "b": "transaction, up to out-0: 9"}
    assert found.notes == ("finished by run run-b, after a crash",)


def test_a_merge_says_where_its_time_went_and_an_append_does_not() -> None:
    times = {"executionTimeMs": "7000", "materializeSourceTimeMs": "1200", "scanTimeMs": "300", "rewriteTimeMs": "4500"}
    merged_ = ours(1, 1, 10)
    (found,) = of_commits([CREATED, replace(merged_, written=written("MERGE", times))], "p", "t")
    assert found.phases == {"read": 1.2, "match": 0.3, "write": 4.5}
    (found,) = of_commits([CREATED, replace(merged_, written=written("WRITE", {"numOutputRows": "3"}))], "p", "t")
    assert (found.rows, found.phases) == (3, {})


def test_an_epoch_in_doubt_says_so() -> None:
    (found,) = of_entries([entry(1, State.BEGUN, 1)])
    assert (found.state, found.commits, found.phases) == ("begun", {}, {})
    assert "in doubt" in found.notes[0]
