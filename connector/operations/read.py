"""The current rows of a pipeline's table, what is merged on read included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import PipelineConfig, load
from connector.engine.outputs import Table, outputs
from connector.source.records import no_records
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, file: str | Path) -> DataFrame:
    """The rows as of the pipeline's last epoch: those of the table, with the changes that aren't folded into it yet.

    The versions are those of now: read again later, the DataFrame has the same rows. Raises ConfigurationError.

    >>> read(spark, "pipeline.yaml").show()  # doctest: +SKIP
    """
    return read_of(load(file), spark)


def read_of(config: PipelineConfig, spark: SparkSession) -> DataFrame:
    if config.two_phase:
        raise ConfigurationError(
            f"Pipeline {config.name!r} has several sinks, or one that is no table.",
            hint="connector.operations.snapshot(spark, FILE) gives all of them as of one epoch.",
        )
    with outputs(config, spark, no_records(spark), "") as (found,):
        assert isinstance(found, Table)
        if found.table.detail() is None:
            raise ConfigurationError(f"There is no table {found.label!r} yet.", hint="`lakelock run FILE` makes it.")
        log = found.derivation.log
        return spark.table(found.table.sql) if log is None else log.live()
