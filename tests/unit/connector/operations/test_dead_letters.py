"""Which pipelines can't have their dead letters sent through again, and why; and the order of a retry's steps."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import Fold, PipelineConfig, parse, tables_of_letters
from connector.engine.fold import Folding
from connector.operations import dead_letters
from connector.operations.dead_letters import refuse_unfit, retry
from connector.operations.letter_groups import refuse_without_letters
from connector.protocol.recover import HeldBack, TopicsHeld
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, Fenced, PositionMismatch
from sinks.offsets import Offsets, TopicPartition

UPSERT = {"type": "delta_upsert", "path": "lake/p", "key": "a"}


def config(**changes: Any) -> PipelineConfig:
    sink = {"type": "delta_append", "path": "lake/p", **changes.pop("sink", {})}
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "a INT"},
            "sinks": [sink],
            "on_bad_record": "dead_letter",
            "dead_letters": {"path": "lake/dead"},
            **changes,
        }
    )


@pytest.mark.parametrize(
    "sink",
    [
        {},
        UPSERT,
        {**UPSERT, "deletes": "soft"},
        {**UPSERT, "ignore_null_updates": True, "sequence_by": "a"},
        {"type": "delta_history", "key": "a"},
    ],
)
def test_what_a_table_can_tell_of_itself_is_retried(sink: dict[str, Any]) -> None:
    refuse_unfit(config(sink=sink))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sink": {"type": "delta_aggregate", "group_by": "a", "aggregates": {"n": "count(*)"}}}, "takes a letter"),
        ({"sink": {**UPSERT, "ignore_null_updates": True}}, "ignore_null_updates without sequence_by"),
        ({"delivery": "manual_commit"}, "with delivery: manual_commit the table keeps no position"),
        (
            {"sinks": [{"type": "s3_objects", "url": "s3://b/p"}], "coordinator": {"path": "lake/c"}},
            "a letter has none",
        ),
        ({"dead_letters": {"topic": "dead"}}, "are in the Kafka topic 'dead', not in a table"),
    ],
)
def test_what_it_cannot_tell_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        refuse_unfit(config(**changes))
    assert raised.value.hint


def routed(sink: dict[str, Any], **route: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "kind STRING, a INT"},
            "coordinator": {"path": "lake/log"},
            "route": {"by": "kind", "sink": {**sink, "path": "lake/{kind}"}, **route},
            "on_bad_record": "dead_letter",
            "dead_letters": {"path": "lake/dead"},
        }
    )


@pytest.mark.parametrize("sink", [{"type": "delta_append"}, UPSERT, {"type": "delta_history", "key": "a"}])
def test_tables_of_a_route_are_retried(sink: dict[str, Any]) -> None:
    refuse_unfit(routed(sink, other={"type": "delta_append", "path": "lake/others"}))


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (
            {"other": {"type": "delta_aggregate", "path": "lake/n", "group_by": "a", "aggregates": {"n": "count(*)"}}},
            "takes a letter",
        ),
        ({"overrides": {"x": {"sink": {"ignore_null_updates": True}}}}, "ignore_null_updates without sequence_by"),
        ({"overrides": {"x": {"sink": {"merge": "on_read"}}}}, "merge: on_read doesn't tell"),
    ],
)
def test_one_table_of_a_route_that_cannot_tell_is_enough(route: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        refuse_unfit(routed(UPSERT, **route))
    assert "into new places" in raised.value.hint


def test_how_a_topic_of_letters_is_read_is_told() -> None:
    with pytest.raises(ConfigurationError) as raised:
        refuse_without_letters(config(dead_letters={"topic": "dead"}))
    assert "topics: [dead]" in raised.value.hint


def test_without_letters_there_is_nothing_to_show() -> None:
    with pytest.raises(ConfigurationError, match="sets nothing aside"):
        refuse_without_letters(config(on_bad_record="fail", dead_letters=None))


AT = TopicPartition("t", 0)
STANDS = Position(4, Offsets({AT: 7}), owner="before")


def retried(did: list[str], monkeypatch: pytest.MonkeyPatch, ends: Any = None, folding: Folding | None = None) -> None:
    """A retry of one letter. ``ends``: how its commit fails."""

    def says(step: str, result: Any = None) -> Any:
        return lambda *_, **__: (did.append(step), result)[1]

    def run_epoch(epoch: Epoch, *_: Any, **__: Any) -> Any:
        assert epoch.backlog == {AT}, "its partition still holds the watermark back"
        did.append("commit")
        if ends is not None:
            raise ends
        return SimpleNamespace(position=STANDS)

    letters: Any = SimpleNamespace(
        exists=lambda: True, older=lambda *_: 0, of_others=lambda _: 0, begin=says("mark", 1),
        marked_sql=lambda run: f"letters of {run}",
        records=says("read"), close=says("close", 1),
    )  # fmt: skip
    tombstones = SimpleNamespace(
        forget=lambda records, at: did.append(f"forget {records} at {at}"), expired_before=None
    )
    derivation = SimpleNamespace(sink=SimpleNamespace(position=lambda: STANDS, write=None), tombstones=tombstones)
    output: Any = SimpleNamespace(derivation=derivation, table=None, label="t")
    monkeypatch.setattr(dead_letters, "run_epoch", run_epoch)
    monkeypatch.setattr(dead_letters, "marked_letters", says("decode"))
    monkeypatch.setattr(dead_letters, "deletes_since", lambda _: None)
    monkeypatch.setattr(dead_letters, "remember_deletes", lambda _, kept: None)
    here, waits = Offsets({AT: 7}), {AT: HeldBack(2, None)}
    held = TopicsHeld(Offsets({AT: 0}), here, {}, datetime.now(timezone.utc), held_back=waits)
    reading: Any = None
    retry(config(sink=UPSERT), output, letters, reading, run="me", held=held, observe=lambda _: None, folding=folding)


@pytest.mark.parametrize("ends", [None, SystemExit, Fenced("another run was sooner", owner="another", epoch=5)])
def test_a_retry_first_forgets_the_deletes_that_an_earlier_one_has_kept(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file of now they may be none. What a retry has kept that another run has fenced goes at once."""
    did: list[str] = []
    with pytest.raises((SystemExit, Fenced)) if ends is not None else nullcontext():
        retried(did, monkeypatch, ends)
    last = {None: ["close"], SystemExit: []}.get(ends, ["forget letters of me at 5"])
    assert did == ["mark", "forget letters of me at 5", "read", "decode", "commit", *last]


@pytest.mark.parametrize("table", [STANDS, replace(STANDS, epoch=3), None], ids=["folded", "behind", "replaced"])
def test_letters_are_closed_only_once_the_table_itself_has_their_epoch(
    table: Position | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit and its fold the change log may cease to count. Then there is nothing to fold."""
    did: list[str] = []

    def fold(_: str) -> None:
        did.append("fold")

    log: Any = SimpleNamespace(fold=fold, standing=lambda: SimpleNamespace(table=table))
    folding = Folding(log, Fold(), "p", "me", lambda _: None)
    with nullcontext() if table is STANDS else pytest.raises(PositionMismatch, match="no longer counts"):
        retried(did, monkeypatch, folding=folding)
    assert did[did.index("commit") + 1 :] == ["fold", *(["close"] if table is STANDS else [])]


def test_the_letters_of_several_tables_name_the_log_also_those_of_a_table_that_joins_them() -> None:
    tables = [{"type": "delta_append", "path": f"lake/{name}"} for name in "ab"]
    several = config(sinks=tables, coordinator={"path": "lake/log"})
    for each in (several, several.alone(0), several.alone(1), several.alone(1).alone(0)):
        assert [place.place for place in tables_of_letters(each)] == ["lake/log", "lake/a", "lake/b"]
    assert several.alone(1).places == ["lake/a", "lake/b"]
    assert [place.place for place in tables_of_letters(config())] == ["lake/p"]
    one_left = config(coordinator={"path": "lake/log"})
    assert [place.place for place in tables_of_letters(one_left)] == ["lake/p", "lake/log"]
    assert [place.place for place in tables_of_letters(routed(UPSERT))] == ["lake/log"]
