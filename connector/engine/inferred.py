"""``schema: inferred``: the schema of a pipeline's records, found from the first of them, and kept by its table.

The table has it as a property from its first version on. So every later run, and the auditor, read the records by the
same schema. Two first runs at once may find different ones: the table has that of one of them, and the other run stops,
because its rows don't fit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from connector.config import DeltaSink, PipelineConfig
from connector.config.formats import INFERRED
from connector.decode.inferred import inferred
from connector.decode.registry.wire_format import ConfluentWire
from connector.protocol.plan import to_sample
from connector.protocol.recover import TopicsHeld
from connector.source.topics import KafkaSource
from sinks.delta.table import DeltaTable
from sinks.errors import BrokerUnreachable, ConfigurationError, NoRecordYet
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.decode")


def with_schema(config: PipelineConfig, spark: SparkSession, source: KafkaSource, held: TopicsHeld) -> PipelineConfig:
    """The pipeline with the schema of its records, if it is to be inferred, and nobody has found it yet.

    Raises NoRecordYet, and ConfigurationError if the table doesn't say its schema.
    """
    kept = of_table(config, spark)
    if kept is not None or (config.inferred is not None and config.inferred.schema_ != INFERRED):
        return kept or config
    return config.read_by(_found(config, source, held))


def of_table(config: PipelineConfig, spark: SparkSession) -> PipelineConfig | None:
    """The pipeline with the schema that its table keeps, or as it is if the file has the schema. None: there is no
    table yet.

    Raises ConfigurationError if the table doesn't say its schema.
    """
    sink, format = config.sinks[0], config.inferred
    if format is None or not isinstance(sink, DeltaSink):
        return config
    detail = DeltaTable(spark, path=sink.folder, name=sink.table, label=sink.place).detail()
    if detail is None:
        return None
    schema = format.kept_schema(detail.properties.get(format.PROPERTY))
    if schema is None:
        raise ConfigurationError(
            f"value.schema: inferred: the table {sink.place!r} is there, and has no schema that was inferred for it.",
            hint="Write its columns into value.schema, or another path or table into the sink.",
        )
    return config.read_by(schema)


def _found(config: PipelineConfig, source: KafkaSource, held: TopicsHeld) -> str:
    topics = ", ".join(sorted({at.topic for at in held.ends})) or str(config.source.topics)
    first = to_sample(source.starting(held)(), held)
    if not first and config.source.start == "latest":
        raise ConfigurationError(
            f"source.start: latest: {topics} has no record that could show the schema (value.schema: inferred). There "
            "is no table yet that could keep where the topic ends now, so its first records would be left out.",
            hint="Write start: earliest, which is the same for a topic without records.",
        )
    if not first:
        raise NoRecordYet(
            f"value.schema: inferred: {topics} has no record yet that could show the schema. There is no table yet.",
            hint="`lakelock run FILE` makes it with the first records. Or write the columns into value.schema.",
        )
    records = source.sample(first)
    if not records:
        raise BrokerUnreachable(
            f"value.schema: inferred: Kafka gave no record of {topics} in time, so the schema isn't known.",
            hint="Run it again, or write the columns into value.schema.",
        )
    assert config.inferred is not None
    framed = config.inferred.framed
    schema = inferred(ConfluentWire.body_of(record.value) if framed else record.value for record in records)
    if schema is None:
        raise ConfigurationError(
            f"value.schema: inferred: {plural(len(records), 'record')} of {topics} looked at, and none is a JSON "
            "object with a field.",
            hint="Write the columns into value.schema, or another format into value.format.",
        )
    log.info("value.schema, inferred from %s records: %s", len(records), schema)
    return schema
