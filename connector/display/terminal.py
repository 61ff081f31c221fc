"""Prints a page in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from connector.display.page import Grid, Line, Page, text_of

_LEAST = 8
"""Characters of a cell that has to be cut."""
_BETWEEN = 2
"""Blanks between two columns."""
_COLOURS = {"": "", "good": "green", "warning": "yellow", "bad": "red"}


def print_page(page: Page, console: Console) -> None:
    """Print the page. Text is printed as it is: nothing in it counts as markup."""
    for block in page.blocks:
        if not isinstance(block, Grid):
            console.print(_line(block, page.labels), soft_wrap=True)
        elif not block.cut:
            console.print(_table(block))
        elif widths := _widths(block, console.width):
            console.print(_table(block, widths))
        else:
            _print_row_by_row(block, console)


def _print_row_by_row(grid: Grid, console: Console) -> None:
    """A line for each cell, where a table would be too wide to read."""
    for number, row in enumerate(grid.rows, start=1):
        console.print(Text(f"row {number}", style="bold"))
        cells = Grid(("", ""), list(zip(grid.headings, row, strict=True)), cut=True)
        console.print(_table(cells, _widths(cells, console.width), heads=False))


def _widths(grid: Grid, width: int) -> Sequence[int]:
    """The widths of the columns, of which the widest are cut to the same. Empty: too little of them would be left."""
    rows = [grid.headings, *grid.rows]
    wanted = [max(cell_len(text_of(row[number])) for row in rows) for number in range(len(grid.headings))]
    left = width - _BETWEEN * (len(wanted) - 1)
    cap = 0
    for number, column in enumerate(sorted(wanted)):
        cap = left // (len(wanted) - number)
        if column > cap:
            break
        left, cap = left - column, column
    return [min(column, cap) for column in wanted] if cap >= min(_LEAST, max(wanted)) else []


def _line(line: Line, labels: int) -> Text:
    colour = _COLOURS[line.tone]
    if not line.label:
        return Text(line.text, style=f"bold {colour}" if colour else "")
    return Text.assemble((line.label, colour), " " * max(1, labels - len(line.label)), line.text)


def _table(grid: Grid, widths: Sequence[int] = (), *, heads: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, show_header=heads)
    for number, heading in enumerate(grid.headings):
        table.add_column(
            Text(heading),
            justify="right" if heading in grid.right else "left",
            overflow="ellipsis" if grid.cut else "fold",
            no_wrap=grid.cut,
            width=widths[number] if widths else None,
        )
    for row in grid.rows:
        table.add_row(*(Text(text_of(cell)) for cell in row))
    if grid.total:
        table.add_section()
        table.add_row(*(Text(text_of(cell)) for cell in grid.total), style="bold")
    return table
