"""``tables:``, one table per topic from one file: each topic is a pipeline of its own, made from a template."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from connector.config.all_faults import checked
from connector.config.apart import tables_of
from connector.config.fault_texts import shown
from connector.config.faults import Fault
from connector.config.flows import FLOWS
from connector.config.kinds import REFERENCE, Options, dotted
from connector.config.nearest import by_a_slip, nearest
from connector.config.pipeline import PipelineConfig
from connector.config.placeholders import merged, misplaced, placed, safe
from connector.config.places import normal
from connector.config.route import OPTION as ROUTE
from connector.config.routed_sinks import one_way
from connector.config.several import Several
from connector.config.source import Source, TopicPattern
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.marks import Path

OPTION = "tables"
_SINK = "sink"
_EACH = "topic"
TOPIC = f"{{{_EACH}}}"
"""What stands for the topic in a path or a table's name."""
_ANY_TOPIC = "topic"
_STAND_IN_TOPIC = "any-topic-of-the-pattern"
"""A topic whose name no folder has by itself."""
_HASHED = re.compile("(^|_)[0-9a-f]{8}$")
_BY_GROUP = ("auto_commit", "manual_commit", "idempotent")
"""The deliveries whose runs are members of a consumer group."""
_SOME_KAFKA = {"bootstrap.servers": "anywhere:9092"}
_MADE: Mapping[tuple[str, ...], str] = {
    ("sinks",): f"write {_SINK}: {{...}}, with what is different for its table",
    ("name",): "remove it: the pipeline is called by the file's name and the topic",
    ("source", "topics"): "remove it: all of this is for one topic",
    (FLOWS,): f"write value, key, require or steps beside {_SINK}",
    (ROUTE,): f"write a file with {ROUTE} for this topic",
    (OPTION,): "remove it",
}
"""What a topic's pipeline gets from ``tables``, and ``overrides`` can't give it -> what to do instead."""


class TablePerTopic(Options):
    """One table for each topic of ``source.topics``, instead of ``sinks``. Each has a position of its own."""

    for_each: Literal["topic"]
    """What gets a table of its own: each topic, also one that appears later."""
    sink: Mapping[str, Any]
    """The options of a sink. ``{topic}`` in its path or table stands for the topic."""
    overrides: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """What is different for a topic: topic -> options, such as {orders: {value: {schema: ...}, sink: {key: id}}}."""


_STAND_IN = TablePerTopic(for_each="topic", sink={"type": "delta_append", "path": f"lake/{TOPIC}"})


class Template(Several):
    """A pipeline file with ``tables``."""

    of, makes = _EACH, f"{OPTION} makes a pipeline of each {_EACH}"

    @property
    def known_parts(self) -> list[str]:
        """The topics that the file names, or one that stands for those that Kafka knows."""
        return self._named_topics or [_ANY_TOPIC]

    @property
    def _named_topics(self) -> list[str]:
        topics = self._given_source.get("topics")
        named = [*(topics if isinstance(topics, list) else []), *self._overrides]
        return list(dict.fromkeys(topic for topic in named if isinstance(topic, str)))

    def _parts_near(self, folders: Sequence[str]) -> list[str]:
        """The topics that the file names; with a pattern also those that Kafka may have, by the names of folders."""
        known, _ = self._known_topics()
        if known is None or not isinstance(known.topics, TopicPattern):
            return self._named_topics
        try:
            places = [table.folder for table in tables_of(self.pipeline(_STAND_IN_TOPIC)).values() if table.folder]
        except ConfigurationError:  # only the overrides say all that a pipeline needs: then no other topic has one
            return self._named_topics
        near = {_topic_of(folder, place) for folder in folders for place in places} - {None}
        unknown = REFERENCE.search(known.topics.pattern)
        # A topic with capitals, say, has a hash in its folder's name.
        may_be = [name for name in near if name and (unknown or name in known.topics or _HASHED.search(name))]
        return list(dict.fromkeys([*self._named_topics, *may_be]))

    def pipeline(self, part: str) -> PipelineConfig:
        """The pipeline of one topic. Raises ConfigurationError."""
        tables, faults = self._tables()
        changed = _mapping(tables.overrides.get(part))
        others = {name: value for name, value in self.document.items() if name not in (OPTION, ROUTE, FLOWS)}
        options = merged(others, {name: value for name, value in changed.items() if _is_option(name)})
        options |= self._name(safe(part, "name"))
        faults += _not_taken(changed, (OPTION, "overrides", part))
        if "topics" in self._given_source and isinstance(options["source"], Mapping):
            options["source"] = {**options["source"], "topics": [part]}
        faults += self._shared_group(options.get("delivery"), changed)
        options["sinks"] = [_filled(merged(tables.sink, _mapping(changed.get(_SINK))), part)]
        if isinstance(options.get("dead_letters"), dict):
            options["dead_letters"] = _filled(options["dead_letters"], part)
        faults += self._read_again(options, part)

        def moved(path: Path) -> Path:
            """Where the file has an option: with what is different for the topic, or with what all topics share."""
            name = ("sink", *path[2:]) if path[:2] == ("sinks", 0) else path
            here: Any = changed
            for step in name:
                here = here.get(step) if isinstance(here, Mapping) else None
            if here is not None:
                return (OPTION, "overrides", part, *name)
            return (OPTION, *name) if name != path else path

        return self._parsed(options, part, (OPTION, "sink"), moved, faults, (OPTION, "overrides", part, _SINK))

    def named(self, part: str) -> PipelineConfig:
        """The pipeline of a topic of the file that somebody names. Raises ConfigurationError."""
        config = self.pipeline(part)
        known, _ = self._known_topics()
        if known is None or REFERENCE.search(str(self._given_source.get("topics"))):
            return config
        if part not in known.topics:
            raise ConfigurationError(
                f"{self.origin}: source.topics doesn't have {part!r}: no command for the whole file would look at its "
                "table.",
                hint="Correct the name, or add the topic to source.topics.",
            )
        if isinstance(known.topics, TopicPattern) and part not in self._overrides:
            # Which of two topics there are, only Kafka knows, and not every command asks it.
            config.source._nearly = tuple(name for name in self._overrides if by_a_slip(part, [str(name)]) is not None)
        return config

    def without_topic(self, topics: Collection[str]) -> list[str]:
        """The topics of ``overrides`` that Kafka doesn't have. ``topics``: all that match and that it has."""
        return [name for name in self._overrides if isinstance(name, str) and name not in topics]

    def misnamed(self, topics: Collection[str]) -> dict[str, ConfigurationError]:
        """Topics that an override under another name seems to be meant for -> why their pipelines are refused."""
        unused = self.without_topic(topics)
        meant = {topic: by_a_slip(topic, unused) for topic in topics if topic not in self._overrides}
        return {topic: refusal(self.origin, name, topic) for topic, name in meant.items() if name is not None}

    @property
    def like_all(self) -> PipelineConfig:
        """A pipeline like that of any topic, with the name that all share. Raises ConfigurationError."""
        some = self.pipeline(_ANY_TOPIC)
        return some.model_copy(update={"name": some.name.removesuffix(f"-{_ANY_TOPIC}")})

    @property
    def source(self) -> Source:
        """Which topics there may be, and how to ask Kafka for them. Raises ConfigurationError."""
        given = self._given_source.get("topics")
        some_topic = given[0] if isinstance(given, list) and given and isinstance(given[0], str) else _ANY_TOPIC
        one = self.pipeline(some_topic).source  # whatever is wrong with the file shows here
        return one.model_copy(update={"topics": Source.model_validate({"topics": given, "kafka": one.kafka}).topics})

    @property
    def _overrides(self) -> Mapping[str, Any]:
        return _mapping(_mapping(self.document[OPTION]).get("overrides"))

    @property
    def _given_source(self) -> Mapping[str, Any]:
        source = self.document.get("source")
        return source if isinstance(source, dict) else {}

    def _shared_group(self, delivery: object, changed: Mapping[str, Any]) -> Iterator[Fault]:
        """A fault if the pipelines of several topics would be members of one group: none can begin beside another.

        They get no groups of their own made of this one, because the position of a table that is filled already would
        be in the old one.
        """
        topics = self._given_source.get("topics")
        alone = isinstance(topics, list) and len(topics) == 1
        own = _mapping(_mapping(changed.get("source")).get("kafka"))
        group = _mapping(self._given_source.get("kafka")).get("group.id")
        if group and not own.get("group.id") and delivery in _BY_GROUP and not alone:
            path: Path = ("source", "kafka", "group.id")
            yield Fault(
                path,
                f"{dotted(path)}: doesn't work with {OPTION} and delivery: {delivery}: each topic's pipeline needs a "
                "consumer group of its own. Remove it, and each has the group of its name. For a topic whose table is "
                f"filled already, the position is in {shown(group)}: keep it for that topic, as "
                f"{OPTION}: {{overrides: {{TOPIC: {{source: {{kafka: {{group.id: ...}}}}}}}}}}",
            )

    def _read_again(self, options: Mapping[str, Any], part: str) -> Iterator[Fault]:
        """A fault if another topic's pipeline would read what this one writes to a topic."""
        known, _ = self._known_topics()
        written: dict[Path, Any] = {
            ("dead_letters",): options.get("dead_letters"),
            (OPTION, "sink"): options["sinks"][0],
        }
        for of, place in written.items():
            path: Path = (*of, "topic")
            topic = _mapping(place).get("topic")
            if known is not None and topic != part and topic in known.topics:
                yield Fault(
                    path,
                    f"{dotted(path)}: {topic} is also a topic of the source: what is written there would be read "
                    "again, into a table of its own; give another name",
                )

    def _known_topics(self) -> tuple[Source | None, list[Fault]]:
        """``source.topics``, which a pipeline has only one of."""
        alone = {"topics": self._given_source.get("topics"), "kafka": _SOME_KAFKA}
        return checked(alone, Source, moved=lambda path: ("source", *path))

    def _tables(self) -> tuple[TablePerTopic, list[Fault]]:
        """What makes the tables, and the faults that all topics share. A stand-in is used for what is wrong."""
        given = self.document[OPTION]
        faults = one_way(self.document, "sinks", ROUTE, OPTION)
        if FLOWS in self.document:
            instead = f"{OPTION}.overrides may give each topic a value, key, require and steps of its own"
            faults.append(Fault((FLOWS,), f"{FLOWS}: doesn't work with {OPTION}: {instead}", name=True))
        if not isinstance(given, Mapping):
            example = f"{{for_each: {_EACH}, sink: {{type: ..., path: lake/{TOPIC}}}}}"
            faults.append(Fault((OPTION,), f"{OPTION}: write {example}, not {shown(given)}"))
            return _STAND_IN, faults
        tables, of_tables = checked(given, TablePerTopic, moved=lambda path: (OPTION, *path))
        faults += [*of_tables, *_misplaced(given.get("sink"))]
        if tables is None:
            sink, overrides = given.get("sink"), given.get("overrides")
            tables = _STAND_IN.model_copy(
                update={
                    "sink": sink if isinstance(sink, Mapping) else _STAND_IN.sink,
                    "overrides": _mapping(overrides),
                }
            )
        return tables, [*faults, *self._faults_of_source(tables)]

    def _faults_of_source(self, tables: TablePerTopic) -> Iterator[Fault]:
        source = self._given_source
        known = None
        if "topics" in source:
            known, faults = self._known_topics()
            yield from faults
        if source.get("start") == "latest":
            now = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
            yield Fault(
                ("source", "start"),
                f"source.start: latest doesn't work with {OPTION}: of a topic that appears, the records that come "
                "before the next look at it would be left out. Write the time from which on all topics are to be read, "
                f"as in start: {{timestamp: {now}}}",
            )
        for topic, changes in tables.overrides.items():
            path: Path = (OPTION, "overrides", topic)
            if known is not None and topic not in known.topics:
                yield Fault(
                    path, f"{dotted(path)}: is no topic of source.topics. Add it there, or remove it", name=True
                )
            sink = _mapping(changes).get("sink", {})
            if not isinstance(sink, Mapping):
                where = (*path, "sink")
                yield Fault(where, f"{dotted(where)}: write options, as in {{key: id}}, not {shown(sink)}")


def refusal(origin: str, override: str, topic: str) -> ConfigurationError:
    """Why a topic gets no table: an override under another name seems to be meant for it. ``origin``: the file."""
    return ConfigurationError(
        f"{origin}: {dotted((OPTION, 'overrides', override))}: Kafka has no such topic, but it has {topic}, "
        "which has no override: its table would be like all others.",
        hint=f"Correct the name. If both are right, write {topic}: {{}} into {OPTION}.overrides, too.",
    )


def _topic_of(folder: str, place: str) -> str | None:
    """The topic whose table would be in this folder, around it or below it, as a part of its name. ``place``: the table
    of the stand-in. None: no topic's."""
    found = None
    for here, there in zip(normal(folder).split("/"), normal(place).split("/"), strict=False):
        before, stands, after = there.partition(_STAND_IN_TOPIC)
        if not stands:
            if here != there:
                return None
            continue
        after = re.escape(after).replace(re.escape(_STAND_IN_TOPIC), r"\1")
        match = re.fullmatch(f"{re.escape(before)}(.+){after}", here)
        if match is None:
            return None
        found = match[1]
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    """The value, or nothing instead of what is no mapping. That is told as a fault."""
    return value if isinstance(value, Mapping) else {}


def _is_option(name: object) -> bool:
    """Whether a name in an override of a topic is meant as an option of the topic's pipeline itself."""
    return name != _SINK and (name,) not in _MADE and not _means_sink(name)


def _means_sink(name: object) -> bool:
    options = PipelineConfig.model_fields
    known = [_SINK, *(option for option in options if (option,) not in _MADE)]
    return name not in (_SINK, *options) and nearest(name, known) == _SINK


def _not_taken(changed: Mapping[str, Any], override: Path) -> Iterator[Fault]:
    """A fault for each option of a topic's ``override`` that would be passed over."""
    for name in filter(_means_sink, changed):
        path = (*override, name)
        yield Fault(path, f"{dotted(path)}: unknown option, did you mean {_SINK}?", name=True)
    for made, instead in _MADE.items():
        above = changed if len(made) == 1 else _mapping(changed.get(made[0]))
        if made[-1] in above:
            path = (*override, *made)
            yield Fault(path, f"{dotted(path)}: can't be different for a topic: {instead}", name=True)


def _misplaced(sink: object) -> Iterator[Fault]:
    """A fault if the topics would have one table."""
    if not isinstance(sink, Mapping) or (wrong := misplaced(sink, [_EACH], "topics")) is None:
        return
    option = (OPTION, *wrong.partition(":")[0].split("."))
    yield Fault(option, f"{OPTION}.{wrong}")


def _filled(place: Mapping[str, Any], topic: str) -> dict[str, Any]:
    """The options with the topic for ``{topic}``: a topic's own name is safe in any text."""
    return {
        name: value.replace(TOPIC, topic) if isinstance(value, str) else value
        for name, value in placed(place, _EACH, topic).items()
    }
