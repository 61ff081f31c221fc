"""The page of options: it is that of the models, and tells of each option what it means."""

import re
from pathlib import Path

from connector.config import reference

PAGE = Path(__file__).parents[4] / "docs" / "options.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.page(), "make docs"


def test_every_option_has_a_kind_and_a_meaning() -> None:
    rows = [re.split(r"(?<!\\) *\| *", line)[1:-1] for line in reference.page().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    for name, kind, _, meaning in rows:
        assert kind, name
        assert meaning.endswith((".", '"')), name
