"""At least once: the batch is written, and its offsets are committed then.

A crash between the two repeats the batch: the next run starts before it. Nothing is ever lost: what isn't written
isn't committed.
"""

from __future__ import annotations

from connector.delivery.ports import Delivered, GroupWork


def deliver(work: GroupWork) -> Delivered:
    done = Delivered()
    for batch in work.member.batches():
        done = done.plus(work.write(batch))
        work.member.commit(batch)
    return done
