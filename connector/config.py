"""The pipeline file: read, checked as a whole, every fault named with its option, before anything is touched."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from sinks.errors import ConfigurationError

COORDINATES = ("_topic", "_partition", "_offset", "_timestamp")
"""Columns that every table has beside the value's: where the row's record came from."""

RESERVED_KAFKA_OPTIONS = {
    "auto.offset.reset": "the position says where to read; `source.start` where there is none",
    "enable.auto.commit": "`delivery` says when offsets are committed",
    "enable.auto.offset.store": "`delivery` says when offsets are committed",
    "isolation.level": "it is always read_committed: records of aborted transactions never count",
    "key.deserializer": "keys are read as bytes and decoded in Spark",
    "value.deserializer": "values are read as bytes and decoded in Spark, see `value.format`",
}


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


def _text(value: object) -> object:
    """YAML turns `9092`, `true` into numbers and booleans; Kafka and Spark options are text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
OptionText: TypeAlias = Annotated[str | SecretStr, BeforeValidator(_text)]


def _in_clear(options: Mapping[str, str | SecretStr]) -> dict[str, str]:
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in options.items()
    }


_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def _duration(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?\s*", value)
        if match is None:
            raise ValueError("write a number and a unit, as in `10 seconds`, `5 minutes`, `1 hour`")
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    if not isinstance(value, timedelta):
        raise ValueError("write a number and a unit, as in `10 seconds`, `5 minutes`, `1 hour`")
    return value


Duration: TypeAlias = Annotated[timedelta, BeforeValidator(_duration)]


class Interval(_Options):
    interval: Duration

    @field_validator("interval")
    @classmethod
    def _positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("the interval must be longer than 0 seconds")
        return value


class FromTimestamp(_Options):
    timestamp: datetime

    @field_validator("timestamp")
    @classmethod
    def _has_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("write the time zone too, as in 2026-11-01T00:00:00Z")
        return value


class FromOffsets(_Options):
    """Starting offsets as Spark writes them; -2 is the earliest, -1 the latest."""

    offsets: Mapping[str, Mapping[int, Annotated[int, Field(ge=-2)]]]


Start: TypeAlias = Literal["earliest", "latest"] | FromTimestamp | FromOffsets


def _start(value: object) -> object:
    if isinstance(value, Mapping):
        by_time = "timestamp" in value and not isinstance(value["timestamp"], Mapping)
        return _as(FromTimestamp, value) if by_time else _as(FromOffsets, {"offsets": value})
    if value not in ("earliest", "latest"):
        raise ValueError(
            'write earliest, latest, {timestamp: 2026-11-01T00:00:00Z} or {"topic": {"0": 120, "1": 80}}, '
            f"not {value!r}"
        )
    return value


def _trigger(value: object) -> object:
    if isinstance(value, Mapping):
        return _as(Interval, value)
    if value != "available_now":
        raise ValueError(f"write available_now or {{interval: 10 seconds}}, not {value!r}")
    return value


def _as(model: type[BaseModel], value: object) -> BaseModel:
    """One alternative of a union, chosen by us: pydantic would report the faults of all of them."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = _dotted(tuple(part for part in fault["loc"] if part != "[key]"))
        raise ValueError(f"{place}: {str(fault['msg']).removeprefix('Value error, ')}") from None


class Source(_Options):
    topics: Annotated[tuple[Text, ...], Field(min_length=1)]
    kafka: Mapping[str, OptionText]
    start: Annotated[Start, BeforeValidator(_start)] = "earliest"
    on_data_loss: Literal["fail", "continue"] = "fail"

    @field_validator("topics")
    @classmethod
    def _distinct(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(topics)) != len(topics):
            raise ValueError("names a topic twice")
        if any(re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic) is None for topic in topics):
            raise ValueError("a topic's name is made of letters, digits, dots, hyphens and underscores")
        return topics

    @field_validator("kafka")
    @classmethod
    def _kafka(cls, options: Mapping[str, OptionText]) -> Mapping[str, OptionText]:
        for name in options:
            if name in RESERVED_KAFKA_OPTIONS:
                raise ValueError(f"{name} is Lakelock's own to set ({RESERVED_KAFKA_OPTIONS[name]}); take it out")
            if name.startswith("kafka."):
                raise ValueError(f"{name}: write Kafka's own name, {name.removeprefix('kafka.')}")
        if not options.get("bootstrap.servers"):
            raise ValueError('bootstrap.servers is missing, as in {bootstrap.servers: "127.0.0.1:9092"}')
        return options

    @property
    def continue_on_data_loss(self) -> bool:
        return self.on_data_loss == "continue"

    @property
    def kafka_options(self) -> dict[str, str]:
        """Options by Kafka's names with the secrets in clear: hand them on, never print them."""
        return _in_clear(self.kafka)


class Value(_Options):
    format: Literal["json"]
    schema_: Annotated[str, Field(alias="schema", min_length=1)]


class EpochBound(_Options):
    max_records: Annotated[int, Field(ge=1)] = 2_000_000


class _DeltaSink(_Options):
    path: Text | None = None
    table: Text | None = None

    @model_validator(mode="after")
    def _one_place(self) -> _DeltaSink:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path (a folder or URI) or table (catalog.schema.name)")
        if not (self.path or self.table):
            raise ValueError("path or table is empty")
        return self


class DeltaAppendSink(_DeltaSink):
    type: Literal["delta_append"]


class DeltaUpsertSink(_DeltaSink):
    type: Literal["delta_upsert"]
    key: Annotated[tuple[Text, ...], Field(min_length=1)]

    @field_validator("key", mode="before")
    @classmethod
    def _one_column(cls, key: object) -> object:
        return [key] if isinstance(key, str) else key

    @field_validator("key")
    @classmethod
    def _distinct(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if len({column.lower() for column in key}) != len(key):
            raise ValueError("names a column twice")
        return key


SinkOptions: TypeAlias = Annotated[DeltaAppendSink | DeltaUpsertSink, Field(discriminator="type")]


class EveryRecords(_Options):
    records: Annotated[int, Field(ge=1)]


def _commit_every(value: object) -> object:
    if isinstance(value, Mapping):
        return _as(EveryRecords, value)
    if value not in ("batch", "record"):
        raise ValueError(f"write batch, record or {{records: 100}}, not {value!r}")
    return value


Delivery: TypeAlias = Literal["auto_commit", "manual_commit", "idempotent", "transactional"]


class PipelineConfig(_Options):
    """One pipeline file. ``lakelock init`` writes a commented one."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]+$", max_length=200)]
    delivery: Delivery = "transactional"
    commit_every: Annotated[Literal["batch", "record"] | EveryRecords, BeforeValidator(_commit_every)] = "batch"
    source: Source
    value: Value
    epoch: EpochBound = EpochBound()
    trigger: Annotated[Literal["available_now"] | Interval, BeforeValidator(_trigger)] = "available_now"
    sinks: tuple[SinkOptions, ...]
    spark: Mapping[str, OptionText] = Field(default_factory=dict)

    @field_validator("sinks")
    @classmethod
    def _one(cls, sinks: tuple[SinkOptions, ...]) -> tuple[SinkOptions, ...]:
        if len(sinks) != 1:
            raise ValueError("one sink per pipeline: give each further sink a pipeline file of its own")
        return sinks

    @model_validator(mode="after")
    def _delivery_fits(self) -> PipelineConfig:
        if self.delivery == "idempotent" and any(isinstance(sink, DeltaAppendSink) for sink in self.sinks):
            raise ValueError(
                "delivery: idempotent needs a sink that can ignore what it holds already, by key and offset; "
                "delta_append adds every row it is given. Write delivery: transactional, or use delta_upsert"
            )
        if self.commit_every != "batch" and self.delivery not in ("manual_commit", "idempotent"):
            raise ValueError(
                f"commit_every: is for delivery: manual_commit and idempotent; with {self.delivery} "
                + ("the client commits on its own clock" if self.delivery == "auto_commit" else "an epoch is a commit")
                + ". Take it out"
            )
        return self

    @property
    def interval(self) -> timedelta | None:
        """Between the starts of two rounds; None: one round, of what is there."""
        return self.trigger.interval if isinstance(self.trigger, Interval) else None

    @property
    def group(self) -> str:
        """The consumer group: Kafka's ``group.id`` where one is given, else the pipeline's name."""
        return self.source.kafka_options.get("group.id") or self.name

    @property
    def spark_options(self) -> dict[str, str]:
        return _in_clear(self.spark)


def load(path: str | Path) -> PipelineConfig:
    """Read and check a pipeline file. Raises ConfigurationError that lists every fault at once."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"The pipeline file {str(path)!r} can't be read: {error.strerror}.",
            hint="Give the path of a file; `lakelock init FILE` writes one to start from.",
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The pipeline file {str(path)!r} isn't UTF-8 text.") from None
    try:
        # A subclass of SafeLoader: no tag makes an object.
        document = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{path}{where}: not valid YAML: {problem}.") from None
    return parse(document, origin=str(path))


def parse(document: object, *, origin: str = "pipeline") -> PipelineConfig:
    """The same for a document that is a mapping already."""
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            f"{origin}: a pipeline file is a mapping of options (`name: ...`), this one is "
            f"{'empty' if document is None else f'a {type(document).__name__}'}.",
            hint="`lakelock init FILE` writes one to start from.",
        )
    faults: list[str] = []
    resolved = _resolve(document, (), faults)
    if faults:
        raise _configuration_error(origin, faults)
    try:
        return PipelineConfig.model_validate(resolved)
    except ValidationError as error:
        raise _configuration_error(origin, [_fault(dict(fault)) for fault in error.errors(include_url=False)]) from None


def _configuration_error(origin: str, faults: list[str]) -> ConfigurationError:
    listed = "\n".join(f"  - {fault}" for fault in faults)
    many = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigurationError(f"{origin} has {many}; nothing was touched:\n{listed}")


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; an option that is given twice is an error here."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the option {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str | int):
                seen.add(key)
        return super().construct_mapping(node, deep)


_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def _resolve(value: object, path: tuple[str | int, ...], faults: list[str]) -> object:
    """Replace ``${env:NAME}`` and ``${file:/path}``. What came from there may be a secret, and stays wrapped."""
    if isinstance(value, Mapping):
        return {key: _resolve(item, (*path, key), faults) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, (*path, index), faults) for index, item in enumerate(value)]
    if not isinstance(value, str) or not _REFERENCE.search(value):
        return value

    def look_up(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "env":
            if name not in os.environ:
                faults.append(f"{_dotted(path)}: the environment variable {name} isn't set")
            return os.environ.get(name, "")
        try:
            return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{_dotted(path)}: the file {name} can't be read ({type(error).__name__})")
            return ""

    resolved = _REFERENCE.sub(look_up, value)
    may_be_secret = path[:2] == ("source", "kafka") or path[:1] == ("spark",)
    return SecretStr(resolved) if may_be_secret else resolved


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


_SINKS: dict[object, type[BaseModel]] = {"delta_append": DeltaAppendSink, "delta_upsert": DeltaUpsertSink}


def _fault(fault: dict[str, Any]) -> str:
    """One line for one fault: the option's path, what is wrong, what to write instead."""
    loc: tuple[str | int, ...] = fault["loc"]
    noise = {*_SINKS, "str", "is-instance[SecretStr]", "[key]"}
    where, kind = _dotted(tuple(part for part in loc if part not in noise)), fault["type"]
    if kind == "extra_forbidden":
        known = _siblings(loc)
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
        return f"{where}: unknown option, " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
    if kind == "missing":
        return f"{where}: is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return f"{where}: type is one of {', '.join(map(str, _SINKS))}"
    if kind == "literal_error":
        return f"{where}: is one of {fault['ctx']['expected'].replace(chr(39), '')}, not {fault['input']!r}"
    if kind == "string_pattern_mismatch":
        return f"{where}: {fault['input']!r} may only have lower-case letters, digits, _ and -"
    if kind in ("too_short", "string_too_short"):
        return f"{where}: is empty"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where or 'the file'}: {message}"


def _siblings(loc: tuple[str | int, ...]) -> list[str]:
    """The options known beside the one at ``loc``."""
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): PipelineConfig,
        ("source",): Source,
        ("value",): Value,
        ("epoch",): EpochBound,
    }
    parent = tuple(str(part) for part in loc[:-1])
    model = _SINKS.get(loc[-2]) if parent[:1] == ("sinks",) else models.get(parent)
    return sorted(field.alias or name for name, field in model.model_fields.items()) if model else []
