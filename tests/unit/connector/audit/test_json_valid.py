from __future__ import annotations

import json
from typing import Any

import pytest
from compatibility_json import CHANGES, Change
from json_schema_cases import UNUSABLE, every_case

from connector.audit import json_valid
from connector.audit.json_valid import judge, validator


def test_a_record_is_valid_if_its_draft_says_so() -> None:
    wrong = [
        (schema, text[:200], valid)
        for schema, text, valid in every_case()
        if judge({b"": ("", schema)}, 0, 0)(text.encode()) is not valid
    ]
    assert wrong == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.about)
def test_a_record_of_an_older_schema_is_valid_by_the_newer_one_if_a_registry_says_so(change: Change) -> None:
    record = json.dumps(change.record).encode()
    old, new = (judge({b"": ("", json.dumps(schema))}, 0, 0)(record) for schema in (change.old, change.new))
    assert (old, new) == (True, change.fits)


@pytest.mark.parametrize("schema", [schema for schema, _ in UNUSABLE])
def test_no_record_is_valid_by_a_schema_that_cannot_be_used(schema: Any) -> None:
    assert validator(("", json.dumps(schema))) is None
    assert not judge({b"": ("", json.dumps(schema))}, 0, 0)(b"{}")


def test_each_record_is_judged_by_the_schema_of_its_header() -> None:
    known = {b"\0\0\0\0\1": ("", '{"required": ["a"]}'), b"\0\0\0\0\2": ("", "{}")}
    is_valid = judge(known, 5, 5)
    given = [
        b"\0\0\0\0\1{}",
        b'\0\0\0\0\1{"a": 1}',
        b"\0\0\0\0\2{}",
        b"\0\0\0\0\3{}",
        b"\1\0\0\0\1{}",
        b"\0\0\0\0",
        None,
    ]
    assert [is_valid(each) for each in given] == [False, True, True, False, False, False, False]


def test_a_pattern_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_valid, "_SECONDS", 0.2)
    is_valid = judge({b"": ("", '{"pattern": "^(a+)+$"}')}, 0, 0)
    assert not is_valid(json.dumps("a" * 60 + "!").encode())
    assert is_valid(json.dumps("a" * 60).encode())


@pytest.mark.parametrize("around", ["not", "if"])
def test_a_search_that_is_given_up_is_no_answer(around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_valid, "_SECONDS", 0.2)
    is_valid = judge({b"": ("", json.dumps({around: {"pattern": "^(a+)+$"}, "then": False}))}, 0, 0)
    assert not is_valid(json.dumps("a" * 60 + "!").encode())
    assert is_valid(json.dumps("!").encode())


@pytest.mark.parametrize("text", ["1e+000000001", "1E-0000000000001", "10"])
def test_zeros_of_an_exponent_are_no_places(text: str) -> None:
    assert judge({b"": ("", '{"type": "number"}')}, 0, 0)(text.encode())
