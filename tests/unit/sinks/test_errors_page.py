"""The page of errors has them all, with their exit codes."""

import re
from collections.abc import Iterator
from pathlib import Path

from sinks.errors import LakelockError

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"


def every(error: type[LakelockError]) -> Iterator[type[LakelockError]]:
    for kind in error.__subclasses__():
        yield kind
        yield from every(kind)


def test_the_page_tells_of_every_error_what_to_do() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    rows = [re.split(r" *\| *", line)[1:-1] for line in lines]
    told = {row[0]: (int(row[1]), row[2] == "yes") for row in rows}
    assert told == {
        error.__name__: (error.exit_code, error.transient)
        for error in every(LakelockError)
        if error.__module__ == "sinks.errors"
    }
    assert all(len(row) == 5 and all(row[3:]) for row in rows)
