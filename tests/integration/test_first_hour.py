"""A first hour with a topic of one's own: a file from a look at it, and what is shown before a run."""

from __future__ import annotations

import pytest
from conftest import Lake, Send, Topic, lakelock
from pages import Reader

from connector.operations.from_topic import from_topic
from connector.pipeline import Pipeline


def test_a_look_at_a_topic_sees_its_newest_fields_and_deletes(topic: Topic) -> None:
    for partition in (0, 1):
        topic.send(*((f"c-{number}", {"n": number}) for number in range(1000)), partition=partition)
    topic.send(("c-1", {"n": 1, "late": True}), ("c-2", None), partition=1)
    draft, looked_at = from_topic(topic.name, {"bootstrap.servers": topic.broker.bootstrap})
    assert looked_at > 500
    assert "`late` BOOLEAN" in draft.text
    assert "key: kafka_key" in draft.text


@pytest.mark.breadth
def test_what_is_shown_of_many_long_records_has_no_stack_trace_beside_it(lake: Lake) -> None:
    """A Python process of Spark's that was left in mid-sentence wrote one to the terminal."""
    lake.topic.send(*((f"k{number}", {"k": f"k{number}", "n": 1, "text": "x" * 900}) for number in range(400)))
    file = lake.file("append", value={"format": "json", "schema": "k STRING, n INT, text STRING"})
    for command in ("check", "preview"):
        done = lakelock(command, file)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""


@pytest.mark.pages
def test_the_page_on_a_first_hour(reader: Reader, send: Send) -> None:
    send("orders")
    reader.follow("docs/first-hour.md")
    assert "exact: 500 expected, 500 found" in "".join(reader.said)
    assert Pipeline.from_file("orders.yaml").dead_letters() is not None
