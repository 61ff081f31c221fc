"""At least once: a batch is written, and then its offsets are committed to Kafka.

A crash in between repeats the batch. Nothing is ever lost, because offsets are committed only after their records are
written.
"""

from __future__ import annotations

from connector.delivery.ports import Delivered, GroupWork


def deliver(work: GroupWork) -> Delivered:
    """Write batch after batch, and commit the offsets of each after its write, until the run is to end.

    ====================  ==============================================================================================
    crash                 what is left
    ====================  ==============================================================================================
    before the write      The old offsets and no rows. The next run reads the batch again.
    before the commit     The rows and the old offsets. The next run writes the batch a second time.
    after the commit      The rows and the new offsets.
    ====================  ==============================================================================================

    Raises what Kafka or the write raises.
    """
    done = Delivered()
    for batch in work.member.batches():
        done = done.plus(work.write(batch))
        work.member.commit(batch)
    return done
