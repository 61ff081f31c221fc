"""What Prometheus is told while a run goes on."""

from __future__ import annotations

import socket
import urllib.request

import pytest
from conftest import Lake, Topic
from prometheus_client.parser import text_string_to_metric_families

from connector.protocol.steps import Event, Step


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["pipeline"] for sample in samples} == {"append"}
    return {sample.name.removeprefix("lakelock_"): sample.value for sample in samples}


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
    assert (last["behind_offsets"], last["epoch_seconds_count"]) == (0, 3)
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_port_that_is_taken_stops_no_run(
    lake: Lake, topic: Topic, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be that of a run which hangs, and is to be replaced."""
    topic.send_rows([("a", 1)])
    with socket.create_server(("127.0.0.1", port)):
        lake.pipeline(metrics={"port": port}).run()
    assert f"no metrics of this run: 127.0.0.1:{port}" in caplog.text
    assert lake.rows() == [("a", 1)]
