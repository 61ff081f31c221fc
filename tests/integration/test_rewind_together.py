"""Rewinds of several tables: all of them go back to one epoch, or none does, whatever happens between two of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Lake, Topic
from routing import Killed, Routed, dying_before_the_commit_of
from typer.testing import CliRunner

from connector import Pipeline, run_all
from connector.cli.app import app
from connector.operations.history import past
from connector.operations.rewind import Rewind
from connector.protocol.steps import Step
from sinks.delta import taken_back
from sinks.delta.restore import restore
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import FOLDER
from sinks.errors import ConfigurationError, Diverged


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process that dies in a rewind, before or after it has restored the table with this path."""

    @contextmanager
    def dies(path: Path, *, restored: bool) -> Iterator[None]:
        def restore_or_die(table: DeltaTable, version: int, *, by: str | None = None) -> None:
            mine = table.path == str(path)
            if mine and not restored:
                raise Killed
            restore(table, version, by=by)
            if mine:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(taken_back, "restore", restore_or_die)
            with pytest.raises(Killed):
                yield

    return dies


def exact(found: dict[str, dict[str, int]], **rows: int) -> bool:
    return found == {name: {"expected": count, "found": count} if count else {} for name, count in rows.items()}


@pytest.mark.breadth
def test_the_tables_of_a_route_go_back_to_one_epoch(lake: Lake, dying: Any) -> None:
    routed = Routed(lake)
    for records in ([("a", "x", 1), ("b", "y", 2)], [("a", "x", 3), ("c", "v", 5)], [("b", "y", 4)]):
        routed.send(*records)
        routed.run()
    pipeline = Pipeline.from_options(routed.options())
    with pytest.raises(ConfigurationError, match="each has versions of its own"):
        pipeline.rewind(to_version=1)
    asked: list[Rewind] = []
    pipeline.rewind(to_epoch=1, confirm=lambda plan: bool(asked.append(plan)))
    assert (asked[0].target.epoch, asked[0].again, dict(asked[0].tables)) == (1, 3, {"a": 1, "b": 1, "c": 0})
    assert [routed.epochs(kind) for kind in "abc"] == [[1, 2], [1, 3], [2]], "nothing without a yes"
    with dying(lake.path("b"), restored=False):
        pipeline.rewind(to_epoch=1, confirm=True)
    assert [routed.epochs(kind) for kind in "abc"] == [[1, 2, 4], [1, 3], [2, 4]]
    # The run takes the other tables back, before it reads anything.
    seen: list[tuple[Step, int]] = []
    routed.run(observers=[lambda event: seen.append((event.step, event.epoch.number))])
    assert next(number for step, number in seen if step is Step.IN_DOUBT) == 4
    assert {number for step, number in seen if step in (Step.PLANNED, Step.READ)} == {5}
    whole = {"a": [("x", 1), ("x", 3)], "b": [("y", 2), ("y", 4)], "c": [("v", 5)]}
    assert {kind: routed.rows(kind) for kind in "abc"} == whole
    assert [routed.epochs(kind) for kind in "abc"] == [[1, 2, 4, 5], [1, 3, 4, 5], [2, 4, 5]]

    said = _command(lake, routed.options(), "rewind", "--to-epoch", "1", "--yes")
    assert "c: version 0" in said
    assert "3 offsets are read once more" in said
    assert {kind: routed.rows(kind) for kind in "abc"} == {"a": [("x", 1)], "b": [("y", 2)], "c": []}
    assert exact(routed.verified(), a=1, b=1, c=0)
    assert any("all tables went back to epoch 1" in str(epoch.notes) for epoch in past(pipeline.config, lake.spark))
    routed.run()
    assert {kind: routed.rows(kind) for kind in "abc"} == whole

    shutil.rmtree(lake.path("c"))
    before = [routed.epochs(kind) for kind in "ab"]
    with pytest.raises(ConfigurationError, match=r"can't go back to epoch 2 together: c: there is no such table"):
        pipeline.rewind(to_epoch=2, confirm=True)
    assert [routed.epochs(kind) for kind in "ab"] == before


@pytest.mark.breadth
def test_a_rewind_gives_up_an_epoch_that_can_no_longer_be_completed(lake: Lake) -> None:
    """As when the pipeline file was changed, and nobody has the old one any more; or when Kafka lacks the records."""
    routed = Routed(lake)
    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.run()
    routed.send(("a", "x", 3), ("c", "v", 4), ("d", "w", 5))
    with dying_before_the_commit_of("d"):
        routed.run()
    # A plan settles nothing: the next one still names the epoch.
    plans = [Pipeline.from_options(routed.options()).rewind(to_epoch=1) for _ in range(2)]
    assert [(plan.in_doubt, plan.done) for plan in plans] == [(2, False)] * 2
    changed = {"by": "if(kind = 'd', 'e', kind)", "sink": {"path": f"{lake.folder}/{{route}}", "type": "delta_append"}}
    with pytest.raises(Diverged):
        routed.run(route=changed)
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('kept_by' = 'somebody')", "c")  # its newest version is another one now
    plan = Pipeline.from_options(routed.options(route=changed)).rewind(to_epoch=1, confirm=True)
    assert plan.tables["a"] == plan.tables["b"] == 1
    assert plan.tables["c"] == 0
    assert len(plan.tables) == 3
    routed.run(route=changed)
    assert [routed.rows(kind) for kind in "abce"] == [[("x", 1), ("x", 3)], [("y", 2)], [("v", 4)], [("w", 5)]]
    found = routed.verified(route=changed)
    assert found.pop("d", {}) == {}
    assert exact(found, a=2, b=1, c=1, e=1)


@pytest.mark.breadth
def test_the_tables_of_several_sinks_go_back_to_one_epoch(lake: Lake, topic: Topic, dying: Any) -> None:
    options = {
        **lake.options(),
        "coordinator": {"path": str(lake.path("log"))},
        "sinks": [
            {"type": "delta_append", "path": str(lake.path("every"))},
            {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k"},
            {"type": "delta_aggregate", "path": str(lake.path("sums")), "group_by": "k", "aggregates": {"n": "sum(n)"}},
        ],
    }
    for rows in ([("a", 1), ("b", 2)], [("a", 3)], [("b", 4)]):
        topic.send_rows(rows, partition=0)
        Pipeline.from_options(options).run()
    every, latest, sums = (str(lake.path(name)) for name in ("every", "latest", "sums"))

    def held() -> list[list[tuple[str, int]]]:
        return [lake.rows(name) for name in ("every", "latest", "sums")]

    whole = held()
    pipeline = Pipeline.from_options(options)
    with dying(lake.path("latest"), restored=True):
        pipeline.rewind(to_epoch=1, confirm=True)
    assert lake.metadata("latest")[-1]["epoch"] == 3, "without its number"
    # A second one finishes it.
    plan = pipeline.rewind(to_epoch=1, confirm=True)
    assert plan.done
    assert held() == [[("a", 1), ("b", 2)]] * 3
    assert lake.metadata("every")[-1]["epoch"] == lake.metadata("sums")[-1]["epoch"] == 4
    # Somebody has restored one table by hand: no run goes on, and a rewind brings all to one epoch.
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 0", "every")
    plan = pipeline.rewind(to_epoch=2, confirm=True)
    assert set(plan.tables) == {every, latest, sums}
    assert held()[0] == [("a", 1), ("a", 3), ("b", 2)]
    pipeline.run()
    assert held() == whole
    assert json.loads(_command(lake, options, "verify", "--json"))["ok"]


@pytest.mark.breadth
def test_letters_and_deletes_of_epochs_that_were_taken_back_are_forgotten(lake: Lake, topic: Topic) -> None:
    def options(deletes: str) -> dict[str, Any]:
        latest = {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k", "sequence_by": "seq"}
        return {
            **lake.options(schema="k STRING, n INT, seq INT, op STRING"),
            "coordinator": {"path": str(lake.path("log"))},
            "on_bad_record": "dead_letter",
            "dead_letters": {"path": str(lake.path("dead"))},
            "sinks": [
                {"type": "delta_append", "path": str(lake.path("every"))},
                {**latest, "apply_as_deletes": deletes, "except_column_list": "op"},
            ],
        }

    def send(key: str, n: int, seq: int, op: str = "U") -> None:
        topic.send((key, {"k": key, "n": n, "seq": seq, "op": op}), partition=0)

    def open_letters() -> list[tuple[int]]:
        return lake.sql("SELECT count(*) FROM {t} WHERE _retried_epoch IS NULL", "dead")

    wrong, mended = options("op = 'X'"), options("op = 'D'")
    send("a", 1, 1)
    Pipeline.from_options(wrong).run()
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 100)", "latest")
    send("a", 10, 10, "X")
    send("b", 100, 1)
    Pipeline.from_options(wrong).run()
    assert (lake.rows("latest"), open_letters()) == ([], [(1,)])
    pipeline = Pipeline.from_options(mended)
    pipeline.rewind(to_epoch=1, confirm=True)  # that version has no constraint
    assert lake.sql("SELECT k FROM {t}", f"latest/{FOLDER}") == []
    pipeline.rewind(to_epoch=2, confirm=True)
    assert lake.sql("SELECT k FROM {t}", f"latest/{FOLDER}") == [("a",)], "forgotten no more"
    pipeline.rewind(to_epoch=1, confirm=True)
    assert open_letters() == [(0,)]
    pipeline.run()
    send("a", 5, 5)
    pipeline.run()
    assert lake.rows("latest") == [("a", 10), ("b", 100)]
    assert json.loads(_command(lake, mended, "verify", "--json"))["ok"]


@pytest.mark.breadth
def test_sinks_that_move_by_themselves_go_back_to_one_time_or_none_does(lake: Lake, topic: Topic) -> None:
    options = {
        **lake.options(schema="k STRING, n INT, t TIMESTAMP", event_time="t"),
        "name": "shop",
        "together": "eventual",
        "sinks": [
            {"type": "delta_append", "path": str(lake.path("every"))},
            {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k"},
        ],
    }
    file = lake.folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(options))
    for minutes in ((1, 2), (3,)):
        rows = ({"k": "a", "n": minute, "t": f"2026-01-01T12:0{minute}:00Z"} for minute in minutes)
        topic.send(*(("a", row) for row in rows), partition=0)
        run_all([file])
    late = {**options, "sinks": [*options["sinks"], {"type": "delta_append", "path": str(lake.path("late"))}]}
    file.write_text(yaml.safe_dump(late))
    to = ["rewind", str(file), "--to-event-time", "2026-01-01T12:03:00Z", "--yes"]
    refused = CliRunner().invoke(app, to)
    assert refused.exit_code == 2
    assert "shop-late: The table holds no epoch" in " ".join(refused.stderr.split())
    assert lake.rows("latest") == [("a", 3)], "none goes back if one can't"
    refused = CliRunner().invoke(app, [*to[:2], "--to-epoch", "1"])
    assert refused.exit_code == 2
    assert "each has epochs and versions of its own" in " ".join(refused.stderr.split())
    said = _command(lake, options, "rewind", *to[2:])
    assert "shop-every now" in said
    assert (lake.rows("every"), lake.rows("latest")) == ([("a", 1), ("a", 2)], [("a", 2)])
    run_all([file])
    assert (lake.rows("every"), lake.rows("latest")) == ([("a", 1), ("a", 2), ("a", 3)], [("a", 3)])
    said = _command(lake, options, "replay", "--into", str(lake.path("new")))
    assert f"To swap, write `path: {lake.path('new')}/latest`" in said
    assert (lake.rows("new/every"), lake.rows("new/latest")) == (lake.rows("every"), lake.rows("latest"))


@pytest.mark.breadth
@pytest.mark.parametrize("windows", [False, True])
def test_the_time_of_a_record_counts_that_one_of_the_sinks_takes(windows: bool, lake: Lake, topic: Topic) -> None:
    """The others have it as a dead letter."""
    upsert = {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k"}
    window = {"time": "t", "size": "1 hour", "allowed_lateness": "0 seconds"}
    hourly = {
        "type": "delta_aggregate", "path": str(lake.path("hourly")), "group_by": "k", "aggregates": {"s": "sum(n)"},
    }  # fmt: skip
    options = {
        **lake.options(schema="k STRING, n INT, t TIMESTAMP", on_bad_record="dead_letter", event_time="t"),
        "sinks": [
            upsert,
            *([{**hourly, "window": window}] if windows else []),
            {"type": "delta_append", "path": str(lake.path("every"))},
        ],
        "coordinator": {"path": str(lake.path("log"))},
        "dead_letters": {"path": str(lake.path("letters"))},
    }
    pipeline = Pipeline.from_options(options)
    for hour, key in ((10, "a"), (12, None), (13, "a")):
        topic.send((key, {"k": key, "n": hour, "t": f"2026-01-01T{hour}:00:00Z"}), partition=0)
        if hour != 10:
            pipeline.run()
    asked: list[Rewind] = []
    for hour in (12, 13):
        pipeline.rewind(
            to_event_time=datetime(2026, 1, 1, hour, tzinfo=timezone.utc), confirm=lambda plan: bool(asked.append(plan))
        )
    assert [plan.target.epoch for plan in asked] == [0, 1]
    topic.send(("b", None), partition=0)  # of which the append has a letter, and Kafka says when
    pipeline.run()
    pipeline.rewind(
        to_event_time=datetime(2026, 1, 1, 14, tzinfo=timezone.utc), confirm=lambda plan: bool(asked.append(plan))
    )
    assert asked[-1].target.epoch == 2
    assert Pipeline.from_options(options).status().position.clock.late == 0


@pytest.mark.breadth
def test_a_route_is_replayed_into_new_tables_that_take_the_place_of_the_old_ones(lake: Lake) -> None:
    routed = Routed(lake)
    routed.send(("a", "x", 1), ("b", "y", 2), (None, "z", 3))
    options = routed.options(route={"other": {"type": "delta_append", "path": str(lake.path("others"))}})
    Pipeline.from_options(options).run()
    new = str(lake.path("new"))
    said = _command(lake, options, "replay", "--into", new)
    for option, place in (("route.sink.path", "{route}"), ("route.other.path", "_other"), ("coordinator.path", "_coo")):
        assert f"`{option}: {new}/{place}" in said
    options["route"]["sink"]["path"], options["route"]["other"]["path"] = f"{new}/{{route}}", f"{new}/_other"
    options["coordinator"] = {"path": f"{new}/_coordinator"}
    routed.send(("a", "x", 4))
    assert Pipeline.from_options(options).run().rows == 1
    assert [lake.rows(f"new/{name}") for name in ("a", "b", "_other")] == [[("x", 1), ("x", 4)], [("y", 2)], [("z", 3)]]
    assert routed.rows("a") == [("x", 1)]
    assert json.loads(_command(lake, options, "verify", "--json"))["ok"]


def _command(lake: Lake, options: dict[str, Any], command: str, *arguments: str) -> str:
    file = Path(lake.folder) / "pipeline.yaml"
    file.write_text(yaml.safe_dump(options))
    done = CliRunner().invoke(app, [command, str(file), *arguments])
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())
