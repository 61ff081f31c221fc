"""Where a mirror has the record that comes next: found by what is around it, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from connector.cli.app import app
from connector.config import Source, load, parse
from connector.mirror import translate
from connector.mirror.compare import NotFound, Record, find
from connector.operations.status import Status
from connector.protocol.recover import TopicsHeld, resumed
from connector.source.topics import KafkaSource
from connector.source.translated_offsets import Translation, translated
from sinks.contract import Position
from sinks.errors import ConfigurationError, NotMirrored, UnsupportedFormat
from sinks.offsets import Offsets, TopicPartition


@dataclass(frozen=True)
class Kept:
    """A partition in memory."""

    records: Sequence[Record]
    end: int
    beginning: int = 0

    def between(self, start: int, end: int) -> list[Record]:
        assert self.beginning <= start < end <= self.end
        return [each for each in self.records if start <= each.offset < end]

    def since(self, timestamp: int) -> int | None:
        return next((each.offset for each in self.records if each.timestamp >= timestamp), None)


def partition(values: Sequence[tuple[int, int]], first: int = 0, gaps: Sequence[int] = ()) -> Kept:
    """``values``: timestamp and value; ``gaps``: holes before the n-th record."""
    offset, records = first, []
    for number, (timestamp, value) in enumerate(values):
        offset += gaps[number] if number < len(gaps) else 0
        records.append(Record(offset, timestamp, b"k", str(value).encode()))
        offset += 1
    return Kept(records, offset, first)


VALUES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=90)
GAPS = st.lists(st.integers(0, 3), max_size=90)


@given(VALUES, GAPS, GAPS, st.data())
@example([(0, 0), (0, 1), (0, 0)], [], [], None)
@settings(max_examples=500)
def test_the_place_is_right_or_it_is_said_that_it_isnt_known(
    values: list[tuple[int, int]], gaps: list[int], others: list[int], data: st.DataObject | None
) -> None:
    """Times out of order, the same record again and again, holes, a mirror that begins later or ends earlier, and
    others' records behind it."""

    def drawn(lowest: int, highest: int, example: int) -> int:
        return data.draw(st.integers(lowest, highest)) if data else example

    old = partition(values, first=drawn(0, 5, 0), gaps=gaps)
    since, until = drawn(0, len(values) - 1, 0), drawn(1, len(values), 2)
    written_there = [(drawn(0, 6, 0), 9)] * drawn(0, 3, 0)
    new = partition([*values[since:until], *written_there], first=drawn(0, 9, 0), gaps=others)
    number = drawn(0, len(values), 3)  # of the record that comes next
    try:
        place = find(old, old.records[number].offset if number < len(values) else old.end, new)
    except NotFound:
        return
    assert sum(each.offset < place.offset for each in new.records) == number - since


@given(st.integers(0, 200), st.integers(0, 100), GAPS)
def test_of_records_that_differ_it_is_always_found(number: int, since: int, gaps: list[int]) -> None:
    values = [(1000 + each // 3, each) for each in range(200)]
    old, new = partition(values, gaps=gaps), partition(values[since:], first=7)
    offset = old.records[number].offset if number < len(values) else old.end
    if number < since:  # what comes next isn't there
        with pytest.raises(NotFound):
            find(old, offset, new)
    else:
        assert find(old, offset, new).offset == 7 + number - since


def test_what_isnt_there_or_is_there_twice_is_no_place() -> None:
    values = [(1000 + each, each) for each in range(100)]
    old = partition(values)
    with pytest.raises(NotFound, match="what is around offset 50"):
        find(old, 50, partition(values[:40]))
    with pytest.raises(NotFound, match="the mirror has the 64 records around offset 50 twice, also around 150"):
        find(old, 50, partition([*values, *values]))
    changed = [*values[:45], (1045, -1), *values[46:]]
    with pytest.raises(NotFound, match="in the same order"):
        find(old, 50, partition(changed))
    # Somebody has written to the mirror before it was complete.
    with pytest.raises(NotFound, match="in the same order"):
        find(old, 50, partition([*values[:52], (1052, -1), *values[52:]]))
    with pytest.raises(NotFound, match="the old topic has the 64 records around offset 150 twice, also around 50"):
        find(partition([*values, *values]), 150, partition(values))
    with pytest.raises(NotFound, match="holds no record any more"):
        find(Kept([], 50, 50), 50, partition(values))
    assert find(Kept([], 50, 50), 50, Kept([], 3, 3)).offset == 3


AT = TopicPartition("t", 0)
POSITION = Position(7, Offsets({AT: 50}), {"t": "old"}, "owner")
HELD = TopicsHeld(Offsets({AT: 0}), Offsets({AT: 60}), {"t": "new"}, None)
FOUND = Translation("p", {"t": ("old", "new")}, {AT: (50, 43)})


def test_a_translation_is_of_one_position_and_two_topics() -> None:
    assert Translation.from_json(FOUND.to_json(), file="f") == FOUND
    assert FOUND.starts("p", POSITION, HELD, {"t": "#old/t"}) == Offsets({AT: 43})
    unknown = replace(POSITION, topics={}, source="rows")  # of the old topic, or of the new one?
    for pipeline, position, held, why in (
        ("p", unknown, HELD, "doesn't say of which topic t its offsets are"),
        ("q", POSITION, HELD, "for pipeline 'p'"),
        ("p", replace(POSITION, offsets=Offsets({AT: 51})), HELD, "translates offset 50, but the table needs 51"),
        ("p", replace(POSITION, topics={"t": "older"}), HELD, "from id old to new, and this is from older to new"),
        ("p", POSITION, replace(HELD, ids={"t": "newer"}), "this is from old to newer"),
        ("p", POSITION, replace(HELD, ends=Offsets({AT: 42})), "doesn't reach offset 43"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            FOUND.starts(pipeline, position, held, {"t": "#old/t"})


class Cluster:
    """One cluster's records, for whoever asks for them with its name as the bootstrap server."""

    def __init__(self, **partitions: Kept) -> None:
        self.kept = {TopicPartition("t", int(name[1:])): each for name, each in partitions.items()}

    def held(self, topic_id: str) -> TopicsHeld:
        beginnings = Offsets({at: each.beginning for at, each in self.kept.items()})
        ends = Offsets({at: each.end for at, each in self.kept.items()})
        return TopicsHeld(beginnings, ends, {"t": topic_id}, datetime.now(timezone.utc))

    def partition(self, at: TopicPartition, _beginning: int, _end: int) -> Kept:
        return self.kept[at]

    def close(self) -> None:
        pass


def translation(monkeypatch: pytest.MonkeyPatch, old: Cluster, new: Cluster, position: Position) -> Translation:
    clusters, held = {"old:1": old, "new:1": new}, {"old:1": old.held("old"), "new:1": new.held("new")}
    pipeline = {
        "name": "p",
        "value": {"format": "json", "schema": "a INT"},
        "sinks": [{"type": "delta_append", "path": "t"}],
    }
    files = [
        parse({**pipeline, "source": {"topics": ["t"], "kafka": {"bootstrap.servers": name}}}) for name in clusters
    ]
    status = Status("p", "transactional", ["t"], position, position.offsets, held["old:1"])
    monkeypatch.setattr(translate, "Reader", lambda kafka: clusters[kafka["bootstrap.servers"]])
    monkeypatch.setattr(translate, "Pipeline", lambda _config, debug: SimpleNamespace(status=lambda: status))
    monkeypatch.setattr(
        translate, "KafkaSource", lambda _source: SimpleNamespace(look=lambda: held["new:1"], close=lambda: None)
    )
    return translate.translate(*files)[0]


def test_also_of_a_partition_that_was_never_read_everything_has_to_be_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    read, added = [(each, each) for each in range(60)], [(each, each) for each in range(100, 200)]
    old = Cluster(p0=partition(read), p1=partition(added))
    with pytest.raises(NotMirrored, match="t-1: the mirror doesn't have what is around offset 0"):
        translation(monkeypatch, old, Cluster(p0=partition(read), p1=partition(added[60:])), POSITION)
    found = translation(monkeypatch, old, Cluster(p0=partition(read[7:]), p1=partition(added, first=5)), POSITION)
    assert found == FOUND


def test_offsets_that_arent_known_to_be_of_the_old_topic_are_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (Cluster(p0=partition([(each, each) for each in range(since, 60)])) for since in (0, 7))
    assert translation(monkeypatch, old, new, POSITION) == FOUND
    for position, why in (
        (replace(POSITION, topics={}, source="rows"), "found from its rows"),
        (replace(POSITION, delivery="idempotent"), "offsets in its group"),
        (replace(POSITION, topics={"t": "new"}), "isn't where the table 't' was read from"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            translation(monkeypatch, old, new, position)


def test_what_the_run_would_refuse_is_refused_before(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    for sink in ("type: delta_upsert, key: a, merge: on_read", "type: delta_history, key: a"):
        file.write_text(f"""
name: p
source: {{topics: [t], kafka: {{bootstrap.servers: "127.0.0.1:1"}}}}
value: {{format: json, schema: "a INT"}}
sinks: [{{path: t, {sink}}}]
""")
        done = CliRunner().invoke(app, ["translate", str(file), str(file)])
        assert (done.exit_code, "source.on_recreated_topic" in done.output) == (2, True), done.output


def test_a_copy_in_another_folder_names_another_table(tmp_path: Path) -> None:
    """A relative path belongs to the folder of its file."""
    pipeline = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "a INT"},
        "sinks": [{"type": "delta_append", "path": "lake/t"}],
        "delivery": "manual_commit",
    }
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
        (folder / "p.yaml").write_text(json.dumps(pipeline))
    old, new = (load(folder / "p.yaml") for folder in folders)
    with pytest.raises(ConfigurationError, match="of different pipelines") as caught:
        translate.translate(old, new)
    assert "keep the copy in the same folder" in caught.value.hint
    (folders[1] / "p.yaml").write_text(
        json.dumps({**pipeline, "sinks": [{"type": "delta_append", "path": f"file:{folders[0]}/lake/t"}]})
    )
    with pytest.raises(ConfigurationError, match="Offsets are translated for one Delta table"):
        translate.translate(old, load(folders[1] / "p.yaml"))


def test_a_table_without_a_position_goes_on_by_no_translation() -> None:
    """It would read the mirror from its beginning, into a new table."""
    options = {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}}
    held = Cluster(p0=partition([(0, 0), (1, 1)])).held("new")
    moves = Source.model_validate({**options, "on_recreated_topic": {"translated": "offsets.json"}})
    with pytest.raises(ConfigurationError, match="the table of this file has no position") as caught:
        resumed(None, held, KafkaSource(moves), continue_on_data_loss=False)
    assert "remove the option" in caught.value.hint
    plain = KafkaSource(Source.model_validate(options))
    assert resumed(None, held, plain, continue_on_data_loss=False).offsets == Offsets({TopicPartition("t", 0): 0})


def test_a_file_that_isnt_one_is_told(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    with pytest.raises(ConfigurationError, match="can't be read"):
        translated(str(file))
    for text in ("", "[]", '{"lakelock": 1}', '{"lakelock": 1, "pipeline": "p", "topics": {"t": 1}}'):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match="isn't a file of `lakelock translate`"):
            translated(str(file))
    file.write_text(json.dumps({"lakelock": 2}))
    with pytest.raises(UnsupportedFormat, match="format 2"):
        translated(str(file))
