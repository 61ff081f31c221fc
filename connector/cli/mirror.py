"""``lakelock translate``: the next offsets of a table in the cluster that its topics moved to."""

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
    old: Annotated[Path, typer.Argument(help="The old pipeline file, with the old cluster.")],
    new: Annotated[Path, typer.Argument(help="The same file with the new cluster.")],
    output: Annotated[Path, typer.Option(help="File to write the offsets to.")] = Path("offsets.json"),
    debug: Debug = False,
) -> None:
    """Find a table's next offsets in a mirrored cluster.

    Its topics were mirrored there with their timestamps.

    For every partition the command compares the records around the next offset in both clusters: they have to be the
    same, and may occur only once. Stop all runs first, and let the mirror catch up. The command changes no table. Then
    run the new file once with `--set 'source.on_recreated_topic={translated: offsets.json}'` and `--set
    trigger=available_now`.
    """
    with reported(debug):
        # Refuse now what the run would refuse later.
        moved = load(new, ["source.on_recreated_topic=continue"])
        translation, places = translated(load(old), moved, debug=debug)
        output.write_text(translation.to_json(), encoding="utf-8")
        table = Table(box=None, pad_edge=False)
        for heading in ("partition", "next offset", "in the new cluster", "records compared"):
            table.add_column(heading, justify="left" if heading == "partition" else "right")
        for translated_offset in places:
            at, place = translated_offset.at, translated_offset.place
            counts = (translated_offset.offset, place.offset, place.compared)
            table.add_row(escape(f"{at.topic}-{at.partition}"), *(f"{count:,}" for count in counts))
        out.print(table)
        out.print(
            escape(
                f"{output}: run once with --set 'source.on_recreated_topic={{translated: {output}}}' "
                "--set trigger=available_now"
            ),
            soft_wrap=True,
        )
