from datetime import datetime, timezone

import pytest

from connector.protocol.recover import Resumption, TopicsHeld, resume
from sinks.contract import Position
from sinks.errors import OffsetsLost, TopicRecreated
from sinks.offsets import OffsetRange, Offsets


def held(beginnings: dict, ends: dict, ids: dict | None = None) -> TopicsHeld:
    named = {topic: f"id-{topic}" for topic in ends}
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return TopicsHeld(Offsets.from_dict(beginnings), Offsets.from_dict(ends), ids or named, now)


def at(offsets: dict, topics: dict | None = None) -> Position:
    return Position(3, Offsets.from_dict(offsets), topics or {topic: f"id-{topic}" for topic in offsets})


def never(topics: frozenset[str]) -> Offsets:
    assert not topics
    return Offsets()


def test_a_stored_position_wins_over_the_configured_start() -> None:
    found = resume(at({"t": {"0": 5}}), held({"t": {"0": 0}}, {"t": {"0": 9}}), never)
    assert found == Resumption(Offsets.from_dict({"t": {"0": 5}}))


def test_without_a_position_the_configured_start_is_used() -> None:
    start = Offsets.from_dict({"t": {"0": 7}})
    assert resume(None, held({"t": {"0": 0}}, {"t": {"0": 9}}), lambda topics: start).offsets == start


def test_the_start_is_asked_only_for_topics_without_a_position() -> None:
    asked = []

    def start(topics: frozenset[str]) -> Offsets:
        asked.append(topics)
        return Offsets.from_dict({"new": {"0": 4}})

    kafka = held({"t": {"0": 0}, "new": {"0": 0}}, {"t": {"0": 9}, "new": {"0": 9}})
    assert resume(at({"t": {"0": 5}}), kafka, start).offsets.to_dict() == {"new": {"0": 4}, "t": {"0": 5}}
    assert asked == [frozenset({"new"})]


def test_an_added_partition_is_read_from_its_beginning() -> None:
    found = resume(at({"t": {"0": 5}}), held({"t": {"0": 0, "1": 2}}, {"t": {"0": 9, "1": 9}}), never)
    assert found.offsets.to_dict() == {"t": {"0": 5, "1": 2}}


def test_a_topic_that_was_made_again_is_refused() -> None:
    with pytest.raises(TopicRecreated, match="deleted and made again"):
        resume(at({"t": {"0": 5}}, {"t": "old"}), held({"t": {"0": 0}}, {"t": {"0": 9}}), never)


def test_a_position_without_topic_ids_is_taken_as_it_is() -> None:
    position = Position(3, Offsets.from_dict({"t": {"0": 5}}))
    assert resume(position, held({"t": {"0": 0}}, {"t": {"0": 9}}), never).offsets.to_dict() == {"t": {"0": 5}}


def test_records_that_retention_removed_before_they_were_read_stop_the_run() -> None:
    with pytest.raises(OffsetsLost) as caught:
        resume(at({"t": {"0": 5, "1": 9}}), held({"t": {"0": 8, "1": 0}}, {"t": {"0": 9, "1": 9}}), never)
    assert "t-0: the table wants offset 5 next, Kafka holds [8, 9), so [5, 8) is missing, up to 3 records" in str(
        caught.value
    )
    assert "on_data_loss: continue" in caught.value.hint


def test_on_request_it_goes_on_behind_what_was_lost_and_names_it() -> None:
    found = resume(at({"t": {"0": 5}}), held({"t": {"0": 8}}, {"t": {"0": 9}}), never, continue_on_data_loss=True)
    assert found == Resumption(Offsets.from_dict({"t": {"0": 8}}), (OffsetRange("t", 0, 5, 8),))


def test_records_that_were_read_before_retention_removed_them_are_no_loss() -> None:
    found = resume(at({"t": {"0": 8}}), held({"t": {"0": 8}}, {"t": {"0": 8}}), never)
    assert found == Resumption(Offsets.from_dict({"t": {"0": 8}}))


@pytest.mark.parametrize("continue_", [False, True])
def test_a_topic_that_ends_before_the_position_is_never_read(continue_: bool) -> None:
    with pytest.raises(OffsetsLost, match="ends before the table's offsets"):
        resume(at({"t": {"0": 8}}), held({"t": {"0": 0}}, {"t": {"0": 7}}), never, continue_on_data_loss=continue_)
