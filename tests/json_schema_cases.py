"""JSON Schemas with JSON texts that they allow or don't, by the specifications of their drafts: no library has its say.

What the drafts mean is also in the public JSON-Schema-Test-Suite (SOURCE), which these cases follow in what they look
at. The texts are of our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SOURCE = "https://github.com/json-schema-org/JSON-Schema-Test-Suite"
DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#", 6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#", 2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip
EVERY = tuple(DRAFTS)
SINCE_6, SINCE_7, SINCE_2019 = EVERY[1:], EVERY[2:], EVERY[3:]

OF = "x"
"""The field of each case's value: a record is an object, so a schema stands for one field of it."""

CASES: Sequence[tuple[tuple[int, ...], Any, Sequence[str], Sequence[str]]] = [
    # Of these drafts this schema allows these values, and not those.
    (EVERY, {"type": "integer"}, ["1", "-0", "12345678901234567890123"], ["1.5", '"1"', "true", "null", "1e-1"]),
    ((4,), {"type": "integer"}, ["1"], ["1.0", "1e2"]),
    (SINCE_6, {"type": "integer"}, ["1.0", "1e2", "-0.0", "10.50e1"], ["1.05e1"]),
    (EVERY, {"type": "number"}, ["1", "1.5", "1e300", "1e999"], ["true", '"1"', "null", "[]"]),
    (EVERY, {"type": ["string", "null"]}, ['"a"', "null"], ["1", "{}", "false"]),
    (EVERY, {"type": "boolean"}, ["true", "false"], ["0", "1", '"true"', "null"]),
    (EVERY, {"type": "array"}, ["[]", "[1]"], ["{}", "null"]),
    (EVERY, {"type": "object"}, ["{}"], ["[]", "null"]),
    (EVERY, {"enum": [1, "a", None, [True], {"b": 2}]}, ["1", "1.0", '"a"', "null", "[true]", '{"b": 2.0}', "10e-1"],
     ["true", "[1]", '{"b": true}', "0", '{"b": 2, "c": 3}']),
    (EVERY, {"enum": [False, 0.1]}, ["false", "0.1", "0.10", "1e-1"], ["0", "0.1000000000000000055", "null"]),
    (EVERY, {"enum": ["é"]}, ['"é"', r'"\u00e9"'], ['"e\u0301"', '"É"']),
    (SINCE_6, {"const": 9007199254740993}, ["9007199254740993", "9007199254740993.0"], ["9007199254740992"]),
    ((4,), {"const": 1}, ["1", "2"], []),
    (EVERY, {"minimum": 0, "maximum": 1}, ["0", "0.5", "1.000", '"9"', "-0.0"], ["-1e-300", "1.00000000000000000001"]),
    ((4,), {"minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True}, ["0.1"], ["0", "1"]),
    ((4,), {"minimum": 0, "exclusiveMinimum": False}, ["0"], ["-1"]),
    (SINCE_6, {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, ["0.1", "1e-300"], ["0", "1", "0.0"]),
    (EVERY, {"multipleOf": 0.01}, ["0.07", "4.35", "1e22", "0", '"a"'], ["0.075", "0.0000001"]),
    (EVERY, {"multipleOf": 3}, ["3", "9007199254740993", "-6.0"], ["9007199254740994", "3.5"]),
    (EVERY, {"minLength": 2, "maxLength": 3}, ['"ab"', '"\U0001f600\U0001f600"', r'"\ud83d\ude00a"', "1"],
     ['"a"', '"\U0001f600"', '"abcd"']),
    (SINCE_6, {"maxLength": 2.0}, ['"ab"'], ['"abc"']),
    (EVERY, {"pattern": "^[a-z]+$"}, ['"abc"', "1"], ['"abc\\n"', '"aBc"', '""', '"é"']),
    (EVERY, {"pattern": "b.d"}, ['"abcde"', r'"b\u0085d"'], ['"bd"', r'"b\nd"', r'"b\u2028d"']),
    (EVERY, {"pattern": r"^\d{2,3}$"}, ['"12"', '"123"'], ['"1"', '"١٢"', '"1234"']),
    (EVERY, {"pattern": r"^\w\S\s$"}, [r'"ab\u00a0"', r'"ab\ufeff"'], ['"éb "', '"ab."', '"a  "']),
    (EVERY, {"pattern": r"^\p{Lu}[^\p{L}\d]*$"}, ['"É--"', '"A"'], ['"é"', '"Éa"', '"A1"']),
    (EVERY, {"pattern": r"^(?=.*\d)(?!.*x).{3,}$"}, ['"ab1"'], ['"abc"', '"x12"', '"a1"']),
    (EVERY, {"pattern": r"\bcat\b"}, ['"a cat."', '"écat"'], ['"cats"', '"_cat"']),
    (EVERY, {"pattern": r"^[\-\]a^&&b[]{1}$"}, ['"-"', '"]"', '"^"', '"&"', '"["'], ['"c"', r'"\\"']),
    (EVERY, {"pattern": "^(a|b)*$"}, [f'"{"ab" * 50_000}"'], [f'"{"ab" * 50_000}c"']),
    (EVERY, {"format": "email"}, ['"no address"'], []),
    (EVERY, {"items": {"type": "string"}, "minItems": 1, "maxItems": 2}, ['["a"]', '["a", "b"]', "{}"],
     ["[]", "[1]", '["a", "b", "c"]']),
    (EVERY[:4], {"items": [{"type": "string"}], "additionalItems": False}, ["[]", '["a"]'], ["[1]", '["a", 1]']),
    ((2020,), {"prefixItems": [{"type": "string"}], "items": False}, ["[]", '["a"]'], ["[1]", '["a", 1]']),
    (EVERY[:4], {"prefixItems": [{"type": "string"}]}, ["[1]"], []),
    (EVERY, {"uniqueItems": True}, ["[1, true, 2]", "[[1], [true]]", '["1", 1]', '[{"a": 1}, {"a": 2}]', "[0, false]"],
     ["[1, 1.0]", '[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]', "[null, null]", "[[1], [1.0]]"]),
    (SINCE_6, {"contains": {"minimum": 5}}, ["[1, 5]", "{}"], ["[]", "[1, 2]"]),
    (SINCE_2019, {"contains": {"minimum": 5}, "minContains": 2, "maxContains": 3}, ["[5, 6, 1]"],
     ["[5]", "[5, 5, 5, 5]"]),
    (SINCE_2019, {"contains": {"minimum": 5}, "minContains": 0}, ["[]", "[1]"], []),
    (EVERY, {"required": ["a"], "minProperties": 2, "maxProperties": 3}, ['{"a": null, "b": 1}', "1"],
     ["{}", '{"a": 1}', '{"b": 1, "c": 2}', '{"a": 1, "b": 1, "c": 1, "d": 1}']),
    (EVERY, {"properties": {"a": {"type": "integer"}}, "patternProperties": {"^p": {"type": "string"}},
             "additionalProperties": False}, ['{"a": 1, "px": "y"}', "{}"], ['{"a": "1"}', '{"b": 1}', '{"p": 1}']),
    (EVERY, {"additionalProperties": {"type": "integer"}}, ['{"q": 1}'], ['{"q": "1"}']),
    (SINCE_6, {"propertyNames": {"maxLength": 2}}, ['{"ab": 1}'], ['{"abc": 1}']),
    (SINCE_6, {"properties": {"no": False, "yes": True}}, ['{"yes": 1}', "{}"], ['{"no": null}']),
    (EVERY[:3], {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
     ['{"a": 1, "b": 1}', '{"c": 1, "d": 1}', "{}"], ['{"a": 1}', '{"c": 1}']),
    (SINCE_2019, {"dependencies": {"a": ["b"]}}, ['{"a": 1}'], []),
    (SINCE_2019, {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"maxProperties": 1}}},
     ['{"a": 1, "b": 1}', '{"c": 1}'], ['{"a": 1}', '{"c": 1, "d": 1}']),
    (EVERY, {"allOf": [{"minimum": 1}, {"maximum": 2}]}, ["1", "2"], ["0", "3"]),
    (EVERY, {"anyOf": [{"type": "string"}, {"minimum": 5}]}, ['"a"', "5", "null"], ["4"]),
    (EVERY, {"oneOf": [{"type": "integer"}, {"minimum": 5}]}, ["1", "5.5"], ["5", "1.5"]),
    (EVERY, {"not": {"type": "string"}}, ["1"], ['"a"']),
    (SINCE_7, {"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string"}},
     ["5", '"a"'], ["4", "1.5"]),
    ((6,), {"if": {"type": "integer"}, "then": {"minimum": 5}}, ["1"], []),
    (EVERY[:3], {"$ref": "#/definitions/word", "maxLength": 1}, ['"abc"'], ["1"]),
    (SINCE_2019, {"$ref": "#/definitions/word", "maxLength": 1}, ['"a"'], ["1", '"abc"']),
    (EVERY, {"$ref": "#/definitions/tree"}, ['{"v": 1, "below": [{"v": 2, "below": []}]}'],
     ['{"v": 1, "below": [{"v": "2"}]}', '{"below": [{"below": [{"v": null}]}]}']),
    (SINCE_2019, {"properties": {"a": True}, "unevaluatedProperties": False,
                  "anyOf": [{"properties": {"b": {"minimum": 5}}}, True]},
     ['{"a": 1}', '{"a": 1, "b": 5}'], ['{"b": 1}', '{"c": 1}']),
    (SINCE_2019, {"allOf": [{"properties": {"a": True}}], "additionalProperties": {"type": "string"},
                  "unevaluatedProperties": False}, ['{"b": "x"}'], ['{"b": 1}']),
    (SINCE_2019, {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": {"type": "string"}},
     ['{"a": 1, "b": "x"}'], ['{"b": 1}']),
    ((2020,), {"prefixItems": [True], "contains": {"type": "string"}, "unevaluatedItems": False}, ['[1, "a", "b"]'],
     ['[1, "a", 2]']),
    ((2019,), {"items": [True], "contains": {"type": "string"}, "unevaluatedItems": False}, ['["a"]'], ['[1, "a"]']),
    ((2019,), {"items": [True], "unevaluatedItems": {"type": "integer"}}, ['["a", 1]', "[]"], ['["a", "b"]']),
    (EVERY, {"properties": {"$ref": {"type": "string"}}}, ['{"$ref": "a"}'], ['{"$ref": 1}']),
]  # fmt: skip

DEFINITIONS = {
    "word": {"type": "string"},
    "tree": {"properties": {"v": {"type": "integer"}, "below": {"items": {"$ref": "#/definitions/tree"}}}},
}

ODD: Sequence[tuple[str, bool]] = [
    # With a schema that allows everything: what is validated at all.
    ("{}", True), (" {} \n", True), ('{"x": 1e999}', True), (f'{{"x": 0.{"1" * 900}}}', True),
    (f'{{"x": {"1" * 1001}}}', False), ('{"x": 1e1001}', False), ('{"x": 1e-2000}', False),
    ('{"x": 1e99999999999}', False),
    ('{"x": 1, "x": 1}', False), ('{"x": {"a": 1, "b": 2, "a": 1}}', False), (r'{"x": 1, "\u0078": 2}', False),
    (f'{{"x": {"[" * 99}{"]" * 99}}}', True), (f'{{"x": {"[" * 100}{"]" * 100}}}', False),
    ("", False), ("{", False), ("{}{}", False), ('{"x": NaN}', False), ("{'x': 1}", False), ('{"x": 01}', False),
    ('{"x": 1,}', False), ('{"x": .5}', False), ('{"x": "\t"}', False), ("// a\n{}", False), ("\ufeff{}", False),
]  # fmt: skip

REFUSED: Mapping[str, tuple[str, Sequence[tuple[Any, str]]]] = {
    # Why schemas can't be used, what they have in common, and the error of each.
    "Records may be many, so a wrong schema is told at once": ("schemas that aren't schemas of their draft", [
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "none of draft 4, 6, 7, 2019-09 and 2020-12"),
        ({"type": "strange"}, "isn't a schema of its draft: at #/type"),
        ({"properties": {"a": {"minLength": -1}}}, "at #/properties/a/minLength"),
        ({"definitions": {"a": {"$schema": DRAFTS[4]}}}, "of another draft than the rest"),
    ]),
    "A run fetches nothing from the Internet that decides about its records": ("references to what isn't there", [
        ({"$ref": "https://else.where/schema.json"}, "neither in it nor in the references"),
        ({"$ref": "#/definitions/none"}, "it refers to #/definitions/none"),
        ({"definitions": {"unused": {"$ref": "#/none"}}}, "it refers to #/none"),
    ]),
    "They depend on the way that led to them, which nobody has asked for yet": ("`$dynamicRef`, `$recursiveRef`", [
        ({"$schema": DRAFTS[2020], "$dynamicRef": "#a"}, r"\$dynamicRef, which isn't supported"),
        ({"$schema": DRAFTS[2019], "properties": {"a": {"$recursiveRef": "#"}}}, r"\$recursiveRef, which isn't supp"),
    ]),
    "Java, JavaScript and Python read them differently, and the auditor has to agree": ("patterns with rare parts", [
        ({"pattern": "(a"}, "doesn't close a group"), ({"pattern": "a**"}, "repeats a place"),
        ({"pattern": r"(a)\1"}, "isn't an escape that is taken"), ({"pattern": "(?<=a)b"}, "has a group that isn't"),
        ({"patternProperties": {r"\p{Script=Greek}": {}}}, "only the general categories"),
    ]),
    "Nobody counts with them, and they take a processor for minutes": ("numbers of more than 1,000 places", [
        ({"minimum": 1e200, "maximum": 10**1001}, "more than 1000 places"),
    ]),
}  # fmt: skip

UNUSABLE = [case for _, cases in REFUSED.values() for case in cases]


def schema_of(draft: int, of_field: Any) -> dict[str, Any]:
    """The schema of records whose field `OF` has this one."""
    return {"$schema": DRAFTS[draft], "properties": {OF: of_field}, "definitions": DEFINITIONS}


def every_case() -> Iterator[tuple[str, str, bool]]:
    """The text of a schema, of a record, and whether the schema allows it."""
    for drafts, of_field, allowed, others in CASES:
        for draft in drafts:
            text = json.dumps(schema_of(draft, of_field))
            for values, valid in ((allowed, True), (others, False)):
                yield from ((text, f'{{"{OF}": {value}}}', valid) for value in values)
    yield from (("{}", text, valid) for text, valid in ODD)
