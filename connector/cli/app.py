"""The command ``lakelock``: its commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from connector.cli.broker import broker, demo
from connector.cli.emr import emr
from connector.cli.init import init, schema
from connector.cli.lab import lab
from connector.cli.mirror import translate
from connector.cli.notify import notify
from connector.cli.operations import accept, dead_letters, fold, maintain, recover, replay, rewind
from connector.cli.package import package
from connector.cli.preview import preview
from connector.cli.run import check, jars, run
from connector.cli.verify import snapshot, verify
from connector.cli.view import view
from connector.cli.watch import history, status, ui

COMMANDS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "First steps, in this order": (init, check, preview, run, verify, ui),
    "Day by day": (status, history, dead_letters, maintain, notify, snapshot, view),
    "When something has happened": (recover, rewind, replay, accept, fold, translate),
    "For trials, and once": (package, broker, demo, jars, schema),
}
"""By heading. Each command is named after its function, with hyphens for underscores."""


class _Grouped(TyperGroup):
    """A group whose ``--help`` lists the commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        named = {heading: [each.__name__.replace("_", "-") for each in of] for heading, of in COMMANDS.items()}
        named["Groups of commands"] = [name for name in self.list_commands(ctx) if name not in chain(*named.values())]
        longest = max(len(name) for name in chain(*named.values()))
        for heading, names in named.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                        for name in names
                        if (command := self.get_command(ctx, name))
                    ]
                )


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelock {version('lakelock')}")
        raise typer.Exit


app = typer.Typer(
    name="lakelock",
    cls=_Grouped,
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
for command in chain(*COMMANDS.values()):
    app.command()(command)


def main() -> None:
    """Run the command that ``sys.argv`` names. Ends by SystemExit with its exit code, unless that is 0."""
    try:
        app()
    except SystemExit as end:
        # Databricks runs a task as a cell of IPython, which takes every exit for a failure, even one with code 0.
        if end.code:
            raise
