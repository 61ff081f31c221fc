import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    fields = json.loads(METADATA.to_json()) | {"lakelock": 2}
    with pytest.raises(UnsupportedFormat, match="format 2"):
        CommitMetadata.from_json(json.dumps(fields), pipeline="p")


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
