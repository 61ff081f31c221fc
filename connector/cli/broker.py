"""The commands ``lakelock broker`` and ``lakelock demo``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from connector.cli.console import Debug, out, reported, stop_on_signal
from sinks.errors import ConfigurationError

USUAL = 9092
"""The port that the pages, the examples and ``lakelock init`` name."""
STOPS = "stopping the broker; a second signal ends it at once"
"""What the first signal prints: a broker has no epochs."""


def broker(
    data: Annotated[Path | None, typer.Option(help="Folder of the broker's data; a temporary one if left out.")] = None,
    port: Annotated[int | None, typer.Option(help=f"The broker's port; {USUAL}, or a free one, if left out.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:PARTITIONS]", help="Create this topic; repeatable.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a real Kafka broker on this machine, for trials.

    Until Ctrl-C. Producers don't create topics: see --topic.
    """
    with reported(debug), suppress(KeyboardInterrupt), stop_on_signal(STOPS) as stop:
        from connector.lab.bench.broker import Broker
        from connector.lab.bench.broker_properties import is_free

        topics = [_topic(text) for text in topic or []]
        with Broker(data, USUAL if port is None and is_free(USUAL) else port) as started:
            for name, partitions in topics:
                started.create_topic(name, partitions)
            out.print(f"bootstrap.servers: {started.bootstrap}   (Ctrl-C stops it)")
            if not topics and data is None:
                out.print("It has no topics, and makes none by itself: --topic NAME:PARTITIONS does.")
            stop.wait()


def demo(
    lake: Annotated[Path, typer.Option(help="Folder of the tables.")] = Path("lake"),
    data: Annotated[Path | None, typer.Option(help="Folder of the broker's data; a temporary one if left out.")] = None,
    debug: Debug = False,
) -> None:
    """Move real flights into ./lake, kill the runs, and count.

    Through a real broker into two Delta tables, with a kill in mid-epoch.
    """
    with reported(debug):
        from connector.lab.trials.demo import demo as run_demo

        if not run_demo(lake, data, out):
            raise typer.Exit(1)


def _topic(text: str) -> tuple[str, int]:
    """Name and number of partitions, from ``NAME`` or ``NAME:PARTITIONS``. Raises ConfigurationError."""
    name, _, partitions = text.partition(":")
    number = partitions or "1"
    if not number.isdigit() or not int(number):
        raise ConfigurationError(f"--topic: write NAME or NAME:PARTITIONS, for example orders:4, not {text!r}.")
    return name, int(number)
