"""The option ``flows``: topics of a pipeline whose records are read otherwise than its other topics' records.

Each flow is a pipeline file of its own as far as its records are decoded: ``by_flow``. Their rows are one table's, with
one position and one fence, so that updates and deletes of all flows are in one order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from connector.config.formats import DebeziumFormat, FormatOptions, JsonFormat, RowsFormat
from connector.config.kinds import Name, Options, Text, fits
from connector.config.nearest import did_you_mean
from connector.config.source import TopicPattern
from connector.config.steady import steady
from connector.config.steps import Step

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

FLOWS = "flows"
_CHANGES = ("value", "key", "require", "steps")


class Flow(Options):
    """How the records of some topics are read. What a flow doesn't say is as at the top of the file."""

    topics: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Topics of ``source.topics``. A topic that no flow names is read as the top of the file says, and there has to be
    one."""
    value: FormatOptions | None = None
    """The format of their values, in place of the file's ``value``."""
    key: FormatOptions | None = None
    """The format of their keys, in place of the file's ``key``."""
    require: Annotated[Text, AfterValidator(steady)] | None = None
    """A SQL condition that each of their records must meet, in place of the file's ``require``."""
    steps: tuple[Step, ...] | None = None
    """What to do with their columns, in place of the file's ``steps``. An empty list, ``[]``, does nothing. Rows of all
    flows go by the names of their columns: null where a flow lacks the column. Its type has to be the same in all."""

    @fits
    def _says_something(self) -> Iterator[str]:
        if not self.given:
            yield "give value, key, require or steps: without them the topics are read as all others, and need no flow"

    @property
    def given(self) -> dict[str, object]:
        """The options that it changes."""
        return {name: value for name in _CHANGES if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class OfFlow:
    """Of a configuration that is a flow's: which one, and which options are its own."""

    option: str
    given: frozenset[str]

    def named(self, option: str) -> str:
        """Where the file has an option, for messages, which may follow it."""
        first = re.match(r"\w*", option)
        return f"{self.option}.{option}" if first is not None and first[0] in self.given else option


def by_flow(config: PipelineConfig) -> Sequence[PipelineConfig]:
    """The configuration as each flow sees it, first that of the topics that no flow names. Without flows as it is."""
    topics, named = config.source.topics, _named(config)
    if not config.flows or isinstance(topics, TopicPattern):  # which is refused
        return (config,)
    found = [_of(config, tuple(topic for topic in topics if topic not in named), {})]
    for number, flow in enumerate(config.flows):
        of_flow = _of(config, flow.topics, flow.given)
        of_flow._flow = OfFlow(f"{FLOWS}[{number}]", frozenset(flow.given))
        found.append(of_flow)
    return found


def _of(config: PipelineConfig, topics: tuple[str, ...], given: dict[str, object]) -> PipelineConfig:
    source = config.source.model_copy(update={"topics": topics})
    return config.model_copy(update={FLOWS: (), "source": source, **given})


def _named(config: PipelineConfig) -> dict[str, int]:
    """The topics that flows name, and the first flow that does."""
    found: dict[str, int] = {}
    for number, flow in enumerate(config.flows):
        for topic in flow.topics:
            found.setdefault(topic, number)
    return found


def unfit_flows(config: PipelineConfig) -> Iterator[str]:
    """What doesn't go together with flows. Refused are also combinations that nobody has thought through."""
    if not config.flows:
        return
    for option, given in {
        "source.topics: a pattern": isinstance(config.source.topics, TopicPattern),
        "source.on_recreated_topic": config.source.takes_recreated,
        "route": config.route is not None,
        f"delivery: {config.delivery}": config.delivery != "transactional",
        f"on_new_column: {config.on_new_column}": config.on_new_column in ("add", "ignore"),
        "merge: on_read": config.merges_on_read,
    }.items():
        if given:
            yield f"{FLOWS}: {option} doesn't work with flows. {_INSTEAD[option.partition(':')[0]]}"
    if isinstance(config.source.topics, TopicPattern):
        return
    yield from _topics_fit(config, config.source.topics)
    yield from _formats_fit([(each.option("value"), each) for each in by_flow(config)])


_INSTEAD = {
    "source.topics": "Name the topics: a list",
    "source.on_recreated_topic": "Remove one of them",
    "route": "Write a pipeline file for each flow, with tables of its own",
    "delivery": "Write delivery: transactional",
    "on_new_column": "Remove it. New columns come with ALTER TABLE ... ADD COLUMNS and the schema of a flow",
    "merge": "Write merge: on_write",
}


def _topics_fit(config: PipelineConfig, topics: Sequence[str]) -> Iterator[str]:
    first = _named(config)
    for number, flow in enumerate(config.flows):
        for index, topic in enumerate(flow.topics):
            where = f"{FLOWS}[{number}].topics: {topic}"
            if topic not in topics:
                yield f"{where} isn't in source.topics. Add it there, or correct it here{did_you_mean(topic, topics)}"
            if first[topic] != number:
                yield f"{where} is in {FLOWS}[{first[topic]}] too, and a topic belongs to one flow. Remove it from one"
            elif topic in flow.topics[:index]:
                yield f"{where} is there twice. Remove one"
    if all(topic in first for topic in topics):
        yield (
            f"{FLOWS}: every topic of source.topics is in a flow, so that the value at the top of the file reads "
            "none. Leave the topics of one flow out of flows, and write what it says at the top of the file"
        )


def _formats_fit(every: Sequence[tuple[str, PipelineConfig]]) -> Iterator[str]:
    from connector.config.unavailable import keeps_by
    from connector.config.unfit_steps import unfit_steps

    for option, each in every:
        if isinstance(each.value, RowsFormat):
            yield f"{option}: format: rows doesn't work with flows: your own query makes the rows of all its topics"
        if each.inferred is not None:
            yield f"{option}.schema: inferred doesn't work with flows. Write the columns"
        if isinstance(each.key, RowsFormat) and each._flow is not None:
            yield f"{each.option('key')}: format: rows is allowed for value only"
        if isinstance(each.key, JsonFormat) and each.key.inferred and each._flow is not None:
            yield f"{each.option('key')}.schema: inferred is for value only; write the columns of Kafka's key"
        if keeps_by(each) is not None:
            yield (
                f"{option}: {keeps_by(each)} doesn't work with flows: a row would keep values of another flow. Write "
                "unavailable: bad_record or 'null'"
            )
        if each._flow is not None and each.steps and "steps" in each._flow.given:
            yield from (f"{each._flow.option}.{fault}" for fault in unfit_steps(each))
    events = [option for option, each in every if isinstance(each.value, DebeziumFormat)]
    others = [option for option, each in every if not isinstance(each.value, DebeziumFormat)]
    if events and others:
        yield (
            f"{FLOWS}: {events[0]} has format: debezium, and {others[0]} hasn't: a tombstone says nothing after a "
            "delete of Debezium's, and deletes a row elsewhere. Read the events as format: json, with a transform, or "
            "write a pipeline file for each, with tables of their own"
        )
