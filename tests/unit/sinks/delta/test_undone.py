"""What a rewind would take back that isn't of the pipeline."""

from collections.abc import Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.operations.rewind import Rewind, with_others
from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.delta.restore import BY_REWIND, Target
from sinks.delta.undone import Undone, undone
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
AT = TopicPartition("t", 0)


def epoch(version: int, number: int, pipeline: str = "p", delivery: str = "transactional") -> Commit:
    position = Position(number, Offsets({AT: number}), owner="run", delivery=delivery)
    return Commit(version, NOON, "WRITE", {"mode": "Append"}, CommitMetadata(pipeline, position).to_json())


def other(version: int, operation: str, mode: str = "Append", user: str | None = None) -> Commit:
    return Commit(version, NOON, operation, {"mode": f'"{mode}"'} if operation == "WRITE" else {}, None, user=user)


def restore(version: int, to: int | None, by: str | None = BY_REWIND) -> Commit:
    return Commit(version, NOON, "RESTORE", {"version": None if to is None else str(to)}, by)


def taken(target: int, *history: Commit) -> Undone:
    by_version: Mapping[int, Commit] = {commit.version: commit for commit in history}
    return undone(max(by_version), target, by_version.get, pipeline="p")


CREATE = other(0, "CREATE TABLE")


def test_a_table_of_one_pipeline_has_nothing_of_others() -> None:
    found = taken(1, CREATE, epoch(1, 1), epoch(2, 2), other(3, "OPTIMIZE"), other(4, "VACUUM END"), epoch(5, 3))
    assert ([*found.pipelines, *found.lost, *found.commits], found.lines, found.why_not) == ([], [], None)


def test_a_pipeline_with_its_offsets_in_the_table_goes_back_and_is_named() -> None:
    found = taken(1, CREATE, epoch(1, 1), epoch(2, 7, "q"), epoch(3, 2), epoch(4, 9, "q"), epoch(5, 3))
    assert found.why_not is None
    assert found.lines == ["epochs 7 to 9 of pipeline 'q', which reads them again if Kafka still holds their records"]


@pytest.mark.parametrize("delivery", ["manual_commit", "auto_commit", "idempotent"])
def test_rows_of_a_consumer_groups_pipeline_keep_the_table_where_it_is(delivery: str) -> None:
    """Its commits carry no metadata: only the epoch with which it took the table over tells of it."""
    history = [CREATE, epoch(1, 1, "q", delivery), epoch(2, 1), epoch(3, 2)]
    assert taken(2, *history).why_not is None, "it has written nothing since"
    assert taken(2, *history, other(4, "OPTIMIZE"), other(5, "DELETE")).why_not is None
    for wrote in ("WRITE", "MERGE"):
        found = taken(2, *history, other(4, wrote), epoch(5, 3))
        assert "pipeline 'q'" in str(found.why_not)
        assert found.pipelines == []
    assert taken(2, *history, epoch(4, 2, "q", delivery)).lost == ["q"], "its position is renewed now and then"


def test_what_counts_is_where_the_other_keeps_its_offsets_after_the_rewind() -> None:
    later = [CREATE, epoch(1, 1), epoch(2, 1, "q"), epoch(3, 2, "q", "manual_commit"), other(4, "WRITE")]
    assert taken(2, *later).why_not is None, "from the table's position the group gets its offsets anew"
    back = [CREATE, epoch(1, 1, "q", "manual_commit"), epoch(2, 1), other(3, "WRITE"), epoch(4, 2, "q")]
    assert taken(2, *back).lost == ["q"]
    assert taken(2, *back[2:3], *later[3:]).lost == ["q"], "of a cleaned history the first commit that is left tells"


def test_commits_of_a_person_that_are_taken_back_are_named() -> None:
    history = [CREATE, epoch(1, 1), epoch(2, 2), other(3, "DELETE", user="ann"), other(4, "WRITE")]
    history += [other(5, "WRITE", "Overwrite"), other(6, "ADD COLUMNS"), other(7, "OPTIMIZE"), epoch(8, 3)]
    found = taken(2, *history)
    assert found.why_not is None
    assert found.lines == [
        "version 5, WRITE (overwrite) at 2026-01-01 12:00:00 UTC, which is of no pipeline's epoch",
        "version 4, WRITE at 2026-01-01 12:00:00 UTC, which is of no pipeline's epoch",
        "version 3, DELETE by ann at 2026-01-01 12:00:00 UTC, which is of no pipeline's epoch",
    ]
    many = taken(1, CREATE, epoch(1, 1), *(other(version, "UPDATE") for version in range(2, 15)))
    assert (len(many.lines), many.lines[-1]) == (11, "3 older commits of no pipeline's epoch")


def test_what_an_earlier_restore_has_taken_back_is_gone_already() -> None:
    history = [CREATE, epoch(1, 1), other(2, "DELETE"), epoch(3, 2), restore(4, 1), epoch(5, 3), other(6, "UPDATE")]
    assert [commit.version for commit in taken(1, *history).commits] == [6]
    assert [commit.version for commit in taken(3, *history).commits] == [6], "back to what it took back"
    twice = [*history, restore(7, 3), other(8, "MERGE")]
    assert [commit.version for commit in taken(6, *twice).commits] == [8, 2]
    assert [commit.version for commit in taken(1, *twice).commits] == [8, 2]
    to_a_time = [*history[:4], restore(4, None), other(5, "UPDATE")]
    assert [commit.version for commit in taken(1, *to_a_time).commits] == [5, 2], "nobody knows to which version"


def test_a_plan_names_them_or_is_refused() -> None:
    plan = Rewind(Position(9, Offsets({AT: 20}), version=9), Target(3, None), Offsets({AT: 3}), 17)
    commits: Any = SimpleNamespace(undone=lambda version: Undone(commits=[other(version + 1, "DELETE")]))
    text = repr(with_others(plan, commits))
    assert "also      takes back version 4, DELETE at 2026-01-01" in text
    commits.undone = lambda _: Undone(lost=["q"])
    with pytest.raises(ConfigurationError, match=r"can't go back to version 3: .* pipeline 'q'.*Nothing was changed"):
        with_others(plan, commits)
