import dataclasses
import json
import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.audit.claim import metadata
from sinks.contract import _KEPT, Epoch, Folded, Position
from sinks.delta.fence import _CONF, USER_METADATA, merge_batch, merge_epoch, options
from sinks.delta.metadata import FORMAT, CommitMetadata, of_batch, pipeline_of
from sinks.delta.position import Commit, changes_rows, in_words, replaces
from sinks.delta.table import DeltaTable
from sinks.delta.upsert import DeltaUpsert
from sinks.delta.upsert_rule import UpsertRule
from sinks.errors import UnsupportedFormat
from sinks.event_time import Clock, Seen
from sinks.offsets import OffsetRange, Offsets, TopicPartition

METADATA = CommitMetadata(
    pipeline="p",
    position=Position(
        epoch=7,
        owner="o",
        offsets=Offsets({TopicPartition("flights", 0): 123}),
        topics={"flights": "id"},
        read_to=datetime(2026, 11, 1, tzinfo=timezone.utc),
        lost=(OffsetRange("flights", 0, 3, 9),),
    ),
    base=6,
)


def test_metadata_comes_back_as_it_was() -> None:
    assert CommitMetadata.from_json(METADATA.to_json(), pipeline="p") == METADATA


PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 99))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=5).map(Offsets)
TIMES = st.datetimes(timezones=st.just(timezone.utc))
CLOCKS = st.builds(Clock, so_far=st.dictionaries(PARTITIONS, st.builds(Seen, TIMES, TIMES, TIMES), max_size=2))


@given(
    st.builds(
        CommitMetadata,
        pipeline=st.just("p"),
        position=st.builds(
            Position,
            epoch=st.integers(0, 2**63 - 1),
            offsets=OFFSETS,
            topics=st.dictionaries(st.text(), st.text(), max_size=3),
            owner=st.text(),
            read_to=st.none() | TIMES,
            since=OFFSETS,
            lost=st.lists(st.builds(OffsetRange, st.text(), st.integers(0, 9), st.integers(0, 9), st.integers(9, 99)))
            .map(tuple),
            delivery=st.sampled_from(["transactional", "idempotent"]),
            clock=CLOCKS,
            batch=st.text(),
            leaders=st.dictionaries(PARTITIONS, st.integers(0, 99), max_size=3),
            began_at=st.none() | TIMES,
            gone=st.dictionaries(st.text(), st.none() | TIMES, max_size=3),
            missed=st.lists(st.builds(OffsetRange, st.text(), st.integers(0, 9), st.integers(0, 9), st.integers(9, 99)))
            .map(tuple),
            read_to_of=st.dictionaries(st.text(), st.none() | TIMES, max_size=2),
            tombstones_kept=st.dictionaries(
                st.text(), st.builds(timedelta, milliseconds=st.integers(0, 10**13)), max_size=2
            ),
        ),
        base=st.none() | st.integers(0, 2**63 - 1),
        table=st.text(),
    )
)  # fmt: skip
def test_every_field_of_the_position_comes_back_as_it_was(written: CommitMetadata) -> None:
    assert CommitMetadata.from_json(written.to_json(), pipeline="p") == written


def test_the_text_of_the_metadata_is_byte_for_byte_what_releases_wrote() -> None:
    assert METADATA.to_json() == (
        '{"lakelock":1,"pipeline":"p","epoch":7,"owner":"o","offsets":{"flights":{"0":123}},'
        '"topics":{"flights":"id"},"read_to":"2026-11-01T00:00:00+00:00","base":6,"since":{},'
        '"delivery":"transactional","lost":[["flights",0,3,9]]}'
    )


def test_the_group_with_the_offsets_comes_back() -> None:
    position = replace(METADATA.position, delivery="manual_commit", group="g1")
    kept = CommitMetadata.from_json(replace(METADATA, position=position).to_json(), pipeline="p")
    assert kept is not None
    assert kept.position.group == "g1"


def test_the_documented_fields_are_there() -> None:
    fields = json.loads(METADATA.to_json())
    assert fields["lakelock"] == 1
    assert fields["offsets"] == {"flights": {"0": 123}}
    assert fields["topics"] == {"flights": "id"}
    assert fields["read_to"] == "2026-11-01T00:00:00+00:00"


def test_a_field_of_a_later_version_is_ignored() -> None:
    fields = json.loads(METADATA.to_json()) | {"later": {"a": 1}}
    assert CommitMetadata.from_json(json.dumps(fields), pipeline="p") == METADATA


def test_a_newer_major_version_is_refused() -> None:
    fields = json.loads(METADATA.to_json()) | {"lakelock": FORMAT + 1}
    with pytest.raises(UnsupportedFormat, match=f"format {FORMAT + 1}"):
        CommitMetadata.from_json(json.dumps(fields), pipeline="p")


LATER = datetime(2026, 11, 2, tzinfo=timezone.utc)
EACH_FIELD: dict[str, Any] = {
    "owner": "o", "offsets": Offsets({TopicPartition("t", 0): 9}), "topics": {"t": "id"}, "read_to": LATER,
    "since": Offsets({TopicPartition("t", 0): 1}), "lost": (OffsetRange("t", 0, 3, 9),), "delivery": "idempotent",
    "group": "g", "batch": "b", "leaders": {TopicPartition("t", 0): 1}, "began_at": LATER,
    "missed": (OffsetRange("t", 0, 3, 9),), "read_to_of": {"t": None}, "gone": {"t": None},
    "tombstones_kept": {"t": timedelta(days=1)},
    "clock": Clock(so_far={TopicPartition("t", 0): Seen(LATER, LATER, LATER)}, watermark=LATER, late=1),
}  # fmt: skip
EACH_OF_CLOCK: dict[str, Any] = {
    "of_epoch": EACH_FIELD["clock"].so_far, "so_far": EACH_FIELD["clock"].so_far, "watermark": LATER, "late": 1,
    "column": "", "partly": "at", "retired": LATER,
}  # fmt: skip
OF_0_2 = {"owner", "offsets", "topics", "read_to", "since", "lost", "delivery", "clock", "batch", "leaders"}
CLOCK_OF_0_2 = {"of_epoch", "so_far", "watermark", "late"}


def test_a_commit_with_anything_that_0_2_would_not_carry_on_is_refused_by_it() -> None:
    """0.2 reads formats 1 and 2, and drops what it doesn't know from its next commit."""

    def format(metadata: CommitMetadata) -> int:
        assert CommitMetadata.from_json(metadata.to_json(), pipeline="p") == metadata
        return int(json.loads(metadata.to_json())["lakelock"])

    def holding(**fields: Any) -> CommitMetadata:
        return CommitMetadata.at("p", Position(7, **{"offsets": Offsets(), **fields}))

    assert {*EACH_FIELD} == {*_KEPT}
    assert {name for name, value in EACH_FIELD.items() if format(holding(**{name: value})) <= 2} == OF_0_2
    assert {*EACH_OF_CLOCK} == {each.name for each in dataclasses.fields(Clock)}
    clocks = {name: Clock(**{name: value}) for name, value in EACH_OF_CLOCK.items()}
    assert {name for name, clock in clocks.items() if format(holding(clock=clock)) <= 2} == CLOCK_OF_0_2
    assert format(replace(METADATA, table="id", folded=None)) == 1
    assert format(replace(METADATA, folded=Folded("id", 7))) > 2
    assert format(replace(METADATA, keeps_order=True)) > 2
    many = Offsets({TopicPartition("clicks", number): 10**12 + number for number in range(2_000)})
    assert format(holding(offsets=many)) == 2
    assert format(holding(offsets=many, missed=EACH_FIELD["missed"])) > 2, "packed as well"


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("sequenced", [True, False])
@pytest.mark.parametrize("letters", [True, False])
def test_a_table_that_keeps_deletes_or_sequences_is_not_for_0_2(
    sequenced: bool, soft: bool, letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "id", "id")
    table = DeltaTable(None, path="lake/t")  # type: ignore[arg-type]
    rule = UpsertRule(["k"], sequenced=sequenced, soft=soft)
    DeltaUpsert(table, None, rule=rule, keep_tombstones=letters)  # type: ignore[arg-type]
    epoch = Epoch.that_left(METADATA.position, pipeline="p")
    said = json.loads(options(table, epoch)["userMetadata"])
    assert (said["lakelock"] > 2) == (sequenced or (letters and not soft))


def test_of_ten_thousand_partitions_it_stays_small_and_comes_back_as_it_was() -> None:
    chance = random.Random(1)
    since = {TopicPartition("clicks", number): chance.randrange(10**9) for number in range(10_000)}
    # A topic whose partitions aren't all there, beside one whose are.
    since |= {TopicPartition("views", number): chance.randrange(10**9) for number in range(7, 50)}
    many = replace(
        METADATA,
        position=replace(
            METADATA.position,
            offsets=Offsets({at: offset + 10**12 + chance.randrange(10**8) for at, offset in since.items()}),
            since=Offsets(since),
        ),
    )
    text = many.to_json()
    assert len(text) < 150_000
    assert (json.loads(text)["lakelock"], json.loads(text)["epoch"]) == (2, 7)
    assert CommitMetadata.from_json(text, pipeline="p") == many
    audited = metadata(text, version=1, pipeline="p")
    assert audited is not None
    assert dict(audited.offsets) == dict(many.position.offsets)
    assert dict(audited.since or {}) == since
    for damaged in (text.replace('"packed":"', '"packed":"0'), text[: text.index('"packed"')] + '"packed":""}'):
        assert CommitMetadata.from_json(damaged, pipeline="p") is None
        assert metadata(damaged, version=1, pipeline="p") is None


def test_another_pipelines_metadata_is_not_ours() -> None:
    assert CommitMetadata.from_json(replace(METADATA, pipeline="q").to_json(), pipeline="p") is None


@given(
    st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner)).map(json.dumps)
    | st.fixed_dictionaries(
        {"lakelock": st.just(1), "pipeline": st.just("p")},
        optional={name: st.none() | st.integers() | st.text() | st.lists(st.integers()) for name in
                  ("epoch", "owner", "offsets", "topics", "read_to", "lost", "began_at", "missed", "read_to_of",
                   "tombstones_kept")},
    ).map(json.dumps)
)  # fmt: skip
def test_text_that_is_no_metadata_is_nobodys(text: str) -> None:
    assert CommitMetadata.from_json(text, pipeline="p") is None or "offsets" in text


def test_no_metadata_is_nobodys() -> None:
    assert CommitMetadata.from_json(None, pipeline="p") is None


def test_a_batchs_commit_is_nobody_elses_change_and_says_nothing_of_a_position() -> None:
    said = of_batch("p")
    commit = Commit(3, datetime(2026, 11, 1, tzinfo=timezone.utc), "MERGE", {}, said)
    assert not changes_rows(commit)
    assert changes_rows(replace(commit, user_metadata=None)), "a person's"
    assert CommitMetadata.from_json(said, pipeline="p") is None
    assert pipeline_of(said) is None, "a rewind can't tell what it takes back of whom"
    assert metadata(said, version=3, pipeline="p") is None


AN_OVERWRITE: dict[str, str | None] = {"mode": "Overwrite"}


@pytest.mark.parametrize(
    ("parameters", "partly"),
    [
        (AN_OVERWRITE, False),
        ({**AN_OVERWRITE, "predicate": "(n = 0)"}, True),
        ({**AN_OVERWRITE, "isDynamicPartitionOverwrite": "true"}, True),
    ],
)
def test_an_overwrite_replaces_the_table_or_changes_some_of_its_rows(
    parameters: dict[str, str | None], partly: bool
) -> None:
    commit = Commit(3, datetime(2026, 11, 1, tzinfo=timezone.utc), "WRITE", parameters, None)
    assert (replaces(commit), changes_rows(commit)) == (not partly, partly)
    assert in_words(commit).startswith(f"version 3, WRITE (overwrite{' of some rows' if partly else ''}) at")
    appended = replace(commit, parameters={"mode": "Append", "predicate": "(n = 0)"})
    assert not replaces(appended)
    assert not changes_rows(appended)
    assert not changes_rows(replace(commit, user_metadata=of_batch("p")))


def test_no_later_commit_of_the_session_says_what_a_batchs_says() -> None:
    settings: dict[str, str] = {}
    _merge_twice(settings)
    assert not settings


def test_after_a_merge_a_batch_function_s_own_settings_are_there_again() -> None:
    """Its own statements would not be skipped otherwise, when Spark repeats the batch."""
    theirs = dict.fromkeys(_CONF.values(), "theirs")
    settings = dict(theirs)
    _merge_twice(settings)
    assert settings == theirs
    sql: list[dict[str, str]] = []
    epoch = Epoch.that_left(METADATA.position, pipeline="p")
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, unset=settings.pop)
    spark = SimpleNamespace(conf=conf, sql=lambda text: SimpleNamespace(collect=lambda: sql.append(dict(settings))))
    table: Any = SimpleNamespace(spark=spark, id="t", keeps_order=False)
    rows: Any = SimpleNamespace(createOrReplaceTempView=lambda _: None)
    merge_epoch(table, epoch, rows, "v", "MERGE")
    assert [each[_CONF["txnVersion"]] for each in sql] == [str(epoch.number)]
    assert settings == theirs


def _merge_twice(settings: dict[str, str]) -> None:
    seen: list[str | None] = []

    def sql(_: str) -> Any:
        seen.append(settings.get(USER_METADATA))
        if len(seen) == 2:
            raise ValueError("a conflict")
        return SimpleNamespace(first=lambda: None)

    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, unset=settings.pop)
    table: Any = SimpleNamespace(spark=SimpleNamespace(conf=conf, sql=sql))
    merge_batch(table, "p", "MERGE")
    with pytest.raises(ValueError, match="a conflict"):
        merge_batch(table, "p", "MERGE")
    assert seen == [of_batch("p")] * 2
