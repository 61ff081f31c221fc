"""Texts that were reviewed as a whole, each in a file: a change shows as a diff, to be reviewed again.

After an intended change run the tests with ``LAKELOCK_WRITE_GOLDEN=1``, and review the diff of the files.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from sinks.errors import LakelockError

WRITE = "LAKELOCK_WRITE_GOLDEN"
ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"


def assert_golden(name: str, text: str) -> None:
    """``name``: the file's, in the folder golden."""
    file = GOLDEN / name
    if os.environ.get(WRITE):
        file.write_text(text, encoding="utf-8")
    reviewed = file.read_text(encoding="utf-8") if file.exists() else ""
    if text == reviewed:
        return
    path = file.relative_to(ROOT)
    diff = difflib.unified_diff(reviewed.splitlines(), text.splitlines(), f"{path} (reviewed)", "produced", lineterm="")
    pytest.fail(
        "\n".join(diff)
        + f"\n\nThis is not the text of {name} that was reviewed. If it is meant to change, write the files again and "
        f"review their diff:\n  {WRITE}=1 make test",
        pytrace=False,
    )


def assert_told(name: str, told: LakelockError | str, **places: object) -> None:
    """What a user reads. ``places``: what is another one in each test, by the name that stands for it in the file."""
    text = told if isinstance(told, str) else f"{told.message}\n\nhint: {told.hint}"
    for name_of_place, place in places.items():
        text = text.replace(str(place), f"<{name_of_place}>")
    assert_golden(f"told/{name}.txt", f"{text.rstrip()}\n")
