"""Effectively once: ``manual_commit`` into a sink that ignores an update whose offset is at or below the stored one.

A crash between write and commit repeats the batch, and the repetition changes nothing. That needs a sink with one row
per key, which stores key, value and offset together. An appended row has no older row to be compared with. So the order
of steps is that of ``manual_commit``, and only the sink that ``work.write`` writes to is different.
"""

from __future__ import annotations

from connector.delivery.manual_commit import deliver

__all__ = ["deliver"]
