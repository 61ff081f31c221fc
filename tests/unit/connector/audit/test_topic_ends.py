"""What the auditor says of topics that came back, or are gone from Kafka."""

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from connector.audit.claim import At, Claim, Held, Logged, Metadata, metadata
from connector.audit.topic_ends import read_twice, with_ends
from connector.config import TopicPattern
from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.offsets import Offsets, TopicPartition

NOW, BEFORE = At("t", 0), At("#a/t", 0)


def meta(**changes: Any) -> Metadata:
    fields = {
        "version": 4, "epoch": 3, "offsets": {}, "since": {}, "topics": {"t": "a", "#b/t": "b", "#a/t": "a"},
        "lost": (), "delivery": "transactional",
    }  # fmt: skip
    return Metadata(**{**fields, **changes})


@pytest.mark.parametrize(
    ("began", "expected"), [(0, "Records [10, 50) of t-0 were read twice"), (40, "[40, 50)"), (50, None), (60, None)]
)
def test_what_was_read_again_of_a_topic_that_came_back_is_in_the_table_twice(began: int, expected: str | None) -> None:
    claim = Claim("transactional", {BEFORE: 10, NOW: began}, {BEFORE: 50, NOW: 70})
    said = " ".join(read_twice(meta(), claim))
    assert (expected in said) if expected else not said
    assert read_twice(meta(topics={"t": "b", "#a/t": "a"}), claim) == []
    assert read_twice(None, claim) == []


DAY, SINCE = At("day-27", 0), "2026-11-27T22:00:00+00:00"
CLAIM = Claim("transactional", {DAY: 0}, {DAY: 600})
DAYS = TopicPattern(pattern="day-.*")


def doubts(*, gone: dict[str, str | None], topics: Any = DAYS, now: bool = True, **changes: Any) -> str:
    found = meta(**{"offsets": {DAY: 600}, "topics": {"day-27": "27"}, "gone": gone, "read_to": SINCE, **changes})
    claim, _ = with_ends(CLAIM, [], found, Held({}, {}, {}), changes.get("upto"), topics, now=now)
    return " ".join(claim.unknown)


@pytest.mark.parametrize(
    ("gone", "now", "topics", "doubtful"),
    [
        ({}, True, DAYS, True),  # no run has been since
        ({"day-27": SINCE}, True, DAYS, True),
        ({"day-27": SINCE}, False, DAYS, True),
        ({"day-27": None}, True, DAYS, False),  # a run has seen that it was read to its end
        ({}, False, DAYS, False),  # it may have been there then
        ({"day-27": SINCE}, True, ["day-28"], False),  # the user has left it out
        ({"#27/day-27": SINCE}, False, DAYS, True),  # and was recreated since
        ({"#27/day-27": None}, False, DAYS, False),
        ({"#27/day-27": SINCE}, False, ["day-27"], False),  # the way out
    ],
)
def test_a_table_whose_topic_is_gone_is_exact_only_if_it_was_read_to_its_end(
    gone: dict, now: bool, topics: Any, doubtful: bool
) -> None:
    said = doubts(gone=gone, topics=topics, now=now)
    assert ("day-27 (after 2026-11-27 22:00:00 UTC)" in said) == doubtful == bool(said)


def test_a_recreated_topic_has_a_way_out_of_its_own() -> None:
    said = doubts(gone={"#27/day-27": SINCE, "day-26": SINCE}, now=False)
    assert said.count("1 topic ") == 2
    assert "deleted and recreated" in said
    assert "--set 'source.topics=[name, name]'" in said
    assert "leave the topic out" not in doubts(gone={"#27/day-27": SINCE}, now=False)


def test_where_no_run_had_read_everything_no_time_is_said() -> None:
    for gone in ({}, {"day-27": "1970-01-01T00:00:00+00:00"}):
        assert "were read: day-27. If" in doubts(gone=gone, read_to="")


def test_a_table_of_a_route_that_the_last_epochs_passed_by_goes_by_the_coordinator_log() -> None:
    found = meta(offsets={DAY: 600}, topics={"day-27": "27"})
    for gone, doubtful in ((None, False), (SINCE, True)):
        upto = Logged(9, {DAY: 600}, gone={"day-27": gone})
        claim, notes = with_ends(CLAIM, ["one"], found, Held({}, {}, {}), upto, DAYS, now=True)
        assert bool(claim.unknown) == doubtful
        assert [note[:12] for note in notes] == ["one", "Topic day-27"]


@pytest.mark.parametrize("partitions", [1, 3000])
def test_the_auditor_reads_what_a_commit_notes_packed_or_not(partitions: int) -> None:
    offsets = Offsets({TopicPartition(f"day-{number}", 0): number for number in range(partitions)})
    since = datetime(2026, 11, 27, 22, tzinfo=timezone.utc)
    position = Position(7, offsets, read_to=since, gone={"day-27": since, "day-28": None})
    found = metadata(CommitMetadata.at("p", position).to_json(), version=1, pipeline="p")
    assert found is not None
    assert (found.gone, found.read_to) == ({"day-27": SINCE, "day-28": None}, SINCE)


def test_with_a_weaker_delivery_it_is_not_said_that_another_run_helps() -> None:
    found = meta(offsets={DAY: 600}, topics={"day-27": "27"}, read_to=SINCE)
    claim, _ = with_ends(replace(CLAIM, delivery="idempotent"), [], found, Held({}, {}, {}), None, DAYS, now=True)
    assert "were read: day-27" in claim.unknown[-1]
    assert "With delivery: idempotent no run notes it. Where the producers" in claim.unknown[-1]
