"""``schema: inferred``: the schema of a pipeline's records, found from the first of them, and kept by its table.

The table has it as a property from its first version on. So every later run, and the auditor, read the records by the
same schema. Two first runs at once may find different ones: the table has that of one of them, and the other run stops,
because its rows don't fit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from sinks.offsets import OffsetRange
from sinks.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.decode")

_LOOKS_SECONDS = 10.0
"""For records that show a schema, behind those that show none."""


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


@dataclass
class _Looked:
    """What was looked at for a schema."""

    schema: str | None = None
    records: int = 0
    values: int = 0
    """Of the records those that are no tombstones."""
    all: bool = False
    """Whether it was all that there is."""


def _found(config: PipelineConfig, source: KafkaSource, held: TopicsHeld) -> str:
    topics = ", ".join(sorted({at.topic for at in held.ends})) or str(config.source.topics)
    assert config.inferred is not None
    looked = _look(source, to_sample(source.starting(held)(), held), framed=config.inferred.framed)
    if looked.schema is not None:
        log.info("value.schema, inferred from %s records: %s", looked.records, looked.schema)
        return looked.schema
    none_yet = looked.all and not looked.values
    if none_yet and config.source.start == "latest":
        raise ConfigurationError(
            f"source.start: latest: {topics} has no record that could show the schema (value.schema: inferred). There "
            "is no table yet that could keep where the topic ends now, so its first records would be left out.",
            hint="Write start: earliest, which is the same for a topic without records.",
        )
    if none_yet:
        deletes = f", only {plural(looked.records, 'tombstone')}" if looked.records else ""
        raise NoRecordYet(
            f"value.schema: inferred: {topics} has no record yet that could show the schema{deletes}. There is no "
            "table yet.",
            hint="`lakelock run FILE` makes it with the first records. Or write the columns into value.schema.",
        )
    if not looked.records:
        raise BrokerUnreachable(
            f"value.schema: inferred: Kafka gave no record of {topics} in time, so the schema isn't known.",
            hint="Run it again, or write the columns into value.schema.",
        )
    raise ConfigurationError(
        f"value.schema: inferred: {plural(looked.records, 'record')} of {topics} looked at, and none is a JSON "
        "object with a field.",
        hint="Write the columns into value.schema, or another format into value.format.",
    )


def _look(source: KafkaSource, ranges: Sequence[OffsetRange], *, framed: bool) -> _Looked:
    """Look at the first records, and behind those that show nothing at the next ones, for a while: a compacted topic
    may begin with tombstones."""
    looked, left, until = _Looked(), list(ranges), time.monotonic() + _LOOKS_SECONDS
    while left:
        samples = source.samples(left)
        records = [record for of_partition in samples.values() for record in of_partition]
        looked.records += len(records)
        looked.values += sum(record.value is not None for record in records)
        looked.schema = inferred(ConfluentWire.body_of(record.value) if framed else record.value for record in records)
        if looked.schema is not None:
            return looked
        behind = [replace(each, start=samples[each.at][-1].offset + 1) for each in left if samples.get(each.at)]
        left = [each for each in [*(each for each in left if each.at not in samples), *behind] if each.start < each.end]
        if not samples or time.monotonic() > until:
            break
    looked.all = not left
    return looked
