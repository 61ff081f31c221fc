from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_schema_cases import UNUSABLE

from connector.audit import json_pattern as auditors
from connector.audit.json_valid import judge, validator
from connector.decode.json_pattern import Unreadable, _Reader
from connector.decode.json_plan import Plan, of_one, of_several
from connector.decode.json_schema import JsonSchema
from sinks.errors import ConfigurationError, UnusableSchema


def schema(value: Any, *references: tuple[str, Any]) -> JsonSchema:
    parts = [(name, schema(other)) for name, other in references]
    return JsonSchema(value, "The JSON Schema", json.dumps(value), parts)


@pytest.mark.parametrize(("value", "why"), UNUSABLE)
def test_a_schema_that_cannot_be_used_is_refused_and_says_why(value: Any, why: str) -> None:
    with pytest.raises(UnusableSchema, match=why) as caught:
        Plan(schema(value))
    assert caught.value.message.startswith("The JSON Schema can't be validated with: ")


@pytest.mark.parametrize("value", [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}, {}]}, {"not": {"allOf": [{"$ref": "#"}]}}])
def test_a_schema_that_depends_on_itself_is_refused(value: Any) -> None:
    with pytest.raises(UnusableSchema, match="leads back to itself"):
        Plan(schema(value))


def test_numbers_keep_all_their_digits() -> None:
    text = '{"minimum": 0.10000000000000000000001, "enum": [9007199254740993, 1E+2, true]}'
    made = of_one(Plan(JsonSchema(json.loads(text), "", text)))
    assert b'"minimum":0.10000000000000000000001' in made
    assert b"[9007199254740993,1E+2,true]" in made


def test_references_are_found_by_name_by_id_and_below_the_base() -> None:
    whole = {
        "$id": "https://x.y/a/whole.json",
        "properties": {
            "one": {"$ref": "part.json"}, "two": {"$ref": "https://x.y/b.json#/definitions/n"},
            "three": {"$ref": "part.json#own"},
        },
    }  # fmt: skip
    part = {"$id": "#own", "type": "string"}
    other = {"$id": "https://x.y/b.json", "definitions": {"n": {"type": "integer"}}}
    Plan(schema(whole, ("part.json", {"type": "string", "definitions": {"o": part}}), ("b", other)))
    texts = ("part.json", json.dumps({"type": "string", "definitions": {"o": part}}), "b", json.dumps(other), "")
    is_valid = judge({b"": (*texts, json.dumps(whole))}, 0, 0)
    assert is_valid(b'{"one": "a", "two": 1, "three": "b"}')
    for wrong in (b'{"one": 1}', b'{"two": "a"}', b'{"three": 1}'):
        assert not is_valid(wrong)
    with pytest.raises(UnusableSchema, match=r"it refers to part\.json"):
        Plan(schema(whole, ("b", other)))
    assert validator(("b", json.dumps(other), "", json.dumps(whole))) is None


def test_the_plan_of_several_schemas_names_each_by_its_id() -> None:
    plans = {"7": Plan(schema({"minimum": 1})), "4000000000": Plan(schema({"items": {"not": {"type": "null"}}}))}
    made = json.loads(of_several(plans))
    last = made["nodes"][made["ids"]["4000000000"]]
    assert made["nodes"][made["ids"]["7"]] == {"minimum": 1}
    assert made["nodes"][made["nodes"][last["items"]]["not"]] == {"type": ["null"]}


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ConfigurationError) as caught:
        Plan(schema({}))
    assert "lakelock[json-schema]" in caught.value.hint


PARTS = st.sampled_from([
    "a", "b", "é", "-", "0", ".", "^", "$", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\b", "\\B", "[", "]", "[^", "(",
    ")", "(?:", "(?=", "(?!", "|", "*", "+", "?", "{2}", "{1,}", "{,2}", "{2,1}", "\\p{L}", "\\P{Lu}", "\\.", "\\-",
    "\\n",
    "\\x61", "\\u00e9", "\\u{1F600}", "\\ud83d\\ude00", "\\ud83d", "\\cA", "\\0", "\\1", "\\", "/", "&&", "~~",
    "#", " ", "\n", "}", "{", "(?i)", "\\Z", "[a-c]", "[c-a]", "[\\d-x]", "[]", "[^]",
])  # fmt: skip
SIGNS = st.text(alphabet=st.sampled_from("ab0é-_ \n\r\x85\u2028\u00a0.A😀/&~#{}^]\x01\b"), max_size=8)


@example("\\W", ["é"])
@settings(max_examples=500, deadline=None)
@given(st.lists(PARTS, max_size=8).map("".join), st.lists(SIGNS, min_size=1, max_size=6))
def test_pipeline_and_auditor_read_a_pattern_alike(pattern: str, texts: list[str]) -> None:
    try:
        own = _Reader(pattern, "\\U{:08x}").read()
    except Unreadable:
        with pytest.raises(auditors.Unreadable):
            auditors.python_pattern(pattern)
        return
    other = auditors.python_pattern(pattern)
    for text in texts:
        assert bool(re.search(own, text)) is bool(re.search(other, text)), (own, other, text)
