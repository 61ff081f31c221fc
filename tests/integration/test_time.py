"""Back in time: rewind to an event time or a version, replay a stretch of time into a new table, and swap."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import yaml
from another_engine import query
from conftest import Lake, Topic

from connector import Pipeline
from connector.operations.history import past
from connector.operations.rewind import Rewind
from connector.protocol.steps import Event, Step
from sinks.errors import ConfigurationError, Fenced, OffsetsLost, PositionMismatch
from sinks.offsets import OffsetRange

SCHEMA = "k STRING, n INT, t TIMESTAMP"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def send(topic: Topic, *minutes: int, partition: int = 0) -> None:
    topic.send(*(("k", {"k": "k", "n": m, "t": at(m).isoformat()}) for m in minutes), partition=partition)


def totals(lake: Lake) -> Pipeline:
    sink = {"group_by": "k", "aggregates": {"records": "count(*)", "total": "sum(n)"}}
    return lake.pipeline("aggregate", schema=SCHEMA, event_time="t", sink=sink)


def counted(lake: Lake) -> list[tuple[object, ...]]:
    return query(lake.path("aggregate"), "SELECT records, total FROM t")


def yes(plan: Rewind) -> bool:
    return True


@pytest.mark.breadth
def test_a_rewind_to_an_event_time_reads_all_of_it_again(lake: Lake, topic: Topic) -> None:
    send(topic, 0, 1, 2)
    totals(lake).run()
    send(topic, 3, 1)  # disorder: minute 1 came late
    send(topic, 7, partition=1)
    totals(lake).run()
    send(topic, 9, 4)
    totals(lake).run()
    assert counted(lake) == [(8, 27)]
    clock = totals(lake).status().position.clock
    assert clock.watermark == at(7)
    asked: list[Rewind] = []
    version = lake.version("aggregate")
    totals(lake).rewind(to_event_time=at(3), confirm=lambda plan: bool(asked.append(plan)))
    assert lake.version("aggregate") == version, "nothing without a yes"
    assert asked[0].target.epoch == 1
    assert asked[0].again == 5
    assert asked[0].clock == "the column t (event_time)"
    totals(lake).rewind(to_event_time=at(3), confirm=yes)
    assert counted(lake) == [(3, 3)]
    position = totals(lake).status().position
    assert (position.epoch, position.source) == (4, "commit"), "a commit like any other, with a number of its own"
    assert totals(lake).run().rows == 1
    assert counted(lake) == [(8, 27)]
    assert [metadata["epoch"] for metadata in lake.metadata("aggregate")] == [1, 2, 3, 4, 5]
    epochs = past(totals(lake).config, lake.spark)
    (before,) = [note for epoch in epochs for note in epoch.notes if "before it" in note]
    assert before.startswith("the table was rewound before it, in version")
    assert [epoch.number for epoch in epochs if "taken back by the rewind of" in str(epoch.notes)] == [3, 2]


@pytest.mark.breadth
def test_a_rewind_to_a_version_goes_on_from_there(lake: Lake, topic: Topic) -> None:
    for minute in (1, 2, 3):
        send(topic, minute)
        totals(lake).run()
    totals(lake).rewind(to_version=1, confirm=yes)
    assert counted(lake) == [(1, 1)]
    totals(lake).run()
    assert counted(lake) == [(3, 6)]
    with pytest.raises(ConfigurationError, match="no version 99"):
        totals(lake).rewind(to_version=99, confirm=yes)


@pytest.mark.breadth
def test_a_rewind_to_before_the_first_record_starts_over(lake: Lake, topic: Topic) -> None:
    send(topic, 1, 2)
    totals(lake).run()
    totals(lake).rewind(to_event_time=at(0), confirm=yes)
    assert counted(lake) == []
    totals(lake).run()
    assert counted(lake) == [(2, 3)]


@pytest.mark.breadth
def test_a_run_that_was_planned_before_a_rewind_does_not_write(lake: Lake, topic: Topic) -> None:
    send(topic, 1)
    totals(lake).run()
    send(topic, 2)
    rewound = []

    def behind_its_back(event: Event) -> None:
        if event.step is Step.PLANNED and not rewound:
            rewound.append(event)
            totals(lake).rewind(to_event_time=at(0), confirm=yes)

    with pytest.raises((Fenced, PositionMismatch)):
        totals(lake).run(observers=[behind_its_back])
    totals(lake).run()
    assert counted(lake) == [(2, 3)]


@pytest.mark.breadth
def test_a_rewind_to_an_event_time_trusts_no_version_with_rows_of_another_time(lake: Lake, topic: Topic) -> None:
    """Of rows before ``event_time`` was in the file, or that another column clocked, nobody knows how late they are."""

    def pipeline(event_time: str | None) -> Pipeline:
        named = {"event_time": event_time} if event_time else {}
        return lake.pipeline(schema="k STRING, n INT, t TIMESTAMP, u TIMESTAMP", **named)

    def run(minute: int, event_time: str | None) -> None:
        topic.send(("k", {"k": "k", "n": minute, "t": at(minute).isoformat(), "u": at(0).isoformat()}), partition=0)
        pipeline(event_time).run()

    run(1, "t")
    run(9, "u")
    run(2, "t")
    run(3, None)
    assert [metadata["clock"].get("column") for metadata in lake.metadata()] == ["t", "", "", ""]
    plan = pipeline("t").rewind(to_event_time=at(4))
    assert (plan.target.epoch, plan.again) == (1, 3)
    pipeline("t").rewind(to_event_time=at(4), confirm=yes)
    assert lake.rows() == [("k", 1)]
    pipeline("t").run()
    assert lake.metadata()[-1]["clock"]["column"] == "t"
    assert [row[0] for row in lake.sql("SELECT n FROM {t} ORDER BY n")] == [1, 2, 3, 9]


@pytest.mark.breadth
def test_a_rewind_by_kafkas_timestamps_keeps_what_topics_of_old_have_left(lake: Lake, topic: Topic) -> None:
    """One was recreated, one has left the pipeline: neither can be read again, and the table may not lose them."""
    gone = Topic(topic.broker, f"{topic.name}.gone")
    gone.broker.create_topic(gone.name, 1)
    gone.send_rows([("gone", 1)])
    topic.send_rows([("old", 1), ("old", 2)], partition=0)
    lake.pipeline(source={"topics": [topic.name, gone.name]}).run()
    topic.broker.delete_topic(topic.name)
    topic.broker.create_topic(topic.name, 2)
    topic.send_rows([("a", 1)], partition=0, at=at(1))
    pipeline = lake.pipeline(source={"on_recreated_topic": "continue"})
    pipeline.run()
    topic.send_rows([("b", 2), ("c", 3)], partition=1, at=at(2))
    pipeline.run()
    kept = [("gone", 1), ("old", 1), ("old", 2)]
    for when, epoch, again, left in ((at(2), 3, 2, [("a", 1)]), (at(1), 2, 3, [])):
        plan = pipeline.rewind(to_event_time=when, confirm=yes)
        assert (plan.target.epoch, plan.again) == (epoch, again)
        assert plan.clock == "Kafka's timestamps, as the file names no event_time"
        assert lake.rows() == sorted(left + kept)
        pipeline.run()
        assert lake.rows() == sorted([("a", 1), ("b", 2), ("c", 3), *kept])
    version = lake.version()
    with pytest.raises(OffsetsLost, match=r"version 1.*recreated since"):
        pipeline.rewind(to_version=1, confirm=yes)
    assert lake.version() == version


@pytest.mark.breadth
def test_a_rewind_refuses_what_no_run_would_read_again(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("a", 2)], partition=0)
    lake.pipeline().run()
    latest = lake.pipeline(source={"start": "latest"})
    # Once there is a position, where the file says to start makes no difference.
    assert latest.rewind(to_event_time=at(0), confirm=yes).again == 2
    latest.run()
    assert lake.rows() == [("a", 1), ("a", 2)]
    topic.delete_before(0, 1)
    for way in ("fail", "continue"):  # that is about records that were never read
        with pytest.raises(OffsetsLost, match=r"the table holds.*Kafka no longer holds it") as refused:
            lake.pipeline(source={"on_data_loss": way}).rewind(to_event_time=at(0), confirm=yes)
        assert "--allow-data-loss" in refused.value.hint
    assert lake.rows() == [("a", 1), ("a", 2)]
    plan = latest.rewind(to_event_time=at(0), allow_data_loss=True, confirm=yes)
    assert plan.lost == [OffsetRange(topic.name, 0, 0, 1)]
    with pytest.raises(OffsetsLost, match="never read"):
        latest.run()
    lake.pipeline(source={"on_data_loss": "continue"}).run()
    assert lake.rows() == [("a", 2)]


@pytest.mark.breadth
def test_a_rewind_by_kafkas_timestamps_takes_no_later_record_for_one_that_is_gone(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline()
    for minute in (1, 2, 3, 4):
        topic.send_rows([("a", minute)], partition=0, at=at(minute))
        pipeline.run()
    assert pipeline.rewind(to_event_time=at(2)).target.epoch == 1
    topic.delete_before(0, 3)
    version = lake.version()
    for allowed in (False, True):
        with pytest.raises(OffsetsLost, match="nobody knows which versions") as refused:
            pipeline.rewind(to_event_time=at(2), allow_data_loss=allowed, confirm=yes)
        assert "--to-epoch" in refused.value.hint
    assert lake.version() == version
    topic.send_rows([("a", 5)], partition=0, at=at(5))
    pipeline.run()
    assert pipeline.rewind(to_event_time=at(5), confirm=yes).target.epoch == 4
    assert lake.rows() == [("a", minute) for minute in (1, 2, 3, 4)]


@pytest.mark.breadth
def test_a_rewind_of_a_compacted_topic_is_refused(lake: Lake, topic: Topic) -> None:
    """Its cleaner may have removed any record that isn't the newest of its key."""
    compacted = Topic(topic.broker, f"{topic.name}.compacted")
    topic.broker.create_topic(compacted.name, 1, {"cleanup.policy": "compact"})
    compacted.send_rows([("a", 1), ("a", 2)])
    pipeline = lake.pipeline(source={"topics": [compacted.name]})
    pipeline.run()
    version = lake.version()
    with pytest.raises(OffsetsLost, match=f"topic '{compacted.name}' is compacted") as refused:
        pipeline.rewind(to_epoch=0, confirm=yes)
    assert "--allow-data-loss" in refused.value.hint
    assert lake.version() == version
    plan = pipeline.rewind(to_epoch=0, allow_data_loss=True, confirm=yes)
    assert plan.lost == []
    assert "is compacted" in str(plan)
    pipeline.run()
    assert lake.rows() == [("a", 1), ("a", 2)]


@pytest.mark.breadth
def test_a_rewind_refuses_a_version_of_another_delivery(lake: Lake, topic: Topic) -> None:
    for number, delivery in enumerate(("transactional", "manual_commit", "transactional")):
        topic.send_rows([("a", number)])
        lake.pipeline(delivery=delivery).run()
    with pytest.raises(ConfigurationError, match="was written by delivery: manual_commit"):
        lake.pipeline().rewind(to_version=3, confirm=yes)
    assert len(lake.rows()) == 3


@pytest.mark.breadth
def test_a_rewind_names_what_it_takes_back_of_others_and_loses_no_rows_of_theirs(lake: Lake, topic: Topic) -> None:
    other = Topic(topic.broker, "other-" + topic.name)
    topic.broker.create_topic(other.name, 1)

    def both(number: int, delivery: str) -> int:
        """The version of this pipeline's epoch. The other one writes after it."""
        topic.send_rows([("a", number)])
        lake.pipeline().run()
        version = lake.version()
        other.send_rows([("b", number)])
        lake.pipeline(name="other", source={"topics": [other.name]}, delivery=delivery).run()
        return version

    version = both(1, "transactional")
    lake.sql("DELETE FROM {t} WHERE k = 'a'")
    plan = lake.pipeline().rewind(to_version=version)
    assert [line.partition(" at ")[0] for line in plan.others] == [
        "epoch 1 of pipeline 'other', which reads them again if Kafka still holds their records",
        f"version {lake.version()}, DELETE",
    ]
    both(2, "manual_commit")
    version = both(3, "manual_commit")
    rows = lake.rows()
    with pytest.raises(ConfigurationError, match="rows that pipeline 'other' may have written"):
        lake.pipeline().rewind(to_version=version, confirm=yes)
    assert lake.rows() == rows


def test_a_replay_into_a_new_table_and_the_swap(lake: Lake, topic: Topic, tmp_path: Path) -> None:
    lake.pipeline("upsert").run()
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline("upsert").run()
    new = str(tmp_path / "new")
    changed = lake.options("upsert", transform="SELECT k, n * 10 AS n FROM records")
    past = datetime.now(timezone.utc) - timedelta(hours=1)
    assert Pipeline.from_options(changed).replay(new, since=past).rows == 2
    assert Pipeline.from_options(changed).replay(new, since=past).epochs == 0, "it is complete"
    assert lake.rows("upsert") == [("a", 1), ("b", 2)], "the old table is as it was"
    topic.send_rows([("a", 3)], partition=0)
    changed["sinks"][0]["path"] = new  # the swap
    file = tmp_path / "swapped.yaml"
    file.write_text(yaml.safe_dump(changed))
    assert Pipeline.from_file(file).run().rows == 1
    assert sorted(query(new, "SELECT k, n FROM t")) == [("a", 30), ("b", 20)]


@pytest.mark.breadth
def test_a_replay_ends_where_it_is_told(lake: Lake, topic: Topic, tmp_path: Path) -> None:
    for minute in range(6):
        topic.send_rows([("a", minute)], partition=minute % 2, at=at(minute))
    new = str(tmp_path / "new")
    assert lake.pipeline().replay(new, since=at(2), until=at(5)).rows == 3
    assert {row["n"] for row in lake.spark.read.format("delta").load(new).collect()} == {2, 3, 4}


@pytest.mark.breadth
def test_a_window_that_replaces_one_by_another_column_judges_by_its_own(lake: Lake, topic: Topic) -> None:
    """The records came in two hours after they happened: by that time all that follow would be late."""

    def send_both(*minutes: int) -> None:
        each = ((None, {"happened": at(m).isoformat(), "came": at(m + 120).isoformat()}) for m in minutes)
        topic.send(*each, partition=0)

    def counts(time: str) -> Pipeline:
        window = {"time": time, "size": "10 minutes", "late": "dead_letter"}
        count = {"type": "delta_aggregate", "aggregates": {"records": "count(*)"}, "window": window}
        options = lake.options("rows", schema="happened TIMESTAMP, came TIMESTAMP")
        options["sinks"] = [
            {"type": "delta_append", "path": str(lake.path("rows"))},
            {**count, "path": str(lake.path(time))},
        ]
        options["coordinator"], options["dead_letters"] = {"path": str(lake.path("log"))}, {"path": str(lake.path("d"))}
        return Pipeline.from_options({**options, "name": "both"})

    send_both(1, 2, 12)
    counts("came").run()
    counts("happened").run()
    for minute in (13, 25):
        send_both(minute)
        counts("happened").run()
    position = counts("happened").status().position
    assert position is not None
    assert (position.clock.watermark, position.clock.late) == (at(25), 0)
    windows = lake.spark.read.format("delta").load(str(lake.path("happened")))
    found = windows.selectExpr("minute(window_start)", "records", "window_closed").collect()
    assert sorted(tuple(row) for row in found) == [(0, 2, True), (10, 2, True), (20, 1, False)]
    assert not lake.path("d").exists() or query(lake.path("d"), "SELECT count(*) FROM t") == [(0,)]


@pytest.mark.breadth
def test_columns_that_have_the_names_of_event_time_are_the_users_own(lake: Lake, topic: Topic) -> None:
    """Splunk calls a time ``_time``. A table beside windows has it, and a user's late flag counts nothing."""
    schema = "k STRING, _time TIMESTAMP, _late BOOLEAN, _shown STRING, _window STRING, _session STRING"
    of_user = {"_late": True, "_shown": "s", "_window": "w", "_session": "x"}
    topic.send(*(("k", {"k": "k", "_time": at(minute).isoformat(), **of_user}) for minute in (0, 5)), partition=0)
    windows = {
        "type": "delta_aggregate",
        "path": str(lake.path("windows")),
        "group_by": ["k", "_session"],
        "aggregates": {"shown": "max(_shown)", "late": "max(IF(_late, 1, 0))", "last": "max(_time)"},
        "window": {"time": "_time", "gap": "1 minute", "allowed_lateness": "0 seconds"},
    }
    options = lake.options(schema=schema, event_time="_time")
    beside = {**options, "sinks": [*options["sinks"], windows], "coordinator": {"path": str(lake.path("log"))}}
    Pipeline.from_options(beside).run()
    rows = query(lake.path(), "SELECT _time, _late, _shown, _window, _session FROM t ORDER BY 1")
    assert rows == [(at(minute), True, "s", "w", "x") for minute in (0, 5)]
    sessions = query(lake.path("windows"), "SELECT _session, shown, late, last FROM t ORDER BY last")
    assert sessions == [("x", "s", 1, at(minute)) for minute in (0, 5)]
    assert Pipeline.from_options(beside).status().position.clock.late == 0
