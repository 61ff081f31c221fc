"""A table that has next to no rows of what Kafka no longer holds."""

from __future__ import annotations

from typing import Any

import pytest

from connector.audit.claim import At, Bounds, Claim, Range, unchecked
from connector.audit.forgotten import rows_missing
from connector.audit.verdict import Audit, partitions
from connector.config import PipelineConfig, parse

P0, P1 = At("t", 0), At("t", 1)
GONE = 1_000_000
LETTERS = {"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/letters"}}


def pipeline(type: str = "delta_append", **changes: Any) -> PipelineConfig:
    sink: dict[str, Any] = {"type": type, "path": "lake/t"}
    if type == "delta_upsert":
        sink["key"] = "k"
    file = {
        "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
        "value": {"format": "json", "schema": "k STRING"}, "sinks": [sink],
    }  # fmt: skip
    return parse({**file, **changes})


def bounds(at: At = P0, gone: int = GONE, *, compacted: bool = False, lost: tuple[Range, ...] = ()) -> Bounds:
    return Bounds(at, 0, gone, gone + 1, gone + 1, compacted, lost)


def verdict(config: PipelineConfig, cut: list[Bounds], **rows: int) -> Audit:
    """One record of each partition is left, and confirmed. ``rows``: counts of the first partition."""
    places = {"topic": "t", "partition": 0, "offset": 0, "key": None}
    first = [{"kind": kind, "topic": "t", "partition": 0, "count": number, "first": places}
             for kind, number in {"expected": 1, "found": 1, **rows}.items()]  # fmt: skip
    claim = Claim("transactional", {part.at: part.since for part in cut}, {part.at: part.end for part in cut})
    parts = partitions(first, claim)
    unknown = tuple(rows_missing(config, cut, parts))
    return Audit("p", "lake/t", 3, Claim("transactional", claim.since, claim.offsets, unknown=unknown), parts,
                 unchecked(cut))  # fmt: skip


@pytest.mark.parametrize("left", [0, 1, 999, GONE // 10 - 1])
def test_a_table_without_the_rows_of_what_kafka_has_forgotten_is_not_exact(left: int) -> None:
    found = verdict(pipeline(), [bounds()], unchecked=left)
    assert found.verdict.exit_code == 4
    assert f"Of 1,000,000 offsets of t-0 that Kafka no longer holds the table has {left:,} row" in str(found)


def test_no_other_partition_hides_that_one_has_lost_its_rows() -> None:
    found = verdict(pipeline(), [bounds(gone=1000), bounds(P1, 500)], unchecked=1000)
    assert "Of 500 offsets of t-1 that" in str(found)


def test_most_offsets_may_be_those_of_transactions() -> None:
    for config in (pipeline(), pipeline(steps=[{"drop": ["k"]}])):
        for left in (100, 500, 999):
            assert verdict(config, [bounds(gone=1000)], unchecked=left).ok


def test_dead_letters_and_ranges_that_the_pipeline_reported_lost_account_for_their_offsets() -> None:
    assert verdict(pipeline(**LETTERS), [bounds(gone=1000)], letters_unchecked=990).ok
    assert verdict(pipeline(), [bounds(gone=1000, lost=(Range("t", 0, 0, 1000),))]).ok


@pytest.mark.parametrize(
    "config",
    [
        pipeline("delta_upsert"),
        pipeline(transform="SELECT * FROM records WHERE k = 'a'"),
        pipeline(steps=[{"filter": "k = 'a'"}]),
        pipeline(value={"format": "debezium", "schema": "k STRING"}),
        pipeline(on_bad_record="dead_letter", dead_letters={"topic": "letters"}),
    ],
    ids=["upsert", "transform", "filter", "debezium", "letters in a topic"],
)
def test_where_a_record_needs_no_row_the_number_of_rows_says_nothing(config: PipelineConfig) -> None:
    assert verdict(config, [bounds()]).ok


def test_what_compaction_has_removed_may_never_have_been_read() -> None:
    assert verdict(pipeline(), [bounds(compacted=True)]).ok
