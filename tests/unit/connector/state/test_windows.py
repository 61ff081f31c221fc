"""Which windows the watermark has closed, and what the clock says of an epoch's partitions."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from connector.config import Window
from connector.decode.event_time import LATE, TIME
from connector.decode.records import SHOWN
from connector.state import windows
from connector.state.windows import closed_before, so_far_sql
from sinks.delta.session_windows import SESSION
from sinks.event_time import Clock, Seen
from sinks.offsets import OffsetRange, TopicPartition

DAY = "86400000000"


@pytest.mark.parametrize(
    ("watermark", "limit"),
    [
        (None, "CAST(NULL AS TIMESTAMP)"),
        (datetime(1970, 1, 3, tzinfo=timezone.utc), f"timestamp_micros({DAY})"),
        (datetime(1, 1, 2, tzinfo=timezone.utc), "timestamp_micros(-62135596800000000)"),
        (datetime(1, 1, 1, 23, tzinfo=timezone.utc), "CAST(NULL AS TIMESTAMP)"),
    ],
)
def test_a_window_is_closed_a_day_after_its_end(watermark: datetime | None, limit: str) -> None:
    window = Window.model_validate({"size": "1 hour", "allowed_lateness": "1 day", "late": "add"})
    assert closed_before(window, Clock(watermark=watermark)) == limit


def test_lateness_is_judged_by_the_partitions_of_the_epoch_alone_however_many_were_read_before() -> None:
    times = [datetime(1970, 1, 1, 0, 0, second, tzinfo=timezone.utc) for second in range(60)]
    clock = Clock(
        so_far={TopicPartition(f"t-{n:04}", 0): Seen(times[0], times[n % 60], times[n % 60]) for n in range(2000)}
    )
    two = [OffsetRange("t-0007", 0, 5, 9), OffsetRange("t-1999", 0, 0, 9), OffsetRange("new", 0, 0, 9)]
    micros = "'t-0007-0', timestamp_micros(7000000), 't-1999-0', timestamp_micros(19000000)"
    assert so_far_sql(clock, two) == f"try_element_at(map({micros}), concat(_topic, '-', _partition))"
    assert (
        so_far_sql(clock, two[2:]) == so_far_sql(Clock(), two) == so_far_sql(Clock(), ()) == "CAST(NULL AS TIMESTAMP)"
    )
    assert so_far_sql(clock, ()).count("timestamp_micros") == 2000, "dead letters may be of any of them"


def test_what_event_time_adds_to_rows_has_names_that_no_field_of_a_record_has() -> None:
    """A producer may call a field ``_time``, as Splunk does, or ``_late``. No name of a field has a blank."""
    added = (TIME, LATE, SHOWN, SESSION, windows._LATEST, windows._WINDOW, windows._BEFORE, windows._BEGINS)
    assert all(name.startswith("lakelock ") for name in added)
    assert len({*added}) == len(added)
