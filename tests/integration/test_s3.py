"""Tables on s3a://: a moto server, Spark's S3A, and proxies between them that are slow, old or broken."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import Lake, Store, Topic, wait_until
from pyspark.sql import SparkSession

from connector import Pipeline
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.lab.bench.s3proxy import Fault, Odds, Request, S3Proxy, slow_commits, unconditional
from connector.protocol.steps import Event, Step
from sinks.errors import ConfigurationError, UnsafeStore
from sinks.s3.hadoop import LOG_STORES, require_conditional_writes
from sinks.spark.staging import Staging

pytestmark = pytest.mark.spark4("S3A's conditional writes")

CHECKSUMS = "spark.databricks.delta.writeChecksumFile.enabled"
RETRIES = {
    "attempts.maximum": "2",
    "retry.limit": "4",
    "retry.interval": "20ms",
    "retry.throttle.limit": "4",
    "retry.throttle.interval": "20ms",
}
"""So few that some faults get through to Delta and to us."""


def settings(s3: Store, **more: str) -> dict[str, str]:
    """For S3A and this bucket alone: Hadoop keeps one file system per bucket, with the settings it was made with."""
    found = {
        "endpoint": s3.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "k",
        "secret.key": "s",
        **more,
    }
    return {f"fs.s3a.bucket.{s3.bucket}.{name}": value for name, value in found.items()}


class Bucket:
    """Tables and pipelines of one test in its bucket."""

    def __init__(self, lake: Lake, s3: Store) -> None:
        self.lake = lake
        self.s3 = s3
        assert lake.spark is not None
        self.spark: SparkSession = lake.spark

    def use(self, **more: str) -> None:
        # A checksum file per version, by rename, is a third of all requests.
        self.spark.conf.set(CHECKSUMS, "false")
        for name, value in settings(self.s3, **more).items():
            self.spark.conf.set(name, value)

    def through(self, proxy: S3Proxy, **more: str) -> None:
        self.s3 = replace(self.s3, endpoint=proxy.endpoint)
        self.use(**more)

    def path(self, kind: str) -> str:
        return f"s3a://{self.s3.bucket}/{kind}"

    def pipeline(self, kind: str = "append", **changes: object) -> Pipeline:
        return self.lake.pipeline(kind, sink={"path": self.path(kind)}, **changes)

    def rows(self, kind: str = "append") -> list[tuple[str, int]]:
        frame = self.spark.read.format("delta").load(self.path(kind))
        return sorted(tuple(row) for row in frame.select("k", "n").collect())


@pytest.fixture
def bucket(lake: Lake, s3: Store) -> Iterator[Bucket]:
    made = Bucket(lake, s3)
    made.use()
    yield made
    for name in settings(s3, **RETRIES, **{"create.conditional.enabled": "", "connection.timeout": ""}):
        made.spark.conf.unset(name)
    made.spark.conf.unset(CHECKSUMS)


def some(first: int, count: int) -> list[tuple[str, int]]:
    return [(f"k{number % 7}", number) for number in range(first, first + count)]


def held(kind: str, rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(rows) if kind == "append" else sorted(dict(rows).items())


def test_a_pipeline_on_s3_goes_on_where_its_table_stands(bucket: Bucket, topic: Topic) -> None:
    def die(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.number == 2:
            raise SystemExit

    topic.send_rows(some(0, 12))
    with pytest.raises(SystemExit):
        bucket.pipeline("upsert", epoch={"max_records": 5}).run(observers=[die])
    assert bucket.pipeline("upsert").run().epochs == 1
    assert bucket.rows("upsert") == held("upsert", some(0, 12))
    assert bucket.pipeline("upsert").run().epochs == 0
    assert not [key for key in bucket.s3.objects() if "_lakelock" in key]


@pytest.mark.breadth
def test_a_table_on_s3_that_was_restored_is_filled_again(bucket: Bucket, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    bucket.pipeline(epoch={"max_records": 5}).run()
    bucket.spark.sql(f"RESTORE delta.`{bucket.path('append')}` TO VERSION AS OF 1")
    assert len(bucket.rows()) == 5
    bucket.pipeline().run()
    assert bucket.rows() == held("append", some(0, 10))


def test_check_asks_the_store_and_leaves_nothing_in_it(bucket: Bucket, topic: Topic) -> None:
    topic.send_rows(some(0, 3))
    found = bucket.pipeline().check()
    assert ([sink.exists for sink in found.sinks], found.behind) == ([False], 3)
    assert bucket.s3.objects() == []


def test_a_store_that_takes_every_write_is_refused_before_the_first_epoch(bucket: Bucket, topic: Topic) -> None:
    topic.send_rows(some(0, 3))
    with S3Proxy(bucket.s3.endpoint, change=unconditional) as proxy:
        bucket.through(proxy)
        for use in (bucket.pipeline().check, bucket.pipeline().run):
            with pytest.raises(UnsafeStore, match="accepted a second write"):
                use()
        assert bucket.rows() == []


def test_conditional_writes_that_are_off_are_refused(bucket: Bucket, topic: Topic) -> None:
    bucket.use(**{"create.conditional.enabled": "false"})
    with pytest.raises(UnsafeStore, match="is false"):
        bucket.pipeline().check()


def test_a_log_store_that_is_set_when_spark_is_up_has_no_effect_and_is_refused(bucket: Bucket) -> None:
    with_effect = "spark.delta.logStore.s3a.impl"
    assert bucket.spark.conf.get(with_effect) == LOG_STORES[0]
    bucket.spark.conf.set(with_effect, "io.delta.storage.S3SingleDriverLogStore")
    try:
        require_conditional_writes(bucket.spark, bucket.path("append"))
    finally:
        bucket.spark.conf.set(with_effect, LOG_STORES[0])
    bucket.spark.conf.set("spark.delta.logStore.s3.impl", LOG_STORES[0])
    try:
        with pytest.raises(UnsafeStore, match="S3SingleDriverLogStore, the default"):
            require_conditional_writes(bucket.spark, bucket.path("append").replace("s3a", "s3"))
    finally:
        bucket.spark.conf.unset("spark.delta.logStore.s3.impl")


@pytest.mark.breadth
def test_rows_are_staged_on_s3_and_removed(bucket: Bucket) -> None:
    staging = Staging(bucket.spark, bucket.path("staged"))
    rows = bucket.spark.range(5)
    first, second = staging.put(rows, 1), staging.put(rows, 2)
    staging.clear(before=2)
    assert sorted(row[0] for row in staging.get(second).collect()) == list(range(5))
    left = {key.split("/")[1] for key in bucket.s3.objects("staged/") if key != "staged/"}
    assert left == {second.receipt["staged"]} != {first.receipt["staged"]}


@pytest.mark.parametrize("fault", ["lost_answer", pytest.param("silence", marks=pytest.mark.breadth)])
def test_a_commit_whose_answer_was_lost_is_known_as_our_own(fault: Fault, bucket: Bucket, topic: Topic) -> None:
    def first_commit(request: Request) -> bool:
        return request.method == "PUT" and request.path.endswith("/00000000000000000001.json") and not proxy.happened

    topic.send_rows(some(0, 5))
    # A timeout reaches the log store only after S3A's own attempts.
    waits = {"connection.timeout": "15s", "attempts.maximum": "1", "retry.limit": "0"} if fault == "silence" else {}
    with S3Proxy(bucket.s3.endpoint, Odds(**{fault: 1.0}), strikes=first_commit) as proxy:
        bucket.through(proxy, **waits)
        assert bucket.pipeline().run().epochs == 1
        assert proxy.happened == {fault: 1}
        assert bucket.rows() == some(0, 5)
        commits = [key for key in bucket.s3.objects("append/_delta_log/") if key.endswith(".json")]
        assert len(commits) == 2


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_store_that_fails_at_random_loses_and_doubles_nothing(kind: str, bucket: Bucket, topic: Topic) -> None:
    topic.send_rows(some(0, 20))
    failed = 0
    with S3Proxy(bucket.s3.endpoint, seed=7) as proxy:
        bucket.through(proxy, **RETRIES)
        proxy.odds = Odds(error=0.04, slow_down=0.02, reset=0.02, lost_answer=0.04)
        while failed < 30:
            try:
                if bucket.pipeline(kind, epoch={"max_records": 7}).run().epochs == 0:
                    break
            except ConfigurationError:
                raise
            except Exception:
                failed += 1
        proxy.odds = Odds()
        assert bucket.pipeline(kind).run().epochs == 0
        assert bucket.rows(kind) == held(kind, some(0, 20))
        assert proxy.happened["lost_answer"] > 0
        assert set(proxy.happened) >= {"error", "lost_answer"}


WRITER = """
import sys, time
from pathlib import Path
from pyspark.errors import PySparkException
from connector.spark.session import session

number, turns, folder, tables, *pairs = sys.argv[1:]
with session(dict(pair.split("=", 1) for pair in pairs), name=number) as spark:
    for table in tables.split(","):
        # All are there before anyone begins.
        Path(folder, f"{table.split(':')[0]}-{number}").touch()
        while not Path(folder, f"{table.split(':')[0]}-go").exists():
            time.sleep(0.01)
        for turn in range(int(turns)):
            row = f"{number}-{turn}"
            spark.sql(f"SELECT '{row}' AS row").coalesce(1).write.format("delta").mode("append").save(table)
            print(table, row, flush=True)
"""


@pytest.mark.breadth
@pytest.mark.classic("its runs are processes of their own")
def test_three_drivers_at_once_lose_no_commit_and_with_deltas_own_log_store_they_do(
    bucket: Bucket, tmp_path: Path
) -> None:
    """Each driver's every write came back as done. On s3a:// commits are conditional, on s3:// they are Delta's own, on
    the local disk they are hard links."""
    writers, turns = 3, 5
    tables = [f"s3a://{bucket.s3.bucket}/safe", f"s3://{bucket.s3.bucket}/unsafe", f"file:{tmp_path}/local"]
    with S3Proxy(bucket.s3.endpoint, change=slow_commits(0.15)) as proxy:
        options = {
            **SHORT_LIVED,
            **{
                f"spark.hadoop.{name}": value
                for name, value in settings(replace(bucket.s3, endpoint=proxy.endpoint)).items()
            },
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.master": "local[1]",
            "spark.databricks.delta.snapshotPartitions": "1",
        }
        for table in tables:
            at = table.replace("s3://", "s3a://")
            bucket.spark.sql(f"CREATE TABLE delta.`{at}` (row STRING) USING delta")
        command = [sys.executable, "-c", WRITER]
        words = [str(turns), str(tmp_path), ",".join(tables), *(f"{name}={value}" for name, value in options.items())]
        children = [
            subprocess.Popen(
                [*command, str(number), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            for number in range(writers)
        ]
        try:
            said: list[str] = []
            readers = [threading.Thread(target=lambda c=child: said.extend(c.stdout)) for child in children]
            for reader in readers:
                reader.start()
            for scheme in ("s3a", "s3", "file"):
                wait_until(lambda at=scheme: len(list(tmp_path.glob(f"{at}-[0-9]"))) == writers, 300, scheme)
                (tmp_path / f"{scheme}-go").touch()
            assert [child.wait(300) for child in children] == [0] * writers
            for reader in readers:
                reader.join()
        finally:
            for child in children:
                child.kill()
                child.wait()
    lost = {}
    for table in tables:
        at = table.replace("s3://", "s3a://")
        there = [row[0] for row in bucket.spark.read.format("delta").load(at).collect()]
        told = [line.split()[1] for line in said if line.split()[0] == table]
        assert len(told) == len(set(told)) == writers * turns
        assert len(there) == len(set(there))
        lost[table] = set(told) - set(there)
    assert lost[tables[0]] == set()
    assert lost[tables[1]] != set()
    assert lost[tables[2]] == set()


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["parquet", "json_lines"])
def test_a_snapshot_of_objects_has_the_very_values(bucket: Bucket, topic: Topic, kind: str) -> None:
    """Spark would read the texts 007 and 7 as one number, a text as a date, and a decimal as a double."""
    sent = [{"payer": "007", "day": "2026-01-01", "amount": 0.10}, {"payer": "7", "day": "2026-01-01", "amount": 1.5}]
    topic.send(*((None, value) for value in sent))
    options = bucket.lake.options(schema="payer STRING, day STRING, amount DECIMAL(20, 2)")
    options["sinks"] = [
        {"type": "s3_objects", "url": f"s3://{bucket.s3.bucket}/objects", "format": kind,
         "partition_by": ["payer", "day"], "endpoint": bucket.s3.endpoint, "region": "us-east-1", "path_style": True}
    ]  # fmt: skip
    options["coordinator"] = {"path": str(bucket.lake.path("log"))}
    pipeline = Pipeline.from_options(options)
    pipeline.run()
    (rows,) = pipeline.snapshot().values()
    found = rows.select("payer", "day", "amount")
    assert [each.dataType.simpleString() for each in found.schema] == ["string", "string", "decimal(20,2)"]
    expected = [("007", "2026-01-01", Decimal("0.10")), ("7", "2026-01-01", Decimal("1.50"))]
    assert sorted(tuple(row) for row in found.collect()) == expected
