"""``route:``, one topic to many tables: a SQL expression names the table of each record."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, field_validator

from connector.config.all_faults import checked
from connector.config.fault_texts import found, one_of
from connector.config.faults import Fault
from connector.config.formats import AvroFormat, FormatOptions, JsonFormat
from connector.config.kinds import Name, Options, Text, dotted, fits
from connector.config.marks import Path
from connector.config.nearest import by_a_slip
from connector.config.own_schema import OwnSchema, unfit_for_schemas
from connector.config.placeholders import merged, misplaced, placed, placeholders
from connector.config.places import DeltaSink, spot
from connector.config.registry import ConfluentRegistry
from connector.config.sinks import (
    SINK_TYPES,
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaUpsertSink,
    KeyedSink,
    SinkOptions,
)
from connector.config.steady import steady
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

OPTION = "route"
OTHER = "(other)"
"""Stands for the table of the records that ``by`` names no table for. As a value of ``by`` it names no table."""
_EACH = "route"
_TABLES = {str(name): kind for name, kind in SINK_TYPES.items() if issubclass(kind, DeltaSink)}
_NO_TABLE = "{} doesn't work with route, whose tables commit each for itself. Write a type that begins with delta_"


_Word = Literal["fail", "dead_letter", "ignore"]


def _other(value: object) -> object:
    words = get_args(_Word)
    if value is not None and value not in words and not isinstance(value, Mapping):
        raise ValueError(f"is one of {', '.join(words)}, or the options of a sink, not {value!r}")
    return value


class RouteOverride(Options):
    """What is different for the table of one value."""

    sink: Mapping[str, Any] = Field(default_factory=dict)
    """Options of its sink."""
    value: OwnSchema | None = None
    """A schema of its own, which gives the table's columns. JSON: {schema: "id INT, reason STRING"}. Avro of a
    registry: {subject: shop.Refund} or {schema_file: refund.avsc}."""


class Route(Options):
    """One table for each value of a SQL expression, instead of ``sinks``. Kafka is read and decoded once for all."""

    by: Annotated[Text, AfterValidator(steady)]
    """A SQL expression over the columns of a record, as in ``event_type`` or ``CAST(_headers['type'] AS STRING)``. Its
    value names the record's table. It sees what ``require`` sees: the columns before the ``transform``. With Avro of a
    Confluent registry both also see ``_schema``, the full name of the schema that the record was written with."""
    sink: Mapping[str, Any]
    """The options of a sink. In its path or table, ``{route}`` stands for the value of ``by``; if ``by`` is a column,
    its name in braces does too."""
    other: Annotated[_Word | Mapping[str, Any] | None, BeforeValidator(_other)] = None
    """What to do with a record for which ``by`` is null, empty, ``(other)`` or no UTF-8 text, or isn't one of
    ``values``: stop (``fail``), set it aside (``dead_letter``), ``ignore`` it, or write it to the sink with these
    options. By default it is a bad record, and ``on_bad_record`` decides."""
    values: tuple[Name, ...] | None = None
    """The only values that get a table, each a text: ["NO"] in quotes, as YAML takes NO for false. By default each
    value does."""
    overrides: Mapping[str, RouteOverride] = Field(default_factory=dict)
    """What is different for a value: value -> options, such as {returns: {sink: {key: [id, line]}}}. With
    {returns: {value: {schema: ...}}} its records have a schema of their own: of JSON ``schema``, of Avro in a registry
    ``subject`` or ``schema_file``."""
    max_tables: Annotated[int, Field(ge=1, le=10_000)] = 200
    """The largest number of tables. An epoch that would make more of them stops the run."""
    _value: str | None = PrivateAttr(None)
    _named_by: FormatOptions | None = PrivateAttr(None)

    @property
    def place(self) -> str:
        """The path or table as the file has it, with its placeholder."""
        return placeholders(self.sink)[0]

    @property
    def value(self) -> str | None:
        """The value whose table alone these options are about; None: all of them."""
        return self._value

    @field_validator("values")
    @classmethod
    def _some(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if values is not None and (not values or not all(values) or len(set(values)) < len(values)):
            raise ValueError("name at least one value, each once, and none of them empty")
        return values

    @fits
    def _placeholders(self) -> Iterator[str]:
        kind = self.sink.get("type")
        if isinstance(kind, str) and kind in SINK_TYPES and kind not in _TABLES:
            yield f"sink.type: {_NO_TABLE.format(kind)}"
        else:
            yield from filter(None, [misplaced(self.sink, self._names, "records")])
        unknown = [value for value in self.overrides if value not in (self.values or self.overrides) or value == OTHER]
        if unknown:
            yield f"overrides: {', '.join(unknown)} isn't one of values. Add it to values, or remove it"

    @property
    def _names(self) -> set[str]:
        """What may stand in braces."""
        return {_EACH, self.by.strip("`")} if re.fullmatch(r"\w+|`\w+`", self.by) else {_EACH}

    @property
    def named_by(self) -> FormatOptions | None:
        """The format by which a record names its table, if that isn't the format of the table's records."""
        return self._named_by

    @property
    def own(self) -> Mapping[str, OwnSchema]:
        """Value -> the schema of its records, of those that have one of their own."""
        return {value: each.value for value, each in self.overrides.items() if each.value is not None}

    def misnamed(self, names: Collection[str], there: Collection[str]) -> dict[str, str]:
        """Values that an override under another name seems to be meant for -> what to say of it. The two names differ
        by a slip, and only ``there``, where each value with a record or a table is, shows which of them is real.
        """
        unused = [value for value in self.overrides if value not in there] if self.values is None else []
        meant = {name: by_a_slip(name, unused) for name in names if name not in self.overrides and name != OTHER}
        return {
            name: f"{OPTION}.overrides.{override}: no record names {override!r} so far, but records name {name!r}, "
            "which has no override"
            for name, override in meant.items()
            if override is not None
        }

    def unseen(self, there: Collection[str], format: FormatOptions) -> list[str]:
        """Those of the only values with a table that aren't ``there``. Empty where a record of another name is a bad
        one, which says so. ``format``: that of the file."""
        stays = self.other == "ignore" or isinstance(self.other, Mapping)
        return [value for value in self.only(format) or () if value not in there] if stays else []

    def passed_over(self, names: Collection[str], there: Collection[str], format: FormatOptions) -> list[str]:
        """What to say of ``names`` of records that get no table, and differ by a slip from a value that isn't
        ``there``, where each value with a record or a table is. ``format``: that of the file."""
        only, unseen = self.only(format) or (), self.unseen({*names, *there}, format)
        option = f"{OPTION}.values" if self.values is not None else f"{OPTION}.overrides"
        what = "ignored" if self.other == "ignore" else f"written to the sink of {OPTION}.other"
        return [
            f"{option}: no record names {value!r} so far, but records name {name!r}, which isn't one of them: "
            f"these are {what}. Correct the name in {option}, if that is meant"
            for name in names
            if name not in only and (value := by_a_slip(name, unseen)) is not None
        ]

    def bare(self, format: FormatOptions) -> bool:
        """Whether records share no columns: each table has a schema of its own, and ``format``, that of the file, says
        none."""
        if not isinstance(format, AvroFormat) or format.schema_file is not None or isinstance(self.other, Mapping):
            return False
        registry, values = format.registry, self.values or self.overrides
        unsaid = isinstance(registry, ConfluentRegistry) and registry.subject is None
        return unsaid and bool(self.own) and self.own.keys() >= {*values}

    def only(self, format: FormatOptions) -> tuple[str, ...] | None:
        """The only values that get a table; None: each does. ``format``: that of the file."""
        return tuple(self.own) if self.values is None and self.bare(format) else self.values

    def of(self, value: str, format: FormatOptions) -> tuple[Route, FormatOptions]:
        """A copy that is about the table of one value, and the format of its records. ``format``: that of the file.

        Raises ConfigurationError for a value whose records nothing reads."""
        copy = self.model_copy()
        copy._value = value
        if value not in self.own:
            if self.bare(format):
                raise ConfigurationError(
                    f"The log knows a table of {value!r}, and {OPTION}.overrides has no schema of its records.",
                    hint=f"Put {OPTION}.overrides.{value}.value back: {{subject: ...}} or {{schema_file: ...}}. The "
                    "table stays exact only as long as the pipeline knows it.",
                )
            return copy, format
        copy._named_by = format
        return copy, self.own[value].reads(format)

    def schema_option(self, value: str | None) -> str:
        """The option with the schema of a value's records, for messages."""
        own = self.own.get(value or "")
        return f"{OPTION}.overrides.{value}.value.{own.option}" if own is not None else "value.schema"

    @property
    def advice(self) -> str | None:
        """What to do where the table of ``value`` doesn't take its records. None: they have no schema of their own."""
        own = self.own.get(self._value or "")
        return own.advice(self.schema_option(self._value)) if own is not None else None

    def sink_of(self, value: str, folder: str) -> DeltaSink:
        """The sink of one value; of ``OTHER``, that of the other records.

        ``folder``: that of the pipeline file, to which relative paths belong. Raises ConfigurationError.
        """
        if value == OTHER and not isinstance(self.other, Mapping):
            raise ConfigurationError(
                f"The log knows a table of the records that name no table, and {OPTION}.other has none.",
                hint=f"Put the sink back into {OPTION}.other. Its table stays exact only as long as the pipeline knows "
                "it.",
            )
        options, where = self._options_of(value)
        sink, faults = sink_faults(options, where)
        if sink is None:
            raise ConfigurationError(f"{'; '.join(fault.text for fault in faults)}.")
        return sink.beside(folder).given_as(dotted(where))

    def _options_of(self, value: str) -> tuple[Mapping[str, Any], Path]:
        """The options of the sink of one value, or of ``OTHER``, and where the file has them."""
        if value == OTHER:
            return (self.other if isinstance(self.other, Mapping) else {}), (OPTION, "other")
        given = self.overrides[value].sink if value in self.overrides else {}
        options = merged(self.sink, given)
        for name in self._names:
            options = placed(options, name, value)
        return options, ((OPTION, "overrides", value, "sink") if given else (OPTION, "sink"))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns of all tables: which one a tombstone is for shows only when it is decoded.

        Tables with a schema of their own count only if no other one has a key: they have columns of their own.
        """
        keys = {name: sink.key for name, sink in self.sinks.items() if isinstance(sink, KeyedSink)}
        shared = {name: key for name, key in keys.items() if name not in self.own}
        return tuple(dict.fromkeys(column for key in (shared or keys).values() for column in key))

    @property
    def sinks(self) -> Mapping[str, DeltaSink]:
        """The sinks of which the file knows, relative to nowhere: those of ``names``, and under no name that of any
        other value. Raises ConfigurationError."""
        return {"": self.sink_of(self._any_value, ""), **{name: self.sink_of(name, "") for name in self.names}}

    @property
    def _any_value(self) -> str:
        """A value that stands for all without options of their own."""
        value = "value"
        while value in self.overrides:
            value += "_"
        return value

    def template(self) -> list[Mapping[str, Any]]:
        """The options of the sinks that the file shows: that of each value, with its placeholder, and that of the other
        records if they have one."""
        return [self.sink, self.other] if isinstance(self.other, Mapping) else [self.sink]

    @property
    def names(self) -> list[str]:
        """The values with a table of which the file knows: those with options of their own, and ``OTHER``."""
        return [*self.overrides, *([OTHER] if isinstance(self.other, Mapping) else [])]


def sink_faults(options: Mapping[str, Any], option: Path) -> tuple[DeltaSink | None, list[Fault]]:
    """The sink of a value, or None and what is wrong with the options. ``option``: where the file has them."""
    kind = options.get("type")
    model = _TABLES.get(kind) if isinstance(kind, str) else None
    if model is None:
        where = (*option, "type")
        known = one_of(list(_TABLES))
        return None, [Fault(where, f"{dotted(where)}: is {known}{found(where, kind, _TABLES)}")]
    sink, faults = checked(options, model, moved=lambda path: (*option, *path))
    if isinstance(sink, DeltaSink):
        faults = [Fault((*option, name), f"{dotted((*option, name))}: {why}") for name, why in _unfit(sink)]
    return (sink if isinstance(sink, DeltaSink) and not faults else None), faults


def _unfit(sink: DeltaSink) -> Iterator[tuple[str, str]]:
    """The options of a sink that a route can't have, and why."""
    if isinstance(sink, DeltaAggregateSink) and sink.window is not None:
        yield (
            "window",
            "doesn't work with route: a pipeline has one event time, and so one watermark. Write a pipeline file for "
            "this table",
        )


def sinks_of(config: PipelineConfig) -> Sequence[SinkOptions]:
    """The sinks of which the file knows, of a route also those of ``overrides``."""
    found: Sequence[Any] = config.sinks
    if config.route is not None:
        with suppress(ConfigurationError):  # the route says what is wrong with its sinks
            found = [*config.route.sinks.values()]
    return found


def each_once(config: PipelineConfig, check: Callable[[SinkOptions], Iterator[str]]) -> Iterator[str]:
    """What a check says of the sinks. What is wrong with ``route.sink`` is wrong with each of ``overrides``, too."""
    told = set()
    for sink in sinks_of(config):
        for fault in check(sink):
            if (what := fault.replace(sink.in_file, "")) not in told:
                told.add(what)
                yield fault


def unfit_for(route: Route, config: PipelineConfig) -> Iterator[str]:
    """What of the other options of a pipeline file doesn't go with its route."""
    for option, given in {
        "on_new_column: ignore": config.on_new_column == "ignore",
        "value: {format: rows}": config.of_rows,
    }.items():
        if given:
            yield f"{option} doesn't work with route. Write a pipeline file for each table"
    if config.on_new_column == "add":
        yield from _unfit_to_grow(route, config.value)
    if route.own:
        yield from unfit_for_schemas(config, route)
    if route.other == "dead_letter" and config.on_bad_record != "dead_letter":
        yield "route.other: dead_letter needs on_bad_record: dead_letter, and a place for dead letters"
    places: dict[str, list[str]] = {}
    for name in [route._any_value, *route.names]:
        sink, faults = sink_faults(*route._options_of(name))
        # No record need have the value that stands for all others, so its place is nobody's.
        if sink is not None and name in route.names:
            places.setdefault(spot(sink), []).append(sink.place)
        yield from (fault.text for fault in faults)
    for place, *others in places.values():
        if others:
            yield f"route: two values write to {place}: give each its own place"


def _unfit_to_grow(route: Route, value: FormatOptions) -> Iterator[str]:
    """What doesn't go with tables that get new columns. These are the columns that the file declares: an epoch in doubt
    is read again by the same file, so that each of its tables gets the same ones."""
    declared = isinstance(value, JsonFormat) and value.schema_ is not None
    declared = declared or (isinstance(value, AvroFormat) and value.schema_file is not None)
    if getattr(value, "registry", None) is not None and not declared:
        yield (
            "on_new_column: add doesn't work with route and the newest schema of a registry, which may be another one "
            "when an epoch in doubt is read again. Declare the columns: schema, or schema_file"
        )
    try:
        sinks = route.sinks
    except ConfigurationError:
        return  # the route says what is wrong with its sinks
    for name in route.overrides:  # the pipeline checks the other sinks
        sink = sinks[name]
        if not isinstance(sink, DeltaAppendSink | DeltaUpsertSink):
            yield (
                f"route.overrides.{name}.sink.type: on_new_column: add works with delta_append and delta_upsert only; "
                "write fail, or remove the option"
            )
        elif isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates is True:
            yield (
                f"route.overrides.{name}.sink: ignore_null_updates: true doesn't work with on_new_column: add; list "
                "the columns instead"
            )
