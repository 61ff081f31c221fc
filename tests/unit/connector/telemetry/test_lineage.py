"""What OpenLineage is told of a run, as its server gets it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sent import Sent, receiver

from connector.config import PipelineConfig, parse
from connector.protocol.steps import Event, Step
from connector.telemetry.exporters import monitored
from connector.telemetry.lineage import lineage
from sinks.contract import Committed, Epoch
from sinks.errors import BrokerUnreachable, ConfigurationError, NoRecordYet
from sinks.offsets import OffsetRange, Offsets, TopicPartition

RUN = str(uuid.uuid4())


def epoch(topic: str = "flights") -> Epoch:
    return Epoch(
        "flights", 1, RUN, (OffsetRange(topic, 0, 0, 10),), Offsets({TopicPartition(topic, 0): 10}), {}, None, None
    )


def config(*sinks: dict[str, Any], **changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "flights",
            "source": {"topics": ["flights"], "kafka": {"bootstrap.servers": "one:9092, two:9092"}},
            "value": {"format": "json", "schema": "a INT"},
            "sinks": sinks or [{"type": "delta_append", "path": "s3a://lake/raw/flights"}],
            "lineage": True,
            **changes,
        }
    )


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    with receiver() as sent:
        monkeypatch.setenv("OPENLINEAGE_URL", sent.url)
        yield sent


def events(server: Sent) -> list[dict[str, Any]]:
    assert {(each.method, each.path) for each in server.requests} == {("POST", "/api/v1/lineage")}
    return [json.loads(each.body) for each in server.requests]


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]


def test_a_run_that_ends_well(server: Sent) -> None:
    with lineage(config()) as told:
        told(Event(Step.IN_DOUBT, replace(epoch(), owner="a run before")))
        told(Event(Step.LOOKED, epoch()))
        told(Event(Step.COMMITTED, epoch(), Committed(epoch().position(), rows=9, bytes=500)))
    start, end = events(server)
    assert [each["eventType"] for each in (start, end)] == ["START", "COMPLETE"]
    assert {each["run"]["runId"] for each in (start, end)} == {RUN}
    assert (end["job"]["namespace"], end["job"]["name"]) == ("lakelock", "flights")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    for each in (start, end):
        assert names(each["inputs"]) == [("kafka://one:9092", "flights")]
        assert names(each["outputs"]) == [("s3://lake", "raw/flights")]
    statistics = end["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (9, 500)


def test_a_run_that_fails_before_it_has_begun_anything(server: Sent) -> None:
    with pytest.raises(BrokerUnreachable):
        with lineage(config()):
            raise BrokerUnreachable("No Kafka broker answered")
    start, end = events(server)
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["run"]["facets"]["errorMessage"]["message"] == "No Kafka broker answered"


def test_a_run_that_has_no_first_record_yet_has_not_failed(server: Sent) -> None:
    with pytest.raises(NoRecordYet):
        with lineage(config()):
            raise NoRecordYet("no record yet")
    start, end = events(server)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert "errorMessage" not in end["run"]["facets"]


def test_a_run_tells_everybody_who_is_asked_for(server: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    with monitored(config(traces=True, metrics={"push": server.url})) as told:
        for observe in told:
            observe(Event(Step.PLANNED, epoch()))
            observe(Event(Step.COMMITTED, epoch(), Committed(epoch().position(), rows=9)))
    paths = {request.path for request in server.requests}
    assert paths == {"/api/v1/lineage", "/v1/traces", "/metrics/job/lakelock/pipeline/flights"}
    with monitored(config(lineage=False)) as told:
        assert told == []


def test_every_kind_of_place_has_its_name(server: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "prod")
    sinks: list[dict[str, Any]] = [
        {"type": "delta_append", "path": "lake/flights"},
        {"type": "delta_append", "table": "main.raw.flights"},
        {"type": "delta_append", "path": "abfss://lake@account.dfs.core.windows.net/raw/flights"},
        {"type": "s3_objects", "url": "s3://bucket/flights"},
        {"type": "kafka_topic", "topic": "copied"},
    ]
    with lineage(config(*sinks, coordinator={"path": "lake/_log"})) as told:
        told(Event(Step.PLANNED, epoch("flights-2")))
    assert names(events(server)[-1]["inputs"]) == [("kafka://one:9092", "flights"), ("kafka://one:9092", "flights-2")]
    assert names(events(server)[-1]["outputs"]) == [
        ("file", str(Path("lake/flights").absolute())),
        ("prod", "main.raw.flights"),
        ("abfss://lake@account.dfs.core.windows.net", "raw/flights"),
        ("s3://bucket", "flights"),
        ("kafka://one:9092", "copied"),
    ]


def test_a_server_that_refuses_stops_no_run_and_is_said_once(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    server.status = 403
    with lineage(config()) as told:
        told(Event(Step.LOOKED, epoch()))
    (said,) = [record.getMessage() for record in caplog.records if record.name == "lakelock.lineage"]
    assert said.startswith("lineage can't be told: ")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(ConfigurationError, match="lineage: true needs") as caught:
        with lineage(config()):
            raise AssertionError
    assert "lakelock[telemetry]" in caught.value.hint
