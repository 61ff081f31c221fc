"""The style that web pages and notebooks share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
"""The style sheet, and the icon."""
TEMPLATES = Path(__file__).parent / "templates"
"""The layout of a page, and the drawing of a chart."""


@cache
def style() -> str:
    """The style sheet."""
    return (STATIC / "style.css").read_text(encoding="utf-8")


@cache
def colours(*, dark: bool = False) -> Mapping[str, str]:
    """The colours of the style sheet by name, such as ``good-ink``: on a light background, or on a ``dark`` one."""
    light, other = style().split("@media (prefers-color-scheme:dark)")[:2]
    found: list[tuple[str, str]] = re.findall(r"--([\w-]+):(#\w+)", light)
    return {**dict(found), **dict(re.findall(r"--([\w-]+):(#\w+)", other))} if dark else dict(found)
