"""Writes the reference page of all options: ``python -m connector.config.reference > docs/options.md``.

Names, types and defaults come from the models. The description of an option is the string below its field.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from connector.config import (
    flows,
    formats,
    operations,
    pacing,
    pipeline,
    places,
    registry,
    route,
    sinks,
    source,
    steps,
    table_per_topic,
)
from connector.config.kinds import duration_text

SECTIONS: Mapping[str, type[BaseModel]] = {
    "A pipeline file": pipeline.PipelineConfig,
    "`source`": source.Source,
    "`value` and `key`: `format: json`": formats.JsonFormat,
    "`format: avro`": formats.AvroFormat,
    "`format: protobuf`": formats.ProtobufFormat,
    "`format: debezium`": formats.DebeziumFormat,
    "`format: string`": formats.StringFormat,
    "`format: bytes`": formats.BytesFormat,
    "`format: rows`": formats.RowsFormat,
    "`registry`, with Confluent's API": registry.ConfluentRegistry,
    "`registry: {glue: ...}`": registry.GlueOptions,
    "`epoch`": pacing.EpochBound,
    "`retry`": pacing.Retry,
    "`steps`": steps.Step,
    "`flows`": flows.Flow,
    "`sinks`: `type: delta_append`": sinks.DeltaAppendSink,
    "`type: delta_upsert`": sinks.DeltaUpsertSink,
    "`type: delta_history`": sinks.DeltaHistorySink,
    "`type: delta_aggregate`": sinks.DeltaAggregateSink,
    "`window` of a `delta_aggregate`": sinks.Window,
    "`fold` with `merge: on_read`": sinks.Fold,
    "`type: s3_objects`": sinks.S3ObjectsSink,
    "`type: kafka_topic`": sinks.KafkaTopicSink,
    "`type: custom`": sinks.CustomSink,
    "`tables`, instead of `sinks`": table_per_topic.TablePerTopic,
    "`route`, instead of `sinks`": route.Route,
    "`dead_letters`": places.DeadLetters,
    "`metrics`": operations.MetricsOptions,
    "`push` of `metrics`": operations.Pushgateway,
    "`notify`": operations.NotifyOptions,
    "`maintain`": operations.Maintenance,
}
_KINDS: Mapping[object, str] = {
    str: "text",
    SecretStr: "text",
    source.TopicPattern: "text",
    int: "integer",
    float: "number",
    bool: "`true` or `false`",
    timedelta: "duration",
    Mapping: "mapping",
    tuple: "list",
}
_INTRODUCTION = """# Options

Every option of a pipeline file, generated from the models that check it (`make docs`). `lakelock init` writes a file
with comments to start from, `lakelock schema` a JSON schema for editors, and `lakelock check` reports every error in a
file at once. A duration is a number and a unit: `10 seconds`, `5 minutes`, `1 hour`, `7 days`. Any value but true and
false may come from `${env:NAME}` or `${file:/path}`.
"""


def page() -> str:
    """The reference page in Markdown."""
    return "\n".join([_INTRODUCTION, *(line for title, model in SECTIONS.items() for line in _section(title, model))])


def _section(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield from (f"## {title}", "", "| option | takes | default | |", "| --- | --- | --- | --- |")
    for name, field in model.model_fields.items():
        cells = (f"`{field.alias or name}`", _kind(field), _default(field), meaning(model, name))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def meaning(model: type[BaseModel], name: str) -> str:
    """The description of an option: the string below its field. Raises LookupError where there is none."""
    for owner in model.__mro__:
        if name in inspect.get_annotations(owner):
            (tree,) = ast.parse(inspect.getsource(owner)).body
            assert isinstance(tree, ast.ClassDef)
            found = _texts(tree)
            if name in found:
                return " ".join(found[name].replace("``", "`").split())
    raise LookupError(f"{model.__name__}.{name}: write its description below the field")


def _texts(of: ast.ClassDef) -> dict[str, str]:
    return {
        field.target.id: text.value.value
        for field, text in zip(of.body, of.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _kind(field: FieldInfo) -> str:
    kinds = dict.fromkeys(kind for kind in _kinds(field.annotation) if kind)
    return " or ".join(kinds)


def _kinds(annotation: Any) -> Iterator[str]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _kinds(arguments[0])
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            if argument is not type(None):
                yield from _kinds(argument)
    elif origin is Literal:
        yield from (f"`{argument}`" for argument in arguments)
    elif inspect.isclass(annotation) and annotation not in _KINDS and issubclass(annotation, BaseModel):
        yield "mapping"
    else:
        yield _KINDS[origin or annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value == {} or value == () or isinstance(value, BaseModel):
        return ""
    if isinstance(value, timedelta):
        return f"`{duration_text(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
