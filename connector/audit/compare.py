"""The one query that compares records of Kafka with rows of the table, on the executors, counted per partition.

Every row of the table counts as exactly one of found, duplicated, stale, resurrected, altered, unexpected, ahead, held
before, doubtful, moved and unchecked, unless its record counts as unreadable. Every expected row counts as exactly one
of found, lost, stale, altered and doubtful, or as resurrected if a deleted row stays. Only these counts, and the first
coordinates of each, leave the executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from connector.audit.aggregate import aggregated
from connector.audit.appended import appended
from connector.audit.bitemporal import recorded_versions
from connector.audit.claim import Bounds, Held, shows_all
from connector.audit.debezium import passed_over, with_its_own_rules
from connector.audit.decode import NAMED, decoded, decoded_for, transformed
from connector.audit.flows import of_flow, united
from connector.audit.formats import Forms
from connector.audit.gone import gone_before
from connector.audit.history import Versions, versioned, versions
from connector.audit.holes import holes
from connector.audit.in_both import InBoth, in_both, null
from connector.audit.letters import told_apart
from connector.audit.more_fields import fields_without_column
from connector.audit.no_column import values_without_column
from connector.audit.records import PLACE, PROBLEM, RAW, TOMBSTONE, Records, digest, table_columns, without_end
from connector.audit.refused import refused_by_the_sink, unreadable
from connector.audit.remembered import Text, no_longer_tracked
from connector.audit.routes import of_table
from connector.audit.rows import NOTHING, Earlier, refuse_to_compare
from connector.audit.steps import stepped, with_headers
from connector.audit.upserted import all_of_key, by_kafkas_key, upserted
from connector.config import (
    COORDINATES,
    OWN_COLUMNS,
    DeltaAggregateSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    JsonFormat,
    KeyedSink,
    PipelineConfig,
)
from connector.config.own_schema import SCHEMA_NAME
from connector.config.steps import names_before
from connector.config.truncates import kept_truncates
from connector.config.unavailable import keeps_by
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_GROUP = "No group was compared: a group is made of all its records, and "
_GONE, _UNREAD = "Kafka may not hold them all any more.", "some can't be read."


@dataclass(frozen=True)
class Compared:
    """What the comparison found."""

    counts: list[dict[str, Any]]
    """Per kind and topic-partition: kind, topic, partition, count, first {topic, partition, offset, key}. Topic and
    partition are None for groups, and for rows and letters that lie outside the claim."""
    notes: list[str]
    unknown: list[str]
    """Sentences: why the table can't be called exact, whatever the counts are."""


def compare(
    config: PipelineConfig,
    *,
    records: DataFrame,
    rows: DataFrame,
    forms: Forms,
    cut: Sequence[Bounds],
    committed_later: bool,
    leave_out: Sequence[str] = (),
    letters: DataFrame | None = None,
    late: DataFrame | None = None,
    earlier: Earlier = NOTHING,
    behind: Held | None = None,
    kept: Mapping[str, Text] = MappingProxyType({}),
) -> Compared:
    """Compare the ``rows`` with what the ``records`` make, read as ``forms`` says.

    ``cut`` is the claim as Kafka can show it. ``committed_later``: rows beyond the claim are no fault. ``leave_out``:
    topics whose rows are another pipeline's. ``letters``: all dead letters, if bad records are set aside in a table.
    ``late``: the letters of late rows. ``earlier``: what the table held before; groups are compared without.
    ``behind``: what Kafka holds, if the ``records`` are also those that follow the claim. A record that can't be read
    is unreadable, unless bad ones are set aside. ``kept``: what the table remembers of the options that made its rows.
    Raises ConfigurationError and SchemaMismatch.
    """
    # Such a table has a row also of a record that can't be read.
    of_rows = config.sinks[0].type == "delta_append" and config.on_bad_record == "fail"
    every, letters, unnamed = _stepped(config, records, rows, forms, letters, digests=late is not None)
    made = transformed(every, config.transform, strict=of_rows)
    config = with_its_own_rules(config, made.columns.names)
    sink = config.sinks[0]
    _refuse_other_keys(config, made.columns.names)
    counts, unread = list[dict[str, Any]](), None
    if not of_rows:
        made, counts, unread = _without_bad(config, every, made, letters, cut)
    elif unnamed is not None:
        counts, _ = unreadable(unnamed, cut)
    good = replace(made, numbered=forms.numbered)
    made, rows, notes, missing = _in_both(config, good, rows, forms)
    if isinstance(sink, DeltaHistorySink):
        notes += no_longer_tracked(kept, table_columns(good.columns, sink).names)
    dropped = values_without_column(config, good, missing, cut, letters)
    of_fields, unnamed_fields = fields_without_column(config, records, forms.value, rows.columns, cut, letters)
    made = replace(made, frame=made.frame.where(f"NOT {passed_over(config, made.columns.names)}"))
    gone, unknown = not shows_all(cut), list[str]()
    whole = not gone and unread is None
    if isinstance(sink, DeltaAggregateSink):
        found, more = aggregated(
            made, rows, cut, sink, whole=whole, committed_later=committed_later, late=late, every=every,
            alone=config.route is None,
        )  # fmt: skip
        notes += more
        unknown = [] if whole else [_NO_GROUP + (_GONE if gone else _UNREAD)]
    else:
        found = _of_rows(
            config, made, rows, cut, whole=whole, committed_later=committed_later, leave_out=leave_out,
            earlier=earlier, unread=unread, behind=behind,
        )  # fmt: skip
    of_holes, doubt = holes(rows, letters, made.shown, cut, [*counts, *found])
    found += gone_before(made, rows, earlier.rows, cut, sink, whole=whole, leave_out=leave_out)
    return Compared([*counts, *found], [*notes, *of_fields, *of_holes], [*unknown, *dropped, *unnamed_fields, *doubt])


def _of_rows(
    config: PipelineConfig,
    made: Records,
    rows: DataFrame,
    cut: Sequence[Bounds],
    *,
    whole: bool,
    committed_later: bool,
    leave_out: Sequence[str],
    earlier: Earlier,
    unread: DataFrame | None,
    behind: Held | None,
) -> list[dict[str, Any]]:
    """The counts of a table whose rows have the coordinates of a record."""
    sink = config.sinks[0]
    if isinstance(sink, DeltaHistorySink):
        expected = _versions(made, rows, cut, sink, committed_later=committed_later)
        return versioned(
            expected, made, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out,
            earlier=earlier, unread=unread,
        )  # fmt: skip
    if isinstance(sink, DeltaUpsertSink):
        return upserted(
            made, rows, cut, sink, whole=whole, committed_later=committed_later, leave_out=leave_out, earlier=earlier,
            unread=unread, by_kafkas_key=by_kafkas_key(config), all_of_key=all_of_key(config),
        )  # fmt: skip
    return appended(
        made, rows, cut, committed_later=committed_later, leave_out=leave_out, earlier=earlier, behind=behind
    )


def _versions(
    made: Records, rows: DataFrame, cut: Sequence[Bounds], sink: DeltaHistorySink, *, committed_later: bool
) -> Versions:
    """The versions that the records make, and where the table may hold later ones, those of all that Kafka shows."""
    of_kind = recorded_versions if sink.bitemporal else versions
    expected = of_kind(made, rows, cut, sink)
    if not committed_later:
        return expected
    return replace(expected, with_later=of_kind(made, rows, without_end(cut), sink).expected)


def _has_a_row_of_each(config: PipelineConfig) -> bool:
    """Whether a row has all values of one record, so that a number that was rounded shows in the row alone."""
    sink = config.sinks[0]
    whole_rows = isinstance(sink, DeltaUpsertSink) and sink.ignore_null_updates is False and keeps_by(config) is None
    return sink.type == "delta_append" or whole_rows


def _refuse_other_keys(config: PipelineConfig, columns: Sequence[str]) -> None:
    sink = config.sinks[0]
    for column in sink.key if isinstance(sink, KeyedSink) else ():
        if column not in columns:
            raise ConfigurationError(f"{sink.option('key')}: {column!r} isn't a column of {config.columns_option}.")


def _without_bad(
    config: PipelineConfig, every: Records, made: Records, letters: DataFrame | None, cut: Sequence[Bounds]
) -> tuple[Records, list[dict[str, Any]], DataFrame | None]:
    """The rows that good records make, the counts of bad records, and where those are that may have made a row all the
    same: unless bad records are set aside, nobody knows."""
    every, made = refused_by_the_sink(every, made, config)
    if letters is not None:
        return *told_apart(every, made, letters, config, cut), None
    if config.on_bad_record == "dead_letter":
        return made, [], None
    return made, *unreadable(every.frame, cut)


def _in_both(
    config: PipelineConfig, made: Records, rows: DataFrame, forms: Forms
) -> tuple[Records, DataFrame, list[str], list[str]]:
    """The records, whose columns are those that the table has too, the rows, notes on the other columns, and the paths
    of those that the table lacks. Raises SchemaMismatch where a run would."""
    from pyspark.sql.types import StructType

    sink = config.sinks[0]
    compared = _own_columns(sink)
    if isinstance(sink, DeltaAggregateSink):
        return made, rows, _left_out([name for name in rows.columns if name.lower() not in compared], made), []
    wanted = table_columns(made.columns, sink) if isinstance(sink, KeyedSink) else made.columns
    both = in_both(wanted.fields, rows.schema, compared, adds=config.on_new_column == "add")
    needed = both.only_made if not _may_lack_columns(config, forms) else []
    keys = sink.key if isinstance(sink, KeyedSink) else ()
    faults = [f"the table has no column {name}" for name in both.only_made if name in (*needed, *keys)]
    refuse_to_compare([*both.other_types, *faults, *_other_fields(both, keys, [*wanted.names, *rows.columns])])
    if not both.columns:
        refuse_to_compare(["they have no column in common"])
    notes = _left_out(both.only_there, made)
    if both.only_made and not both.adds:
        notes.append(f"The table has no column for these fields, which aren't compared: {', '.join(both.only_made)}.")
    others = [part for part in made.columns if part not in wanted.fields]
    made = replace(made, columns=StructType([*both.columns, *others]))
    there = {part.name for part in both.columns}
    fill = {path: default for path, default in made.defaults.items() if path.partition(".")[0] in there}
    if fill:
        them = ", ".join(fill)
        notes.append(f"Where a record lacks the field, null and the field's default count as the same in: {them}.")
    if both.adds:
        added = [part for part in wanted if part.name in both.only_made]
        rows = rows.selectExpr("*", *(f"{null(part.dataType)} AS {identifier(part.name)}" for part in added))
    return replace(made, defaults=fill, tied=[part.name for part in wanted]), rows, notes, both.only_made


def _other_fields(both: InBoth, keys: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Fields inside of the key that only the records or only the table have, in words. Without them two keys would be
    compared as one, and with null in their place the rows would be those of other keys. ``columns``: of both, as a name
    may have a dot."""
    inside, whole = tuple(f"{name.lower()}." for name in keys), {name.lower() for name in columns}
    lacking = {"the table has": both.only_made, "the records have": both.only_there}
    return [
        f"{which} no {path}, a part of the key"
        for which, paths in lacking.items()
        for path in paths
        if path.lower().startswith(inside) and path.lower() not in whole
    ]


def _own_columns(sink: object) -> set[str]:
    """The columns beside those of the records that the comparison takes from a table, in lower case."""
    if isinstance(sink, DeltaAggregateSink):
        windows = ("window_start", "window_end", "window_closed") if sink.window is not None else ()
        return {name.lower() for name in (*sink.group_by, *sink.aggregates, *windows)}
    found = set(COORDINATES)
    if isinstance(sink, DeltaUpsertSink):
        found |= {"_deleted"} if sink.deletes == "soft" else set()
        found |= {"_sequence"} if sink.sequence_by is not None else set()
    if isinstance(sink, DeltaHistorySink):
        found |= {"__start_at", "__end_at"}
        found |= {"__system_start_at", "__system_end_at"} if sink.bitemporal else set()
    return found


def _left_out(columns: Sequence[str], made: Records) -> list[str]:
    """Notes on columns of the table that aren't compared."""
    sent, rest = [name.lower() for name in made.columns.names], list(columns)
    own = [name for name in rest if name.lower() in OWN_COLUMNS and name.lower() not in sent]
    sent = [name for name in rest if name.lower() in sent]
    others = [name for name in rest if name not in (*own, *sent)]
    said = {
        "The file leaves out these columns of the table, which aren't compared": sent,
        "The records say nothing of these columns of the table": others,
        "These columns of Lakelock's own aren't compared": own,
    }
    return [f"{what}: {', '.join(names)}." for what, names in said.items() if names]


def _may_lack_columns(config: PipelineConfig, forms: Forms) -> bool:
    """Whether a run may have written to a table that lacks columns of the records as they are read now."""
    if config.on_new_column in ("add", "ignore"):
        return True
    return any(_of_a_registry(flow, its) for flow, its in zip(config.by_flow, forms.of_all, strict=True))


def _of_a_registry(config: PipelineConfig, forms: Forms) -> bool:
    of_registry = isinstance(config.value, JsonFormat) and config.value.registry and not config.value.schema_
    return not config.reshaped and bool(of_registry or forms.value.binary is not None)


def _stepped(
    config: PipelineConfig,
    records: DataFrame,
    rows: DataFrame,
    forms: Forms,
    letters: DataFrame | None,
    *,
    digests: bool,
) -> tuple[Records, DataFrame | None, DataFrame | None]:
    """As ``_records``, after the steps: each flow's records are read in its own way. With a route there is one."""
    every, unnamed = list[Records](), None
    for number, (flow, its) in enumerate(zip(config.by_flow, forms.of_all, strict=True)):
        own = of_flow(records, config, number)
        read, letters, unnamed = _records(flow, own, rows, its, letters, digests=digests)
        every.append(stepped(read, flow.steps, kept_truncates(flow)))
    return united(every), letters, unnamed


def _records(
    config: PipelineConfig,
    records: DataFrame,
    rows: DataFrame,
    forms: Forms,
    letters: DataFrame | None,
    *,
    digests: bool,
) -> tuple[Records, DataFrame | None, DataFrame | None]:
    """The decoded records that concern the table, the letters that do, and records of a route that name no table
    because they can't be read: any table may lack their rows. None: the first frame has them. ``digests``: the records
    have ``_raw``, whatever becomes of bad ones.
    """
    from pyspark.sql import functions as F

    key = names_before(config.steps, config.sinks[0].key) if isinstance(config.sinks[0], KeyedSink) else ()
    records, kept = with_headers(records, config.steps)
    ruled, table = config.on_bad_record == "dead_letter", config.route.value if config.route is not None else None
    exact = ruled or not _has_a_row_of_each(config)
    if digests and not ruled:
        records, kept = records.withColumn(RAW, digest("timestamp")), [*kept, RAW]
    if table is None or forms.route is None:
        return decoded(records, forms, key, ruled=ruled, exact=exact, kept=kept), letters, None
    if forms.route.value is None:
        every, names = (
            decoded(records, forms, forms.route.keys, ruled=ruled, exact=exact, kept=kept),
            forms.route.names(table),
        )
    else:
        every, names = (
            decoded_for(table, records, forms, key, ruled=ruled, exact=exact),
            f"{NAMED} <=> {literal(table)}",
        )
    frame, passing = every.frame, [NAMED, *([SCHEMA_NAME] if forms.value.names is not None else [])]
    if not key:  # tables beside it take tombstones
        refused = f"IF({TOMBSTONE} AND ({names}), 'tombstone', NULL)"
        frame = frame.withColumn(PROBLEM, F.expr(f"coalesce({PROBLEM}, {refused})"))
    if not ruled and config.sinks[0].type != "delta_append":
        mine = frame.where(f"{PROBLEM} IS NOT NULL OR ({names})")
        return replace(every, frame=mine.drop(*passing)), None, None
    mine, letters = of_table(frame, rows, letters, names)
    unnamed = None
    if not ruled:
        there = rows.select(*PLACE).distinct()
        unnamed = frame.where(f"{PROBLEM} IS NOT NULL").join(there, list(PLACE), "left_anti")
    return replace(every, frame=mine.drop(*passing)), letters, unnamed
