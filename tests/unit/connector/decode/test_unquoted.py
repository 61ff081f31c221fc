"""With sensitive columns a problem names the field, and none of its values."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

import connector
from connector.decode.unquoted import unquoted
from sinks.spark.sql import literal

JAVA = Path(connector.__file__).parent / "spark" / "jars" / "java"
SECRET = "5123456789"


def said(wrong: str, *columns: str) -> str | None:
    """What is said of a problem. SQLite stands in for Spark."""
    spark = sqlite3.connect(":memory:")
    spark.create_function("regexp", 2, lambda pattern, text: bool(re.search(pattern, text)))
    spark.create_function("startswith", 2, lambda text, start: text.startswith(start))
    spark.create_function("concat", -1, lambda *texts: "".join(texts))
    spark.create_function("regexp_extract", 3, lambda text, pattern, group: re.search(pattern, text)[group])  # type: ignore[index]
    spark.create_function(
        "regexp_replace", 3, lambda text, pattern, by: re.sub(pattern, by.replace("$1", r"\g<1>"), text)
    )
    sql = unquoted("wrong", columns).replace(" RLIKE ", " REGEXP ").replace("AS STRING)", "AS TEXT)")
    value = literal(wrong).replace("AS STRING)", "AS TEXT)")
    (found,) = spark.execute(f"SELECT {sql} FROM (SELECT {value} AS wrong)").fetchone()
    return str(found)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (f"field ssn: {SECRET} is more than an INT can hold", "field ssn: isn't right"),
        (f"field a.b: the enum E has no number {SECRET}", "field a.b: isn't right"),
        (f"not one message m.M: field at: seconds {SECRET} and nanos 0", "not one message m.M: field at: isn't right"),
        ("not one message m.M: the bytes end too early", "not one message m.M: the bytes end too early"),
        (f"doesn't fit its JSON Schema: phones.+{SECRET} is of type string, not integer",
         "doesn't fit its JSON Schema: phones isn't right"),
        ("doesn't fit its JSON Schema: a.b[2] is of type string", "doesn't fit its JSON Schema: a.b isn't right"),
        (f"doesn't fit its JSON Schema: {SECRET} isn't allowed", "doesn't fit its JSON Schema"),
        ("doesn't fit its JSON Schema: the value isn't allowed", "doesn't fit its JSON Schema"),
        (f"has a field twice in one object: {SECRET}", "has a field twice in one object"),
        (f"no change of a row, its op is {SECRET}", "no change of a row"),
        ("not UTF-8 text", "not UTF-8 text"),
    ],
)  # fmt: skip
def test_a_problem_names_the_field_and_quotes_nothing(wrong: str, expected: str) -> None:
    assert said(wrong, "ssn", "phones", "a.b") == expected
    assert SECRET not in (said(wrong) or "")


def test_these_are_the_words_of_the_decoders() -> None:
    texts = {name: (JAVA / name / "Problem.java").read_text() for name in ("json", "protobuf")}
    assert '"doesn\'t fit its JSON Schema: "' in texts["json"]
    assert '"field " + field + ": "' in texts["protobuf"]
    assert '"not one message " + of.name + ": "' in (JAVA / "protobuf" / "Plan.java").read_text()
    assert '"has a field twice in one object: "' in (JAVA / "json" / "Json.java").read_text()
