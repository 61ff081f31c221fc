"""The table's history, by hand: which commit says where the pipeline stands."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import (
    Cloned,
    Commit,
    FromRows,
    Own,
    Standing,
    Unwritten,
    find,
    from_rows,
    ids_of_rows,
    taken_in,
    undid_offsets,
)
from sinks.delta.taken_over import refuse_gone_back
from sinks.errors import ConfigurationError, PositionMismatch
from sinks.offsets import Offsets, TopicPartition


def offsets(next_offset: int) -> Offsets:
    return Offsets({TopicPartition("t", 0): next_offset})


def epoch(number: int, *, pipeline: str = "p", base: int | None = None) -> str:
    return CommitMetadata(
        pipeline, Position(number, offsets(number * 100), owner=f"owner-{number}"), base=base
    ).to_json()


class History:
    """One line per commit: operation, metadata, parameters. ``real``: versions whose txn took their epoch."""

    def __init__(self, *commits: tuple[str, str | None, Mapping[str, str | None]] | tuple[str, str | None]) -> None:
        self.commits = {
            version: Commit(
                version,
                datetime(2026, 1, 1, tzinfo=timezone.utc),
                line[0],
                line[2] if len(line) > 2 else {},  # type: ignore[misc]
                line[1],
            )
            for version, line in enumerate(commits)
        }
        self.stale: set[int] = set()

    def find(self, former: str | None = None) -> Standing:
        return find(
            max(self.commits), self.commits.get, lambda version, _: version not in self.stale, pipeline="p",
            former=former,
        )  # fmt: skip

    def found(self) -> tuple[int, int, bool]:
        standing = self.find()
        assert isinstance(standing, Own)
        return standing.commit.version, standing.metadata.epoch, standing.restored


def test_the_newest_commit_of_the_pipeline_says_it() -> None:
    assert History(("CREATE TABLE", None), ("WRITE", epoch(1)), ("WRITE", epoch(2))).found() == (2, 2, False)


def test_commits_of_others_change_nothing() -> None:
    history = History(
        ("CREATE TABLE", None),
        ("WRITE", epoch(1)),
        ("OPTIMIZE", None),
        ("WRITE", epoch(9, pipeline="another")),
        ("UPDATE", "a person's note"),
    )
    assert history.found() == (1, 1, False)


def test_a_stale_copy_of_the_metadata_is_not_taken_for_a_commit_of_ours() -> None:
    history = History(("WRITE", epoch(1)), ("WRITE", epoch(2)), ("UPDATE", epoch(1)), ("OPTIMIZE", epoch(3)))
    history.stale = {2, 3}
    assert history.found() == (1, 2, False)


def test_after_a_restore_the_restored_version_says_it() -> None:
    history = History(
        ("CREATE TABLE", None),
        ("WRITE", epoch(1)),
        ("WRITE", epoch(2)),
        ("WRITE", epoch(3)),
        ("RESTORE", None, {"version": "1", "timestamp": None}),
    )
    assert history.found() == (1, 1, True)


def test_a_restore_of_a_restore_is_followed() -> None:
    history = History(
        ("WRITE", epoch(1)),
        ("WRITE", epoch(2)),
        ("RESTORE", None, {"version": "0"}),
        ("WRITE", epoch(3)),
        ("RESTORE", None, {"version": "2"}),
    )
    assert history.found() == (0, 1, True)


def test_after_a_restore_the_pipelines_next_commit_says_it_again() -> None:
    history = History(
        ("WRITE", epoch(1)), ("WRITE", epoch(2)), ("RESTORE", None, {"version": "0"}), ("WRITE", epoch(3))
    )
    assert history.found() == (3, 3, False)


def test_a_restore_to_before_the_first_epoch_leaves_it_to_the_rows() -> None:
    history = History(("CREATE TABLE", None), ("WRITE", epoch(1)), ("RESTORE", None, {"version": "0"}))
    assert history.find() == FromRows(restored=True)


def test_a_restore_is_known_though_the_commit_behind_its_target_was_cleaned() -> None:
    history = History(("WRITE", epoch(1)), ("OPTIMIZE", None), ("WRITE", epoch(2)), ("RESTORE", None, {"version": "1"}))
    del history.commits[0]
    assert history.find() == FromRows(restored=True)
    of_rows = Position(2, offsets(100), source="rows", went_back=True)
    assert of_rows.lacks_epochs
    assert not of_rows.same_place(Position(2, offsets(200)))


def test_a_clone_over_a_table_goes_back_as_a_restore_does() -> None:
    clone = ("CLONE", None, {"source": "x", "sourceVersion": "7"})
    over = History(("CREATE TABLE", None), ("WRITE", epoch(1)), clone).find()
    assert isinstance(over, Cloned)
    assert over.over is not None
    assert over.over.version == 2
    undone = History(clone, ("WRITE", epoch(8)), ("RESTORE", None, {"version": "0"})).find()
    assert isinstance(undone, Cloned)
    assert (undone.over, undone.restored) == (None, True)


def test_a_clone_names_its_source() -> None:
    history = History(("CLONE", None, {"source": "delta.`/a`", "sourceVersion": "7"}), ("OPTIMIZE", None))
    found = history.find()
    assert isinstance(found, Cloned)
    assert (found.source, found.version) == ("delta.`/a`", 7)


def test_a_clone_with_commits_of_its_own_needs_no_source() -> None:
    assert History(("CLONE", None, {"source": "x", "sourceVersion": "7"}), ("WRITE", epoch(8))).found() == (1, 8, False)


def test_a_cleaned_log_leaves_it_to_the_rows() -> None:
    history = History(("WRITE", epoch(1)), ("OPTIMIZE", None), ("OPTIMIZE", None))
    del history.commits[0]
    assert history.find() == FromRows()


def test_the_choice_goes_back_to_version_0() -> None:
    history = History(("WRITE", epoch(1)), ("WRITE", epoch(2)), ("RESTORE", None, {"version": None, "timestamp": "x"}))
    standing = history.find()
    assert isinstance(standing, FromRows)
    assert [own.commit.version for own in standing.candidates] == [0, 1]


def test_a_restore_to_a_time_leaves_the_choice_to_the_rows() -> None:
    history = History(
        ("CREATE TABLE", None),
        ("WRITE", epoch(1)),
        ("WRITE", epoch(2)),
        ("WRITE", epoch(3)),
        ("RESTORE", None, {"version": None, "timestamp": "2026-01-01"}),
    )
    standing = history.find()
    assert isinstance(standing, FromRows)
    assert [own.metadata.epoch for own in standing.candidates] == [1, 2, 3]
    assert standing.every
    chosen = {rows: from_rows(offsets(rows), standing) for rows in (40, 100, 101, 300, 301)}
    assert {rows: own.metadata.epoch if isinstance(own, Own) else own for rows, own in chosen.items()} == {
        40: 1,
        100: 1,
        101: 2,
        300: 3,
        301: None,
    }


def test_a_restore_to_a_time_before_the_oldest_commit_that_is_known_is_told_by_the_rows() -> None:
    """What lies before it is the pipeline's beginning, or nobody knows."""

    def began(number: int) -> str:
        return CommitMetadata("p", Position(number, offsets(number * 100), since=offsets(10))).to_json()

    history = History(
        ("CREATE TABLE", None),
        ("WRITE", began(1)),
        ("WRITE", began(2)),
        ("RESTORE", None, {"version": None, "timestamp": "2026-01-01"}),
    )
    standing = history.find()
    assert isinstance(standing, FromRows)
    for rows in (Offsets(), offsets(10)):
        first = from_rows(rows, standing)
        assert isinstance(first, Unwritten)
        assert first.first.metadata.epoch == 1
    assert isinstance(from_rows(offsets(11), standing), Own)
    del history.commits[0]
    standing = history.find()
    assert isinstance(standing, FromRows)
    assert (standing.every, standing.restored) == (False, True)
    assert from_rows(offsets(90), standing) is None
    assert isinstance(from_rows(offsets(101), standing), Own)


@pytest.mark.parametrize("own", [0, 1, 2])
@pytest.mark.parametrize("formers", [1, 2, 3])
def test_a_pipeline_goes_on_from_the_former_one_as_if_it_had_written_all(formers: int, own: int) -> None:
    """Whatever the history is, it is found as in a table that one pipeline has written."""
    endings: list[tuple[Any, ...]] = [("OPTIMIZE", None), ("RESTORE", None, {"version": None, "timestamp": "x"})]
    endings += [("RESTORE", None, {"version": str(version)}) for version in range(formers + own + 1)]
    for ending in endings:
        of_both, of_one = (
            History(
                ("CREATE TABLE", None),
                *(("WRITE", epoch(number + 1, pipeline=former)) for number in range(formers)),
                *(("WRITE", epoch(number + 1)) for number in range(formers, formers + own)),
                ending,
            )
            for former in ("f", "p")
        )
        found, one = of_both.find("f"), of_one.find()
        assert type(found) is type(one)
        if isinstance(found, Own) and isinstance(one, Own):
            assert (found.commit.version, found.metadata.position, found.restored) == (
                one.commit.version, one.metadata.position, one.restored,
            )  # fmt: skip
        if isinstance(found, FromRows) and isinstance(one, FromRows):
            assert [each.metadata.position for each in found.candidates] == [
                each.metadata.position for each in one.candidates
            ]
            assert (found.every, found.restored) == (one.every, one.restored)


def test_a_former_pipeline_that_committed_again_is_refused() -> None:
    metadata = CommitMetadata("shop", Position(4, offsets(400)))
    refuse_gone_back("t", metadata, 0, "shop-every")
    with pytest.raises(ConfigurationError, match=r"'shop-every' up to epoch 5, and then by 'shop' again"):
        refuse_gone_back("t", metadata, 5, "shop-every")


@pytest.mark.parametrize(
    ("between", "said"),
    [
        (("RESTORE", None, {"version": "0"}), r"was restored \(version 2\) while epoch 3 was being written"),
        (
            ("CLONE", None, {"source": "x", "sourceVersion": "7"}),
            r"was replaced by a clone \(version 2\) while epoch 3",
        ),
    ],
)
def test_a_restore_under_an_epoch_that_was_being_written_is_refused(between: Any, said: str) -> None:
    history = History(("WRITE", epoch(1)), ("WRITE", epoch(2)), between, ("WRITE", epoch(3, base=1)))
    with pytest.raises(PositionMismatch, match=said):
        history.find()


def test_other_commits_under_an_epoch_that_was_being_written_are_fine() -> None:
    assert History(("WRITE", epoch(1)), ("OPTIMIZE", None), ("WRITE", epoch(2, base=0))).found() == (2, 2, False)


def of_topic(pipeline: str, number: int, **ids: str) -> str:
    return CommitMetadata(pipeline, Position(number, offsets(number * 100), ids, owner="o")).to_json()


def test_the_ids_of_the_rows_topics_are_those_of_the_commits_that_led_to_them() -> None:
    history = History(
        ("CREATE TABLE", None),
        ("WRITE", of_topic("us", 1, t="first", u="second")),
        ("WRITE", of_topic("us", 2, t="third", v="not asked for")),
        ("WRITE", "mine"),
        ("WRITE", of_topic("copied", 9, t="of a stale copy")),
        ("RESTORE", None, {"version": "1"}),
        ("OPTIMIZE", None),
    )

    def ids(newest: int) -> dict[str, str]:
        return ids_of_rows(newest, history.commits.get, lambda version, _: version != 4, {"t", "u"})

    assert ids(0) == {}
    assert ids(1) == ids(6) == {"t": "first", "u": "second"}
    assert ids(4) == {"t": "third", "u": "second"}


def test_the_topics_that_undone_epochs_had_taken_in_are_told() -> None:
    def of_topics(number: int, **topics: str) -> str:
        return CommitMetadata("p", Position(number, offsets(number), topics=topics)).to_json()

    history = History(
        ("WRITE", of_topics(1, t="before")),
        ("WRITE", of_topics(2, t="old", other="same")),
        ("OPTIMIZE", None),
        ("MERGE", of_topics(3, t="new", other="same")),
        ("WRITE", of_topics(4, t="new", other="same", added="since")),
        ("RESTORE", None, {"version": "1"}),
    )
    known = {"t": "old", "other": "same"}
    found = [taken_in(5, history.commits.get, pipeline="p", restored_to=epoch, topics=known) for epoch in (2, 3, 4)]
    assert found == [{"t"}, {"t"}, set()]
    del history.commits[3]
    assert taken_in(5, history.commits.get, pipeline="p", restored_to=2, topics=known) == {"t"}, "the log was cleaned"


def test_a_restore_tells_whether_it_has_undone_offsets_that_the_table_alone_had() -> None:
    def of(number: int, delivery: str) -> str:
        return CommitMetadata("p", Position(number, offsets(number), delivery=delivery)).to_json()

    history = History(
        ("WRITE", of(1, "transactional")),
        ("MERGE", of(2, "idempotent")),
        ("MERGE", of(3, "manual_commit")),
        ("MERGE", of(4, "transactional")),
        ("OPTIMIZE", None),
        ("MERGE", of(5, "idempotent")),
        ("RESTORE", None, {"version": "1"}),
    )

    def undid(restored_to: int) -> bool:
        return undid_offsets(6, history.commits.get, pipeline="p", restored_to=restored_to)

    assert [undid(epoch) for epoch in range(1, 6)] == [True, True, True, False, False]
    history.commits[3] = history.commits[2]
    assert not undid(2), "only a group ever had them"
