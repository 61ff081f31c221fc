"""Upkeep of all Delta tables of a pipeline. Kafka isn't asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from connector.config import DeltaPlace, PipelineConfig
from connector.parts import letters_table
from connector.spark import session
from sinks.delta.change_log import ChangeLog
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.upkeep import Upkeep, upkeep
from sinks.s3a import require_conditional_writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain(config: PipelineConfig, *, dry_run: bool = False, debug: bool = False) -> Iterator[Upkeep]:
    """Table by table, those that are there. ``dry_run``: only say what would be done."""
    with session(config.spark_options, name=config.name, s3=config.on_s3, debug=debug) as spark:
        for table, compact in _tables(config, spark):
            if table.exists():
                if not dry_run:
                    require_conditional_writes(spark, table.location)
                yield upkeep(table, rehearse=dry_run, compact=compact)


def _tables(config: PipelineConfig, spark: SparkSession) -> Iterator[tuple[DeltaTable, bool]]:
    """And whether small files are put together: in a log of changes each is an epoch's, and soon forgotten."""
    for sink in config.sinks:
        if isinstance(sink, DeltaPlace):
            table = DeltaTable(spark, path=sink.path, name=sink.table)
            yield table, True
            if table.exists():
                yield Tombstones(table, ()).table, True
                yield ChangeLog(table, pipeline=config.name, topics=config.source.topics).table, False
    letters = letters_table(config, spark)
    if letters is not None:
        yield letters.table, True
