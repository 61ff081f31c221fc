"""Prints a page in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from connector.display.page import Grid, Line, Page, text_of

_COLOURS = {"": "", "good": "green", "warning": "yellow", "bad": "red"}


def print_page(page: Page, console: Console) -> None:
    """Print the page. Text is printed as it is: nothing in it counts as markup."""
    for block in page.blocks:
        if isinstance(block, Grid):
            console.print(_table(block))
        else:
            console.print(_line(block, page.labels), soft_wrap=True)


def _line(line: Line, labels: int) -> Text:
    colour = _COLOURS[line.tone]
    if not line.label:
        return Text(line.text, style=f"bold {colour}" if colour else "")
    return Text.assemble((line.label, colour), " " * max(1, labels - len(line.label)), line.text)


def _table(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False)
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
