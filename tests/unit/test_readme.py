"""What the README and the page of guarantees say of the project is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
TESTS = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", README + GUARANTEES))))
def test_every_promise_names_a_test_that_exists(name: str) -> None:
    assert f"def {name}(" in TESTS


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_map_names_every_module() -> None:
    start = README.index("## Where things are")
    shown = README[start : README.index("```", README.index("```", start) + 3)]
    for package in ("sinks", "connector"):
        for file in (ROOT / package).rglob("*.py"):
            in_a_folder = file.parent.name != package and f"{file.parent.name}/" in shown
            if not file.name.startswith("__"):
                assert re.search(rf"(^|\s){re.escape(file.name)}\b", shown) or in_a_folder, file
