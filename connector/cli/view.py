"""``lakelock view``: the view that shows the current rows of a table merged on read."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from connector.cli.console import Debug, File, Set, out, reported
from connector.pipeline import Pipeline


def view(
    file: File,
    set_: Set,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="[CATALOG.][SCHEMA.]VIEW",
            help="The view's name. If left out, the table's name with `_live` behind it.",
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the view in the session's catalog.")] = False,
    debug: Debug = False,
) -> None:
    """Print the SQL of a view of the current rows; --create runs it.

    For a sink with `merge: on_read`.

    Whoever reads the table itself sees the rows as of its last fold. Whoever reads the view sees those of the last
    epoch. The view stays right whatever is appended and folded. Make it again when the table has got a column.
    """
    with reported(debug):
        statement = Pipeline.from_file(file, set_, debug=debug).view(name, create=create)
        if create:
            out.print("done: the view shows the current rows.")
        else:
            sys.stdout.write(f"{statement};\n")
