"""Aggregates, with and without windows: one row per group, exact under replay and disorder."""

import itertools
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench import START, Bench, ListedTopic
from fakes import Crash
from hypothesis import given
from hypothesis import strategies as st
from suites import draws

from connector.decode.event_time import TIME
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch
from sinks.delta.restore import BY_REWIND, restore
from sinks.errors import BadRecord, ConfigurationError, PositionMismatch
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, n INT, t TIMESTAMP"


@pytest.mark.breadth
def test_counts_and_sums_per_group(spark: "SparkSession", tmp_path: Path) -> None:
    topic = ListedTopic(
        [[("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 2})], [(None, {"n": 5}), ("a", {"k": "a", "n": 3})]]
    )
    bench = Bench(
        spark, tmp_path, topic, SCHEMA,
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"records": "count(*)", "total": "sum(n)"}},
    )  # fmt: skip
    bench.run(1, 1)
    assert bench.rows("k, records, total") == [("a", 1, 1), (None, 1, 5)]
    bench.run(2, 2)
    assert bench.rows("k, records, total") == [("a", 2, 4), ("b", 1, 2), (None, 1, 5)]
    assert bench.table.coordinates(["t"]) == Offsets({TopicPartition("t", 0): 2, TopicPartition("t", 1): 2})
    assert bench.rows("k, _applied") == [("a", {"t-0": 0, "t-1": 1}), ("b", {"t-0": 1}), (None, {"t-1": 0})]


def minute(number: int) -> str:
    return f"2026-01-01T00:{number:02}:00Z"


def test_tumbling_windows_close(spark: "SparkSession", tmp_path: Path) -> None:
    topic = ListedTopic([[(None, {"k": "a", "n": 1, "t": minute(m)}) for m in (1, 2, 11, 3, 25, 4)]])
    bench = Bench(
        spark, tmp_path, topic, SCHEMA, dead_letters={"path": str(tmp_path / "dead")},
        sink={"type": "delta_aggregate", "aggregates": {"records": "count(*)"},
              "window": {"time": "t", "size": "10 minutes", "late": "dead_letter"}},
    )  # fmt: skip
    bench.run(2)
    assert bench.rows("date_format(window_start, 'mm'), records, window_closed") == [("00", 2, False)]
    bench.run(4)
    assert bench.rows("date_format(window_start, 'mm'), records, window_closed") == [("00", 2, True), ("10", 1, False)]
    bench.run(6)
    assert bench.rows("date_format(window_start, 'mm'), records, window_closed") == [
        ("00", 2, True), ("10", 1, True), ("20", 1, False)
    ]  # fmt: skip
    letters = bench.spark.read.format("delta").load(str(tmp_path / "dead"))
    assert sorted(row["_offset"] for row in letters.collect()) == [3, 5]
    position = bench.derivation.sink.position()
    assert position is not None
    assert position.clock.late == 2
    assert position.clock.watermark is not None
    assert position.clock.watermark.isoformat() == "2026-01-01T00:25:00+00:00"


@pytest.mark.breadth
def test_a_record_that_a_rewind_has_read_again_does_not_come_late(spark: "SparkSession", tmp_path: Path) -> None:
    """Partition 0 is read to its end, and partition 1 holds the watermark back: after the rewind, too."""
    minutes = [1, 58], [2, 20, 40, 57]
    topic = ListedTopic(
        [[(None, {"t": minute(at)}) for at in part] for part in minutes],
        {TopicPartition("t", n): [START + timedelta(minutes=at) for at in part] for n, part in enumerate(minutes)},
    )
    bench = Bench(
        spark, tmp_path, topic, SCHEMA, dead_letters={"path": str(tmp_path / "dead")},
        sink={"type": "delta_aggregate", "aggregates": {"records": "count(*)"},
              "window": {"time": "t", "size": "10 minutes", "late": "dead_letter"}},
    )  # fmt: skip
    bench.run(2, 1)
    stood = bench.derivation.sink.position()
    assert stood is not None
    assert stood.version is not None
    bench.run(2, 3)
    restore(bench.table, stood.version, by=BY_REWIND)
    restored = bench.derivation.sink.position()
    assert restored is not None
    empty = bench.write(Epoch.of_no_records(restored, pipeline="p", owner="rewind")).position
    assert empty.clock.watermark == stood.clock.watermark == START + timedelta(minutes=2)
    bench.run(2, 4)
    assert bench.rows("CAST(minute(window_start) AS INT), records, window_closed") == [
        (0, 2, True), (20, 1, True), (40, 1, True), (50, 2, False)
    ]  # fmt: skip
    assert not (tmp_path / "dead").exists() or not bench.spark.read.format("delta").load(str(tmp_path / "dead")).count()


@pytest.mark.breadth
def test_sessions_grow_together(spark: "SparkSession", tmp_path: Path) -> None:
    topic = ListedTopic([[(None, {"k": "a", "n": 1, "t": minute(m)}) for m in (1, 3, 20, 22, 10, 12, 40)]])
    bench = Bench(
        spark, tmp_path, topic, SCHEMA,
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "sum(n)"},
              "window": {"time": "t", "gap": "9 minutes", "allowed_lateness": "1 hour"}},
    )  # fmt: skip
    columns = "date_format(window_start, 'mm'), date_format(window_end, 'mm'), n"
    bench.run(4)
    assert bench.rows(columns) == [("01", "12", 2), ("20", "31", 2)]
    bench.run(5)
    assert bench.rows(columns) == [("01", "19", 3), ("20", "31", 2)]
    bench.run(6)
    assert bench.rows(columns) == [("01", "31", 6)]
    bench.run(7)
    assert bench.rows(columns) == [("01", "31", 6), ("40", "49", 1)]


@pytest.mark.breadth
@pytest.mark.parametrize("cuts", [(2, 3, 4), (3, 4), (4,)])
def test_a_late_record_opens_a_closed_session_again(
    spark: "SparkSession", tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    """Wherever the epochs are cut: the flag is that of the session's last end."""
    minutes = [("g", 5), ("h", 16), ("g", 14), ("h", 24)]
    topic = ListedTopic([[(None, {"k": k, "t": minute(m)}) for k, m in minutes]])
    bench = Bench(
        spark, tmp_path, topic, SCHEMA,
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"c": "count(*)"},
              "window": {"time": "t", "gap": "10 minutes"}},
    )  # fmt: skip
    columns = "k, CAST(minute(window_end) AS INT), c, window_closed"
    for cut in cuts:
        bench.run(cut)
        if cut == 2:
            assert bench.rows(columns) == [("g", 15, 1, True), ("h", 26, 1, False)]
        if cut == 3:
            assert bench.rows(columns) == [("g", 24, 2, False), ("h", 26, 1, False)]
    assert bench.rows(columns) == [("g", 24, 2, True), ("h", 34, 2, False)]


# One model, many cuts: whatever the records, their order and the epochs, the table equals this.


def expected(topic: ListedTopic, window: "dict[str, Any] | None", upto: list[int]) -> "dict[Any, Any]":
    """(group, window's start and end) -> (count, sum, minimum), in plain Python; and the late ones left out."""
    found: dict[Any, list[Any]] = {}
    late = 0
    for records, end in zip(topic.partitions, upto, strict=True):
        shown = None
        for _, value in records[:end]:
            assert isinstance(value, dict)
            time = datetime.fromisoformat(str(value["t"]))
            for place in windows_of(time, window):
                limit = (time if window and "gap" in window else place[1]) if place else None
                if window and shown is not None and limit is not None and limit + lateness(window) <= shown:
                    late += 1
                    if window["late"] == "dead_letter":
                        continue
                found.setdefault((value.get("k"), place), []).append((value["n"], time))
            shown = time if shown is None else max(shown, time)
    if window and "gap" in window:
        found = in_sessions(found, length(window["gap"]))
    return {"late": late, **{key: summed([number for number, _ in rows]) for key, rows in found.items()}}


def summed(numbers: "list[int | None]") -> "tuple[int, int | None, int | None]":
    there = [number for number in numbers if number is not None]
    return len(numbers), sum(there) if there else None, min(there, default=None)


def length(text: str) -> timedelta:
    return timedelta(minutes=int(text.split()[0]))


def lateness(window: "dict[str, Any]") -> timedelta:
    return length(window.get("allowed_lateness", "0 minutes"))


def windows_of(time: datetime, window: "dict[str, Any] | None") -> "list[Any]":
    if window is None:
        return [None]
    if "gap" in window:
        return [(time, time + length(window["gap"]))]
    size, slide = length(window["size"]), length(window.get("slide", window["size"]))
    first = datetime.fromtimestamp(time.timestamp() // slide.total_seconds() * slide.total_seconds(), timezone.utc)
    starts = (first - number * slide for number in range(-(-size // slide)))
    return [(start, start + size) for start in starts if start <= time < start + size]


def in_sessions(found: "dict[Any, list[Any]]", gap: timedelta) -> "dict[Any, list[Any]]":
    sessions: dict[Any, list[Any]] = {}
    for group in {group for group, _ in found}:
        rows = sorted((row for (of, _), rows in found.items() if of == group for row in rows), key=lambda row: row[1])
        session: list[Any] = []
        for row in [*rows, (None, None)]:
            if session and (row[1] is None or row[1] >= session[-1][1] + gap):
                sessions[group, (session[0][1], session[-1][1] + gap)] = session
                session = []
            session.append(row)
    return sessions


def held(bench: Bench, window: "dict[str, Any] | None") -> "dict[Any, Any]":
    times = "unix_micros(window_start), unix_micros(window_end)" if window else "NULL, NULL"
    rows = bench.rows(f"k, {times}, records, total, lowest")
    position = bench.derivation.sink.position()
    assert position is not None
    return {
        "late": position.clock.late,
        **{(k, (moment(start), moment(end)) if window else None): tuple(rest) for k, start, end, *rest in rows},
    }


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


WINDOWS: "list[dict[str, Any] | None]" = [
    None,
    {"size": "10 minutes", "late": "dead_letter"},
    {"size": "10 minutes", "slide": "4 minutes", "late": "add", "allowed_lateness": "5 minutes"},
    {"gap": "6 minutes", "late": "dead_letter", "allowed_lateness": "10 minutes"},
]
one_record = st.builds(
    lambda k, n, t: (k, {"k": k, "n": n, "t": minute(t)}),
    st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-9, 9)), st.integers(0, 59),
)  # fmt: skip
PARTITIONS = st.lists(st.lists(one_record, min_size=6, max_size=12), min_size=2, max_size=2)
CUTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=2)
CRASHES = st.sampled_from([None, Step.READ, Step.WRITING])


@pytest.mark.law
@pytest.mark.parametrize(
    "window",
    [
        pytest.param(WINDOWS[0], id="groups", marks=pytest.mark.draws),
        pytest.param(WINDOWS[1], id="tumbling", marks=pytest.mark.draws),
        pytest.param(WINDOWS[2], id="sliding", marks=pytest.mark.draws),
        pytest.param(WINDOWS[3], id="sessions"),
    ],
)
def test_any_records_in_any_epochs_give_the_same_table(window: Any, spark: "SparkSession", tmp_path: Path) -> None:
    options = {"type": "delta_aggregate", "group_by": "k",
               "aggregates": {"records": "count(*)", "total": "sum(n)", "lowest": "min(n)"}}  # fmt: skip
    if window:
        # No partition is idle: what a partition that wakes up brings is late by the watermark, which epochs cut.
        options["window"] = {"time": "t", "idle_after": "365 days", **window}
    number = itertools.count()

    @draws()
    @given(PARTITIONS, CUTS, CRASHES)
    def check(partitions: Any, cuts: Any, crash: Step | None) -> None:
        folder = tmp_path / str(next(number))
        topic = ListedTopic(partitions)
        late = {"dead_letters": {"path": str(folder / "dead")}} if window and window["late"] == "dead_letter" else {}
        bench = Bench(spark, folder, topic, SCHEMA, sink=dict(options), **late)
        ends = [len(records) for records in partitions]

        def crashing(event: Event) -> None:
            if event.step is crash:
                raise Crash

        if crash is not None and any(ends):
            # Late records may be among the dead letters by then, without the epoch that passes them.
            with pytest.raises(Crash):
                bench.run(*ends, observe=crashing)
        for cut in [*sorted(cuts), ends]:
            upto = [min(offset, end) for offset, end in zip(cut, ends, strict=True)]
            if bench.run(*upto) is not None:
                last = bench.derivation.sink.position()
                assert last is not None
                read = [last.offsets.get(at, 0) for at in topic.ends()]
                assert held(bench, window) == expected(topic, window, read)
        if window and window["late"] == "dead_letter":
            late = expected(topic, window, ends)["late"]
            letters = bench.spark.read.format("delta").load(str(folder / "dead")).count() if late else 0
            assert letters == late, "each once, whatever crashed"

    check()


@pytest.mark.parametrize("kind", ["delta_append", "delta_upsert"])
@pytest.mark.breadth
def test_event_times_are_in_the_commit_of_any_table(kind: str, spark: "SparkSession", tmp_path: Path) -> None:
    records = [("a", {"k": "a", "n": 1, "t": minute(m)}) for m in (5, 3, 9)]
    sink = {"type": kind, **({"key": "k"} if kind == "delta_upsert" else {})}
    other = [("b", {"k": "b", "n": 1, "t": minute(5)})]
    bench = Bench(spark, tmp_path, ListedTopic([records, other]), SCHEMA, sink=sink, event_time="t")
    bench.run(2, 1)
    bench.run(3, 1)
    assert TIME not in bench.derivation.columns.names
    position = bench.derivation.sink.position()
    assert position is not None
    (times,) = position.clock.of_epoch.values()
    assert [time.minute for time in times[:2]] == [9, 9], "of the last epoch"
    assert {at.partition: (seen.low.minute, seen.high.minute) for at, seen in position.clock.so_far.items()} == {
        0: (3, 9), 1: (5, 5)
    }  # fmt: skip
    assert position.clock.watermark is not None
    assert position.clock.watermark.minute == 5


def test_a_record_without_an_event_time_stops_the_run(spark: "SparkSession", tmp_path: Path) -> None:
    topic = ListedTopic([[("a", {"k": "a", "t": minute(1)}), ("a", {"k": "a"})]])
    bench = Bench(spark, tmp_path, topic, SCHEMA, sink={"type": "delta_append"}, event_time="t")
    with pytest.raises(BadRecord, match="t-0, offset 1 has no event time"):
        bench.run(2)
    assert bench.rows("*") == []


def test_idempotent_adds_only_what_is_new_wherever_the_replay_starts(spark: "SparkSession", tmp_path: Path) -> None:
    records = [("a", {"k": "ab"[number % 2], "n": number}) for number in range(20)]
    bench = Bench(
        spark, tmp_path, ListedTopic([records[:11], [], records[11:]]), SCHEMA, delivery="idempotent",
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"records": "count(*)", "total": "sum(n)"}},
    )  # fmt: skip
    bench.batch((0, 0, 7))
    bench.batch((0, 3, 11), (2, 0, 4))
    bench.batch((2, 0, 9), (0, 0, 11))
    bench.batch((0, 5, 6))
    assert bench.rows("k, records, total") == [("a", 10, sum(range(0, 20, 2))), ("b", 10, sum(range(1, 20, 2)))]


def test_manual_commit_counts_a_repeated_batch_twice(spark: "SparkSession", tmp_path: Path) -> None:
    bench = Bench(
        spark, tmp_path, ListedTopic([[("a", {"k": "a", "n": 1})]]), SCHEMA, delivery="manual_commit",
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"records": "count(*)"}},
    )  # fmt: skip
    bench.batch((0, 0, 1))
    bench.batch((0, 0, 1))
    assert bench.rows("records") == [(2,)]


@pytest.mark.breadth
def test_a_part_that_overlaps_the_stored_offsets_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    bench = Bench(
        spark, tmp_path, ListedTopic([[("a", {"k": "a", "n": 1})] * 4]), SCHEMA,
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"records": "count(*)"}},
    )  # fmt: skip
    bench.run(2)
    bench.spark.sql(f"UPDATE {bench.table.sql} SET _applied = map('t-0', 2L)").collect()
    with pytest.raises(PositionMismatch, match="holds a part of the epoch already"):
        bench.run(4)
    assert bench.rows("records") == [(2,)]


@pytest.mark.breadth
def test_an_overflow_stops_the_run(spark: "SparkSession", tmp_path: Path) -> None:
    most = 2**63 - 1
    bench = Bench(
        spark, tmp_path, ListedTopic([[("a", {"k": "a", "n": most})] * 2]), "k STRING, n BIGINT",
        sink={"type": "delta_aggregate", "group_by": "k", "aggregates": {"total": "sum(n)"}},
    )  # fmt: skip
    bench.run(1)
    with pytest.raises(BadRecord, match="overflow"):
        bench.run(2)
    assert bench.rows("total") == [(most,)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"aggregates": {"x": "sum(nn)"}}, "aggregates.x"),
        ({"aggregates": {"x": "sum(n) / 2"}}, "aggregates.x"),
        ({"aggregates": {"x": "summ(n)"}}, "sum"),
        ({"group_by": "kk"}, "'kk' isn't a column"),
        ({"window": {"time": "n", "size": "1 hour"}}, "'n' is no TIMESTAMP"),
        ({"states": {"mine": "no.such:Thing"}, "aggregates": {"x": "mine(n)"}}, "can't be imported"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_is_touched(
    changes: Any, said: str, spark: "SparkSession", tmp_path: Path
) -> None:
    sink = {"type": "delta_aggregate", "group_by": "k", "aggregates": {"x": "count(*)"}, **changes}
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Bench(spark, tmp_path, ListedTopic([[]]), SCHEMA, sink=sink)
    assert not (tmp_path / "table").exists()
