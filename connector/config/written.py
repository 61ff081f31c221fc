"""Options in Python, written as a pipeline file has them: plain mappings, lists and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, SecretStr

from connector.config.kinds import REFERENCE, duration_text
from connector.config.sinks import KAFKA_KEY, KAFKAS_KEY, KeyedSink
from connector.config.source import FromOffsets, TopicPattern


@dataclass(frozen=True)
class Given:
    """A document as it was given. Two pipelines with the same options are equal, however they were written."""

    document: object = field(default=None, compare=False, repr=False)


def written(value: object) -> Any:
    """The value as a pipeline file has it. A secret stays wrapped, unless it is a reference."""
    if isinstance(value, TopicPattern):
        return value.pattern
    if isinstance(value, FromOffsets):
        return written(value.offsets)
    if isinstance(value, BaseModel):
        return _options(value)
    if isinstance(value, Mapping):
        return {name: written(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [written(item) for item in value]
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, SecretStr) and REFERENCE.fullmatch(value.get_secret_value()):
        return value.get_secret_value()
    return value


def _options(model: BaseModel) -> dict[str, Any]:
    """The options that were set, and what kind of options they are."""
    fields = type(model).model_fields
    tag = "type" if "type" in fields else "format"
    given = {name for name in fields if name in model.model_fields_set or name == tag}
    if getattr(model, "route", None) is not None:
        given -= {"sinks"}  # they are made of the route's
    names = sorted((name for name in fields if name in given), key=lambda name: name != tag)
    found = {fields[name].alias or name: written(getattr(model, name)) for name in names}
    if isinstance(model, KeyedSink) and found["key"] == [KAFKAS_KEY]:
        found["key"] = KAFKA_KEY
    return found
