"""``tables:``, one table per topic from one file: each topic is a pipeline of its own, made from a template."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from connector.config.faults import configuration_error, faults_of
from connector.config.kinds import Options
from connector.config.placeholders import merged, placed, placeholders, safe
from connector.config.several import Several
from connector.config.source import Source
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.marks import Path
    from connector.config.pipeline import PipelineConfig

OPTION = "tables"
_EACH = "topic"
TOPIC = f"{{{_EACH}}}"
"""What stands for the topic in a path or a table's name."""
_ANY_TOPIC = "topic"


class TablePerTopic(Options):
    """One table for each topic of ``source.topics``, instead of ``sinks``. Each has a position of its own."""

    for_each: Literal["topic"]
    """What gets a table of its own: each topic, also one that appears later."""
    sink: Mapping[str, Any]
    """The options of a sink. ``{topic}`` in its path or table stands for the topic."""
    overrides: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """What is different for a topic: topic -> options, such as {orders: {value: {schema: ...}, sink: {key: id}}}."""


class Template(Several):
    """A pipeline file with ``tables``."""

    of, makes = _EACH, f"{OPTION} makes a pipeline of each {_EACH}"

    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one topic. Raises ConfigurationError."""
        tables = self._tables()
        changed = tables.overrides.get(part, {})
        others = {name: value for name, value in self.document.items() if name != OPTION}
        options = merged(others, {name: value for name, value in changed.items() if name != "sink"})
        options["name"] = f"{options.get('name', '')}-{safe(part, 'name')}"
        options["source"] = {**options["source"], "topics": [part]} if isinstance(options.get("source"), dict) else None
        options["sinks"] = [_filled(merged(tables.sink, changed.get("sink", {})), part)]
        if isinstance(options.get("dead_letters"), dict):
            options["dead_letters"] = _filled(options["dead_letters"], part)

        def moved(path: Path) -> Path:
            """Where the file has an option: with what is different for the topic, or with what all topics share."""
            name = ("sink", *path[2:]) if path[:2] == ("sinks", 0) else path
            here: Any = changed
            for step in name:
                here = here.get(step) if isinstance(here, Mapping) else None
            if here is not None:
                return (OPTION, "overrides", part, *name)
            return (OPTION, *name) if name != path else path

        return self._parsed(options, part, (OPTION, "sink"), moved)

    @property
    def source(self) -> Source:
        """Which topics there may be, and how to ask Kafka for them. Raises ConfigurationError."""
        some = self.document.get("source")
        given = some.get("topics") if isinstance(some, dict) else None
        some_topic = given[0] if isinstance(given, list) and given and isinstance(given[0], str) else _ANY_TOPIC
        one = self.pipeline(some_topic).source  # whatever is wrong with the file shows here
        try:
            topics = Source.model_validate({"topics": given, "kafka": one.kafka}).topics
        except ValidationError as error:
            raise ConfigurationError(f"{self.origin}: source.topics: {error.errors()[0]['msg']}.") from None
        if one.start == "latest":
            raise ConfigurationError(
                f"{self.origin}: source.start: latest doesn't work with {OPTION}: of a topic that appears, the records "
                "that come before the next look at it would be left out.",
                hint="Write the time from which on all topics are to be read: start: {timestamp: "
                f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}}}.",
            )
        for topic in self._tables().overrides:
            if topic not in topics:
                raise ConfigurationError(f"{self.origin}: {OPTION}.overrides: {topic} is no topic of source.topics.")
        return one.model_copy(update={"topics": topics})

    def _tables(self) -> TablePerTopic:
        where = f"{self.origin}: {OPTION}"
        if "sinks" in self.document:
            raise ConfigurationError(f"{where}: give either sinks or {OPTION}, not both.")
        try:
            tables = TablePerTopic.model_validate(self.document[OPTION])
        except ValidationError as error:
            given = self.document[OPTION]
            found = faults_of(
                error, given if isinstance(given, Mapping) else {}, TablePerTopic, moved=lambda path: (OPTION, *path)
            )
            wrong = configuration_error(self.origin, found, self.marks)
            raise ConfigurationError(
                wrong.message, hint="Write tables: {for_each: topic, sink: {type: ..., path: lake/{topic}}}."
            ) from None
        place, names = placeholders(tables.sink)
        if set(names) != {_EACH}:
            lacks = f"{place!r} has {{{names[0]}}}" if names else f"{place!r} has no {TOPIC}"
            raise ConfigurationError(
                f"{where}.sink: {lacks}: all topics would have one table.",
                hint=f"Write {TOPIC} where the topic is to stand, as in path: lake/{TOPIC}.",
            )
        return tables


def _filled(place: Mapping[str, Any], topic: str) -> dict[str, Any]:
    """The options with the topic for ``{topic}``: a topic's own name is safe in any text."""
    return {
        name: value.replace(TOPIC, topic) if isinstance(value, str) else value
        for name, value in placed(place, _EACH, topic).items()
    }
