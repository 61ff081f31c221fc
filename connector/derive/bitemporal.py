"""Every version of a key's row, with the time in which it was valid and the time in which it was on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.config import DeltaHistorySink, PipelineConfig
from connector.derive.changes import changes, check_expressions, deletes, problem_with, table_columns, updates
from connector.derive.comparable import incomparable
from connector.derive.derivation import TableDerivation
from sinks.delta.bitemporal import DeltaBitemporal, PlainBitemporal
from sinks.delta.commit import PipelineCommits
from sinks.delta.limits import Records
from sinks.delta.recorded_columns import SYSTEM_END, SYSTEM_START, RecordedColumns
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.version_columns import END, START, STATE
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bitemporal(
    config: PipelineConfig, sink: DeltaHistorySink, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    """Raises ConfigurationError."""
    check_expressions(records, sink)
    own = [name.lower() for name in (START, END, SYSTEM_START, SYSTEM_END, STATE)]
    values = [name for name in table_columns(records.columns, sink) if name not in sink.key]
    for name in (*sink.key, *values):
        if name.lower() in own:
            raise ConfigurationError(
                f"{sink.in_file}: {name} is a column of the history's own; give yours another name."
            )
        if why := incomparable(records.schema[name].dataType):
            raise ConfigurationError(
                f"{sink.in_file}: {name!r} {why}, which can't be compared: whether it has changed can't be told.",
                hint="Leave it out with except_column_list, or make a text of it in `transform:`, as in to_json.",
            )

    columns, ties = RecordedColumns(sink.key, values), config.several_rows
    of_table = columns.table(changes(records, sink).schema)
    return TableDerivation(
        columns=of_table,
        reduce=lambda rows, _: changes(rows, sink),
        problem=problem_with(records, sink),
        deletes=deletes(sink, records.columns),
        sink=DeltaBitemporal(table, commits, columns=columns, ties=ties),
        plain=PlainBitemporal(table, columns=columns, ties=ties),
        of_records=Records([*table_columns(records.columns, sink), *COORDINATES], updates(sink, records.columns)),
        required=of_table.names,
    )
