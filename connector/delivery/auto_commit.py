"""At most once: the Kafka client commits the offsets of polled records at intervals, and then the records are written.

A crash in between loses the batch. Nothing is ever written twice, because records are written only after the client has
committed their offsets.
"""

from __future__ import annotations

from connector.delivery.ports import Delivered, GroupWork


def deliver(work: GroupWork) -> Delivered:
    """Write batch after batch, each after the client has committed its offsets, until the run is to end.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the commit     The old offsets and no rows. The next run reads the batch again.
    before the write      The new offsets and no rows. The batch is lost.
    after the write       The new offsets and the rows.
    ====================  ==============================================================================================

    Raises what Kafka or the write raises.
    """
    done = Delivered()
    for _ in work.member.batches():
        batch = work.member.auto_committed()
        done = done.plus(work.write(batch))
    return done
