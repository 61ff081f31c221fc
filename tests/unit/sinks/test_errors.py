import re

import pytest

from sinks import errors

KNOWN = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]


def test_the_docstring_lists_every_error_with_its_exit_code() -> None:
    listed = re.findall(r"(\w+) +exit (\d)", errors.__doc__ or "")
    assert sorted(listed) == sorted((error.__name__, str(error.exit_code)) for error in KNOWN)


def test_the_docstring_says_which_errors_are_transient() -> None:
    marked = set(re.findall(r"(\w+) +exit \d .*\(transient\)", errors.__doc__ or ""))
    assert marked == {error.__name__ for error in KNOWN if error.transient}


@pytest.mark.parametrize("error", KNOWN)
def test_every_error_says_what_it_means(error: type) -> None:
    assert error.__doc__
