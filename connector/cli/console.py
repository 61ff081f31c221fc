"""How a command speaks, stops and ends: one paragraph and an exit code for an error, a signal for the end of a run."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from connector.protocol.steps import Observer
from connector.telemetry.json_lines import configure, json_lines
from connector.telemetry.progress import progress
from sinks.errors import LakelockError


class LogFormat(str, Enum):
    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


File = Annotated[Path, typer.Argument(help="The pipeline file (YAML); `lakelock init` writes one.")]
Format = Annotated[
    LogFormat, typer.Option("--log-format", help="How progress is told; auto: text on a terminal, else JSON lines.")
]
Level = Annotated[
    LogLevel, typer.Option("--log-level", help="Of Lakelock's own log; Spark's is silent without --debug.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces, and Spark's own log.")]

Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        default_factory=list,
        show_default=False,
        metavar="OPTION=VALUE",
        help="Change an option of the file, as sinks[0].path=s3a://lake/t; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]

# Wide where it isn't a terminal: a table that is cut in a log helps nobody.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Errors as one clear paragraph and an exit code; with ``--debug`` as Python shows them."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
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
def watched(pipeline: str, format_: LogFormat, level: LogLevel) -> Iterator[Observer]:
    """An observer that shows a run, for the block: to a person, or as lines for a program."""
    as_json = format_ is LogFormat.JSON or (format_ is LogFormat.AUTO and not err.is_terminal)

    def say(line: str) -> None:
        if as_json:
            print(line, file=sys.stderr, flush=True)
        else:
            err.print(escape(line), soft_wrap=True)

    configure(level.value, as_json=as_json, say=say)
    with json_lines(say, pipeline) if as_json else progress(err, pipeline) as observer:
        yield observer


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
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
