"""Which windows the watermark has closed."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from connector.config import Window
from connector.state.windows import closed_before
from sinks.event_time import Clock

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
