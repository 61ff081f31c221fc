import ast
import re
from pathlib import Path

import pytest

from sinks.plurals import first_of, plural

ROOT = Path(__file__).parents[3]
THINGS = "records|rows|epochs|batches|offsets|letters|partitions|pipelines|faults|jars|objects|entries|members"
_BEFORE = re.compile(rf" ?(dead |bad )?({THINGS})\b")


@pytest.mark.parametrize(
    ("number", "words", "told"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2000, ("record",), "2,000 records"),
        (1, ("batch", "batches"), "1 batch"),
        (2, ("row is", "rows are"), "2 rows are"),
    ],
)
def test_a_number_of_things(number: int, words: tuple[str, ...], told: str) -> None:
    assert plural(number, *words) == told


def test_the_first_of_many() -> None:
    assert [first_of(list(words), 2) for words in ("", "a", "ab", "abc")] == ["", "a", "a, b", "a, b, ..."]


@pytest.mark.parametrize("package", ["connector", "sinks"])
def test_no_text_puts_a_plural_after_a_number_that_may_be_1(package: str) -> None:
    """A value of an f-string, written with commas as numbers are or as a length, and then a plural."""
    found = []
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            for value, after in zip(node.values, node.values[1:], strict=False):
                number = isinstance(value, ast.FormattedValue) and (
                    "len(" in ast.unparse(value.value) or (value.format_spec and "," in ast.unparse(value.format_spec))
                )
                text = after.value if isinstance(after, ast.Constant) else ""
                if number and _BEFORE.match(str(text)):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno}: ...{str(text)[:30]}")
    assert found == [], "write plural(number, 'record')"
