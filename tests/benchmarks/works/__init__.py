"""All workloads, in the order in which they are measured and shown."""

from __future__ import annotations

from benchmarks.works import (
    catch_up,
    cluster,
    decode,
    delivery,
    foreach_batch,
    freshness,
    idle,
    live,
    many,
    many_memory,
    memory,
    routes,
    small,
    start,
    trickle,
    two_phase,
    warm,
)

WORKS = (
    *catch_up.WORKS,
    *warm.WORKS,
    small.WORK,
    many.WORK,
    routes.WORK,
    *trickle.WORKS,
    freshness.WORK,
    live.WORK,
    delivery.WORK,
    idle.WORK,
    memory.WORK,
    many_memory.WORK,
    start.WORK,
    two_phase.WORK,
    foreach_batch.WORK,
    decode.WORK,
    cluster.WORK,
)
