"""What exact decoding costs: records per second, against the same bare Spark expression with a fixed schema.

JSON against ``from_json``, Avro through a registry against ``from_avro`` behind the five bytes of the wire format. The
records are in memory, the rows go nowhere. Both have to give the same rows, counted and compared by a hash of all.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fastavro
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from connector.config import PipelineConfig, parse
from connector.parts import decoders
from connector.spark import session

sys.path.insert(0, str(Path(__file__).parents[1]))
from registry import registry_server

progress = Console(stderr=True, highlight=False)
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


def record(number: int) -> dict[str, object]:
    return {
        "id": number, "customer": f"customer {number % 5000}", "city": "Zürich", "amount": number / 7,
        "quantity": number % 9, "paid": number % 3 == 0, "note": "a note" * (number % 4) or None,
        "created": 1_767_225_600_000 + number,
    }  # fmt: skip


def as_avro(value: dict[str, object]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO), value)
    return b"\0\0\0\0\x01" + buffer.getvalue()


def held(spark: SparkSession, values: list[bytes], repeat: int) -> DataFrame:
    """Records as Kafka gives them, in memory."""
    frame = spark.createDataFrame([(value,) for value in values], "value BINARY").repartition(2)
    frame = frame.crossJoin(spark.range(repeat).withColumnRenamed("id", "offset")).selectExpr(
        "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "0 AS partition", "offset",
        "current_timestamp() AS timestamp",
    )  # fmt: skip
    frame = frame.localCheckpoint()
    progress.print(f"{frame.count():,} records in memory")
    return frame


def config(value: dict[str, object]) -> PipelineConfig:
    return parse(
        {
            "name": "bench",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": value,
            "sinks": [{"type": "delta_append", "path": "nowhere"}],
        }
    )


def measured(ways: dict[str, Callable[[], DataFrame]], rounds: int) -> dict[str, list[float]]:
    hashes = {name: way().selectExpr("count(1)", "bit_xor(xxhash64(*))").first() for name, way in ways.items()}
    if len(set(hashes.values())) != 1:
        sys.exit(f"the rows differ: {hashes}")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in list(ways.items())[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            way().write.format("noop").mode("overwrite").save()
            if number:  # the first one warms up
                times[name].append(time.perf_counter() - started)
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=7)
    chosen = options.parse_args()
    with session({}, name="bench") as spark, registry_server() as registry:
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import from_avro

        registry.register("t-value", 1, AVRO)
        repeat = max(1, chosen.records // 10_000)
        rows = [record(number) for number in range(10_000)]
        names = list(rows[0])
        for label, values, value, bare in (
            (
                "JSON",
                [json.dumps(row, ensure_ascii=False).encode() for row in rows],
                {"format": "json", "schema": COLUMNS},
                lambda: F.from_json(F.col("value").cast("string"), COLUMNS),
            ),
            (
                "Avro",
                [as_avro(row) for row in rows],
                {"format": "avro", "registry": {"url": registry.url}},
                lambda: from_avro(F.substring("value", 6, 2**31 - 1), json.dumps(AVRO), {"mode": "PERMISSIVE"}),
            ),
        ):
            records = held(spark, values, repeat)
            (decode,) = decoders(config(value), spark)
            times = measured(
                {
                    "bare": lambda records=records, bare=bare: records.select(bare().alias("row"), "offset").select(
                        "row.*", "offset"
                    ),
                    "lakelock": lambda records=records, decode=decode: decode(records).selectExpr(*names, "_offset"),
                },
                chosen.rounds,
            )
            medians = {name: statistics.median(each) for name, each in times.items()}
            for name, each in times.items():
                shown = " ".join(f"{seconds:.2f}" for seconds in each)
                print(f"{label} {name:9} {len(values) * repeat / medians[name]:>12,.0f} records/s   ({shown} s)")
            print(f"{label} ratio of speeds, lakelock to bare: {medians['bare'] / medians['lakelock']:.2f}")
            records.unpersist()


if __name__ == "__main__":
    main()
