"""Prints a page in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from connector.display.page import Grid, Line, Page, text_of

_LEAST = 8
"""Characters of a cell that has to be cut."""
_COLOURS = {"": "", "good": "green", "warning": "yellow", "bad": "red"}


def print_page(page: Page, console: Console) -> None:
    """Print the page. Text is printed as it is: nothing in it counts as markup."""
    for block in page.blocks:
        if isinstance(block, Grid) and block.cut and _needed(block) > console.width:
            for number, row in enumerate(block.rows, start=1):
                console.print(Text(f"row {number}", style="bold"))
                console.print(
                    _table(Grid(("", ""), list(zip(block.headings, row, strict=True)), cut=True), heads=False)
                )
        elif isinstance(block, Grid):
            console.print(_table(block))
        else:
            console.print(_line(block, page.labels), soft_wrap=True)


def _line(line: Line, labels: int) -> Text:
    colour = _COLOURS[line.tone]
    if not line.label:
        return Text(line.text, style=f"bold {colour}" if colour else "")
    return Text.assemble((line.label, colour), " " * max(1, labels - len(line.label)), line.text)


def _needed(grid: Grid) -> int:
    """The width in which something of every cell can be read. A table that needs more is shown row by row."""
    widest = [max([0, *(len(text_of(row[number])) for row in grid.rows)]) for number in range(len(grid.headings))]
    return sum(max(len(head), min(_LEAST, cells)) + 1 for head, cells in zip(grid.headings, widest, strict=True))


def _table(grid: Grid, *, heads: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, show_header=heads)
    for heading in grid.headings:
        table.add_column(
            Text(heading),
            justify="right" if heading in grid.right else "left",
            overflow="ellipsis" if grid.cut else "fold",
            no_wrap=grid.cut,
        )
    for row in grid.rows:
        table.add_row(*(Text(text_of(cell)) for cell in row))
    if grid.total:
        table.add_section()
        table.add_row(*(Text(text_of(cell)) for cell in grid.total), style="bold")
    return table
