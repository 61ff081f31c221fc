import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.connector.lab.samples import every, simulate

from connector.lab.check.history import Happened, History, Row, Sent, Version
from sinks.offsets import OffsetRange, Offsets, TopicPartition

topics = st.sampled_from(["t", 'q"{}', "b\n</script>", "ünï"])
numbers = st.integers(0, 2**62)
places = st.builds(TopicPartition, topics, st.integers(0, 5))
offsets = st.dictionaries(places, numbers, max_size=3).map(Offsets)
ranges = (
    st.tuples(numbers, numbers)
    .map(sorted)
    .flatmap(lambda pair: st.builds(OffsetRange, topics, st.integers(0, 5), st.just(pair[0]), st.just(pair[1])))
)
histories = st.builds(
    History,
    delivery=st.sampled_from(["auto_commit", "transactional", "a new one"]),
    sink=st.sampled_from(["append", "upsert"]),
    crash_point=st.text(max_size=5),
    sent=st.lists(st.builds(Sent, topics, st.integers(0, 5), numbers, st.text(), st.integers()), max_size=3).map(tuple),
    events=st.lists(
        st.builds(
            Happened,
            st.integers(0, 3),
            st.floats(0, 1e6),
            st.text(),
            st.lists(ranges, max_size=2).map(tuple),
            st.text(),
        ),
        max_size=3,
    ).map(tuple),
    versions=st.lists(
        st.builds(
            Version,
            numbers,
            st.lists(st.builds(Row, topics, st.integers(0, 5), numbers, st.text(), st.integers()), max_size=2).map(
                tuple
            ),
            st.none() | offsets,
        ),
        max_size=3,
    ).map(tuple),
    since=offsets,
    drained=st.booleans(),
    error=st.none() | st.text(),
)


@given(histories)
def test_a_history_comes_back_from_json_as_it_was(history: History) -> None:
    assert History.from_json(history.to_json()) == history


def test_a_history_is_kept_in_a_file(tmp_path: Path) -> None:
    for history in every():
        history.save(tmp_path / "history.json")
        assert History.load(tmp_path / "history.json") == history


def test_the_file_has_a_line_for_every_record_event_and_version() -> None:
    history = simulate("transactional", "append", "mid_write")
    lines = history.to_json().splitlines()
    assert len(lines) == 2 + 7 + 3 * 2 + len(history.sent) + len(history.events) + len(history.versions)


def test_no_claims_and_empty_claims_are_kept_apart() -> None:
    history = History("auto_commit", "append", "", (), (), (Version(0, ()), Version(1, (), Offsets())))
    assert [version.claims for version in History.from_json(history.to_json()).versions] == [None, Offsets()]


def test_what_a_later_lab_announces_is_kept() -> None:
    event = Happened(0, 1.5, "rebalanced", note="a word of tomorrow")
    history = History("auto_commit", "append", "", (), (event,), ())
    assert History.from_json(history.to_json()).events == (event,)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"sink": "delete"},
        {"sent": [["t", 0, "1", "k", 1]]},
        {"sent": [["t", 0, True, "k", 1]]},
        {"sent": [["t", 0, 1, "k"]]},
        {"sent": {}},
        {"events": [[0, "soon", "started", [], ""]]},
        {"events": [[0, 1, "polled", [["t", 0, 5, 3]], ""]]},
        {"versions": [[0, {"t": 5}, []]]},
        {"since": 5},
        {"drained": 1},
        {"error": 5},
    ],
)
def test_what_is_not_a_history_is_refused(change: dict[str, object]) -> None:
    document = json.loads(simulate("auto_commit", "append", "after_poll").to_json())
    with pytest.raises(ValueError):
        History.from_json(json.dumps({**document, **change}))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": 1}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        History.from_json(text)
