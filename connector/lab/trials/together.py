"""The lab's pipeline with four sinks (two tables, objects, a topic), and the comparison of the sinks with Kafka.

Records are ``{"k": ..., "n": ...}``. The comparison doesn't use the pipeline's code: it reads tables with delta-rs,
objects by listing the bucket, and the topic with a ``read_committed`` consumer.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connector.lab.bench.pipelines import write_pipeline
from connector.lab.check.evidence import records
from connector.lab.check.history import Sent
from sinks.delta.metadata import CommitMetadata

Coordinates = tuple[str, int, int]
SINKS = ("append", "upsert", "objects", "topic")


@dataclass(frozen=True)
class Store:
    """A local S3 server."""

    endpoint: str
    bucket: str = "lab"

    @property
    def url(self) -> str:
        """The URL of the bucket."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> Mapping[str, object]:
        """Options of a sink ``s3_objects`` for this server."""
        return {"endpoint": self.endpoint, "region": "us-east-1", "path_style": True}

    def client(self) -> object:
        """A boto3 client for this server."""
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")


@contextmanager
def store() -> Iterator[Store]:
    """Run moto's server with a bucket. Sets missing credentials in the environment, for child processes."""
    import boto3
    from moto.server import ThreadedMotoServer

    os.environ.setdefault("AWS_ACCESS_KEY_ID", "lab")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "lab")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # at INFO it logs a line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        running = Store(f"http://{host}:{port}")
        boto3.client("s3", endpoint_url=running.endpoint, region_name="us-east-1").create_bucket(Bucket=running.bucket)
        yield running
    finally:
        server.stop()


@dataclass(frozen=True)
class Together:
    """One pipeline with four sinks."""

    name: str
    folder: Path
    source: str
    store: Store
    bootstrap: str

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / f"{self.name}.yaml"

    @property
    def target(self) -> str:
        """The topic that the pipeline writes to."""
        return f"{self.name}-out"

    def table(self, name: str) -> Path:
        """The folder of a sink's table, or of the coordinator log (``log``)."""
        return self.folder / "tables" / self.name / name

    def write(self, *, max_records: int, **more: object) -> None:
        """Write the pipeline file. ``more``: further options."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pipeline(
            self.file,
            name=self.name,
            delivery="transactional",
            sink="append",
            table=self.table("append"),
            topic=self.source,
            max_records=max_records,
            kafka={"bootstrap.servers": self.bootstrap},
            sinks=[
                {"type": "delta_append", "path": str(self.table("append"))},
                {"type": "delta_upsert", "path": str(self.table("upsert")), "key": "k"},
                {
                    "type": "s3_objects",
                    "url": f"{self.store.url}/{self.name}",
                    "format": "json_lines",
                    **self.store.options,
                },
                {"type": "kafka_topic", "topic": self.target, "key": "k"},
            ],
            coordinator={"path": str(self.table("log"))},
            **more,
        )


@dataclass
class Outcome:
    """What one sink holds, compared with the topic. ``rows`` and the fields after it are numbers of rows."""

    epoch: int | None
    rows: int
    lost: int = 0
    duplicated: int = 0
    altered: int = 0
    unexpected: int = 0

    @property
    def exact(self) -> bool:
        """Whether the sink holds exactly the expected rows."""
        return not (self.lost or self.duplicated or self.altered or self.unexpected)


@dataclass
class Verdict:
    """The outcomes of all four sinks, and the coordinator log."""

    sinks: dict[str, Outcome]
    logged: int | None
    """The last epoch that is done according to the coordinator log."""
    states: list[tuple[int, str, int]] = field(default_factory=list)
    """The log's entries: (entry, state, epoch)."""
    orphans: int = 0
    """The number of objects that no manifest names, and of unfinished uploads."""

    @property
    def held(self) -> bool:
        """Whether all sinks are exact and at the log's last epoch, without orphans."""
        same = {outcome.epoch for outcome in self.sinks.values()} == {self.logged}
        return same and not self.orphans and all(outcome.exact for outcome in self.sinks.values())

    def to_dict(self) -> dict[str, object]:
        """The verdict as plain JSON values."""
        return {
            "held": self.held,
            "epoch": self.logged,
            "orphans": self.orphans,
            "sinks": {name: vars(outcome) for name, outcome in self.sinks.items()},
        }


def judge(pipeline: Together, sent: Sequence[Sent]) -> Verdict:
    """Read all four sinks and compare them with the records that Kafka holds."""
    every = {(record.topic, record.partition, record.offset): (record.key, record.value) for record in sent}
    latest = {record.key: record for record in sorted(sent, key=lambda record: record.offset)}
    newest = {(record.topic, record.partition, record.offset): (record.key, record.value) for record in latest.values()}
    objects, orphans, object_epoch = _objects(pipeline)
    sinks = {
        "append": _compared(_table(pipeline, "append"), every, _table_epoch(pipeline, "append")),
        "upsert": _compared(_table(pipeline, "upsert"), newest, _table_epoch(pipeline, "upsert")),
        "objects": _compared(objects, every, object_epoch),
        "topic": _compared(_messages(pipeline), every, _group_epoch(pipeline)),
    }
    states = _states(pipeline)
    done = [epoch for _, state, epoch in states if state == "done"]
    return Verdict(sinks, max(done, default=None), states, orphans)


Found = Iterator[tuple[Coordinates, tuple[str, int]]]


def _compared(found: Found, expected: Mapping[Coordinates, tuple[str, int]], epoch: int | None) -> Outcome:
    seen: Counter[Coordinates] = Counter()
    outcome = Outcome(epoch, 0)
    for at, value in found:
        seen[at] += 1
        outcome.rows += 1
        if at not in expected:
            outcome.unexpected += 1
        elif expected[at] != value:
            outcome.altered += 1
    outcome.lost = len(expected.keys() - seen.keys())
    outcome.duplicated = sum(count - 1 for count in seen.values())
    return outcome


def _table(pipeline: Together, name: str) -> Found:
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(pipeline.table(name)))
    rows = QueryBuilder().register("t", table).execute("SELECT _topic, _partition, _offset, k, n FROM t").read_all()
    for topic, partition, offset, key, value in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield (topic, partition, offset), (key, value)


def _table_epoch(pipeline: Together, name: str) -> int | None:
    from deltalake import DeltaTable

    table = DeltaTable(str(pipeline.table(name)))
    commits = (
        CommitMetadata.from_json(commit.get("userMetadata"), pipeline=pipeline.name) for commit in table.history()
    )
    return max((commit.epoch for commit in commits if commit is not None), default=None)


def _states(pipeline: Together) -> list[tuple[int, str, int]]:
    from deltalake import DeltaTable, QueryBuilder

    log = DeltaTable(str(pipeline.table("log")))
    rows = QueryBuilder().register("t", log).execute("SELECT entry, state, epoch FROM t").read_all()
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _objects(pipeline: Together) -> tuple[Found, int, int | None]:
    """The rows of all objects in the bucket, the number of orphans, and the last manifest's epoch."""
    client = pipeline.store.client()
    bucket, prefix = pipeline.store.bucket, f"{pipeline.name}/"
    keys: list[str] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):  # type: ignore[attr-defined]
        keys += [entry["Key"] for entry in page.get("Contents", [])]

    def read(key: str) -> bytes:
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()  # type: ignore[attr-defined]
        return body

    manifests = [json.loads(read(key)) for key in keys if "/manifests/" in key]
    named = {entry["key"] for manifest in manifests for entry in manifest["objects"]}
    data = [key for key in keys if "/_lakelock/" not in key]
    uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])  # type: ignore[attr-defined]

    def rows() -> Found:
        for key in data:
            for line in read(key).splitlines():
                row = json.loads(line)
                yield (row["_topic"], row["_partition"], row["_offset"]), (row["k"], row["n"])

    orphans = len(set(data) - named) + len(uploads)
    return rows(), orphans, max((manifest["epoch"] for manifest in manifests), default=None)


def _messages(pipeline: Together) -> Found:
    for record in records(pipeline.bootstrap, pipeline.target, isolation="read_committed"):
        row, (_, place) = json.loads(record.value), record.headers[0]
        at, _, offset = place.decode().rpartition("@")
        topic, _, partition = at.rpartition("-")
        yield (topic, int(partition), int(offset)), (row["k"], row["n"])


def _group_epoch(pipeline: Together) -> int | None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=pipeline.bootstrap)
    try:
        committed = admin.list_group_offsets({pipeline.name: None}).get(pipeline.name, {})
    finally:
        admin.close()
    return max((json.loads(offset.metadata)["epoch"] for offset in committed.values() if offset.metadata), default=None)
