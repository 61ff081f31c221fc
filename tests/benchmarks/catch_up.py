"""How long Lakelock and Spark Structured Streaming take to bring one whole topic into a new Delta table.

One broker, one topic, one warm Spark session with the same settings for both. Rounds alternate between the two, so
that what else the machine does hits both. Every table is compared with the topic itself, row by row: a fast wrong
result ends the benchmark with exit code 1. See README.md next to this file for what is and isn't measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from connector import Pipeline
from connector.lab.broker import Broker
from connector.spark import session

SCHEMA = "key STRING, number BIGINT, amount DOUBLE, at TIMESTAMP, note STRING"
COLUMNS = f"{SCHEMA}, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
PARTITIONS = 4
WORKS = ("append", "upsert", "count")
WARM_UP_RECORDS, WARM_UP_KEYS = 40_000, 2_000
EVERYTHING = 1_000_000_000
"""More than any topic here holds."""

progress = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Topic:
    bootstrap: str
    name: str


@dataclass(frozen=True)
class Contender:
    """One way to do the work. ``run`` fills the new table in the folder ``table`` of the folder that it gets."""

    work: str
    name: str
    ours: bool
    default: bool
    run: Callable[[SparkSession, Topic, Path], None]

    @property
    def label(self) -> str:
        return f"{self.work}: {self.name}"


@dataclass(frozen=True)
class Content:
    """What a table holds, or should. ``digest`` is the sum of all rows' hashes, over every column."""

    rows: int
    keys: int
    offsets: int
    digest: int


class WrongResult(Exception):
    """A table doesn't hold what the topic says it should."""


# --- the contenders


def lakelock(kind: str, max_records: int | None) -> Callable[[SparkSession, Topic, Path], None]:
    """Lakelock by its public API; it finds the active session, and isolates itself in a new one of the same settings.

    ``max_records`` None is Lakelock's default.
    """

    def run(_: SparkSession, topic: Topic, folder: Path) -> None:
        pipeline(kind, max_records, topic, folder).run()

    return run


def pipeline(kind: str, max_records: int | None, topic: Topic, folder: Path) -> Pipeline:
    more: dict[str, dict[str, object]] = {
        "append": {"type": "delta_append"},
        "upsert": {"type": "delta_upsert", "key": "key"},
        "count": {"type": "delta_aggregate", "group_by": "key", "aggregates": {"records": "count(*)"}},
    }
    sink = {"path": str(folder / "table"), **more[kind]}
    return Pipeline.from_options(
        {
            "name": f"bench_{kind}",
            "source": {"topics": [topic.name], "kafka": {"bootstrap.servers": topic.bootstrap}},
            "value": {"format": "json", "schema": SCHEMA},
            "epoch": {} if max_records is None else {"max_records": max_records},
            "sinks": [sink],
        }
    )


def streaming_append(max_offsets: int) -> Callable[[SparkSession, Topic, Path], None]:
    def run(spark: SparkSession, topic: Topic, folder: Path) -> None:
        create_table(spark, folder)
        (
            decoded(stream(spark, topic, max_offsets))
            .writeStream.format("delta")
            .outputMode("append")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "table"))
            .awaitTermination()
        )

    return run


def streaming_upsert(max_offsets: int) -> Callable[[SparkSession, Topic, Path], None]:
    """foreachBatch and MERGE, with the guard that makes a batch that is run twice harmless."""

    def run(spark: SparkSession, topic: Topic, folder: Path) -> None:
        create_table(spark, folder)

        def upsert(batch: DataFrame, _: int) -> None:
            latest_per_key(batch).createOrReplaceTempView("updates")
            batch.sparkSession.sql(
                f"MERGE INTO delta.`{folder / 'table'}` AS t USING updates AS s ON t.key = s.key "
                "WHEN MATCHED AND s._offset > t._offset THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        (
            decoded(stream(spark, topic, max_offsets))
            .writeStream.foreachBatch(upsert)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    return run


def streaming_count(max_offsets: int) -> Callable[[SparkSession, Topic, Path], None]:
    """Stateful aggregation, whose changed groups go into the table by foreachBatch and MERGE."""

    def run(spark: SparkSession, topic: Topic, folder: Path) -> None:
        spark.sql(f"CREATE TABLE delta.`{folder / 'table'}` (key STRING, records BIGINT) USING delta")

        def upsert(batch: DataFrame, _: int) -> None:
            batch.createOrReplaceTempView("updates")
            batch.sparkSession.sql(
                f"MERGE INTO delta.`{folder / 'table'}` AS t USING updates AS s ON t.key = s.key "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        (
            decoded(stream(spark, topic, max_offsets))
            .groupBy("key")
            .agg(F.count("*").alias("records"))
            .writeStream.outputMode("update")
            .foreachBatch(upsert)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    return run


def create_table(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{folder / 'table'}` ({COLUMNS}) USING delta")


def stream(spark: SparkSession, topic: Topic, max_offsets: int) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets)
        .load()
    )


def decoded(records: DataFrame) -> DataFrame:
    return records.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
    ).select("row.*", "_topic", "_partition", "_offset", "_timestamp")


def latest_per_key(rows: DataFrame) -> DataFrame:
    """The faster of the two usual ways: `max_by` and `groupBy` takes 5 to 10 % more CPU here."""
    newest_first = Window.partitionBy("key").orderBy(F.desc("_offset"))
    return rows.withColumn("rank", F.row_number().over(newest_first)).where("rank = 1").drop("rank")


def contenders(works: Sequence[str], records: int, batches: Sequence[int]) -> list[Contender]:
    """``batches``: sizes for Structured Streaming, which has no default (it would take everything at once)."""
    listed = []
    streaming = {"append": streaming_append, "upsert": streaming_upsert, "count": streaming_count}
    for work in works:
        default = pipeline(work, None, Topic("unused:9092", "unused"), Path("unused")).config.epoch.max_records
        name = f"Lakelock, {default:,} an epoch (its default)"
        listed.append(Contender(work, name, True, True, lakelock(work, None)))
        if work == "upsert" and default < records:
            listed.append(Contender(work, "Lakelock, one epoch", True, False, lakelock(work, EVERYTHING)))
        for size in batches:
            name = f"Structured Streaming, {size:,} a trigger"
            listed.append(Contender(work, name, False, False, streaming[work](size)))
    return listed


# --- the topic, and what a table made of it must hold


def produce(spark: SparkSession, broker: Broker, name: str, records: int, keys: int) -> Topic:
    """JSON records of about 100 bytes. The key is Kafka's key too, so each key stays in one partition."""
    broker.create_topic(name, PARTITIONS)
    columns = spark.range(0, records, numPartitions=PARTITIONS).selectExpr(
        # Every key occurs; the order looks random.
        f"format_string('key-%08d', IF(id < {keys}, id, pmod(xxhash64(id), {keys}))) AS key",
        "id AS number",
        "pmod(xxhash64(id, 1), 100000) / 100.0D AS amount",
        "timestamp_seconds(1767225600 + id) AS at",
        "substring(sha1(CAST(id AS STRING)), 1, 8) AS note",
    )
    (
        columns.selectExpr("key", "to_json(struct(*)) AS value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "131072")
        .option("topic", name)
        .save()
    )
    return Topic(broker.bootstrap, name)


def expected(spark: SparkSession, topic: Topic, records: int, keys: int) -> tuple[dict[str, Content], float]:
    """What the tables of each kind of work must hold, from the topic itself; and the mean size of a record's value."""
    kafka = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("subscribe", topic.name)
        .load()
    )
    rows = decoded(kafka)
    counts = rows.groupBy("key").agg(F.count("*").alias("records"))
    should = {"append": content(rows), "upsert": content(latest_per_key(rows)), "count": content(counted(counts))}
    places = rows.select(F.count_distinct("key", "_partition")).collect()[0][0]
    if should["append"].rows != records or should["upsert"].rows != keys or places != keys:
        raise WrongResult(f"the topic isn't what was asked for: {should}, keys in partitions: {places}")
    return should, kafka.agg(F.avg(F.length("value"))).collect()[0][0]


def counted(rows: DataFrame) -> DataFrame:
    """What is compared of counts per key: the keys and, in the place of an offset, the count."""
    return rows.selectExpr("key", "records AS _offset")


def content(rows: DataFrame) -> Content:
    digest = F.sum(F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)")).cast("string")
    found = rows.agg(F.count("*"), F.count_distinct("key"), F.sum("_offset"), digest).collect()[0]
    return Content(found[0], found[1], found[2] or 0, int(found[3] or 0))


def check(spark: SparkSession, contender: Contender, folder: Path, should: Mapping[str, Content]) -> None:
    table = spark.read.format("delta").load(str(folder / "table"))
    found = content(counted(table) if contender.work == "count" else table)
    if found != should[contender.work]:
        raise WrongResult(f"{contender.label}: the table holds {found}, and should hold {should[contender.work]}")


# --- measuring


def measure(
    spark: SparkSession, topic: Topic, all_contenders: Sequence[Contender], should: Mapping[str, Content], repeat: int
) -> dict[str, list[float]]:
    """Seconds of each run, by the contender's label."""
    seconds: dict[str, list[float]] = {contender.label: [] for contender in all_contenders}
    for number in range(repeat):
        # To and fro: who comes after whom differs from round to round.
        for contender in all_contenders if number % 2 == 0 else reversed(all_contenders):
            with new_folder() as folder:
                started = time.perf_counter()
                contender.run(spark, topic, folder)
                took = time.perf_counter() - started
                check(spark, contender, folder, should)
            seconds[contender.label].append(took)
            progress.print(f"round {number + 1} of {repeat}  {took:6.1f} s  {contender.label}")
    return seconds


@contextmanager
def new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lakelock-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def machine(spark: SparkSession) -> dict[str, str]:
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory / 2**30:.0f} GiB, {spark.conf.get('spark.driver.memory')} of it for Spark",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "Java": java,
        "pyspark": version("pyspark"),
        "delta-spark": version("delta-spark"),
        "master": spark.conf.get("spark.master") or "",
        "shuffle partitions": spark.conf.get("spark.sql.shuffle.partitions") or "",
    }


def results(
    all_contenders: Sequence[Contender], seconds: Mapping[str, Sequence[float]], records: int
) -> list[dict[str, object]]:
    """One mapping per contender. ``ratio``: its median, in medians of Lakelock's default for the same work."""
    base = {each.work: statistics.median(seconds[each.label]) for each in all_contenders if each.default}
    listed = []
    for contender in all_contenders:
        runs = seconds[contender.label]
        median = statistics.median(runs)
        listed.append(
            {
                "work": contender.work,
                "contender": contender.name,
                "ours": contender.ours,
                "seconds": [round(run, 2) for run in runs],
                "median": round(median, 2),
                "spread": round((max(runs) - min(runs)) / median, 3),
                "ratio": round(median / base[contender.work], 3),
                "records_per_second": round(records / median),
            }
        )
    return listed


def show(out: Console, listed: Sequence[Mapping[str, object]], facts: Mapping[str, str], sizes: str) -> None:
    out.print(sizes)
    out.print(", ".join(f"{name} {value}" for name, value in facts.items()), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("catch-up")
    table.add_column("by", no_wrap=True)
    for heading in ("runs, s", "median, s", "spread", "records/s", "time / Lakelock's"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = None
    for each in listed:
        runs = each["seconds"]
        assert isinstance(runs, list)
        table.add_row(
            str(each["work"]) if each["work"] != shown else "",
            str(each["contender"]),
            " ".join(f"{run:.1f}" for run in runs),
            f"{each['median']:.1f}",
            f"{each['spread']:.0%}",
            f"{each['records_per_second']:,}",
            f"{each['ratio']:.2f}",
        )
        shown = each["work"]
    out.print(table)
    out.print("spread: (slowest - fastest) / median; every table was compared with the topic, row by row")


def main() -> int:
    options = _arguments()
    # Wide when it isn't a terminal: a table cut to 80 columns in a log helps nobody.
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    with new_folder() as warehouse, Broker() as broker:
        settings = {"spark.sql.warehouse.dir": str(warehouse)}
        with session(settings, name="benchmark") as spark:
            all_contenders = contenders(options.works, options.records, options.batches)
            try:
                progress.print(f"warming up with {WARM_UP_RECORDS:,} records")
                small = produce(spark, broker, "warm_up", WARM_UP_RECORDS, WARM_UP_KEYS)
                should, _ = expected(spark, small, WARM_UP_RECORDS, WARM_UP_KEYS)
                measure(spark, small, all_contenders, should, 1)
                progress.print(f"producing {options.records:,} records")
                topic = produce(spark, broker, "catch_up", options.records, options.keys)
                should, size = expected(spark, topic, options.records, options.keys)
                seconds = measure(spark, topic, all_contenders, should, options.repeat)
            except WrongResult as error:
                progress.print(f"WRONG RESULT  {error}", style="bold red", soft_wrap=True)
                return 1
            facts = machine(spark)
    listed = results(all_contenders, seconds, options.records)
    sizes = (
        f"{options.records:,} JSON records of {size:.0f} bytes (mean), {options.keys:,} keys, {PARTITIONS} partitions, "
        f"{options.repeat} rounds"
    )
    show(out, listed, facts, sizes)
    if options.json is not None:
        document = {
            "records": options.records,
            "keys": options.keys,
            "partitions": PARTITIONS,
            "value_bytes": round(size, 1),
            "machine": facts,
            "results": listed,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=_count, default=2_000_000)
    parser.add_argument("--keys", type=_count, default=100_000, help="distinct keys; at most as many as records")
    parser.add_argument("--repeat", type=_count, default=3, help="rounds; each runs every contender once")
    parser.add_argument(
        "--works", nargs="+", choices=("append", "upsert", "count"), default=["append", "upsert", "count"]
    )
    parser.add_argument(
        "--batches",
        type=_count,
        nargs="+",
        default=[250_000, 2_000_000],
        metavar="RECORDS",
        help="maxOffsetsPerTrigger of Structured Streaming, each measured",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args()
    if options.keys > options.records:
        parser.error("--keys is larger than --records")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: the folder of {options.json} isn't there")
    return options


def _count(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
