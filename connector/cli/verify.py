"""``lakelock verify`` and ``snapshot``: what the sinks hold, compared with Kafka or as of one epoch. Change nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from connector.cli.console import Debug, File, Files, Json, Set, err, out, reported, worst
from connector.cli.several import each, is_one
from connector.config import DeltaPlace, PipelineConfig, load
from connector.operations.snapshot import snapshot_of
from connector.spark.session import session
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.audit.claim import At


def verify(
    files: Files,
    set_: Set,
    json_: Json = False,
    version: Annotated[
        int | None, typer.Option(help="Audit this version of the table instead of the newest one.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Audit tables: read Kafka again and compare every row with the record that it came from. Changes nothing.

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
    from connector.audit import Audit, audit, audit_routes, show
    from connector.audit.routes import audit_sinks

    def say(text: str) -> None:
        err.print(escape(text), soft_wrap=True)

    def one(alone: PipelineConfig, upto: Mapping[At, int] | None = None) -> Audit:
        return audit(alone, version, upto=upto, say=say, debug=debug)

    tables = [index for index, sink in enumerate(config.sinks) if isinstance(sink, DeltaPlace)]
    if version is not None and (len(tables) > 1 or config.route is not None):
        raise ConfigurationError("--version is for pipelines with one table: each table has versions of its own.")
    if not tables:
        raise ConfigurationError("The auditor compares Delta tables with Kafka; this pipeline has none.")
    if config.route is not None:
        audits = audit_routes(config, one, say=say, debug=debug)
    elif config.two_phase and version is None:
        audits = audit_sinks(config, one, tables, debug=debug)
    else:
        audits = [one(config.alone(index)) for index in tables]
    not_audited = [sink.place for sink in config.sinks if not isinstance(sink, DeltaPlace)]
    if not json_:
        for table_audit in audits:
            show(table_audit, out)
    if not_audited:
        err.print(f"not audited, because they are no tables: {escape(', '.join(not_audited))}", soft_wrap=True)
    if json_:
        fields = [table_audit.to_dict() for table_audit in audits]
        ok = all(table_audit.ok for table_audit in audits)
        whole = {"ok": ok, "tables": fields, "not_audited": not_audited}
        sys.stdout.write(json.dumps(whole if config.two_phase else fields[0]) + "\n")
    # The worst of them: what is wrong counts more than what isn't known.
    if code := worst(table_audit.verdict.exit_code for table_audit in audits):
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
    """Say how to read all sinks as of one epoch: the SQL of each table, the objects of a bucket.

    In Python: `connector.operations.snapshot(spark, FILE)` gives their DataFrames.
    """
    with reported(debug):
        config = load(file, set_)
        with session(config.spark_options, name=f"snapshot {config.name}", s3=config.on_s3, debug=debug) as spark:
            consistent = snapshot_of(config, spark, epoch)
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
                return
            next_offsets = consistent.offsets.to_json()
            out.print(f"epoch     {consistent.epoch} of {consistent.pipeline}, next {next_offsets}", soft_wrap=True)
            for query in consistent.sql.values():
                out.print(f"table     {escape(query)}", soft_wrap=True)
            for urls in consistent.objects.values():
                for url in urls:
                    out.print(f"object    {escape(url)}", soft_wrap=True)
