"""The spans of an epoch, as OpenTelemetry's own SDK has them; what is sent, as a collector gets it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sent import Sent, receiver

from connector.protocol.steps import Event, Step
from connector.telemetry.traces import Traces, traced
from sinks.contract import Committed, Epoch
from sinks.errors import BrokerUnreachable, ConfigurationError
from sinks.offsets import OffsetRange, Offsets, TopicPartition


def epoch(number: int = 7) -> Epoch:
    ranges = (OffsetRange("flights", 0, 120, 145), OffsetRange("flights", 1, 80, 95))
    return Epoch("p", number, "run-1", ranges, Offsets({TopicPartition("flights", 0): 145}), {}, None, None)


class Told:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = Traces(provider.get_tracer("test"))

    def steps(self, *steps: Step, **fields: object) -> None:
        for step in steps:
            committed = Committed(epoch().position(), rows=40) if step is Step.COMMITTED else None
            self.traces(Event(step, epoch(), committed, **fields))  # type: ignore[arg-type]

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def told() -> Told:
    return Told()


def test_an_epoch_is_a_span_with_its_parts_below(told: Told) -> None:
    told.steps(Step.LOOKED, Step.RESUMED, Step.PLANNED, Step.READ, Step.WRITING, Step.COMMITTED, Step.OFFSETS_COMMITTED)
    analyse, commit, root = told.spans
    assert [span.name for span in told.spans] == ["analyse", "commit", "epoch"]
    for part in (analyse, commit):
        assert part.parent is not None
        assert part.parent.span_id == root.context.span_id
    assert root.start_time <= analyse.end_time == commit.start_time <= commit.end_time <= root.end_time
    assert root.attributes is not None
    assert {name: root.attributes[f"lakelock.{name}"] for name in ("pipeline", "run", "epoch", "rows", "behind")} == {
        "pipeline": "p", "run": "run-1", "epoch": 7, "rows": 40, "behind": 0,
    }  # fmt: skip
    assert json.loads(str(root.attributes["lakelock.offsets"])) == {"flights": {"0": [120, 145], "1": [80, 95]}}


def test_with_several_sinks_each_has_a_commit_of_its_own(told: Told) -> None:
    told.steps(Step.PLANNED, Step.BEGUN, Step.READ, Step.WRITING, Step.PREPARED, Step.DECIDED)
    told.steps(Step.SINK_COMMITTED, sink="one")
    told.steps(Step.SINK_COMMITTED, sink="two")
    told.steps(Step.COMMITTED)
    assert [span.name for span in told.spans] == ["analyse", "prepare", "decide", "commit", "commit", "epoch"]
    one, two = told.spans[3:5]
    assert [span.attributes and span.attributes["lakelock.sink"] for span in (one, two)] == ["one", "two"]
    assert one.start_time == two.start_time, "both begin with the decision"


def test_a_fold_is_a_trace_too(told: Told) -> None:
    told.steps(Step.FOLDING, Step.FOLDED)
    assert [span.name for span in told.spans] == ["fold", "folding"]


def test_an_epoch_that_failed_has_its_error_and_the_next_attempt_a_trace_of_its_own(told: Told) -> None:
    told.steps(Step.PLANNED, Step.READ)
    told.steps(Step.RETRYING, error=BrokerUnreachable("no broker"))
    told.steps(Step.PLANNED, Step.READ, Step.COMMITTED)
    failed, done = (span for span in told.spans if span.name == "epoch")
    assert (failed.status.is_ok, failed.status.description) == (False, "BrokerUnreachable")
    assert failed.events[0].name == "exception"
    assert done.status.is_unset
    assert failed.context.trace_id != done.context.trace_id


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    with receiver() as sent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sent.url)
        yield sent


def test_what_a_run_did_and_failed_at_has_reached_the_collector_when_it_ends(collector: Sent) -> None:
    def run() -> None:
        with traced() as traces:
            traces(Event(Step.PLANNED, epoch()))
            raise BrokerUnreachable("no broker")

    with pytest.raises(BrokerUnreachable):
        run()
    (request,) = collector.requests
    (resource,) = ExportTraceServiceRequest.FromString(request.body).resource_spans
    assert {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"] == "lakelock"
    ((span,),) = [scope.spans for scope in resource.scope_spans]
    assert (span.name, span.status.message) == ("epoch", "BrokerUnreachable")


def test_a_collector_that_refuses_stops_no_run_and_is_said_once(
    collector: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    with traced() as traces:
        for number in range(600):  # more than one batch
            traces(Event(Step.PLANNED, epoch(number)))
            traces(Event(Step.COMMITTED, epoch(number), Committed(epoch(number).position(), rows=1)))
    (said,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.name == "lakelock.traces"
    assert said.getMessage().endswith("The run goes on.")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError, match="traces: true needs") as caught:
        with traced():
            raise AssertionError
    assert "lakelock[telemetry]" in caught.value.hint
