"""``schema: inferred``: the schema of a pipeline's records, found from the first of them, and kept by its table.

The table has it as a property from its first version on. So every later run, and the auditor, read the records by the
same schema. Two first runs at once may find different ones: the table has that of one of them, and the other run stops,
because its rows don't fit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from connector.config import DeltaSink, JsonFormat, PipelineConfig
from connector.decode.inferred import inferred
from connector.protocol.recover import TopicsHeld
from connector.source.topics import KafkaSource
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, UnknownSchema
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.decode")


def with_schema(config: PipelineConfig, spark: SparkSession, source: KafkaSource, held: TopicsHeld) -> PipelineConfig:
    """The pipeline with the schema of its records, if it is to be inferred.

    Raises UnknownSchema if there is no record yet, and ConfigurationError if the table doesn't say its schema.
    """
    return of_table(config, spark) or config.read_by(_found(config, source, held))


def of_table(config: PipelineConfig, spark: SparkSession) -> PipelineConfig | None:
    """The pipeline with the schema that its table keeps, or as it is if the file has the schema. None: there is no
    table yet.

    Raises ConfigurationError if the table doesn't say its schema.
    """
    sink, format = config.sinks[0], config.value
    if not isinstance(format, JsonFormat) or not format.inferred or not isinstance(sink, DeltaSink):
        return config
    detail = DeltaTable(spark, path=sink.folder, name=sink.table, label=sink.place).detail()
    if detail is None:
        return None
    if JsonFormat.PROPERTY not in detail.properties:
        raise ConfigurationError(
            f"value.schema: inferred: the table {sink.place!r} is there, and has no schema that was inferred for it.",
            hint="Write its columns into value.schema, or another path or table into the sink.",
        )
    return config.read_by(detail.properties[JsonFormat.PROPERTY])


def _found(config: PipelineConfig, source: KafkaSource, held: TopicsHeld) -> str:
    starts = source.starting(held)()
    first = [OffsetRange(*at, start, held.ends[at]) for at, start in starts.items() if start < held.ends[at]]
    records = source.sample(first) if first else []
    schema = inferred(record.value for record in records)
    topics = ", ".join(sorted({at.topic for at in held.ends})) or str(config.source.topics)
    if schema is None and records:
        raise ConfigurationError(
            f"value.schema: inferred: of the {len(records)} records of {topics} that were looked at none is a JSON "
            "object with a field.",
            hint="Write the columns into value.schema, or another format into value.format.",
        )
    if schema is None:
        raise UnknownSchema(
            f"value.schema: inferred: {topics} has no record yet that could show the schema. Nothing was made.",
            hint="Run it again when there are records, or write the columns into value.schema. With an interval, "
            "retry: {restart_after: 1 minute} looks again.",
        )
    log.info("value.schema, inferred from %s records: %s", len(records), schema)
    return schema
