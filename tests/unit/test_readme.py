"""What the README and the page of guarantees say of the project is there."""

import ast
import re
from pathlib import Path

import pytest
from suites import CAMPAIGNS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SOURCES = [ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "tests").rglob("*.py")]
TESTS = {
    node.name: node
    for source in SOURCES
    for node in ast.walk(source)
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
PROMISES = {
    row.strip("| ")[:100]: re.findall(r"`(test_\w+)`", row)
    for row in (README + GUARANTEES).splitlines()
    if row.startswith("|") and "`test_" in row
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", README + GUARANTEES))))
def test_every_promise_names_a_test_that_exists(name: str) -> None:
    assert name in TESTS


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_shown_by_make_test_too(promise: str) -> None:
    assert [name for name in PROMISES[promise] if not in_campaigns_only(TESTS[name])]


def in_campaigns_only(test: ast.FunctionDef) -> bool:
    """Whether it is marked as a whole: where only some of its parameters are, the others run in `make test`."""
    marks = {decorator.attr for decorator in test.decorator_list if isinstance(decorator, ast.Attribute)}
    return bool(marks & CAMPAIGNS.keys())


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^):#]+)\)", README))))
def test_every_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_map_names_every_folder() -> None:
    map_ = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in ("sinks", "connector"):
        for folder in (ROOT / package).iterdir():
            if folder.is_dir() and not folder.name.startswith("__"):
                assert f"| `{folder.name}/` |" in map_, folder
