"""The JSON schema of the pipeline file, for editors: ``lakelock schema``. It comes from the models that check the file.

It is draft 7, which editors know best. It takes a little more than ``lakelock check``, which also sees what doesn't go
together, and no option that the models don't know.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from connector.config.formats import FORMATS
from connector.config.kinds import REFERENCE, duration_text
from connector.config.pipeline import PipelineConfig
from connector.config.reference import meaning
from connector.config.sinks import SINK_TYPES
from connector.config.table_per_topic import TablePerTopic

Schema: TypeAlias = dict[str, Any]
_DEFINITIONS = "#/definitions/"
_REFERENCE, _SINK, _TABLE_SINK = "Reference", "Sink", "TableSink"
_TABLE_SINKS = [kind.__name__ for name, kind in SINK_TYPES.items() if str(name).startswith("delta_")]
_SINK_CHANGES, _FORMAT_CHANGES, _PIPELINE_CHANGES = "SinkChanges", "FormatChanges", "PipelineChanges"


def json_schema() -> Schema:
    """The schema of a whole pipeline file."""
    models: Sequence[tuple[type[BaseModel], Any]] = [(PipelineConfig, "validation"), (TablePerTopic, "validation")]
    _, made = models_json_schema(models, schema_generator=_Generator, ref_template=_DEFINITIONS + "{model}")
    parts = {name: _tidy(schema) for name, schema in made["$defs"].items()}
    for name in ("DeltaPlace", "DeadLetters", *_TABLE_SINKS):
        places = [place for place in ("path", "table", "topic") if place in parts[name]["properties"]]
        parts[name]["oneOf"] = [{"required": [place]} for place in places]
    _share_sinks(parts)
    _allow_changes(parts)
    parts = {name: _with_references(schema) for name, schema in parts.items()}
    parts[_REFERENCE] = {
        "type": "string",
        "pattern": REFERENCE.pattern,
        "description": "A value from elsewhere: ${env:NAME}, an environment variable, or ${file:/path}.",
    }
    pipeline = parts.pop("PipelineConfig")
    tables = {**_ref("TablePerTopic"), "description": parts["TablePerTopic"]["description"]}
    required = [name for name in pipeline["required"] if name != "sinks"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A Lakelock pipeline",
        **pipeline,
        "properties": {**pipeline["properties"], "tables": tables},
        "required": required,
        "oneOf": [{"required": [name]} for name in ("sinks", "route", "tables")],
        "definitions": dict(sorted(parts.items())),
    }


class _Generator(GenerateJsonSchema):
    """Adds the description of each option, and writes defaults as a file has them."""

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        made = super().model_schema(schema)
        owner = schema["cls"]
        made["description"] = " ".join((inspect.getdoc(owner) or "").replace("``", "`").split())
        for name, field in owner.model_fields.items():
            option = made.get("properties", {}).get(field.alias or name)
            if option is not None:
                try:
                    option["description"] = meaning(owner, name).removesuffix(" See below.")
                except LookupError:  # the only option of its model, whose description says it all
                    option["description"] = made["description"]
        return made

    def encode_default(self, dft: Any) -> Any:
        return duration_text(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def _share_sinks(parts: dict[str, Schema]) -> None:
    """Name the schema of a sink, and use it wherever a sink stands."""
    sinks = parts["PipelineConfig"]["properties"]["sinks"]
    parts[_SINK] = {**sinks["items"], "description": "A place to write to."}
    sinks["items"], sinks["minItems"] = _ref(_SINK), 1
    parts[_TABLE_SINK] = {"oneOf": [_ref(name) for name in _TABLE_SINKS], "description": "A Delta table to write to."}
    route, per_topic = parts["Route"]["properties"], parts["TablePerTopic"]["properties"]
    _become(route["sink"], _ref(_TABLE_SINK))
    _become(per_topic["sink"], _ref(_SINK))
    words = [choice for choice in route["other"]["anyOf"] if "enum" in choice]
    _become(route["other"], {"anyOf": [*words, _ref(_TABLE_SINK)]})


def _allow_changes(parts: dict[str, Schema]) -> None:
    """What ``overrides`` may change: any option, none of them required."""
    parts[_SINK_CHANGES] = _any_of(parts[kind.__name__] for kind in SINK_TYPES.values())
    parts[_FORMAT_CHANGES] = _any_of(parts[kind.__name__] for kind in FORMATS.values())
    whole = parts["PipelineConfig"]["properties"]
    changed = {
        **{
            name: option
            for name, option in whole.items()
            if name not in ("name", "sinks", "route", "together", "flows")
        },
        "sink": _ref(_SINK_CHANGES),
        "value": _ref(_FORMAT_CHANGES),
        "key": _ref(_FORMAT_CHANGES),
        "source": _any_of([parts["Source"]]),
    }
    parts[_PIPELINE_CHANGES] = {"type": "object", "properties": changed, "additionalProperties": False}
    _become(parts["RouteOverride"]["properties"]["sink"], _ref(_SINK_CHANGES))
    _become(
        parts["TablePerTopic"]["properties"]["overrides"],
        {"type": "object", "additionalProperties": _ref(_PIPELINE_CHANGES)},
    )


def _any_of(models: Iterator[Schema] | Sequence[Schema]) -> Schema:
    """The options of all models, of which each may be left out."""
    found: dict[str, list[Schema]] = {}
    for each in models:
        for name, option in each["properties"].items():
            if option not in found.setdefault(name, []):
                found[name].append(option)
    options = {name: choices[0] if len(choices) == 1 else {"anyOf": choices} for name, choices in found.items()}
    return deepcopy({"type": "object", "properties": options, "additionalProperties": False})


def _become(option: Schema, schema: Schema) -> None:
    """Give an option another schema, under its own description."""
    described = option.get("description", "")
    option.clear()
    option.update({**schema, "description": described})


def _ref(name: str) -> Schema:
    return {"$ref": _DEFINITIONS + name}


def _tidy(schema: Schema) -> Schema:
    """The schema without what says nothing to a person: titles made of names, and defaults that are groups."""
    kept = {
        name: value
        for name, value in schema.items()
        if name not in ("title", "discriminator")
        and not (name == "default" and (value is None or isinstance(value, dict | list)))
    }
    return _each_below(kept, _tidy)


def _with_references(schema: Schema) -> Schema:
    """The schema, which takes ``${env:NAME}`` and the like too where only some texts, or numbers, may stand."""
    if isinstance(schema.get("anyOf"), list):
        choices = [_with_references(choice) for choice in schema["anyOf"]]
        inner = [each for choice in choices for each in (choice["anyOf"] if set(choice) == {"anyOf"} else [choice])]
        return {**schema, "anyOf": [each for at, each in enumerate(inner) if each not in inner[:at]]}
    limited = "enum" in schema or "pattern" in schema or schema.get("type") in ("integer", "number")
    if limited and schema.get("pattern") != REFERENCE.pattern:
        told: Schema = {name: schema[name] for name in ("description", "default") if name in schema}
        choice = {name: value for name, value in schema.items() if name not in told}
        return {"anyOf": [choice, _ref(_REFERENCE)], **told}
    return _each_below(schema, _with_references)


def _each_below(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """The schema with every schema in it changed."""
    changed = dict(schema)
    for name in ("properties", "patternProperties"):
        if name in schema:
            changed[name] = {option: change(value) for option, value in schema[name].items()}
    for name in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(name), Mapping):
            changed[name] = change(schema[name])
    for name in ("anyOf", "oneOf", "allOf"):
        if name in schema:
            changed[name] = [change(value) for value in schema[name]]
    return changed
