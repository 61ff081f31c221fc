"""Merged on read: the current rows are exact at any moment, the table is as of its last fold, whatever crashes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from audits import verify
from conftest import Lake, Topic, forget_history, own_session, wait_until
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from suites import draws
from upserts import SEEDS, Model, Record, Table, by_offset, by_sequence

from connector import Pipeline, read
from connector.lab.bench.faults import Moment, wait_for
from connector.operations.history import past
from connector.protocol.steps import Event, Step
from sinks.contract import Committed, Epoch
from sinks.delta import merge_on_read as on_read
from sinks.delta.change_log import FOLDER, ChangeLog
from sinks.delta.merge_on_read import MergeOnRead
from sinks.errors import ConfigurationError, Fenced, KeyMoved, NotADeltaTable, PositionMismatch
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ON_READ: dict[str, Any] = {"sink": {"merge": "on_read"}}
DELETED_BY = "CASE WHEN _deleted_by IS NOT NULL THEN struct(_deleted_by.`partition`, _deleted_by.offset) END"


def options(**sink: Any) -> dict[str, Any]:
    return {"sink": {"merge": "on_read", **sink}}


def current(lake: Lake, **changes: Any) -> list[tuple[str, int]]:
    assert lake.spark is not None
    rows = read(lake.spark, lake.file("upsert", **(changes or ON_READ))).select("k", "n").collect()
    return sorted(tuple(row) for row in rows)


def log_of(table: Table) -> MergeOnRead:
    assert table.derivation.log is not None
    return table.derivation.log


@pytest.mark.law
@pytest.mark.parametrize(
    "sink",
    [
        pytest.param({"ignore_null_updates": True}, marks=pytest.mark.draws),
        {"sequence_by": "seq"},
        pytest.param({}, marks=pytest.mark.draws),
        pytest.param({"sequence_by": "seq", "ignore_null_updates": True}, marks=pytest.mark.draws),
    ],
    ids=["offset-nulls", "sequence", "offset", "sequence-nulls"],
)
@draws()
@given(seed=SEEDS, folds=st.booleans())
def test_current_rows_are_those_of_all_records_and_the_table_those_of_the_last_fold(
    spark: SparkSession, tmp_path: Path, sink: dict[str, Any], seed: int, folds: bool
) -> None:
    sequenced, nulls = "sequence_by" in sink, "ignore_null_updates" in sink
    if sequenced:
        epochs = by_sequence(seed, "uuuud")
    else:
        records, cuts = by_offset(seed)
        epochs = [records[start:end] for start, end in cuts]
    table = Table(own_session(spark), tmp_path, merge="on_read", **sink)
    seen: list[Record] = []
    folded = Model(sequenced, nulls)
    for number, epoch in enumerate(epochs):
        table.write(epoch)
        seen += epoch
        assert table.live() == Model(sequenced, nulls, seen).rows()
        if number == 0 or (number == 1 and folds):
            log_of(table).fold("me")
            folded.records = list(seen)
    assert table.rows() == folded.rows()
    log_of(table).fold("me")
    assert table.rows() == Model(sequenced, nulls, seen).rows() == table.live()


@pytest.mark.draws
@draws()
@given(seed=SEEDS)
def test_rows_that_stay_when_they_are_deleted(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records, epochs = by_offset(seed)
    table = Table(own_session(spark), tmp_path, merge="on_read", deletes="soft")
    for start, end in epochs:
        table.write(records[start:end])
    expected = Model(False, records=records).soft_rows()
    assert table.live("_deleted", DELETED_BY) == expected
    log_of(table).fold("me")
    assert table.rows("_deleted", DELETED_BY) == expected


BATCHES: list[list[tuple[str | None, int | None]]] = [
    [("a", 1), (None, 2)], [("a", 3), ("b", None)], [("a", 5), (None, 7), ("c", 1)], [("b", 9)]
]  # fmt: skip


@pytest.mark.breadth
def test_aggregates_are_those_of_all_records(lake: Lake, topic: Topic) -> None:
    aggregates = {"records": "count(1)", "total": "sum(n)", "last": "last(n)", "mean": "avg(n)"}
    changes = {"sink": {"merge": "on_read", "group_by": "k", "aggregates": aggregates, "fold": {"epochs": 2}}}
    sent: list[tuple[str | None, int | None]] = []
    folded = 0
    for number, rows in enumerate(BATCHES):
        topic.send(*((key, {"k": key, "n": value}) for key, value in rows))
        sent += rows
        file = lake.file("aggregate", epoch={"max_records": 2}, **changes)
        Pipeline.from_file(file).run()
        assert lake.spark is not None
        assert totals(read(lake.spark, file)) == expected(sent), number
        folded = max(each["epoch"] for each in lake.metadata("aggregate"))
    assert 1 < folded <= max(each["epoch"] for each in lake.metadata(f"aggregate/{FOLDER}"))
    lake.pipeline("aggregate", **changes).fold()
    assert totals(lake.frame("aggregate")) == expected(sent)


def totals(frame: DataFrame) -> dict[str | None, tuple[int, int | None]]:
    return {row["k"]: (row["records"], row["total"]) for row in frame.collect()}


def expected(sent: list[tuple[str | None, int | None]]) -> dict[str | None, tuple[int, int | None]]:
    groups: dict[str | None, list[int | None]] = {}
    for key, value in sent:
        groups.setdefault(key, []).append(value)
    return {
        key: (len(values), sum(there) if (there := [value for value in values if value is not None]) else None)
        for key, values in groups.items()
    }


@pytest.mark.breadth
def test_an_epoch_is_one_append_and_the_table_changes_with_a_fold_only(lake: Lake, topic: Topic) -> None:
    seen: list[tuple[Step, int]] = []

    def observe(event: Event) -> None:
        seen.append((event.step, event.epoch.number))

    for number in range(5):
        topic.send_rows([("a", number), (f"b{number}", number)])
        lake.pipeline("upsert", **options(fold={"epochs": 3})).run(observers=[observe])
        assert current(lake) == [("a", number), *((f"b{each}", each) for each in range(number + 1))]
    assert [number for step, number in seen if step is Step.FOLDED] == [4]
    assert lake.rows("upsert") == [("a", 3), ("b0", 0), ("b1", 1), ("b2", 2), ("b3", 3)]
    of_table, of_log = lake.metadata("upsert"), lake.metadata(f"upsert/{FOLDER}")
    assert [each["epoch"] for each in of_table] == [1, 4]
    assert [each["epoch"] for each in of_log] == [1, 2, 3, 4, 5]
    assert of_table[1]["offsets"] == of_log[3]["offsets"]
    files = list((lake.path("upsert") / FOLDER).glob("*.parquet"))
    assert len(files) == 5, "one per epoch, whatever it was read from; the first one's is empty"
    # Nothing new: nothing is written. By hand it is folded at once.
    lake.pipeline("upsert", **ON_READ).run()
    assert lake.pipeline("upsert", **ON_READ).fold() is not None
    assert lake.rows("upsert") == current(lake)
    assert lake.pipeline("upsert", **ON_READ).fold() is None
    assert lake.metadata("upsert")[-1]["epoch"] == 5


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)


@pytest.mark.classic("its runs are processes of their own")
@pytest.mark.kills
@pytest.mark.parametrize(
    ("kill", "trigger"),
    [
        *((each, None) for each in (Step.COMMITTED, Step.FOLDING, Moment.MID_WRITE, Moment.BEFORE_COMMIT, Step.FOLDED)),
        *((each, {"interval": 0}) for each in (Moment.MID_WRITE, Moment.BEFORE_COMMIT, Step.FOLDED)),
    ],
)
def test_killed_around_a_fold(kill: Step | Moment, trigger: dict[str, Any] | None, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0), ("b", 0)])
    lake.pipeline("upsert", **ON_READ).run()
    lake.pipeline("upsert", **ON_READ).view(topic.name.replace("-", "_"), create=True)
    topic.send_rows([("a", 1), ("c", 1)])
    topic.send(("b", None))
    file = lake.file("upsert", **options(fold={"epochs": 1}), **({"trigger": trigger} if trigger else {}))
    if isinstance(kill, Step):
        run = start("connector.lab.bench.faults", file, kill.value, 2, "SIGKILL")
    else:
        run = start("connector", "run", file)
        seen = wait_for(kill, lake.path("upsert"), 2, going_on=lambda: run.poll() is None)
        assert seen or kill is Moment.BEFORE_COMMIT, "that one lasts a millisecond, and may be missed"
        os.killpg(run.pid, signal.SIGKILL)
    assert run.wait(120) == -signal.SIGKILL
    expected = [("a", 1), ("c", 1)]
    assert current(lake) == expected
    assert lake.spark is not None
    viewed = lake.spark.sql(f"SELECT k, n FROM {topic.name.replace('-', '_')}")
    assert sorted(tuple(row) for row in viewed.collect()) == expected
    folded = lake.version("upsert") == 2
    assert lake.rows("upsert") == (expected if folded else [("a", 0), ("b", 0)])
    assert folded or kill is not Step.FOLDED
    topic.send_rows([("a", 2)])
    lake.pipeline("upsert", **options(fold={"epochs": 1})).run()
    assert lake.rows("upsert") == current(lake) == [("a", 2), ("c", 1)]


def crash(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.breadth
def test_a_crash_between_the_first_epoch_and_the_start_of_the_log(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send_rows([("a", 0)])
    with monkeypatch.context() as patched:
        patched.setattr(ChangeLog, "start", crash)
        with pytest.raises(KeyboardInterrupt):
            lake.pipeline("upsert", **ON_READ).run()
    assert current(lake) == [("a", 0)]
    for number in (1, 2):
        topic.send_rows([("a", number)])
        lake.pipeline("upsert", **ON_READ).run()
        assert current(lake) == [("a", number)]
    assert [each["epoch"] for each in lake.metadata("upsert")] == [1, 2]
    assert [each["epoch"] for each in lake.metadata(f"upsert/{FOLDER}")] == [2, 3]


@pytest.mark.breadth
def test_a_restored_table_takes_the_pipeline_back_and_nothing_of_the_log_counts(lake: Lake, topic: Topic) -> None:
    for number in range(3):
        topic.send_rows([("a", number), (f"b{number}", number)])
        lake.pipeline("upsert", **options(fold={"epochs": 2})).run()
    assert lake.rows("upsert") == [("a", 2), ("b0", 0), ("b1", 1), ("b2", 2)]
    topic.send_rows([("a", 3)])
    lake.pipeline("upsert", **ON_READ).run()
    lake.sql("RESTORE {t} TO VERSION AS OF 1", "upsert")
    assert current(lake) == [("a", 0), ("b0", 0)]
    with pytest.raises(PositionMismatch, match="has 1 epoch that the table lacks, and no longer counts"):
        lake.pipeline("upsert", **ON_READ).fold()
    topic.send_rows([("c", 4)])
    lake.pipeline("upsert", **ON_READ).run()
    expected = [("a", 3), ("b0", 0), ("b1", 1), ("b2", 2), ("c", 4)]
    assert lake.rows("upsert") == expected, "read again, and merged: the log starts with the next epoch"
    topic.send_rows([("c", 5)])
    lake.pipeline("upsert", **ON_READ).run()
    assert lake.rows("upsert") == expected
    assert current(lake) == [*expected[:-1], ("c", 5)]


def replaced_at(step: Step, epoch: int, by: Pipeline) -> Any:
    """An observer that has another run do its work, while this one stands at a step."""
    done: list[object] = []

    def observe(event: Event) -> None:
        if event.step is step and event.epoch.number == epoch and not done:
            done.append(by.run())

    return observe


@pytest.mark.breadth
def test_a_run_that_appends_is_fenced_by_one_that_merges_on_write_and_the_other_way_round(
    lake: Lake, topic: Topic
) -> None:
    appends, merges = lake.pipeline("upsert", **ON_READ), lake.pipeline("upsert")
    topic.send_rows([("a", 0)])
    appends.run()
    topic.send_rows([("a", 1), ("b", 1)])
    appends.run()
    topic.send_rows([("a", 2)])
    with pytest.raises(Fenced):
        appends.run(observers=[replaced_at(Step.WRITING, 3, merges)])
    assert lake.rows("upsert") == [("a", 2), ("b", 1)]
    assert current(lake) == lake.rows("upsert"), "what the log still has is older than the table"
    topic.send_rows([("b", 3)])
    with pytest.raises(Fenced):
        merges.run(observers=[replaced_at(Step.WRITING, lake.metadata("upsert")[-1]["epoch"] + 1, appends)])
    topic.send_rows([("b", 4)])
    appends.run()
    assert current(lake) == [("a", 2), ("b", 4)]


@contextmanager
def ending(*events: threading.Event) -> Iterator[None]:
    """Lets the threads that wait for these end, whatever happens in the block."""
    try:
        yield
    finally:
        for event in events:
            event.set()


@pytest.mark.classic("with Spark Connect a fold comes between two epochs")
def test_epochs_go_on_beside_a_fold(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on, may_end, stop = threading.Event(), threading.Event(), threading.Event()
    fold = MergeOnRead._fold

    def slowly(log: MergeOnRead, *of: Any) -> Committed:
        going_on.set()
        assert may_end.wait(60)
        return fold(log, *of)

    seen: list[tuple[Step, int]] = []

    def observe(event: Event) -> None:
        if event.step in (Step.COMMITTED, Step.FOLDED):
            seen.append((event.step, event.epoch.number))

    monkeypatch.setattr(MergeOnRead, "_fold", slowly)
    topic.send_rows([("a", 0), ("b", 0)])
    run = lake.pipeline("upsert", **options(fold={"epochs": 1}), trigger={"interval": 0})
    with ThreadPoolExecutor(1) as pool, ending(stop, may_end):
        ended = pool.submit(run.run, stop=stop, observers=[observe])
        for number in (1, 2, 3, 4):
            wait_until(lambda number=number: (Step.COMMITTED, number) in seen or ended.done(), 90, "an epoch")
            if number < 4:
                topic.send_rows([("a", number)])
        assert going_on.wait(90)
        assert current(lake) == [("a", 3), ("b", 0)]
        assert Step.FOLDED not in {step for step, _ in seen}
        may_end.set()
        wait_until(lambda: (Step.FOLDED, 4) in seen or ended.done(), 90, "the second fold")
        stop.set()
        ended.result(90)
    assert seen[:4] == [(Step.COMMITTED, number) for number in (1, 2, 3, 4)]
    assert [number for step, number in seen if step is Step.FOLDED][-1] == 4
    assert lake.rows("upsert") == current(lake) == [("a", 3), ("b", 0)]
    assert verify(lake, "upsert", **ON_READ).ok


def test_two_that_fold_at_once_fold_once(lake: Lake, topic: Topic) -> None:
    for number in range(2):
        topic.send_rows([("a", number), ("b", number)])
        lake.pipeline("upsert", **ON_READ).run()
    other: list[object] = []

    def observe(event: Event) -> None:
        if event.step is Step.FOLDING:
            other.append(lake.pipeline("upsert", **ON_READ).fold())

    lake.pipeline("upsert", **ON_READ).fold(observers=[observe])
    assert other != [None]
    assert lake.version("upsert") == 2
    assert lake.rows("upsert") == [("a", 1), ("b", 1)]


@pytest.mark.breadth
def test_what_was_folded_is_forgotten_when_its_readers_are_done(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = None
    for number in range(4):
        topic.send_rows([("a", number), (f"b{number}", number)])
        lake.pipeline("upsert", **options(fold={"epochs": 2})).run()
        if number == 1:
            assert lake.spark is not None
            held = read(lake.spark, lake.file("upsert", **ON_READ))
    log = f"upsert/{FOLDER}"
    assert lake.frame(log).count() == 6, "an hour hasn't passed"
    monkeypatch.setattr(on_read, "_READERS_TAKE", on_read._READERS_TAKE * 0)
    assert lake.pipeline("upsert", **ON_READ).fold() is not None
    assert lake.frame(log).count() == 2, "the log's last commit doesn't know yet that its epoch is folded"
    assert held is not None
    assert sorted(tuple(row) for row in held.select("k", "n").collect()) == [("a", 1), ("b0", 0), ("b1", 1)]
    topic.send_rows([("a", 9)])
    lake.pipeline("upsert", **ON_READ).run()
    assert current(lake) == [("a", 9), *((f"b{each}", each) for each in range(4))]


@pytest.mark.breadth
def test_a_letter_that_comes_late_does_not_bring_a_deleted_row_back(lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    topic.send(("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": "?"}), ("c", {"k": "c", "n": "?"}), partition=0)
    lake.pipeline("upsert", **ON_READ, **letters).run()
    topic.send(("b", {"k": "b", "n": 2}), ("b", None), partition=0)
    lake.pipeline("upsert", **ON_READ, **letters).run()
    lake.pipeline("upsert", **ON_READ, **letters).fold()
    assert current(lake, **ON_READ, **letters) == [("a", 1)]
    assert lake.pipeline("upsert", **ON_READ, **letters).retry_dead_letters().still_bad == 2
    assert current(lake, **ON_READ, **letters) == [("a", 1)]


@pytest.mark.breadth
def test_a_retried_letter_brings_no_deleted_row_back_where_the_file_has_no_letters_any_more(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    narrow, wide = ({**ON_READ, **letters, "require": rule} for rule in ("n < 10", "n < 100"))
    topic.send_rows([("a", 1), ("b", 20)], partition=0)
    lake.pipeline("upsert", **narrow).run()
    topic.send(("b", {"k": "b", "n": 2}), ("b", None), partition=0)
    lake.pipeline("upsert", **narrow).run()
    lake.pipeline("upsert", **narrow).fold()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("connector.engine.fold.Folding.into_table", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.pipeline("upsert", **wide).retry_dead_letters()
    without = {**ON_READ, "require": "n < 100"}
    assert current(lake, **without) == [("a", 1)]
    topic.send_rows([("c", 3)], partition=0)
    lake.pipeline("upsert", **without).run()
    lake.pipeline("upsert", **without).fold()
    assert lake.rows("upsert") == [("a", 1), ("c", 3)]


@pytest.mark.breadth
def test_letters_are_closed_once_the_table_itself_has_their_rows(lake: Lake, topic: Topic) -> None:
    """The log of a table may cease to count, and then its epochs are read again from Kafka: letters aren't."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    narrow, wide = ({**ON_READ, **letters, "require": rule} for rule in ("n < 10", "n < 100"))
    topic.send_rows([("a", 1), ("b", 20)], partition=0)
    lake.pipeline("upsert", **narrow).run()
    topic.send_rows([("c", 3)], partition=0)
    lake.pipeline("upsert", **wide).run()
    assert lake.pipeline("upsert", **wide).retry_dead_letters().through == 1
    assert lake.rows("upsert") == [("a", 1), ("b", 20), ("c", 3)]

    topic.send_rows([("d", 4)], partition=0)
    lake.pipeline("upsert", **wide).run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')", "upsert")
    lake.sql("UPDATE {t} SET n = n WHERE k = 'a'", "upsert")
    forget_history(lake.path("upsert"))
    lake.pipeline("upsert", **wide).run()
    lake.pipeline("upsert", **wide).fold()
    assert lake.rows("upsert") == [("a", 1), ("b", 20), ("c", 3), ("d", 4)]


@pytest.mark.breadth
def test_a_letter_that_is_older_than_its_row_changes_nothing_for_readers_either(lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    narrow, wide = ({**ON_READ, **letters, "require": rule} for rule in ("n < 10", "n < 100"))
    topic.send_rows([("a", 1), ("a", 20), ("a", 3)], partition=0)
    lake.pipeline("upsert", **narrow).run()
    lake.pipeline("upsert", **narrow).fold()
    assert lake.rows("upsert") == [("a", 3)]
    assert lake.pipeline("upsert", **wide).retry_dead_letters().still_bad == 0
    assert current(lake, **wide) == [("a", 3)]
    lake.pipeline("upsert", **wide).fold()
    assert lake.rows("upsert") == [("a", 3)]


@pytest.mark.breadth
def test_several_sinks_need_a_table_that_is_folded(lake: Lake, topic: Topic) -> None:
    for number in range(2):
        topic.send_rows([("a", number)])
        lake.pipeline("upsert", **ON_READ).run()
    several = {**lake.options("upsert"), "coordinator": {"path": str(lake.path("log"))}}
    several["sinks"] = [*several["sinks"], {"type": "delta_append", "path": str(lake.path("append"))}]
    with pytest.raises(ConfigurationError, match="1 epoch isn't folded"):
        Pipeline.from_options(several).run()
    assert current(lake) == [("a", 1)]


@pytest.mark.breadth
def test_many_records_are_folded_before_many_epochs_are(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)])
    lake.pipeline("upsert", **options(fold={"records": 3})).run()
    topic.send_rows([("b", 1), ("c", 2)])
    lake.pipeline("upsert", **options(fold={"records": 3})).run()
    assert lake.rows("upsert") == [("a", 0)]
    topic.send_rows([("a", 3)])
    lake.pipeline("upsert", **options(fold={"records": 3})).run()
    assert lake.rows("upsert") == [("a", 3), ("b", 1), ("c", 2)]


@pytest.mark.breadth
def test_a_column_that_the_file_does_not_name_keeps_its_values_for_readers_too(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)])
    lake.pipeline("upsert", **ON_READ).run()
    lake.sql("ALTER TABLE {t} ADD COLUMNS (extra STRING)", "upsert")
    lake.sql("UPDATE {t} SET extra = 'x'", "upsert")
    topic.send_rows([("a", 1), ("b", 2)])
    lake.pipeline("upsert", **ON_READ).run()
    assert lake.spark is not None
    rows = read(lake.spark, lake.file("upsert", **ON_READ)).select("k", "n", "extra").collect()
    lake.pipeline("upsert", **ON_READ).fold()
    expected = [("a", 1, "x"), ("b", 2, None)]
    assert sorted(tuple(row) for row in rows) == expected
    assert sorted(lake.sql("SELECT k, n, extra FROM {t}", "upsert")) == expected


@pytest.mark.breadth
def test_a_key_that_moves_stops_the_fold_and_loses_nothing(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)], partition=0)
    lake.pipeline("upsert", **ON_READ).run()
    topic.send_rows([("a", 1)], partition=1)
    lake.pipeline("upsert", **ON_READ).run()
    with pytest.raises(KeyMoved, match=r"came from .*-0 so far, and now from .*-1"):
        lake.pipeline("upsert", **ON_READ).fold()
    assert lake.rows("upsert") == [("a", 0)]
    assert lake.frame(f"upsert/{FOLDER}").count() == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sink": {"merge": "on_write", "fold": {"epochs": 2}}}, "fold needs merge: on_read"),
        ({**ON_READ, "delivery": "idempotent"}, "merge: on_read doesn't work with this pipeline: delivery: idempotent"),
        ({**ON_READ, "on_new_column": "add"}, "on_new_column: add changes the table"),
        (options(apply_as_truncates="n = 1", sequence_by="n"), "a truncate affects every row"),
        (options(fold={"epochs": 0}), "fold.epochs: write at least 1, not 0"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, Any], why: str, lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=why):
        lake.pipeline("upsert", **changes)


def test_nothing_to_fold_where_epochs_are_merged(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="has nothing to fold"):
        lake.pipeline("upsert").fold()


@pytest.mark.breadth
def test_a_table_with_a_name_has_a_view_for_its_current_rows(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    name = f"t_{topic.name[2:]}"
    sink = {"path": None, "table": f"default.{name}", "merge": "on_read", "fold": {"epochs": 2}}
    seen = []
    for number in range(4):
        topic.send_rows([("a", number), (f"b{number}", number)])
        lake.pipeline("upsert", sink=sink).run()
        rows = lake.spark.sql(f"SELECT k, n FROM default.{name}_live")
        seen.append(sorted(tuple(row) for row in rows.collect()))
    expected = [[("a", last), *((f"b{each}", each) for each in range(last + 1))] for last in range(4)]
    assert seen == expected
    assert lake.spark.table(f"default.{name}").count() == 4, "as of epoch 3"


@pytest.mark.breadth
def test_a_table_restored_while_a_run_appends_stops_that_run(lake: Lake, topic: Topic) -> None:
    for number in range(2):
        topic.send_rows([("a", number)])
        lake.pipeline("upsert", **options(fold={"epochs": 1})).run()
    topic.send_rows([("b", 2)])
    lake.pipeline("upsert", **ON_READ).run()
    topic.send_rows([("c", 3)])

    def restore(event: Event) -> None:
        if event.step is Step.WRITING:
            lake.sql("RESTORE {t} TO VERSION AS OF 1", "upsert")

    with pytest.raises(PositionMismatch, match="was changed under the run"):
        lake.pipeline("upsert", **ON_READ).run(observers=[restore])
    lake.pipeline("upsert", **ON_READ).run()
    assert lake.rows("upsert") == current(lake) == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.breadth
def test_a_column_that_the_table_got_since_is_taken_by_the_log_too(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0)])
    lake.pipeline("upsert", **ON_READ).run()
    topic.send_rows([("b", 1)])
    lake.pipeline("upsert", **ON_READ).run()
    lake.sql("ALTER TABLE {t} ADD COLUMNS (more STRING)", "upsert")
    topic.send(("c", {"k": "c", "n": 2, "more": "x"}))
    wider = {**ON_READ, "schema": "k STRING, n INT, more STRING"}
    lake.pipeline("upsert", **wider).run()
    assert lake.spark is not None
    rows = read(lake.spark, lake.file("upsert", **wider)).select("k", "n", "more").collect()
    assert sorted(tuple(row) for row in rows) == [("a", 0, None), ("b", 1, None), ("c", 2, "x")]
    lake.pipeline("upsert", **wider).fold()
    assert lake.sql("SELECT k, more FROM {t} ORDER BY k", "upsert") == [("a", None), ("b", None), ("c", "x")]


@pytest.mark.breadth
@pytest.mark.spark4("Delta widens these types since 4.0")
def test_a_log_with_narrower_types_than_the_records_is_made_anew(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None

    def run(schema: str, *rows: tuple[str, float, str]) -> dict[str, Any]:
        for k, n, d in rows:
            topic.send((k, {"k": k, "n": n, "d": d}))
            lake.pipeline("upsert", **ON_READ, schema=schema).run()
        return {**ON_READ, "schema": schema}

    run("k STRING, n FLOAT, d DECIMAL(10,2)", ("a", 0.5, "1.25"), ("b", 0.5, "1.25"))
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "upsert")
    for column, kind in (("n", "DOUBLE"), ("d", "DECIMAL(12,4)")):
        lake.sql(f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {kind}", "upsert")
    options = run("k STRING, n DOUBLE, d DECIMAL(12,4)", ("c", 0.1, "1.2345"), ("d", 0.1, "1.2345"))
    columns = "n", "CAST(d AS STRING) AS d"
    rows = read(lake.spark, lake.file("upsert", **options)).selectExpr(*columns).collect()
    assert sorted(tuple(row) for row in rows) == [(0.1, "1.2345")] * 2 + [(0.5, "1.2500")] * 2
    lake.pipeline("upsert", **options).fold()
    assert lake.sql(f"SELECT {', '.join(columns)} FROM {{t}} ORDER BY n", "upsert") == sorted(map(tuple, rows))


@pytest.mark.breadth
def test_what_delta_fills_at_a_fold_is_in_the_current_rows_too(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    lake.sql(
        "CREATE TABLE {t} (k STRING, twice INT GENERATED ALWAYS AS (n * 2), n INT, note STRING DEFAULT 'new', "
        "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP) USING delta "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        "upsert",
    )
    topic.send_rows([("a", 1), ("b", 1)])
    lake.pipeline("upsert", **ON_READ).run()
    lake.sql("UPDATE {t} SET note = 'mine' WHERE k = 'a'", "upsert")
    topic.send_rows([("a", 2), ("c", 3)])
    lake.pipeline("upsert", **ON_READ).run()
    columns = ("k", "n", "twice", "note")
    rows = sorted(tuple(row) for row in read(lake.spark, lake.file("upsert", **ON_READ)).select(*columns).collect())
    assert rows == [("a", 2, 4, "mine"), ("b", 1, 2, "new"), ("c", 3, 6, "new")]
    lake.pipeline("upsert", **ON_READ).fold()
    assert lake.sql(f"SELECT {', '.join(columns)} FROM {{t}} ORDER BY k", "upsert") == rows


@pytest.mark.breadth
def test_a_fold_reads_no_files_whose_keys_are_beyond_those_of_the_changes(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0), ("b", 0)])
    lake.pipeline("upsert", **ON_READ).run()
    old = list(lake.path("upsert").glob("*.parquet"))
    for number in range(2):
        topic.send_rows([("x", number), ("y", number)])
        lake.pipeline("upsert", **ON_READ).run()
        if number == 1:  # what isn't there can't be read
            for file in old:
                file.rename(file.with_suffix(".aside"))
        assert lake.pipeline("upsert", **ON_READ).fold() is not None
    for file in old:
        file.with_suffix(".aside").rename(file)
    assert lake.rows("upsert") == [("a", 0), ("b", 0), ("x", 1), ("y", 1)]


@pytest.mark.breadth
def test_verify_audits_the_table_as_of_its_last_fold(lake: Lake, topic: Topic) -> None:
    changes = {**ON_READ, "on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    for number in range(2):
        topic.send(("a", {"k": "a", "n": number}), ("b", {"k": "b", "n": "?"}))
        lake.pipeline("upsert", **changes).run()
    found = verify(lake, "upsert", **changes)
    assert found.ok
    assert "The change log has epoch 2 beside it, which was not compared." in found.notes[0]
    lake.pipeline("upsert", **changes).fold()
    found = verify(lake, "upsert", **changes)
    assert found.ok
    assert not any("change log" in note for note in found.notes)
    lake.sql("DELETE FROM {t}", "upsert")
    assert not verify(lake, "upsert", **changes).ok


@pytest.mark.breadth
def test_verify_names_what_is_not_folded_if_the_file_merges_on_write_by_now(lake: Lake, topic: Topic) -> None:
    for number in range(3):
        topic.send(("a", {"k": "a", "n": number}))
        lake.pipeline("upsert", **ON_READ).run()
    found = verify(lake, "upsert")
    assert found.ok
    assert "The change log has epochs 2 to 3 beside it" in found.notes[0]
    state = lake.pipeline("upsert").status()
    assert state.position is not None
    assert (state.position.epoch, state.unfolded) == (3, 2)
    lake.pipeline("upsert").run()
    found = verify(lake, "upsert")
    assert found.ok
    assert not any("change log" in note for note in found.notes)
    assert lake.pipeline("upsert").status().unfolded is None


@pytest.mark.breadth
def test_a_rewind_plans_and_history_tells_what_is_not_folded(lake: Lake, topic: Topic) -> None:
    """A RESTORE of the table throws it away, also one to the table's newest version."""
    for number in range(4):
        topic.send_rows([(f"k{number}", number)], partition=0)
        lake.pipeline("upsert", **options(fold={"epochs": 1 if number == 1 else 50})).run()
    pipeline = lake.pipeline("upsert", **ON_READ)
    assert lake.spark is not None
    folded = lake.version("upsert")
    told = [(epoch.number, epoch.state, list(epoch.commits.values())) for epoch in past(pipeline.config, lake.spark)]
    in_log = ["change log"]
    assert told == [
        (4, "committed", in_log), (3, "committed", in_log), (2, "committed", [f"version {folded}"]),
        (1, "committed", ["version 1"]),
    ]  # fmt: skip
    plan = pipeline.rewind(to_version=folded, confirm=lambda _: True)
    assert (plan.position.epoch, plan.position.version, plan.target.epoch, plan.again) == (4, folded, 2, 2)
    assert lake.rows("upsert") == current(lake) == [("k0", 0), ("k1", 1)]
    pipeline.run()
    assert current(lake) == [(f"k{number}", number) for number in range(4)]
    states = {epoch.number: epoch.state for epoch in past(pipeline.config, lake.spark)}
    assert states == {
        1: "committed", 2: "committed", 3: "taken back", 4: "taken back", 5: "committed", 6: "committed"
    }  # fmt: skip


@pytest.mark.breadth
def test_a_log_that_a_restore_has_passed_over_never_counts_again(lake: Lake, topic: Topic) -> None:
    for number in range(5):
        topic.send_rows([(f"k{number}", number)], partition=0)
        lake.pipeline("upsert", **options(fold={"epochs": 1 if number == 1 else 50})).run()
    lake.sql("RESTORE {t} TO VERSION AS OF 1", "upsert")
    stop = threading.Event()

    def after_one_epoch(event: Event) -> None:
        if event.step is Step.COMMITTED:
            stop.set()

    # Its number is lower than that of the log, and it goes less far.
    lake.pipeline("upsert", epoch={"max_records": 1}).run(stop=stop, observers=[after_one_epoch])
    assert lake.rows("upsert") == current(lake) == [("k0", 0), ("k1", 1)]
    lake.pipeline("upsert").run()
    expected = [(f"k{number}", number) for number in range(5)]
    assert lake.rows("upsert") == current(lake) == expected
    topic.send_rows([("k9", 9)], partition=0)
    lake.pipeline("upsert", **ON_READ).run()
    assert current(lake) == [*expected, ("k9", 9)]


@pytest.mark.breadth
def test_a_log_does_not_count_where_a_cleaned_history_may_hide_a_restore(lake: Lake, topic: Topic) -> None:
    for number, key in enumerate("abc"):
        topic.send_rows([(key, number)], partition=0)
        lake.pipeline("upsert", **options(fold={"epochs": 1 if key == "b" else 50})).run()
    assert lake.rows("upsert") == [("a", 0), ("b", 1)]
    lake.sql("RESTORE {t} TO VERSION AS OF 1", "upsert")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')", "upsert")
    lake.sql("UPDATE {t} SET n = n WHERE k = 'a'", "upsert")
    forget_history(lake.path("upsert"))
    lake.pipeline("upsert", **ON_READ).run()
    lake.pipeline("upsert", **ON_READ).fold()
    assert lake.rows("upsert") == [("a", 0), ("b", 1), ("c", 2)]


@pytest.mark.breadth
@pytest.mark.parametrize("crashes", [False, True])
def test_the_log_of_a_removed_table_has_no_say_in_the_one_in_its_place(
    crashes: bool, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [(f"k{number}", number) for number in range(5)]
    for row in expected[:3]:
        topic.send_rows([row], partition=0)
        lake.pipeline("upsert", **ON_READ).run()
    again = options(path=str(lake.path("again")))
    shutil.copytree(lake.path("upsert") / "_lakelock", lake.path("again") / "_lakelock")
    topic.send_rows(expected[3:4], partition=0)
    with pytest.raises(NotADeltaTable) as refused:
        lake.pipeline("upsert", **again).run()
    assert "remove its folder `_lakelock` too" in refused.value.hint
    columns = pa.schema(
        [
            ("k", pa.string()), ("n", pa.int32()), ("_topic", pa.string()), ("_partition", pa.int32()),
            ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", "UTC")),
        ]
    )  # fmt: skip
    write_deltalake(str(lake.path("again")), columns.empty_table())
    if crashes:
        with monkeypatch.context() as patched:
            patched.setattr(ChangeLog, "start", crash)
            with pytest.raises(KeyboardInterrupt):
                lake.pipeline("upsert", **again).run()
    for upto in (4, 5):
        lake.pipeline("upsert", **again).run()
        assert current(lake, **again) == expected[:upto]
        topic.send_rows(expected[upto:][:1], partition=0)
    lake.pipeline("upsert", **again).fold()
    assert lake.rows("again") == expected


@pytest.mark.breadth
def test_a_log_whose_folded_changes_are_gone_does_not_count_for_a_table_that_was_set_back(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RESTORE shows in the table's history. Files of a backup don't."""
    monkeypatch.setattr(on_read, "_READERS_TAKE", on_read._READERS_TAKE * 0)
    backup, again = lake.path("again"), options(path=str(lake.path("again")))
    expected = [(f"k{number}", number) for number in range(7)]
    for number, row in enumerate(expected[:6]):
        topic.send_rows([row], partition=0)
        lake.pipeline("upsert", **options(fold={"epochs": 1 if number % 2 else 50})).run()
        if number == 1:
            shutil.copytree(lake.path("upsert"), backup, ignore=shutil.ignore_patterns("_lakelock"))
    assert lake.frame(f"upsert/{FOLDER}").where("_epoch < 5").isEmpty(), "folded, and forgotten"
    shutil.copytree(lake.path("upsert") / "_lakelock", backup / "_lakelock")
    assert current(lake, **again) == expected[:2]
    lake.pipeline("upsert", **again).run()
    assert current(lake, **again) == expected[:6], "read from Kafka again"
    topic.send_rows(expected[6:], partition=0)
    lake.pipeline("upsert", **again).run()
    lake.pipeline("upsert", **again).fold()
    assert lake.rows("again") == expected


@pytest.mark.breadth
def test_a_first_epoch_that_landed_late_starts_the_log_where_the_table_stands(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An earlier try of this run, which got no answer, had read less."""
    table = Table(own_session(spark), tmp_path, merge="on_read")
    records = [Record(key, "u", 1, 1, 0, offset=offset) for offset, key in enumerate("abcd")]
    late = Epoch("p", 1, "me", (), Offsets({TopicPartition("t", 0): 2}), {}, None, None)
    log = log_of(table)
    log._now.table.write(late, log._now.reduce.of(table.derivation.reduce(table.frame(records[:2]), late)))
    table.write(records)
    assert table.position is not None
    assert table.position.offsets == late.offsets
    table.write(records[2:])
    assert log.standing().goes_on
    assert sorted(table.live()) == ["a", "b", "c", "d"]
