"""The commands for operators that change a pipeline's sinks between two epochs, from ``fold`` to ``replay``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from connector.cli.console import (
    Debug,
    File,
    Files,
    Format,
    Json,
    Level,
    LogFormat,
    LogLevel,
    Set,
    out,
    reported,
    say_error,
    say_line,
    stop_on_signal,
    watched,
    worst,
)
from connector.cli.several import each
from connector.cli.tables import (
    letters_fields,
    print_recovered,
    recovered_fields,
)
from connector.config import PipelineConfig, file_and_part, has_several
from connector.display import print_page
from connector.fleet.files import read
from connector.fleet.rewind import replay_all, rewind_all
from connector.operations.maintain import maintain as maintain_all
from connector.operations.replay import new_places, old_tables
from connector.operations.rewind import Rewind
from connector.pipeline import Pipeline
from sinks.errors import ConfigurationError
from sinks.plurals import plural


def fold(file: File, set_: Set, debug: Debug = False) -> None:
    """Merge the change log of `merge: on_read` into its table now.

    A run may go on meanwhile.

    Before the merge, `connector.read(spark, FILE)` reads both together. A run folds by itself: see the option `fold` of
    the sink.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        with watched(pipeline.config.name, LogFormat.AUTO, LogLevel.WARNING) as observer:
            folded = pipeline.fold(observers=[observer])
        if folded is None:
            out.print(f"{pipeline.config.name}: nothing to fold, the table has it all.")


def maintain(
    files: Files,
    set_: Set,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done; change nothing.")] = False,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Compact small files of the tables, and remove unused ones.

    That is OPTIMIZE and VACUUM of Delta.

    A run may go on meanwhile; rows and position stay as they are. A file is unused when only versions older than the
    table's delta.deletedFileRetentionDuration need it (7 days if not set), or when a killed run left it. `rewind` can't
    go back further than that afterwards. With several sinks the command also removes rows and uploads that killed runs
    prepared, and entries of the coordinator log older than 30 days. The options under `maintain` change this, as in
    `--set maintain.vacuum=false`. Schedule the command once a day, or after some hundred epochs.
    """
    with reported(debug):

        def act(config: PipelineConfig) -> None:
            done = maintain_all(config, dry_run=dry_run, debug=debug)
            if json_:
                sys.stdout.write(json.dumps([asdict(one) for one in done]) + "\n")
            else:
                print_page(done.page(), out)
            for place, error in done.failed.items():
                say_error(error, place, debug=debug)
            if done.failed:
                raise typer.Exit(worst(getattr(error, "exit_code", 1) for error in done.failed.values()))

        each(files, set_, act, name="maintain", debug=debug, heading=not json_)


def recover(file: File, set_: Set, json_: Json = False, debug: Debug = False) -> None:
    """Settle an epoch that a crash left in doubt.

    It is committed in every sink if it was decided, else thrown away.

    Every run starts with this step; this command does only this step. It says what each sink held, and what was done.
    It is safe while a run is at work: nothing is lost, but that run may be fenced, and then ends with exit code 3.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        recovered = pipeline.recover()
        if json_:
            sys.stdout.write(json.dumps(recovered_fields(recovered)) + "\n")
        else:
            print_recovered(pipeline.config.name, recovered)


def dead_letters(
    file: File,
    set_: Set,
    retry: Annotated[
        bool, typer.Option("--retry", help="Send them through the pipeline again, with the file's present options.")
    ] = False,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Show the records that were set aside, or --retry them.

    Needs `on_bad_record: dead_letter`. Groups them by what is wrong with them.

    With --retry, the records that are valid now get into the table exactly once, even after a crash. The others stay
    dead letters, with what is wrong with them now. The retry commits an epoch of its own: a run that is at work
    meanwhile is fenced, and ends with exit code 3.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        if retry:
            retried = pipeline.retry_dead_letters()
            if json_:
                sys.stdout.write(json.dumps(asdict(retried)) + "\n")
            else:
                print_page(retried.page(), out)
            return
        groups = pipeline.dead_letters()
        if json_:
            sys.stdout.write(json.dumps(letters_fields(groups)) + "\n")
        else:
            print_page(groups.page(), out)


def rewind(
    file: File,
    set_: Set,
    to_event_time: Annotated[
        str | None,
        typer.Option(help="Read every record at or after this time again, for example 2026-11-01T00:00:00Z."),
    ] = None,
    to_epoch: Annotated[int | None, typer.Option(help="Go back to this epoch, also with several tables.")] = None,
    to_version: Annotated[int | None, typer.Option(help="Go back to this version of the only table.")] = None,
    allow_data_loss: Annotated[
        bool,
        typer.Option("--allow-data-loss", help="Also if Kafka no longer holds, or may have compacted, what is lost."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without --yes the command only says what it would do.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Take a pipeline back in time, with all of its tables.

    The next run reads what came after once more.

    Several tables go back together, or none does. If the command is killed, the next run, or the same command again,
    takes the other tables back before anything else.

    --to-event-time goes back to the newest version that has no record at or after that time. The pipeline keeps event
    times in its commits: those of `event_time:` or of a window's `time`, or Kafka's timestamps if the file names
    neither.
    """
    with reported(debug):
        if [to_event_time, to_version, to_epoch].count(None) != 2:
            raise ConfigurationError("Give one of --to-event-time, --to-epoch and --to-version.")
        time = time_of(to_event_time, "--to-event-time")
        if has_several(file):
            _rewind_all(file, set_, time, allow_data_loss=allow_data_loss, yes=yes, debug=debug)
            return
        pipeline = Pipeline.from_file(file, set_, debug=debug)

        def confirm(plan: Rewind) -> bool:
            print_page(plan.page(), out)
            return yes

        pipeline.rewind(
            to_event_time=time,
            to_version=to_version,
            to_epoch=to_epoch,
            allow_data_loss=allow_data_loss,
            confirm=confirm,
        )
        _say_done(yes=yes)


def _say_done(*, yes: bool) -> None:
    out.print("done: the next run goes on from there." if yes else "Nothing was done. Say --yes to do it.")


def _rewind_all(
    file: Path, set_: Sequence[str], time: datetime | None, *, allow_data_loss: bool, yes: bool, debug: bool
) -> None:
    """Take all pipelines of a file back."""
    if time is None:
        raise ConfigurationError(
            f"{file} has several pipelines, and each has epochs and versions of its own.",
            hint=f"Give --to-event-time, which goes for all of them; or name one: '{file}#PART'.",
        )

    def confirm(plans: Mapping[str, Rewind]) -> bool:
        for name, plan in plans.items():
            out.print(f"[bold]{escape(name)}[/]")
            print_page(plan.page(), out)
        return yes

    rewind_all(read([file], set_), time, confirm=confirm, allow_data_loss=allow_data_loss, debug=debug)
    _say_done(yes=yes)


def accept(file: File, set_: Set, debug: Debug = False) -> None:
    """Go on with a table that somebody else has replaced.

    That is one after CREATE OR REPLACE or INSERT OVERWRITE; or the topic of a kafka_topic sink that was deleted and
    created again. It is taken as it is now.

    The pipeline keeps its offsets and reads nothing again; use `rewind` or `replay` for that. Writes one epoch without
    records.
    """
    with reported(debug):
        position = Pipeline.from_file(file, set_, debug=debug).accept()
        out.print(f"done: epoch {position.epoch} takes the table as it is, and the next run goes on from there.")


def replay(
    file: File,
    set_: Set,
    into: Annotated[
        str, typer.Option(help="Path of the new table, or of a folder for several: relative to the file, or a URI.")
    ],
    since: Annotated[
        str | None,
        typer.Option("--from", help="Start at this time, by Kafka's timestamps; at the earliest record if left out."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="End before this time; at the end of the topic if left out.")
    ] = None,
    log_format: Format = LogFormat.AUTO,
    log_level: Level = LogLevel.WARNING,
    debug: Debug = False,
) -> None:
    """Read a stretch of time into a new table, or into new tables.

    With the logic that the file has now.

    The new tables have the pipeline's name and position: to swap tables, put the new paths into the file, and run.
    After a crash, or a signal, start the same command again: it goes on where it stopped. A replay that a signal ends
    before its end has exit code 1. Of several tables, each gets a folder in --into, and so does a new coordinator log.
    """
    with reported(debug), stop_on_signal() as stop:
        begin, end = time_of(since, "--from"), time_of(until, "--until")
        codes: list[int] = []

        def replayed(pipeline: Pipeline, path: str) -> None:
            name = pipeline.config.name
            if stop.is_set():
                codes.append(1)
                say_line(f"{name}: stopped before it began; the same command goes on.")
                return
            with watched(name, log_format, log_level) as observer:
                done = pipeline.replay(path, since=begin, until=end, stop=stop, observers=[observer])
            written = f"{plural(done.epochs, 'epoch')}, {plural(done.rows, 'row')} written to {path}."
            if stop.is_set() and done.behind != 0:
                codes.append(1)
                behind = f", {plural(done.behind, 'offset')} behind" if done.behind is not None else ""
                say_line(f"{name}: stopped{behind}; the same command goes on. {written}")
            elif done.position is None:  # a topic without a record, whose schema is inferred
                say_line(f"{name}: there is nothing to replay yet: no epoch was written to {path}.")
            else:
                say_line(f"{name}: {written} {_swap(pipeline.config, path, file)}")

        def failed(name: str, error: Exception) -> None:
            say_error(error, name, debug=debug)
            codes.append(getattr(error, "exit_code", 1))

        if has_several(file):
            replay_all(read([file], set_), into, replayed, failed=failed, debug=debug)
        else:
            replayed(Pipeline.from_file(file, set_, debug=debug), into)
        if codes:
            # Not 0, as a stopped run has: a script must not put half of a table in the old one's place.
            raise typer.Exit(worst(codes))


def _swap(config: PipelineConfig, path: str, file: Path) -> str:
    """What to write into the file so that its next run goes on with the new tables."""
    places = [f"`{option}: {place}`" for option, place in new_places(config, path).items()]
    tables = " and ".join(f"`{option}`" for option in old_tables(config))
    instead = f", take {tables} out of it," if tables else ""
    return f"To swap, write {' and '.join(places)} into {file_and_part(file)[0]}{instead} and run it."


def time_of(text: str | None, option: str) -> datetime | None:
    """The time that an option gives; None where it is left out. Raises ConfigurationError for a time without zone."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ConfigurationError(f"{option}: write a time with its zone, as 2026-11-01T00:00:00Z, not {text!r}.")
    return time
