"""What the auditor asks Kafka of the topics that a pipeline reads, and of those that it has read before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

import connector.audit.topics as asked
from connector.audit.claim import At, Claim, bounds, unchecked
from connector.audit.notes import notes_on
from connector.audit.topics import Topics
from connector.config import TopicPattern, parse
from sinks.errors import NotAuthorized, TopicMissing

MISSING, FORBIDDEN = 3, 29


class Kafka:
    """Topics of one partition with five records; some may not be read. Kafka tells the ``policies``, by topic."""

    def __init__(
        self, *topics: str, forbidden: Sequence[str] = (), policies: Mapping[str, str | None] | None = None
    ) -> None:
        self.topics, self.forbidden = topics, forbidden
        self.policies = dict.fromkeys(topics, "delete") if policies is None else policies

    def list_topics(self) -> list[str]:
        return [*self.topics, *self.forbidden]

    def describe_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        def error(name: str) -> int:
            return 0 if name in self.topics else FORBIDDEN if name in self.forbidden else MISSING

        return [
            {"name": name, "error_code": error(name), "topic_id": f"id-{name}", "partitions": [{"partition_index": 0}]}
            for name in names
        ]

    def describe_configs(self, asked: Sequence[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        assert {each.name for each in asked} <= set(self.topics)

        def settings(name: str) -> dict[str, Any]:  # none without the permission DESCRIBE_CONFIGS
            return {"cleanup.policy": {"value": self.policies[name]}} if name in self.policies else {}

        return {"topic": {each.name: settings(each.name) for each in asked}}

    def end_offsets(self, partitions: Sequence[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, 5 if timeout_ms else 0)

    def beginning_offsets(self, partitions: Sequence[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0 if timeout_ms else 1)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(asked, "answering", lambda *_, **__: nullcontext())

    def of(kafka: Kafka) -> Topics:
        made = Topics.__new__(Topics)
        made._servers, made._admin, made._consumer = "there:1", kafka, kafka
        return made

    return of


@pytest.mark.parametrize("named", [("b",), TopicPattern(pattern="b|a.*")])
def test_a_topic_that_left_the_pipeline_and_is_gone_is_unchecked(topics: Any, named: Any) -> None:
    stored = dict.fromkeys(["a", "b", "c", "f", "#1 a"])
    held = topics(Kafka("b", "c", forbidden=["f"])).held(named, stored)
    assert held.ids == {"b": "id-b", "c": "id-c"}
    at = [At(name, 0) for name in ("a", "b", "c", "f")]
    cut = bounds(Claim("transactional", dict.fromkeys(at, 0), dict.fromkeys(at, 5)), held)
    assert [gap.topic for gap in unchecked(cut)] == ["a", "f"]


@pytest.mark.parametrize("named", [("b",), TopicPattern(pattern="b|x.*")])
def test_a_topic_that_left_the_pipeline_and_was_recreated_is_unchecked(topics: Any, named: Any) -> None:
    held = topics(Kafka("a", "b", "c")).held(named, {"a": "id-before", "b": "id-before", "c": "id-c"})
    assert held.ids == {"b": "id-b", "c": "id-c"}  # what the file names stays: its records would be taken for others
    cut = bounds(Claim("transactional", {At("a", 0): 0}, {At("a", 0): 3}), held)
    assert unchecked(cut) == [("a", 0, 0, 3)]


def test_a_topic_that_the_file_names_has_to_be_there(topics: Any) -> None:
    with pytest.raises(TopicMissing, match="'a' isn't in Kafka"):
        topics(Kafka("b")).held(["a", "b"], dict.fromkeys(["a", "b"]))
    with pytest.raises(NotAuthorized):
        topics(Kafka("b", forbidden=["a"])).held(["a", "b"], ["a", "b"])
    with pytest.raises(NotAuthorized):
        topics(Kafka("b", forbidden=["a"])).held(TopicPattern(pattern="a|b"), ["a", "b"])


def test_a_pattern_finds_its_topics(topics: Any) -> None:
    assert topics(Kafka("a1", "a2", "b")).held(TopicPattern(pattern="a.")).ids == {"a1": "id-a1", "a2": "id-a2"}


def test_a_topic_whose_policy_kafka_does_not_tell_may_be_compacted(topics: Any) -> None:
    policies = {"a": "compact,delete", "b": "delete", "c": "", "d": None}  # an empty one keeps everything
    names = ["a", "b", "c", "d", "e"]
    held = topics(Kafka(*names, policies=policies)).held(names)
    assert (held.compacted, held.untold) == ({"a", "d", "e"}, {"d", "e"})
    at = dict.fromkeys([At("a", 0), At("b", 0), At("e", 0)], 5)
    claim = Claim("transactional", dict.fromkeys(at, 0), at)
    cut = bounds(claim, held)
    assert [(part.compacted, part.untold) for part in cut] == [(True, False), (False, False), (True, True)]
    file = {
        "name": "p", "source": {"topics": names, "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "n INT"}, "sinks": [{"type": "delta_append", "path": "lake/t"}],
    }  # fmt: skip
    of_a, of_e = notes_on(parse(file), claim, cut, held, ())
    assert of_a.startswith("Topic a is compacted: a row")
    assert "DESCRIBE_CONFIGS on it. It was taken for a compacted one: a row" in of_e
