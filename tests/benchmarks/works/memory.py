"""Whether memory grows with the backlog: the peak of the JVM and of Python, with the default heap."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from benchmarks import ours
from benchmarks.data import Topic
from benchmarks.measure import Figures, Ratio, Run, Work, alternating
from benchmarks.processes import peak_mebibytes
from benchmarks.session import measured_session
from benchmarks.stage import Stage, in_a_process

SMALL, LARGE = "backlog", "backlog ten times as large"


def catch_up(topic: Topic, folder: Path, epoch: int, begun: float) -> Figures:
    """Upsert a backlog in epochs of the smaller backlog's size, which is the default at scale 1."""
    with measured_session(folder, begun) as (_, clock):
        options = ours.options(topic, "bench", ours.upsert(folder / "table"), epoch={"max_records": epoch})
        ours.run(options)
        seconds = clock.seconds
        peak = peak_mebibytes()
    return {**peak, "seconds": seconds}


def measure(stage: Stage) -> list[Run]:
    sizes = stage.sizes
    topics = {
        name: stage.topic(records, sizes.keys)[0]
        for name, records in ((SMALL, sizes.backlog), (LARGE, sizes.large_backlog))
    }

    def once(topic: Topic) -> Figures:
        with stage.new_folder() as folder:
            return in_a_process(catch_up, topic, folder, sizes.backlog, time.time())

    return alternating({name: partial(once, topic) for name, topic in topics.items()}, stage.repetitions)


WORK = Work(
    "memory",
    "peak memory while a backlog is upserted",
    "MiB",
    (Ratio("peak memory, large backlog / small", (LARGE, "MiB"), (SMALL, "MiB"), 1.1),),
    measure,
)
