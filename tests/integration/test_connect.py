"""The same pipeline through Spark Connect. In a process of its own: classic Spark and Connect don't mix in one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ON_A_FREE_PORT, Lake, Topic

from connector.lab.bench.pipelines import SHORT_LIVED

pytestmark = [
    pytest.mark.classic("it starts servers of its own, in other processes"),
    pytest.mark.spark4("a clone of a Connect session"),
]

PROGRAM = """
import json
import sys
from connector import Pipeline, foreach_batch
from connector.audit import audit
from connector.config import load
from connector.spark.session import session
from sinks.errors import ConfigurationError
with session({"spark.remote": "local[2]", **json.loads(sys.argv.pop(1))}, name="connect") as spark:
    assert "connect" in type(spark).__module__, type(spark)
    for _ in range(2):
        for file in sys.argv[1:]:
            done = Pipeline.from_file(file).run()
            print(done.epochs, done.rows)
    for config in map(load, sys.argv[1:]):
        for index in range(len(config.sinks)):
            print(audit(config.alone(index)))
    try:
        foreach_batch(sys.argv[1], checkpoint="of a query")(spark.range(1), 0)
    except ConfigurationError as refused:
        print(refused.message)
"""


@pytest.mark.breadth
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["upsert"], id="one"),
        pytest.param(["append", "upsert", "group", "both"], marks=pytest.mark.breadth, id="all"),
    ],
)
def test_tables_two_at_once_and_a_consumer_group_work_through_spark_connect(
    names: list[str], lake: Lake, topic: Topic
) -> None:
    topic.send_rows([(f"k{number % 7}", number) for number in range(100)])
    group = {"name": topic.name, "delivery": "idempotent", "sink": {"path": str(lake.path("idempotent"))}}
    both = [
        {"type": "delta_append", "path": str(lake.path("one"))},
        {"type": "delta_upsert", "path": str(lake.path("two")), "key": "k"},
    ]
    bound = {"epoch": {"max_records": 60}}
    every = {
        "append": lake.file("append", **bound),
        "upsert": lake.file("upsert", **bound),
        "group": lake.file("upsert", **bound, **group),
        "both": lake.file(**bound, name="both", sinks=both, coordinator={"path": str(lake.path("log"))}),
    }
    files = [str(every[name]) for name in names]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(SHORT_LIVED), *files],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **ON_A_FREE_PORT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    runs = len(files)
    assert [line.split()[0] for line in lines[: 2 * runs]] == ["2"] * runs + ["0"] * runs
    expected = {"append": [100], "upsert": [7], "group": [7], "both": [100, 7]}
    exact = [f"exact: {count} expected, {count} found" for name in names for count in expected[name]]
    assert lines[2 * runs : -1] == exact
    assert lines[-1].startswith("foreach_batch needs a classic Spark session")
    if "append" in names:
        assert len(lake.rows()) == 100
    assert lake.rows("upsert") == [(f"k{key}", max(range(key, 100, 7))) for key in range(7)]


@pytest.mark.breadth
def test_errors_of_a_query_are_the_same_through_spark_connect(lake: Lake, topic: Topic) -> None:
    topic.send(("a", b"broken"), partition=0)
    file: Path = lake.file(spark={"spark.remote": "local[2]", **SHORT_LIVED})
    done = subprocess.run(
        [sys.executable, "-m", "connector", "run", str(file)],
        capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **ON_A_FREE_PORT},
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{topic.name}-0, offset 0" in done.stderr
    assert "broken" in done.stderr


READS = """
import sys
from connector.spark.session import isolated, session
quick = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "300", "kafka.retries": "0"}
login = {"kafka.sasl.mechanism": "PLAIN", "kafka.security.protocol": "SASL_PLAINTEXT"}
jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2\\"3";'
events = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": sys.argv[1]}
with session({"spark.remote": "local[2]", **events}, name="connect") as spark:
    spark.conf.unset("spark.sql.redaction.string.regex")  # as in a session that isn't ours
    with isolated(spark) as own:
        reader = own.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t")
        reader = reader.option("kafka.sasl.jaas.config", jaas).options(**login).options(**quick)
        try:
            reader.load().count()
        except Exception:
            print("asked")
"""


@pytest.mark.breadth
def test_a_server_keeps_no_secret_of_the_plans_that_it_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS, str(tmp_path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.strip() == "asked", done.stderr[-3000:]
    events = b"".join(file.read_bytes() for file in tmp_path.rglob("events_*"))
    assert b"kafka.bootstrap.servers" in events
    assert b"hunter2" not in events


SERVER = """
import json
import sys
from connector.spark.session import session
with session({"spark.remote": "local[1]", **json.loads(sys.argv[1])}, name="server"):
    from pyspark.sql.connect.client import DefaultChannelBuilder
    print(DefaultChannelBuilder.default_port(), flush=True)
    sys.stdin.read()
"""
ASKS = """
import sys
from connector.spark.session import session
from sinks.errors import UnsafeStore
from sinks.s3.hadoop import LOG_STORES, client, require_conditional_writes
def asked(spark, url):
    try:
        require_conditional_writes(spark, url)
        print("safe")
    except UnsafeStore as refused:
        print(refused.message.partition("(")[2].partition(")")[0])
file = {"spark.remote": sys.argv[1], "spark.hadoop.fs.s3a.endpoint": "http://of-the-file"}
with session(file, name="client") as spark:
    asked(spark, "s3a://b/t")
    spark.conf.set("spark.delta.logStore.s3a.impl", LOG_STORES[1])
    asked(spark.cloneSession(), "s3a://b/t")
    asked(spark, "s3://b/t")
    print(client(spark, "b").meta.endpoint_url)
    spark.conf.set("fs.s3a.endpoint", "http://of-the-session")
    print(client(spark, "b").meta.endpoint_url)
"""


@pytest.mark.breadth
def test_a_server_commits_as_it_was_started_to_whatever_a_session_says() -> None:
    started_with = {
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",
        "spark.delta.logStore.s3.impl": "io.delta.storage.S3DynamoDBLogStore",
        "spark.hadoop.fs.s3a.endpoint": "http://of-the-start",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        **SHORT_LIVED,
    }
    env = {**os.environ, **ON_A_FREE_PORT, "SPARK_CONNECT_AUTHENTICATE_TOKEN": "of the test"}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, json.dumps(started_with)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    )  # fmt: skip
    with server:
        try:
            assert server.stdout is not None
            at = f"sc://localhost:{int(server.stdout.readline())}"
            done = subprocess.run(
                [sys.executable, "-c", ASKS, at], capture_output=True, text=True, timeout=120, check=False, env=env
            )
        finally:
            server.communicate(timeout=60)  # its input ends, and so does the server
    assert done.stdout.splitlines() == [
        "io.delta.storage.S3SingleDriverLogStore",
        "io.delta.storage.S3SingleDriverLogStore",
        "safe",
        "http://of-the-start",
        "http://of-the-session",
    ], done.stderr[-3000:]
