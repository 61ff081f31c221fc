"""Whatever a pipeline file or a commit's metadata holds: it is understood, or refused by one error of ours."""

import contextlib
import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import connector
from connector.audit import json_schema as audited_json_schema
from connector.audit.claim import metadata
from connector.config import Template, _parsed, load, parse
from connector.config.marks import Marks
from connector.decode import avro_apart, avro_evolution, avro_resolution, avro_schema, json_schema
from sinks.delta.metadata import CommitMetadata
from sinks.errors import ConfigurationError, UnsupportedFormat, UnusableSchema

FOLDER = Path(connector.__file__).parent
FILES = [
    yaml.safe_load(file.read_text())
    for file in (FOLDER / "cli" / "pipeline.yaml", *sorted(FOLDER.glob("examples/*.yaml")))
]
ONE = {"source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}}, "value": {"format": "string"}, "name": "p"}
ROUTE = {
    **ONE,
    "coordinator": {"path": "lake/_log"},
    "route": {
        "by": "value",
        "sink": {"type": "delta_upsert", "path": "lake/{route}", "key": "kafka_key"},
        "other": {"type": "delta_append", "path": "lake/other"},
        "overrides": {"a": {"sink": {"key": ["value"]}}},
    },
}
TABLES = {
    **ONE,
    "tables": {
        "for_each": "topic",
        "sink": {"type": "delta_append", "path": "lake/{topic}"},
        "overrides": {"t": {"sink": {"comment": "c"}, "headers": True}},
    },
}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.sampled_from(
    ["${env:NOT_THERE}", "${file:/not/there}", "1 hour", "-1 second", "1e9", "add", "*", "`", "';--", "\0", "\ud800"]
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LEAVES, inner, max_size=3), max_leaves=6
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
COMMIT = {
    "lakelock": 1, "pipeline": "p", "epoch": 7, "owner": "o", "offsets": {"t": {"0": 5}}, "topics": {"t": "id"},
    "read_to": "2026-11-01T00:00:00+00:00", "base": 6, "since": {"t": {"0": 0}}, "delivery": "transactional",
    "lost": [["t", 0, 1, 2]], "clock": {"t": {"0": [1, 2, 3]}},
}  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


@st.composite
def spoiled(draw: st.DrawFn, documents: list[Any], anything: st.SearchStrategy[Any] = ANYTHING) -> Any:
    """One of these, with something else in up to three places."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(document)[1:]))
        holder = document
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = draw(anything)
        if isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(st.text(max_size=8))] = holder.pop(path[-1])
    return document


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(spoiled([*FILES, ROUTE]))
def test_a_spoiled_pipeline_file_is_understood_or_refused(document: Any) -> None:
    with contextlib.suppress(ConfigurationError):
        assert parse(document).shape


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(spoiled([TABLES, {**ROUTE, "tables": TABLES["tables"]}]))
@example({**TABLES, "source": {**TABLES["source"], "topics": ["\ud800"]}})
def test_a_spoiled_file_of_several_pipelines_is_understood_or_refused(document: Any) -> None:
    if "tables" in document:
        with contextlib.suppress(ConfigurationError):
            assert Template("p.yaml", document, partial(_parsed, folder="", marks=Marks())).source


@pytest.mark.parametrize(
    "text", [b"", b"\xff\xfe\x00", b"[" * 20_000, b"a: " * 500, b"&a [*a]", b"!!python/object:os.x {}"]
)
def test_what_is_no_yaml_is_refused(text: bytes, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError):
        load(file)


@settings(max_examples=400)
@given(spoiled([COMMIT], JSON))
def test_spoiled_metadata_is_understood_or_nobodys(document: Any) -> None:
    text = json.dumps(document)
    for read in (
        lambda: CommitMetadata.from_json(text, pipeline="p"),
        lambda: metadata(text, version=3, pipeline="p"),
    ):
        with contextlib.suppress(UnsupportedFormat):
            read()


def test_metadata_that_is_nested_without_end_is_nobodys() -> None:
    deep = '{"lakelock": 1, "pipeline": "p", "offsets": ' + "[" * 100_000
    assert CommitMetadata.from_json(deep, pipeline="p") is None
    assert metadata(deep, version=3, pipeline="p") is None


CITY = {"type": "enum", "name": "City", "namespace": "geo", "symbols": ["A", "B"], "default": "A", "aliases": ["Town"]}
FIELDS = [
    {"name": "a", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
     "default": None},
    {"name": "b", "type": {"type": "array", "items": {"type": "map", "values": "long"}}, "aliases": ["c"]},
    {"name": "d", "type": {"type": "record", "name": "At", "fields": [{"name": "zip", "type": "string"}]}},
    {"name": "e", "type": ["null", "R", "At"]},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
    {"name": "g", "type": CITY, "order": "ignore"},
    {"name": "h", "type": ["null", "At", {"type": "record", "name": "Old", "aliases": ["Older"], "fields": []}, "F"]},
]  # fmt: skip
SCHEMA = {"type": "record", "name": "R", "namespace": "shop", "fields": FIELDS}
TYPES = ["int", "null", "R", "shop.At", "geo.City", "record", "array", {"type": "int"}, ["null", "int"]]
OF_SCHEMAS = JSON | st.sampled_from([*TYPES, FIELDS, SCHEMA, CITY]).map(copy.deepcopy)


@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(spoiled([SCHEMA, [CITY, SCHEMA]], OF_SCHEMAS))
def test_a_spoiled_schema_is_understood_or_refused(document: Any) -> None:
    right = avro_schema.parse(json.dumps({**SCHEMA, "fields": [field for field in FIELDS if field["name"] != "e"]}))
    with contextlib.suppress(UnusableSchema):
        schema = avro_schema.parse(json.dumps(document))
        assert avro_schema.parse(schema.text).root == schema.root
        for writer, reader in ((schema, right), (right, schema), (schema, schema)):
            avro_resolution.misfit(writer, reader)
            avro_evolution.new_fields(reader, writer)
            if writer.recursive is None and reader.recursive is None:
                with contextlib.suppress(UnusableSchema):
                    avro_evolution.grown(reader, writer)
                with contextlib.suppress(UnusableSchema):
                    avro_apart.told_apart(writer, reader)


DECIMAL = "org.apache.kafka.connect.data.Decimal"
PERSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "connect.type": "int32"},
        "price": {"title": DECIMAL, "type": "number", "connect.parameters": {"scale": "2"}},
        "address": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/address"}]},
        "tags": {"type": ["array", "null"], "items": {"enum": ["a", "b"]}},
        "more": {"type": "object", "additionalProperties": {"allOf": [{"$ref": "#/definitions/address"}]}},
    },
    "definitions": {"address": {"properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}},
    "if": {"required": ["id"]}, "then": {"required": ["tags"]},
}  # fmt: skip
WORDS = [
    {"type": "integer"}, {"type": "object"}, {"type": "null"}, "object", "number", "#", "#/definitions/address", "#/x",
    ["null", "string"], ["integer", "number"], [{"type": "string"}], {"$ref": "#/definitions/address"}, {"const": None},
]  # fmt: skip
OF_JSON_SCHEMAS = JSON | st.sampled_from([*WORDS, PERSON, PERSON["properties"]]).map(copy.deepcopy)


@settings(max_examples=1500, suppress_health_check=list(HealthCheck))
@given(spoiled([PERSON], OF_JSON_SCHEMAS))
def test_a_spoiled_json_schema_gives_pipeline_and_auditor_the_same_columns_or_none(document: Any) -> None:
    text, columns, audited = json.dumps(document), None, None
    with contextlib.suppress(UnusableSchema):
        columns = json_schema.parse(text, (), "a test").columns
    with contextlib.suppress(UnusableSchema):
        audited = audited_json_schema.columns_of(text)
    assert (columns is None) == (audited is None)
    if columns is not None and audited is not None:
        theirs = ",".join(f"{each.name} {each.dataType.simpleString()}" for each in audited)
        assert _without_blanks_and_quotes(columns) == _without_blanks_and_quotes(theirs)


def _without_blanks_and_quotes(columns: str) -> str:
    return columns.lower().replace("`", "").replace(" ", "")
