"""What a table holds of its topics: every record, the latest per key, its history, or an aggregate per group.

Each kind says the table's columns, reduces the records of an epoch to what its sink needs, and makes that sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.config import DeltaAggregateSink, DeltaHistorySink, DeltaUpsertSink, PipelineConfig
from connector.config.sinks import columns_named
from connector.derive.derivation import Derivation, TableDerivation
from connector.derive.second import refuse_second
from connector.derive.shape import shape
from sinks.delta.commit import PipelineCommits
from sinks.delta.shape import ZONE
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_is(config: PipelineConfig, records: DataFrame) -> Derivation:
    """Every record, one row, of a sink that isn't a table. ``records`` as below."""
    _check_columns(config, records)
    return Derivation(columns=records.schema, reduce=lambda rows, _: rows)


def derive(config: PipelineConfig, table: DeltaTable, commits: PipelineCommits, records: DataFrame) -> TableDerivation:
    """``records``: none, with the columns of decoded records. Raises ConfigurationError."""
    found = _derived(config, table, commits, records)
    zone = str(table.spark.conf.get(ZONE))

    def check() -> Sequence[str]:
        refuse_second(config, table, commits)
        return found.check()

    shaped = shape(config, records.schema, found.columns, zone=zone, types=found.types)
    return replace(found, check=check, shape=shaped)


def _derived(
    config: PipelineConfig, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    from connector.derive.aggregate import aggregates
    from connector.derive.append import append
    from connector.derive.bitemporal import bitemporal
    from connector.derive.history import history
    from connector.derive.upsert import upsert

    sink = config.sinks[0]
    _check_columns(config, records)
    if isinstance(sink, DeltaUpsertSink):
        return upsert(config, sink, table, commits, records)
    if isinstance(sink, DeltaHistorySink) and sink.bitemporal:
        return bitemporal(config, sink, table, commits, records)
    if isinstance(sink, DeltaHistorySink):
        return history(config, sink, table, commits, records)
    if isinstance(sink, DeltaAggregateSink):
        return aggregates(config, sink, table, commits, records)
    return append(table, commits, records)


def _check_columns(config: PipelineConfig, records: DataFrame) -> None:
    """The columns that the options name are there, once, and can be compared."""
    from pyspark.sql.types import MapType

    sink = config.sinks[0]
    names: Sequence[str] = records.columns
    for option, column in columns_named(sink):
        if column not in names:
            own = ", ".join(name for name in names if not name.startswith("_"))
            raise ConfigurationError(
                f"{sink.option(option)}: {column!r} isn't a column of {config.columns_option}.",
                hint=f"Its columns are {own}.",
            )
        if option in ("key", "group_by") and isinstance(records.schema[column].dataType, MapType):
            raise ConfigurationError(f"{sink.option(option)}: {column!r} is a MAP, which can't be compared.")
    clock = config.clock
    option = "event_time" if config.event_time == clock else sink.option("window.time")
    if clock is not None and clock not in names:
        raise ConfigurationError(f"{option}: {clock!r} isn't a column of {config.columns_option}.")
    if clock is not None and records.schema[clock].dataType.typeName() != "timestamp":
        raise ConfigurationError(f"{option}: {clock!r} is no TIMESTAMP.", hint="Cast it in `transform:`.")
