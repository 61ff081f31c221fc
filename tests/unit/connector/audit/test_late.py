"""Which records may have been late, by the auditor's own SQL, which SQLite takes as Spark does."""

import sqlite3
from datetime import timedelta
from typing import Any

from connector.audit.late import founded, others_latest
from connector.config import Window

HOUR = timedelta(hours=1)
US = 3_600_000_000


def late(
    window: Window, first_time: int, window_ends: int | None, shown: int | None, lateness: timedelta = timedelta(0)
) -> bool:
    values = "SELECT ? AS first_time, ? AS window_ends, ? AS shown"
    asked = f"SELECT {founded(window, lateness)} FROM ({values})"
    return bool(sqlite3.connect(":memory:").execute(asked, [first_time, window_ends, shown]).fetchone()[0])


def window(**options: Any) -> Window:
    return Window(time="at", late="dead_letter", **options)


def test_a_record_is_late_once_a_record_before_it_is_past_its_window_and_the_lateness() -> None:
    hourly = window(size=HOUR)
    assert late(hourly, US // 2, US, US)
    assert not late(hourly, US // 2, US, US - 1)
    patient = [late(hourly, US // 2, US, shown, 2 * HOUR) for shown in (3 * US, 3 * US - 1)]
    assert patient == [True, False]
    assert not late(hourly, US // 2, US, None)  # the first record of all


def test_a_letter_stays_right_when_allowed_lateness_is_raised() -> None:
    raised = window(size=HOUR, allowed_lateness=HOUR)
    assert late(raised, US // 2, US, US)
    assert not late(raised, US // 2, US, US, raised.allowed_lateness)  # so it is unconfirmed
    assert not late(raised, US // 2, US, US - 1)


def test_a_session_takes_a_record_until_its_own_time_is_too_long_ago() -> None:
    session = window(gap=HOUR)
    assert (late(session, US, None, US), late(session, US, None, US - 1)) == (True, False)


def test_an_idle_partition_is_closed_by_the_others_alone() -> None:
    assert others_latest({"t-0": 5}) == {}
    assert others_latest({"t-0": 5, "t-1": 9, "t-2": 7}) == {"t-0": 9, "t-1": 7, "t-2": 9}
    assert others_latest({"t-0": 9, "t-1": 9}) == {"t-0": 9, "t-1": 9}
