import json
import random
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.audit.claim import metadata
from sinks.delta.metadata import CommitMetadata
from sinks.errors import UnsupportedFormat
from sinks.offsets import OffsetRange, Offsets, TopicPartition

METADATA = CommitMetadata(
    pipeline="p",
    epoch=7,
    owner="o",
    offsets=Offsets({TopicPartition("flights", 0): 123}),
    topics={"flights": "id"},
    read_to=datetime(2026, 11, 1, tzinfo=timezone.utc),
    base=6,
    lost=(OffsetRange("flights", 0, 3, 9),),
)


def test_metadata_comes_back_as_it_was() -> None:
    assert CommitMetadata.from_json(METADATA.to_json(), pipeline="p") == METADATA


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
    fields = json.loads(METADATA.to_json()) | {"lakelock": 3}
    with pytest.raises(UnsupportedFormat, match="format 3"):
        CommitMetadata.from_json(json.dumps(fields), pipeline="p")


def test_of_ten_thousand_partitions_it_stays_small_and_comes_back_as_it_was() -> None:
    chance = random.Random(1)
    since = {TopicPartition("clicks", number): chance.randrange(10**9) for number in range(10_000)}
    # A topic whose partitions aren't all there, beside one whose are.
    since |= {TopicPartition("views", number): chance.randrange(10**9) for number in range(7, 50)}
    many = replace(
        METADATA,
        offsets=Offsets({at: offset + 10**12 + chance.randrange(10**8) for at, offset in since.items()}),
        since=Offsets(since),
    )
    text = many.to_json()
    assert len(text) < 150_000
    assert (json.loads(text)["lakelock"], json.loads(text)["epoch"]) == (2, 7)
    assert CommitMetadata.from_json(text, pipeline="p") == many
    audited = metadata(text, version=1, pipeline="p")
    assert audited is not None
    assert dict(audited.offsets) == dict(many.offsets)
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
                  ("epoch", "owner", "offsets", "topics", "read_to", "lost")},
    ).map(json.dumps)
)  # fmt: skip
def test_text_that_is_no_metadata_is_nobodys(text: str) -> None:
    assert CommitMetadata.from_json(text, pipeline="p") is None or "offsets" in text


def test_no_metadata_is_nobodys() -> None:
    assert CommitMetadata.from_json(None, pipeline="p") is None
