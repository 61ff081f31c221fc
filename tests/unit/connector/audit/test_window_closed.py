"""When a window of an aggregate may be closed, by the auditor's own SQL, which SQLite takes as Spark does."""

import sqlite3

import pytest

from connector.audit.aggregate import rightly_closed

HOUR = 3_600_000_000


def judged(closed: bool | None, ends: int, latest: int) -> bool:
    database = sqlite3.connect(":memory:")
    database.create_function("unix_micros", 1, lambda micros: micros)
    values = "SELECT ? AS r_window_closed, ? AS r_window_end, ? AS latest"
    return bool(database.execute(f"SELECT {rightly_closed()} FROM ({values})", [closed, ends, latest]).fetchone()[0])


@pytest.mark.parametrize(
    ("closed", "ends", "latest", "right"),
    [
        (False, HOUR, 0, True),
        (False, HOUR, 9 * HOUR, True),  # an idle partition may hold nothing back, or the last epoch came before
        (True, HOUR, HOUR, True),  # also where allowed_lateness is a day now: it may have been raised
        (True, HOUR, HOUR - 1, False),
        (None, HOUR, 9 * HOUR, False),
    ],
)
def test_no_window_is_closed_before_a_record_could_have_closed_it(
    closed: bool | None, ends: int, latest: int, right: bool
) -> None:
    assert judged(closed, ends, latest) == right
