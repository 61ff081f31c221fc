"""docs/concepts.md links steps and rules to the code that holds them: every link leads there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\[`([\w.]+)`\]\((\.\./[\w./]+\.py)\)", TEXT)))
RULES = ("Fence", "Proof", "Position", "Offset guard", "Two-phase decision", "Dead letters in step", "Fold")
STEPS = 7
TERMS = {
    "change log", "coordinator log", "dead letter", "delivery", "epoch", "event time", "fence", "fold", "offset range",
    "owner", "position", "recreated topic", "staged rows", "tombstone", "watermark",
}  # fmt: skip


def defined(source: str) -> set[str]:
    """Functions and classes of a module, and the methods of its classes as ``Class.method``."""

    def names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{prefix}{node.name}.")

    return set(names(ast.parse(source).body))


def section(title: str) -> str:
    """What stands below a heading of third order."""
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^##)", TEXT, flags=re.M | re.S)
    assert found is not None, title
    return found[1]


def test_what_a_file_defines_is_found() -> None:
    assert defined("class A:\n  def f(self):\n    def g(): ...\n\ndef h(): ...") == {"A", "A.f", "h"}


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_a_link_leads_to_a_function_class_or_method_of_its_file(name: str, path: str) -> None:
    file = (PAGE.parent / path).resolve()
    assert file.is_relative_to(ROOT)
    assert name in defined(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_every_other_link_leads_to_a_file(path: str) -> None:
    assert (PAGE.parent / path).exists()


@pytest.mark.parametrize("anchor", sorted(set(re.findall(r"\]\(#([^)]+)\)", TEXT))))
def test_every_anchor_is_a_heading(anchor: str) -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, flags=re.M)
    assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_names_its_code_and_its_test(rule: str) -> None:
    code, tests = section(rule).split("Tests:")
    assert re.search(r"`\]\(\.\./(?:connector|sinks)/", code)
    assert re.search(r"\[`test_\w+`\]\(\.\./tests/", tests)


def test_a_step_names_its_code_and_what_a_crash_on_either_side_leaves() -> None:
    titles = re.findall(r"^### (\d\. .*)$", TEXT, flags=re.M)
    assert [title[0] for title in titles] == [str(number) for number in range(1, STEPS + 1)]
    for title in titles:
        step = section(title)
        assert all(part in step for part in ("`](../", "- Crash right before", "- Crash right after")), title


def test_the_glossary_explains_every_term() -> None:
    glossary = TEXT.split("## Glossary")[1]
    assert set(re.findall(r"^\| ([\w ]+) \| [A-Z]", glossary, flags=re.M)) >= TERMS
