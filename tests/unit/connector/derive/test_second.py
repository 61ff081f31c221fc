"""Which second pipeline is refused. No JVM is needed."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import PipelineConfig, parse
from connector.derive import second
from connector.derive.second import refuse_second
from sinks.contract import Position
from sinks.delta import other_pipelines
from sinks.delta.metadata import CommitMetadata
from sinks.delta.other_pipelines import Other
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets


def config(**changes: Any) -> PipelineConfig:
    sink = {"type": "delta_upsert", "path": "lake/t", "key": "k", "sequence_by": "n", **changes.pop("sink", {})}
    return parse(
        {
            "name": "ours",
            "source": {"topics": ["x", "y"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "k STRING, n INT"},
            "sinks": [{name: value for name, value in sink.items() if value is not None}],
            **changes,
        }
    )


def metadata(pipeline: str, *topics: str) -> str:
    offsets = Offsets.from_dict({topic: {"0": 5} for topic in topics})
    return CommitMetadata.at(pipeline, Position(1, offsets, owner="run")).to_json()


OTHERS = metadata("theirs", "z")
PROPERTY = f"lakelock.shape.{b'theirs'.hex()}"
BY_OFFSET = {"sink": {"sequence_by": None}}
ON_READ = {"sink": {"sequence_by": None, "merge": "on_read"}}
SUM = {"type": "delta_aggregate", "key": None, "sequence_by": None, "group_by": "k", "aggregates": {"n": "count(1)"}}
APPEND = {"type": "delta_append", "key": None, "sequence_by": None}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks with these commits of the table, newest first."""

    def ask(
        changes: dict[str, Any],
        commits: list[str | None],
        *properties: str,
        begun: bool = False,
        log: bool = False,
        counts: bool = False,
    ) -> None:
        past = SimpleNamespace(after=lambda _: [SimpleNamespace(user_metadata=text) for text in commits])
        monkeypatch.setattr(other_pipelines, "PastCommits", lambda _: past)
        monkeypatch.setattr(other_pipelines, "holds_changes", lambda _: True)
        monkeypatch.setattr(second, "_has_log", lambda *_: log)
        monkeypatch.setattr(Other, "merges_on_read", lambda *_: counts)
        detail = SimpleNamespace(properties=dict.fromkeys(properties, ""))
        table: Any = SimpleNamespace(label="lake/t", sql="t", detail=lambda: detail, is_new=False)
        own: Any = SimpleNamespace(position=lambda: "it stands there" if begun else None)
        refuse_second(config(**changes), table, own)

    return ask


@pytest.mark.parametrize(
    ("commits", "changes", "refused"),
    [
        ([None, OTHERS], {}, True),
        ([None] * 30 + [OTHERS], {}, True),
        ([OTHERS], {"sink": {"type": "delta_history"}}, True),
        ([OTHERS], BY_OFFSET, False),
        ([OTHERS], {"delivery": "idempotent"}, False),
        # It goes on under another name, or reads more than before.
        ([metadata("theirs", "x")], {}, False),
        ([metadata("theirs", "x", "z")], {}, False),
        ([metadata("theirs")], {}, False),
        ([metadata("ours", "z")], {}, False),
        (["no JSON", "[1]", '{"pipeline": 3}', '{"pipeline": "theirs"}'], {}, False),
    ],
)
def test_a_pipeline_of_other_topics_is_refused(
    commits: list[str | None], changes: dict[str, Any], refused: bool, asked: Any
) -> None:
    with pytest.raises(ConfigurationError, match="'theirs' keeps the rows") if refused else nullcontext() as raised:
        asked(changes, commits)
    if refused:
        assert "give it the other's name: theirs" in str(raised.value.hint)
    asked(changes, commits, PROPERTY, begun=True)


def test_a_clone_has_the_property_of_its_sources_pipeline_and_no_commit_of_it(asked: Any) -> None:
    with pytest.raises(ConfigurationError, match="'theirs' keeps the rows"):
        asked({}, [None], PROPERTY, "lakelock.shape.no digits", "lakelock.shape.")
    asked({}, [None], f"lakelock.shape.{b'ours'.hex()}")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("changes", [ON_READ, {"sink": {**SUM, "merge": "on_read"}}], ids=["upsert", "aggregate"])
def test_a_pipeline_that_merges_on_read_shares_no_table(changes: dict[str, Any], begun: bool, asked: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sinks\[0\].merge: on_read: pipeline 'theirs' writes to") as raised:
        asked(changes, [OTHERS], PROPERTY, begun=begun)
    assert ("UNSET TBLPROPERTIES" in str(raised.value.hint)) is begun
    asked(changes, [metadata("theirs", "x")], PROPERTY, begun=begun)
    asked(changes, [metadata("ours", "x"), OTHERS], begun=True)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("changes", [BY_OFFSET, {"sink": SUM}, {"sink": APPEND}], ids=["upsert", "aggregate", "append"])
def test_no_pipeline_comes_to_a_table_that_another_merges_on_read(
    changes: dict[str, Any], begun: bool, asked: Any
) -> None:
    with pytest.raises(ConfigurationError, match="merge: on_read in pipeline 'theirs'"):
        asked(changes, [OTHERS], PROPERTY, begun=begun, log=True, counts=True)
    asked(changes, [OTHERS], PROPERTY, begun=begun, log=True)  # it merges on write by now
    asked(changes, [OTHERS], PROPERTY, begun=begun)
