"""Where a value stops being JSON."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.decode.json_faults import malformed_at, with_faults


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


@pytest.mark.parametrize(
    ("name", "malformed"), [("n", "_malformed"), ("_malformed", "_malformed_"), ("_Malformed", "_malformed_")]
)
def test_no_field_has_the_name_under_which_spark_keeps_malformed_text(
    name: str, malformed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would leave the field empty, and its value would be said to be of another type."""
    parsed: list[tuple[list[str], str]] = []

    def from_json(_: object, kind: StructType, options: dict[str, str]) -> None:
        parsed.append((kind.names, options["columnNameOfCorruptRecord"]))

    monkeypatch.setattr(F, "from_json", from_json)
    monkeypatch.setattr(F, "expr", lambda _: None)
    shown: list[str] = []
    frame: Any = SimpleNamespace(columns=["value"], selectExpr=lambda *given: shown.extend(given))
    frame.withColumn = lambda *_: frame
    kind = StructType([StructField(name, StringType()), StructField("k", LongType())])
    with_faults(frame, "value", kind, "fault", permissive=False, options={})
    assert parsed == [([name, "k", malformed], malformed), ([name, "k"], malformed)]
    assert f"_texts_0.{malformed} IS NOT NULL" in shown[-1]
