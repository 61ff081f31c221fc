"""Effectively once: as ``manual_commit``, into a sink that ignores an update whose offset is <= the stored one.

A crash between write and commit repeats the batch, and the repetition changes nothing. That takes a sink with one row
per key, where key, value and offset are written together; an append has nothing to compare with.
"""

from __future__ import annotations

from connector.delivery.work import Delivered, GroupWork


def deliver(work: GroupWork) -> Delivered:
    """``work.write`` has to ignore what it holds already."""
    done = Delivered()
    for batch in work.member.batches():
        done = done.plus(work.write(batch))
        work.member.commit(batch)
    return done
