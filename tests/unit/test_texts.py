"""Texts for people have their values in them: no string shows the name of a variable in braces."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_BRACES = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")


def bound(tree: ast.AST) -> set[str]:
    """The names that a module or one of its functions gives a value."""
    named = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    taken = (node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    return {*named, *taken}


def unfilled(file: Path) -> Iterator[str]:
    """Strings that aren't f-strings, and have a variable of their module in braces."""
    names = bound(ast.parse(file.read_text(encoding="utf-8")))
    with file.open("rb") as opened:
        for token in tokenize.tokenize(opened.readline):
            prefix = token.string.partition(token.string[-1])[0].lower() if token.type == tokenize.STRING else "f"
            if "f" in prefix or token.string.startswith('"""'):
                continue
            yield from (
                f"line {token.start[0]}: {found[0]}" for found in IN_BRACES.finditer(token.string) if found[1] in names
            )


@pytest.mark.parametrize("package", ["connector", "sinks", "lakelock"])
def test_no_text_shows_the_name_of_a_variable_in_braces(package: str) -> None:
    found = {file.name: list(unfilled(file)) for file in sorted((ROOT / package).rglob("*.py"))}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_a_missing_f_is_found(tmp_path: Path) -> None:
    file = tmp_path / "texts.py"
    file.write_text('ASKS = "asks"\nTEXT = "The run {ASKS} again." f"It {ASKS}." "{other} {{ASKS}}"\n')
    assert list(unfilled(file)) == ["line 2: {ASKS}"]
