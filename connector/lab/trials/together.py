"""The lab's pipeline of four sinks that move together (two tables, objects, a topic), and what each sink holds.

Records are ``{"k": ..., "n": ...}``. Each sink is read by other means than the pipeline's: tables by another engine,
the objects by listing the bucket, the topic by a ``read_committed`` consumer.
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
    """An S3 of the lab's own."""

    endpoint: str
    bucket: str = "lab"

    @property
    def url(self) -> str:
        """URL of the bucket."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> Mapping[str, object]:
        """Options of a sink ``s3_objects`` that writes there."""
        return {"endpoint": self.endpoint, "region": "us-east-1", "path_style": True}

    def client(self) -> object:
        """A client of boto3 for this S3."""
        import boto3

        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")


@contextmanager
def store() -> Iterator[Store]:
    """moto's server, with a bucket. Sets credentials in the environment, where there are none, for child processes."""
    import boto3
    from moto.server import ThreadedMotoServer

    os.environ.setdefault("AWS_ACCESS_KEY_ID", "lab")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "lab")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        found = Store(f"http://{host}:{port}")
        boto3.client("s3", endpoint_url=found.endpoint, region_name="us-east-1").create_bucket(Bucket=found.bucket)
        yield found
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
        """Folder of the sink's table with this name."""
        return self.folder / "tables" / self.name / name

    def write(self, *, max_records: int, **more: object) -> None:
        """``bootstrap`` may be a proxy's: the pipeline goes through it."""
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
    """What one sink holds, against the topic."""

    epoch: int | None
    rows: int
    lost: int = 0
    duplicated: int = 0
    altered: int = 0
    unexpected: int = 0

    @property
    def exact(self) -> bool:
        """Whether the sink holds what it should, and nothing else."""
        return not (self.lost or self.duplicated or self.altered or self.unexpected)


@dataclass
class Verdict:
    """What all four sinks hold, and what the coordinator log says."""

    sinks: dict[str, Outcome]
    logged: int | None
    """The last epoch that is done by the coordinator log."""
    states: list[tuple[int, str, int]] = field(default_factory=list)
    """The log: (entry, state, epoch)."""
    orphans: int = 0
    """Objects that no manifest names, and uploads that nobody has ended."""

    @property
    def held(self) -> bool:
        """Whether all sinks are exact, at the log's last epoch, and nothing is left over."""
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
    every = {(each.topic, each.partition, each.offset): (each.key, each.value) for each in sent}
    latest: dict[str, Sent] = {}
    for each in sorted(sent, key=lambda each: each.offset):
        latest[each.key] = each
    newest = {(each.topic, each.partition, each.offset): (each.key, each.value) for each in latest.values()}
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
    found = [CommitMetadata.from_json(commit.get("userMetadata"), pipeline=pipeline.name) for commit in table.history()]
    return max((each.epoch for each in found if each is not None), default=None)


def _states(pipeline: Together) -> list[tuple[int, str, int]]:
    from deltalake import DeltaTable, QueryBuilder

    log = DeltaTable(str(pipeline.table("log")))
    rows = QueryBuilder().register("t", log).execute("SELECT entry, state, epoch FROM t").read_all()
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _objects(pipeline: Together) -> tuple[Found, int, int | None]:
    """Rows of every object in the bucket, whoever names it; what no manifest names; the last manifest's epoch."""
    client = pipeline.store.client()
    bucket, prefix = pipeline.store.bucket, f"{pipeline.name}/"
    keys: list[str] = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):  # type: ignore[attr-defined]
        keys += [each["Key"] for each in page.get("Contents", [])]

    def read(key: str) -> bytes:
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()  # type: ignore[attr-defined]
        return body

    manifests = [json.loads(read(key)) for key in keys if "/manifests/" in key]
    named = {each["key"] for manifest in manifests for each in manifest["objects"]}
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
    for each in records(pipeline.bootstrap, pipeline.target, isolation="read_committed"):
        row, (_, place) = json.loads(each.value), each.headers[0]
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
    return max((json.loads(each.metadata)["epoch"] for each in committed.values() if each.metadata), default=None)
