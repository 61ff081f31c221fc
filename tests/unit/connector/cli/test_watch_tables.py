"""The table of several pipelines, as a terminal shows it."""

from __future__ import annotations

import io

from boards import NOW
from rich.console import Console

from connector.cli.watch_tables import statuses_table
from connector.fleet.files import Fault, PipelineFile


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
