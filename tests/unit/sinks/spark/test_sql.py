"""What becomes text of a statement stays what it is, whatever it holds and however the session reads SQL."""

from __future__ import annotations

import re

from hostile import PIECES, TEXTS
from hypothesis import example, given
from hypothesis import strategies as st

from sinks.spark.sql import identifier, literal, unlike

ANY = TEXTS | st.text()
AS_BYTES = re.compile(r"CAST\(X'([0-9a-f]*)' AS STRING\)")


def read(sql: str) -> str:
    """The string that any Spark takes this literal for: without a setting, a quote or a backslash to ask about."""
    found = AS_BYTES.fullmatch(sql)
    if found:
        return bytes.fromhex(found[1]).decode("utf-8", "surrogatepass")
    assert sql[0] == sql[-1] == "'"
    assert not set(sql[1:-1]) & {"'", "\\", "$", "\n", "\0"}
    return sql[1:-1]


@given(ANY)
@example("".join(PIECES))
@example("${env:HOME}")
@example("\ud800")
def test_a_literal_is_its_text(text: str) -> None:
    assert read(literal(text)) == text


def test_a_plain_literal_can_be_read() -> None:
    assert literal("größe (cm), 1") == "'größe (cm), 1'"


@given(ANY)
def test_an_identifier_ends_where_it_ends(name: str) -> None:
    quoted = identifier(name)
    assert re.fullmatch(r"`(?:[^`]|``)*`", quoted)
    assert quoted[1:-1].replace("``", "`") == name


def test_a_name_is_made_unlike_all_others_in_any_case() -> None:
    assert unlike("bad", ["k", "n"]) == "bad"
    assert unlike("bad", ["Bad", "BAD_", "k"]) == "bad__"
