"""A second pipeline on a table, of other topics: where it would harm the first one, it is refused before it writes."""

from __future__ import annotations

from typing import Any

import pytest
from audits import verify
from conftest import Lake, Topic

from connector import read
from sinks.delta.change_log import FOLDER
from sinks.delta.shape import Shape
from sinks.errors import ConfigurationError

TOTALS: dict[str, Any] = {"group_by": "k", "aggregates": {"n": "sum(n)"}}


@pytest.fixture
def other(topic: Topic) -> Topic:
    """A topic of another pipeline."""
    other = Topic(topic.broker, f"o-{topic.name}")
    topic.broker.create_topic(other.name, 1)
    return other


def of(topic: Topic, name: str, **sink: Any) -> dict[str, Any]:
    return {"name": name, "source": {"topics": [topic.name]}, "sink": sink}


def versions(lake: Lake, kind: str) -> tuple[int, int]:
    return len(lake.commits(kind)), len(lake.commits(f"{kind}/{FOLDER}"))


def current(lake: Lake, kind: str, changes: dict[str, Any]) -> list[tuple[str, int]]:
    assert lake.spark is not None
    return sorted(tuple(row) for row in read(lake.spark, lake.file(kind, **changes)).select("k", "n").collect())


@pytest.mark.breadth
def test_it_is_refused_however_long_the_first_one_rests(lake: Lake, topic: Topic, other: Topic) -> None:
    topic.send_rows([("a", 1)])
    other.send_rows([("a", 2)])
    lake.pipeline("upsert", **of(topic, "first", sequence_by="n")).run()
    for number in range(21):
        lake.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('mine' = '{number}')", "upsert")
    # As if an earlier release had written it, which left no property.
    lake.sql(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{Shape('first').name}')", "upsert")
    before = len(lake.commits("upsert"))
    with pytest.raises(ConfigurationError, match="pipeline 'first' keeps the rows"):
        lake.pipeline("upsert", **of(other, "second", sequence_by="n")).run()
    assert (len(lake.commits("upsert")), lake.rows("upsert")) == (before, [("a", 1)])


@pytest.mark.breadth
def test_a_table_that_is_merged_on_read_has_one_pipeline(lake: Lake, topic: Topic, other: Topic) -> None:
    first, second = (of(each, name, **TOTALS) for each, name in ((topic, "first"), (other, "second")))
    on_read = {**first, "sink": {**TOTALS, "merge": "on_read"}}
    for number in (1, 2):
        topic.send_rows([("a", number)])
        lake.pipeline("aggregate", **on_read).run()
    other.send_rows([("a", 10)])
    before = versions(lake, "aggregate")
    for merge in ("on_read", "on_write"):
        with pytest.raises(ConfigurationError, match="pipeline 'first' writes to"):
            lake.pipeline("aggregate", **{**second, "sink": {**TOTALS, "merge": merge}}).run()
    assert versions(lake, "aggregate") == before
    assert current(lake, "aggregate", on_read) == [("a", 3)]
    # As the error says: both merge on write, and the first one goes first.
    lake.pipeline("aggregate", **first).run()
    lake.pipeline("aggregate", **second).run()
    assert lake.rows("aggregate") == [("a", 13)]
    with pytest.raises(ConfigurationError, match="pipeline 'second' writes to"):
        lake.pipeline("aggregate", **on_read).run()


@pytest.mark.breadth
def test_what_two_have_lost_of_a_change_log_that_they_shared_is_read_again(
    lake: Lake, topic: Topic, other: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier release let both in."""
    monkeypatch.setattr("connector.derive.refuse_second", lambda *_: None)
    first, second = (of(each, name, merge="on_read") for each, name in ((topic, "first"), (other, "second")))
    for number in range(3):
        topic.send_rows([(f"a{number}", number)])
        lake.pipeline("upsert", **first).run()
    other.send_rows([("b", 1)])
    lake.pipeline("upsert", **second).run()
    assert lake.rows("upsert") == [("a0", 0), ("b", 1)], "the first one's log is gone"
    assert any("epochs 2 to 3, which no longer count" in note for note in verify(lake, "upsert", **first).notes)
    other.send_rows([("b", 2)])
    lake.pipeline("upsert", **second).run()
    # It merges on write by now, and leaves alone the log that isn't its own.
    lake.pipeline("upsert", **of(topic, "first")).run()
    assert lake.rows("upsert") == [("a0", 0), ("a1", 1), ("a2", 2), ("b", 1)]
    assert current(lake, "upsert", second) == [("a0", 0), ("a1", 1), ("a2", 2), ("b", 2)]
