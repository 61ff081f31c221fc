"""Reads the current rows of a pipeline's table, with the changes that aren't folded into it yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import PipelineConfig, load
from connector.engine.inferred import of_table
from connector.engine.outputs import Table, outputs
from connector.source.records import no_records
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    if known is not None:
        with outputs(known, spark, no_records(spark), "") as (output,):
            assert isinstance(output, Table)
            if output.table.detail() is not None:
                log = output.derivation.log
                return spark.sql(output.table.fixed_sql()) if log is None else log.live()
    raise ConfigurationError(f"There is no table {config.sinks[0].place!r} yet.", hint="`lakelock run FILE` makes it.")


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
