"""The options of ``source``: which topics to read, how to connect to Kafka, and where to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, field_validator

from connector.config.kinds import (
    NAME_OR_NAMES,
    Duration,
    Name,
    Options,
    OptionText,
    as_model,
    as_written,
    in_clear,
    literal_secrets,
    refuse,
    told,
    topic_name,
    word_or_options,
)
from connector.config.nearest import did_you_mean
from sinks.kafka import faults

_RESERVED_KAFKA_OPTIONS = {
    "auto.offset.reset": "a stored position decides where to read, and `source.start` where there is none",
    "enable.auto.commit": "`delivery` says when offsets are committed",
    "enable.auto.offset.store": "`delivery` says when offsets are committed",
    "interceptor.classes": "records are read as Kafka has them: an interceptor could change or drop some",
    "isolation.level": "it is always read_committed, because records of aborted transactions must not count",
    "key.deserializer": "keys are read as bytes and decoded in Spark",
    "value.deserializer": "values are read as bytes and decoded in Spark, see `value.format`",
}


def _no_number(value: object) -> object:
    """Refuse what counts as seconds or milliseconds since 1970, by its size: 20261101 would be a day in August 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"\s*[+-]?[\d.]+\s*", value)):
        raise ValueError(f"write a time with its zone, as in 2026-11-01T00:00:00Z, not the number {value}")
    return value


class FromTimestamp(Options):
    """Start at the first record at or after this time."""

    timestamp: Annotated[datetime, BeforeValidator(_no_number)]

    @field_validator("timestamp")
    @classmethod
    def _has_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("write the time zone too, as in 2026-11-01T00:00:00Z")
        return value


class FromOffsets(Options):
    """The offsets to start from, written as Spark writes them. -2 is the earliest, -1 the latest."""

    offsets: Mapping[str, Mapping[int, Annotated[int, Field(ge=-2)]]]


Start: TypeAlias = Literal["earliest", "latest"] | FromTimestamp | FromOffsets


_START = {
    "anyOf": [
        {"enum": ["earliest", "latest"]},
        {
            "type": "object",
            "properties": {"timestamp": {"type": "string"}},
            "required": ["timestamp"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer", "minimum": -2}},
        },
    ]
}
"""Its JSON schema: offsets stand there without a name of their own."""


def _start(value: object) -> object:
    if isinstance(value, FromTimestamp | FromOffsets):
        return value
    if isinstance(value, Mapping):
        by_time = "timestamp" in value and not isinstance(value["timestamp"], Mapping)
        return as_model(FromTimestamp, value) if by_time else as_model(FromOffsets, {"offsets": value})
    if value not in ("earliest", "latest"):
        raise ValueError(
            'write earliest, latest, {timestamp: 2026-11-01T00:00:00Z} or {"topic": {"0": 120, "1": 80}}, '
            f"not {value!r}{did_you_mean(value, ('earliest', 'latest'))}"
        )
    return value


class TopicPattern(Options):
    """A regular expression that must match a topic's whole name. Kafka's internal topics (``__...``) never match."""

    pattern: str

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} isn't a regular expression: {error}") from None
        return pattern

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and not topic.startswith("__") and re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        return f"topics that match {self.pattern!r}"


def _named_topic(name: str) -> None:
    """Raises ValueError with the name, if it can't be a topic's."""
    try:
        topic_name(name)
    except ValueError as error:
        raise ValueError(f"{error}, not {name!r}") from None


def _topics(value: object) -> object:
    """Choose between a list and a pattern here: pydantic would report the errors of both alternatives."""
    if isinstance(value, TopicPattern):
        return value
    if isinstance(value, str):
        return as_model(TopicPattern, {"pattern": value})
    if not isinstance(value, list | tuple):
        raise ValueError(f'write a list of topics, [orders, returns], or a pattern, "orders-.*", not {value!r}')
    if not value:
        raise ValueError("is empty")
    return [as_written(name) for name in value]


def _ids(value: object) -> object:
    """Refuse true, false and 1.10 for the id of a group or a client: another text would be another group's offsets.

    A whole number is written as it is read: ``yaml_text`` refuses 0123, which is 83 in YAML.
    """
    if isinstance(value, Mapping):
        refuse(
            [
                f'{name}: write it in quotes, as in "1.10": YAML takes it for {str(each).lower()}, not text'
                for name, each in value.items()
                if str(name).endswith(".id") and isinstance(each, bool | float)
            ]
        )
    return value


class ContinueAhead(Options):
    """Skip the lost records, and also the records of the next ``ahead``, which retention may remove soon."""

    ahead: Duration = Field(alias="continue", ge=timedelta(0))


def _on_data_loss(value: object) -> object:
    return word_or_options(value, ("fail", "continue"), ContinueAhead, write="fail, continue or {continue: 10 minutes}")


class Translated(Options):
    """Continue in a mirrored topic at the offsets in the file ``translated``."""

    translated: Name


def _on_recreated_topic(value: object) -> object:
    return word_or_options(
        value, ("fail", "continue"), Translated, write="fail, continue or {translated: offsets.json}"
    )


class Source(Options):
    """The topics to read, how to connect to Kafka, and where to start."""

    topics: Annotated[tuple[Name, ...] | TopicPattern, BeforeValidator(_topics), WithJsonSchema(NAME_OR_NAMES)]
    """The topics to read: a list, [flights, returns], or a regular expression that must match whole names,
    "flights-.*"."""
    kafka: Annotated[Mapping[str, OptionText], BeforeValidator(_ids)]
    """Kafka client options, by Kafka's own names. ``bootstrap.servers`` is required. Write secrets as ${env:NAME} or
    ${file:/path}."""
    reader: Literal["auto", "spark"] = "auto"
    """How Spark reads Kafka. ``spark``: by Spark's own source. ``auto``: by Lakelock's columnar reader, which also
    decodes JSON and is faster; where the session lacks its jar, or the value isn't JSON, by Spark's own source. Both
    give the same rows: docs/spark.md."""
    start: Annotated[Start, BeforeValidator(_start), WithJsonSchema(_START)] = "earliest"
    """Where to start when the table has no position yet: ``earliest``, ``latest``, {timestamp: 2026-11-01T00:00:00Z},
    or offsets, {"flights": {"0": 120}}, where -2 is the earliest and -1 the latest. Ignored afterwards."""
    on_data_loss: Annotated[Literal["fail", "continue"] | ContinueAhead, BeforeValidator(_on_data_loss)] = "fail"
    """What to do when retention has removed records that were never read: ``fail`` stops the run, ``continue`` records
    the loss in the table and goes on with the oldest record. {continue: 10 minutes} also skips the oldest 10 minutes of
    records, which retention may remove next. The same goes for deletes that may be gone from a compacted topic."""
    on_recreated_topic: Annotated[Literal["fail", "continue"] | Translated, BeforeValidator(_on_recreated_topic)] = (
        "fail"
    )
    """What to do with a recreated topic, one that was deleted and created again under the same name: ``fail`` stops the
    run, ``continue`` reads the new topic from its beginning. {translated: offsets.json} continues in a mirrored topic,
    at the offsets that ``lakelock translate`` has written."""
    _nearly: tuple[str, ...] = PrivateAttr(())

    @property
    def nearly(self) -> tuple[str, ...]:
        """Of a topic of ``tables`` without an override: the topics of overrides from which it differs by a slip. If
        Kafka lacks one of them, the override seems to be meant for this topic."""
        return self._nearly

    @field_validator("topics")
    @classmethod
    def _distinct(cls, topics: tuple[str, ...] | TopicPattern) -> tuple[str, ...] | TopicPattern:
        if isinstance(topics, TopicPattern):
            return topics
        twice = [f"names the topic {name} twice" for name in dict.fromkeys(topics) if topics.count(name) > 1]
        refuse(twice + [fault for name in dict.fromkeys(topics) for fault in told(partial(_named_topic, name))])
        return topics

    @field_validator("kafka")
    @classmethod
    def _kafka(cls, options: Mapping[str, OptionText]) -> Mapping[str, OptionText]:
        wrong = [
            f"{name} is set by Lakelock ({why}); remove it"
            for name, why in _RESERVED_KAFKA_OPTIONS.items()
            if name in options
        ]
        wrong += [
            f"{name}: write Kafka's own name, {name.removeprefix('kafka.')}"
            for name in options
            if name.startswith("kafka.")
        ]
        own = {
            name: value
            for name, value in options.items()
            if name not in _RESERVED_KAFKA_OPTIONS and not name.startswith("kafka.")
        }
        wrong += literal_secrets(own) or faults(in_clear(own))
        if not options.get("bootstrap.servers") and not any("bootstrap.servers" in fault for fault in wrong):
            wrong.insert(0, 'bootstrap.servers is missing, as in {bootstrap.servers: "127.0.0.1:9092"}')
        refuse(wrong)
        return options

    @property
    def several_topics(self) -> bool:
        """Whether the records may be of several topics."""
        return isinstance(self.topics, TopicPattern) or len(self.topics) > 1

    @property
    def takes_recreated(self) -> bool:
        """Whether a run continues with a recreated topic."""
        return self.on_recreated_topic != "fail"

    @property
    def continue_on_data_loss(self) -> bool:
        """Whether a run continues after records were lost."""
        return self.on_data_loss != "fail"

    @property
    def ahead(self) -> timedelta:
        """How far ahead of the oldest record to continue after a loss, because retention may remove that one next."""
        return self.on_data_loss.ahead if isinstance(self.on_data_loss, ContinueAhead) else timedelta(0)

    @property
    def kafka_options(self) -> dict[str, str]:
        """The Kafka client options with secrets in clear text. Never print them."""
        return in_clear(self.kafka)

    @property
    def sink_options(self) -> dict[str, str]:
        """Those of a client of the sink's topic, which names its group by itself."""
        return {name: value for name, value in self.kafka_options.items() if name != "group.id"}
