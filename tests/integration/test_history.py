"""Histories: one row per version of a key's row, the same from whatever order the events come in."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Lake, Topic, own_session
from hypothesis import given
from hypothesis import strategies as st
from suites import draws

from connector import Pipeline
from connector.config import parse
from connector.derive import derive
from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.errors import BadRecord, ConfigurationError, KeyMoved, SchemaMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
RECORDS = (
    "k STRING, a INT, b INT, seq INT, op STRING, _tombstone BOOLEAN, _topic STRING, _partition INT, _offset BIGINT, "
    "_timestamp TIMESTAMP"
)
Version = tuple[str, int | None, int | None, int, int | None, int, int]
"""key, a, b, start, end, partition, offset"""


@dataclass(frozen=True)
class Change:
    """One record. ``a`` and ``b`` are the value; ``op``: u, d (a row that says delete), t (a tombstone) or x (a
    truncate, whose key doesn't matter)."""

    key: str | None
    seq: int
    partition: int
    offset: int
    op: str = "u"
    a: int | None = 0
    b: int | None = 0


def history_of(changes: Iterable[Change], *, by_sequence: bool, tracked: Collection[str]) -> list[Version]:
    """What a history is, in plain Python."""
    latest: dict[tuple[str, int], Change] = {}
    changes = list(changes)
    for change in changes:
        if change.op == "x":
            continue
        assert change.key is not None
        order = (change.key, change.seq if by_sequence else change.offset)
        held = latest.get(order)
        if held is None or (change.partition, change.offset) > (held.partition, held.offset):
            latest[order] = change
    for truncate in (change for change in changes if change.op == "x"):
        for key in {key for key, _ in latest}:
            latest.setdefault((key, truncate.seq), truncate)
    versions: list[list[Any]] = []
    open_: dict[str, list[Any]] = {}
    for (key, order), change in sorted(latest.items(), key=lambda item: item[0]):
        current = open_.get(key)
        if change.op != "u":
            if current:
                current[4] = order
            open_.pop(key, None)
        elif current and all(getattr(change, name) == current["kab".index(name)] for name in tracked):
            current[1:3] = change.a, change.b
        else:
            if current:
                current[4] = order
            open_[key] = [key, change.a, change.b, order, None, change.partition, change.offset]
            versions.append(open_[key])
    return sorted((tuple(version) for version in versions), key=repr)


@dataclass
class Table:
    """A history without Kafka: epochs are written from lists."""

    spark: "SparkSession"
    path: str
    sink: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "none:1"}},
            "value": {"format": "json", "schema": "k STRING, a INT, b INT, seq INT, op STRING"},
            "sinks": [
                {
                    "type": "delta_history",
                    "path": self.path,
                    "key": "k",
                    "apply_as_deletes": "op = 'd'",
                    "except_column_list": ["op", "seq"],
                    **self.sink,
                }
            ],
        }
        table = DeltaTable(self.spark, path=self.path)
        commits = PipelineCommits(table, pipeline="p", topics=["t"])
        self.derivation = derive(parse(options), table, commits, self.frame([]))
        table.create(self.derivation.columns)

    def frame(self, changes: Iterable[Change]) -> "DataFrame":
        rows = [
            (each.key, each.a, each.b, each.seq, each.op, each.op == "t", "t", each.partition, each.offset, AT)
            for each in changes
        ]
        return self.spark.createDataFrame(rows, RECORDS)

    def write(
        self, changes: Sequence[Change], ends: Mapping[int, int] | None = None, *, plain: bool = False
    ) -> Committed:
        """The next epoch, which moves the position to ``ends``; without, to what is behind the changes."""
        sink = self.derivation.sink
        expected = sink.position()
        if ends is None:
            ends = {}
            for each in changes:
                ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
        reached = Offsets({TopicPartition("t", partition): end for partition, end in ends.items()})
        epoch = Epoch(
            pipeline="p",
            number=expected.epoch + 1 if expected else 1,
            owner="run",
            ranges=tuple(OffsetRange("t", partition, 0, end) for partition, end in ends.items()),
            offsets=expected.offsets.join(reached) if expected else reached,
            topics={"t": "id"},
            read_to=AT,
            expected=expected,
        )
        rows = self.derivation.reduce(self.frame(changes), epoch)
        return (self.derivation.plain if plain else sink).write(epoch, rows)

    def versions(self) -> list[Version]:
        rows = (
            self.spark.read.format("delta")
            .load(self.path)
            .select("k", "a", "b", "__START_AT", "__END_AT", "_partition", "_offset")
        )
        return sorted((tuple(row) for row in rows.collect()), key=repr)


@pytest.fixture
def session(spark: "SparkSession") -> "SparkSession":
    return own_session(spark)


def logs_of(random: Random, *, by_sequence: bool, truncates: bool = False) -> list[list[Change]]:
    """Per partition its log: a dozen keys, each with ties, deletes and unchanged values."""
    logs: list[list[Change]] = [[], []]
    for _ in range(150):
        key = random.randrange(12)
        partition = random.randrange(2) if by_sequence else key % 2
        log = logs[partition]
        a, b = random.choices([None, 0, 1], k=2)
        op = random.choice("uuuudt")
        if truncates and random.random() < 0.05:
            op = "x"
        # Offsets have gaps.
        of = None if op == "x" and key % 2 else f"k{key}"
        log.append(Change(of, random.randrange(8), partition, 2 * len(log), op, a, b))
    return logs


@pytest.mark.law
@pytest.mark.parametrize(
    ("tracked", "order"),
    [
        ("a", "truncates"),
        pytest.param("ab", "truncates", marks=pytest.mark.draws),
        pytest.param("a", "sequence", marks=pytest.mark.draws),
        pytest.param("ab", "offset", marks=pytest.mark.draws),
        pytest.param("ab", "sequence", marks=pytest.mark.draws),
        pytest.param("a", "offset", marks=pytest.mark.draws),
    ],
)
def test_a_history_depends_on_its_events_alone(
    order: str, tracked: str, session: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However the log is cut into epochs, whatever is read again: each version of the table is the model's."""
    by_sequence = order != "offset"
    options: dict[str, Any] = {"sequence_by": "seq"} if by_sequence else {}
    if order == "truncates":
        options["apply_as_truncates"] = "op = 'x'"
    if tracked == "a":
        options["track_history_column_list"] = ["a"]

    # An epoch costs the same for one key as for twelve: few examples, with many keys each.
    @draws()
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        random = Random(seed)
        logs = logs_of(random, by_sequence=by_sequence, truncates=order == "truncates")
        table = Table(session, str(tmp_path_factory.mktemp("history")), options)
        read = [0, 0]
        for last in (False, False, True):
            ends = [len(log) if last else random.randint(at, len(log)) for at, log in zip(read, logs, strict=True)]
            starts = [max(0, at - random.randrange(20)) for at in read]
            batch = [change for log, start, end in zip(logs, starts, ends, strict=True) for change in log[start:end]]
            random.shuffle(batch)
            table.write(batch, {partition: 2 * end for partition, end in enumerate(ends)})
            seen = [change for log, end in zip(logs, ends, strict=True) for change in log[:end]]
            assert table.versions() == history_of(seen, by_sequence=by_sequence, tracked=tracked)
            read = ends

    check()


def of(path: str, session: "SparkSession", **options: Any) -> Table:
    return Table(session, path, {"sequence_by": "seq", **options})


@pytest.mark.breadth
def test_an_epoch_writes_only_the_versions_that_differ(session: "SparkSession", tmp_path: Path) -> None:
    table = of(str(tmp_path / "t"), session)
    first = [Change("x", seq, 0, seq, a=seq) for seq in range(5)] + [Change("y", 0, 0, 5)]
    assert table.write(first).rows == 6
    assert table.write(first, {0: 6}).rows == 0, "what comes again changes nothing"
    assert table.write([Change("x", 5, 0, 6, a=5)]).rows == 2, "one version ends, one starts"
    assert table.write([Change("x", 2, 0, 7, a=99)]).rows == 1, (
        "the later event of a sequence takes the earlier's place"
    )
    log = [*first, Change("x", 5, 0, 6, a=5), Change("x", 2, 0, 7, a=99)]
    assert table.versions() == history_of(log, by_sequence=True, tracked="ab")


@pytest.mark.breadth
def test_a_delete_that_ended_a_version_outlives_its_tombstone(session: "SparkSession", tmp_path: Path) -> None:
    table = of(str(tmp_path / "t"), session, tombstone_retention="0 seconds")
    log = [Change("x", 1, 0, 0), Change("x", 5, 0, 1, "d")]
    table.write(log)
    table.write([Change("y", 5, 0, 2, "d")])
    # The first is forgotten already; the second was noted within the hour after that.
    notes = session.sql(f"SELECT k FROM delta.`{tmp_path}/t/_lakelock/tombstones`")
    assert [row["k"] for row in notes.collect()] == ["y"]
    late = [Change("x", 3, 0, 3, a=7), Change("x", 4, 0, 4, a=7)]
    table.write(late)
    assert table.versions() == history_of([*log, *late], by_sequence=True, tracked="ab")


@pytest.mark.breadth
@pytest.mark.parametrize("op", ["d", "x"], ids=["delete", "truncate"])
def test_a_tombstone_of_an_epoch_that_failed_does_not_count(op: str, session: "SparkSession", tmp_path: Path) -> None:
    table = of(str(tmp_path / "t"), session, apply_as_truncates="op = 'x'")
    table.write([Change("x", 1, 0, 0)])
    failed = table.derivation.reduce(table.frame([Change("x", 9, 0, 2, op)]), None)  # type: ignore[arg-type]
    table.derivation.sink._versions._note(failed, "run/2")  # type: ignore[attr-defined]
    table.write([Change("x", 3, 0, 1, a=1)])
    assert table.versions()[-1][4] is None
    table.write([Change("x", 9, 0, 2, op)])
    assert table.versions()[-1][4] == 9


def test_a_weaker_delivery_takes_no_harm_from_records_that_come_again(session: "SparkSession", tmp_path: Path) -> None:
    table = of(str(tmp_path / "t"), session, apply_as_truncates="op = 'x'")
    log = [Change("x", 3, 0, 0, "d"), Change("x", 1, 0, 1), Change("x", 2, 0, 2, a=1), Change("x", 4, 0, 3, a=2)]
    log += [Change("y", 1, 0, 4), Change("-", 3, 0, 5, "x"), Change("y", 4, 0, 6)]
    assert table.write(log, plain=True).rows == 5
    for again in (log, log[1:2], log[4:6]):
        assert table.write(again, plain=True).rows == 0
    assert table.versions() == history_of(log, by_sequence=True, tracked="ab")


@pytest.mark.breadth
def test_columns_and_paths_may_be_called_anything(session: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "a `b` 'c' [d] {e} ; -- x%41")
    names = ["s", "t", "key", "event", "at", "a b", "dotted.name", "tick`ed", "quo'ted", "values", "before"]
    schema = ", ".join(f"`{name.replace('`', '``')}` INT" for name in names)
    decoded = f"{schema}, `m ap` MAP<STRING, INT>, " + RECORDS[RECORDS.index("_tombstone") :]
    options = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "none:1"}},
        "value": {"format": "json", "schema": schema},
        "sinks": [
            {
                "type": "delta_history",
                "path": path,
                "key": ["s", "tick`ed"],
                "sequence_by": "`a b`",
                "apply_as_deletes": "at = 0",
                "track_history_column_list": ["dotted.name", "at"],
            }
        ],
    }
    table = DeltaTable(session, path=path)
    derivation = derive(
        parse(options), table, PipelineCommits(table, pipeline="p", topics=["t"]), session.createDataFrame([], decoded)
    )
    table.create(derivation.columns)
    expected = None
    epochs = (
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 9, 9, 9, 1, 2, 1, 1, 9, 9, 9],
        [1, 9, 9, 9, 7, 3, 1, 1, 9, 9, 9],
        [1, 9, 9, 9, 0, 4, 1, 1, 9, 9, 9],
    )
    for offset, values in enumerate(epochs):
        epoch = Epoch("p", offset + 1, "run", (), Offsets({TopicPartition("t", 0): offset + 1}), {}, None, expected)
        rows = session.createDataFrame([(*values, {"k": offset}, False, "t", 0, offset, AT)], decoded)
        expected = derivation.sink.write(epoch, derivation.reduce(rows, epoch)).position
    written = session.read.format("delta").load(path).orderBy("__START_AT")
    assert written.columns[:12] == [*names, "m ap"]
    assert [(*row[:11], row["m ap"], row["__END_AT"]) for row in written.collect()] == [
        (1, 9, 9, 9, 1, 2, 1, 1, 9, 9, 9, {"k": 1}, 3),
        (1, 9, 9, 9, 7, 3, 1, 1, 9, 9, 9, {"k": 2}, 4),
    ]


SCHEMA = "id INT, name STRING, city STRING, at INT, op STRING"


def customers(lake: Lake, **changes: Any) -> Pipeline:
    sink = {
        "key": "id",
        "sequence_by": "at",
        "apply_as_deletes": "op = 'delete'",
        "except_column_list": ["op", "at"],
        **changes.pop("sink", {}),
    }
    sink = {name: value for name, value in sink.items() if value is not None}
    return lake.pipeline("history", schema=changes.pop("schema", SCHEMA), sink=sink, **changes)


def customer(id: int, name: str, city: str, at: int, op: str = "update") -> tuple[str, dict[str, Any]]:
    return str(id), {"id": id, "name": name, "city": city, "at": at, "op": op}


def periods(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.sql("SELECT id, name, city, __START_AT, __END_AT FROM {t} ORDER BY id, __START_AT", "history")


@pytest.mark.breadth
def test_each_change_is_a_version_with_its_time(lake: Lake, topic: Topic) -> None:
    topic.send(customer(1, "Ann", "Rome", 10), customer(2, "Bob", "Oslo", 10), customer(1, "Ann", "Paris", 20))
    customers(lake).run()
    topic.send(customer(1, "Ann", "Paris", 25), customer(2, "Bob", "Bern", 30))
    customers(lake, epoch={"max_records": 1}).run()
    assert periods(lake) == [
        (1, "Ann", "Rome", 10, 20),
        (1, "Ann", "Paris", 20, None),
        (2, "Bob", "Oslo", 10, 30),
        (2, "Bob", "Bern", 30, None),
    ]
    version = lake.version("history")
    assert customers(lake).run().epochs == 0
    assert lake.version("history") == version
    assert lake.frame("history").columns == [
        "id", "name", "city", "__START_AT", "__END_AT", "_topic", "_partition", "_offset", "_timestamp", "_state",
    ]  # fmt: skip


@pytest.mark.breadth
def test_late_updates_and_deletes_go_in_where_they_belong(lake: Lake, topic: Topic) -> None:
    topic.send(customer(1, "Ann", "Rome", 10), customer(1, "Ann", "Paris", 40), partition=0)
    # The delete comes before the update that it ends.
    topic.send(customer(2, "", "", 30, "delete"), partition=0)
    ordered = customers(lake, sink={"sequence_by": "coalesce(at, 50)"})
    ordered.run()
    # From another partition, so without any order of arrival.
    topic.send(customer(1, "Ann", "Oslo", 20), ("1", None), partition=1)
    topic.send(customer(1, "", "", 30, "delete"), customer(2, "Bob", "Bern", 20), partition=1)
    with pytest.raises(BadRecord, match="offset 1"):
        # A tombstone has no value, so no `at` to order it by.
        customers(lake, sink={"path": str(lake.path("others"))}).run()
    ordered.run()
    assert periods(lake) == [
        (1, "Ann", "Rome", 10, 20),
        (1, "Ann", "Oslo", 20, 30),
        (1, "Ann", "Paris", 40, 50),
        (2, "Bob", "Bern", 20, 30),
    ]


@pytest.mark.breadth
def test_columns_that_are_not_tracked_make_no_version(lake: Lake, topic: Topic) -> None:
    pipeline = customers(lake, sink={"track_history_except_column_list": "name"})
    topic.send(customer(1, "Ann", "Rome", 10), customer(1, "Anna", "Rome", 20), customer(1, "Anna", "Oslo", 40))
    pipeline.run()
    assert periods(lake) == [(1, "Anna", "Rome", 10, 40), (1, "Anna", "Oslo", 40, None)]
    topic.send(customer(1, "", "", 15, "delete"))
    pipeline.run()
    assert periods(lake) == [(1, "Ann", "Rome", 10, 15), (1, "Anna", "Rome", 20, 40), (1, "Anna", "Oslo", 40, None)]


@pytest.mark.breadth
def test_untracked_columns_in_another_order_are_the_same_columns(lake: Lake, topic: Topic) -> None:
    """An event is kept with its untracked values, in the order of the run that made the table."""
    sink = {"track_history_column_list": "name"}
    orders = [SCHEMA, "at INT, op STRING, city STRING, name STRING, id INT"]
    customers = [
        lake.pipeline("history", schema=schema, sink={"key": "id", "sequence_by": "at", **sink}) for schema in orders
    ]
    for number, at in enumerate((10, 20, 15)):
        topic.send(customer(1, "Ann", f"city {at}", at), customer(2, f"Bob {at}", f"city {at}", at), partition=0)
        customers[number % 2].run()
    assert sorted(lake.sql("SELECT id, name, city, at, op, __START_AT, __END_AT FROM {t}", "history"), key=repr) == [
        (1, "Ann", "city 20", 20, "update", 10, None),
        (2, "Bob 10", "city 10", 10, "update", 10, 15),
        (2, "Bob 15", "city 15", 15, "update", 15, 20),
        (2, "Bob 20", "city 20", 20, "update", 20, None),
    ]
    fewer = {"key": "id", "sequence_by": "at", **sink, "except_column_list": "city"}
    with pytest.raises(SchemaMismatch, match="the pipeline has no city, and _state keeps it of earlier records"):
        lake.pipeline("history", schema=orders[0], sink=fewer).check()


@pytest.mark.breadth
@pytest.mark.parametrize("sequence", [None, "_offset"])
def test_without_a_sequence_the_offset_is_the_time(sequence: str | None, lake: Lake, topic: Topic) -> None:
    pipeline = customers(lake, sink={"sequence_by": sequence})
    topic.send(customer(1, "Ann", "Rome", 9), customer(1, "Ann", "Oslo", 8), ("1", None), partition=1)
    topic.send(customer(1, "Ann", "Bern", 7), partition=1)
    pipeline.run()
    expected = [(1, "Ann", "Rome", 0, 1), (1, "Ann", "Oslo", 1, 2), (1, "Ann", "Bern", 3, None)]
    assert periods(lake) == expected
    topic.send(customer(1, "Ann", "Pisa", 6), partition=0)
    came = "1 so far, and now from .*-0" if sequence is None else ". so far, and now from .*-"
    with pytest.raises(KeyMoved, match=f"{topic.name}-{came}"):
        pipeline.run()
    assert periods(lake) == expected


@pytest.mark.breadth
def test_the_weaker_deliveries_write_histories_too(lake: Lake, topic: Topic) -> None:
    topic.send(customer(1, "Ann", "Rome", 10), customer(1, "", "", 30, "delete"), customer(1, "Ann", "Oslo", 20))
    customers(lake, name=topic.name, delivery="idempotent").run()
    assert periods(lake) == [(1, "Ann", "Rome", 10, 20), (1, "Ann", "Oslo", 20, 30)]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"sink": {"track_history_column_list": ["op"]}},
            "track_history_column_list: 'op' isn't a column of the table",
        ),
        ({"schema": f"{SCHEMA}, m MAP<STRING, INT>"}, "'m' is a MAP, which can't be compared"),
        ({"sink": {"sequence_by": "nowhere"}}, "sequence_by"),
    ],
)
def test_what_cannot_be_a_history_is_refused(changes: dict[str, Any], fault: str, lake: Lake, topic: Topic) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        customers(lake, **changes).run()
    assert not lake.path("history").exists()


@pytest.mark.breadth
def test_a_history_is_made_of_what_the_table_holds_and_not_of_what_spark_has_cached(lake: Lake, topic: Topic) -> None:
    """A RESTORE leaves Spark's cache as it is. The events that are read again would be known already."""
    pipeline = lake.pipeline("history", sink={"key": "k"})
    for n in range(3):
        topic.send(("a", {"k": "a", "n": n}), partition=0)
        pipeline.run()
        if not n:
            first = lake.version("history")
    versions = "SELECT n, __START_AT, __END_AT FROM {t} ORDER BY n"
    before = lake.sql(versions, "history")
    assert len(before) == 3
    cached = lake.frame("history").cache()
    assert cached.count() == 3
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {first}", "history")
    assert lake.frame("history").count() == 3, "Spark takes what it has cached for the table"
    pipeline.run()
    cached.unpersist()
    assert lake.sql(versions, "history") == before
