"""What the metrics say of a run, told step by step; who is told, by a real gateway's side of the protocol."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sent import Sent, receiver

from connector.config import PipelineConfig, Pushgateway, parse
from connector.protocol.steps import Event, Step
from connector.telemetry.exporters import monitored, pushed
from connector.telemetry.metrics import PHASES, STATES, Metrics
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BadRecord, BrokerUnreachable, ConfigurationError, Fenced, NoRecordYet
from sinks.event_time import Clock, Seen
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
AWAY = BrokerUnreachable("No Kafka broker answered")


def epoch(number: int, clock: Clock | None = None) -> Epoch:
    start, end = (number - 1) * 10, number * 10
    return Epoch(
        "flights", number, "run", (OffsetRange("t", 0, start, end),), Offsets({AT: end}), topics={}, read_to=None,
        expected=Position(number - 1, Offsets({AT: start})), clock=clock or Clock(),
    )  # fmt: skip


@dataclass
class Run:
    metrics: Metrics = field(default_factory=lambda: Metrics("flights", sink="lake/flights"))

    def step(self, step: Step, number: int = 1, **fields: object) -> None:
        self.metrics(Event(step, epoch(number), **fields))  # type: ignore[arg-type]

    def epoch(self, number: int, behind: int = 0, made: Epoch | None = None, **committed: int) -> None:
        made = made or epoch(number)
        for step in (Step.PLANNED, Step.READ, Step.WRITING):
            self.metrics(Event(step, made, behind=behind))
        self.metrics(Event(Step.COMMITTED, made, Committed(made.position(), **{"rows": 9, **committed}), behind))

    @property
    def text(self) -> str:
        return generate_latest(self.metrics.registry).decode()

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"lakelock_{name}", {"pipeline": "flights", **labels})

    @property
    def state(self) -> str:
        (found,) = [each for each in STATES if self.value("run_state", state=each)]
        return found

    @property
    def phase(self) -> str | None:
        found = [each for each in PHASES if self.value("two_phase_state", state=each)]
        return found[0] if found else None

    @property
    def errors(self) -> set[str]:
        families = text_string_to_metric_families(self.text)
        samples = [sample for family in families if family.name == "lakelock_last_error" for sample in family.samples]
        return {sample.labels["error"] for sample in samples}


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_run_that_fails_on_every_epoch_is_told_apart_from_one_that_is_slow(run: Run) -> None:
    slow = Run()
    for looked in (20, 30, 40):
        run.step(Step.LOOKED, behind=looked)
        run.step(Step.PLANNED, behind=looked - 10)
        run.step(Step.READ)
        run.step(Step.WRITING)
        run.step(Step.RETRYING, error=AWAY)
    slow.step(Step.LOOKED, behind=40)
    slow.step(Step.PLANNED, behind=30)
    slow.step(Step.WRITING)
    assert run.value("behind_offsets") == slow.value("behind_offsets") == 40
    assert run.value("epochs_total") == slow.value("epochs_total") == 0
    assert (run.value("consecutive_failures"), slow.value("consecutive_failures")) == (3, 0)
    assert (run.state, slow.state) == ("retrying", "running")
    assert run.value("retries_total", error="BrokerUnreachable") == 3
    assert (run.errors, slow.errors) == ({"BrokerUnreachable"}, set())
    assert run.value("last_commit_timestamp_seconds") is None


def test_an_epoch_ends_a_failure_and_so_does_having_nothing_to_do(run: Run) -> None:
    for well in (lambda: run.epoch(1), lambda: run.step(Step.WAITING)):
        run.step(Step.RETRYING, error=AWAY)
        run.step(Step.RETRYING, error=BadRecord("broken"))
        assert (run.errors, run.value("consecutive_failures")) == ({"BadRecord"}, 2)
        well()
        assert (run.errors, run.value("consecutive_failures"), run.state) == (set(), 0, "running")


def test_behind_follows_every_look_while_nothing_is_planned(run: Run) -> None:
    run.epoch(1, behind=0)
    run.step(Step.LOOKED, behind=5)
    assert run.value("behind_offsets") == 5
    run.step(Step.WAITING, behind=7)
    assert run.value("behind_offsets") == 7


@pytest.mark.parametrize(
    ("error", "state"), [(None, "done"), (BadRecord("broken"), "failed"), (Fenced("", owner="o", epoch=1), "fenced")]
)
def test_the_state_says_how_a_run_ended(run: Run, error: Exception | None, state: str) -> None:
    assert run.state == "starting"
    run.epoch(1)
    assert run.state == "running"
    run.metrics.ended(error)
    assert (run.state, run.errors) == (state, {type(error).__name__} if error else set())


def test_what_a_commit_added(run: Run) -> None:
    run.epoch(1, rows=4, bytes=1000, unchanged=3)
    run.epoch(2, rows=1, bytes=500, unchanged=0)
    found = {name: run.value(f"{name}_total") for name in ("rows_written", "bytes_written", "rows_skipped")}
    assert found == {"rows_written": 5, "bytes_written": 1500, "rows_skipped": 3}
    assert run.value("sink_commit_seconds_count", sink="lake/flights") == 2


def test_dead_letters_count_once_their_epoch_is_committed(run: Run) -> None:
    run.step(Step.READ, letters=3)
    run.step(Step.RETRYING, error=AWAY)
    assert run.value("dead_letters_total") == 0
    run.step(Step.READ, letters=3)
    run.step(Step.COMMITTED)
    run.epoch(2)
    assert run.value("dead_letters_total") == 3


def test_lost_offsets_count_when_they_are_new(run: Run) -> None:
    made = epoch(1)
    run.epoch(1, made=replace(made, lost=(OffsetRange("t", 0, 2, 7),)))
    assert run.value("offsets_lost_total") == 5


def test_event_time_and_its_delay(run: Run) -> None:
    now = datetime.now(timezone.utc)
    seen = Seen(now - timedelta(hours=2), now - timedelta(hours=1), now)
    clock = Clock({AT: seen}, {AT: seen}, watermark=now - timedelta(hours=3), late=2)
    assert run.value("event_time_delay_seconds") is None
    run.epoch(1, made=epoch(1, clock))
    assert run.value("event_time_delay_seconds") == pytest.approx(3600, abs=60)
    assert run.value("event_time_timestamp_seconds") == seen.high.timestamp()
    assert run.value("watermark_timestamp_seconds") == (now - timedelta(hours=3)).timestamp()
    assert run.value("late_records_total") == 2


def test_two_phase_commit_goes_forward_in_whatever_order_its_first_steps_are_told(run: Run) -> None:
    run.epoch(1)
    assert run.phase is None, "with one sink there is nothing in doubt"
    run.step(Step.PLANNED, 2)
    run.step(Step.PREPARED, 2)
    run.step(Step.BEGUN, 2)
    assert run.phase == "prepared"
    run.step(Step.DECIDED, 2)
    run.step(Step.SINK_COMMITTED, 2, sink="one")
    run.step(Step.RETRYING, 2, error=AWAY)
    assert run.phase == "decided", "in doubt until all sinks have it"
    run.step(Step.IN_DOUBT, 2)
    run.step(Step.SINK_COMMITTED, 2, sink="two")
    run.step(Step.LOOKED, 2)
    assert run.phase == "committed"
    run.step(Step.PLANNED, 3)
    run.step(Step.BEGUN, 3)
    assert run.phase == "begun"


def test_what_a_run_before_has_left_in_doubt_is_so_from_the_start(run: Run) -> None:
    run.step(Step.IN_DOUBT, 1)
    assert run.phase == "decided"


@pytest.mark.parametrize("settled", [Step.LOOKED, Step.WAITING])
def test_an_epoch_is_in_doubt_until_the_run_stands_at_it(run: Run, settled: Step) -> None:
    """A run looks at Kafka first, so that its lag is told, and asks where it stands afterwards."""
    run.step(Step.PLANNED, 2)
    for step in (Step.BEGUN, Step.PREPARED, Step.DECIDED):
        run.step(step, 2)
    for _ in range(3):
        run.step(Step.RETRYING, 1, error=AWAY)
        run.step(Step.LOOKED, 1)
        assert run.phase == "decided"
        run.step(Step.IN_DOUBT, 2)
        assert run.phase == "decided"
    run.step(settled, 2)
    assert run.phase == "committed"
    run.step(Step.IN_DOUBT, 3)
    assert run.phase == "decided", "an epoch of another run"


def test_the_last_commit_is_that_of_the_run_before_until_there_is_a_newer_one(run: Run) -> None:
    before = datetime(2026, 1, 2, tzinfo=timezone.utc)
    made = epoch(2)
    assert made.expected is not None
    run.metrics(Event(Step.PLANNED, replace(made, expected=replace(made.expected, committed_at=before))))
    assert run.value("last_commit_timestamp_seconds") == before.timestamp()


@pytest.fixture
def gateway() -> Iterator[Sent]:
    """The part of a Pushgateway that is spoken to: PUT replaces what is there under a grouping key."""
    with receiver() as sent:
        yield sent


def config(**metrics: object) -> PipelineConfig:
    return parse(
        {
            "name": "flights",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}},
            "value": {"format": "json", "schema": "a INT"},
            "sinks": [{"type": "delta_append", "path": "lake/flights"}],
            "metrics": metrics,
        }
    )


@pytest.mark.parametrize(
    ("error", "state"), [(None, "done"), (BadRecord("broken"), "failed"), (NoRecordYet("nothing to do"), "done")]
)
def test_whatever_ends_a_run_is_at_the_gateway_afterwards(gateway: Sent, error: Exception | None, state: str) -> None:
    try:
        with monitored(config(push=gateway.url)) as (metrics,):
            metrics(Event(Step.COMMITTED, epoch(1), Committed(epoch(1).position(), rows=9)))
            if error is not None:
                raise error
    except (BadRecord, NoRecordYet):
        pass
    last = gateway.requests[-1]
    assert (last.method, last.path) == ("PUT", "/metrics/job/lakelock/pipeline/flights")
    text = last.body.decode()
    assert f'lakelock_run_state{{pipeline="flights",state="{state}"}} 1.0' in text
    assert 'lakelock_epochs_total{pipeline="flights"} 1.0' in text


def test_a_gateway_is_told_while_a_run_goes_on(gateway: Sent, run: Run) -> None:
    with pushed(Pushgateway(url=gateway.url), "flights", run.metrics.registry, every=0.01):
        for _ in range(3):
            gateway.came.clear()
            assert gateway.came.wait(10)


def test_a_login_comes_from_the_environment_and_reaches_the_gateway(
    gateway: Sent, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSH_PASSWORD", "s3cret")
    options = config(push={"url": gateway.url, "username": "me", "password": "${env:PUSH_PASSWORD}"})
    assert "s3cret" not in repr(options)
    with monitored(options):
        pass
    assert gateway.requests[-1].headers["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({}, "metrics: give port"),
        ({"push": "http://me:secret@gateway:9091"}, "metrics.push: a URL must not contain credentials"),
        ({"push": {"url": "http://g", "username": "me", "password": "s"}}, "metrics.push.password: a secret must not"),
        ({"push": {"url": "http://g", "username": "me"}}, "metrics.push: give username and password together"),
        ({"push": {"uri": "http://g"}}, "metrics.push.uri: unknown option, did you mean url?"),
    ],
)
def test_a_wrong_place_for_metrics_is_explained(metrics: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said.replace("?", r"\?")):
        config(**metrics)


@pytest.mark.parametrize("away", [True, False], ids=["away", "refuses"])
def test_a_gateway_that_is_of_no_use_stops_no_run_and_is_said_once(
    gateway: Sent, run: Run, caplog: pytest.LogCaptureFixture, away: bool
) -> None:
    gateway.status = 500
    url = "http://127.0.0.1:9" if away else gateway.url
    with pushed(Pushgateway(url=url), "flights", run.metrics.registry, every=0.01):
        assert away or gateway.came.wait(10)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the Pushgateway http://127.0.0.1:")
    assert said.endswith("The run goes on.")
