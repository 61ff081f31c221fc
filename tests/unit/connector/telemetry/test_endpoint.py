"""Where Prometheus asks for the metrics of all pipelines of a process: also of those that have ended."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack, suppress

import pytest

from connector.config import PipelineConfig, parse
from connector.telemetry.endpoint import kept_open
from connector.telemetry.exporters import monitored
from sinks.errors import BadRecord, Fenced


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def config(name: str, port: int) -> PipelineConfig:
    return parse(
        {
            "name": name,
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}},
            "value": {"format": "json", "schema": "a INT"},
            "sinks": [{"type": "delta_append", "path": f"lake/{name}"}],
            "metrics": {"port": port, "host": "127.0.0.1"},
        }
    )


def states(port: int) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.split('"') for line in lines if line.startswith("lakelock_run_state{") and line.endswith(" 1.0")]
    return {line[1]: line[3] for line in found}


def ended(name: str, port: int, error: Exception | None) -> None:
    with suppress(BadRecord, Fenced), monitored(config(name, port)):
        if error is not None:
            raise error


def test_how_a_pipeline_ended_shows_until_its_next_run_while_others_go_on(port: int) -> None:
    with monitored(config("goes_on", port)):
        for name, error in (("a", BadRecord("broken")), ("b", Fenced("replaced", owner="o", epoch=1)), ("c", None)):
            ended(name, port, error)
        assert states(port) == {"goes_on": "starting", "a": "failed", "b": "fenced", "c": "done"}
        with monitored(config("a", port)):
            assert states(port)["a"] == "starting"
        assert states(port)["a"] == "done"
    with pytest.raises(OSError):
        states(port)


def test_between_the_runs_of_several_pipelines_the_endpoint_stays(port: int) -> None:
    with ExitStack() as fleet:
        fleet.enter_context(kept_open())
        ended("a", port, BadRecord("broken"))
        assert states(port) == {"a": "failed"}
    with pytest.raises(OSError):
        states(port)
    ended("a", port, None)
