"""``lakelock run``, ``check`` and ``jars``: to a running pipeline."""

from __future__ import annotations

from collections.abc import Sequence
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
from connector.config import DeltaPlace, PipelineConfig
from connector.operations.status import CheckedSink, Sample
from connector.pipeline import Pipeline
from connector.telemetry.run_report import RunReport
from sinks.errors import BadRecord, JarsMissing
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
    log_format: Format = LogFormat.AUTO,
    log_level: Level = LogLevel.WARNING,
    debug: Debug = False,
) -> None:
    """Run pipelines: up to what Kafka holds now, or again and again with `trigger: {interval: ...}`.

    SIGTERM or Ctrl-C ends the run after the running epoch. A second one abandons that epoch, and nothing of it is kept.
    However a run ends, the next run goes on exactly where the table stands.

    There is no --dry-run: `lakelock check` says whether a run would work, and what it would do with a few records.

    The last line says how the run ended: done, stopped, failed, refused (a wrong configuration) or fenced.

    Several pipelines share this process and its Spark session, and otherwise each is for itself: one that fails stops
    no other. The exit code is then that of the worst end: 1 before 2, 2 before 3.
    """

    with reported(debug):
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


def check(files: Files, set_: Set, debug: Debug = False) -> None:
    """Find out whether a run would work, without touching anything: file, Kafka, table, columns, position.

    Decodes a few records of each topic, and shows three rows and what is wrong with bad records. Exit code 1 if a run
    would stop at one of them.
    """
    with reported(debug):
        each(files, set_, lambda config: _check_one(config, debug), name="check", debug=debug)


def _check_one(config: PipelineConfig, debug: bool) -> None:
    pipeline = Pipeline(config, debug=debug)
    checked = pipeline.check()
    out.print(f"file      ok: pipeline {pipeline.config.name}")
    out.print(f"kafka     ok: {', '.join(sorted(checked.next_offsets.topics))}")
    # The tables of a route are one output.
    for sink, options in zip(checked.sinks, pipeline.config.sinks, strict=pipeline.config.route is None):
        kind, place = ("table", options.address) if isinstance(options, DeltaPlace) else ("sink", sink.place)
        out.print(f"{kind:9} ok: {escape(place)} {'fits' if sink.exists else 'will be made'}", soft_wrap=True)
        out.print(f"columns   {escape(', '.join(sink.columns))}", soft_wrap=True)
        print_rules(sink)
    if pipeline.config.coordinator is not None:
        needed = "" if pipeline.config.two_phase else ": not needed, one table takes rows and offsets in one commit"
        out.print(f"log       {escape(pipeline.config.coordinator.address)}{needed}", soft_wrap=True)
    where = f"after epoch {checked.position.epoch}" if checked.position else f"at {pipeline.config.source.start}"
    out.print(f"position  {where}: next {checked.next_offsets.to_json()}", soft_wrap=True)
    out.print(f"behind    {plural(checked.behind, 'offset')}")
    if pipeline.config.notify is not None:
        out.print(f"notify    {', '.join(sorted(pipeline.config.notify.events))}: nothing was sent")
    _print_sample(checked.sample, checked.warnings)
    if checked.sample.faults and pipeline.config.on_bad_record == "fail":
        first = min(checked.sample.faults, key=lambda fault: (fault.topic, fault.partition, fault.offset))
        raise BadRecord(
            f"A run would stop at a bad record, as at {first.topic}-{first.partition}, offset {first.offset}: "
            f"{first.detail}. Nothing was touched.",
            hint="Mend the pipeline file or the producer, or set bad records aside: on_bad_record: dead_letter.",
        )


def _print_sample(sample: Sample, warnings: Sequence[str]) -> None:
    bad = sum(fault.count for fault in sample.faults)
    looked_at = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(sample.records.items()))
    out.print(f"records   {escape(looked_at) or 'none there yet'}" + (f": {bad:,} bad" if bad else ""), soft_wrap=True)
    for fault in sample.faults:
        where = f"first: {fault.topic}-{fault.partition}, offset {fault.offset}"
        out.print(f"bad       {fault.count:,}: {escape(fault.detail)} ({escape(where)})", soft_wrap=True)
    if sample.tables:
        named = ", ".join(f"{count:,} for {name}" for name, count in sample.tables.items())
        out.print(f"tables    {escape(named)}", soft_wrap=True)
    for row in sample.rows:
        out.print(f"row       {escape(row)}", soft_wrap=True)
    for warning in warnings:
        out.print(f"warning   {escape(warning)}", soft_wrap=True)


def print_rules(sink: CheckedSink) -> None:
    """Print the rules that the table itself has for its rows, a line each."""
    for rule in sink.rules:
        out.print(f"rule      {escape(rule)}", soft_wrap=True)


def jars(debug: Debug = False) -> None:
    """Fetch the jars of Spark (Kafka, Delta, S3) and of the embedded broker, with Maven, into this environment.

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
