"""Effectively once: as ``manual_commit``, into a sink that ignores an update whose offset is <= the stored one.

A crash between write and commit repeats the batch, and the repetition changes nothing. That takes a sink with one row
per key, where key, value and offset are written together; an append has nothing to compare with. So the order is that
of ``manual_commit``, and the whole difference is in what ``work.write`` writes to.
"""

from __future__ import annotations

from connector.delivery.manual_commit import deliver

__all__ = ["deliver"]
