"""Which second pipeline is refused, by the newest commits of its table. No JVM is needed."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import KeyedSink, PipelineConfig, parse
from connector.derive.second import refuse_second
from sinks.contract import Position
from sinks.delta import commit
from sinks.delta.commit import PipelineCommits
from sinks.delta.metadata import CommitMetadata
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


@pytest.mark.parametrize(
    ("commits", "changes", "refused"),
    [
        ([None, OTHERS], {}, True),
        ([OTHERS], {"sink": {"type": "delta_history"}}, True),
        ([OTHERS], {"sink": {"sequence_by": None}}, False),
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
    commits: list[str | None], changes: dict[str, Any], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = config(**changes)
    (sink,) = written.sinks
    assert isinstance(sink, KeyedSink)
    past = SimpleNamespace(after=lambda _: [SimpleNamespace(user_metadata=text) for text in commits])
    monkeypatch.setattr(commit, "PastCommits", lambda _: past)
    table: Any = SimpleNamespace(label="lake/t", detail=lambda: "there", is_new=False)
    own = PipelineCommits(table, pipeline="ours", topics=written.source.topics)
    monkeypatch.setattr(PipelineCommits, "position", lambda _: None)
    with pytest.raises(ConfigurationError, match="'theirs' keeps the rows") if refused else nullcontext() as raised:
        refuse_second(written, sink, own)
    if refused:
        assert "give it the other's name: theirs" in str(raised.value.hint)
    monkeypatch.setattr(PipelineCommits, "position", lambda _: "it stands there")
    refuse_second(written, sink, own)
