"""`lakelock translate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from connector.cli.console import Debug, out, reported
from connector.config import load
from connector.mirror.translate import translate as translated


def translate(
    old: Annotated[Path, typer.Argument(help="The pipeline file as it was, with the old cluster.")],
    new: Annotated[Path, typer.Argument(help="The same file with the new cluster.")],
    output: Annotated[Path, typer.Option(help="Where the offsets are written.")] = Path("offsets.json"),
    debug: Debug = False,
) -> None:
    """Find the next offsets of a table in another cluster, to which its topics were mirrored with their timestamps.

    Of every partition the records around the place are compared in both clusters: they have to be the same, and to be
    there once. Stop all runs first, and let the mirror come to the end. Nothing is changed; then run the new file with
    `--set 'source.on_recreated_topic={translated: offsets.json}'`, once.
    """
    with reported(debug):
        # What the run would refuse of the file is refused before.
        moved = load(new, ["source.on_recreated_topic=continue"])
        found, places = translated(load(old), moved, debug=debug)
        output.write_text(found.to_json(), encoding="utf-8")
        table = Table(box=None, pad_edge=False)
        for heading in ("partition", "next offset", "in the new cluster", "records compared"):
            table.add_column(heading, justify="left" if heading == "partition" else "right")
        for each in places:
            counts = (each.offset, each.place.offset, each.place.compared)
            table.add_row(escape(f"{each.at.topic}-{each.at.partition}"), *(f"{count:,}" for count in counts))
        out.print(table)
        out.print(
            escape(f"{output}: run once with --set 'source.on_recreated_topic={{translated: {output}}}'"),
            soft_wrap=True,
        )
