"""One row per key, after all its changes. The semantics are told in ``sinks.delta.upsert_rule``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.config import OWN_COLUMNS, DeltaUpsertSink, PipelineConfig
from connector.decode.debezium import METADATA
from connector.decode.records import CARRIED, HEADERS, KEY
from connector.derive.changes import changes, check_expressions, problem_with, table_columns, truncates
from connector.derive.derivation import TableDerivation
from connector.derive.net_change import net_of
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.upsert import DeltaUpsert
from sinks.delta.upsert_rule import COLUMNS, DELETED_BY, UpsertRule
from sinks.delta.without_offsets import PlainUpsert
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def upsert(
    config: PipelineConfig, sink: DeltaUpsertSink, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    """A table of the newest row per key. Raises ConfigurationError for options that the columns don't fit."""
    _refuse_own_columns(records)
    check_expressions(records, sink)
    rule = UpsertRule(
        sink.key,
        sequenced=sink.sequence_by is not None,
        soft=sink.deletes == "soft",
        ignore_nulls=_ignoring_nulls(sink, records),
        guarded=config.delivery not in ("auto_commit", "manual_commit") or sink.sequence_by is not None,
    )

    every = changes(records, sink)
    net = net_of(
        every.columns,
        rule,
        truncates=truncates(sink, records.columns) != "false",
        ties=config.transform is not None or config.of_rows,
    )
    columns = _columns(net.of(every).schema, rule)
    on_read = sink.merge == "on_read"
    if on_read and truncates(sink, records.columns) != "false":
        raise ConfigurationError(
            f"{sink.option('merge')}: on_read: a truncate is about every row, not about those of a key.",
            hint="Write merge: on_write, or leave truncates out: apply_as_truncates: 'false'.",
        )

    def check() -> None:
        table.check_order(columns, sequence_by=sink.sequence_by)

    merging = DeltaUpsert(
        table,
        commits,
        rule=rule,
        tombstone_retention=sink.tombstone_retention,
        keep_tombstones=config.dead_letters is not None,
    )
    log = ChangeLog(table, pipeline=config.name, topics=config.source.topics)
    reading = MergeOnRead(
        table, merging, commits, log, net, key=sink.key, changes=lambda: every.schema, pipeline=config.name
    )
    return TableDerivation(
        columns=columns,
        carried=[*table_columns(records.columns, sink), *COORDINATES],
        reduce=lambda records, _: changes(records, sink) if on_read else net.of(changes(records, sink)),
        problem=problem_with(records, sink),
        latest_by=sink.key if _needs_the_last_only(sink) else (),
        sink=reading if on_read else merging,
        log=reading,
        plain=PlainUpsert(table, rule=rule, tombstone_retention=sink.tombstone_retention),
        check=check,
    )


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
