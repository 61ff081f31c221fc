"""Runs Lakelock through its public API, and times its epochs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.data import SCHEMA, Topic
from connector import Pipeline
from connector.protocol.steps import Event, Step


def options(
    topic: Topic, name: str, *sinks: Mapping[str, object], kafka: Mapping[str, str] = {}, **more: object
) -> dict[str, Any]:
    """The options of a pipeline file. ``kafka``: additional Kafka settings; ``more``: other options."""
    return {
        "name": name,
        "source": {"topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap, **kafka}},
        "value": {"format": "json", "schema": SCHEMA},
        "sinks": list(sinks),
        **more,
    }


def upsert(table: Path, **more: object) -> dict[str, object]:
    return {"type": "delta_upsert", "path": str(table), "key": "key", **more}


def append(table: Path) -> dict[str, object]:
    return {"type": "delta_append", "path": str(table)}


def run(of: Mapping[str, object]) -> Steps:
    """Run a pipeline. It takes its settings from the active session, and works in a new one."""
    steps = Steps()
    Pipeline.from_options(of).run(observers=[steps])
    return steps


def as_file(of: Mapping[str, object], folder: Path) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(of), encoding="utf-8")
    return file


class Steps:
    """An observer that notes the time of each step, for epochs that have records."""

    def __init__(self) -> None:
        self.resumed: float | None = None
        self.noted: list[tuple[float, Event]] = []

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if event.step is Step.RESUMED and self.resumed is None:
            self.resumed = now
        if event.epoch.ranges:
            self.noted.append((now, event))

    def epochs(self) -> list[float]:
        """The seconds of each epoch from PLANNED to COMMITTED."""
        planned: dict[int, float] = {}
        seconds = []
        for at, event in self.noted:
            if event.step is Step.PLANNED:
                planned[event.epoch.number] = at
            elif event.step is Step.COMMITTED and event.epoch.number in planned:
                seconds.append(at - planned.pop(event.epoch.number))
        return seconds

    def laps(self, end: Step) -> list[float]:
        """The seconds from one epoch's ``end`` to the next epoch's ``end``: the whole cost of an epoch."""
        ends = [self.resumed or 0.0, *(at for at, event in self.noted if event.step is end)]
        return [later - earlier for earlier, later in pairwise(ends)]

    def shares(self) -> dict[str, float]:
        """The median seconds from the previous step to each step."""
        led: dict[str, list[float]] = {}
        for (before, _), (at, event) in pairwise(self.noted):
            led.setdefault(event.step.value, []).append(at - before)
        return {step: statistics.median(seconds) for step, seconds in led.items()}
