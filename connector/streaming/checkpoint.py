"""What a streaming query's checkpoint says of a batch: its offsets, and whose it is. Read, never written.

The query notes a batch's end in ``offsets/<batch id>`` before it runs the batch; the batch before ended where this one
starts, and the first starts where ``sources/0/0`` says.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connector.protocol.batch import Batch
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets
from sinks.spark.files import if_there, no_glob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST = "sources/0/0"


def batch_of(spark: SparkSession, checkpoint: str, number: int) -> Batch:
    """Raises ConfigurationError where it isn't there, or isn't that of a query over one Kafka source."""
    root = checkpoint.rstrip("/")
    before = f"offsets/{number - 1}" if number else _FIRST
    wanted = ("metadata", before, f"offsets/{number}")
    found = if_there(lambda: _texts(spark, [f"{root}/{name}" for name in wanted]))
    if found is None:
        raise ConfigurationError(
            f"checkpoint: {checkpoint!r} holds nothing of batch {number}.",
            hint="Give foreach_batch the very folder that the query has as its option checkpointLocation.",
        )
    # By their ends: Spark says the paths in full, with the file system that they are in.
    metadata, start, end = (next(text for path, text in found if path.endswith(f"/{name}")) for name in wanted)
    try:
        query = str(json.loads(metadata)["id"])
        _refuse_another(query, checkpoint)
        return Batch(query, number, initial(start) if before == _FIRST else logged(start), logged(end))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"checkpoint: what {checkpoint!r} says of batch {number} isn't understood: {error}.",
            hint="The query has to read Kafka, by one spark.readStream.format('kafka'), and nothing else.",
        ) from None


def _refuse_another(query: str, checkpoint: str) -> None:
    """By another query's offsets a batch may seem to be there already, and would be left out."""
    from pyspark import SparkContext

    running = SparkContext.getOrCreate().getLocalProperty("sql.streaming.queryId")
    if running is not None and running != query:
        raise ConfigurationError(
            f"checkpoint: {checkpoint!r} is that of another query, {query}; this one is {running}.",
            hint="Give foreach_batch the very folder that the query has as its option checkpointLocation.",
        )


def _texts(spark: SparkSession, paths: list[str]) -> list[tuple[str, str]]:
    files: DataFrame = spark.read.text([no_glob(path) for path in paths], wholetext=True)
    rows = files.selectExpr("_metadata.file_path AS path", "value").collect()
    return [(row["path"], row["value"]) for row in rows]


def logged(text: str) -> Offsets:
    """A version, Spark's own metadata, and a line for each source."""
    version, _, *sources = text.splitlines()
    _refuse_other(version)
    if len(sources) != 1:
        raise ValueError(f"the query has {len(sources)} sources, not one")
    return Offsets.from_dict(json.loads(sources[0]))


def initial(text: str) -> Offsets:
    """Where the source began: Spark writes a zero byte before it, for its oldest readers."""
    version, offsets = text.lstrip("\0").splitlines()
    _refuse_other(version)
    return Offsets.from_dict(json.loads(offsets))


def _refuse_other(version: str) -> None:
    if version != "v1":
        raise ValueError(f"its version is {version!r}, not 'v1'")
