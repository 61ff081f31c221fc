"""The columns of a JSON Schema: as the pipeline makes them, and as the auditor does, which has its own code for it."""

import json
from typing import Any

import pytest
from json_schema_cases import DRAFTS, SINCE_2019
from pyspark.sql import types as T

from connector.audit import json_schema as audited
from connector.decode.framed import new_fields
from connector.decode.json_new_fields import grown
from connector.decode.json_schema import parse
from sinks.errors import UnusableSchema
from sinks.spark.sql import identifier

DECIMAL = "org.apache.kafka.connect.data.Decimal"
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": ["null", "integer"]}}}


def of_pipeline(schema: object) -> str:
    return parse(json.dumps(schema), (), "a test").columns


def of_auditor(schema: object) -> str:
    """In the words of the pipeline."""
    columns = audited.columns_of(json.dumps(schema))
    return ", ".join(f"{identifier(field.name)} {word(field.dataType)}" for field in columns)


def word(kind: T.DataType) -> str:
    if isinstance(kind, T.StructType):
        return f"STRUCT<{', '.join(f'{identifier(each.name)}: {word(each.dataType)}' for each in kind)}>"
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{word(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<STRING, {word(kind.valueType)}>"
    return kind.simpleString().upper().replace(",", ", ")


def record(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "integer", "minimum": 0, "connect.type": "int64"}, "BIGINT"),
        ({"type": "integer", "connect.type": "int8"}, "TINYINT"),
        ({"type": "integer", "connect.type": "int16"}, "SMALLINT"),
        ({"type": "integer", "connect.type": "int32", "title": "org.apache.kafka.connect.data.Date"}, "INT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": ["integer", "number"]}, "DOUBLE"),
        ({"type": "number", "connect.type": "float32"}, "FLOAT"),
        ({"type": "number", "connect.type": "bytes", "title": DECIMAL, "connect.parameters": {"scale": "2"}},
         "DECIMAL(38, 2)"),
        ({"oneOf": [{"type": "null"}, {"type": "number", "title": DECIMAL,
          "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}}]}, "DECIMAL(9, 2)"),
        ({"type": "string", "format": "date-time"}, "STRING"),
        ({"type": "string", "connect.type": "bytes"}, "BINARY"),
        ({"type": ["string", "null"], "pattern": "^x"}, "STRING"),
        ({"type": "boolean"}, "BOOLEAN"),
        ({"enum": ["a", "b", None]}, "STRING"),
        ({"const": 1}, "BIGINT"),
        (ADDRESS, "STRUCT<`city`: STRING, `zip`: BIGINT>"),
        ({"$ref": "#/definitions/address"}, "STRUCT<`city`: STRING, `zip`: BIGINT>"),
        ({"anyOf": [{"$ref": "#/definitions/address"}, {"type": "null"}]}, "STRUCT<`city`: STRING, `zip`: BIGINT>"),
        ({"allOf": [{"$ref": "#/definitions/a~1b%25"}], "description": "as pydantic writes it"}, "BIGINT"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "ARRAY<ARRAY<STRING>>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        ({"type": "object", "additionalProperties": {"$ref": "#/definitions/address"}},
         "MAP<STRING, STRUCT<`city`: STRING, `zip`: BIGINT>>"),
        ({"allOf": [ADDRESS], "unevaluatedProperties": False}, "STRUCT<`city`: STRING, `zip`: BIGINT>"),
        ({**ADDRESS, "dependencies": {"zip": ["city"], "city": {"minProperties": 2}}},
         "STRUCT<`city`: STRING, `zip`: BIGINT>"),
        ({**ADDRESS, "required": ["city"], "additionalProperties": False, "anyOf": [{"required": ["zip"]}],
          "if": {"required": ["zip"]}, "then": {"minProperties": 2}}, "STRUCT<`city`: STRING, `zip`: BIGINT>"),
    ],
)  # fmt: skip
def test_types(schema: object, column: str) -> None:
    whole = {**record(**{"a b": schema}), "definitions": {"address": ADDRESS, "a/b%": {"type": "integer"}}}
    assert of_pipeline(whole) == of_auditor(whole) == f"`a b` {column}"


def test_a_record_may_be_given_by_a_reference_or_be_null() -> None:
    whole = {"$defs": {"Order": record(id={"type": "integer"})}, "oneOf": [{"type": "null"}, {"$ref": "#/$defs/Order"}]}
    assert of_pipeline(whole) == of_auditor(whole) == "`id` BIGINT"


@pytest.mark.parametrize(
    ("schema", "where", "why"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "", "combines several by oneOf"),
        ({"type": ["string", "integer", "null"]}, "", "several types: string, integer"),
        ({"enum": ["a", 1]}, "", "several types: string, integer"),
        ({"allOf": [ADDRESS, ADDRESS]}, "", "combines several by allOf"),
        ({**ADDRESS, "if": {}, "then": record(more={"type": "string"})}, "", "combines several by then"),
        ({**ADDRESS, "dependentSchemas": {"zip": record(more={"type": "string"})}}, "", "several by dependentSchemas"),
        ({**ADDRESS, "dependencies": {"zip": record(more={"type": "string"})}}, "", "combines several by dependencies"),
        ({"dependencies": {"zip": ADDRESS}}, "", "combines several by dependencies"),
        ({**ADDRESS, "allOf": [{"if": {}, "then": record(more={"type": "string"})}]}, "", "combines several by allOf"),
        ({**ADDRESS, "unevaluatedProperties": {"type": "string"}}, "", "others whose names it doesn't say"),
        ({"allOf": [ADDRESS], "unevaluatedProperties": {"type": "string"}}, "", "combines several by allOf"),
        ({**ADDRESS, "$dynamicRef": "#more"}, "", "has $dynamicRef"),
        ({"type": "array", "items": [{"type": "string"}]}, "", "is a tuple"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": False}, "", "is a tuple"),
        ({"type": "array"}, "", "doesn't say what its items are"),
        ({"type": "array", "items": {}}, "/items", "doesn't say its type"),
        ({"type": "array", "items": True}, "/items", "takes any value"),
        ({"type": "object"}, "", "may have any fields"),
        ({**ADDRESS, "additionalProperties": {"type": "string"}}, "", "others whose names it doesn't say"),
        ({**ADDRESS, "patternProperties": {"^x": {"type": "string"}}}, "", "others whose names it doesn't say"),
        (record(a={"type": "string"}, A={"type": "string"}), "", "differ in case only: A"),
        (record(a=record(b={"type": "null"})), "/properties/a/properties/b", "is always null"),
        ({"type": "money"}, "", "which JSON Schema doesn't know"),
        ({"$ref": "customer.json"}, "", "isn't a place in the same schema"),
        ({"$ref": "#/definitions/none"}, "", "which isn't there"),
        ({"$ref": "#"}, "", "it is recursive"),
        ({"type": "string", "title": DECIMAL, "connect.parameters": {"scale": "2"}}, "", "decimal.format: NUMERIC"),
        ({"type": "number", "title": DECIMAL}, "", "without a scale"),
        ({"type": "number", "title": DECIMAL, "connect.parameters": {"scale": "40"}}, "", "the scale 40"),
    ],
)
def test_what_has_no_one_type_is_refused_with_its_place(schema: object, where: str, why: str) -> None:
    whole = record(pay=schema)
    with pytest.raises(UnusableSchema) as caught:
        of_pipeline(whole)
    assert f"#/properties/pay{where} " in caught.value.message
    assert why in caught.value.message
    assert "schema:" in caught.value.hint
    with pytest.raises(UnusableSchema):
        of_auditor(whole)


MORE = record(more={"type": "string"})


@pytest.mark.parametrize(
    ("beside", "loses"),
    [
        (MORE, True),
        ({"properties": {"more": {}}}, True),
        ({"patternProperties": {"^x": {"type": "string"}}}, True),
        ({"additionalProperties": {"type": "string"}}, True),
        ({"unevaluatedProperties": {"type": "string"}}, True),
        ({"allOf": [MORE]}, True),
        ({"oneOf": [{"type": "null"}, MORE]}, True),
        ({"if": {"required": ["zip"]}, "then": MORE}, True),
        ({"dependentSchemas": {"zip": MORE}}, True),
        ({"description": "of the customer", "type": "object", "default": {}}, False),
        ({"additionalProperties": False, "unevaluatedProperties": False}, False),
        ({"anyOf": [{"required": ["zip"]}], "dependentSchemas": {"zip": {"required": ["city"]}}}, False),
        ({"if": {"required": ["zip"]}, "then": {"minProperties": 2}}, False),
    ],
)
@pytest.mark.parametrize("draft", [None, 4, 6, 7, 2019, 2020])
def test_what_is_beside_a_reference_is_no_silent_loss(draft: int | None, beside: dict[str, Any], loses: bool) -> None:
    """The drafts before 2019-09 say that it doesn't count."""
    whole = {**record(at={"$ref": "#/definitions/address", **beside}), "definitions": {"address": ADDRESS}}
    if draft is not None:
        whole["$schema"] = DRAFTS[draft]
    if loses and draft in SINCE_2019:
        with pytest.raises(UnusableSchema, match=r"#/properties/at has no one type: it has a \$ref"):
            of_pipeline(whole)
        with pytest.raises(UnusableSchema):
            of_auditor(whole)
    else:
        assert of_pipeline(whole) == of_auditor(whole) == "`at` STRUCT<`city`: STRING, `zip`: BIGINT>"


def test_a_recursive_reference_is_refused_where_it_closes_the_circle() -> None:
    node = record(id={"type": "integer"}, next={"oneOf": [{"type": "null"}, {"$ref": "#/definitions/node"}]})
    other = record(node={"$ref": "#/definitions/node"})
    for definitions in ({"node": node}, {"node": record(other={"$ref": "#/definitions/other"}), "other": other}):
        whole = {"$ref": "#/definitions/node", "definitions": definitions}
        with pytest.raises(UnusableSchema, match="#/definitions/node, which it is a part of: it is recursive"):
            of_pipeline(whole)
        with pytest.raises(UnusableSchema):
            of_auditor(whole)
    twice = {**record(a={"$ref": "#/definitions/a"}, b={"$ref": "#/definitions/a"}), "definitions": {"a": ADDRESS}}
    assert of_pipeline(twice) == of_auditor(twice), "a type that is used twice is no circle"


@pytest.mark.parametrize("root", [{"type": "string"}, {"type": "object"}, record(), True, [], "x", None])
def test_a_record_has_to_be_an_object_with_properties(root: object) -> None:
    with pytest.raises(UnusableSchema, match="# "):
        of_pipeline(root)
    with pytest.raises(UnusableSchema):
        of_auditor(root)


def test_a_schema_that_is_no_json_is_refused() -> None:
    for text in ("{", "[" * 100_000):
        with pytest.raises(UnusableSchema, match="isn't JSON"):
            parse(text, (), "a test")
        with pytest.raises(UnusableSchema):
            audited.columns_of(text)


def test_fields_of_other_versions() -> None:
    """The case of names doesn't matter at any depth, as when JSON is read."""
    first = record(Id={"type": "integer"}, at=ADDRESS, old={"type": "string"})
    second = record(id={"type": "integer"}, at=record(city={"type": "string"}, street={"type": "string"}))
    one, other = (audited.columns_of(json.dumps(each)) for each in (first, second))
    assert new_fields(other, one) == ["at.zip", "old"]
    assert new_fields(one, other) == ["at.street"]
    assert new_fields(one, one) == []
    both = grown(other, one)
    assert both == audited.grown([json.dumps(first), json.dumps(second)])
    assert both.simpleString() == "struct<id:bigint,at:struct<city:string,street:string,zip:bigint>,old:string>"
    assert audited.grown([json.dumps({"type": "string"}), json.dumps(second)]) == other, "an old one of no use"
    third = record(at=record(CITY={"type": "string"}))
    assert new_fields(other, audited.columns_of(json.dumps(third))) == []
    assert grown(other, audited.columns_of(json.dumps(third))) == other
    assert audited.grown([json.dumps(third), json.dumps(second)]) == other
