"""Whether a run is at work, judged by its traces."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from boards import NOW, past, status

from connector.operations.status import Status
from connector.watch.at_work import at_work
from connector.watch.reports import Report

RUNNING = Report("flights", "running", NOW, 0)
ENDED = Report("flights", "done", NOW - timedelta(seconds=60), 30)
OWNER = past(1).owner


def stands(seconds: float, behind: int = 0) -> Status:
    found = status("flights", behind=behind)
    assert found.position is not None
    return replace(found, position=replace(found.position, owner=OWNER, committed_at=NOW - timedelta(seconds=seconds)))


@pytest.mark.parametrize(
    ("seconds", "behind", "pause", "report", "kind", "words"),
    [
        (12, 5, 10.0, None, "good", "Yes, it seems: run 0f3c2b1a has committed 12 s ago."),
        (170, 5, 60.0, None, "good", "Yes, it seems: run 0f3c2b1a has committed 3 min ago."),
        (
            190,
            5,
            60.0,
            None,
            "bad",
            "No sign of one: 15 offsets wait, and the last commit is 3 min old, by run 0f3c2b1a.",
        ),
        (40, 5, 60.0, ENDED, "unknown", "No, by its report: the last run ended 30 s ago."),
        (12, 5, 60.0, ENDED, "good", "Yes, it seems: run 0f3c2b1a has committed 12 s ago."),
        (190, 0, 60.0, None, "unknown", "Nothing is to be done, so nothing shows whether a run waits."),
        (190, 0, 60.0, RUNNING, "unknown", "so nothing shows whether a run waits. A report says that a run goes on."),
        (
            190,
            5,
            60.0,
            RUNNING,
            "bad",
            "A report says that a run goes on, but 15 offsets wait, and the last commit is 3",
        ),
    ],
)
def test_a_recent_commit_is_a_sign_and_records_that_wait_are_one_against_it(
    seconds: float, behind: int, pause: float, report: Report | None, kind: str, words: str
) -> None:
    epochs = [past(number, since_last=pause) for number in (3, 2, 1)]
    answer = at_work(stands(seconds, behind), epochs, report, NOW)
    assert answer is not None
    assert answer[0] == kind
    assert words in answer[1]


def test_pauses_between_two_runs_are_no_measure() -> None:
    epochs = [past(3, since_last=9000.0), past(2, owner="run-0", since_last=9000.0)]
    answer = at_work(stands(600, behind=1), epochs, None, NOW)
    assert answer is not None
    assert answer[0] == "bad"


def test_where_nothing_can_be_known_that_is_said() -> None:
    assert at_work(None, [], None, NOW) is None
    doubted = at_work(status("both", in_doubt=True), [], None, NOW)
    assert doubted == ("waiting", "Run run-b is at work on epoch 10, or was killed.")
    nothing = replace(status("new"), position=None)
    assert at_work(nothing, [], None, NOW) == ("unknown", "No commit tells of a run.")
    group = at_work(replace(status("weak"), delivery="manual_commit"), [], None, NOW)
    assert group is not None
    assert "members of the consumer group" in group[1]
