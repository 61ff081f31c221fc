"""The cost of exact decoding, compared with a bare Spark expression with a fixed schema.

JSON is compared with ``from_json``. Avro through a registry is compared with ``from_avro`` after the five bytes of the
wire format, Protobuf with Google's library in an Arrow UDF, as one writes it where Spark's own jar for it isn't there.
Debezium's change events in JSON are compared with ``from_json`` of the parts that are used, and a selection of the row
before or after the change.

Both sides read the records from Kafka, and the rows are thrown away. Both must decode the same rows, which is checked
by their number and a hash of all.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import fastavro
import pandas as pd
from protobuf_bytes import compiled, framed, message
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from registry import registry_server

from benchmarks import ours
from benchmarks.data import Topic, produce_values, undecoded
from benchmarks.measure import Figures, Ratio, Run, Work, WrongResult, alternating
from benchmarks.sizes import PARTITIONS
from benchmarks.stage import Stage, in_a_process
from connector.config import parse
from connector.engine.decoders import decoders
from connector.source.reader import Reader
from connector.spark.session import session
from sinks.offsets import OffsetRange

COLUMNS = (
    "id BIGINT, customer STRING, city STRING, amount DOUBLE, quantity INT, paid BOOLEAN, note STRING, created BIGINT"
)
AVRO = {
    "type": "record", "name": "shop.Order",
    "fields": [{"name": name, "type": kind} for name, kind in (
        ("id", "long"), ("customer", "string"), ("city", "string"), ("amount", "double"), ("quantity", "int"),
        ("paid", "boolean"), ("note", ["null", "string"]), ("created", "long"),
    )],
}  # fmt: skip
PROTOBUF = """
syntax = "proto3"; package shop;
message Order {
  int64 id = 1; string customer = 2; string city = 3; double amount = 4; int32 quantity = 5; bool paid = 6;
  optional string note = 7; int64 created = 8;
}
"""
LABELS = ("JSON", "Avro", "Protobuf", "Debezium")
ORDER = message(PROTOBUF, "shop.Order")
DISTINCT = 10_000
"""Distinct records. The topic repeats them."""


def record(number: int) -> dict[str, object]:
    return {
        "id": number, "customer": f"customer {number % 5000}", "city": "Zürich", "amount": number / 7,
        "quantity": number % 9, "paid": number % 3 == 0, "note": "a note" * (number % 4) or None,
        "created": 1_767_225_600_000 + number,
    }  # fmt: skip


def as_json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def as_avro(value: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), value)
    return b"\0\0\0\0\x01" + buffer.getvalue()


def as_protobuf(value: Mapping[str, object]) -> bytes:
    return framed(1, ORDER(**value).SerializeToString())


def as_debezium(value: Mapping[str, object]) -> bytes:
    """An update, as Debezium's connector for PostgreSQL tells it; every tenth record is a delete."""
    number = value["id"]
    assert isinstance(number, int)
    before = {**value, "quantity": 0}
    deleted = number % 10 == 0
    source = {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": value["created"],
        "snapshot": "false", "db": "shop", "schema": "public", "table": "orders", "txId": number, "lsn": number * 100,
    }  # fmt: skip
    return as_json(
        {
            "before": before, "after": None if deleted else value, "source": source, "op": "d" if deleted else "u",
            "ts_ms": value["created"], "transaction": None,
        }
    )  # fmt: skip


def bare_json() -> Column:
    return F.from_json(F.col("value").cast("string"), COLUMNS)


def bare_debezium() -> Column:
    used = f"before STRUCT<{COLUMNS}>, after STRUCT<{COLUMNS}>, op STRING, ts_ms BIGINT, source STRUCT<lsn BIGINT>"
    return F.from_json(F.col("value").cast("string"), used)


def bare_avro() -> Column:
    return from_avro(F.substring("value", 6, 2**31 - 1), json.dumps(AVRO), {"mode": "PERMISSIVE"})


def bare_protobuf() -> Column:
    content, names = compiled(PROTOBUF), tuple(record(0))

    @F.pandas_udf(COLUMNS)
    def decode(values: pd.Series) -> pd.DataFrame:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
            pool.Add(file)
        order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
        rows = []
        for value in values:
            found = order.FromString(value[6:])
            rows.append([getattr(found, name) if name != "note" or found.HasField(name) else None for name in names])
        return pd.DataFrame(rows, columns=names)

    return decode("value")


def fill(spark: SparkSession, topic: Topic, values: list[bytes], repeat: int) -> None:
    """``repeat``: copies of each value."""
    frame = spark.createDataFrame([(value,) for value in values], "value BINARY").repartition(PARTITIONS)
    produce_values(frame.crossJoin(spark.range(repeat)).select("value"), topic)


@dataclass(frozen=True)
class Format:
    encode: Callable[[Mapping[str, object]], bytes]
    value: Mapping[str, object]
    """The option of a pipeline file."""
    bare: Callable[[], Column]
    ours: Sequence[str] = tuple(record(0))
    """SQL of the columns to compare, of what Lakelock makes of a record."""
    theirs: Sequence[str] = ("row.*",)
    """The same of ``bare``."""


def formats(registry: str) -> dict[str, Format]:
    changed = (f"IF(row.op = 'd', row.before.{name}, row.after.{name}) AS {name}" for name in record(0))
    return {
        "JSON": Format(as_json, {"format": "json", "schema": COLUMNS}, bare_json),
        "Avro": Format(as_avro, {"format": "avro", "registry": {"url": registry}}, bare_avro),
        "Protobuf": Format(as_protobuf, {"format": "protobuf", "registry": {"url": registry}}, bare_protobuf),
        "Debezium": Format(
            as_debezium,
            {"format": "debezium", "schema": COLUMNS},
            bare_debezium,
            (*record(0), "_op", "_ts_ms", "_source.lsn AS lsn"),
            (*changed, "row.op AS _op", "row.ts_ms AS _ts_ms", "row.source.lsn AS lsn"),
        ),
    }


def lakelock(spark: SparkSession, topic: Topic, of: Format) -> DataFrame:
    options = {**ours.options(topic, "bench", {"type": "delta_append", "path": "nowhere"}), "value": of.value}
    config = parse(options)
    (decoder,) = decoders(config, spark)
    ranges = [OffsetRange(topic.name, partition, 0, end) for partition, end in enumerate(topic.ends())]
    records = Reader(config.source, spark)(ranges, decoder.decode.plain)
    return decoder(records).selectExpr(*of.ours, "_partition", "_offset")


def bare(spark: SparkSession, topic: Topic, of: Format) -> DataFrame:
    records = undecoded(spark, topic).select(of.bare().alias("row"), "partition", "offset")
    return records.selectExpr(*of.theirs, "partition AS _partition", "offset AS _offset")


def seconds(rows: DataFrame) -> Figures:
    started = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - started}


def rounds(topics: Mapping[str, Topic], records: int, repetitions: int) -> list[Run]:
    """Measure all formats in one process, after a warm-up round of each."""
    with session({}, name="bench") as spark, registry_server() as registry:
        registry.register(f"{topics['Avro'].name}-value", 1, AVRO)
        registry.register(f"{topics['Protobuf'].name}-value", 1, PROTOBUF, "PROTOBUF")
        runs = []
        for label, of in formats(registry.url).items():
            topic = topics[label]
            fill(spark, topic, [of.encode(record(number)) for number in range(DISTINCT)], max(1, records // DISTINCT))
            ways = {f"lakelock, {label}": lakelock(spark, topic, of), f"bare Spark, {label}": bare(spark, topic, of)}
            hashes = {name: way.selectExpr("count(1)", "bit_xor(xxhash64(*))").first() for name, way in ways.items()}
            if len(set(hashes.values())) != 1:
                raise WrongResult(f"the rows differ: {hashes}")
            runs += alternating({name: partial(seconds, way) for name, way in ways.items()}, repetitions, warm_up=1)
        return runs


def measure(stage: Stage) -> list[Run]:
    topics = {label: stage.empty_topic("decode") for label in LABELS}
    return in_a_process(rounds, topics, stage.sizes.decoded, stage.repetitions)


WORK = Work(
    "decode",
    "records read from Kafka and decoded exactly",
    "seconds",
    tuple(
        Ratio(
            f"speed / bare Spark, {label}",
            (f"bare Spark, {label}", "seconds"),
            (f"lakelock, {label}", "seconds"),
            at_least=1.0,
        )
        for label in LABELS
    ),
    measure,
)
