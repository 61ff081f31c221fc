"""``lakelock run``, ``check`` and ``jars``: to a running pipeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from connector.cli.console import (
    Debug,
    Files,
    Format,
    Level,
    LogFormat,
    LogLevel,
    Set,
    Shown,
    err,
    out,
    reported,
    say_line,
    stop_on_signal,
    watched_together,
)
from connector.cli.several import each, is_one, run_several
from connector.config import PipelineConfig
from connector.display import print_page
from connector.operations.checked import Checked
from connector.pipeline import Pipeline
from connector.telemetry.run_report import RunReport
from sinks.errors import BadRecord, ConfigurationError, JarsMissing
from sinks.plurals import plural


def run(
    files: Files,
    set_: Set,
    at_once: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of several pipelines: how many work at once. One per core if left out."),
    ] = None,
    max_epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="End after N epochs, whatever Kafka still holds; each of several."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write how the run ended to this file, as JSON. It is written however the run ends."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a run would do, and write nothing: `check`, and a plan.")
    ] = False,
    log_format: Format = LogFormat.AUTO,
    log_level: Level = LogLevel.WARNING,
    debug: Debug = False,
) -> None:
    """Move records from Kafka into the tables.

    Up to what Kafka holds now, or again and again with `trigger: {interval: ...}`.

    SIGTERM or Ctrl-C ends the run after the running epoch. A second one abandons that epoch, and nothing of it is kept.
    However a run ends, the next run goes on exactly where the table stands.

    --dry-run shows what `lakelock check` does, the offsets that the next epoch would read, the CREATE TABLE of a table
    that isn't there yet, and the maintenance that is due. It writes nothing, and its exit codes are those of `check`.

    The last line says how the run ended: done, stopped, failed, refused (a wrong configuration) or fenced.

    Several pipelines share this process and its Spark session, and otherwise each is for itself: one that fails stops
    no other. The exit code is then that of the worst end: 1 before 2, 2 before 3.
    """

    with reported(debug):
        if dry_run:
            _refuse_beside_dry_run(report, max_epochs)
            each(files, set_, lambda config: _rehearse_one(config, debug), name="dry run", debug=debug)
            return
        shown = partial(watched_together, log_format, log_level)
        if is_one(files):
            _run_one(files[0], set_, max_epochs, report, shown, debug)
        else:
            run_several(files, set_, at_once, max_epochs, report, shown, debug)


def _run_one(
    file: Path, set_: list[str], max_epochs: int | None, report: Path | None, shown: Shown, debug: bool
) -> None:
    with RunReport(file.name, say_line, report) as ran:
        pipeline = Pipeline.from_file(file, set_, debug=debug)
        ran.pipeline = pipeline.config.name
        with stop_on_signal() as stop, shown() as watch, watch(pipeline.config.name) as observer:
            delivered = pipeline.run(max_epochs=max_epochs, stop=stop, observers=[observer, ran])
        ran.ended(delivered, table=pipeline.config.only_table, stopped=stop.is_set())


def _refuse_beside_dry_run(report: Path | None, max_epochs: int | None) -> None:
    for option, given in {"--report": report, "--max-epochs": max_epochs}.items():
        if given is not None:
            raise ConfigurationError(
                f"{option} is for a run, and --dry-run runs nothing.", hint=f"Leave out {option} or --dry-run."
            )


def _rehearse_one(config: PipelineConfig, debug: bool) -> None:
    found = Pipeline(config, debug=debug).dry_run()
    print_page(found.page(), out)
    _refuse_bad_record(found.checked)


def check(files: Files, set_: Set, debug: Debug = False) -> None:
    """Say whether a run would work, and show a few records.

    Looks at file, Kafka, table, columns and position. Changes nothing.

    Decodes a few records of each topic, and shows three rows and what is wrong with bad records. Exit code 1 if a run
    would stop at one of them.
    """
    with reported(debug):
        each(files, set_, lambda config: _check_one(config, debug), name="check", debug=debug)


def _check_one(config: PipelineConfig, debug: bool) -> None:
    checked = Pipeline(config, debug=debug).check()
    print_page(checked.page(), out)
    _refuse_bad_record(checked)


def _refuse_bad_record(checked: Checked) -> None:
    """Raises BadRecord if a run would stop at one of those that were looked at."""
    if (first := checked.refused) is not None:
        raise BadRecord(
            f"A run would stop at a bad record, as at {first.topic}-{first.partition}, offset {first.offset}: "
            f"{first.detail}. Nothing was touched.",
            hint="Mend the pipeline file or the producer, or set bad records aside: on_bad_record: dead_letter, with "
            "dead_letters: {path: ...}.",
        )


def jars(debug: Debug = False) -> None:
    """Fetch the jars of Spark and of the broker, with Maven.

    They are those of Kafka, Delta and S3, and go into this environment.

    Also makes an archive of the classes in them (200 MB), which cuts start-up time by a third.
    """
    with reported(debug):
        from connector.spark.jars import KINDS, archive, fetch, folder
        from connector.spark.jars.built_for import installed

        pair = installed()
        for kind in KINDS:
            if kind == "s3" and not pair.conditional_writes:
                out.print(f"s3: none, as tables on S3 need Spark 4, and this is {pair.spark}", soft_wrap=True)
                continue
            fetched = fetch(kind)
            out.print(f"{kind}: {plural(len(fetched), 'jar')} in {folder(kind)}", soft_wrap=True)
        try:
            with out.status("classes: Spark is rehearsed, for a minute"):
                classes = archive.make()
        except JarsMissing as error:
            # The archive only saves time: nothing fails without it.
            err.print(f"classes: {escape(error.message)}\n{escape(error.hint)}", soft_wrap=True)
        else:
            out.print(f"classes: {classes or 'there is no Java to make the archive with'}", soft_wrap=True)
