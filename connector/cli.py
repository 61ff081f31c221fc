"""The command ``lakelock``."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from connector.observe import Progress
from connector.pipeline import Pipeline, Status
from sinks.errors import ConfigurationError, LakelockError

app = typer.Typer(
    name="lakelock",
    help="Kafka topics into Delta Lake tables with Spark, every record exactly once.",
    epilog="Exit codes: 0 done; 1 failed; 2 wrong configuration, which a retry can't help; 3 fenced: another run of "
    "the pipeline took over.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

File = Annotated[Path, typer.Argument(help="The pipeline file (YAML); `lakelock init` writes one.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces, and Spark's own log.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]


def main() -> None:
    app()


@app.command()
def run(file: File, debug: Debug = False) -> None:
    """Run a pipeline: up to what Kafka holds now, or again and again with `trigger: {interval: ...}`.

    SIGTERM or Ctrl-C ends it after the running epoch; a second one abandons that epoch, of which nothing is kept.
    Whatever ends a run, the next one goes on exactly where the table stands.
    """
    with _reported(debug):
        pipeline = Pipeline.from_file(file, debug=debug)
        started = time.monotonic()
        with _stop_on_signal() as stop:
            delivered = pipeline.run(stop=stop, observers=[Progress(err)])
        state = "stopped" if stop.is_set() else "done"
        epoch = delivered.position.epoch if delivered.position else 0
        out.print(
            f"{pipeline.config.name}: {state}. {delivered.epochs} epochs, {delivered.rows:,} rows written in "
            f"{time.monotonic() - started:.1f} s; the table is at epoch {epoch}.",
            soft_wrap=True,
        )


@app.command()
def check(file: File, debug: Debug = False) -> None:
    """Find out whether a run would work, without touching anything: file, Kafka, table, columns, position."""
    with _reported(debug):
        pipeline = Pipeline.from_file(file, debug=debug)
        found = pipeline.check()
        sink = pipeline.config.sinks[0]
        out.print(f"file      ok: pipeline {pipeline.config.name}")
        out.print(f"kafka     ok: {', '.join(sorted(found.next_offsets.topics))}")
        what = "fits" if found.table_exists else "will be made"
        out.print(f"table     ok: {escape(str(sink.path or sink.table))} {what}", soft_wrap=True)
        out.print(f"columns   {escape(', '.join(found.columns))}", soft_wrap=True)
        where = f"after epoch {found.position.epoch}" if found.position else f"at {pipeline.config.source.start}"
        out.print(f"position  {where}: next {found.next_offsets.to_json()}", soft_wrap=True)
        out.print(f"behind    {found.behind:,} offsets")


@app.command()
def status(file: File, json_: Json = False, debug: Debug = False) -> None:
    """Show where a pipeline stands: epoch, offsets and lag per partition, last commit."""
    with _reported(debug):
        state = Pipeline.from_file(file, debug=debug).status()
        if json_:
            sys.stdout.write(json.dumps(_status_fields(state)) + "\n")
        else:
            _print_status(state)


@app.command()
def init(
    file: Annotated[Path | None, typer.Argument(help="Where to write it; standard output if left out.")] = None,
) -> None:
    """Write a commented pipeline file to start from."""
    with _reported(debug=False):
        text = files("connector").joinpath("pipeline.yaml").read_text(encoding="utf-8")
        if file is None:
            sys.stdout.write(text)
            return
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
        except FileExistsError:
            raise ConfigurationError(
                f"{str(file)!r} is there already, and was left as it is.", hint="Give another name."
            ) from None
        except OSError as error:
            raise ConfigurationError(f"{str(file)!r} can't be written: {error.strerror}.") from None
        out.print(f"{file} written. Edit it, then: lakelock check {file}", soft_wrap=True)


@app.command()
def jars(debug: Debug = False) -> None:
    """Fetch the jars of Spark's Kafka and Delta parts and of the embedded broker into this environment, with Maven."""
    with _reported(debug):
        from connector.jars import fetch, folder

        for kind in ("spark", "kafka"):
            found = fetch(kind)
            out.print(f"{kind}: {len(found)} jars in {folder(kind)}", soft_wrap=True)


@app.command()
def broker(
    data: Annotated[Path | None, typer.Option(help="Where it keeps its data; temporary if left out.")] = None,
    port: Annotated[int | None, typer.Option(help="Its port; a free one if left out.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Make this topic, as NAME or NAME:PARTITIONS.")] = None,
    debug: Debug = False,
) -> None:
    """Run a real Kafka broker on this machine, for trials, until Ctrl-C."""
    with _reported(debug), _stop_on_signal() as stop:
        from connector.lab.broker import Broker

        with Broker(data, port) as started:
            for name, _, partitions in (text.partition(":") for text in topic or []):
                started.create_topic(name, int(partitions or 1))
            out.print(f"bootstrap.servers: {started.bootstrap}   (Ctrl-C stops it)")
            stop.wait()


@app.command()
def demo(
    lake: Annotated[Path, typer.Option(help="Where the tables go.")] = Path("lake"),
    data: Annotated[Path | None, typer.Option(help="Where the broker keeps its data; temporary if left out.")] = None,
    debug: Debug = False,
) -> None:
    """Real flights through a real broker into two Delta tables, killed in mid-epoch, and counted."""
    with _reported(debug):
        from connector.lab.demo import demo as run_demo

        if not run_demo(lake, data, out):
            raise typer.Exit(1)


@contextmanager
def _reported(debug: bool) -> Iterator[None]:
    """Errors as one clear paragraph and an exit code; with ``--debug`` as Python shows them."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if debug:
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("kafka").setLevel(logging.WARNING)
    try:
        yield
    except LakelockError as error:
        if debug:
            err.print_exception()
        _say("error", error.message, error.hint)
        raise typer.Exit(error.exit_code) from None
    except _Abandoned:
        _say(
            "stopped",
            "The running epoch was abandoned after a second signal.",
            "It is in the table as a whole or not at all; the next run finds out and goes on.",
        )
        raise typer.Exit(1) from None
    except typer.Exit:
        raise
    except Exception as error:
        if debug:
            err.print_exception()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line for line in lines if line.startswith("Caused by:")]
        _say(
            "error",
            " ".join([f"{type(error).__name__}:", *lines[:2], *causes[-1:]])[:1000],
            "This is not an error that Lakelock knows. Run it again with --debug for the whole of it. The table holds "
            "whole epochs only: the next run goes on where it stands.",
        )
        raise typer.Exit(1) from None


def _say(what: str, message: str, hint: str) -> None:
    err.print(f"[bold red]{what}[/]: {escape(message)}", soft_wrap=True)
    if hint:
        err.print(f"[bold]what to do[/]: {escape(hint)}", soft_wrap=True)


class _Abandoned(KeyboardInterrupt):
    """Passes through everything that handles errors, as Python's own answer to Ctrl-C does."""


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """First SIGTERM or SIGINT: set the event. Second: leave at once."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise _Abandoned
        stop.set()
        err.print("stopping after the running epoch; once more to abandon it")

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status_fields(state: Status) -> dict[str, object]:
    position = state.position
    return {
        "pipeline": state.pipeline,
        "table": state.table,
        "epoch": position.epoch if position else None,
        "offsets": position.offsets.to_dict() if position else {},
        "ends": state.held.ends.to_dict(),
        "lag": {
            topic: {str(at.partition): lag for at, lag in state.lag.items() if at.topic == topic}
            for topic in sorted(state.held.ends.topics)
        },
        "total_lag": sum(state.lag.values()),
        "read_to": position.read_to.isoformat() if position and position.read_to else None,
        "last_commit": {
            "version": position.version,
            "owner": position.owner,
            "time": position.committed_at.isoformat() if position.committed_at else None,
            "position_from": position.source,
        }
        if position
        else None,
    }


def _print_status(state: Status) -> None:
    position = state.position
    out.print(f"pipeline     {state.pipeline}")
    out.print(f"table        {escape(state.table)}", soft_wrap=True)
    if position is None:
        out.print("epoch        none yet: the first run starts at source.start")
    else:
        out.print(f"epoch        {position.epoch}" + _found_by(position.source))
        if position.committed_at:
            when = f"{position.committed_at:%Y-%m-%d %H:%M:%S} UTC"
            out.print(f"last commit  version {position.version}, {when}, by run {position.owner}", soft_wrap=True)
        if position.read_to:
            out.print(f"complete to  {position.read_to:%Y-%m-%d %H:%M:%S} UTC")
    table = Table(box=None, pad_edge=False)
    for heading in ("topic", "partition", "next", "end", "lag"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for at, lag in state.lag.items():
        stored = position.offsets.get(at) if position else None
        end = state.held.ends[at]
        table.add_row(at.topic, str(at.partition), "-" if stored is None else str(stored), str(end), f"{lag:,}")
    out.print(table)


def _found_by(source: str) -> str:
    return {
        "restored": " (the table was restored: it goes on from what was restored)",
        "cloned": " (the table is a clone: it goes on from the source's position)",
        "rows": " (the log was cleaned or holds none: found from the rows' coordinates)",
    }.get(source, "")
