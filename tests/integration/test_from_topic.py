"""A pipeline in Python that a look at a topic makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typed_pipeline
import yaml
from conftest import Topic, lakelock

from lakelock import ConfigurationError, Pipeline


@pytest.mark.breadth
def test_a_topic_makes_the_pipeline_that_init_writes(topic: Topic, tmp_path: Path) -> None:
    topic.send(("1", {"id": 1, "at": "2026-11-01T10:00:00Z"}), ("2", {"id": 2, "at": None}))
    kafka = {"bootstrap.servers": topic.broker.bootstrap}
    file = tmp_path / "pipeline.yaml"
    init = lakelock("init", file, "--from-topic", topic.name, "--kafka", f"bootstrap.servers={topic.broker.bootstrap}")
    assert init.returncode == 0, init.stderr
    assert Pipeline.from_topic(topic.name, kafka).config.document == yaml.safe_load(file.read_text(encoding="utf-8"))


def test_options_are_others_than_what_the_topic_shows(topic: Topic) -> None:
    topic.send(("1", {"id": 1}))
    kafka = {"bootstrap.servers": topic.broker.bootstrap}
    found = Pipeline.from_topic(topic.name, kafka).config
    made = typed_pipeline.for_a_topic(topic.name, kafka).config
    assert (made.name, made.value, made.sinks) == ("mine", found.value, found.sinks)
    assert (found.on_bad_record, made.on_bad_record) == ("fail", "dead_letter")
    assert made.dead_letters is not None
    assert made.dead_letters.path == "lake/mine_dead"


def test_a_topic_without_a_record_shows_nothing(topic: Topic) -> None:
    with pytest.raises(ConfigurationError, match=f"Topic {topic.name} has no record yet"):
        Pipeline.from_topic(topic.name, {"bootstrap.servers": topic.broker.bootstrap})
