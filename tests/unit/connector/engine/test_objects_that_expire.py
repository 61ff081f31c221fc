"""A pipeline with objects in S3 (moto), where a rule of the bucket expires old objects: the coordinator goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from fakes import Crash, Group, Log, Topic
from moto import mock_aws

from connector.delivery.ports import Patience, Work
from connector.delivery.transactional import deliver
from connector.engine.coordinator import Coordinator
from sinks.contract import Committed, Epoch, Prepared
from sinks.errors import PositionMismatch
from sinks.memory import MemoryPlace, MemoryTwoPhase
from sinks.objects import S3Objects
from sinks.objects.layout import Layout
from sinks.objects.receipts import Receipts
from sinks.s3.client import S3Options, client

OPTIONS, LAYOUT = S3Options(region="us-east-1", max_attempts=1), Layout("t", "p")


class Objects(S3Objects):
    """Without Spark: of an epoch it uploads nothing. ``killed``: the process is, right after a commit."""

    killed = False

    def prepare(self, epoch: Epoch, rows: object) -> Prepared:
        del rows
        key = LAYOUT.receipt(epoch.attempt, "0123abcd")
        self._bucket.put(key, Receipts(epoch.number, epoch.attempt, []).to_json())
        return Prepared(0, "", {"prepared": key})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        committed = super().commit(epoch, prepared)
        if self.killed:
            raise Crash
        return committed


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        made = client(OPTIONS)
        made.create_bucket(Bucket="lake")
        yield made


def run(topic: Topic, log: Log, place: MemoryPlace, *, killed: bool = False) -> int:
    """One run of a new process, with a table beside the objects. Returns the number of the last epoch."""
    objects = Objects(None, "s3://lake/t/", pipeline="p", format="json_lines", options=OPTIONS)  # type: ignore[arg-type]
    objects.killed = killed
    sinks: Any = {"a": MemoryTwoPhase("a", place), objects.name: objects}

    def prepare(epoch: Epoch, *_: object) -> Any:
        return epoch, {name: sink.prepare(epoch, topic.read(epoch)) for name, sink in sinks.items()}

    it: Any = Coordinator(log, lambda _: sinks, run="run", config="c", prepare=prepare, observe=lambda _: None)  # type: ignore[arg-type]
    work = Work("p", "run", topic, it, 100, Group(), lambda _: None, patience=Patience(1, timedelta(0)))
    deliver(work, interval=None, stop=threading.Event())
    return max(row.epoch.number for entry in log.entries for row in entry)


def remove(s3: Any, folder: str) -> None:
    for each in s3.list_objects_v2(Bucket="lake", Prefix=folder).get("Contents", []):
        s3.delete_object(Bucket="lake", Key=each["Key"])


def expiring(s3: Any) -> None:
    made = {"ID": "r", "Status": "Enabled", "Expiration": {"Days": 30}, "Filter": {"Prefix": ""}}
    s3.put_bucket_lifecycle_configuration(Bucket="lake", LifecycleConfiguration={"Rules": [made]})


def test_a_quiet_pipeline_writes_its_position_again_each_day(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, log, place = Topic([[("a", 1)]]), Log(), MemoryPlace()
    assert [run(topic, log, place), run(topic, log, place)] == [1, 1]
    monkeypatch.setattr("sinks.objects.manifest.REFRESH_AFTER", timedelta(0))  # a day later
    assert run(topic, log, place) > 1
    assert len(place.rows) == 1


def test_a_pipeline_that_was_off_until_all_manifests_had_expired_goes_on(s3: Any) -> None:
    topic, log, place = Topic([[("a", 1)]]), Log(), MemoryPlace()
    run(topic, log, place)
    remove(s3, "t/")
    topic.partitions[0].append(("b", 2))
    with pytest.raises(PositionMismatch, match="No rule of the bucket removes them"):
        run(topic, log, place)
    expiring(s3)
    assert run(topic, log, place) == 2
    assert len(place.rows) == 2


def test_an_epoch_in_doubt_whose_manifests_and_receipts_have_expired_stops_it(s3: Any) -> None:
    topic, log, place = Topic([[("a", 1)]]), Log(), MemoryPlace()
    run(topic, log, place)
    topic.partitions[0].append(("b", 2))
    with pytest.raises(Crash):
        run(topic, log, place, killed=True)
    log.appended = datetime.now(timezone.utc) - timedelta(days=30)
    expiring(s3)
    remove(s3, LAYOUT.manifests)
    assert run(topic, log, place) == 2, "what it has prepared is there: it is committed from that once more"
    topic.partitions[0].append(("c", 3))
    with pytest.raises(Crash):
        run(topic, log, place, killed=True)
    remove(s3, "t/")
    with pytest.raises(PositionMismatch, match="Nothing tells whether epoch 3 was committed"):
        run(topic, log, place)
    assert len(place.rows) == 3
