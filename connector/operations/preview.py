"""Shows a few records as the rows that a run would write, and what is wrong with others. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from connector.config import OTHER, DeltaAggregateSink, PipelineConfig
from connector.config.sensitive import HIDDEN, is_sensitive
from connector.decode.own_columns import OwnColumns
from connector.decode.records import ROUTE, TOMBSTONE
from connector.display import Grid, Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.engine.output import Output
from connector.operations.check import would_read
from connector.operations.checked import Fault, Sample, records_line
from connector.operations.sample import judged, own_names, row_json
from connector.protocol.plan import to_sample
from connector.protocol.recover import TopicsHeld
from sinks.delta.table import COORDINATES
from sinks.errors import SourceError
from sinks.offsets import OffsetRange
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Start: TypeAlias = Literal["earliest", "latest"] | datetime
ROWS = 10
_LONGEST = 400
"""Characters of a value that are shown at most."""
_NESTED = ("array", "map", "struct", "variant")
_TABLE, _ROW, _DELETES = "(table)", "(row)", "(delete)"
"""Columns that no table has: which of a route's tables the row is for; a row with a schema of its own, as JSON; whether
the record deletes its key."""


@dataclass(frozen=True)
class PreviewedTable:
    """The first rows for one sink, a row per record."""

    place: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    """As text, cut to 400 characters. None is NULL."""
    grouped: bool = False
    """Whether the sink aggregates these rows, and writes one per group."""


@dataclass(frozen=True, repr=False)
class Preview(Shown):
    """A few records as rows, and what is wrong with others."""

    pipeline: str
    tables: Sequence[PreviewedTable]
    sample: Sample
    """How many records were looked at, and what is wrong with them."""

    @property
    def faults(self) -> Sequence[Fault]:
        """The bad records, grouped by what is wrong with them."""
        return self.sample.faults

    def page(self) -> Page:
        """A table per sink, and a line for each kind of bad record."""
        blocks: list[Line | Grid] = [records_line(self.sample)]
        for table in self.tables:
            per = ", which aggregates these rows" if table.grouped else ""
            blocks.append(Line("for", f"{table.place}{per}" if table.rows else f"{table.place}: no row"))
            if table.rows:
                blocks.append(Grid(table.columns, [[_shown(cell) for cell in row] for row in table.rows], cut=True))
        if self.faults:
            bad = [
                (f"{fault.count:,}", fault.detail, f"{fault.topic}-{fault.partition}, offset {fault.offset}")
                for fault in self.faults
            ]
            blocks.append(Grid(("bad records", "what is wrong", "first"), bad, right=frozenset({"bad records"})))
        return Page([*blocks, *(Line("warning", warning) for warning in self.sample.warnings)])


def previewed(config: PipelineConfig, assembly: Assembly, rows: int, start: Start | None) -> Preview:
    """See ``Pipeline.preview``. ``assembly``: that of the pipeline with bad records set aside. Raises LakelockError."""
    held = assembly.source.look()
    ranges = _ranges(config, assembly, held, rows, start)
    if not ranges:
        raise _nothing(config, held, start)
    records = assembly.source.sample(ranges)
    if not records:
        raise SourceError(
            f"No record of {_topics(config)} came within a few seconds, though Kafka holds offsets there.",
            hint="The offsets may be those of aborted transactions, or the broker is slow: try again.",
        )
    records.sort(key=lambda each: (each.timestamp, each.topic, each.partition, each.offset), reverse=start == "latest")
    sample, tables = judged(assembly, records, ranges, _taking(config, rows))
    return Preview(config.name, list(tables.values()), sample)


def _ranges(
    config: PipelineConfig, assembly: Assembly, held: TopicsHeld, rows: int, start: Start | None
) -> list[OffsetRange]:
    """What to choose from. By default what a run would read next, or the last records if it would read none."""
    if start is None:
        next_offsets, _ = would_read(config, assembly, held)
        return to_sample(next_offsets, held)
    if start == "earliest":
        starts = dict(held.beginnings)
    elif start == "latest":
        starts = {at: end - rows for at, end in held.ends.items()}
    else:
        starts = dict(assembly.source.at(start, held))
    found = {at: max(first, held.beginnings[at]) for at, first in starts.items() if at in held.ends}
    return [OffsetRange(*at, first, held.ends[at]) for at, first in found.items() if first < held.ends[at]]


def _nothing(config: PipelineConfig, held: TopicsHeld, start: Start | None) -> SourceError:
    empty = all(held.beginnings[at] >= end for at, end in held.ends.items())
    if isinstance(start, datetime) and not empty:
        return SourceError(
            f"{_topics(config)} has no record at or after {start.isoformat()}.",
            hint="`--from latest` shows the last records, `--from earliest` the first ones.",
        )
    return SourceError(
        f"{_topics(config)} holds no record, so there is nothing to show.",
        hint="Send a record, or look whether source.topics and source.kafka name the right topic and cluster. Records "
        "that retention has removed can't be shown.",
    )


def _topics(config: PipelineConfig) -> str:
    topics = config.source.topics
    return f"Topic {', '.join(topics)}" if isinstance(topics, tuple) else f"Each of the {topics}"


def _taking(config: PipelineConfig, limit: int) -> Callable[[Output, DataFrame, Sequence[OwnColumns]], PreviewedTable]:
    """What is shown of the good rows for a sink."""
    grouped = [sink.place for sink in config.sinks if isinstance(sink, DeltaAggregateSink)]

    def take(output: Output, rows: DataFrame, own: Sequence[OwnColumns]) -> PreviewedTable:
        aggregates = output.label in grouped
        columns = dict(_columns(config, output, rows, own, aggregates=aggregates))
        named = [f"{sql} AS c{number}" for number, sql in enumerate(columns.values())]
        found = [tuple(row) for row in rows.selectExpr(*named).limit(limit).collect()]
        names = list(columns)
        if _DELETES in names and not any(row[names.index(_DELETES)] for row in found):
            found = [row[:-1] for row in found]
            names.pop()
        return PreviewedTable(output.label, names, found, aggregates)

    return take


def _columns(
    config: PipelineConfig, output: Output, rows: DataFrame, own: Sequence[OwnColumns], *, aggregates: bool
) -> Iterator[tuple[str, str]]:
    """Name and SQL of each column: those that the sink stores, the coordinates last, all as text."""
    if ROUTE in rows.columns:
        yield _TABLE, f"coalesce({ROUTE}, {literal(OTHER)})"
    if own:
        yield _ROW, f"substring({row_json(rows, own, config)}, 1, {_LONGEST})"
    else:
        stored = set(output.derivation.columns.names)
        names = [name for name in own_names(rows, own) if aggregates or name in stored or name in COORDINATES]
        for name in sorted(names, key=lambda name: name in COORDINATES):
            hidden = literal(HIDDEN) if is_sensitive(config, name) else None
            yield name, hidden or _text(identifier(name), rows.schema[name].dataType)
    if TOMBSTONE in rows.columns:
        yield _DELETES, f"IF({TOMBSTONE}, 'delete', NULL)"


def _text(column: str, kind: DataType) -> str:
    """SQL of a value as text. Bytes are written as SQL does."""
    name = kind.typeName()
    if name == "binary":
        return f"concat('0x', hex(substring({column}, 1, {_LONGEST // 2})))"
    text = f"to_json({column})" if name in _NESTED else f"CAST({column} AS STRING)"
    return f"substring({text}, 1, {_LONGEST})"


def _shown(cell: str | None) -> str:
    """A value in one line: a character that would begin another one, or steer the terminal, is written as an escape."""
    if cell is None:
        return "NULL"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in cell)
