"""At most once: the client commits what was polled on its own clock, and what it has committed is written then.

A crash between the two loses the batch: the next run starts behind it. Nothing is ever written twice: what the client
hasn't committed isn't written.
"""

from __future__ import annotations

from connector.delivery.ports import Delivered, GroupWork


def deliver(work: GroupWork) -> Delivered:
    done = Delivered()
    for _ in work.member.batches():
        batch = work.member.auto_committed()
        done = done.plus(work.write(batch))
    return done
