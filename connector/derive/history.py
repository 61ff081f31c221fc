"""Every version of a key's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.config import DeltaHistorySink, PipelineConfig
from connector.config.unavailable import UNAVAILABLE
from connector.derive.changes import (
    changes,
    check_expressions,
    deletes,
    is_sent,
    problem_with,
    table_columns,
    truncates,
    updates,
)
from connector.derive.comparable import incomparable
from connector.derive.derivation import TableDerivation
from connector.derive.tracked_columns import tracked
from sinks.contract import Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.history import DeltaHistory, PlainHistory
from sinks.delta.limits import Records
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.truncated import TRUNCATE
from sinks.delta.version_columns import END, START, STATE, VersionColumns
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def history(
    config: PipelineConfig, sink: DeltaHistorySink, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    """Raises ConfigurationError."""

    def events(records: DataFrame, _: Epoch) -> DataFrame:
        found = changes(records, sink)
        return found if truncates(sink, records.columns) != "false" else found.drop(TRUNCATE)

    schema = _checked(records, sink)
    columns = _version_columns(records, sink)
    retention, ties = sink.tombstone_retention, config.several_rows
    offsets = sink.sequence_by is not None and sink.by_offset
    kept = DeltaHistory(table, commits, columns=columns, tombstone_retention=retention, ties=ties, by_offset=offsets)
    return TableDerivation(
        columns=columns.table(schema),
        reduce=events,
        problem=problem_with(records, sink),
        deletes=deletes(sink, records.columns),
        sink=kept,
        tombstones=kept.tombstones,
        plain=PlainHistory(table, columns=columns, tombstone_retention=retention, ties=ties, by_offset=offsets),
        of_records=Records(
            [*table_columns(records.columns, sink), *COORDINATES],
            updates(sink, records.columns),
            patched=[(name, is_sent(name)) for name in columns.values if UNAVAILABLE in records.columns],
        ),
        required=columns.table(schema).names,
    )


def _checked(records: DataFrame, sink: DeltaHistorySink) -> StructType:
    """The columns of the events."""
    check_expressions(records, sink)
    for name in table_columns(records.columns, sink):
        if name.lower() in (START.lower(), END.lower(), STATE):
            raise ConfigurationError(
                f"{sink.in_file}: {name} is a column of the history's own; give yours another name."
            )
    return changes(records, sink).schema


def _version_columns(records: DataFrame, sink: DeltaHistorySink) -> VersionColumns:
    columns = table_columns(records.columns, sink)
    for option in ("track_history_column_list", "track_history_except_column_list"):
        for name in getattr(sink, option) or ():
            if name not in columns:
                raise ConfigurationError(f"{sink.option(option)}: {name!r} isn't a column of the table.")
    values = [name for name in columns if name not in sink.key]
    compared = tracked(sink, values)
    for name in compared:
        why = incomparable(records.schema[name].dataType)
        if why:
            raise ConfigurationError(
                f"{sink.in_file}: {name!r} {why}, which can't be compared: whether it has changed can't be told.",
                hint="Put it into track_history_except_column_list: a version then shows the last one.",
            )
    return VersionColumns(sink.key, compared, [name for name in values if name not in compared])
