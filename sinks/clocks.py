"""Times that other machines have stored. Their clocks may have been wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

_CLOCKS_DIFFER = timedelta(minutes=1)
"""Two machines' clocks may, though they are set. A time that is later than now by more is a wrong clock's."""


def said(time: datetime | None, now: datetime) -> datetime | None:
    """A time that a commit has stored, as far as it says anything: one that is still to come doesn't."""
    return time if time is not None and time <= now + _CLOCKS_DIFFER else None
