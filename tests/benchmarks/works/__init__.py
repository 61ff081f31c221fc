"""All workloads, in the order in which they are measured and shown."""

from __future__ import annotations

from benchmarks.works import catch_up, decode, delivery, idle, live, memory, start, trickle, two_phase

WORKS = (
    *catch_up.WORKS,
    *trickle.WORKS,
    live.WORK,
    delivery.WORK,
    idle.WORK,
    memory.WORK,
    start.WORK,
    two_phase.WORK,
    decode.WORK,
)
