"""auto_commit, manual_commit and idempotent, with a crash at every step: each keeps its promise, and no more."""

import contextlib
from collections import Counter
from dataclasses import dataclass, field

import pytest
from fakes import Crash, Group, Member, Steps, Topic
from hypothesis import given
from hypothesis import strategies as st

from connector.delivery import auto_commit, idempotent, manual_commit
from connector.delivery.ports import Delivered, GroupWork
from sinks.contract import Epoch
from sinks.memory import Record

DELIVERIES = {"auto_commit": auto_commit, "manual_commit": manual_commit, "idempotent": idempotent}


@dataclass
class Table:
    """What survives a crash. ``guarded``: one row per key, and an update that it holds already is ignored."""

    guarded: bool = False
    rows: list[Record] = field(default_factory=list)

    def write(self, records: list[Record]) -> int:
        if not self.guarded:
            self.rows += records
            return len(records)
        latest = {row.key: row for row in self.rows}
        newer = [record for record in records if record.key not in latest or record.offset > latest[record.key].offset]
        self.rows = list({**latest, **{record.key: record for record in newer}}.values())
        return len(newer)


def run(
    delivery: str,
    topic: Topic,
    group: Group,
    table: Table,
    *,
    crash_at: int | str | None = None,
    max_records: int = 3,
    taken: frozenset[int] = frozenset(),
) -> Delivered:
    steps = Steps(crash_at)

    def write(batch: Epoch) -> int:
        steps.point("before write")
        rows = table.write(topic.read(batch))
        steps.point("after write")
        return rows

    return DELIVERIES[delivery].deliver(GroupWork(Member(topic, group, steps, max_records, taken), write))


records = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers()), max_size=12)
crashes = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), max_size=8)
rebalances = st.frozensets(st.integers(1, 5), max_size=3)


@given(st.sampled_from(sorted(DELIVERIES)), st.lists(records, min_size=1, max_size=3), crashes, rebalances)
def test_whatever_the_crashes_and_rebalances_each_delivery_keeps_its_promise(
    delivery: str, partitions, crashes, taken
) -> None:
    # A key stays in its partition, as Kafka's partitioner has it.
    topic = Topic([[(f"{p}{key}", value) for key, value in rows] for p, rows in enumerate(partitions)])
    group, table = Group(), Table(guarded=delivery == "idempotent")
    for nth, bound in crashes:
        with contextlib.suppress(Crash):
            run(delivery, topic, group, table, crash_at=nth, max_records=bound, taken=taken)
    run(delivery, topic, group, table, taken=taken)
    written, sent = Counter(table.rows), Counter(topic.every)
    if delivery == "auto_commit":
        assert written <= sent  # at most once
    elif delivery == "manual_commit":
        assert written >= sent  # at least once
    else:
        assert sorted(table.rows) == sorted({record.key: record for record in topic.every}.values())
    held = topic.look()
    assert held.beginnings.join(group.stored) == held.ends


@given(st.lists(records, min_size=1, max_size=3), st.integers(1, 4), rebalances)
def test_without_a_crash_auto_commit_writes_every_record_once(partitions, bound, taken) -> None:
    topic, group, table = Topic(partitions), Group(), Table()
    run("auto_commit", topic, group, table, max_records=bound, taken=taken)
    assert sorted(table.rows) == topic.every


@pytest.mark.parametrize(
    "point", [f"{when} {step}" for step in ("poll", "write", "commit") for when in ("before", "after")]
)
@pytest.mark.parametrize("delivery", sorted(DELIVERIES))
def test_a_crash_loses_or_repeats_a_batch_exactly_where_theory_says_so(delivery: str, point: str) -> None:
    topic, group, table = Topic([[(f"k{n}", n) for n in range(6)]]), Group(), Table(guarded=delivery == "idempotent")
    with pytest.raises(Crash):
        run(delivery, topic, group, table, crash_at=point)
    run(delivery, topic, group, table)
    times = [Counter(table.rows)[record] for record in topic.every]
    expected = {
        # Committed, and not written: nobody comes back for them.
        ("auto_commit", "after commit"): [0, 0, 0, 1, 1, 1],
        ("auto_commit", "before write"): [0, 0, 0, 1, 1, 1],
        # Written, and not committed: written again.
        ("manual_commit", "after write"): [2, 2, 2, 1, 1, 1],
        ("manual_commit", "before commit"): [2, 2, 2, 1, 1, 1],
    }
    assert times == expected.get((delivery, point), [1] * 6)


def test_an_update_that_idempotent_repeats_changes_nothing_though_a_newer_one_is_there() -> None:
    topic, group, table = Topic([[("a", 1), ("a", 2), ("a", 3), ("a", 4)]]), Group(), Table(guarded=True)
    with pytest.raises(Crash):
        run("idempotent", topic, group, table, crash_at="before commit", max_records=4)
    run("idempotent", topic, group, table, max_records=1)
    assert [(row.offset, row.value) for row in table.rows] == [(3, 4)]


def test_what_another_member_has_taken_over_is_written_by_it_and_not_by_auto_commit() -> None:
    topic, group, table = Topic([[("a", 1)], [("b", 2)]]), Group(), Table()
    assert run("auto_commit", topic, group, table, taken=frozenset({1})).epochs == 2
    assert [row.key for row in table.rows] == ["b", "a"]


def test_what_was_delivered_is_counted_as_the_table_counts_it() -> None:
    topic, group, table = Topic([[("a", 1), ("b", 2)]]), Group(), Table(guarded=True)
    table.write(topic.every)
    assert run("idempotent", topic, group, table) == Delivered(epochs=1, rows=0)


@pytest.mark.parametrize("delivery", sorted(DELIVERIES))
def test_a_delivery_says_how_many_batches_and_rows_it_has_written(delivery: str) -> None:
    topic = Topic([[(f"k{n}", n) for n in range(7)]])
    done = run(delivery, topic, Group(), Table(guarded=delivery == "idempotent"), max_records=3)
    assert (done.epochs, done.rows) == (3, 7)
