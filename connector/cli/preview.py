"""``lakelock preview``: a few records as rows, before anything is written."""

from __future__ import annotations

from typing import Annotated

import typer

from connector.cli.console import Debug, File, Set, out, reported
from connector.cli.operations import time_of
from connector.display import print_page
from connector.operations.preview import ROWS, Start
from connector.pipeline import Pipeline
from sinks.errors import ConfigurationError


def preview(
    file: File,
    set_: Set,
    rows: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many rows.")] = ROWS,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME",
            help="The first records, the last ones, or those since a time, as 2026-11-01T00:00:00Z. If left out, those "
            "that a run would read next; if it would read none, the last ones.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show ten records as the rows that a run would write.

    And what is wrong with bad ones. Changes nothing.

    Chooses from a few hundred records of the topics. Makes no table, stores no offsets, and joins no consumer group.
    """
    with reported(debug):
        start = _start(from_)
        print_page(Pipeline.from_file(file, set_, debug=debug).preview(rows, start=start).page(), out)


def _start(text: str | None) -> Start | None:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        return time_of(text, "--from")
    except ConfigurationError:
        raise ConfigurationError(
            f"--from: write earliest, latest, or a time with its zone, as 2026-11-01T00:00:00Z, not {text!r}."
        ) from None
