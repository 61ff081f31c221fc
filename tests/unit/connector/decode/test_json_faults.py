"""Where a value stops being JSON."""

import pytest

from connector.decode.json_faults import malformed_at


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b'{"a": 1}', None),
        (b'{"a": 1', "the text ends at byte 7, before the object does"),
        (b'{"a": 1} {"a": 2}', "the first JSON value ends at byte 9, and more follows"),
        ('{"ä": x}'.encode(), "it stops being JSON at byte 7: expecting value"),
        (b'{"a": "\xff"}', "byte 7 isn't UTF-8"),
        (b"", "the text ends at byte 0, before the object does"),
        (b"[" * 100_000, None),
    ],
)
def test_the_byte_is_named(value: bytes, said: str | None) -> None:
    assert malformed_at(value) == said
