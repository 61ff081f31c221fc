"""What a table claims, what of it Kafka can show, and the verdict: decided without Spark or Kafka."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import types as T
from rich.console import Console

from connector.audit.claim import (
    At,
    Bounds,
    Claim,
    Extent,
    Held,
    Metadata,
    Range,
    Segment,
    bounds,
    claimed,
    lineage,
    metadata,
    not_from_earliest,
    unchecked,
)
from connector.audit.exact_json import read_as
from connector.audit.foreign import Foreign, hidden, rows_taken, takes_away
from connector.audit.formats import forms
from connector.audit.gone import not_compared, unless_others
from connector.audit.letters import late_letters, named_sink
from connector.audit.notes import unnamed
from connector.audit.on_read import OnRead
from connector.audit.records import to_read
from connector.audit.routes import behind, held
from connector.audit.rows import Earlier
from connector.audit.topic_ends import refuse_recreated
from connector.audit.verdict import COUNTS, FAULTS, Audit, partitions, show
from connector.config import PipelineConfig, parse
from sinks.errors import ConfigurationError, RegistryUnreachable, TopicRecreated, UnsupportedFormat

P0, P1 = At("t", 0), At("t", 1)


def meta(**changes: Any) -> Metadata:
    fields = {
        "version": 4, "epoch": 3, "offsets": {P0: 10, P1: 5}, "since": {P0: 2}, "topics": {"t": "id"}, "lost": (),
        "delivery": "transactional",
    }  # fmt: skip
    return Metadata(**{**fields, **changes})


def claim_of(found: Metadata | None, **changes: Any) -> tuple[Claim, list[str]]:
    asked = {
        "delivery": "transactional", "partitions": [P0, P1], "committed": {}, "rows": lambda: {},
        "older_version": False, "from_earliest": True,
    }  # fmt: skip
    return claimed(found, **{**asked, **changes})


def never() -> dict[At, Extent]:
    raise AssertionError("the rows were read without need")


@pytest.mark.parametrize(
    ("version", "restored", "expected"),
    [
        (5, {}, [(-1, 5)]),
        (5, {4: 1}, [(4, 5), (-1, 1)]),
        (3, {4: 1}, [(-1, 3)]),
        (9, {4: 1, 8: 5}, [(8, 9), (4, 5), (-1, 1)]),
        (9, {4: 1, 8: 3}, [(8, 9), (-1, 3)]),
        (4, {4: 0}, [(4, 4), (-1, 0)]),
    ],
)
def test_the_versions_that_led_to_one_follow_restores(version: int, restored: dict, expected: list) -> None:
    assert lineage(version, restored) == [Segment(*segment) for segment in expected]


def test_metadata_is_read_and_a_newer_format_refused() -> None:
    text = json.dumps(
        {"lakelock": 1, "pipeline": "p", "epoch": 3, "offsets": {"t": {"0": 9}}, "lost": [["t", 0, 2, 4]], "new": 1,
         "missed": [["t", 0, 5, 9]]}
    )  # fmt: skip
    found = metadata(text, version=7, pipeline="p")
    missed = (Range("t", 0, 5, 9),)
    assert found == Metadata(7, 3, {P0: 9}, None, {}, (Range("t", 0, 2, 4),), "transactional", missed=missed)
    for broken in ("", "[]", '{"lakelock": 1}', '{"lakelock": 1, "epoch": 1, "offsets": 5}'):
        assert metadata(broken, version=7, pipeline="p") is None
    with pytest.raises(UnsupportedFormat, match="in format 4"):
        metadata(text.replace(": 1,", ": 4,", 1), version=7, pipeline="p")


def test_rows_from_before_what_was_read_too_late_may_have_been_deleted() -> None:
    missed = (Range("t", 0, 2, 4), Range("t", 0, 7, 9))
    claim, _ = claim_of(meta(missed=missed), rows=never)
    cut = bounds(claim, Held({P0: 0, P1: 0}, {P0: 10, P1: 6}, {"t": "id"}, frozenset({"t"})))
    assert [(part.at, part.missed, part.to_end) for part in cut] == [(P0, 7, True), (P1, 0, False)]


def test_what_was_missed_stays_doubtful_when_the_topic_is_gone_or_not_compacted_any_more() -> None:
    """The commit says that it was compacted. After a move, or once its policy is delete, Kafka doesn't."""
    old, older = At("#old/t", 0), At("#older/t", 3)
    ends = {old: 500, older: 40, P0: 90, At("#old/u", 0): 7}
    since = dict.fromkeys(ends, 0)

    def doubted(*missed: Range) -> dict[At, int]:
        cut = bounds(Claim("transactional", since, ends, missed=missed), Held({P0: 80}, {P0: 90}, {"t": "id"}))
        assert all(part.compacted == (part.missed > 0) for part in cut)
        return {part.at: part.missed for part in cut if part.compacted}

    assert doubted() == {}
    assert doubted(Range("t", 0, 60, 90)) == {P0: 60, old: 500, older: 40}, "it has deletes of the keys of the old ones"
    assert doubted(Range(*old, 300, 500)) == {old: 300, older: 40}


def test_a_transactional_claim_is_what_the_commit_says() -> None:
    claim, notes = claim_of(meta(), committed={P0: 99}, rows=never, older_version=True)
    assert (claim.since, claim.offsets, claim.commits_later, notes) == ({P0: 2, P1: 0}, {P0: 10, P1: 5}, False, [])


def test_with_a_consumer_delivery_the_groups_offsets_end_the_claim_but_never_before_the_commit() -> None:
    claim, notes = claim_of(meta(delivery="manual_commit"), committed={P0: 30, P1: 1}, rows=never)
    assert (claim.offsets, claim.commits_later, notes, claim.unknown) == ({P0: 30, P1: 5}, True, [], ())


@pytest.mark.parametrize("delivery", ["manual_commit", "auto_commit", "idempotent"])
def test_where_the_group_has_lost_its_offsets_the_rows_end_the_claim_and_nothing_is_exact(delivery: str) -> None:
    """Only the group knew how far the table goes: its commit has the offsets of the beginning."""
    handed_over = meta(delivery=delivery, since={P0: 0, P1: 0}, offsets={P0: 0, P1: 0})
    rows = {P0: Extent(0, 1000), P1: Extent(0, 50)}
    claim, _ = claim_of(handed_over, rows=lambda: rows)
    assert claim.offsets == {P0: 1000, P1: 50}
    assert claim.unknown[0].startswith("The consumer group has no offset of t-0, t-1 any more, and only it knew")
    claim, _ = claim_of(handed_over, rows=lambda: rows, committed={P0: 600})
    assert claim.offsets == {P0: 600, P1: 50}
    assert "no offset of t-1 any more" in claim.unknown[0]


def test_a_partition_of_which_the_group_never_had_an_offset_claims_its_rows() -> None:
    """It was added since: its first rows are written before the group gets its offset."""
    handed_over = meta(delivery="manual_commit", since={P0: 0}, offsets={P0: 0})
    claim, _ = claim_of(handed_over, rows=lambda: {P1: Extent(0, 50)}, committed={P0: 600})
    assert (claim.offsets, claim.unknown) == ({P0: 600, P1: 50}, ())


def test_for_an_older_version_of_a_consumer_delivery_the_rows_end_the_claim() -> None:
    rows = {P0: Extent(2, 20)}
    claim, notes = claim_of(meta(delivery="idempotent"), committed={P0: 30}, rows=lambda: rows, older_version=True)
    assert claim.offsets == {P0: 20, P1: 5}
    assert "older version" in notes[0]


@pytest.mark.parametrize(("from_earliest", "since"), [(True, 0), (False, 7)])
def test_without_a_commit_the_rows_tell(from_earliest: bool, since: int) -> None:
    claim, notes = claim_of(None, rows=lambda: {P0: Extent(7, 20)}, from_earliest=from_earliest)
    assert (claim.since, claim.offsets) == ({P0: since, P1: 0}, {P0: 20, P1: 0})
    assert len(notes) == 3
    assert claim.unknown == (() if from_earliest else ("Where the pipeline began isn't known.",))


def test_where_only_rows_end_the_claim_records_behind_it_count() -> None:
    """A delete after the last row leaves no row: the table claims it, and only the cleaned commit said so."""
    ends = {
        (found is not None, delivery): claim_of(found, delivery=delivery, committed=committed)[0]
        for found, delivery, committed in (
            (None, "transactional", {}), (meta(), "transactional", {}), (None, "manual_commit", {P0: 3})
        )
    }  # fmt: skip
    assert [(claim.by_rows, claim.commits_later) for claim in ends.values()] == [
        (True, True), (False, False), (False, True)
    ]  # fmt: skip


def test_what_kafka_no_longer_holds_is_cut_off_and_named() -> None:
    claim = Claim("transactional", {P0: 2, P1: 0}, {P0: 20, P1: 9}, (Range("t", 0, 4, 6),))
    cut = bounds(claim, Held({P0: 10, P1: 0}, {P0: 25, P1: 8}, {"t": "id"}, frozenset({"t"})))
    assert cut == [
        Bounds(P0, 2, 10, 20, 20, True, (Range("t", 0, 4, 6),)),
        Bounds(P1, 0, 0, 8, 9, True, ()),
    ]
    assert unchecked(cut) == [("t", 0, 2, 4), ("t", 0, 6, 10), ("t", 1, 8, 9)]


@pytest.mark.parametrize(
    ("lost", "expected"),
    [([(2, 10)], []), ([(0, 3)], [(3, 10)]), ([(8, 30)], [(2, 8)]), ([(3, 4), (4, 6)], [(2, 3), (6, 10)])],
)
def test_what_the_pipeline_reported_lost_is_not_unchecked(lost: list, expected: list) -> None:
    cut = [Bounds(P0, 2, 10, 20, 20, False, tuple(Range("t", 0, *gap) for gap in lost))]
    assert [gap[2:] for gap in unchecked(cut)] == expected


def test_a_partition_that_kafka_no_longer_has_is_unchecked_and_one_beyond_retention_too() -> None:
    claim = Claim("transactional", {P0: 2, P1: 0}, {P0: 20, P1: 9})
    cut = bounds(claim, Held({P0: 50}, {P0: 60}, {}))
    assert unchecked(cut) == [("t", 0, 2, 20), ("t", 1, 0, 9)]
    assert all(part.begin == part.stop for part in cut)


def test_what_follows_the_claim_is_read_from_where_kafka_begins() -> None:
    """Retention may have passed the offsets that a group has committed. Reading from these would fail every time."""
    claim = Claim("manual_commit", {P0: 0, P1: 0}, {P0: 100, P1: 100})
    held = Held({P0: 200, P1: 40}, {P0: 300, P1: 300}, {"t": "id"})
    cut = bounds(claim, held)
    assert to_read(cut, held) == ({P0: 200, P1: 40}, {P0: 300, P1: 300})
    assert to_read(cut) == ({P1: 40}, {P1: 100})


def test_a_topic_made_again_is_refused() -> None:
    refuse_recreated(meta(), Held({}, {}, {"t": "id"}))
    refuse_recreated(None, Held({}, {}, {"t": "new"}))
    with pytest.raises(TopicRecreated) as caught:
        refuse_recreated(meta(), Held({}, {}, {"t": "new"}))
    assert caught.value.hint
    assert caught.value.exit_code == 1


def counted(kind: str, count: int, offset: int | None = None, *, at: At | None = P0, key: str | None = None) -> dict:
    first = {"topic": at and at.topic, "partition": at and at.partition, "offset": offset, "key": key}
    return {"kind": kind, "topic": at and at.topic, "partition": at and at.partition, "count": count, "first": first}


def verdict(*found: dict, gone: tuple[Range, ...] = (), unknown: tuple[str, ...] = ()) -> Audit:
    claim = Claim("transactional", {P0: 2, P1: 0}, {P0: 400_000, P1: 9}, unknown=unknown)
    return Audit("p", "lake/t", 3, claim, partitions(found, claim), gone, ("a note",))


def test_an_exact_table_has_one_line_that_says_so() -> None:
    exact = verdict(counted("expected", 336_776), counted("found", 336_776), counted("ahead", 3, 400_000))
    assert exact.ok
    assert str(exact) == "exact: 336,776 expected, 336,776 found; 3 ahead"
    part = verdict(counted("expected", 1), counted("found", 1), gone=(Range("t", 0, 0, 1000),))
    assert str(part) == "exact: 1 expected, 1 found; 1,000 offsets could not be checked"


def test_what_nothing_shows_is_unknown_and_what_is_off_is_said_all_the_same() -> None:
    found = counted("expected", 1), counted("found", 1)
    reason = "Where the pipeline began isn't known."
    unknown = verdict(*found, unknown=(reason,))
    assert (unknown.ok, unknown.verdict.exit_code) == (False, 4)
    assert str(unknown) == f"UNKNOWN: {reason} 1 expected, 1 found"
    assert unknown.to_dict()["unknown"] == [reason]
    assert verdict(*found, counted("lost", 1, 5), unknown=(reason,)).verdict.exit_code == 1
    nothing_left = verdict(gone=(Range("t", 0, 2, 400_000), Range("t", 1, 0, 9)))
    assert (nothing_left.verdict.value, len(nothing_left.unknown)) == ("unknown", 1)


def test_what_was_not_compared_is_not_called_exact() -> None:
    sizes = counted("expected", 2), counted("found", 2)
    for kind, sentence in (
        ("doubtful", "1 row is missing or not as expected. Records that weren't compared may explain this"),
        ("moved", "1 key has records in several partitions. Without sequence_by, or with one of _offset, offsets are"),
        ("unreadable", "1 record can't be read as the pipeline file says, so what they made wasn't compared."),
    ):
        found = verdict(*sizes, counted(kind, 1, 5))
        assert (found.verdict.exit_code, found.unknown[0].startswith(sentence)) == (4, True)
        assert str(found).endswith(f"2 expected, 2 found; 1 {kind}")
    gone = (Range("t", 0, 2, 1000),)
    assert str(verdict(*sizes, counted("unchecked", 998, 5), gone=gone)) == (
        "exact: 2 expected, 2 found; 998 rows unchecked; 998 offsets could not be checked"
    )
    for little in (
        verdict(counted("found", 1), counted("unchecked", 1000, 5), gone=gone),
        verdict(counted("unchecked", 1, 5)),
        verdict(gone=gone),
    ):
        assert little.unknown[0].startswith("Next to nothing was compared")


def test_where_more_lies_ahead_of_the_groups_offsets_than_was_compared_nothing_is_exact() -> None:
    """All groups of a live aggregate may be ahead, and a group whose offsets were reset leaves all rows ahead."""
    few = verdict(counted("expected", 10), counted("found", 10), counted("ahead", 990, 10))
    assert few.verdict.exit_code == 4
    assert few.unknown[0].startswith(
        "Less was compared than lies ahead of the consumer group's offsets: 10 of 1,000 rows."
    )
    assert verdict(counted("ahead", 7, at=None)).verdict.exit_code == 4
    assert verdict(counted("expected", 10), counted("found", 10), counted("ahead", 10, 10)).ok


def test_counts_of_one_kind_and_partition_add_up() -> None:
    found = verdict(counted("unreadable", 2, 5), counted("unreadable", 1, 3))
    assert (found.totals["unreadable"], found.first["unreadable"].offset) == (3, 5)


@pytest.mark.parametrize(
    ("name", "places", "expected"),
    [
        ("lake/a", ["lake/a", "lake/b"], "lake/a"),
        ("lake/a", ["/home/me/lake/a", "/home/me/lake/b"], "/home/me/lake/a"),
        ("s3a://old/lake/x/t/", ["s3a://new/lake/x/t", "s3a://new/lake/y/t"], "s3a://new/lake/x/t"),
        ("main.lake.a", ["test.lake.a", "test.lake.b"], "test.lake.a"),
        ("lake/c", ["lake/a", "lake/b"], None),
        ("t", ["x/t", "y/t"], None),
    ],
)
def test_a_letter_names_its_sink_also_after_a_move(name: str, places: list[str], expected: str | None) -> None:
    assert named_sink(name, places) == expected


def test_letters_of_late_records_are_those_of_the_one_sink_with_a_window_whatever_they_name() -> None:
    """The table may have been moved and renamed: then nothing in a letter tells that it is this sink's."""
    assert named_sink("/data/hourly", ["/lake/hourly_delays", "/lake/raw"]) is None

    header = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
    kinds = {
        **dict.fromkeys(("pipeline", "sink", "reason", "_topic"), T.StringType()),
        **dict.fromkeys(("key", "value"), T.BinaryType()),
        "headers": T.ArrayType(header), "_partition": T.IntegerType(), "_offset": T.LongType(),
        "_timestamp": T.TimestampType(),
    }  # fmt: skip

    class Letters:
        schema = T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])

    letters: Any = Letters()
    assert late_letters(letters) is letters


def test_what_was_added_later_is_claimed_from_zero_whatever_a_commit_says() -> None:
    """A pipeline that skipped the first records of a partition must not be believed that it began there."""
    first = meta(epoch=1, since={P0: 2}, offsets={P0: 3})
    claim, _ = claim_of(meta(since={P0: 2, P1: 4}), first=first)
    assert claim.since == {P0: 2, P1: 0}
    assert "t-1 was added after the first epoch and is in the table from offset 4 on" in claim.unknown[0]
    for backed in (first, meta(epoch=7, since={P0: 2}), None, meta(epoch=1, topics={"t": "another"}, since={P0: 2})):
        kept, _ = claim_of(meta(since={P0: 2, P1: 4} if backed is not first else {P0: 2}), first=backed)
        assert (kept.since[P0], kept.unknown) == (2, ())


def test_a_claim_that_begins_later_than_the_file_says_is_told() -> None:
    """The file's start may have changed since, and a replay begins where it was told to: so that is no fault."""
    began = meta(since={P0: 100, P1: 0}, offsets={P0: 400, P1: 5})
    claim, _ = claim_of(began)
    assert (claim.since, claim.unknown) == ({P0: 100, P1: 0}, ())
    assert not_from_earliest(began, claim, {P0: 0, P1: 0}) == [
        "The table's commits say that the pipeline began later than the earliest records (t-0 at 100), although the "
        "file says start: earliest. Kafka holds 100 offsets from before that, which are not part of the claim."
    ]
    assert not_from_earliest(began, claim, {P0: 100, P1: 3}) == not_from_earliest(None, claim, {P0: 0, P1: 0}) == []


def test_a_table_without_commits_and_rows_of_the_pipeline_claims_nothing() -> None:
    claim, notes = claim_of(None)
    assert claim.unknown == ("Nothing says that this pipeline has written the table.",)
    assert notes == ["The table's history has no commit of this pipeline, and the table no rows of its topics."]


def test_epochs_that_only_a_change_log_has_are_named() -> None:
    assert [OnRead(12, logged).notes for logged in (None, 12, 11)] == [[], [], []]
    compared = (
        "The table is merged on read, and was compared as of its last fold, at epoch 12. The change log has epochs "
    )
    assert OnRead(12, 61).notes == [f"{compared}13 to 61 beside it, which were not compared."]
    assert "has epoch 1 beside it, which was not" in OnRead(0, 1).notes[0]
    assert OnRead(12, 61, counts=False).notes[0].startswith(f"{compared}13 to 61, which no longer count: ")


@pytest.mark.parametrize(
    ("stands", "has"),
    [
        (OnRead(2, 10), 10),
        (OnRead(10, None), 10),
        (OnRead(10, 9, counts=False), 10),
        (OnRead(2, None), 2),
        (OnRead(2, 10, counts=False), 2),
    ],
)
def test_a_table_without_the_epochs_that_the_coordinator_log_gives_it_is_not_exact(stands: OnRead, has: int) -> None:
    assert stands.lacks(0) == stands.lacks(has) == []
    (why,) = stands.lacks(has + 1)
    assert f"the table has epoch {has + 1}, and with its change log it has none after epoch {has}:" in why


def test_the_last_decision_says_which_epoch_each_table_has() -> None:
    decided = {
        "rows": json.dumps({"rows": 3, "receipt": {}, "after": 4}),
        "passed by": json.dumps({"rows": 0, "receipt": {}, "after": 4}),
        "restored": json.dumps({"rows": 0, "receipt": {"restores": "3"}, "after": 4}),
        "of several sinks": json.dumps({"rows": 0, "receipt": {}}),
    }
    assert held(9, 9, decided) == {"rows": 9, "passed by": 4, "restored": 9, "of several sinks": 9}
    assert held(8, 9, decided) == {"rows": 4, "passed by": 4, "restored": 4, "of several sinks": 8}, "still in doubt"


def test_a_partition_that_no_commit_names_is_named() -> None:
    p2 = At("t", 2)
    held = Held({P0: 0, P1: 0, p2: 3}, {P0: 10, P1: 5, p2: 10}, {"t": "id"})
    claim, _ = claim_of(meta(), partitions=[P0, P1, p2])
    (note,) = unnamed(meta(), claim, held, {})
    assert note.startswith("No commit of the pipeline names t-2, where Kafka holds 7 offsets: ")
    assert unnamed(meta(), claim, held, {p2: 0}) == [], "it was empty when the log's epoch was made"
    assert unnamed(meta(offsets={P0: 10, P1: 5, p2: 0}), claim, held, {}) == []
    assert unnamed(meta(), claim, replace(held, ends={**held.ends, p2: 3}), {}) == [], "it is empty"
    moving = meta(delivery="manual_commit")
    claim, _ = claim_of(moving, partitions=[P0, P1, p2], committed={P0: 10, P1: 5, p2: 10})
    assert unnamed(moving, claim, held, {}) == [], "the consumer group names it"


def test_a_table_that_the_log_does_not_know_is_behind_if_it_claims_less() -> None:
    claim = Claim("transactional", {P0: 0, P1: 0}, {P0: 10, P1: 5})
    assert not behind(claim, meta())
    assert not behind(claim, meta(offsets={P0: 9, At("gone", 0): 7})), "a topic that has left the pipeline"
    assert behind(claim, meta(offsets={P0: 10, P1: 6}))


def test_records_that_are_set_aside_are_counted_beside_the_rows() -> None:
    sizes = counted("expected", 990), counted("found", 990), counted("records", 1000)
    exact = verdict(*sizes, counted("letters", 10), counted("letters_unconfirmed", 2, 5))
    assert exact.ok
    assert str(exact) == "exact: 990 expected, 990 found; 1,000 records = 990 rows + 10 dead letters"
    lost = verdict(*sizes, counted("letters", 9), counted("letters_lost", 1, 5))
    assert not lost.ok
    assert str(lost) == "NOT EXACT: letters lost 1; 990 expected, 990 found; 1,000 records, 9 dead letters"


def test_rows_that_the_table_held_before_are_counted_and_no_fault() -> None:
    exact = verdict(counted("expected", 3), counted("found", 3), counted("held_before", 2, at=None))
    assert exact.ok
    assert str(exact) == "exact: 3 expected, 3 found; 2 held before"


def test_rows_from_before_that_somebody_else_may_have_removed_are_no_fault_and_named() -> None:
    counts = [counted("found", 3), counted("gone_before", 2, at=None)]
    assert unless_others(counts, ()) == (counts, ())
    assert not verdict(*counts).ok
    for rows in (None, 2, 9):
        left, notes = unless_others(counts, [Foreign(7, "", rows)])
        assert left == counts[:1]
        assert notes == [
            "2 rows that the table held before the pipeline's first epoch are gone or changed. A commit of somebody "
            "else's may have done that."
        ]


def test_a_commit_of_others_explains_no_more_rows_than_it_has_removed() -> None:
    counts = [counted("found", 3), counted("gone_before", 9000, at=None)]
    left, notes = unless_others(counts, [Foreign(7, "", 1), Foreign(8, "", 0), Foreign(9, "", 2)])
    assert left == [counts[0], counted("gone_before", 8997, at=None)]
    assert notes[0].startswith("3 rows that")
    assert unless_others(counts, [Foreign(8, "", 0)]) == (counts, ())


@pytest.mark.parametrize(
    ("taken", "lost", "off"),
    [((), 0, 0), ((0,), 0, 0), ((3,), 3, 0), ((2, 1), 3, 0), ((3,), 2, 1), ((None,), 9, 1), ((3, None), 9, 2)],
)
def test_what_others_removed_and_nothing_shows_is_not_exact(taken: tuple[int | None, ...], lost: int, off: int) -> None:
    foreign = [Foreign(version, "", rows) for version, rows in enumerate(taken, 7)]
    why = hidden(foreign, [counted("found", 5), counted("lost", lost)])
    assert len(why) == min(off, 1)
    if off:
        named = "Version 7 is" if off == 1 else "Versions 7, 8 are"
        assert why[0].startswith(f"{named} somebody else's, and removed or changed ")
        assert f"shows {lost} of them" in why[0]
        assert "--version 6" in why[0]


@pytest.mark.parametrize(
    ("operation", "metrics", "rows"),
    [
        ("DELETE", {"numDeletedRows": "5", "numCopiedRows": "9"}, 5),
        ("DELETE", {"numDeletedRows": "0"}, 0),
        ("DELETE", {"numRemovedFiles": "1"}, None),  # of a whole partition
        ("UPDATE", {"numUpdatedRows": "4"}, 4),
        ("MERGE", {"numTargetRowsDeleted": "1", "numTargetRowsUpdated": "2", "numTargetRowsInserted": "7"}, 3),
        ("MERGE", {"numTargetRowsDeleted": "1"}, None),
        ("WRITE", {"numOutputRows": "3"}, None),
        ("DROP COLUMNS", {}, None),
    ],
)
def test_how_many_rows_a_commit_of_others_has_taken(operation: str, metrics: dict[str, str], rows: int | None) -> None:
    assert rows_taken(operation, metrics) == rows


@pytest.mark.parametrize(
    ("operation", "parameters", "takes"),
    [
        ("DELETE", {}, True),
        ("TRUNCATE", {}, True),
        ("CLONE", {"source": "x"}, True),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, True),
        ("WRITE", {"mode": "Overwrite"}, True),
        ("WRITE", {"mode": "Append"}, False),
        ("STREAMING UPDATE", {"outputMode": "Complete"}, True),
        ("STREAMING UPDATE", {"outputMode": "Append"}, False),
        ("OPTIMIZE", {}, False),
        ("ADD COLUMNS", {"columns": "[]"}, False),
        ("SET TBLPROPERTIES", {"properties": "{}"}, False),
        ("REPLACE COLUMNS", {"columns": "[]"}, True),
        ("DROP COLUMNS", {"columns": '["Zip"]'}, True),
        ("DROP COLUMNS", {"columns": '["at.city"]'}, True),
        ("DROP COLUMNS", {"columns": '["`at`"]'}, True),
        ("DROP COLUMNS", {"columns": '["zip", "note"]'}, True),
        ("DROP COLUMNS", {"columns": '["note"]'}, False),  # it isn't there again
        ("DROP COLUMNS", {}, True),
        ("RENAME COLUMN", {"oldColumnPath": "zip", "newColumnPath": "zip_old"}, True),
        ("RENAME COLUMN", {"oldColumnPath": '"zip"', "newColumnPath": '"zip_old"'}, True),
        ("RENAME COLUMN", {"oldColumnPath": "zip_old", "newColumnPath": "zip"}, False),
    ],
)
def test_which_commits_take_rows_or_values_away(operation: str, parameters: dict[str, str], takes: bool) -> None:
    assert takes_away(operation, parameters, {"k", "zip", "at", "at.city"}) is takes


def test_without_the_version_of_then_rows_may_be_missing_that_nobody_sees() -> None:
    known, log_cleaned, vacuumed = Earlier(), Earlier(known=False), Earlier(known=False, of_others=True)
    assert not_compared(known, 3, alone=True) == []
    assert not_compared(log_cleaned, 0, alone=True) == [], "it may have been empty then"
    assert not_compared(vacuumed, 0, alone=False) == [], "the rows of then may be another pipeline's"
    (why,) = not_compared(vacuumed, 0, alone=True)
    assert why.startswith("The table held rows before the pipeline's first epoch.")
    assert all(not_compared(each, 1, alone=False)[0].startswith("1 row has") for each in (log_cleaned, vacuumed))


@pytest.mark.parametrize("option", ["value", "key"])
def test_avro_without_its_schemas_is_told(option: str) -> None:
    def config(form: dict) -> PipelineConfig:
        return parse(
            {
                "name": "p",
                "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:1"}},
                "value": {"format": "string"},
                option: form,
                "sinks": [{"type": "delta_append", "path": "lake/t"}],
            }
        )

    with pytest.raises(ConfigurationError, match=f"{option}.schema_file: '.*a.avsc' can't be read"):
        forms(config({"format": "avro", "schema_file": "a.avsc"}))
    with pytest.raises(RegistryUnreachable, match=f"t-{option}"):
        forms(config({"format": "avro", "registry": {"url": "http://127.0.0.1:1"}}))


def test_numbers_are_read_as_their_text() -> None:
    nested = T.StructType([T.StructField("x", T.ArrayType(T.LongType()), nullable=False)])
    schema = T.StructType([T.StructField("n", nested), T.StructField("m", T.MapType(T.StringType(), T.BooleanType()))])
    permissive, strict = (read_as(schema, permissive=permissive).simpleString() for permissive in (True, False))
    assert permissive == "struct<n:struct<x:array<string>>,m:map<string,string>>"
    assert strict == "struct<n:struct<x:array<string>>,m:map<string,boolean>>"


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_shown_with_its_place(fault: str) -> None:
    found = verdict(counted("expected", 9), counted("found", 8), counted(fault, 1, 5, key='{"k":"[a]"}'))
    assert not found.ok
    written = io.StringIO()
    show(found, Console(file=written, width=200))
    said = written.getvalue()
    words = fault.replace("_", " ")
    assert f"first {words} " in said
    assert 't-0, offset 5, key {"k": "[a]"}' in said
    assert "note: a note" in said
    assert said.splitlines()[-1] == f"NOT EXACT: {words} 1; 9 expected, 8 found"


def test_the_json_has_every_count_of_every_partition() -> None:
    found = verdict(counted("lost", 2, 5), counted("unexpected", 3, at=None), gone=(Range("t", 1, 0, 4),)).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert [(part["topic"], part["partition"]) for part in found["partitions"]] == [("t", 0), ("t", 1), (None, None)]
    assert all(set(COUNTS) <= set(part) for part in found["partitions"])
    assert found["partitions"][0]["first"] == {"lost": {"at": ["t", 0, 5], "key": None}}
    assert found["partitions"][2]["first"] == {"unexpected": {"at": [None, None, None], "key": None}}
    assert found["claim"]["since"] == {"t": {"0": 2, "1": 0}}
    assert (found["ok"], found["unchecked"], found["totals"]["lost"]) == (False, [["t", 1, 0, 4]], 2)
