"""The command ``lakelock``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from connector.cli.broker import broker, demo
from connector.cli.console import (
    Debug,
    Format,
    Json,
    Level,
    LogFormat,
    LogLevel,
    Set,
    err,
    out,
    reported,
    stop_on_signal,
    watched,
)
from connector.cli.emr import emr
from connector.cli.lab import lab
from connector.cli.mirror import translate
from connector.cli.tables import (
    letters_fields,
    print_letters,
    print_recovered,
    print_retried,
    print_rewind,
    print_upkeep,
    recovered_fields,
)
from connector.cli.watch import history, status, ui
from connector.config import DeltaPlace, load
from connector.operations.dead_letters import letter_groups, letters_place
from connector.operations.maintain import maintain as maintained
from connector.operations.rewind import Rewind
from connector.operations.snapshot import snapshot_of
from connector.pipeline import Pipeline
from connector.spark.session import session
from connector.telemetry.run_report import RunReport
from sinks.errors import ConfigurationError, JarsMissing

app = typer.Typer(
    name="lakelock",
    help="Kafka topics into Delta Lake tables with Spark, every record exactly once.",
    epilog="Exit codes: 0 done; 1 failed; 2 wrong configuration, which a retry can't help; 3 fenced: another run of "
    "the pipeline took over; 4 `verify` can't know whether the table is exact.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(lab)
app.add_typer(emr)

File = Annotated[Path, typer.Argument(help="The pipeline file (YAML); `lakelock init` writes one.")]


def main() -> None:
    try:
        app()
    except SystemExit as end:
        # Databricks runs a task as a cell of IPython, where an exit is a failure, one with code 0 too.
        if end.code:
            raise


@app.command()
def run(
    file: File,
    set_: Set,
    report: Annotated[
        Path | None, typer.Option(help="Write how the run ended to this file, as JSON, whatever ends it.")
    ] = None,
    log_format: Format = LogFormat.AUTO,
    log_level: Level = LogLevel.WARNING,
    debug: Debug = False,
) -> None:
    """Run a pipeline: up to what Kafka holds now, or again and again with `trigger: {interval: ...}`.

    SIGTERM or Ctrl-C ends it after the running epoch; a second one abandons that epoch, of which nothing is kept.
    Whatever ends a run, the next one goes on exactly where the table stands.

    The last line says how it ended: done, stopped, failed, refused (a wrong configuration) or fenced.
    """

    def say(line: str) -> None:
        out.print(escape(line), soft_wrap=True)

    with reported(debug), RunReport(file.name, say, report) as ran:
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        ran.pipeline = pipeline.config.name
        with stop_on_signal() as stop, watched(pipeline.config.name, log_format, log_level) as observer:
            delivered = pipeline.run(stop=stop, observers=[observer, ran])
        table = None if pipeline.config.two_phase else pipeline.config.sinks[0].place
        ran.ended(delivered, table=table, stopped=stop.is_set())


@app.command()
def check(file: File, set_: Set, debug: Debug = False) -> None:
    """Find out whether a run would work, without touching anything: file, Kafka, table, columns, position."""
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        found = pipeline.check()
        out.print(f"file      ok: pipeline {pipeline.config.name}")
        out.print(f"kafka     ok: {', '.join(sorted(found.next_offsets.topics))}")
        for sink, options in zip(found.sinks, pipeline.config.sinks, strict=True):
            kind = "table" if isinstance(options, DeltaPlace) else "sink"
            out.print(f"{kind:9} ok: {escape(sink.place)} {'fits' if sink.exists else 'will be made'}", soft_wrap=True)
            out.print(f"columns   {escape(', '.join(sink.columns))}", soft_wrap=True)
        if pipeline.config.coordinator is not None:
            needed = "" if pipeline.config.two_phase else ": not needed, one table takes rows and offsets in one commit"
            out.print(f"log       {escape(pipeline.config.coordinator.place)}{needed}", soft_wrap=True)
        where = f"after epoch {found.position.epoch}" if found.position else f"at {pipeline.config.source.start}"
        out.print(f"position  {where}: next {found.next_offsets.to_json()}", soft_wrap=True)
        out.print(f"behind    {found.behind:,} offsets")


app.command()(status)
app.command()(history)
app.command()(translate)
app.command()(ui)


@app.command()
def verify(
    file: File,
    set_: Set,
    json_: Json = False,
    version: Annotated[int | None, typer.Option(help="Audit this version of the table, not the newest.")] = None,
    debug: Debug = False,
) -> None:
    """Audit the table: read Kafka again and compare every row with the record that it came from. Changes nothing.

    Ends with 0 if the table holds exactly what it claims to hold, with 1 if not, and with 4 if that can't be known:
    nothing is off, but what Kafka and the table's history still hold can't show that nothing is missing.
    """
    with reported(debug):
        from connector.audit import audit, show

        config = load(file, set_)
        tables = [index for index, sink in enumerate(config.sinks) if isinstance(sink, DeltaPlace)]
        if version is not None and len(tables) > 1:
            raise ConfigurationError("--version is for pipelines with one table: each table has versions of its own.")
        if not tables:
            raise ConfigurationError("The auditor compares Delta tables with Kafka; this pipeline has none.")
        found = [
            audit(config.alone(index), version, say=lambda text: err.print(escape(text), soft_wrap=True), debug=debug)
            for index in tables
        ]
        for each in [] if json_ else found:
            show(each, out)
        left_out = [sink.place for sink in config.sinks if not isinstance(sink, DeltaPlace)]
        if left_out:
            err.print(f"not audited, as they are no tables: {escape(', '.join(left_out))}", soft_wrap=True)
        if json_:
            every = [each.to_dict() for each in found]
            whole = {"ok": all(each.ok for each in found), "tables": every, "not_audited": left_out}
            sys.stdout.write(json.dumps(whole if config.two_phase else every[0]) + "\n")
        # The worst of them: what is wrong counts more than what isn't known.
        codes = {each.verdict.exit_code for each in found}
        if codes != {0}:
            raise typer.Exit(1 if 1 in codes else max(codes))


@app.command()
def fold(file: File, set_: Set, debug: Debug = False) -> None:
    """Merge into the table what was appended with `merge: on_read`, now. A run may go on meanwhile.

    Until then `connector.read(spark, FILE)` has both. A run folds by itself, see the option `fold` of the sink.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        with watched(pipeline.config.name, LogFormat.AUTO, LogLevel.WARNING) as observer:
            folded = pipeline.fold(observers=[observer])
        if folded is None:
            out.print(f"{pipeline.config.name}: nothing to fold, the table has it all.")


@app.command()
def maintain(
    file: File,
    set_: Set,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Put small files of the pipeline's Delta tables together (OPTIMIZE), and remove unused ones (VACUUM).

    A run may go on meanwhile; rows and position stay as they are. Unused are files of versions older than the table's
    delta.deletedFileRetentionDuration (7 days, if it says nothing), and what killed runs have left: `rewind` goes back
    no further then. Of several sinks also rows and uploads that killed runs have prepared, and what the coordinator's
    log says of epochs older than 30 days. The options under `maintain` say otherwise, as `--set maintain.vacuum=false`.
    Schedule it once a day, or after some hundred epochs.
    """
    with reported(debug):
        config = load(file, set_)
        done = list(maintained(config, dry_run=dry_run, debug=debug))
        if json_:
            sys.stdout.write(json.dumps([asdict(each) for each in done]) + "\n")
        else:
            print_upkeep(config, done, dry_run=dry_run)


@app.command()
def recover(file: File, set_: Set, json_: Json = False, debug: Debug = False) -> None:
    """Settle an epoch that was left in doubt: commit it in every sink if it was decided, else throw it away.

    Every run does so first; this does nothing else. It says what each sink held, and what was done. Beside a run that
    is at work nothing is lost: that one may be replaced, and ends with exit code 3.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        recovered = pipeline.recover()
        if json_:
            sys.stdout.write(json.dumps(recovered_fields(recovered)) + "\n")
        else:
            print_recovered(pipeline.config.name, recovered)


@app.command()
def snapshot(
    file: File,
    set_: Set,
    epoch: Annotated[int | None, typer.Option(help="This epoch; if left out, the last one in all sinks.")] = None,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Say how all sinks are read as of one epoch: the SQL of each table, the objects of a bucket.

    In Python: `connector.operations.snapshot(spark, FILE)` gives their DataFrames.
    """
    with reported(debug):
        config = load(file, set_)
        with session(config.spark_options, name=f"snapshot {config.name}", s3=config.on_s3, debug=debug) as spark:
            found = snapshot_of(config, spark, epoch)
            if json_:
                fields = {
                    "pipeline": found.pipeline,
                    "epoch": found.epoch,
                    "offsets": found.offsets.to_dict(),
                    "read_to": found.read_to.isoformat() if found.read_to else None,
                    "sql": dict(found.sql),
                    "objects": {sink: list(urls) for sink, urls in found.objects.items()},
                }
                sys.stdout.write(json.dumps(fields) + "\n")
                return
            out.print(f"epoch     {found.epoch} of {found.pipeline}, next {found.offsets.to_json()}", soft_wrap=True)
            for query in found.sql.values():
                out.print(f"table     {escape(query)}", soft_wrap=True)
            for urls in found.objects.values():
                for url in urls:
                    out.print(f"object    {escape(url)}", soft_wrap=True)


@app.command("dead-letters")
def dead_letters(
    file: File,
    set_: Set,
    retry: Annotated[
        bool, typer.Option("--retry", help="Send them through the pipeline again, as the file says now.")
    ] = False,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Show the records that were set aside (`on_bad_record: dead_letter`), grouped by what is wrong with them.

    With --retry those that are right now get into the table, once, whatever crashes; the others stay, with what is
    wrong with them now. It commits an epoch of its own: a run that is at work meanwhile is replaced, and ends with 3.
    """
    with reported(debug):
        if retry:
            pipeline = Pipeline.from_file(file, set_, debug=debug)
            retried = pipeline.retry_dead_letters()
            if json_:
                sys.stdout.write(json.dumps(asdict(retried)) + "\n")
            else:
                print_retried(pipeline.config, retried)
            return
        config = load(file, set_)
        letters_place(config)
        with session(config.spark_options, name=f"letters {config.name}", s3=config.on_s3, debug=debug) as spark:
            groups = letter_groups(config, spark)
        if json_:
            sys.stdout.write(json.dumps(letters_fields(groups)) + "\n")
        else:
            print_letters(config.name, groups)


@app.command()
def rewind(
    file: File,
    set_: Set,
    to_event_time: Annotated[
        str | None, typer.Option(help="Read every record at or after this time again, as 2026-11-01T00:00:00Z.")
    ] = None,
    to_version: Annotated[int | None, typer.Option(help="Go back to this version of the table.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, it is only said what would be done.")] = False,
    debug: Debug = False,
) -> None:
    """Take a table back in time, and its pipeline with it: the next run reads what came after once more.

    By event time, as the pipeline keeps it in its commits (`event_time:` or a window's `time`; Kafka's timestamps where
    the file names none): back to the newest version without a record at or after it.
    """
    with reported(debug):
        if (to_event_time is None) == (to_version is None):
            raise ConfigurationError("Give either --to-event-time or --to-version.")
        pipeline = Pipeline.from_file(file, set_, debug=debug)

        def confirm(plan: Rewind) -> bool:
            print_rewind(plan)
            return yes

        pipeline.rewind(to_event_time=_time(to_event_time, "--to-event-time"), to_version=to_version, confirm=confirm)
        out.print("done: the next run goes on from there." if yes else "Nothing was done. Say --yes to do it.")


@app.command()
def accept(file: File, set_: Set, debug: Debug = False) -> None:
    """Go on with a table that somebody else has replaced (CREATE OR REPLACE, INSERT OVERWRITE), as it is now.

    The pipeline keeps its offsets, and reads nothing again: `rewind` and `replay` do. Writes one epoch of no records.
    """
    with reported(debug):
        position = Pipeline.from_file(file, set_, debug=debug).accept()
        out.print(f"done: epoch {position.epoch} takes the table as it is, and the next run goes on from there.")


@app.command()
def replay(
    file: File,
    set_: Set,
    into: Annotated[str, typer.Option(help="The new table: a folder or URI.")],
    since: Annotated[
        str | None,
        typer.Option("--from", help="From this time on, by Kafka's timestamps; from the earliest if left out."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to, and without, this time; to the end if left out.")] = None,
    log_format: Format = LogFormat.AUTO,
    log_level: Level = LogLevel.WARNING,
    debug: Debug = False,
) -> None:
    """Read a stretch of time into a new table, with the logic that the file has now.

    The new table has the pipeline's name and position: to swap, put its path into the file, and run. After a crash
    start the same command again: it goes on.
    """
    with reported(debug):
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        with stop_on_signal() as stop, watched(pipeline.config.name, log_format, log_level) as observer:
            delivered = pipeline.replay(
                into, since=_time(since, "--from"), until=_time(until, "--until"), stop=stop, observers=[observer]
            )
        out.print(
            f"{pipeline.config.name}: {delivered.epochs} epochs, {delivered.rows:,} rows written to {escape(into)}. "
            f"To swap, write `path: {escape(into)}` into {escape(str(file))} and run it.",
            soft_wrap=True,
        )


@app.command()
def init(
    file: Annotated[Path | None, typer.Argument(help="Where to write it; standard output if left out.")] = None,
    example: Annotated[
        str | None,
        typer.Option(help="An example instead: word_count, hourly_delays, aircraft_history or money_transfers."),
    ] = None,
) -> None:
    """Write a commented pipeline file to start from."""
    with reported(debug=False):
        examples = {each.name.removesuffix(".yaml"): each for each in files("connector").joinpath("examples").iterdir()}
        if example is not None and example not in examples:
            raise ConfigurationError(
                f"--example: there is no {example!r}.", hint=f"There are {', '.join(sorted(examples))}."
            )
        source = examples[example] if example else files("connector.cli").joinpath("pipeline.yaml")
        text = source.read_text(encoding="utf-8")
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
    """Fetch the jars of Spark (Kafka, Delta, S3) and of the embedded broker, with Maven, into this environment.

    With them an archive of the classes in them is made (200 MB): every start is a third shorter with it.
    """
    with reported(debug):
        from connector.spark.jars import KINDS, archive, fetch, folder
        from connector.spark.jars.built_for import installed

        pair = installed()
        for kind in KINDS:
            if kind == "s3" and not pair.conditional_writes:
                out.print(f"s3: none, as tables on S3 need Spark 4, and this is {pair.spark}", soft_wrap=True)
                continue
            found = fetch(kind)
            out.print(f"{kind}: {len(found)} jars in {folder(kind)}", soft_wrap=True)
        try:
            with out.status("classes: Spark is rehearsed, for a minute"):
                classes = archive.make()
        except JarsMissing as error:
            # Nothing needs it.
            err.print(f"classes: {escape(error.message)}\n{escape(error.hint)}", soft_wrap=True)
        else:
            out.print(f"classes: {classes or 'there is no Java to make the archive with'}", soft_wrap=True)


app.command()(broker)
app.command()(demo)


def _time(text: str | None, option: str) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ConfigurationError(f"{option}: write a time with its zone, as 2026-11-01T00:00:00Z, not {text!r}.")
    return time
