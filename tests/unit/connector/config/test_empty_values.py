"""References to what is set, and empty."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config.references import References


def faults(monkeypatch: pytest.MonkeyPatch, path: tuple[Any, ...], written: str, value: str = "") -> list[str]:
    monkeypatch.setenv("X", value)
    monkeypatch.setenv("ROOT", "s3a://bucket")
    references = References()
    references.resolve(written, path)
    return [fault.text for fault in references.faults]


PATH, TABLE, TOPICS = ("sinks", 0, "path"), ("sinks", 0, "table"), ("source", "topics")


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (PATH, "lake/${env:X}/x"), (PATH, "lake/${env:X}"), (PATH, "s3a://${env:X}/x"), (PATH, "${env:X}"),
        (PATH, "${env:ROOT}/${env:X}/x"), (TABLE, "${env:X}.orders"), (TABLE, "a.${env:X}.orders"),
        (PATH, "hdfs:///lake/${env:X}/x"), (PATH, "dbfs:/${env:X}/x"), (PATH, "/${env:X}/x"),
        (PATH, "lake/${env:X}/x//y"),
        (("name",), "${env:X}"), (("sinks", 0, "apply_as_deletes"), "${env:X}"), (("sinks", 0, "key", 1), "${env:X}"),
        ((*TOPICS, 0), "${env:X}.orders"), (("source", "kafka", "group.id"), "${env:X}.orders"),
        (("require",), "${env:X}"), (("transform",), "${env:X}"),
    ],
)  # fmt: skip
def test_an_empty_value_that_makes_another_place_is_a_fault(
    path: tuple[Any, ...], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for empty in ("", " ", "\n"):
        (text,) = faults(monkeypatch, path, written, empty)
        assert "env X is set, and empty" in text
    assert faults(monkeypatch, path, written, "dev") == []


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (PATH, "lake/orders${env:X}"), (PATH, "${env:X}lake/orders"), (PATH, "${env:X}/lake/orders"),
        (PATH, "lake//x${env:X}"),
        (("name",), "orders${env:X}"), (TOPICS, "${env:X}.*"), (("source", "kafka", "group.id"), "${env:X}"),
        (("source", "kafka", "sasl.password"), "${env:X}"), (("spark", "path"), "a/${env:X}/b"),
        (("sinks", 0, "options", "path"), "${env:X}"), (("notify", "url"), "https://a//${env:X}/b"),
    ],
)  # fmt: skip
def test_an_empty_prefix_or_suffix_goes_on(
    path: tuple[Any, ...], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(monkeypatch, path, written) == []
