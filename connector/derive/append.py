"""Every record, one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.derive.derivation import TableDerivation
from sinks.contract import Epoch
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.limits import Records
from sinks.delta.table import DeltaTable
from sinks.delta.without_offsets import PlainAppend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(table: DeltaTable, commits: PipelineCommits, records: DataFrame) -> TableDerivation:
    """A table of every record, one row each. ``records``: none, with the columns of decoded records."""

    def as_is(records: DataFrame, _: Epoch) -> DataFrame:
        return records

    return TableDerivation(
        columns=records.schema,
        reduce=as_is,
        sink=DeltaAppend(table, commits),
        plain=PlainAppend(table),
        of_records=Records(records.columns),
    )
