"""What all commands share: their options, how they print, report errors, and stop on a signal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.traceback import Traceback

from connector.protocol.steps import Observer
from connector.telemetry.json_lines import configure, json_lines
from connector.telemetry.progress import Watch, progress
from sinks.errors import ConfigurationError, LakelockError
from sinks.s3.client import bucket_and_prefix


class LogFormat(str, Enum):
    """The values of ``--log-format``."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """The values of ``--log-level``."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


File = Annotated[Path, typer.Argument(help="The pipeline file (YAML); `lakelock init` writes one.")]
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE|FOLDER...", help="Pipeline files (YAML), and folders with pipeline files."),
]
Format = Annotated[
    LogFormat, typer.Option("--log-format", help="How progress is printed; auto: text on a terminal, else JSON lines.")
]
Level = Annotated[
    LogLevel, typer.Option("--log-level", help="Level of Lakelock's own log; Spark's log is silent without --debug.")
]
Shown = Callable[[], AbstractContextManager[Watch]]
"""Begins to show runs as the command's options say."""

Debug = Annotated[bool, typer.Option("--debug", help="Show stack traces, and Spark's own log.")]

Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        default_factory=list,
        show_default=False,
        metavar="OPTION=VALUE",
        help="Change an option of the file, for example sinks[0].path=s3a://lake/t; repeatable. Relative paths belong "
        "to the file's folder.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]

# Wide outside a terminal: a table that is cut off in a log helps nobody.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Report an error as one clear paragraph, and end the command with its exit code.

    With ``debug`` the stack trace comes first. Raises typer.Exit instead of every error.
    """
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    if debug:
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("kafka").setLevel(logging.WARNING)
    try:
        yield
    except LakelockError as error:
        say_error(error, debug=debug)
        raise typer.Exit(error.exit_code) from None
    except _Abandoned:
        _say(
            "stopped",
            "The running epoch was abandoned after a second signal.",
            "The table holds the epoch as a whole or not at all. The next run finds out, and goes on.",
        )
        raise typer.Exit(1) from None
    except typer.Exit:
        raise
    except Exception as error:
        say_error(error, debug=debug)
        raise typer.Exit(1) from None


def say_line(line: str) -> None:
    """Print a line of the command's own output, as it is."""
    out.print(escape(line), soft_wrap=True)


def pairs(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """What a repeated option says as ``NAME=VALUE``. Raises ConfigurationError, which names the option."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{option}: write NAME=VALUE, as in {example}, not {text!r}.")
        found[name] = value
    return found


def s3_url(url: str, option: str) -> str:
    """An option's URL as s3://, without a slash at the end. Raises ConfigurationError, which names the option."""
    try:
        bucket, prefix = bucket_and_prefix(url)
    except ConfigurationError:
        raise ConfigurationError(f"{option}: write s3://bucket/path, not {url!r}.") from None
    return f"s3://{bucket}/{prefix}".rstrip("/")


_WORST_FIRST = (1, 2, 3, 4)
"""Failed, refused, fenced, unknown. Whoever tolerates 4, by which nothing is wrong, doesn't pass over a refusal."""


def worst(codes: Iterable[int]) -> int:
    """The exit code of several: 1 before all others, what is wrong before what isn't known. 0 if there is none."""
    found = set(codes)
    return next((code for code in _WORST_FIRST if code in found), max(found, default=0))


def say_error(error: BaseException, pipeline: str = "", *, debug: bool = False) -> None:
    """Print an error as one paragraph, and what to do. ``pipeline``: of which of several pipelines it is; ``debug``:
    whether to print its stack trace before."""
    if debug:
        err.print(Traceback.from_exception(type(error), error, error.__traceback__))
    of = f"{pipeline}: " if pipeline else ""
    if isinstance(error, LakelockError):
        if Path(error.message.partition(" ")[0].rstrip(",:")).name == pipeline:
            of = ""  # the error of a file begins with its path
        _say("error", f"{of}{error.message}", error.hint)
        return
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    _say(
        "error",
        of + " ".join([f"{type(error).__name__}:", *lines[:2], *causes[-1:]])[:1000],
        "Lakelock doesn't know this error. Run the command again with --debug to see all of it. The table holds "
        "whole epochs only: the next run goes on where the table stands.",
    )


def _say(what: str, message: str, hint: str) -> None:
    err.print(f"[bold red]{what}[/]: {escape(message)}", soft_wrap=True)
    if hint:
        err.print(f"[bold]what to do[/]: {escape(hint)}", soft_wrap=True)


class _Abandoned(KeyboardInterrupt):
    """A second signal. Derived from KeyboardInterrupt, so that no handler of errors catches it."""


@contextmanager
def watched(pipeline: str, format_: LogFormat, level: LogLevel) -> Iterator[Observer]:
    """An observer that shows a run within the ``with`` block: to a person, or as JSON lines for a program."""
    with watched_together(format_, level) as watch, watch(pipeline) as observer:
        yield observer


@contextmanager
def watched_together(format_: LogFormat, level: LogLevel) -> Iterator[Watch]:
    """The same for several pipelines at once."""
    as_json = format_ is LogFormat.JSON or (format_ is LogFormat.AUTO and not err.is_terminal)

    def say(line: str) -> None:
        if as_json:
            print(line, file=sys.stderr, flush=True)
        else:
            err.print(escape(line), soft_wrap=True)

    configure(level.value, as_json=as_json, say=say)
    if as_json:
        yield partial(json_lines, say)
        return
    with progress(err) as watch:
        yield watch


@contextmanager
def stop_on_signal(
    says: str = "stopping after the running epoch; a second signal abandons it",
) -> Iterator[threading.Event]:
    """An event that the first SIGTERM or SIGINT sets. A second signal ends the command at once.

    ``says``: what the first one prints.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise _Abandoned
        stop.set()
        err.print(says)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
