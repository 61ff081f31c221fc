"""Checks now and then that the declared fields are in the records: see ``connector.decode.unmatched``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, Protocol

from connector.config import DebeziumFormat, FormatOptions, JsonFormat, PipelineConfig, TopicPattern
from connector.decode.records import ROUTE
from connector.decode.registry.wire_format import ConfluentWire
from connector.decode.unmatched import IMAGES, WHOLE, counted, has_objects, in_sample, objects
from connector.engine.record_errors import about_the_records
from connector.spark.compat import from_ddl
from sinks.contract import Epoch, Position
from sinks.errors import SchemaMismatch
from sinks.offsets import OffsetRange
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_EVERY = 600.0
"""Seconds. A producer may rename a field while a run goes on."""
_SAMPLE = 200
"""Records of a table."""
log = logging.getLogger("lakelock.decode")


class _Record(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True)
class _Declared:
    """The fields that the pipeline file declares of JSON keys or values."""

    part: Literal["value", "key"]
    schema: StructType
    roots: Sequence[tuple[str, ...]]
    """Where they are."""
    permissive: bool
    framed: bool
    """Whether Confluent's header comes before the text."""
    option: str
    """That declares them."""
    topics: Sequence[str] | None = None
    """Whose records have them, with flows. None: all of them."""

    def among(self, topic: str) -> bool:
        """Whether a topic's records have them."""
        return self.topics is None or topic in self.topics


@dataclass
class FieldCheck:
    """Checks the first epoch of a run, and later ones at intervals."""

    config: PipelineConfig
    sample: Callable[[Sequence[OffsetRange]], Sequence[_Record]]
    """A few records of each range, from its start."""
    read: Callable[[Sequence[OffsetRange]], DataFrame]
    """All records of the ranges."""
    _next: float = field(default=0.0, init=False)

    def __call__(self, epoch: Epoch) -> None:
        """Raises SchemaMismatch as the option ``unmatched`` says, else it warns."""
        if time.monotonic() >= self._next:
            # The batches of a consumer group don't know what came before.
            first = epoch.delivery == "transactional" and has_no_record(epoch.expected)
            self.warn(epoch.ranges, first=first)

    def warn(self, ranges: Sequence[OffsetRange], *, first: bool) -> None:
        """As ``look`` at a sample of the ranges, with the warnings in the log."""
        if not ranges or not self.declared:
            return
        for warning in self.look(self.sample(ranges), ranges, first=first):
            log.warning("%s", warning)
        self._next = time.monotonic() + _EVERY

    def look(self, records: Sequence[_Record], ranges: Sequence[OffsetRange], *, first: bool) -> list[str]:
        """Warnings about the ranges, of which ``records`` are a sample. ``first``: whether the table has none yet.

        Raises SchemaMismatch, OffsetsLost and BrokerUnreachable.
        """
        warnings: list[str] = []
        if not ranges:
            return warnings
        for each in self.declared:
            sample = [getattr(record, each.part) for record in records if each.among(record.topic)]
            read = partial(self.read, [part for part in ranges if each.among(part.topic)])
            if read.args[0]:
                with about_the_records():
                    warnings += _looked_at(each, sample, read, self.config.unmatched, first=first)
        return warnings

    @cached_property
    def declared(self) -> Sequence[_Declared]:
        """What the pipeline file declares. Empty for formats that declare no fields of JSON."""
        return [each for flow in self.config.by_flow for each in _declared(flow, alone=not self.config.flows)]


def has_no_record(position: Position | None) -> bool:
    """Whether the records after this position are the table's first ones. Epochs of an empty topic have none."""
    return position is None or position.passed_none


def look_at_value(config: PipelineConfig, named: DataFrame, name: str, *, first: bool) -> list[str]:
    """Warnings about the records of a route's value that have a schema of their own.

    ``named``: records with the columns ``value``, and ``_lakelock_route``, the table that each names. ``first``:
    whether the table isn't there yet. Raises SchemaMismatch.
    """
    mine = named.where(f"{ROUTE} = {literal(name)}").select("value")
    sample = [row["value"] for row in mine.limit(_SAMPLE).collect()]
    declared = next(each for each in _declared(config.routed(name)) if each.part == "value")
    return _looked_at(declared, sample, lambda: mine, config.unmatched, first=first)


def _looked_at(
    declared: _Declared,
    sample: Sequence[bytes | None],
    read: Callable[[], DataFrame],
    unmatched: Literal["fail", "warn"] | None,
    *,
    first: bool,
) -> list[str]:
    """Warnings about records. ``sample``: some of their keys or values; ``read`` gives all of them."""
    part, roots, option = declared.part, declared.roots, declared.option
    if declared.framed:
        sample = [ConfluentWire.body_of(each) for each in sample]
    strict = unmatched or ("fail" if first else "")
    if strict and not has_objects(sample, roots):
        # Kafka may not have answered in time: no sample shows nothing.
        sample = objects(_texts(read(), declared), part, roots, _SAMPLE)
    found = in_sample(sample, declared.schema, roots)
    # Only strict JSON can be searched for the names of all records.
    fatal = [each for each in found if each.countable and strict == "fail" and not declared.permissive]
    gone = counted(_texts(read(), declared), part, fatal, roots) if fatal else []
    if gone:
        told = "\n".join(f"  - {each.told('of this epoch')}" for each in gone)
        raise SchemaMismatch(
            f"{option} doesn't fit the records; nothing was written:\n{told}",
            hint=f"Correct {option}. A table that was made before its first record has the wrong column, and "
            "no rows: drop it. If the records may lack the field for now, write unmatched: warn. Then its column "
            "is null.",
        )
    # A field that is merely rare is no news to a run that comes every hour.
    told_of = [each for each in found if each not in fatal and (strict or each.meant is not None)]
    return [f"{option}: {each.told(f'of the {each.among:,} looked at')}" for each in told_of]


def _texts(records: DataFrame, declared: _Declared) -> DataFrame:
    """The records with their JSON texts."""
    part = declared.part
    return records.selectExpr(f"{ConfluentWire.body(part)} AS {part}") if declared.framed else records


def _declared(config: PipelineConfig, *, alone: bool = True) -> list[_Declared]:
    """``alone``: all records are read by these options."""
    from pyspark.sql.types import StructType

    found = []
    options_of: dict[Literal["value", "key"], FormatOptions | None] = {"value": config.value, "key": config.key}
    for part, options in options_of.items():
        inferred = isinstance(options, JsonFormat) and options.inferred  # from records that have these fields
        if isinstance(options, JsonFormat | DebeziumFormat) and options.schema_ is not None and not inferred:
            schema = from_ddl(options.schema_)
            assert isinstance(schema, StructType)
            roots = WHOLE if isinstance(options, JsonFormat) else IMAGES
            option = config.schema_option if part == "value" else config.option("key.schema")
            topics = None if alone or isinstance(config.source.topics, TopicPattern) else config.source.topics
            found.append(_Declared(part, schema, roots, options.mode == "permissive", options.framed, option, topics))
    return found
