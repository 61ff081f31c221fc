"""Does what a run does, without Kafka, so that the JVM can archive most of the classes that a run loads.

``python -m connector.engine.warm_up ARCHIVE FOLDER``
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from connector.config import PipelineConfig, parse
from connector.engine.decoders import decoders
from connector.engine.epoch import Reading, run_epoch, these
from connector.engine.outputs import Table, outputs
from connector.source import columnar
from connector.source.records import no_records, polled
from connector.spark import java
from connector.spark.session import session
from sinks.contract import Epoch
from sinks.offsets import OffsetRange, Offsets, TopicPartition

_TOPIC = "rehearsal"
_NOBODY = "localhost:9092"
"""A broker that is never asked."""
_RECORDS = 10
_SINKS: tuple[Mapping[str, object], ...] = (
    {"type": "delta_append"},
    {"type": "delta_upsert", "key": "k"},
    {"type": "delta_upsert", "key": "k", "merge": "on_read"},
    {"type": "delta_aggregate", "group_by": "k", "aggregates": {"records": "count(*)", "total": "sum(n)"}},
)


class _Record(NamedTuple):
    offset: int
    value: bytes
    topic: str = _TOPIC
    partition: int = 0
    timestamp: int = 0
    key: bytes | None = None
    headers: None = None


def main(archive: Path, folder: Path) -> None:
    """Run two epochs into a table of each kind in ``folder``, and read it; the JVM writes the class archive when it
    exits."""
    options = f"-XX:ArchiveClassesAtExit={archive} {java.QUICK_START} -Xlog:cds*=off"
    with session({"spark.driver.extraJavaOptions": options}, name=_TOPIC) as spark:
        configs = [_into({**sink, "path": str(folder / f"table{number}")}) for number, sink in enumerate(_SINKS)]
        _read_nothing(spark, configs[0])
        for config in configs:
            _two_epochs(spark, config)


def _into(sink: Mapping[str, object]) -> PipelineConfig:
    return parse(
        {
            "name": _TOPIC,
            "source": {"topics": [_TOPIC], "kafka": {"bootstrap.servers": _NOBODY}},
            "value": {"format": "json", "schema": "k STRING, n BIGINT, at TIMESTAMP"},
            "sinks": [sink],
        }
    )


def _two_epochs(spark: SparkSession, config: PipelineConfig) -> None:
    with outputs(config, spark, no_records(spark), "") as (table,):
        assert isinstance(table, Table)
        table.ready()
        for number in (1, 2):
            read = OffsetRange(_TOPIC, 0, (number - 1) * _RECORDS, number * _RECORDS)
            epoch = Epoch(
                pipeline=_TOPIC,
                number=number,
                owner=_TOPIC,
                ranges=(read,),
                offsets=Offsets({TopicPartition(_TOPIC, 0): read.end}),
                topics={_TOPIC: _TOPIC},
                read_to=None,
                expected=table.derivation.sink.position(),
            )
            values = (f'{{"k":"{n % 3}","n":{n},"at":"2026-01-01T00:00:00Z"}}' for n in range(read.start, read.end))
            records = polled(spark, [_Record(n, value.encode()) for n, value in enumerate(values, read.start)])
            reading = Reading(these(records), {table.label: table}, timing=None, letters=None)
            run_epoch(epoch, reading, write=table.derivation.sink.write, observe=lambda _: None, behind=0)
        # As who reads it does: every column, and what isn't folded yet.
        log = table.derivation.log
        rows = spark.sql(table.table.fixed_sql()) if log is None else log.live()
        rows.write.format("noop").mode("overwrite").save()


def _read_nothing(spark: SparkSession, config: PipelineConfig) -> None:
    """With both readers of Kafka. The columnar one asks no broker where a range is empty."""
    spark.read.format("kafka").options(**{"subscribe": _TOPIC, "kafka.bootstrap.servers": _NOBODY}).load()
    (decoder,) = decoders(config, spark)
    plain = decoder.decode.plain
    if plain is None or not columnar.is_here(spark):
        return
    kafka = {**config.source.kafka_options, "group.id": _TOPIC}
    rows = decoder(columnar.read(spark, kafka, [OffsetRange(_TOPIC, 0, 0, 0)], plain))
    rows.write.format("noop").mode("append").save()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
