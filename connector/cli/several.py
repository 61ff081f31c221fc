"""What the commands do when they are given several pipelines: files, or folders with files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock

import typer
from rich.markup import escape

from connector.cli.console import Shown, out, say_error, say_line, stop_on_signal, worst
from connector.config import PipelineConfig, has_several, load
from connector.fleet.files import one_session, pipeline_files, read, without_clashes
from connector.fleet.run import Fleet, exit_code, state
from connector.telemetry.run_report import EXIT_CODES, RunReport, write
from sinks.errors import ConfigurationError, NoRecordYet
from sinks.plurals import plural

log = logging.getLogger("lakelock.report")


def is_one(files: Sequence[Path]) -> bool:
    """Whether the arguments of a command name one file."""
    return (
        len(files) == 1 and not files[0].is_dir() and not set("*?[") & set(str(files[0])) and not has_several(files[0])
    )


def run_several(
    files: Sequence[Path],
    overrides: Sequence[str],
    at_once: int | None,
    max_epochs: int | None,
    report: Path | None,
    shown: Shown,
    debug: bool,
) -> None:
    """Run all pipelines in this process. Raises typer.Exit with the exit code of the worst end."""

    writing = Lock()

    def ended(of: RunReport) -> None:
        if of.error is not None:
            say_error(of.error, of.pipeline)
        note_if_possible()

    def note_if_possible() -> None:
        try:
            note()
        except ConfigurationError as missing:  # how the run goes on, or ends, matters more
            log.warning("%s", missing.message)

    def note() -> None:
        if report is None:
            return
        with writing:
            word = state(fleet.reports)
            code = None if word == "running" else exit_code(fleet.reports)
            told = [each.to_dict() for each in fleet.reports]
            write(report, {"state": word, "exit_code": code, "pipelines": told})

    look = partial(read, overrides=overrides)
    try:
        found = look(pipeline_files(files))
    except ConfigurationError as none:
        if report is not None:
            write(report, {"state": "refused", "exit_code": none.exit_code, "pipelines": []})
        raise
    with stop_on_signal() as stop, shown() as watch:
        fleet = Fleet(
            found, watch, at_once, stop, debug=debug, max_epochs=max_epochs, look=look, say=say_line, ended=ended
        )
        note()
        try:
            fleet.run()
        except BaseException:  # Spark doesn't start, or a second signal
            note_if_possible()
            say_end(fleet.reports)
            raise
    note()
    say_end(fleet.reports)
    if code := exit_code(fleet.reports):
        raise typer.Exit(code)


def say_end(reports: Sequence[RunReport]) -> None:
    """Print the last line of all. ``emr.driver_log`` reads it."""
    states, code = [each.state for each in reports], exit_code(reports)
    counts = ", ".join(f"{states.count(word)} {word}" for word in EXIT_CODES if word in states)
    say_line(f"{plural(len(states), 'pipeline')}: {counts}" + (f"; exit code {code}." if code else "."))


def each(
    files: Sequence[Path],
    overrides: Sequence[str],
    act: Callable[[PipelineConfig], None],
    *,
    name: str,
    debug: bool,
    heading: bool = True,
) -> None:
    """Do something with each pipeline: of several one after the other, with one Spark session, each under a heading.

    A fault stops only its own. Raises typer.Exit with the worst exit code at the end, unless all are 0. That a topic
    has no record yet is said, and is no fault.
    """
    if is_one(files):
        act(load(files[0], overrides))
        return
    found, codes = without_clashes(read(pipeline_files(files), overrides)), []
    with one_session(found, name=name, debug=debug):
        for number, file in enumerate(found):
            if heading:
                out.print(
                    ("\n" if number else "") + f"[bold]{escape(file.name)}[/]  {escape(file.file)}", soft_wrap=True
                )
            try:
                act(file.usable())
            except typer.Exit as end:
                codes.append(end.exit_code)
            except NoRecordYet as nothing:  # as for a run: its table is made with the first records
                say_error(nothing, file.name if heading else "")
            except Exception as error:
                say_error(error, file.name if heading else "", debug=debug)
                codes.append(getattr(error, "exit_code", 1))
    if code := worst(codes):
        raise typer.Exit(code)
