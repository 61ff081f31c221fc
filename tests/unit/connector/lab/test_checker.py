"""Histories small enough to be judged by hand: each anomaly found once, where it first was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.connector.lab.samples import SINKS, SKIPPED, every, simulate

from connector.lab.check import checker
from connector.lab.check.checker import ALLOWED, EXPECTED, Anomaly, Kind, Report, Verdict, check, judge, must_show
from connector.lab.check.history import Happened, History, Row, Sent, Sink, Version
from connector.lab.show.explanations import POINTS
from sinks.offsets import Offsets, TopicPartition

T0 = TopicPartition("t", 0)
CRASH = (Happened(0, 0.0, "started"), Happened(0, 1.0, "crashed"), Happened(1, 2.0, "done"))

# offset -> key: a's newest is 2, b's is 1, c's is 3
KEYS = "abac"


def sent(keys: str = KEYS) -> tuple[Sent, ...]:
    return tuple(Sent("t", 0, offset, key, 10 * offset) for offset, key in enumerate(keys))


def rows(*offsets: int, keys: str = KEYS) -> tuple[Row, ...]:
    return tuple(Row("t", 0, offset, keys[offset], 10 * offset) for offset in offsets)


def history(
    sink: Sink, versions: Sequence[Sequence[int]], claims: Sequence[int] | None = None, delivery: str = "transactional"
) -> History:
    """One partition; each version is the offsets of its rows, and with ``claims`` what it claims."""
    made = tuple(
        Version(number, rows(*offsets), None if claims is None else Offsets({T0: claims[number]}))
        for number, offsets in enumerate(versions)
    )
    return History(delivery, sink, "mid_write", sent(), CRASH, made)


def found(report: Report) -> list[tuple[str, int, int, int | None]]:
    """kind, offset, first version, first version without it"""
    return [(anomaly.kind.value, anomaly.offset, anomaly.version, anomaly.until) for anomaly in report.anomalies]


# an append table


def test_an_exact_append_is_held() -> None:
    report = check(history("append", [[], [0, 1], [0, 1, 2, 3]], claims=[0, 2, 4]))
    assert (report.verdict, report.anomalies) == (Verdict.HELD, ())
    assert report.reasons == (
        "All 4 records count exactly once, and nothing is wrong in any of the table's 3 versions.",
    )


def test_a_record_that_never_came_is_lost() -> None:
    report = check(history("append", [[], [0], [0, 2, 3]]))
    assert found(report) == [("lost", 1, 2, None)]
    assert report.verdict is Verdict.BROKEN


def test_a_record_that_a_version_claims_and_lacks_is_lost_from_there() -> None:
    report = check(history("append", [[], [0], [0, 2, 3]], claims=[0, 2, 4]))
    assert found(report) == [("lost", 1, 1, None)]
    assert report.anomalies[0].key == "b"


def test_a_record_that_came_later_than_claimed_has_regressed() -> None:
    assert found(check(history("append", [[0], [0, 1, 2, 3]], claims=[2, 4]))) == [("regressed", 1, 0, 1)]


def test_a_row_that_went_missing_for_a_while_has_regressed_without_any_claim() -> None:
    report = check(history("append", [[0, 1], [1, 2], [0, 1, 2, 3]]))
    assert found(report) == [("regressed", 0, 1, 2)]
    assert report.anomalies[0].stood == 0


def test_rows_too_many_are_counted_by_record_and_by_row() -> None:
    report = check(history("append", [[0, 1], [0, 1, 1], [0, 1, 1, 1, 2, 2, 3]]))
    assert found(report) == [("duplicated", 1, 1, None), ("duplicated", 2, 2, None)]
    assert [anomaly.extra for anomaly in report.anomalies] == [2, 1]
    assert (report.counts[Kind.DUPLICATED], report.extra_rows) == (2, 3)


def test_a_duplicate_in_a_middle_version_is_found() -> None:
    assert found(check(history("append", [[0], [0, 0], [0, 1, 2, 3]]))) == [("duplicated", 0, 1, 2)]


def test_a_row_that_was_never_sent_is_unexpected() -> None:
    exact = history("append", [[0, 1, 2, 3]])
    strange = replace(exact, versions=(Version(0, (*rows(0, 1, 2, 3), Row("t", 0, 9, "z", 1))),))
    assert found(check(strange)) == [("unexpected", 9, 0, None)]


@pytest.mark.parametrize("row", [Row("t", 0, 1, "b", 11), Row("t", 0, 1, "a", 10)])
def test_an_altered_row_is_unexpected_and_not_lost(row: Row) -> None:
    strange = replace(history("append", []), versions=(Version(0, (*rows(0, 2, 3), row)),))
    assert found(check(strange)) == [("unexpected", 1, 0, None)]


def test_a_row_of_another_partition_or_topic_is_unexpected() -> None:
    for at in (("t", 1), ("u", 0)):
        strange = replace(history("append", []), versions=(Version(0, (*rows(0, 2, 3), Row(*at, 1, "b", 10))),))
        assert [anomaly.kind for anomaly in check(strange).anomalies] == [Kind.LOST, Kind.UNEXPECTED]


def test_a_row_beyond_the_claim_is_unexpected() -> None:
    assert found(check(history("append", [[0, 1], [0, 1, 2, 3]], claims=[1, 4]))) == [("unexpected", 1, 0, 1)]


def test_a_partition_that_is_not_claimed_is_claimed_from_the_begin_on() -> None:
    none = replace(history("append", []), versions=(Version(0, rows(0), Offsets()), Version(1, rows(0, 1, 2, 3))))
    assert found(check(none)) == [("unexpected", 0, 0, 1)]


def test_the_pipeline_owes_nothing_from_before_its_begin() -> None:
    late = replace(history("append", [[], [2, 3]], claims=[2, 4]), since=Offsets({T0: 2}))
    assert check(late).verdict is Verdict.HELD
    more = replace(late, versions=(Version(0, rows(1, 2, 3)),))
    assert found(check(more)) == [("unexpected", 1, 0, None)]


def test_offsets_may_have_gaps() -> None:
    gaps = replace(history("append", [[0, 3]], claims=[9]), sent=(sent()[0], sent()[3]))
    assert check(gaps).verdict is Verdict.HELD


# an upsert table


def test_an_exact_upsert_is_held() -> None:
    report = check(history("upsert", [[], [0, 1], [1, 2], [1, 2, 3]], claims=[0, 2, 3, 4]))
    assert (report.verdict, report.anomalies) == (Verdict.HELD, ())
    assert report.reasons == (
        "Every key has its newest update, and nothing is wrong in any of the table's 4 versions.",
    )


def test_an_update_that_a_newer_one_covers_is_no_loss() -> None:
    assert check(history("upsert", [[], [1, 2, 3]])).verdict is Verdict.HELD


def test_a_newest_update_that_never_stood_is_lost() -> None:
    report = check(history("upsert", [[0, 1], [0, 1, 3]]))
    assert found(report) == [("lost", 2, 1, None)]
    assert report.anomalies[0].note == "the table has offset 0 instead"


def test_a_key_without_a_row_is_lost() -> None:
    assert found(check(history("upsert", [[0, 1], [1, 2]]))) == [("lost", 3, 1, None)]


def test_an_update_is_missed_from_the_version_that_claims_it() -> None:
    assert found(check(history("upsert", [[0], [0, 1], [0, 1, 3]], claims=[1, 3, 4]))) == [("lost", 2, 1, None)]


def test_an_older_update_where_a_newer_one_stood_is_stale() -> None:
    report = check(history("upsert", [[1, 2], [0, 1, 3], [0, 1, 3]]))
    assert found(report) == [("stale", 2, 1, None)]
    assert report.anomalies[0].stood == 0


def test_an_older_update_for_a_while_has_regressed() -> None:
    assert found(check(history("upsert", [[1, 2], [0, 1], [1, 2, 3]]))) == [("regressed", 2, 1, 2)]
    assert found(check(history("upsert", [[0, 1], [1, 2], [0, 1], [1, 2, 3]]))) == [("regressed", 2, 2, 3)]


def test_what_a_newer_update_supersedes_is_not_missed_any_more() -> None:
    longer = replace(history("upsert", []), sent=sent("aaa"))
    versions = tuple(Version(n, rows(offset, keys="aaa")) for n, offset in enumerate([1, 0, 2]))
    assert found(check(replace(longer, versions=versions))) == [("regressed", 1, 1, 2)]


def test_a_key_is_stale_and_its_newest_update_lost() -> None:
    longer = replace(history("upsert", []), sent=sent("aaa"))
    versions = tuple(Version(n, rows(offset, keys="aaa")) for n, offset in enumerate([1, 0]))
    assert found(check(replace(longer, versions=versions))) == [("lost", 2, 1, None), ("stale", 1, 1, None)]


def test_a_row_that_stood_and_vanished_is_lost_and_no_delivery_may() -> None:
    report = check(history("upsert", [[1, 2, 3], [2, 3]], delivery="auto_commit"))
    assert found(report) == [("lost", 1, 1, None)]
    assert (report.allowed, report.verdict) == ((), Verdict.BROKEN)


def test_two_rows_of_a_key_are_duplicated() -> None:
    report = check(history("upsert", [[0, 1, 2, 3]], delivery="manual_commit"))
    assert found(report) == [("duplicated", 2, 0, None)]
    assert report.verdict is Verdict.BROKEN


def test_a_row_under_another_key_is_unexpected_and_stands_for_nothing() -> None:
    strange = replace(history("upsert", []), versions=(Version(0, (*rows(2, 3), Row("t", 0, 1, "z", 10))),))
    assert found(check(strange)) == [("lost", 1, 0, None), ("unexpected", 1, 0, None)]


# what is allowed


def kinds(anomalies: Sequence[Anomaly]) -> set[Kind]:
    return {anomaly.kind for anomaly in anomalies}


@pytest.mark.parametrize(
    ("sink", "versions", "kind", "deliveries"),
    [
        ("append", [[], [0, 2, 3]], Kind.LOST, {"auto_commit"}),
        ("upsert", [[], [0, 1, 3]], Kind.LOST, {"auto_commit"}),
        ("append", [[0], [0, 0, 1, 2, 3]], Kind.DUPLICATED, {"manual_commit"}),
        ("upsert", [[1, 2], [0, 1], [1, 2, 3]], Kind.REGRESSED, {"manual_commit"}),
        ("upsert", [[1, 2], [0, 1, 3]], Kind.STALE, set()),
        ("append", [[0, 1], [1], [0, 1, 2, 3]], Kind.REGRESSED, set()),
        ("upsert", [[1, 2, 2, 3]], Kind.DUPLICATED, set()),
    ],
)
def test_a_delivery_may_show_its_own_anomaly_and_no_other(
    sink: Sink, versions: list[list[int]], kind: Kind, deliveries: set[str]
) -> None:
    for delivery in ("auto_commit", "manual_commit", "idempotent", "transactional", "a new one"):
        report = check(history(sink, versions, delivery=delivery))
        assert kinds(report.anomalies) == {kind}
        assert kinds(report.allowed) == ({kind} if delivery in deliveries else set())
        assert kinds(report.forbidden) == (set() if delivery in deliveries else {kind})
        assert report.verdict is (Verdict.HELD if delivery in deliveries else Verdict.BROKEN)


def test_what_is_allowed_can_be_given() -> None:
    lossy = history("append", [[0, 0, 2, 3]])
    assert check(lossy, allows={Kind.LOST, Kind.DUPLICATED}).verdict is Verdict.HELD
    assert check(lossy, allows={Kind.LOST}).verdict is Verdict.BROKEN
    assert check(replace(lossy, delivery="auto_commit"), allows=()).verdict is Verdict.BROKEN


def test_the_worst_comes_first_in_the_report_and_in_its_reasons() -> None:
    report = check(history("append", [[0, 0, 2, 3]]))
    assert [anomaly.kind for anomaly in report.anomalies] == [Kind.LOST, Kind.DUPLICATED]
    assert report.reasons == (
        "1 record is lost, 1 record is duplicated: exactly once doesn't allow that. The first: "
        "lost: t-0 offset 1, key 'b', from version 0: no row.",
    )


# the control


def test_a_lab_that_shows_nothing_where_it_must_is_broken() -> None:
    report = check(history("append", [[0, 1, 2, 3]], delivery="auto_commit"), expects={Kind.LOST})
    assert report.verdict is Verdict.BROKEN
    assert report.reasons == (
        "auto_commit into an append table, killed at mid_write, must show records that are lost, but the lab saw none.",
    )


def test_a_lab_that_shows_what_it_must_is_held() -> None:
    report = check(history("append", [[0, 2, 3]], delivery="auto_commit"), expects={Kind.LOST})
    assert (report.verdict, report.reasons) == (Verdict.HELD, ("1 record is lost: at most once allows that.",))


def test_what_must_show_is_allowed_and_at_a_known_crash_point() -> None:
    for cell, points in EXPECTED.items():
        for point, must in points.items():
            assert point in POINTS
            assert must <= ALLOWED[cell]
    assert must_show("transactional", "append", "after_write") == frozenset()
    assert must_show("manual_commit", "append", "after_write") == {Kind.DUPLICATED}
    assert must_show("auto_commit", "upsert", "mid_write") == {Kind.LOST}
    assert must_show("auto_commit", "append", "after_write") == frozenset()


# unknown


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"drained": False}, "didn't end by itself"),
        ({"error": "no broker"}, "The lab failed: no broker"),
        ({"versions": ()}, "No version"),
        ({"sent": (), "versions": (Version(0, ()),)}, "Nothing was sent"),
        ({"events": ()}, "killed 0 times at mid_write instead of 1 time"),
        ({"crash_point": "in_recovery"}, "killed 1 time at in_recovery instead of 2 times"),
    ],
)
def test_a_history_that_decides_nothing_is_unknown(change: dict[str, object], reason: str) -> None:
    report = check(replace(history("append", [[0, 1, 2, 3]]), **change), expects={Kind.LOST})  # type: ignore[arg-type]
    assert report.verdict is Verdict.UNKNOWN
    assert reason in report.reasons[0]


def test_what_was_found_in_half_a_history_is_told_and_decides_nothing() -> None:
    report = check(replace(history("append", [[0, 0]]), drained=False))
    assert found(report) == [("duplicated", 0, 0, None)]
    assert report.verdict is Verdict.UNKNOWN
    assert len(report.reasons) == 2


def test_without_a_crash_point_no_crash_is_wanted() -> None:
    assert check(replace(history("append", [[0, 1, 2, 3]]), crash_point="", events=())).verdict is Verdict.HELD


@pytest.mark.parametrize(
    "strange",
    [
        replace(history("append", [[0]]), sent=sent() + sent()),
        replace(history("append", [[0]]), versions=(Version(1, ()), Version(0, ()))),
        replace(history("upsert", [[0]]), sent=(*sent(), Sent("t", 1, 0, "a", 5))),
    ],
)
def test_a_history_that_contradicts_itself_is_unknown(strange: History) -> None:
    with pytest.raises(ValueError):
        check(strange)
    report = judge(strange)
    assert report.verdict is Verdict.UNKNOWN
    assert "ValueError" in report.reasons[0]


def test_a_checker_that_fails_has_found_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: History) -> tuple[Anomaly, ...]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(checker, "find", fails)
    assert judge(history("append", [[0]])).reasons == ("The checker failed: ZeroDivisionError: a bug.",)


# the whole lab, on its model


@pytest.mark.parametrize("cell", every(), ids=lambda cell: f"{cell.delivery}-{cell.sink}-{cell.crash_point}")
def test_every_cell_of_the_model_shows_what_theory_says_and_nothing_else(cell: History) -> None:
    report = judge(cell, expects=must_show(cell.delivery, cell.sink, cell.crash_point))
    assert report.verdict is Verdict.HELD, report.reasons
    shown = kinds(report.anomalies)
    if (cell.delivery, cell.sink) == ("manual_commit", "upsert"):
        assert shown == ({Kind.REGRESSED} if cell.crash_point in ("after_write", "in_recovery") else set())
    else:
        assert shown == must_show(cell.delivery, cell.sink, cell.crash_point)


def test_a_delivery_that_only_calls_itself_better_is_broken() -> None:
    lossy = replace(simulate("auto_commit", "append", "mid_write"), delivery="transactional")
    twice = replace(simulate("manual_commit", "append", "after_write"), delivery="transactional")
    older = replace(simulate("manual_commit", "upsert", "after_write"), delivery="idempotent")
    assert [check(cell).verdict for cell in (lossy, twice, older)] == [Verdict.BROKEN] * 3


def test_a_report_can_be_written_as_json() -> None:
    import json

    report = judge(simulate("manual_commit", "append", "in_recovery"))
    document = json.loads(json.dumps(report.to_dict()))
    assert document["verdict"] == "held"
    assert document["counts"] == {"lost": 0, "duplicated": 10, "stale": 0, "unexpected": 0, "regressed": 0}
    assert (len(document["allowed"]), document["forbidden"], document["extra_rows"]) == (10, [], 16)


exact = st.builds(
    simulate,
    delivery=st.just("transactional"),
    sink=st.sampled_from(SINKS),
    crash_point=st.sampled_from([point for point in POINTS if point not in SKIPPED["transactional"]]),
    records=st.sampled_from([36, 40, 60]),
    partitions=st.integers(1, 3),
    # at least four batches: the crash comes in the third, and one in recovery needs something left to do
    batch=st.integers(1, 3),
    since=st.integers(0, 5),
)


@given(exact)
def test_an_exact_history_is_held(cell: History) -> None:
    assert check(cell).verdict is Verdict.HELD


@given(exact, st.data())
def test_one_damaged_row_in_any_version_is_found(cell: History, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, len(cell.versions) - 1))
    version = cell.versions[number]
    index = data.draw(st.integers(0, len(version.rows) - 1))
    row = version.rows[index]
    others = [other for other in cell.sent if (other.key, other.offset) != (row.key, row.offset)]
    damaged = data.draw(
        st.sampled_from(
            [
                (),
                (row, row),
                (replace(row, value=row.value + 1),),
                (replace(row, key=row.key + "x"),),
                (replace(row, offset=row.offset + 10_000),),
                (replace(row, partition=row.partition + 10),),
                *((Row(o.topic, o.partition, o.offset, o.key, o.value),) for o in others[:: len(others) // 5]),
            ]
        )
    )
    changed = replace(version, rows=(*version.rows[:index], *damaged, *version.rows[index + 1 :]))
    broken = replace(cell, versions=(*cell.versions[:number], changed, *cell.versions[number + 1 :]))
    report = check(broken)
    assert report.verdict is Verdict.BROKEN
    assert min(anomaly.version for anomaly in report.anomalies) == number
