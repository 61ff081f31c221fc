"""A view that shows the current rows of a table merged on read, to everybody who reads by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.engine.inferred import of_table
from connector.engine.outputs import Table, outputs
from connector.operations.session import given_or_new
from connector.source.records import no_records
from connector.spark.compat import is_connect
from sinks.delta.detail import name_parts
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "Say how to call the view: --name schema.orders_live"


def view_of(
    config: PipelineConfig, given: SparkSession | None, name: str | None, *, create: bool, debug: bool = False
) -> str:
    """The CREATE OR REPLACE VIEW of the current rows. ``given``: a session; None: the active one, or a new one.

    ``name``: that of the view, as ``catalog.schema.view``; by default ``<table>_live`` beside a table with a name.
    ``create``: run the statement in the catalog of the session.

    Makes the empty table of tombstones if the view needs one. Raises ConfigurationError if the pipeline doesn't merge
    on read, if the view has no name, if no epoch was committed since the table was made or restored, or if the catalog
    would forget the view or doesn't take it.
    """
    from pyspark.sql import SparkSession

    if config.route is not None and config.merges_on_read:
        raise ConfigurationError(
            "`view` makes one view, and the tables of a route need one each.",
            hint="A table with a name gets its own by each run: <table>_live. Of a table with a path "
            '`lakelock.read(spark, FILE, "value")` has the current rows.',
        )
    if config.merged_on_read is None:
        raise ConfigurationError(
            f"By its file pipeline {config.name!r} has no change log: each epoch is merged into the table.",
            hint="A view is for a sink with `merge: on_read`. What was appended before the file said otherwise is "
            "folded by the next `lakelock run FILE`.",
        )
    called = _quoted(name) if name is not None else None
    lasts = given is not None or SparkSession.getActiveSession() is not None
    with given_or_new(given, config, f"view {config.name}", debug=debug, short=True) as spark:
        statement = _statement(config, spark, called)
        if create:
            _create(statement, spark, lasts=lasts)
    return statement


def _statement(config: PipelineConfig, spark: SparkSession, name: str | None) -> str:
    """``name``: SQL of the view's name; None: after the table."""
    known = of_table(config, spark)
    if known is not None:
        with outputs(known, spark, no_records(spark), "") as (output,):
            assert isinstance(output, Table)
            if output.table.detail() is not None:
                return _of_table(output, name)
    raise ConfigurationError(f"There is no table {config.sinks[0].place!r} yet.", hint="`lakelock run FILE` makes it.")


def _of_table(output: Table, name: str | None) -> str:
    name = name or output.table.live_view
    if name is None:
        raise ConfigurationError(f"The table {output.label!r} has no name to call a view after.", hint=_NAME)
    log = output.derivation.log
    assert log is not None
    statement = log.view_sql(name)
    if statement is None:
        raise ConfigurationError(
            f"The change log of {output.label!r} doesn't count: the table was restored, or its first run ended early.",
            hint="`lakelock run FILE` starts the log again, with the next epoch.",
        )
    return statement


def _create(statement: str, spark: SparkSession, *, lasts: bool) -> None:
    """``lasts``: whether the session goes on after this."""
    from pyspark.errors import PySparkException

    in_memory = not is_connect(spark) and spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    if in_memory and not lasts and spark.catalog.currentCatalog() == "spark_catalog":
        raise ConfigurationError(
            "The catalog of this Spark session is in its memory, and ends with it: nobody would see the view.",
            hint="Run the command where the catalog is, for example by spark-submit, or set the catalog under `spark:` "
            "in the file. Or run the statement there: without --create the command prints it.",
        )
    try:
        spark.sql(statement)
    except PySparkException as error:
        raise ConfigurationError(
            f"The catalog doesn't take the view: {problem(error)}",
            hint="Choose another --name. Or have somebody who may make views run the statement: without --create the "
            "command prints it.",
        ) from None


def _quoted(name: str) -> str:
    parts = name_parts(name)
    if not parts:
        raise ConfigurationError(f"--name: {name!r} is no name of a view.", hint=_NAME)
    return ".".join(map(identifier, parts))
