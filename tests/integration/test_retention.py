"""Records that Kafka's retention removes before they are read: named, never passed over in silence."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from audits import verify
from conftest import Lake, Topic, forget_history
from typer.testing import CliRunner

from connector.audit.claim import At
from connector.cli.app import app
from connector.protocol.steps import Event, Step
from sinks.errors import OffsetsLost


def some(first: int, count: int) -> list[tuple[str, int]]:
    return [("a", number) for number in range(first, first + count)]


def test_what_is_lost_is_named_by_range_number_and_time(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    lake.pipeline().run()
    topic.send_rows(some(10, 10), partition=0, at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))
    topic.delete_before(0, 14)
    with pytest.raises(OffsetsLost) as caught:
        lake.pipeline().run()
    said = str(caught.value)
    assert "up to 4 in 1 partition" in said
    assert f"{topic.name}-0" in said
    assert "[10, 14) is missing, up to 4 records, written before 2026-01-02 03:04:05 UTC" in said
    assert f"All that Kafka held at {datetime.now(timezone.utc):%Y-%m-}" in said


@pytest.mark.breadth
def test_it_goes_on_a_stated_time_ahead_of_the_oldest_record(lake: Lake, topic: Topic) -> None:
    now = datetime.now(timezone.utc) - timedelta(hours=1)
    for minute in range(10):
        topic.send_rows(some(minute, 1), partition=0, at=now + timedelta(minutes=minute))
        if minute == 1:
            lake.pipeline().run()
    topic.delete_before(0, 4)
    lake.pipeline(source={"on_data_loss": {"continue": "3 minutes"}}).run()
    assert lake.rows() == some(0, 2) + some(7, 3)
    assert lake.metadata()[-1]["lost"] == [[topic.name, 0, 2, 7]]


@pytest.mark.breadth
@pytest.mark.parametrize("start", ["earliest", pytest.param("latest", marks=pytest.mark.breadth)])
def test_what_expires_before_the_first_look_is_lost_like_any_record(start: str, lake: Lake, topic: Topic) -> None:
    """Of a partition that was added, and of a topic that appears under a pattern."""
    appears = Topic(topic.broker, f"{topic.name}.b")
    source = {"topics": f"{topic.name}([.]b)?", "start": start}
    topic.send_rows(some(0, 2), partition=0)
    lake.pipeline(source=source).run()
    began = 2 if start == "latest" else 0
    topic.broker.add_partitions(topic.name, 3)
    topic.broker.create_topic(appears.name, 1)
    for each, partition in ((topic, 2), (appears, 0)):
        each.send_rows(some(10, 5), partition=partition)
        each.delete_before(partition, 4)
    with pytest.raises(OffsetsLost, match=r"up to 8 in 2 partitions.*wants offset 0 next, Kafka holds \[4, 5\)"):
        lake.pipeline(source=source).run()
    lake.pipeline(source={**source, "on_data_loss": "continue"}).run()
    assert lake.rows() == some(began, 2 - began) + some(14, 1) * 2
    stored = lake.metadata()[-1]
    assert stored["lost"] == [[topic.name, 2, 0, 4], [appears.name, 0, 0, 4]]
    assert stored["since"] == {topic.name: {"0": began, "1": 0}}
    found = verify(lake, source=source)
    assert found.ok
    assert (found.claim.since[At(topic.name, 2)], len(found.claim.lost)) == (0, 2)


@pytest.mark.breadth
def test_lost_ranges_are_found_for_ever(lake: Lake, topic: Topic) -> None:
    """Also where Delta has cleaned the log of the commit that left them out."""
    topic.send_rows(some(0, 4), partition=0)
    lake.pipeline().run()
    topic.send_rows(some(4, 6), partition=0)
    topic.delete_before(0, 6)
    lake.pipeline(source={"on_data_loss": "continue"}).run()
    for first in (10, 11):
        topic.send_rows(some(first, 1), partition=0)
        lake.pipeline().run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    topic.send_rows(some(12, 1), partition=0)
    lake.pipeline().run()
    forget_history(lake.path())
    file = lake.file()
    fields = json.loads(CliRunner().invoke(app, ["status", str(file), "--json"]).stdout)
    assert fields["lost"] == [[topic.name, 0, 4, 6]]
    assert fields["last_commit"]["position_from"] == "commit"
    shown = CliRunner().invoke(app, ["status", str(file)]).stdout
    assert f"{topic.name}-0 [4, 6), up to 2 records never read" in shown


@pytest.mark.parametrize("on_data_loss", ["fail", "continue"])
def test_records_that_go_while_they_are_read_are_named_too(on_data_loss: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 4), partition=0)
    lake.pipeline().run()
    topic.send_rows(some(4, 16), partition=0)

    def delete(event: Event) -> None:
        if event.step is Step.WRITING and event.epoch.number == 2:
            topic.delete_before(0, 9)

    pipeline = lake.pipeline(source={"on_data_loss": on_data_loss})
    if on_data_loss == "continue":
        pipeline.run(observers=[delete])
        assert lake.rows() == some(0, 4) + some(9, 11)
        assert lake.metadata()[-1]["lost"] == [[topic.name, 0, 4, 9]]
        return
    with pytest.raises(OffsetsLost, match=r"\[4, 9\) is missing, up to 5 records"):
        pipeline.run(observers=[delete])
    assert lake.rows() == some(0, 4)
