"""The command ``lakelock``: its commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from connector.cli.broker import broker, demo
from connector.cli.emr import emr
from connector.cli.init import init, schema
from connector.cli.lab import lab
from connector.cli.mirror import translate
from connector.cli.notify import notify
from connector.cli.operations import accept, dead_letters, fold, maintain, recover, replay, rewind
from connector.cli.preview import preview
from connector.cli.run import check, jars, run
from connector.cli.verify import snapshot, verify
from connector.cli.watch import history, status, ui

COMMANDS: tuple[Callable[..., None], ...] = (
    run,
    check,
    preview,
    status,
    history,
    translate,
    ui,
    notify,
    verify,
    fold,
    maintain,
    recover,
    snapshot,
    dead_letters,
    rewind,
    accept,
    replay,
    init,
    schema,
    jars,
    broker,
    demo,
)
"""Each command is named after its function, with hyphens for underscores."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelock {version('lakelock')}")
        raise typer.Exit


app = typer.Typer(
    name="lakelock",
    help="Kafka topics into Delta Lake tables with Spark, every record exactly once.",
    epilog="Exit codes: 0 done; 1 failed; 2 wrong configuration, which a retry can't help; 3 fenced: another run of "
    "the pipeline took over; 4 `verify` can't know whether the table is exact.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Kafka topics into Delta Lake tables with Spark, every record exactly once."""


app.add_typer(lab)
app.add_typer(emr)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command that ``sys.argv`` names. Ends by SystemExit with its exit code, unless that is 0."""
    try:
        app()
    except SystemExit as end:
        # Databricks runs a task as a cell of IPython, which takes every exit for a failure, even one with code 0.
        if end.code:
            raise
