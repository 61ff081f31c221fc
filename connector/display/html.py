"""A page as HTML, for notebooks. Styles stand in the elements, as some notebooks are shown without a style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from connector.display.page import Bar, Cell, Grid, Line, Page, Tone, text_of
from connector.display.style import colours

_WHOLE = 24
"""The most characters of a cell that isn't broken into lines: a time, or the version of a commit."""


def as_html(page: Page) -> str:
    """The page as one element."""
    return f'<div class="lakelock">{"".join(_block(block) for block in page.blocks)}</div>'


def _block(block: Line | Grid) -> str:
    if isinstance(block, Grid):
        return _table(block)
    if not block.label:
        style = f"font-weight:bold;{_badge(block.tone)}" if block.tone else ""
        return f'<div><span style="{style}">{escape(block.text)}</span></div>'
    label = f'<span style="{_badge(block.tone)}">{escape(block.label)}</span>'
    label = f'<span style="flex:none;min-width:7em;padding-right:.5em">{label}</span>'
    text = f'<span style="overflow-wrap:anywhere">{escape(block.text)}</span>'
    return f'<div style="display:flex">{label}{text}</div>'


def _badge(tone: Tone) -> str:
    """The style of a word with this tone. It brings its background, as the notebook may be light or dark."""
    if not tone:
        return ""
    return f"background:{colours()[tone]};color:{colours()[f'{tone}-ink']};padding:0 6px;border-radius:6px"


def _table(grid: Grid) -> str:
    heads = "".join(f'<th style="{_align(heading, grid)}">{escape(heading)}</th>' for heading in grid.headings)
    rows = "".join(_row(row, grid, "td") for row in grid.rows)
    total = _row(grid.total, grid, "th") if grid.total else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}{total}</tbody></table>"


def _row(row: Sequence[Cell], grid: Grid, element: str) -> str:
    cells = zip(grid.headings, row, strict=True)
    return f"<tr>{''.join(_cell(cell, _align(heading, grid), element) for heading, cell in cells)}</tr>"


def _cell(cell: Cell, align: str, element: str) -> str:
    text = escape(text_of(cell)).replace("\n", "<br>")
    if isinstance(cell, Bar):
        width = 100 * min(1.0, max(0.0, cell.share))
        bar = f'<div style="height:4px;width:{width:.0f}%;background:{colours()["part-a"]}"></div>'
        text += f'<div style="height:4px;min-width:5em">{bar}</div>'
    whole = ";white-space:nowrap" if len(text_of(cell)) <= _WHOLE else ""
    return f'<{element} style="{align}{whole}">{text}</{element}>'


def _align(heading: str, grid: Grid) -> str:
    return "text-align:right" if heading in grid.right else "text-align:left"
