"""The commands ``lakelock broker`` and ``lakelock demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from connector.cli.console import Debug, out, reported, stop_on_signal
from sinks.errors import ConfigurationError


def broker(
    data: Annotated[Path | None, typer.Option(help="Where it keeps its data; temporary if left out.")] = None,
    port: Annotated[int | None, typer.Option(help="Its port; a free one if left out.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Make this topic, as NAME or NAME:PARTITIONS.")] = None,
    debug: Debug = False,
) -> None:
    """Run a real Kafka broker on this machine, for trials, until Ctrl-C."""
    with reported(debug), stop_on_signal() as stop:
        from connector.lab.bench.broker import Broker

        topics = [_topic(text) for text in topic or []]
        with Broker(data, port) as started:
            for name, partitions in topics:
                started.create_topic(name, partitions)
            out.print(f"bootstrap.servers: {started.bootstrap}   (Ctrl-C stops it)")
            stop.wait()


def demo(
    lake: Annotated[Path, typer.Option(help="Where the tables go.")] = Path("lake"),
    data: Annotated[Path | None, typer.Option(help="Where the broker keeps its data; temporary if left out.")] = None,
    debug: Debug = False,
) -> None:
    """Real flights through a real broker into two Delta tables, killed in mid-epoch, and counted."""
    with reported(debug):
        from connector.lab.trials.demo import demo as run_demo

        if not run_demo(lake, data, out):
            raise typer.Exit(1)


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    number = partitions or "1"
    if not number.isdigit() or not int(number):
        raise ConfigurationError(f"--topic: write NAME or NAME:PARTITIONS, as orders:4, not {text!r}.")
    return name, int(number)
