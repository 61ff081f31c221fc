"""The environment of all workloads: one broker, one folder, and child processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.data import Content, Topic, produced
from benchmarks.measure import progress
from benchmarks.sizes import PARTITIONS, Sizes
from connector.lab.bench.broker import Broker

Options = ParamSpec("Options")
Answer = TypeVar("Answer")


def in_a_process(work: Callable[Options, Answer], *args: Options.args, **kwargs: Options.kwargs) -> Answer:
    """Run ``work`` in a new process, and so with its own Spark session and JVM. Returns its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


@dataclass
class Stage:
    broker: Broker
    folder: Path
    sizes: Sizes
    repetitions: int
    merge: str
    """The sink's option ``merge`` for upserts of small epochs."""
    all_peers: bool
    _topics: dict[tuple[int, int], tuple[Topic, Mapping[str, Content]]] = field(default_factory=dict)
    _made: int = 0

    def topic(self, records: int, keys: int) -> tuple[Topic, Mapping[str, Content]]:
        """A filled topic, and the expected content by kind of table. Workloads of the same size share the topic."""
        if (records, keys) not in self._topics:
            topic = self.empty_topic("whole")
            progress.print(f"  producing {records:,} records on {keys:,} keys")
            self._topics[records, keys] = topic, in_a_process(produced, topic, records, keys)
        return self._topics[records, keys]

    def empty_topic(self, name: str) -> Topic:
        """Create a topic. ``name``: the beginning of its name."""
        self._made += 1
        topic = Topic(self.broker.bootstrap, f"{name}_{self._made}")
        self.broker.create_topic(topic.name, PARTITIONS)
        return topic

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
