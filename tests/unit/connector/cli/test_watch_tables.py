"""The table of several pipelines, as a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from boards import NOW
from rich.console import Console

from connector.cli.watch_tables import statuses_table
from connector.fleet.files import Fault, PipelineFile
from connector.watch import poll
from sinks.errors import NoRecordYet


def test_a_file_that_can_not_be_read_is_named_once() -> None:
    faults = [
        (PipelineFile("p/a.yaml"), Fault("p/a.yaml has 1 fault; nothing was touched:\n  - line 3: kye")),
        (PipelineFile("p/b.yaml"), Fault("No broker answered.", "Start it.")),
    ]
    text = io.StringIO()
    Console(file=text, width=120).print(statuses_table(faults, NOW))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[-4:] == [
        "p/a.yaml has 1 fault; nothing was touched:",
        "  - line 3: kye",
        "p/b.yaml: No broker answered.",
        "what to do: Start it.",
    ]


def test_a_topic_without_a_record_yet_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty:
        def __init__(self, *_: object, **__: object) -> None:
            """As a pipeline whose table isn't there yet."""

        def status(self) -> None:
            raise NoRecordYet("t has no record yet")

    monkeypatch.setattr(poll, "Pipeline", Empty)
    config: Any = "usable"
    unused: Any = None
    found = poll.status_of(PipelineFile("p/a.yaml#t", config), unused)
    assert isinstance(found, Fault)
    assert found.exit_code == 0
