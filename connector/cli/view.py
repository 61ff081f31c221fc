"""``lakelock view``: the view that shows the current rows of a table merged on read."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from connector.cli.console import Debug, File, Set, err, out, reported
from connector.pipeline import Pipeline

_AGAIN = (
    "Make this view again after a DELETE, UPDATE or MERGE of your own in the table, else it may show those rows as "
    "they were; also if the table has got a column, was made anew or set back, or the sink has other options."
)


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
    epoch. The view stays right whatever is appended and folded. Make it again when the table has got a column, when you
    have deleted or changed rows of the table yourself, and when the table was made anew.
    """
    with reported(debug):
        statement = Pipeline.from_file(file, set_, debug=debug).view(name, create=create)
        if create:
            out.print("done: the view shows the current rows.")
        else:
            sys.stdout.write(f"{statement};\n")
        if name is not None:  # the one that is called after the table is renewed by each run
            err.print(_AGAIN, soft_wrap=True)
