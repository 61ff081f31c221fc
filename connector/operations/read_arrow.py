"""Reads a pipeline's table into memory without Spark, by delta-rs, and never rows that are behind in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from connector.config import load
from connector.config.places import DeltaPlace
from connector.operations.read import of_one_table
from sinks.delta.change_log import FOLDER
from sinks.delta.metadata import pipeline_of
from sinks.errors import ConfigurationError, NotFolded

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable


def read_arrow(
    file: str | Path,
    value: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    folded: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """The table's current rows, all in this process's memory. Needs the extra ``arrow``.

    ``value``: of ``route.by``, the one whose table is read. ``columns``: these alone, instead of all. ``folded``: with
    ``merge: on_read``, the rows as of the last fold, also where newer epochs wait for the next one. ``storage_options``
    are those of delta-rs for S3 and other stores. Without them it takes AWS_* from the environment. Passwords of Kafka
    that the file takes from the environment needn't be there.

    Raises NotFolded if ``folded`` is false and epochs wait for a fold, and ConfigurationError if there is no table yet,
    several sinks, or a table by name.

    >>> read_arrow("pipeline.yaml", columns=["id", "total"]).to_pandas()  # doctest: +SKIP
    """
    try:
        import pyarrow as pa
        from deltalake import QueryBuilder
    except ImportError:
        raise ConfigurationError(
            "read_arrow reads tables with deltalake, which isn't installed.",
            hint='Install it: pip install "lakelock[arrow]".',
        ) from None

    config = of_one_table(load(file, reads_tables=True), value)
    sink = config.sinks[0]
    assert isinstance(sink, DeltaPlace)
    folder = sink.folder
    if folder is None:
        raise ConfigurationError(
            f"{sink.place!r} is a table's name, and delta-rs knows tables by their paths.",
            hint="Give the sink a path, or read it with connector.read and Spark.",
        )
    # The change log first: a fold between the two makes the table newer, never older.
    log = _opened(f"{folder.rstrip('/')}/{FOLDER}", storage_options)
    table = _opened(folder, storage_options)
    if table is None:
        raise ConfigurationError(f"There is no table {sink.place!r} yet.", hint="`lakelock run FILE` makes it.")
    if log is not None and not folded:
        _refuse_other_name(config.name, sink.place, table, log)  # whatever the file says of `merge`
        _refuse_if_behind(config.name, sink.place, table, log)
    chosen = ", ".join(map(_quoted, columns)) if columns else "*"
    return pa.table(QueryBuilder().register("t", table).execute(f"SELECT {chosen} FROM t").read_all())


def _refuse_other_name(pipeline: str, place: str, table: DeltaTable, log: DeltaTable) -> None:
    """Raises NotFolded if a pipeline of another name has written the log, and the table lacks an epoch of it."""
    if log.transaction_version(pipeline) is not None:
        return
    wrote = next((name for each in log.history() if (name := pipeline_of(each.get("userMetadata"))) is not None), None)
    logged = log.transaction_version(wrote) if wrote is not None else None
    folded = table.transaction_version(wrote) if wrote is not None else None
    if wrote in (None, pipeline) or logged is None or (folded is not None and logged <= folded):
        return
    raise NotFolded(
        f"{place}: its change log is of pipeline {wrote!r} and has epochs that the table lacks. The file's name is "
        f"{pipeline!r}.",
        hint=f"Read with the file of the runs, or with `name: {json.dumps(wrote, ensure_ascii=False)}`. "
        "read_arrow(..., folded=True) gives the table as it is.",
    )


def _refuse_if_behind(pipeline: str, place: str, table: DeltaTable, log: DeltaTable) -> None:
    """Raises NotFolded if the log has a higher epoch than the table (``sinks.delta.merge_on_read`` says why)."""
    logged, folded = log.transaction_version(pipeline), table.transaction_version(pipeline)
    if logged is None or (folded is not None and logged <= folded):
        return
    at = "no epoch" if folded is None else f"epoch {folded}"
    raise NotFolded(
        f"{place}: the table is as of {at}, and its change log has epoch {logged}.",
        hint="`lakelock fold FILE` brings the table up to date; connector.read gives the current rows with Spark; "
        "read_arrow(..., folded=True) gives the table as it is. If the table was restored, those epochs don't count, "
        "and a fold does nothing: the next run reads their records again.",
    )


def _opened(folder: str, storage_options: Mapping[str, str] | None) -> DeltaTable | None:
    """None if there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(re.sub("^s3a://", "s3://", folder), storage_options=dict(storage_options or {}))
    except TableNotFoundError:
        return None


def _quoted(name: str) -> str:
    """A column's name in DataFusion's SQL."""
    return '"' + name.replace('"', '""') + '"'
