"""Options of a pipeline file that don't go together. Each check says all that doesn't, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from connector.config.apart import nested
from connector.config.flows import unfit_flows
from connector.config.formats import INFERRED, JsonFormat, RowsFormat
from connector.config.orders import unfit_orders
from connector.config.places import DeltaSink
from connector.config.route import sinks_of
from connector.config.sensitive import unfit_sensitive
from connector.config.sinks import (
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    KafkaTopicSink,
    S3ObjectsSink,
)
from connector.config.source import TopicPattern
from connector.config.unavailable import unkept
from connector.config.unfit_steps import unfit_steps
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig


def _merges_on_read(config: PipelineConfig) -> Iterator[str]:
    if not config.merges_on_read:
        return
    why = {
        f"delivery: {config.delivery} keeps no position in the change log": config.delivery != "transactional",
        "several sinks commit by two-phase commit": config.two_phase and config.route is None,
        f"on_new_column: {config.on_new_column} changes the table, but not the change log": (
            config.on_new_column in ("add", "ignore")
        ),
        "source.on_recreated_topic renames topics in the table, but not in the change log": (
            config.source.takes_recreated
        ),
    }
    reasons = "; ".join(reason for reason, given in why.items() if given)
    if reasons:
        yield f"merge: on_read doesn't work with this pipeline: {reasons}. Write merge: on_write"


def _source_fits(config: PipelineConfig) -> Iterator[str]:
    if config.delivery != "transactional":
        for option, given in {
            "source.topics: a pattern": isinstance(config.source.topics, TopicPattern),
            "source.on_recreated_topic": config.source.takes_recreated,
            "epoch.max_bytes": config.epoch.max_bytes is not None,
            "epoch.target_duration": config.epoch.target_duration is not None,
            "trigger.target_latency": config.target_latency is not None,
        }.items():
            if given:
                yield (
                    f"{option} needs delivery: transactional; with {config.delivery} a consumer group decides what "
                    "to read next"
                )
    if isinstance(config.source.topics, TopicPattern) and any(
        isinstance(each, KafkaTopicSink) for each in config.sinks
    ):
        yield (
            "source.topics: a pattern doesn't work with a kafka_topic, whose transactions commit the offsets of "
            "every topic ever read: Kafka refuses the offsets of a deleted topic. Name the topics"
        )
    if config.source.takes_recreated:
        if config.two_phase:
            yield (
                "source.on_recreated_topic works with one Delta table only, where position and rows change in the "
                "same commit. Write the new topic to new places"
            )
        sink = config.sinks[0]
        if isinstance(sink, DeltaHistorySink) and sink.sequence_by is None:
            yield (
                "source.on_recreated_topic needs sequence_by in a delta_history: without it, versions begin and "
                "end at offsets, and the new topic's offsets start over. Write the new topic to a new table"
            )


def _layout_fits(config: PipelineConfig) -> Iterator[str]:
    for sink in sinks_of(config):
        properties = sink.properties if isinstance(sink, DeltaSink) else {}
        if properties.get("delta.appendOnly", "").lower() == "true" and config.source.takes_recreated:
            yield (
                f"{sink.option('properties')}: delta.appendOnly is true, and source.on_recreated_topic renames topics "
                "in rows. Remove one of them"
            )
        if properties.get("delta.enableTypeWidening", "").lower() == "false" and config.on_new_column == "add":
            yield (
                f"{sink.option('properties')}: delta.enableTypeWidening is false, and on_new_column: add makes columns "
                "wider. Remove one of them"
            )


def _tables_can_change(config: PipelineConfig) -> Iterator[str]:
    fixed = [
        sink.type
        for sink in config.sinks
        if isinstance(sink, DeltaAggregateSink)
        or (config.on_new_column == "add" and not isinstance(sink, DeltaAppendSink | DeltaUpsertSink))
    ]
    if config.on_new_column in ("add", "ignore") and fixed:
        yield (
            f"on_new_column: {config.on_new_column} doesn't work with {fixed[0]}, whose columns don't follow the "
            "records' columns; write fail, or remove the option"
        )
    patched = any(isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates is True for sink in config.sinks)
    if config.on_new_column == "add" and patched:
        yield "ignore_null_updates: true doesn't work with on_new_column: add; list the columns instead"


def _rows_have_no_bytes(config: PipelineConfig) -> Iterator[str]:
    if isinstance(config.key, RowsFormat):
        yield "key: format: rows is allowed for value only, where it covers both value and key"
    if not config.of_rows:
        return
    for option, given in {
        "key": config.key is not None,
        "headers": config.headers,
        "dead_letters": config.dead_letters is not None,
        "on_new_column": config.on_new_column is not None,
        "delivery": config.delivery != "transactional",
    }.items():
        if given:
            yield (f"{option}: doesn't work with value: {{format: rows}}, whose rows your own query makes; remove it")


def _windows_fit(config: PipelineConfig) -> Iterator[str]:
    windows = [sink.window for sink in config.sinks if isinstance(sink, DeltaAggregateSink) and sink.window]
    if config.event_time is not None and any(window.time != config.event_time for window in windows):
        yield (
            f"event_time: is {config.event_time}, and window.time is {windows[0].time}. A pipeline has one event time, "
            "which is that of its window: give window.time that column, or leave event_time out"
        )
    if config.delivery == "idempotent" and any(window.gap for window in windows):
        yield (
            "window.gap doesn't work with delivery: idempotent: a consumer that was replaced while it paused would "
            "count its records in a session again. Write delivery: transactional"
        )


def _inferred_schema(config: PipelineConfig) -> Iterator[str]:
    if isinstance(config.key, JsonFormat) and config.key.schema_ == INFERRED:
        yield "key.schema: inferred is for value only; write the columns of Kafka's key"
    if config.inferred is not None and config.two_phase:
        yield (
            "value.schema: inferred needs one Delta table, which keeps what was found; write the columns, or "
            "together: eventual for several tables"
        )


def _declared_fields(config: PipelineConfig) -> Iterator[str]:
    formats = [format.format for flow in config.by_flow for format in (flow.value, flow.key) if format is not None]
    if config.unmatched is not None and not {"json", "debezium"} & {*formats}:
        yield f"unmatched: is about the fields that the schema of JSON declares, not about {formats[0]}; remove it"


def _bound_of_lag(config: PipelineConfig) -> Iterator[str]:
    bound = config.notify.bound if config.notify is not None else None
    if bound is None:
        return
    if config.delivery != "transactional":
        yield (
            f"notify.behind: needs delivery: transactional, whose commits say when all was read; {config.delivery} "
            "knows only offsets. Leave it out, and behind out of notify.on"
        )
    for option, time in (("interval", config.interval), ("target_latency", config.target_latency)):
        if time is not None and bound <= time:
            yield f"notify.behind: has to be longer than trigger.{option}, or every wait would be told"


def _places_apart(config: PipelineConfig) -> Iterator[str]:
    """No table or object lies in the folder of a table, whose VACUUM removes what it doesn't know."""
    tables = {sink.option("path"): sink.folder for sink in config.sinks if isinstance(sink, DeltaSink)}
    if config.route is not None:
        with suppress(ConfigurationError):  # the route says what is wrong with its sinks
            named = {name: sink for name, sink in config.route.sinks.items() if name}
            tables |= {f"route.overrides.{name}.sink.path": sink.folder for name, sink in named.items()}
    others = {sink.option("url"): sink.place for sink in config.sinks if isinstance(sink, S3ObjectsSink)}
    own = {"dead_letters.path": config.dead_letters, "coordinator.path": config.coordinator}
    tables |= {option: place.folder for option, place in own.items() if place is not None}
    for inner, outer in nested(tables, {**others, **tables}):
        yield (
            f"{inner}: lies in the folder of {outer}, and VACUUM removes from a table's folder what isn't the table's. "
            "Give it a folder beside that one"
        )


def _subjects_are_known(config: PipelineConfig) -> Iterator[str]:
    if not isinstance(config.source.topics, TopicPattern):
        return
    for option in ("value", "key"):
        registry = getattr(getattr(config, option), "registry", None)
        if option == "value" and config.route is not None and config.route.bare(config.value):
            continue  # each table names its own
        if registry is not None and not registry.names_schemas:
            yield (
                f"{option}.registry: source.topics is a pattern, so the schema can't be found by the topic's name: "
                "give subject, or glue.schema"
            )


UNFIT: Sequence[Callable[[PipelineConfig], Iterator[str]]] = (
    _merges_on_read, _source_fits, _windows_fit, _rows_have_no_bytes, _inferred_schema, _declared_fields, _bound_of_lag,
    _layout_fits, _places_apart, _subjects_are_known, unkept, unfit_orders, unfit_steps, unfit_sensitive,
    _tables_can_change, unfit_flows,
)  # fmt: skip
