"""What a run is told of Kafka if it reads up to a point in time."""

import time
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.config import Source as Options
from connector.protocol.plan import next_epoch
from connector.protocol.recover import Resumption, TopicsHeld
from connector.protocol.recreated import recreated, retirement
from connector.source.topics import KafkaSource, no_looks
from connector.source.until import Until
from sinks.contract import Epoch, Position
from sinks.errors import NotAuthorized, OffsetsLost, SourceError, TopicMissing, TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("t", 0)
NOW = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)


class Source:
    """Ten records, of which the first seven are older than the point in time."""

    def look(self) -> TopicsHeld:
        return TopicsHeld(Offsets({AT: 0}), Offsets({AT: 10}), {"t": "id"}, NOW)

    def at(self, *_: Any) -> Offsets:
        return Offsets({AT: 7})


@pytest.mark.parametrize(("until", "read_to"), [(-1, -1), (0, 0), (1, 0)])
def test_a_table_is_complete_up_to_the_point_that_was_read_to_and_not_up_to_now(until: int, read_to: int) -> None:
    held = Until(cast(KafkaSource, Source()), NOW + timedelta(hours=until)).look()
    epoch = next_epoch("p", "run", None, Resumption(Offsets({AT: 0})), held, max_records=100, now=NOW)
    assert epoch is not None
    assert epoch.offsets == Offsets({AT: 7})
    assert epoch.read_to == NOW + timedelta(hours=read_to)


def test_a_timestamp_that_no_datetime_can_hold_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Kafka 4.0 a topic takes a CreateTime in microseconds, too."""
    source = KafkaSource.__new__(KafkaSource)
    records = [SimpleNamespace(timestamp=1_793_500_000_000_000)]
    monkeypatch.setattr(source, "_peek", lambda *_: {AT: records})
    (found,) = source.next_times(Offsets({AT: 0}), Offsets({AT: 1})).values()
    assert found == datetime.max.replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(("topics", "named"), [(["ordres"], "ordres"), ("nothing.*", None)])
def test_a_missing_topic_is_named_with_the_nearest_one(
    topics: object, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KafkaSource(Options.model_validate({"topics": topics, "kafka": {"bootstrap.servers": "b:9092"}}))
    admin = SimpleNamespace(
        list_topics=lambda: ["orders", "__internal"],
        describe_topics=lambda names: [{"name": name, "error_code": 3, "partitions": []} for name in names],
    )
    monkeypatch.setattr(KafkaSource, "_admin", admin)
    with pytest.raises(TopicMissing) as caught:
        source.look()
    assert (caught.value.topic, "orders" in caught.value.hint) == (named, True)


@pytest.mark.parametrize(
    ("error_code", "lacked", "raised"),
    [(3, {"day-1"}, None), (0, set[str](), None), (29, None, NotAuthorized), (5, None, SourceError)],
)
def test_a_topic_that_a_list_lacks_is_asked_for_by_name(
    error_code: int, lacked: set[str] | None, raised: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list leaves out what the user may no longer describe, without a word."""
    source = KafkaSource(Options.model_validate({"topics": "day-.*", "kafka": {"bootstrap.servers": "b:9092"}}))
    listed, errors = ["day-1", "day-2"], {"day-1": 0, "day-2": 0}

    def describe_topics(names: list[str]) -> Any:
        return [{"name": name, "error_code": errors[name], "topic_id": name, "partitions": []} for name in names]

    admin = SimpleNamespace(list_topics=lambda: listed, describe_topics=describe_topics)
    monkeypatch.setattr(KafkaSource, "_admin", admin)
    for asked in ("log_ends", "log_beginnings"):
        monkeypatch.setattr(f"connector.source.topics.{asked}", lambda *_: {})
    assert source.look().ids.keys() == {"day-1", "day-2"}
    listed.remove("day-1")
    errors["day-1"] = error_code
    if raised is not None:
        with pytest.raises(raised, match="day-1"):
            source.look()
        return
    found = source.look()
    assert (found.ids.keys(), found.lacked.keys()) == ({"day-1", "day-2"} - (lacked or set()), lacked)


def test_a_compacted_topic_that_is_gone_is_asked_for_until_its_rights_are_gone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a topic of its name would be taken to be as new as the look that shows it."""
    source = KafkaSource(Options.model_validate({"topics": "day-.*", "kafka": {"bootstrap.servers": "b:9092"}}))
    monkeypatch.setattr(source, "tombstones_kept", lambda ids: dict.fromkeys(ids, timedelta(days=1)))
    listed, errors, asked = ["day-1", "day-2"], {"day-1": 0, "day-2": 0}, list[list[str]]()

    def describe_topics(names: list[str]) -> Any:
        asked.append(names)
        return [{"name": name, "error_code": errors[name], "topic_id": name, "partitions": []} for name in names]

    admin = SimpleNamespace(list_topics=lambda: listed, describe_topics=describe_topics)
    monkeypatch.setattr(KafkaSource, "_admin", admin)
    monkeypatch.setattr("connector.protocol.gone.SURE_AFTER", timedelta(0))
    for each in ("log_ends", "log_beginnings"):
        monkeypatch.setattr(f"connector.source.topics.{each}", lambda *_: {})
    source.look()
    listed.remove("day-1")
    errors["day-1"] = 3
    seen = [source.look().gone["day-1"].at for _ in range(2)]
    errors["day-1"] = 29
    seen += [source.look().gone["day-1"].at for _ in range(2)]
    assert seen[0] < seen[1] == seen[2] == seen[3]
    assert [len(names) for names in asked] == [2, 2, 2, 2, 1]


def test_a_topic_that_is_made_again_while_its_pipeline_waits_for_it_is_compared_with_what_was_seen_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of ``tables``: the look that lacks the topic ends a run, and the next one finds another topic of that name."""
    options = Options.model_validate({"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}})
    now = {"name": "t", "error_code": 0, "topic_id": "old", "partitions": []}
    end = SimpleNamespace(offset=6000, leader=None, held_back=None)
    admin = SimpleNamespace(list_topics=list, describe_topics=lambda _: [now])
    monkeypatch.setattr(KafkaSource, "_admin", admin)
    monkeypatch.setattr("connector.source.topics.log_ends", lambda *_: {AT: end})
    monkeypatch.setattr("connector.source.topics.log_beginnings", lambda *_: {AT: 0})
    looks = no_looks(options)
    first = KafkaSource(options, looks=looks)
    first.look()
    now["error_code"] = 3
    with pytest.raises(TopicMissing):
        first.look()
    looks.pause()
    now |= {"error_code": 0, "topic_id": "new"}
    held = KafkaSource(options, looks=looks).look()
    position = Position(3, Offsets({AT: 1000}), {"t": "old"})
    epoch = retirement("p", "run", position, held, recreated(position, held), Offsets())
    assert (epoch.lost, epoch.gone) == ((OffsetRange("#old/t", 0, 1000, 6000),), {"#old/t": None})


def test_how_long_tombstones_stay_is_asked_once_a_minute_and_only_for_sinks_with_deletes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []

    def describe_configs(topics: Any, config_filter: str) -> Any:
        asked.append([each.name for each in topics])
        kept = {"delete.retention.ms": {"value": "60000"}}
        return {
            "topic": {
                "a": {"cleanup.policy": {"value": "compact,delete"}, **kept},
                "b": {"cleanup.policy": {"value": "delete"}, **kept},
                "c": {},
            }
        }

    monkeypatch.setattr(KafkaSource, "_admin", SimpleNamespace(describe_configs=describe_configs))
    options = Options.model_validate({"topics": ["a", "b", "c"], "kafka": {"bootstrap.servers": "b:9092"}})
    assert (KafkaSource(options).tombstones_kept({"a"}), asked) == (None, [])
    source = KafkaSource(options, with_deletes=True)
    for _ in range(2):
        assert source.tombstones_kept({"a", "b", "c"}) == {"a": timedelta(minutes=1)}
    assert asked == [["a", "b", "c"]]
    assert source.tombstones_kept({"b"}) == {}
    later = time.monotonic() + 61
    monkeypatch.setattr("connector.source.topic_settings.time.monotonic", lambda: later)
    assert source.tombstones_kept({"b"}) == {}
    assert asked == [["a", "b", "c"], ["b"]], "a part of what was asked isn't asked again"
    assert source.tombstones_kept({"c"}) == {}
    (told,) = caplog.messages
    assert told.startswith("Kafka doesn't tell whether c is compacted")


def test_a_cleanup_policy_that_the_user_may_not_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python gives a topic without settings then, and no error."""
    source = KafkaSource(Options.model_validate({"topics": ["a", "b"], "kafka": {"bootstrap.servers": "b:9092"}}))

    def describe_configs(asked: Any, config_filter: str) -> Any:
        assert ([each.name for each in asked], config_filter) == (["a", "b"], "all")
        return {"topic": {"a": {"cleanup.policy": {"value": "compact,delete"}}, "b": {}}}

    monkeypatch.setattr(KafkaSource, "_admin", SimpleNamespace(describe_configs=describe_configs))
    assert source.cleanup_policies({"b", "a"}) == {"a": "compact,delete", "b": None}


B = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("now", "ends", "raised"),
    [
        ({"topic_id": "id"}, {AT: 10, B: 9}, None),
        ({"topic_id": "new"}, {AT: 10, B: 9}, TopicRecreated),
        ({"topic_id": "id"}, {AT: 10, B: 6}, OffsetsLost),
        ({"error_code": 3, "partitions": []}, {}, None),
        ({"error_code": 29, "partitions": []}, {}, NotAuthorized),
    ],
    ids=["the same", "recreated", "cut and filled again", "deleted", "may not be described"],
)
def test_after_a_read_its_topics_are_still_those_of_the_plan(
    now: dict[str, Any],
    ends: dict[TopicPartition, int],
    raised: type[Exception] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``ends``: of what the leaders of the plan have written. The records that were read of a deleted topic are its
    own."""
    source = KafkaSource(Options.model_validate({"topics": ["t", "other"], "kafka": {"bootstrap.servers": "b:9092"}}))
    parts = [{"partition_index": at.partition, "leader_id": 1} for at in (AT, B)]

    def describe_topics(names: list[str]) -> list[dict[str, Any]]:
        return [{"name": name, "error_code": 0, "partitions": parts, **now} for name in names]

    def ends_of_leaders(_: object, asked: Any, led: Any, current: Any) -> dict[TopicPartition, int]:
        assert current == {}
        assert (asked, led) == ({at: leaders[at] for at in ends}, dict.fromkeys(ends, 1))
        return ends

    monkeypatch.setattr(KafkaSource, "_admin", SimpleNamespace(describe_topics=describe_topics))
    monkeypatch.setattr("connector.source.topics.ends_of_leaders", ends_of_leaders)
    leaders = {AT: 4, B: 5, TopicPartition("other", 0): 6}
    ranges = (OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 3, 8))
    planned = Epoch("p", 1, "run", ranges, Offsets({AT: 10, B: 8}), {"t": "id"}, NOW, None, leaders=leaders)
    if raised is None:
        source.refuse_changed(planned)
    else:
        with pytest.raises(raised, match="t"):
            source.refuse_changed(planned)
