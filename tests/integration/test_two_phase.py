"""Several sinks move together: every epoch is in all of them or in none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from typer.testing import CliRunner

from connector import ConfigurationError, Fenced, Pipeline, snapshot
from connector.audit import audit
from connector.cli.app import app
from connector.protocol.steps import Event, Step
from connector.protocol.two_phase import Did, Found
from sinks.errors import BadRecord, Diverged, KeyMoved, PositionMismatch

if TYPE_CHECKING:
    from conftest import Lake
    from pyspark.sql import DataFrame


def two_tables(lake: Lake, **changes: Any) -> dict[str, Any]:
    """An append and an upsert of the same topic."""
    options = lake.options("append", **changes)
    options["name"] = "both"
    options["sinks"] = [
        {"type": "delta_append", "path": str(lake.path("append"))},
        {"type": "delta_upsert", "path": str(lake.path("upsert")), "key": "k"},
    ]
    options["coordinator"] = {"path": str(lake.path("log"))}
    return options


def log(lake: Lake) -> list[tuple[Any, ...]]:
    return query(lake.path("log"), "SELECT entry, state, epoch FROM t ORDER BY entry, epoch")


@pytest.mark.breadth
def test_two_tables_get_every_epoch_together(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1), ("b", 2), ("a", 3)], partition=0)
    pipeline = Pipeline.from_options(two_tables(lake, epoch={"max_records": 2}))
    delivered = pipeline.run()
    assert delivered.epochs == 2
    assert lake.rows("append") == [("a", 1), ("a", 3), ("b", 2)]
    assert lake.rows("upsert") == [("a", 3), ("b", 2)]
    assert log(lake) == [
        (1, "begun", 1),
        (2, "decided", 1),
        (3, "done", 1),
        (3, "begun", 2),
        (4, "decided", 2),
        (5, "done", 2),
    ]
    again = pipeline.run()
    assert again.epochs == 0
    assert len(log(lake)) == 6


@pytest.mark.breadth
def test_a_record_that_an_upsert_does_not_need_is_in_the_other_tables_all_the_same(lake: Lake) -> None:
    """The columnar reader leaves out what a later record of its key replaces, but for an upsert alone."""
    lake.topic.send_rows([("a", 1), ("a", 2), ("a", 3)], partition=0)
    options = two_tables(lake)
    options["sinks"].reverse()
    Pipeline.from_options(options).run()
    assert (lake.rows("upsert"), lake.rows("append")) == ([("a", 3)], [("a", 1), ("a", 2), ("a", 3)])


TRANSFERS = "id BIGINT, payer STRING, payee STRING, amount BIGINT"


def transfers(lake: Lake, **changes: Any) -> dict[str, Any]:
    """Every transfer, what was paid and what was received."""
    options = lake.options("append", schema=TRANSFERS, **changes)
    options["name"] = "transfers"
    options["sinks"] = [
        {"type": "delta_append", "path": str(lake.path("transfers"))},
        *(
            {
                "type": "delta_aggregate",
                "path": str(lake.path(name)),
                "group_by": side,
                "aggregates": {"amount": "sum(amount)"},
            }
            for name, side in (("paid", "payer"), ("received", "payee"))
        ),
    ]
    options["coordinator"] = {"path": str(lake.path("log"))}
    return options


def send_transfers(lake: Lake, first: int, count: int) -> None:
    people = ["ann", "bob", "cyd", "dan", "eve"]
    lake.topic.send(
        *(
            (
                str(number),
                {
                    "id": number,
                    "payer": people[number % 5],
                    "payee": people[(number * 3 + 1) % 5],
                    "amount": number % 97,
                },
            )
            for number in range(first, first + count)
        )
    )


def totals(at: Mapping[str, DataFrame]) -> set[int]:
    """What each table of a snapshot adds up to: one number, if they fit together."""
    sums = (frame.selectExpr("coalesce(sum(amount), 0) AS amount") for frame in at.values())
    return {int(row["amount"]) for row in reduce(lambda one, other: one.unionAll(other), sums).collect()}


class Stopped(BaseException):
    """As a kill: nothing of the run goes on."""


@pytest.mark.breadth
def test_readers_of_a_snapshot_see_the_sum_that_never_changes(lake: Lake) -> None:
    """Reads while the pipeline runs, and while it stands still where it was killed."""
    assert lake.spark is not None
    file = lake.folder / "transfers.yaml"
    file.write_text(json.dumps(transfers(lake, epoch={"max_records": 40})), encoding="utf-8")
    send_transfers(lake, 0, 80)
    seen: list[int] = []

    def read(event: Event) -> None:
        if event.step is Step.SINK_COMMITTED:
            try:
                at = snapshot(lake.spark, file)
            except ConfigurationError:
                return  # no epoch is in all sinks yet
            assert len(found := totals(at)) == 1, (event, at.epoch, found)
            seen.append(at.epoch)

    def kill(event: Event) -> None:
        read(event)
        if event.step is Step.SINK_COMMITTED and event.epoch.number == 2:
            raise Stopped

    with pytest.raises(Stopped):
        Pipeline.from_file(file).run(observers=[kill])
    Pipeline.from_file(file).run(observers=[read])
    at = snapshot(lake.spark, file)
    assert (at.epoch, totals(at)) == (2, {sum(number % 97 for number in range(80))})
    assert set(seen) >= {1}
    earlier = snapshot(lake.spark, file, epoch=1)
    assert (earlier.epoch, len(totals(earlier))) == (1, 1)


def stopped_at(step: Step, options: dict[str, Any], epoch: int = 2) -> None:
    """A run that ends there as if it were killed."""

    def kill(event: Event) -> None:
        if event.step is step and event.epoch.number == epoch:
            raise Stopped

    with pytest.raises(Stopped):
        Pipeline.from_options(options).run(observers=[kill])


ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4)]
NEWEST = [("a", 3), ("b", 2), ("c", 4)]


def staged(lake: Lake) -> list[str]:
    return [str(each) for kind in ("append", "upsert") for each in (lake.path(kind) / "_lakelock/staging").glob("*/*")]


def test_a_decided_epoch_is_committed_though_kafka_has_lost_it(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    stopped_at(Step.DECIDED, options)
    lake.topic.delete_before(0, 4)
    steps: list[Step] = []
    found = Pipeline.from_options(options).recover(observers=[lambda event: steps.append(event.step)])
    assert steps[0] is Step.IN_DOUBT
    assert (found.found, found.did) == (Found.NOTHING, Did.ROLLED_FORWARD)
    assert (lake.rows("append"), lake.rows("upsert")) == (sorted(ROWS), NEWEST)
    assert Pipeline.from_options(options).run().epochs == 0
    assert staged(lake) == []


@pytest.mark.breadth
def test_what_was_begun_is_thrown_away_and_status_says_who_holds_it(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    stopped_at(Step.PREPARED, options)
    assert len(staged(lake)) == 2
    state = Pipeline.from_options(options).status()
    assert state.in_doubt is not None
    assert (state.in_doubt.epoch.number, state.in_doubt.state.value) == (2, "begun")
    assert state.position is not None
    assert state.position.epoch == 1
    found = Pipeline.from_options(options).recover()
    assert (found.found, found.did, found.doubted) == (Found.NOTHING, Did.ABORTED, state.in_doubt)
    assert staged(lake) == []
    assert Pipeline.from_options(options).status().in_doubt is None
    assert Pipeline.from_options(options).recover().did is Did.NOTHING
    Pipeline.from_options(options).run()
    assert (lake.rows("append"), lake.rows("upsert")) == (sorted(ROWS), NEWEST)


@pytest.mark.breadth
def test_an_epoch_whose_staged_rows_are_gone_is_read_again(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    stopped_at(Step.DECIDED, options)
    shutil.rmtree(lake.path("upsert") / "_lakelock/staging")
    (file,) = (lake.path("append") / "_lakelock/staging").glob("*/*/part-*")
    file.unlink()  # Spark's mark, that all files are there, stays
    found = Pipeline.from_options(options).recover()
    assert (found.found, found.did) == (Found.NOTHING, Did.READ_AGAIN)
    assert (lake.rows("append"), lake.rows("upsert")) == (sorted(ROWS), NEWEST)
    assert [state for _, state, _ in log(lake)][-3:] == ["decided", "decided", "done"]


@pytest.mark.breadth
def test_a_decided_epoch_is_read_again_whatever_fields_its_records_lack(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, schema="k STRING, n INT, custmer STRING", unmatched="warn", epoch={"max_records": 2})
    stopped_at(Step.DECIDED, options)
    shutil.rmtree(lake.path("upsert") / "_lakelock/staging")
    assert Pipeline.from_options({**options, "unmatched": "fail"}).recover().did == Did.READ_AGAIN
    assert (lake.rows("append"), lake.rows("upsert")) == (sorted(ROWS), NEWEST)


def test_a_transform_gives_each_sink_its_own_rows(lake: Lake) -> None:
    """A tombstone is a row for the upsert only: the append has to refuse it, also where both share a session."""
    lake.topic.send(("a", {"k": "a", "n": 1}), ("a", None), partition=0)
    with pytest.raises(BadRecord, match="tombstone"):
        Pipeline.from_options(two_tables(lake, transform="SELECT k, n FROM records")).run()
    assert (lake.rows("append"), lake.rows("upsert")) == ([], [])


@pytest.mark.breadth
def test_an_epoch_is_never_mixed_from_two_versions_of_the_file(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    stopped_at(Step.DECIDED, options)
    shutil.rmtree(lake.path("upsert") / "_lakelock/staging")
    edited = {**options, "transform": "SELECT k, n * 10 AS n FROM records"}
    with pytest.raises(Diverged, match="has been changed since"):
        Pipeline.from_options(edited).run()
    Pipeline.from_options(options).recover()
    assert lake.rows("upsert") == [("a", 3), ("b", 2), ("c", 4)]
    lake.topic.send_rows([("d", 5)], partition=0)
    Pipeline.from_options(edited).run()
    assert lake.rows("append")[-1] == ("d", 50)


@pytest.mark.breadth
def test_staged_rows_are_committed_by_the_options_that_reduced_them(lake: Lake) -> None:
    """By another key, one row of several would be all that the table ever gets of them."""
    lake.topic.send_rows([("a", 1), ("b", 2), ("a", 3)], partition=0)
    options = two_tables(lake)
    stopped_at(Step.DECIDED, options, epoch=1)
    edited = two_tables(lake)
    edited["sinks"][1]["key"] = ["k", "n"]
    for _ in range(2):
        with pytest.raises(Diverged, match="key was k, and is k, n now"):
            Pipeline.from_options(edited).run()
        assert lake.rows("upsert") == []
    Pipeline.from_options(options).recover()
    assert lake.rows("upsert") == [("a", 3), ("b", 2)]
    Pipeline.from_options(edited).rewind(to_epoch=0, confirm=True)
    Pipeline.from_options(edited).run()
    assert lake.rows("upsert") == lake.rows("append") == [("a", 1), ("a", 3), ("b", 2)]


@pytest.mark.breadth
@pytest.mark.parametrize("step", [Step.BEGUN, Step.PREPARED, Step.DECIDED])
def test_a_run_that_was_replaced_stops_wherever_it_is(lake: Lake, step: Step) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    other: list[int] = []

    def replace_it(event: Event) -> None:
        if event.step is step and not other:
            other.append(0)
            other[0] = Pipeline.from_options(options).run().epochs

    with pytest.raises(Fenced) as caught:
        Pipeline.from_options(options).run(observers=[replace_it])
    assert caught.value.exit_code == 3
    assert other == [2 if step is not Step.DECIDED else 1]
    assert (lake.rows("append"), lake.rows("upsert")) == (sorted(ROWS), NEWEST)
    assert Pipeline.from_options(options).run().epochs == 0
    assert staged(lake) == []


@pytest.mark.breadth
def test_a_bad_record_leaves_nothing_anywhere(lake: Lake) -> None:
    lake.topic.send_rows(ROWS[:2], partition=0)
    options = two_tables(lake)
    Pipeline.from_options(options).run()
    lake.topic.send(("x", b"not json"), partition=0)
    for _ in range(2):
        with pytest.raises(BadRecord, match="offset 2"):
            Pipeline.from_options(options).run()
    assert (lake.rows("append"), lake.rows("upsert"), staged(lake)) == (ROWS[:2], ROWS[:2], [])
    assert [state for _, state, _ in log(lake)][-1] == "aborted"


@pytest.mark.breadth
def test_a_tombstone_deletes_in_one_sink_and_stops_where_it_can_not(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    lake.topic.send(("a", None), partition=0)
    with pytest.raises(BadRecord, match="a tombstone"):
        Pipeline.from_options(two_tables(lake)).run()


@pytest.mark.breadth
def test_a_key_that_left_its_partition_stops_before_the_decision(lake: Lake) -> None:
    options = two_tables(lake)
    lake.topic.send_rows([("a", 1)], partition=0)
    Pipeline.from_options(options).run()
    lake.topic.send_rows([("a", 2)], partition=1)
    with pytest.raises(KeyMoved):
        Pipeline.from_options(options).run()
    assert [state for _, state, _ in log(lake)] == ["begun", "decided", "done", "begun", "aborted"]
    assert lake.rows("append") == [("a", 1)]


@pytest.mark.breadth
def test_a_key_in_two_partitions_of_one_epoch_stops_it_with_their_names(lake: Lake) -> None:
    for partition in (0, 1):
        lake.topic.send_rows([("a", partition)], partition=partition)
    with pytest.raises(KeyMoved, match=f"Key .* came from {lake.topic.name}-. so far, and now from {lake.topic.name}-"):
        Pipeline.from_options(two_tables(lake)).run()
    assert [state for _, state, _ in log(lake)] == ["begun", "aborted"]


@pytest.mark.breadth
def test_a_sink_that_does_not_stand_where_the_log_says_is_named(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    Pipeline.from_options(options).run()
    lake.sql("RESTORE {t} TO VERSION AS OF 1")
    lake.topic.send_rows(ROWS, partition=0)
    with pytest.raises(PositionMismatch, match=r"expected epoch 2 .* found") as caught:
        Pipeline.from_options(options).run()
    assert "restored" in caught.value.hint
    assert lake.rows("upsert") == NEWEST


@pytest.mark.breadth
def test_a_sink_of_a_pipeline_that_ran_alone_is_not_mistaken(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake)
    Pipeline.from_options({**lake.options("append"), "name": "both"}).run()
    with pytest.raises(PositionMismatch, match="expected no epoch") as caught:
        Pipeline.from_options(options).run()
    assert "holds more than the log knows" in caught.value.hint
    assert lake.rows("append") == sorted(ROWS)


@pytest.mark.breadth
def test_one_table_needs_no_coordinator(lake: Lake) -> None:
    lake.topic.send_rows(ROWS, partition=0)
    options = {**lake.options("append"), "coordinator": {"path": str(lake.path("log"))}}
    Pipeline.from_options(options).run()
    assert not lake.path("log").exists()
    with pytest.raises(ConfigurationError, match="nothing to recover"):
        Pipeline.from_options(options).recover()
    assert list(snapshot(lake.spark, _written(lake, options))) == [str(lake.path("append"))]


def _written(lake: Lake, options: dict[str, Any]) -> Path:
    file = lake.folder / "pipeline.yaml"
    file.write_text(json.dumps(options), encoding="utf-8")
    return file


@pytest.mark.breadth
def test_the_commands_tell_what_is_in_doubt_and_settle_it(lake: Lake) -> None:
    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, str(file)])
        assert result.exit_code == 0, result.output
        return " ".join(result.stdout.split())

    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    file = _written(lake, options)
    assert "will be made" in said("check")
    stopped_at(Step.DECIDED, options)
    assert "in doubt epoch 2 was decided by run" in said("status")
    told = said("recover")
    assert "found nothing of it did committed, from what was prepared" in told
    assert "all sinks are at epoch 2" in told
    shown = said("snapshot")
    assert shown.startswith("epoch 2 of both")
    assert shown.count("VERSION AS OF") == 2
    verified = json.loads(said("verify", "--json"))
    assert (verified["ok"], len(verified["tables"])) == (True, 2)


def test_verify_holds_every_table_to_the_coordinator_log(lake: Lake) -> None:
    """A table that somebody has restored lacks what the log says is in all tables; and an epoch may be in doubt."""

    def verdicts(code: int) -> list[str]:
        result = CliRunner().invoke(app, ["verify", "--json", str(file)])
        assert result.exit_code == code, result.output
        return [each["verdict"] for each in json.loads(result.stdout)["tables"]]

    lake.topic.send_rows(ROWS, partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    file = _written(lake, options)
    stopped_at(Step.DECIDED, options)
    assert verdicts(4) == ["unknown", "unknown"]
    Pipeline.from_options(options).run()
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1", "append")
    assert verdicts(1) == ["not exact", "exact"]
    file = _written(lake, {**options, "coordinator": {"path": str(lake.path("another log"))}})
    assert verdicts(4) == ["unknown", "unknown"]


@pytest.mark.breadth
def test_a_table_that_is_added_catches_up_and_then_moves_with_the_others(lake: Lake) -> None:
    """Also if it is killed on its way."""
    for number in range(4):
        lake.topic.send_rows([("a", number), ("b", 10 * number)], partition=0)
    options = two_tables(lake, epoch={"max_records": 2})
    Pipeline.from_options(options).run()
    history = {"type": "delta_history", "path": str(lake.path("history")), "key": "k"}
    more = {**options, "sinks": [*options["sinks"], history], "epoch": {"max_records": 3}}
    lake.topic.send_rows([("a", 4), ("c", 1)], partition=0)

    def die(event: Event) -> None:
        if event.step is Step.COMMITTED:
            raise Stopped

    with pytest.raises(Stopped):
        Pipeline.from_options(more).run(observers=[die])
    assert [state for _, state, epoch in log(lake) if epoch > 4] == []
    *others, added = Pipeline.from_options(more).verify().tables
    assert [each.verdict.value for each in (*others, added)] == ["exact", "exact", "unknown"]
    assert "The table is behind the epoch that is in all tables" in str(added)
    notes: list[str] = []
    Pipeline.from_options(more).run(observers=[lambda event: notes.append(event.note) if event.note else None])
    assert any("was added: it catches up with the other sinks" in note for note in notes)
    assert lake.rows("upsert") == [("a", 4), ("b", 30), ("c", 1)]
    versions = query(lake.path("history"), "SELECT k, count(*) FROM t GROUP BY k ORDER BY k")
    assert versions == [("a", 5), ("b", 4), ("c", 1)]
    assert len(query(lake.path("append"), "SELECT n FROM t")) == 10
    assert Pipeline.from_options(more).verify().ok
    epochs = {name: [each["epoch"] for each in lake.metadata(name)] for name in ("append", "history")}
    assert epochs == {"append": [1, 2, 3, 4, 5], "history": [1, 2, 4, 5]}


@pytest.mark.breadth
def test_a_table_that_is_taken_out_and_comes_back_catches_up(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1)], partition=0)
    options = two_tables(lake)
    late = {"type": "delta_append", "path": str(lake.path("late"))}
    more = {**options, "sinks": [*options["sinks"], late]}
    Pipeline.from_options(more).run()
    lake.topic.send_rows([("b", 1)], partition=0)
    Pipeline.from_options({**more, "sinks": [options["sinks"][0], late]}).run()
    assert lake.rows("upsert") == [("a", 1)]
    lake.topic.send_rows([("b", 2)], partition=0)
    Pipeline.from_options(more).run()
    assert lake.rows("upsert") == [("a", 1), ("b", 2)]
    assert [each["epoch"] for each in lake.metadata("upsert")] == [1, 2, 3]
    assert len(query(lake.path("late"), "SELECT n FROM t")) == 3


@pytest.mark.breadth
def test_a_table_that_is_added_begins_where_the_source_says(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1), ("a", 2)], partition=0)
    options = two_tables(lake)
    Pipeline.from_options(options).run()
    more = {**options, "sinks": [*options["sinks"], {"type": "delta_append", "path": str(lake.path("late"))}]}
    more["source"] = {**options["source"], "start": "latest"}
    Pipeline.from_options(more).run()
    lake.topic.send_rows([("a", 3)], partition=0)
    Pipeline.from_options(more).run()
    assert query(lake.path("late"), "SELECT k, n FROM t") == [("a", 3)]
    claimed = lake.metadata("late")
    assert [each["since"] for each in claimed] == [{lake.topic.name: {"0": 2, "1": 0}}] * 2
    assert len(query(lake.path("append"), "SELECT n FROM t")) == 3


@pytest.mark.breadth
def test_a_table_that_is_added_beside_windows_leaves_out_what_has_no_event_time(lake: Lake) -> None:
    """As it does from then on: what is in it doesn't depend on when it was added."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    options = two_tables(lake, value={"format": "json", "schema": "k STRING, n INT, at TIMESTAMP"}, **letters)
    window = {"time": "at", "size": "1 hour"}
    sums = {"type": "delta_aggregate", "path": str(lake.path("sums")), "aggregates": {"n": "sum(n)"}, "window": window}
    append, upsert = options["sinks"]

    def send(number: int) -> None:
        timed, untimed = {"k": "a", "n": number, "at": "2026-11-01T00:00:00Z"}, {"k": "b", "n": number, "at": None}
        lake.topic.send(("a", timed), ("b", untimed), partition=0)

    send(1)
    Pipeline.from_options({**options, "sinks": [upsert, sums]}).run()
    Pipeline.from_options({**options, "sinks": [upsert, sums, append]}).run()
    send(2)
    after = Pipeline.from_options({**options, "sinks": [upsert, sums, append]})
    after.run()
    assert query(lake.path("append"), "SELECT k, n FROM t ORDER BY n") == [("a", 1), ("a", 2)]
    assert [audit(after.config.alone(index)).ok for index in range(3)] == [True] * 3


@pytest.mark.breadth
def test_a_snapshot_reads_no_other_topic_or_table_of_the_same_name(lake: Lake) -> None:
    """Of these the log knows no versions and no offsets: they start anew, and would be read as those of the epoch."""
    out = f"{lake.topic.name}-out"
    lake.topic.broker.create_topic(out)
    options = two_tables(lake)
    options["sinks"] = [options["sinks"][0], {"type": "kafka_topic", "topic": out}]
    lake.topic.send_rows([("a", 1)], partition=0)
    Pipeline.from_options(options).run()
    file = _written(lake, options)
    assert lake.spark is not None
    found = snapshot(lake.spark, file)
    assert [frame.count() for frame in found.values()] == [1, 1]

    lake.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT 'b' AS k, 2 AS n", "append")
    assert snapshot(lake.spark, file)[str(lake.path("append"))].count() == 1, "its versions go on"
    lake.topic.broker.delete_topic(out)
    lake.topic.broker.create_topic(out)
    with pytest.raises(ConfigurationError, match=f"kafka:{out} was removed, or recreated"):
        snapshot(lake.spark, file)
    shutil.rmtree(lake.path("append"))
    for number in range(3):
        lake.sql(f"CREATE TABLE IF NOT EXISTS {{t}} USING delta AS SELECT {number} AS n", "append")
        lake.sql(f"INSERT INTO {{t}} VALUES ({number})", "append")
    with pytest.raises(ConfigurationError, match="append was removed, or recreated"):
        snapshot(lake.spark, file, epoch=1)
