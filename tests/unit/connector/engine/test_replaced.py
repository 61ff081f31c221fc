"""A run that was replaced stores no dead letters: it asks where its pipeline's epochs are committed, or decided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.engine import assembly, dead_letters, replaced
from connector.engine.assembly import Assembly
from connector.engine.outputs import Table
from connector.protocol.decided import LogHeld, Row, State
from sinks.contract import Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead
from sinks.errors import Fenced
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
STOOD = Position(10, Offsets({AT: 70}), owner="before")
EPOCH = Epoch("p", 11, "me", (OffsetRange("t", 0, 70, 80),), Offsets({AT: 80}), {}, None, STOOD)
UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "k"}
PIPELINES: dict[str, dict[str, Any]] = {
    "one table": {"sinks": [UPSERT]},
    "merged on read": {"sinks": [{**UPSERT, "merge": "on_read"}]},
    "several sinks": {
        "sinks": [UPSERT, {"type": "delta_append", "path": "lake/a"}],
        "coordinator": {"path": "lake/log"},
    },
    "a route": {"route": {"by": "k", "sink": {**UPSERT, "path": "lake/{k}"}}, "coordinator": {"path": "lake/log"}},
}


def piped(**changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "k STRING, n INT"},
            "on_bad_record": "dead_letter",
            "dead_letters": {"path": "lake/dead"},
            **changes,
        }
    )


def letters_of(config: PipelineConfig, stands: Position | None, monkeypatch: pytest.MonkeyPatch) -> list[Epoch]:
    """Store a late record's letter as a run does whose pipeline ``stands`` there by now. Returns what was stored."""
    stored: list[Epoch] = []
    decided = Epoch.that_left(stands, pipeline="p") if stands is not None else None
    held = LogHeld(9, None, Row(State.DECIDED, decided, "run") if decided is not None else None)
    place = SimpleNamespace(add=lambda _, epoch: stored.append(epoch))
    monkeypatch.setattr(replaced, "Log", lambda *_, **__: SimpleNamespace(read=lambda: held, label="log"))
    monkeypatch.setattr(dead_letters, "letters_table", lambda *_: place)
    monkeypatch.setattr(assembly, "no_records", lambda _: None)
    # Of several tables each may still be behind what the log has decided.
    sink: Any = SimpleNamespace(position=lambda: STOOD if config.two_phase else stands)
    if config.merged_on_read is not None:
        sink = MergeOnRead.__new__(MergeOnRead)
        monkeypatch.setattr(MergeOnRead, "standing", lambda _: SimpleNamespace(position=stands))
    unused: Any = None
    table: Any = SimpleNamespace(label="lake/t")
    derivation: Any = SimpleNamespace(sink=sink)
    run: Any = SimpleNamespace(
        config=config, spark=None, outputs=[Table(unused, derivation, table, unused)], read=None, field_check=None,
        of_kafka=SimpleNamespace(forget=None, led_by=None), source=SimpleNamespace(refuse_changed=None),
    )  # fmt: skip
    letters = Assembly.reading(run, {}).letters
    assert letters is not None
    rows: Any = SimpleNamespace(columns=[], selectExpr=lambda *_: "letters")
    letters.late(rows, "t", EPOCH)
    return stored


@pytest.mark.parametrize("stands", [Position(11, Offsets(), owner="other"), Position(12, Offsets(), owner="other")])
@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_a_run_whose_epoch_another_one_has_taken_stores_no_letter(
    pipeline: dict[str, Any], stands: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would count at once, and the other run may have found the same records good."""
    with pytest.raises(Fenced, match="run other has committed epoch 1"):
        letters_of(piped(**pipeline), stands, monkeypatch)


@pytest.mark.parametrize("stands", [None, STOOD, Position(11, Offsets(), owner="me")])
@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
def test_any_other_run_stores_its_letters(
    pipeline: dict[str, Any], stands: Position | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert letters_of(piped(**pipeline), stands, monkeypatch) == [EPOCH]


def test_nobody_fences_a_run_of_a_consumer_group(monkeypatch: pytest.MonkeyPatch) -> None:
    config = piped(delivery="manual_commit", sinks=[UPSERT])
    assert letters_of(config, Position(12, Offsets(), owner="other"), monkeypatch) == [EPOCH]
