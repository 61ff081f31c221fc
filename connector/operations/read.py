"""Reads the current rows of a pipeline's table, with the changes that aren't folded into it yet."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import DeltaAggregateSink, DeltaSink, DeltaUpsertSink, PipelineConfig, load
from connector.derive.upsert import reading_of
from connector.engine.inferred import of_table
from connector.engine.outputs import Table, commits_of, outputs
from connector.source.records import no_records
from sinks.delta.meaning import Meaning
from sinks.delta.shape import ZONE, kept_zone
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError
from sinks.spark.sql import zone_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("lakelock")

_INSTANT = re.compile(r"timestamp(?!_ntz)")
_THE_SAME = re.compile(r"""(?is)'[^']*'|"[^"]*"|(current_timestamp|now)\s*(\(\s*\))?""")
"""Defaults that no time zone changes, though they may speak of a time."""


def read(spark: SparkSession, file: str | Path, value: str | None = None) -> DataFrame:
    """The rows as of the pipeline's last epoch: those of the table, and the changes that aren't folded into it yet.

    ``value``: of ``route.by``, the one whose table is read. The versions are fixed by this call: the DataFrame has the
    same rows each time it is evaluated. Raises ConfigurationError if there is no table yet, or several sinks.

    >>> read(spark, "pipeline.yaml").show()  # doctest: +SKIP
    """
    return read_of(load(file, reads_tables=True), spark, value)


def read_of(config: PipelineConfig, spark: SparkSession, value: str | None = None) -> DataFrame:
    """The same as ``read``, for a pipeline file that is loaded already. Raises ConfigurationError."""
    config = of_one_table(config, value)
    known = of_table(config, spark)
    rows = _rows_sql(known, spark) if known is not None else None
    if rows is None:
        raise ConfigurationError(
            f"There is no table {config.sinks[0].place!r} yet.", hint="`lakelock run FILE` makes it."
        )
    return spark.sql(rows)


def _rows_sql(config: PipelineConfig, spark: SparkSession) -> str | None:
    """A query for the current rows; None: there is no table.

    Only the states of an aggregate depend on the columns of the records. What the change log of an upsert means is kept
    by the log, so no decoder is built for it, and no registry is asked.
    """
    sink, log = config.sinks[0], None
    assert isinstance(sink, DeltaSink)
    if isinstance(sink, DeltaAggregateSink):
        output = _output(config, spark)
        table, log = output.table, output.derivation.log
    else:
        table = DeltaTable(
            spark, path=sink.folder, name=sink.table, label=sink.place, on_new_column=config.on_new_column
        )
    if isinstance(sink, DeltaUpsertSink):
        log = reading_of(config, sink, table, commits_of(config, table), lambda: _now(config, spark))
    if table.detail() is None:
        return None
    if log is None:
        return table.fixed_sql()
    rows = log.live_sql()
    if not rows.startswith("SELECT * FROM "):  # else all is folded, and nothing is computed
        _warn_of_another_zone(config, table, spark)
    return rows


def _warn_of_another_zone(config: PipelineConfig, table: DeltaTable, spark: SparkSession) -> None:
    """Say so if this session may compute what Delta fills otherwise than a fold will, by the runs' time zone.

    Only the table knows that zone: the file's doesn't count where the runs work in a session of the user's.
    """
    then, now = kept_zone(table, config.name), zone_name(str(spark.conf.get(ZONE)))
    if then is None or then == now:
        return
    filled = _by_the_zone(table)
    if filled:
        logger.warning(
            "%s: rows that aren't folded yet may show other values in %s than the fold will store: this session's time "
            "zone is %s, and that of the table's rows is %s. Before the read: spark.conf.set(%s, %s)",
            table.label, ", ".join(filled), now, then, json.dumps(ZONE), json.dumps(then),
        )  # fmt: skip


def _by_the_zone(table: DeltaTable) -> list[str]:
    """The columns that Delta fills by an expression which a time zone may change."""
    detail = table.detail()
    if detail is None:
        return []
    instants = [re.escape(each.name) for each in table.schema if _INSTANT.search(each.dataType.simpleString())]
    with_times = re.compile("|".join([r"date|time|now\s*\(", *(rf"\b{name}\b" for name in instants)]), re.IGNORECASE)
    defaults = {name: sql for name, sql in detail.defaults.items() if not _THE_SAME.fullmatch(sql.strip())}
    return [name for name, sql in {**detail.generated, **defaults}.items() if with_times.search(sql)]


def _output(config: PipelineConfig, spark: SparkSession) -> Table:
    with outputs(config, spark, no_records(spark), "") as (output,):
        assert isinstance(output, Table)
        return output


def _now(config: PipelineConfig, spark: SparkSession) -> Meaning:
    """What changes mean by the file."""
    log = _output(config, spark).derivation.log
    assert log is not None
    return log.now()


def of_one_table(config: PipelineConfig, value: str | None) -> PipelineConfig:
    """The pipeline with the table of ``value``, or with its only table. Raises ConfigurationError for several."""
    if config.route is not None and value is not None:
        config = config.routed(value).model_copy(update={"route": None})
    if config.two_phase:
        hint = "connector.operations.snapshot(spark, FILE) gives all of them as of one epoch."
        of_value = " connector.read(spark, FILE, VALUE) reads the table of a value." if config.route is not None else ""
        raise ConfigurationError(
            f"Pipeline {config.name!r} has several sinks, or one that is no table.", hint=f"{hint}{of_value}"
        )
    return config
