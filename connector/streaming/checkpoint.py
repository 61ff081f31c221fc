"""Reads what a streaming query's checkpoint says of a batch: its offsets, and which query it belongs to.

Never writes.

The query writes a batch's end to ``offsets/<batch id>`` before it runs the batch. A batch starts where the batch before
it ended, and the first one where ``sources/0/0`` says. (Spark's OffsetSeqLog and KafkaSourceInitialOffsetWriter.)
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
    """The offset ranges of batch ``number``. ``checkpoint`` is the query's ``checkpointLocation``.

    Raises ConfigurationError if the checkpoint isn't there, belongs to another query, or isn't that of a query with one
    Kafka source.
    """
    root = checkpoint.rstrip("/")
    before = f"offsets/{number - 1}" if number else _FIRST
    wanted = ("metadata", before, f"offsets/{number}")
    files = if_there(lambda: _texts(spark, [f"{root}/{name}" for name in wanted]))
    if files is None:
        raise ConfigurationError(
            f"checkpoint: {checkpoint!r} holds nothing of batch {number}.",
            hint="Give foreach_batch the very folder that the query has as its option checkpointLocation.",
        )
    # Compare the ends of the paths: Spark returns them in full, with their file system.
    metadata, start, end = (next(text for path, text in files if path.endswith(f"/{name}")) for name in wanted)
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
    """Raises ConfigurationError: by another query's offsets a new batch might look committed, and be left out."""
    from pyspark import SparkContext

    running = SparkContext.getOrCreate().getLocalProperty("sql.streaming.queryId")
    if running is not None and running != query:
        raise ConfigurationError(
            f"checkpoint: {checkpoint!r} belongs to another query, {query}; this one is {running}.",
            hint="Give foreach_batch the very folder that the query has as its option checkpointLocation.",
        )


def _texts(spark: SparkSession, paths: list[str]) -> list[tuple[str, str]]:
    files: DataFrame = spark.read.text([no_glob(path) for path in paths], wholetext=True)
    rows = files.selectExpr("_metadata.file_path AS path", "value").collect()
    return [(row["path"], row["value"]) for row in rows]


def logged(text: str) -> Offsets:
    """The offsets of a file in ``offsets/``: a version, Spark's own metadata, and one line per source.

    Raises ValueError.
    """
    version, _, *sources = text.splitlines()
    _refuse_other(version)
    if len(sources) != 1:
        raise ValueError(f"the query has {len(sources)} sources, not one")
    return Offsets.from_dict(json.loads(sources[0]))


def initial(text: str) -> Offsets:
    """The offsets of ``sources/0/0``.

    Spark writes a zero byte before them, for its oldest readers. Raises ValueError.
    """
    version, offsets = text.lstrip("\0").splitlines()
    _refuse_other(version)
    return Offsets.from_dict(json.loads(offsets))


def _refuse_other(version: str) -> None:
    if version != "v1":
        raise ValueError(f"its version is {version!r}, not 'v1'")
