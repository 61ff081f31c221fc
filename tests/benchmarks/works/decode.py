"""The cost of exact decoding, compared with a bare Spark expression with a fixed schema.

JSON is compared with ``from_json``. Avro through a registry is compared with ``from_avro`` after the five bytes of the
wire format. Debezium's change events in JSON are compared with ``from_json`` of the parts that are used, and a
selection of the row before or after the change.

The records are in memory, and the rows are thrown away. Both sides must decode the same rows, which is checked by their
number and a hash of all.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import fastavro
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from registry import registry_server

from benchmarks.measure import Figures, Ratio, Run, Work, WrongResult, alternating
from benchmarks.stage import Stage, in_a_process
from connector.config import parse
from connector.engine.decoders import decoders
from connector.spark.session import session

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
DISTINCT = 10_000
"""Distinct records. The input repeats them."""


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


def held(spark: SparkSession, values: list[bytes], repeat: int) -> DataFrame:
    """Records in memory, with the columns of Spark's Kafka reader. ``repeat``: copies of each value."""
    frame = spark.createDataFrame([(value,) for value in values], "value BINARY").repartition(2)
    frame = frame.crossJoin(spark.range(repeat).withColumnRenamed("id", "offset")).selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "0 AS partition", "offset",
        "current_timestamp() AS timestamp",
    )  # fmt: skip
    return frame.localCheckpoint()


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
        "Debezium": Format(
            as_debezium,
            {"format": "debezium", "schema": COLUMNS},
            bare_debezium,
            (*record(0), "_op", "_ts_ms", "_source.lsn AS lsn"),
            (*changed, "row.op AS _op", "row.ts_ms AS _ts_ms", "row.source.lsn AS lsn"),
        ),
    }


def lakelock(spark: SparkSession, records: DataFrame, of: Format) -> DataFrame:
    config = parse(
        {
            "name": "bench",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": of.value,
            "sinks": [{"type": "delta_append", "path": "nowhere"}],
        }
    )
    (decode,) = decoders(config, spark)
    return decode(records).selectExpr(*of.ours, "_offset")


def bare(records: DataFrame, of: Format) -> DataFrame:
    return records.select(of.bare().alias("row"), "offset").selectExpr(*of.theirs, "offset AS _offset")


def seconds(rows: DataFrame) -> Figures:
    started = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - started}


def rounds(records: int, repetitions: int) -> list[Run]:
    """Measure all formats in one process, after a warm-up round of each."""
    with session({}, name="bench") as spark, registry_server() as registry:
        registry.register("t-value", 1, AVRO)
        runs = []
        for label, of in formats(registry.url).items():
            kept = held(spark, [of.encode(record(number)) for number in range(DISTINCT)], max(1, records // DISTINCT))
            ways = {f"lakelock, {label}": lakelock(spark, kept, of), f"bare Spark, {label}": bare(kept, of)}
            hashes = {name: way.selectExpr("count(1)", "bit_xor(xxhash64(*))").first() for name, way in ways.items()}
            if len(set(hashes.values())) != 1:
                raise WrongResult(f"the rows differ: {hashes}")
            runs += alternating({name: partial(seconds, way) for name, way in ways.items()}, repetitions, warm_up=1)
            kept.unpersist()
        return runs


def measure(stage: Stage) -> list[Run]:
    return in_a_process(rounds, stage.sizes.in_memory, stage.repetitions)


WORK = Work(
    "decode",
    "records in memory, decoded exactly",
    "seconds",
    tuple(
        Ratio(
            f"speed / bare Spark, {label}",
            (f"bare Spark, {label}", "seconds"),
            (f"lakelock, {label}", "seconds"),
            at_least=at_least,
        )
        for label, at_least in (("JSON", None), ("Avro", 1.0), ("Debezium", 1.0))
    ),
    measure,
)
