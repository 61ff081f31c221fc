"""What `lakelock replay` says, and its exit code, when a signal ends it before its end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from fakes import Group, To, Topic
from typer.testing import CliRunner

from connector.cli.app import app
from connector.delivery.ports import Delivered, Work
from connector.delivery.transactional import deliver
from connector.pipeline import Pipeline
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch
from sinks.memory import MemoryAppend, MemoryTable

_EPOCHS = 4


class Replays:
    """Replays of memory's topic into memory's tables, in epochs of one record. ``stop_after`` epochs, over all of them,
    an observer sets the stop signal, as SIGTERM does."""

    def __init__(self, stop_after: int | None) -> None:
        self.left, self.places = stop_after, list[str]()

    def __call__(
        self, _: Pipeline, into: str, *, stop: threading.Event, observers: Sequence[object], **__: object
    ) -> Delivered:
        self.places.append(into)
        topic = Topic([[("a", number) for number in range(_EPOCHS)]])
        writer = MemoryAppend(MemoryTable())

        def run_epoch(epoch: Epoch, behind: int) -> Committed:
            return writer.write(epoch, topic.read(epoch))

        def observe(event: Event) -> None:
            if event.step is Step.OFFSETS_COMMITTED and self.left is not None:
                self.left -= 1
                if not self.left:
                    stop.set()

        if self.left == 0:
            stop.set()
        work = Work("p", "run", topic, To(writer.position, run_epoch), 1, Group(), observe)
        return deliver(work, interval=None, stop=stop)


def replayed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int | None, *, several: bool = False
) -> tuple[int, str, list[str]]:
    """The exit code, the output, and the places of the replays that began."""
    file, replays = folder / "shop.yaml", Replays(stop_after)
    sinks = [{"type": "delta_append", "path": f"lake/{name}"} for name in ("all", "more")]
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}
    value = {"format": "json", "schema": "a INT"}
    own = {"sinks": sinks, "together": "eventual"} if several else {"sinks": sinks[:1]}
    file.write_text(yaml.safe_dump({"name": "shop", "source": source, "value": value, **own}))
    monkeypatch.setattr(Pipeline, "replay", lambda self, into, **given: replays(self, into, **given))
    monkeypatch.setattr("connector.fleet.rewind.one_session", lambda *_, **__: nullcontext(None))
    monkeypatch.setattr("connector.fleet.rewind.isolated", nullcontext)
    result = CliRunner().invoke(app, ["replay", str(file), "--into", "new", "--log-format", "text"])
    return result.exit_code, result.output, replays.places


@pytest.mark.parametrize(("stop_after", "said"), [(1, "stopped, 3 offsets behind"), (0, "stopped")])
def test_a_replay_that_was_stopped_before_its_end_is_not_called_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int, said: str
) -> None:
    code, output, _ = replayed(tmp_path, monkeypatch, stop_after)
    assert f"shop: {said}; the same command goes on." in output
    assert "To swap" not in output
    assert code == 1


@pytest.mark.parametrize("stop_after", [None, _EPOCHS])
def test_a_replay_that_has_reached_its_end_is_finished_also_if_a_signal_came_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int | None
) -> None:
    code, output, _ = replayed(tmp_path, monkeypatch, stop_after)
    assert f"shop: {_EPOCHS} epochs" in output
    assert "To swap, write `path: new` into" in output
    assert "stopped;" not in output
    assert code == 0


def test_of_several_replays_those_after_the_signal_do_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, places = replayed(tmp_path, monkeypatch, _EPOCHS, several=True)
    assert places == ["new/all"]
    assert output.count("To swap") == 1
    assert "shop-more: stopped before it began; the same command goes on." in output
    assert code == 1


def test_a_topic_without_a_record_gives_no_table_to_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replays, "__call__", lambda *_, **__: Delivered(behind=0))
    code, output, _ = replayed(tmp_path, monkeypatch, None)
    assert "shop: there is nothing to replay yet: no epoch was written to new" in output
    assert "To swap" not in output
    assert code == 0
