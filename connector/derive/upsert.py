"""One row per key, after all its changes. The semantics are told in ``sinks.delta.upsert_rule``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS, DeltaUpsertSink, PipelineConfig
from connector.config.unavailable import UNAVAILABLE
from connector.decode.debezium import METADATA
from connector.decode.records import CARRIED, HEADERS, KEY
from connector.decode.unavailable import has_placeholder
from connector.derive.changes import (
    changes,
    check_expressions,
    deletes,
    problem_with,
    table_columns,
    truncates,
    updates,
)
from connector.derive.derivation import TableDerivation
from connector.derive.kept_changes import kept, options_of
from connector.derive.net_change import has_value, net_of
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.kept_deletes import remember_deletes, remembering
from sinks.delta.limits import Records
from sinks.delta.meaning import Meaning
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.order import check_order, keep_order
from sinks.delta.own_columns import check_own_columns
from sinks.delta.shape import no_longer_filled
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.upsert import DeltaUpsert, Gone
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule
from sinks.delta.without_offsets import PlainUpsert
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_OF_ORDER = ("_sequence", COLUMNS)
"""The columns that only a table ordered by a sequence has."""


def upsert(
    config: PipelineConfig, sink: DeltaUpsertSink, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    """A table of the newest row per key. Raises ConfigurationError for options that the columns don't fit."""
    _refuse_own_columns(records)
    check_expressions(records, sink)
    rule = _rule(config, sink, records)
    every, retention = changes(records, sink), sink.tombstone_retention
    ties = config.several_rows
    net = net_of(every.columns, rule, truncates=truncates(sink, records.columns) != "false", ties=ties)
    columns = _columns(net.of(every).schema, rule)
    on_read = sink.merge == "on_read"
    if on_read and truncates(sink, records.columns) != "false":
        raise ConfigurationError(
            f"{sink.option('merge')}: on_read: a truncate is about every row, not about those of a key.",
            hint="Write merge: on_write, or leave truncates out: apply_as_truncates: 'false'.",
        )
    gone = partial(no_longer_filled, table, config.name, table_columns(records.columns, sink))
    # Of staged rows it is seen which columns they lack: a file of before may have made them.
    filled = partial(no_longer_filled, table, config.name, ())
    merging = _merging(config, sink, table, commits, rule, filled)
    letters = config.dead_letters is not None
    options = partial(options_of, rule, ties=ties, letters=letters)
    now = Meaning(lambda: every.schema, lambda: options(gone=gone()), net, merging, sink.key)
    reading = reading_of(config, sink, table, commits, lambda: now)
    own = _OwnColumns(table, commits, columns, sink, reading, _keeps_deletes(config, sink, rule))

    return TableDerivation(
        columns=columns,
        reduce=lambda records, _: changes(records, sink) if on_read else net.of(changes(records, sink)),
        problem=problem_with(records, sink),
        deletes=deletes(sink, records.columns),
        latest_by=sink.key if _needs_the_last_only(sink) and not rule.keeps else (),
        sink=reading if on_read else merging,
        log=reading,
        tombstones=merging.tombstones,
        plain=PlainUpsert(table, pipeline=config.name, rule=rule, tombstone_retention=retention, gone=filled),
        of_records=Records(
            [*table_columns(records.columns, sink), *COORDINATES],
            updates(sink, records.columns),
            marked=sink.key if rule.soft else (),
            patched=[(name, has_value(name, rule)) for name in rule.parts],
        ),
        parts=rule.parts,
        required=sink.key,
        check=own.lacking,
        prepare_table=own.add,
        properties=remembering() if own.keeps_deletes else {},
    )


def reading_of(
    config: PipelineConfig,
    sink: DeltaUpsertSink,
    table: DeltaTable,
    commits: PipelineCommits,
    now: Callable[[], Meaning],
) -> MergeOnRead:
    """What is merged on read. Who only reads the current rows needs no records for it, as a log keeps what its changes
    mean. ``now``: what they mean by the file."""

    @cache
    def merging_by(rule: UpsertRule, gone: tuple[str, ...], letters: bool) -> DeltaUpsert:
        # The same one each time: its tombstones know when they were cleaned.
        return _merging(config, sink, table, commits, rule, lambda: gone, letters=letters)

    log = ChangeLog(table, pipeline=config.name, topics=config.source.topics)
    then = partial(kept, table, now, merging_by, sequenced=sink.sequence_by is not None)
    return MergeOnRead(table, commits, log, now, then, pipeline=config.name)


def _merging(
    config: PipelineConfig,
    sink: DeltaUpsertSink,
    table: DeltaTable,
    commits: PipelineCommits,
    rule: UpsertRule,
    gone: Gone,
    *,
    letters: bool = False,
) -> DeltaUpsert:
    """``letters``: whether the rows may be of retried dead letters, whatever the file says by now."""
    keeps, retention = letters or config.dead_letters is not None, sink.tombstone_retention
    return DeltaUpsert(table, commits, rule=rule, tombstone_retention=retention, keep_tombstones=keeps, gone=gone)


def _rule(config: PipelineConfig, sink: DeltaUpsertSink, records: DataFrame) -> UpsertRule:
    ignoring_nulls = _ignoring_nulls(sink, records)
    return UpsertRule(
        sink.key,
        sequenced=sink.sequence_by is not None,
        soft=sink.deletes == "soft",
        ignore_nulls=ignoring_nulls,
        keeps=_keeping(config, sink, records, ignoring_nulls),
        guarded=config.delivery not in ("auto_commit", "manual_commit") or sink.sequence_by is not None,
        by_offset=sink.sequence_by is not None and sink.by_offset,
    )


def _keeps_deletes(config: PipelineConfig, sink: DeltaUpsertSink, rule: UpsertRule) -> bool | None:
    """Whether a delete of this run is remembered, in its row or as a tombstone. None: in every run of such a table."""
    if sink.sequence_by is not None:
        return None
    return rule.soft or (rule.guarded and (config.delivery == "idempotent" or config.dead_letters is not None))


@dataclass(frozen=True)
class _OwnColumns:
    """The columns by which the table's rows are compared with changes. A row without them is older than every change,
    so a table may get them before the pipeline's first epoch."""

    table: DeltaTable
    commits: PipelineCommits
    columns: StructType
    sink: DeltaUpsertSink
    reading: MergeOnRead
    keeps_deletes: bool | None
    """See ``_keeps_deletes``."""

    def lacking(self) -> Sequence[str]:
        """The columns that the table gets: all of them with ``on_new_column: add``, and those of another order if no
        change used the order so far. Raises SchemaMismatch if one did, or if the rows were written with other options
        that the columns depend on."""

        def begun() -> bool:
            return self.commits.position() is not None

        reordered = check_order(
            self.table,
            self.columns,
            sequence_by=self.sink.sequence_by,
            begun=begun,
            unfolded=lambda: self.reading.standing().unfolded,
        )
        check_own_columns(self.table, self.columns, begun=begun)
        there = {name.lower() for name in self.table.schema.names}
        own = [name for name in self.columns.names if name in (*COORDINATES, *_OF_ORDER, "_deleted", DELETED_BY)]
        wanted = own if self.table.evolves else _OF_ORDER if reordered else ()
        return [name for name in own if name in wanted and name not in there]

    def add(self, names: Sequence[str]) -> None:
        """Add these columns, and keep the order of changes. Say in the table whether the run keeps its deletes."""
        self.table.add_columns([self.columns[name] for name in names])
        keep_order(self.table, sequenced=self.sink.sequence_by is not None)
        if self.sink.sequence_by is not None and self.sink.deletes == "hard":
            # Somebody may have given the rows their sequence, as the error about a changed order says.
            Tombstones(self.table, self.sink.key).add_sequence(self.columns["_sequence"])
        if self.keeps_deletes is not None:
            remember_deletes(self.table, kept=self.keeps_deletes)


def _needs_the_last_only(sink: DeltaUpsertSink) -> bool:
    """Whether the order of changes is that of offsets, and each is a whole row. Tombstones are never left out."""
    options = (sink.sequence_by, sink.apply_as_deletes, sink.apply_as_truncates)
    return all(option is None for option in options) and sink.ignore_null_updates is False


def _ignoring_nulls(sink: DeltaUpsertSink, records: DataFrame) -> tuple[str, ...]:
    if sink.ignore_null_updates is False:
        return ()
    own = table_columns(records.columns, sink)
    named = own if sink.ignore_null_updates is True else sink.ignore_null_updates
    for column in named:
        if column not in own:
            raise ConfigurationError(f"{sink.option('ignore_null_updates')}: {column!r} isn't a column of the table.")
    return tuple(column for column in named if column not in sink.key)


def _keeping(
    config: PipelineConfig, sink: DeltaUpsertSink, records: DataFrame, ignoring_nulls: Sequence[str]
) -> tuple[str, ...]:
    """The columns that an update may leave as they are. A transform may make any column of a value that wasn't sent."""
    if UNAVAILABLE not in records.columns:
        return ()
    others = [name for name in table_columns(records.columns, sink) if name not in (*sink.key, *ignoring_nulls)]
    any_column = config.transform is not None or config.of_rows
    return tuple(name for name in others if any_column or has_placeholder(records.schema[name].dataType))


def _columns(net: StructType, rule: UpsertRule) -> StructType:
    """The table's: what helps the MERGE isn't in it, and what it works out itself is."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    fields = []
    for field in net:
        if field.name == DELETED_BY:
            fields += [StructField("_deleted", BooleanType()), field] if rule.soft else []
        elif field.name != COLUMNS or rule.sequenced:
            fields.append(field)
    return StructType(fields)


def _refuse_own_columns(records: DataFrame) -> None:
    for name in records.columns:
        if name.lower() in OWN_COLUMNS and name not in (*CARRIED, *METADATA, KEY, HEADERS):
            raise ConfigurationError(f"transform: {name} is a column of Lakelock's own; give it another name.")
