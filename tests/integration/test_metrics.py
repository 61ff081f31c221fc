"""What Prometheus is told while a run goes on, and a Pushgateway when it is over."""

from __future__ import annotations

import itertools
import socket
import threading
import urllib.request
from collections.abc import Callable

import pytest
from conftest import Lake, Topic
from prometheus_client.parser import text_string_to_metric_families
from sent import receiver

from connector.protocol.steps import Event, Step
from sinks.errors import Fenced, StoreUnreachable


def parsed(text: str) -> dict[str, float]:
    """Metric -> value; of those with a label more, metric and label: ``run_state done``."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        " ".join([sample.name.removeprefix("lakelock_"), *(v for k, v in sample.labels.items() if k != "pipeline")]): (
            sample.value
        )
        for sample in samples
    }


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return parsed(answer.read().decode())


@pytest.mark.breadth
def test_a_run_tells_what_is_committed_and_what_is_not(lake: Lake, topic: Topic, port: int) -> None:
    topic.send_rows([("a", number) for number in range(25)], partition=0)
    seen: dict[tuple[Step, int], dict[str, float]] = {}

    def observe(event: Event) -> None:
        # Called before the metrics are: what it finds is what was so until now.
        seen[event.step, event.epoch.number] = scraped(port)

    lake.pipeline(epoch={"max_records": 10}, metrics={"port": port}).run(observers=[observe])
    assert seen[Step.READ, 1]["behind_offsets"] == 25, "what is read isn't committed"
    assert seen[Step.READ, 1]["epochs_total"] == 0
    last = seen[Step.OFFSETS_COMMITTED, 3]
    assert {name: last[name] for name in ("epochs_total", "offsets_read_total", "rows_written_total", "epoch")} == {
        "epochs_total": 3, "offsets_read_total": 25, "rows_written_total": 25, "epoch": 3,
    }  # fmt: skip
    files = [action["size"] for commit in lake.commits() for name, action in commit.items() if name == "add"]
    assert last["bytes_written_total"] >= sum(files) > 0
    assert last[f"sink_commit_seconds_count {lake.path()}"] == 3
    assert (last["behind_offsets"], last["epoch_seconds_count"]) == (0, 3)
    assert (last["run_state running"], last["consecutive_failures"]) == (1, 0)
    with pytest.raises(OSError, match="refused"):
        scraped(port)


@pytest.mark.breadth
def test_a_run_that_writes_and_commits_nothing_looks_ill_and_a_slow_one_does_not(
    lake: Lake, topic: Topic, port: int
) -> None:
    """Two tables: what is prepared is really written, where no reader looks."""
    topic.send_rows([("a", number) for number in range(5)])
    stop, failing, healthy, slow = threading.Event(), [], [], []

    def observe(event: Event) -> None:
        if event.step is Step.PREPARED and len(failing) < 3:
            failing.append(scraped(port))
            topic.send_rows([("more", 0)] * 5)
            raise StoreUnreachable("right before the decision")
        if event.step is Step.WAITING and not healthy:
            healthy.append(scraped(port))
            topic.send_rows([("slow", 0)] * 5)
        elif event.step is Step.PREPARED and healthy and not slow:
            topic.send_rows([("meanwhile", 0)] * 5)
            slow.append(scraped(port))
            stop.set()

    sinks = [{"type": "delta_append", "path": str(lake.folder / name)} for name in ("append", "other")]
    lake.pipeline(
        sinks=sinks,
        coordinator={"path": str(lake.folder / "log")},
        trigger={"interval": "1 second"},
        retry={"attempts": 5, "longest_wait": "1 second"},
        metrics={"port": port},
    ).run(stop=stop, observers=[observe])
    assert [each["behind_offsets"] for each in failing] == [5, 10, 15]
    assert [each["epochs_total"] for each in failing] == [0, 0, 0]
    assert [each["consecutive_failures"] for each in failing] == [0, 1, 2]
    assert failing[2]["last_error StoreUnreachable"] == failing[2]["retries_total StoreUnreachable"] / 2 == 1
    assert "last_commit_timestamp_seconds" not in failing[2]
    (well,) = healthy
    assert (well["behind_offsets"], well["epochs_total"], well["consecutive_failures"]) == (0, 1, 0)
    assert well["two_phase_state committed"] == 1
    (waits,) = slow
    assert (waits["behind_offsets"], waits["consecutive_failures"], waits["run_state running"]) == (5, 0, 1)
    assert "last_error StoreUnreachable" not in waits
    assert waits["last_commit_timestamp_seconds"] > 0


def test_what_goes_wrong_is_found_in_the_metrics_alone(lake: Lake, topic: Topic, port: int) -> None:
    """A bad record, records that retention has removed, and a run that is replaced."""
    stop, found = threading.Event(), []
    bad = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    source = {"on_data_loss": "continue"}

    def a_bad_record() -> None:
        topic.send(("b", b"{"))

    def retention() -> None:
        topic.send_rows([("c", number) for number in range(4)], partition=0)
        topic.delete_before(0, 4)

    def another_run() -> None:
        topic.send_rows([("d", 1)], partition=0)
        lake.pipeline(source=source, **bad).run()

    faults: list[Callable[[], None]] = [a_bad_record, retention, another_run]

    def observe(event: Event) -> None:
        if event.step is Step.WAITING and faults:
            found.append(scraped(port))
            faults.pop(0)()

    topic.send_rows([("a", 0)], partition=0)
    with receiver() as gateway:
        run = lake.pipeline(
            source=source, trigger={"interval": "1 second"}, metrics={"port": port, "push": gateway.url}, **bad
        )
        with pytest.raises(Fenced):
            run.run(stop=stop, observers=[observe])
    end = parsed(gateway.requests[-1].body.decode())
    counters = ("dead_letters_total", "offsets_lost_total")
    grown = [
        {name for name in counters if after[name] > before[name]} for before, after in itertools.pairwise([*found, end])
    ]
    assert grown == [{"dead_letters_total"}, {"offsets_lost_total"}, set()]
    assert (end["run_state fenced"], end["last_error Fenced"]) == (1, 1)


@pytest.mark.breadth
def test_an_update_that_the_guard_ignores_is_counted(lake: Lake, topic: Topic) -> None:
    unchanged: list[int | None] = []

    def observe(event: Event) -> None:
        if event.step is Step.COMMITTED and event.committed is not None:
            unchanged.append(event.committed.unchanged)

    pipeline = lake.pipeline("upsert", sink={"sequence_by": "n"})
    for rows in ([("a", 5), ("b", 1)], [("a", 3), ("b", 2)]):
        topic.send_rows(rows)
        pipeline.run(observers=[observe])
    assert lake.rows("upsert") == [("a", 5), ("b", 2)]
    assert unchanged[1:] == [1], "the first epoch is a plain append"


def test_a_port_that_is_taken_stops_no_run(
    lake: Lake, topic: Topic, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be that of a run which hangs, and is to be replaced."""
    topic.send_rows([("a", 1)])
    with socket.create_server(("127.0.0.1", port)):
        lake.pipeline(metrics={"port": port}).run()
    assert f"no metrics of this run: can't listen on 127.0.0.1:{port}" in caplog.text
    assert lake.rows() == [("a", 1)]
