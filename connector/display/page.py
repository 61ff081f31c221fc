"""The parts of what is shown: lines with a label, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["", "good", "warning", "bad"]


@dataclass(frozen=True)
class Line:
    """A label and what it labels. The ``tone`` colours the label; of a line without one, the text."""

    label: str
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Bar:
    """A number in a table, which a notebook shows above a bar. ``share``: the length of the bar, from 0 to 1."""

    text: str
    share: float


Cell: TypeAlias = str | Bar


@dataclass(frozen=True)
class Grid:
    """A table. ``right``: the headings of columns with numbers. ``cut``: cut long cells off, rather than wrap them."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    right: frozenset[str] = frozenset()
    total: Sequence[Cell] = ()
    """A last row that stands apart."""
    cut: bool = False


@dataclass(frozen=True)
class Page:
    """Lines and tables, from top to bottom. ``labels``: how many characters a label gets."""

    blocks: Sequence[Line | Grid]
    labels: int = 10


def text_of(cell: Cell) -> str:
    """The text of a cell."""
    return cell.text if isinstance(cell, Bar) else cell


def cut(text: str, longest: int) -> str:
    """The text, cut to so many characters if it is longer."""
    return text if len(text) <= longest else text[: longest - 4] + " ..."
