"""What a result shows: lines and tables, the same for a terminal, for ``repr`` and for a notebook.

A result says what it shows once, as a ``Page``. Commands print the page, and ``repr`` gives the same text. A notebook
shows it as HTML, in which every text is escaped.
"""

from __future__ import annotations

import io
import shutil

from rich.console import Console

from connector.display.html import as_html
from connector.display.page import Bar, Cell, Grid, Line, Page, Tone, cut
from connector.display.terminal import print_page

__all__ = ["Bar", "Cell", "Grid", "Line", "Page", "Shown", "Tone", "cut", "print_page"]

_WIDTH = 120
"""Where no terminal says how wide it is."""


class Shown:
    """A result that shows itself as its command prints it, and in a notebook as HTML.

    A dataclass needs ``repr=False``, or its own ``repr`` would win.
    """

    def page(self) -> Page:
        """What the result shows."""
        raise NotImplementedError

    def __repr__(self) -> str:
        width = shutil.get_terminal_size((_WIDTH, 0)).columns or _WIDTH
        text = io.StringIO()
        # By default, rich shows the text below a notebook's cell, beside the HTML, rather than write it.
        console = Console(file=text, width=width, color_system=None, highlight=False, force_jupyter=False)
        print_page(self.page(), console)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return as_html(self.page())
