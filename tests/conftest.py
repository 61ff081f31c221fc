"""One broker and one Spark session for all tests that need them; topics and tables are new for each test."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import suites
import yaml
from another_engine import query
from hostile import PLANTED
from pages import Reader

from connector import Pipeline
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.spark.compat import is_connect
from connector.spark.jars import built_for
from connector.spark.tuning import INTERPRETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connector.lab.bench.broker import Broker
    from sinks.s3.client import S3Options

# Before Spark starts: its workers have the environment of that moment. For moto any will do; never real ones.
os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1")
os.environ.update(PLANTED)
os.environ.pop("AWS_SESSION_TOKEN", None)
os.environ.pop("AWS_PROFILE", None)

# How long an example takes says more of what else the machine does.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

MANY_TESTS = "-XX:+UseSerialGC -Xms1g -Xmn512m -XX:MetaspaceSize=384m -XX:ReservedCodeCacheSize=512m"
"""Java's options for hundreds of small queries. Room for the young, and for code: a heap that grows, and code that is
thrown away, cost a tenth of all CPU time."""
SCHEMA = "k STRING, n INT"
ON_A_FREE_PORT = {"SPARK_TESTING": "1"}
"""The environment in which a Spark Connect server takes a free port: two on one machine would take the same."""
CODE = {
    "interpreted": INTERPRETED,
    "compiled": {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
}
"""How Spark runs a query. Users' queries are compiled: so are those of the demo, and of the files marked so, on what
expressions make of records."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--connect", action="store_true", help="the tests' Spark session is one of Spark Connect")
    suites.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    suites.configure(config)
    read_aws_models_once()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its background jobs ignore Ctrl-C, and so would the commands that the tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--connect"):
        os.environ.update(ON_A_FREE_PORT)


def read_aws_models_once() -> None:
    """Else every client of S3 that a test makes decodes a megabyte of JSON."""
    from botocore.loaders import JSONFileLoader

    read = cache(JSONFileLoader().load_file)
    pytest.MonkeyPatch().setattr(JSONFileLoader, "load_file", lambda _, path: read(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --connect only what uses the session: the rest is the same either way."""
    connect, old = config.getoption("--connect"), built_for.installed().spark == "3.5"
    for marker, left_out, why in (("classic", connect, "only with classic Spark"), ("spark4", old, "Spark 3.5")):
        for item in items if left_out else ():
            for mark in item.iter_markers(marker):
                item.add_marker(pytest.mark.skip(reason=f"{why}: {mark.args[0]}"))

    in_browser = "browser" in config.getoption("-m")

    def wanted(item: pytest.Item) -> bool:
        if item.get_closest_marker("browser") is not None and not in_browser:
            return False
        here = old or item.get_closest_marker("spark35") is None
        return here and (not connect or "spark" in item.fixturenames)

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    from connector.lab.bench.broker import Broker

    # Records of tests have timestamps of any time: Kafka's own retention, a week, must not come in between.
    with Broker(proxied=True, properties={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture(scope="session")
def _own_spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from connector.spark.session import session

    options = {
        # A query's code runs a few times, and never comes again: to compile it takes longer than all the rest. What
        # plans the queries runs all the time, and is compiled well.
        **INTERPRETED,
        "spark.driver.extraJavaOptions": MANY_TESTS,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # Hundreds of listing tasks are for large tables.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        # How queries are run is the test's choice.
        "spark.lakelock.tuning": "false",
    }
    connect = request.config.getoption("--connect")
    if connect:
        options |= {"spark.remote": "local[2]"}
    with session(options, name="tests") as started:
        assert is_connect(started) is connect
        yield started


@pytest.fixture
def spark(_own_spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """The active session: pipelines use it as it is."""
    for option, value in CODE["compiled" if request.node.get_closest_marker("compiled") else "interpreted"].items():
        _own_spark.conf.set(option, value)
    _own_spark.conf.set("spark.sql.variable.substitute", "true")  # as in a user's
    # A test before, with a session of its own, may have made that one the active one. This makes it so again.
    _own_spark.createDataFrame([], "nothing INT")
    return _own_spark


def own_session(spark: SparkSession) -> SparkSession:
    """One beside it, as a pipeline has it: MERGE's settings are the session's."""
    return spark.cloneSession() if is_connect(spark) else spark.newSession()


def lakelock(*arguments: object, timeout: float = 180, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command, as a user has it: a process of its own."""
    command = [sys.executable, "-m", "connector", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)


def wait_until(condition: Callable[[], object], seconds: float = 30, what: str = "a condition") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} seconds in vain for {what}"
        time.sleep(0.02)


@dataclass
class Topic:
    """A topic of one test."""

    broker: Broker
    name: str

    def send(
        self, *records: tuple[str | bytes | None, object], partition: int | None = None, at: datetime | None = None
    ) -> None:
        """(key, value): a value that isn't bytes or None is sent as JSON. ``at``: Kafka's timestamp, else now."""
        from kafka import KafkaProducer

        # One that is kept asks for its broker again and again when that is gone, and takes a processor for it.
        producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap, acks="all")
        for key, value in records:
            encoded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            millis = None if at is None else int(at.timestamp() * 1000)
            key = key.encode() if isinstance(key, str) else key
            producer.send(self.name, encoded, key, None, partition, millis)
        producer.flush()
        producer.close()

    def delete_before(self, partition: int, offset: int) -> None:
        """As retention does."""
        from kafka import KafkaAdminClient
        from kafka.structs import TopicPartition

        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        admin.delete_records({TopicPartition(self.name, partition): offset})
        admin.close()

    def send_rows(
        self, rows: Iterable[tuple[str, int]], partition: int | None = None, at: datetime | None = None
    ) -> None:
        self.send(*((key, {"k": key, "n": number}) for key, number in rows), partition=partition, at=at)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 2)
    return Topic(broker, name)


@dataclass
class Lake:
    """Pipelines and tables of one test."""

    folder: Path
    topic: Topic
    spark: SparkSession | None = None

    def options(self, kind: str = "append", **changes: Any) -> dict[str, Any]:
        sink = {"type": f"delta_{kind}", "path": str(self.folder / kind)}
        if kind == "upsert":
            sink["key"] = "k"
        options = {
            "name": kind,
            "source": {
                "topics": [self.topic.name],
                "kafka": {"bootstrap.servers": self.topic.broker.bootstrap},
                **changes.pop("source", {}),
            },
            "value": {"format": "json", "schema": changes.pop("schema", SCHEMA)},
            "sinks": [{**sink, **changes.pop("sink", {})}],
        }
        return {**options, **changes}

    def pipeline(self, kind: str = "append", **changes: Any) -> Pipeline:
        return Pipeline.from_options(self.options(kind, **changes))

    def file(self, kind: str = "append", **changes: Any) -> Path:
        """A pipeline file, for a child process."""
        file = self.folder / f"{kind}-{uuid.uuid4().hex[:6]}.yaml"
        options = self.options(kind, **{"spark": SHORT_LIVED, **changes})
        file.write_text(yaml.safe_dump(options, allow_unicode=True), encoding="utf-8")
        return file

    def path(self, kind: str = "append") -> Path:
        return self.folder / kind

    def sql(self, text: str, kind: str = "append") -> list[tuple[Any, ...]]:
        """Run SQL in which ``{t}`` is the table."""
        assert self.spark is not None
        return [tuple(row) for row in self.spark.sql(text.replace("{t}", f"delta.`{self.path(kind)}`")).collect()]

    def frame(self, kind: str = "append") -> DataFrame:
        assert self.spark is not None
        return self.spark.read.format("delta").load(str(self.path(kind)))

    def rows(self, kind: str = "append") -> list[tuple[str, int]]:
        """By another engine than the one that wrote them."""
        return sorted(query(self.path(kind), "SELECT k, n FROM t"))

    def commits(self, kind: str = "append") -> list[Mapping[str, Any]]:
        """Every commit's actions, from the log itself, oldest first: {"commitInfo": ..., "txn": ..., ...}."""
        return [
            {name: action for line in file.read_text().splitlines() for name, action in json.loads(line).items()}
            for file in sorted((self.path(kind) / "_delta_log").glob("*.json"))
        ]

    def metadata(self, kind: str = "append") -> list[dict[str, Any]]:
        """Lakelock's metadata in the commits of epochs."""
        texts = (commit["commitInfo"].get("userMetadata") for commit in self.commits(kind))
        return [found for text in texts if text and "epoch" in (found := json.loads(text))]

    def version(self, kind: str = "append") -> int:
        return len(list((self.path(kind) / "_delta_log").glob("*.json"))) - 1


def forget_history(table: Path) -> None:
    """As Delta cleans its log: nothing is left but the newest checkpoint, and what comes after it."""
    log = table / "_delta_log"
    checkpoint = max(log.glob("*.checkpoint*.parquet")).name[:20]
    for file in [*log.glob("*.json"), *log.glob("*.crc"), *log.glob(".*.crc")]:
        if file.name.lstrip(".")[:20] < checkpoint:
            file.unlink(missing_ok=True)


Send = Callable[..., None]


@pytest.fixture
def send(broker: Broker) -> Iterator[Send]:
    """Send records to topics by name, which the pages choose."""
    there: set[str] = set()

    def sent(name: str, *records: tuple[str | None, object]) -> None:
        if name not in there:
            broker.create_topic(name, 2)
            there.add(name)
        Topic(broker, name).send(*records)

    yield sent
    for name in there:
        broker.delete_topic(name)


@pytest.fixture
def port() -> int:
    """One at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def reader(broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Somebody who follows a page of the documentation, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Reader(broker.bootstrap, {"spark": spark})


@pytest.fixture
def lake(tmp_path: Path, topic: Topic, spark: SparkSession) -> Lake:
    return Lake(tmp_path, topic, spark)


@dataclass
class Store:
    """A bucket of one test, on a server that speaks S3."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> S3Options:
        from sinks.s3.client import S3Options

        return S3Options(endpoint=self.endpoint, region="us-east-1", path_style=True, max_attempts=2)

    @property
    def client(self) -> Any:
        from sinks.s3.client import client

        return client(self.options)

    def visible(self, prefix: str = "") -> list[str]:
        """What a reader finds: Lakelock's own objects aside."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return [each["Key"] for each in found if "_lakelock/" not in each["Key"]]

    def uploads(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [each["Key"] for each in found]

    def objects(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    # A line per request drowns what a failed test has to say.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(_s3_server: str) -> Store:
    store = Store(_s3_server, f"bucket-{uuid.uuid4().hex[:12]}")
    store.client.create_bucket(Bucket=store.bucket)
    return store
