"""``lakelock verify`` and ``snapshot``: what the sinks hold, compared with Kafka or as of one epoch. Change nothing."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.markup import escape

from connector.cli.console import Debug, File, Files, Json, Set, err, out, reported, say_error
from connector.cli.several import each, is_one
from connector.config import PipelineConfig
from connector.display import print_page
from connector.pipeline import Pipeline
from sinks.errors import ConfigurationError


def verify(
    files: Files,
    set_: Set,
    json_: Json = False,
    version: Annotated[
        int | None, typer.Option(help="Audit this version of the table instead of the newest one.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Audit: is every record in the table, once and right?

    Reads Kafka again, and compares every row with the record that it came from. Changes nothing.

    Ends with 0 if a table holds exactly what it claims to hold, and with 1 if it doesn't. Ends with 4 if nobody can
    know: nothing is wrong, but what Kafka and the table's history still hold can't show that nothing is missing.
    """
    with reported(debug):
        if version is not None and not is_one(files):
            raise ConfigurationError("--version is for one pipeline: each table has versions of its own.")
        each(
            files, set_, lambda config: _verify_one(config, version, json_=json_, debug=debug),
            name="verify", debug=debug, heading=not json_,
        )  # fmt: skip


def _verify_one(config: PipelineConfig, version: int | None, *, json_: bool, debug: bool) -> None:
    def say(text: str) -> None:
        err.print(escape(text), soft_wrap=True)

    found = Pipeline(config, debug=debug).verify(version, say=say)
    if not json_:
        for table in found.tables:
            print_page(table.page(), out)
    if found.not_audited:
        say(f"not audited, because they are no tables: {', '.join(found.not_audited)}")
    for place, error in found.failed.items():
        say_error(error, place, debug=debug)
    if json_:
        fields = found.to_dict() if config.two_phase else found.tables[0].to_dict()
        sys.stdout.write(json.dumps(fields) + "\n")
    if code := found.exit_code:
        raise typer.Exit(code)


def snapshot(
    file: File,
    set_: Set,
    epoch: Annotated[
        int | None, typer.Option(help="Read as of this epoch; the last one that all sinks hold if left out.")
    ] = None,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Say how to read all sinks as of one epoch.

    That is the SQL of each table, and the objects of a bucket.

    In Python: `lakelock.snapshot(spark, FILE)` gives their DataFrames.
    """
    with reported(debug):
        consistent = Pipeline.from_file(file, set_, debug=debug).snapshot(epoch)
        if json_:
            fields = {
                "pipeline": consistent.pipeline,
                "epoch": consistent.epoch,
                "offsets": consistent.offsets.to_dict(),
                "read_to": consistent.read_to.isoformat() if consistent.read_to else None,
                "sql": dict(consistent.sql),
                "objects": {sink: list(urls) for sink, urls in consistent.objects.items()},
            }
            sys.stdout.write(json.dumps(fields) + "\n")
        else:
            print_page(consistent.page(), out)
