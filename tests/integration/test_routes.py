"""``route:``, one topic to many tables: each record is in the table that it names, once, whatever happens between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from another_engine import query
from audits import counts
from conftest import Lake, lakelock
from routing import SCHEMA, Routed, dying_before_the_commit_of
from typer.testing import CliRunner

from connector import Pipeline
from connector.audit import audit, audit_routes
from connector.audit.verdict import FAULTS, Verdict
from connector.cli.app import app
from connector.config import parse
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.protocol.steps import Event, Step
from connector.source.records import RECORDS_PER_TASK
from sinks.errors import (
    BadRecord,
    ConfigurationError,
    Diverged,
    KeyMoved,
    PositionMismatch,
    SchemaMismatch,
    TableReplaced,
)
from sinks.spark.settings import with_settings


@pytest.fixture
def routed(lake: Lake) -> Routed:
    return Routed(lake)


class Killed(BaseException):
    """As if the process had died here: nothing catches it."""


def killed_at(step: Step, sink: str | None = None) -> Any:
    def observe(event: Event) -> None:
        if event.step is step and (sink is None or event.sink == sink):
            raise Killed

    return observe


UPSERT = {"type": "delta_upsert", "key": "k"}
BREADTH = pytest.mark.breadth


@pytest.mark.breadth
@pytest.mark.parametrize("sink", [pytest.param(None, marks=BREADTH), UPSERT])
def test_each_record_is_in_the_table_that_it_names(routed: Routed, sink: Any) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2), ("a", "z", 3))
    routed.run(sink=sink)
    assert routed.rows("a") == [("x", 1), ("z", 3)]
    assert routed.rows("b") == [("y", 2)]
    routed.send(("b", "y", 4), ("c", "v", 5))
    done = routed.run(sink=sink)
    assert (done.epochs, done.rows) == (1, 2)
    assert routed.rows("b") == ([("y", 4)] if sink else [("y", 2), ("y", 4)])
    assert routed.rows("c") == [("v", 5)]
    # A table that gets no row of an epoch gets no commit.
    assert (routed.epochs("a"), routed.epochs("b"), routed.epochs("c")) == ([1], [1, 2], [2])
    assert routed.run(sink=sink).epochs == 0


@pytest.mark.breadth
def test_a_table_gets_one_file_from_many_tasks(routed: Routed) -> None:
    every = 4 * RECORDS_PER_TASK
    routed.send(*(("ab"[number % 2], f"k{number}", number) for number in range(every)), partition=None)
    assert routed.run().rows == every
    for name in ("a", "b"):
        assert len(routed.rows(name)) == every // 2
        assert len(list((routed.lake.folder / name).glob("*.parquet"))) == 1


@pytest.mark.parametrize(
    ("sink", "at"),
    [
        (None, "a"),
        pytest.param(UPSERT, "decided", marks=BREADTH),
        *(pytest.param(None, at, marks=BREADTH) for at in ("decided", "b", "committed")),
        *(pytest.param(UPSERT, at, marks=BREADTH) for at in ("a", "b", "committed")),
    ],
)
def test_a_crash_between_two_tables_is_rolled_forward(routed: Routed, sink: Any, at: str) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2), ("c", "v", 7))
    routed.run(sink=sink)
    routed.send(("a", "x", 3), ("b", "y", 4), ("d", "w", 5))
    steps = {"decided": Step.DECIDED, "committed": Step.COMMITTED}
    kill = killed_at(steps[at]) if at in steps else killed_at(Step.SINK_COMMITTED, at)
    with pytest.raises(Killed):
        routed.run(sink=sink, observers=[kill])
    routed.send(("a", "z", 6))
    routed.run(sink=sink)
    assert routed.rows("a") == ([("x", 3), ("z", 6)] if sink else [("x", 1), ("x", 3), ("z", 6)])
    assert routed.rows("b") == ([("y", 4)] if sink else [("y", 2), ("y", 4)])
    assert (routed.rows("c"), routed.rows("d")) == ([("v", 7)], [("w", 5)])
    assert (routed.epochs("a"), routed.epochs("b"), routed.epochs("d")) == ([1, 2, 3], [1, 2], [2])


@pytest.mark.kills
def test_a_sigkill_between_two_tables_is_rolled_forward(routed: Routed, tmp_path: Path) -> None:
    routed.send(*((f"t{number % 6}", f"k{number}", number) for number in range(60)))
    file = tmp_path / "routed.yaml"
    file.write_text(yaml.safe_dump({**routed.options(sink=UPSERT), "spark": SHORT_LIVED}))
    script = tmp_path / "kill.py"
    script.write_text(
        "import os, signal, sys\n"
        "from connector import Pipeline\n"
        "from connector.protocol.steps import Step\n"
        "def observe(event):\n"
        "    if event.step is Step.SINK_COMMITTED:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "Pipeline.from_file(sys.argv[1]).run(observers=[observe])\n"
    )
    died = subprocess.run([sys.executable, str(script), str(file)], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    there = sum((routed.lake.folder / f"t{number}" / "_delta_log").exists() for number in range(6))
    assert there
    recovered = lakelock("recover", file)
    assert recovered.returncode == 0, recovered.stderr
    for number in range(6):
        assert routed.rows(f"t{number}") == sorted((f"k{n}", n) for n in range(60) if n % 6 == number)
        assert routed.epochs(f"t{number}") == [1]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("dead_letter", "letters"),
        (None, "stops"),
        *(
            pytest.param(*variant, marks=pytest.mark.breadth)
            for variant in (("ignore", "ignored"), ("sink", "rows"), ("fail", "stops"))
        ),
    ],
)
def test_a_record_that_names_no_table(routed: Routed, other: Any, expected: str) -> None:
    routed.send(("a", "x", 1), (None, "y", 2), ("", "z", 3))
    options: dict[str, Any] = {}
    if other in ("dead_letter", "fail"):
        options = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    given = {"type": "delta_append", "path": str(routed.lake.path("others"))} if other == "sink" else other
    if expected == "stops":
        with pytest.raises(BadRecord, match=r"-0, offset 1.*names no table: route.by \(kind\) is null"):
            routed.run(route={"other": given}, **options)
        assert not routed.lake.path("a").exists()
        return
    routed.run(route={"other": given}, **options)
    assert routed.rows("a") == [("x", 1)]
    if expected == "rows":
        assert routed.rows("others") == [("y", 2), ("z", 3)]
    if expected == "letters":
        assert query(routed.lake.path("letters"), "SELECT reason, _offset FROM t ORDER BY 2") == [
            ("route", 1),
            ("route", 2),
        ]


def letters_of(routed: Routed) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}


@pytest.mark.breadth
@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("other", ["ignore", "sink"])
def test_a_record_that_names_no_table_is_judged_by_no_other_tables_rules(
    routed: Routed, other: Any, letters: bool
) -> None:
    """The tables of ``route.sink`` refuse a record without a key."""
    routed.topic.send(("k", {"kind": "a", "k": "x", "n": 1}), ("k", {"n": 2}), ("k", {"k": "z", "n": 3}), partition=0)
    given = {"type": "delta_append", "path": str(routed.lake.path("others"))} if other == "sink" else other
    options = {"sink": UPSERT, "route": {"other": given}, **(letters_of(routed) if letters else {})}
    assert routed.run(**options).rows == (3 if other == "sink" else 1)
    assert routed.rows("a") == [("x", 1)]
    if other == "sink":
        assert query(routed.lake.path("others"), "SELECT k, n FROM t ORDER BY n") == [(None, 2), ("z", 3)]
    assert not routed.lake.path("letters").exists()
    assert not any(fault in each for each in routed.verified(**options).values() for fault in FAULTS)


@pytest.mark.breadth
def test_a_record_is_judged_by_the_options_of_its_value(routed: Routed) -> None:
    """Also before anybody has seen the table."""
    options: dict[str, Any] = {"sink": UPSERT, "route": {"overrides": {"b": {"sink": {"key": "n"}}}}}
    routed.topic.send(("k", {"kind": "a", "k": "x"}), ("k", {"kind": "b", "n": 2}), partition=0)
    assert routed.run(**options).rows == 2
    assert query(routed.lake.path("a"), "SELECT k, n FROM t") == [("x", None)]
    assert query(routed.lake.path("b"), "SELECT k, n FROM t") == [(None, 2)]
    routed.topic.send(("k", {"kind": "a", "n": 3}), ("k", {"kind": "b", "k": "y"}), partition=0)
    options |= letters_of(routed)
    assert routed.run(**options).rows == 0
    letters = query(routed.lake.path("letters"), "SELECT reason, _offset FROM t ORDER BY 2")
    assert letters == [("no_key", 2), ("no_key", 3)]
    assert not any(fault in each for each in routed.verified(**options).values() for fault in FAULTS)


@pytest.mark.breadth
@pytest.mark.parametrize("letters", [False, True])
def test_a_table_that_was_there_is_judged_by_its_own_partitions(routed: Routed, letters: bool) -> None:
    """The file's would be those of a table that the run makes. No letter is stored before the table is known."""
    place, columns = f"delta.`{routed.lake.path('a')}`", "_topic STRING, _partition INT, _offset BIGINT"
    assert routed.lake.spark is not None
    routed.lake.spark.sql(f"CREATE TABLE {place} ({SCHEMA}, {columns}, _timestamp TIMESTAMP) USING delta")
    routed.send(("a", "", 1), *([("b", "", 2)] if letters else []), ("b", "y", 3))
    done = routed.run(sink={"partition_by": ["k"]}, **(letters_of(routed) if letters else {}))
    assert (done.rows, routed.rows("a"), routed.rows("b")) == (2, [("", 1)], [("y", 3)])
    if letters:
        assert query(routed.lake.path("letters"), "SELECT reason, _offset FROM t") == [("unfit", 1)]


@pytest.mark.breadth
def test_bytes_that_are_no_text_name_no_table(routed: Routed) -> None:
    """They were counted for a table of another name, which then took none of them."""
    routed.send_named(("a", "x", {"k": "x", "n": 1}), ("\udcff", "y", {"k": "y", "n": 2}))
    options = {"headers": True, "schema": "k STRING, n INT", "sink": {"path": f"{routed.lake.folder}/{{route}}"}}
    by = {"by": "CAST(_headers['kind'] AS STRING)"}
    with pytest.raises(BadRecord, match=r"offset 1.*or no UTF-8 text"):
        routed.run(**options, route=by)
    assert not routed.lake.path("a").exists()
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    assert routed.run(**options, route=by, **letters).rows == 1
    assert query(routed.lake.path("letters"), "SELECT reason, _offset FROM t") == [("route", 1)]
    assert routed.rows("a") == [("x", 1)]
    assert {folder.parent.name for folder in routed.lake.folder.rglob("_delta_log")} == {"a", "letters", "_log"}
    assert routed.verified(**options, route=by, **letters) == {
        "a": {"expected": 1, "found": 1, "records": 2, "letters": 1}
    }


ODD = ["A", "a", "x/y", "..", "_delta_log", "é🙂", "w" * 300, "`;--\n"]


@pytest.mark.breadth
def test_odd_values_have_tables_of_their_own(routed: Routed) -> None:
    routed.send(*((kind, f"k{number}", number) for number, kind in enumerate(ODD)))
    done = routed.run()
    assert done.rows == len(ODD)
    tables = [folder for folder in routed.lake.folder.iterdir() if (folder / "_delta_log").exists()]
    rows = sorted(row for folder in tables if folder.name != "_log" for row in query(folder, "SELECT k, n FROM t"))
    assert rows == sorted((f"k{number}", number) for number in range(len(ODD)))
    assert len(tables) == len(ODD) + 1
    assert {folder.parent for folder in routed.lake.folder.rglob("_delta_log")} == set(tables)
    assert routed.run().epochs == 0


@pytest.mark.breadth
def test_too_many_tables_stop_the_run_before_anything_is_made(routed: Routed) -> None:
    routed.send(*((f"t{number}", "k", number) for number in range(5)))
    with pytest.raises(ConfigurationError, match=r"route.max_tables \(3\) allows. Nothing of it was written"):
        routed.run(route={"max_tables": 3})
    assert not routed.lake.path("t0").exists()
    assert routed.run(route={"max_tables": 5}).rows == 5


@pytest.mark.breadth
def test_no_table_is_made_without_the_override_that_is_meant_for_it(
    routed: Routed, caplog: pytest.LogCaptureFixture
) -> None:
    routed.send(("order", "a", 1), ("refund", "b", 2), ("refund", "b", 3))
    wrong = {"overrides": {"refnd": {"sink": {"type": "delta_upsert", "key": ["k", "n"]}}}}
    with pytest.raises(ConfigurationError, match="but records name 'refund', which has no override: its table would"):
        routed.run(route=wrong)
    assert not routed.lake.path("order").exists()
    (warned,) = Pipeline.from_options(routed.options(route=wrong)).check().sample.warnings
    assert "but records name 'refund'" in warned
    assert routed.run(route={"overrides": {**wrong["overrides"], "refund": {}}}).rows == 3
    routed.send(("refund", "c", 4))
    assert routed.run(route=wrong).rows == 1, "the table is there"
    assert "its table is like all others" in caplog.text
    audits = audit_routes(parse(routed.options(route=wrong)), lambda one, upto: audit(one, upto=upto))
    noted = {Path(each.table).name: [note for note in each.notes if "no record names" in note] for each in audits}
    assert {name: len(notes) for name, notes in noted.items()} == {"order": 0, "refund": 1}


@pytest.mark.breadth
def test_records_that_get_no_table_by_a_slip_are_told_of(routed: Routed, caplog: pytest.LogCaptureFixture) -> None:
    routed.send(("order", "a", 1), ("refund", "b", 2), (None, "c", 3), ("return", "d", 4))
    wrong = {"values": ["order", "refnd"], "other": "ignore"}
    (warned,) = Pipeline.from_options(routed.options(route=wrong)).check().sample.warnings
    assert warned.startswith("route.values: no record names 'refnd' so far, but records name 'refund'")
    assert routed.run(route=wrong).rows == 1
    assert caplog.messages.count(warned) == 1


def test_ignored_records_hide_no_table_that_is_too_many(routed: Routed) -> None:
    routed.send((None, "k", 0), *((f"t{number}", "k", number) for number in range(3)))
    with pytest.raises(ConfigurationError, match=r"route.max_tables \(2\) allows"):
        routed.run(route={"max_tables": 2, "other": "ignore"})


@BREADTH
def test_a_rule_that_a_table_gets_during_a_run_counts(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("a", "z", 20))

    def constrain(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.number == 1:
            assert routed.lake.spark is not None
            place = f"delta.`{routed.lake.path('a')}`"
            routed.lake.spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT small CHECK (n < 10)")

    with pytest.raises(BadRecord, match="offset 1"):
        routed.run(epoch={"max_records": 1}, observers=[constrain])
    assert routed.rows("a") == [("x", 1)]
    assert "nothing in doubt" in Pipeline.from_options(routed.options()).recover().found.value


@pytest.mark.breadth
def test_values_bound_the_tables(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.run(route={"values": ["a"], "other": "ignore"})
    assert routed.rows("a") == [("x", 1)]
    assert not routed.lake.path("b").exists()


@pytest.mark.breadth
def test_a_table_of_one_value_may_differ(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("a", "x", 2), ("b", "y", 2), ("b", "y", 3))
    overrides = {"b": {"sink": {"type": "delta_append", "path": str(routed.lake.path("all_b"))}}}
    sink = {"type": "delta_upsert", "key": "k"}
    with pytest.raises(ConfigurationError, match=r"route.overrides.b.sink.key"):
        routed.run(sink=sink, route={"overrides": overrides})
    overrides = {"b": {"sink": {"key": ["k", "n"]}}}
    routed.run(sink=sink, route={"overrides": overrides})
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 2)], [("y", 2), ("y", 3)])


@pytest.mark.breadth
def test_a_header_names_the_table_and_tombstones_delete(routed: Routed) -> None:
    rows = [("a", "x", 1), ("b", "x", 2), ("a", "y", 3), ("a", "x", None)]
    routed.send_named(*((kind, k, None if n is None else {"k": k, "n": n}) for kind, k, n in rows))
    options = routed.options(sink={**UPSERT, "path": f"{routed.lake.folder}/{{route}}"}, headers=True)
    options["route"]["by"] = "CAST(_headers['kind'] AS STRING)"
    options["value"]["schema"] = "k STRING, n INT"
    Pipeline.from_options(options).run()
    assert (routed.rows("a"), routed.rows("b")) == ([("y", 3)], [("x", 2)])


@pytest.mark.breadth
def test_bad_records_are_set_aside_before_the_epoch_is_decided(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.topic.send(("k", {"kind": "a", "k": "z", "n": "no number"}), ("k", {"kind": "b", "n": 5}), partition=0)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    with pytest.raises(BadRecord, match="offset 2"):
        routed.run(sink=UPSERT)
    assert not routed.lake.path("a").exists()
    routed.run(sink=UPSERT, **letters)
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 1)], [("y", 2)])
    found = query(routed.lake.path("letters"), "SELECT reason, _offset FROM t ORDER BY 2")
    assert found == [("value", 2), ("no_key", 3)]


@pytest.mark.breadth
@pytest.mark.parametrize("letters", [False, True])
def test_the_rules_of_a_table_that_was_there_count(routed: Routed, letters: bool) -> None:
    assert routed.lake.spark is not None
    place = f"delta.`{routed.lake.path('a')}`"
    columns = f"{SCHEMA}, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
    routed.lake.spark.sql(f"CREATE TABLE {place} ({columns}) USING delta")
    routed.lake.spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT small CHECK (n < 10)")
    routed.send(("b", "y", 20), ("a", "x", 1), ("a", "z", 20))
    options: dict[str, Any] = {}
    if letters:
        options = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
        routed.run(**options)
        assert (routed.rows("a"), routed.rows("b")) == ([("x", 1)], [("y", 20)])
        assert query(routed.lake.path("letters"), "SELECT reason, _offset FROM t") == [("unfit", 2)]
        return
    with pytest.raises(BadRecord, match="offset 2"):
        routed.run(**options)
    assert routed.rows("a") == []


@pytest.mark.breadth
@pytest.mark.parametrize("letters", [False, True])
def test_an_epoch_that_is_read_again_is_judged_by_the_rules_of_the_tables_that_lack_it(
    routed: Routed, letters: bool
) -> None:
    """The rows of the other table meet its new rule, and a record that one of them has replaced doesn't."""
    assert routed.lake.spark is not None
    options: dict[str, Any] = {"sink": {"type": "delta_upsert", "key": "k"}}
    if letters:
        options |= {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    routed.send(("a", "x", 20), ("a", "x", 1), ("b", "y", 30))
    with dying_before_the_commit_of("b"):
        routed.run(**options)
    place = f"delta.`{routed.lake.path('a')}`"
    routed.lake.spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT small CHECK (n < 10)")
    routed.run(**options)
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 1)], [("y", 30)])
    if letters:
        assert not routed.lake.path("letters").exists()


@pytest.mark.breadth
@pytest.mark.parametrize("known", [pytest.param(False, marks=BREADTH), True])
def test_what_a_table_cannot_take_is_found_before_the_epoch_is_decided(routed: Routed, known: bool) -> None:
    """Once it is decided, it would have to be committed, and nothing could mend it."""
    first = [("a", "x", 1), ("b", "y", 2)]
    if known:
        routed.send(*first)
        routed.run(sink=UPSERT)
    routed.send(*(() if known else first), ("b", "y", 3))
    routed.send(("a", "x", 4), partition=1)
    with pytest.raises(KeyMoved):
        routed.run(sink=UPSERT)
    assert "nothing in doubt" in Pipeline.from_options(routed.options(sink=UPSERT)).recover().found.value
    assert routed.rows("b") == ([("y", 2)] if known else [])
    if not known:  # tables without rows take another order
        routed.run(sink={**UPSERT, "sequence_by": "n"})
        assert (routed.rows("a"), routed.rows("b")) == ([("x", 4)], [("y", 3)])


@BREADTH
def test_a_sum_that_is_too_large_is_found_before_the_epoch_is_decided(routed: Routed) -> None:
    sums = {"type": "delta_aggregate", "group_by": ["k"], "aggregates": {"total": "sum(9223372036854775807 - n)"}}
    routed.send(("a", "x", 0), ("b", "y", 2))
    routed.run(sink=sums)
    routed.send(("a", "x", 0), ("b", "y", 5))
    with pytest.raises(Exception, match=r"(?i)overflow|too large|range"):
        routed.run(sink=sums)
    assert "nothing in doubt" in Pipeline.from_options(routed.options(sink=sums)).recover().found.value


@pytest.mark.breadth
@pytest.mark.parametrize("change", ["order", *(pytest.param(change, marks=BREADTH) for change in ("type", "column"))])
def test_a_file_that_no_longer_fits_its_tables_stops_the_run(routed: Routed, change: str) -> None:
    ordered = {**UPSERT, "sequence_by": "n"}
    routed.send(("a", "x", 5), ("b", "y", 2))
    routed.run(sink=ordered)
    routed.send(("a", "x", 3))
    options: dict[str, Any] = {"sink": UPSERT if change == "order" else ordered}
    if change != "order":
        options["schema"] = SCHEMA.replace("n INT", "n DOUBLE") if change == "type" else f"{SCHEMA}, more STRING"
        options["unmatched"] = "warn"
    with pytest.raises(SchemaMismatch):
        routed.run(**options)
    assert "nothing in doubt" in Pipeline.from_options(routed.options(**options)).recover().found.value
    routed.run(sink=ordered)
    assert routed.rows("a") == [("x", 5)]


def _restored(routed: Routed) -> None:
    assert routed.lake.spark is not None
    routed.lake.spark.sql(f"RESTORE TABLE delta.`{routed.lake.path('a')}` TO VERSION AS OF 1").collect()


def _dropped(routed: Routed) -> None:
    import shutil

    shutil.rmtree(routed.lake.path("a"))


@pytest.mark.breadth
@pytest.mark.parametrize("harm", [pytest.param(_restored, marks=BREADTH), _dropped])
def test_a_table_that_somebody_took_back_or_dropped_stops_the_run(routed: Routed, harm: Any) -> None:
    for number in range(2):
        routed.send(("a", "x", number), ("b", "y", number))
        routed.run()
    harm(routed)
    routed.send(("b", "y", 7))
    with pytest.raises(PositionMismatch, match=r"a (is at epoch 2|has no epoch).*not at epoch 2"):
        routed.run()
    with pytest.raises(TableReplaced, match=r"a (stands at epoch 2|holds no epoch).*is at epoch 2"):
        Pipeline.from_options(routed.options()).check()
    assert routed.rows("b") == [("y", 0), ("y", 1)]
    assert routed.lake.path("a").exists() == (harm is _restored)


@pytest.mark.breadth
def test_a_run_goes_on_after_a_wrong_delete_was_taken_back(routed: Routed) -> None:
    """A RESTORE to the newest epoch undoes none, whether the next epochs have rows for the table or pass it by."""
    lake = routed.lake
    routed.send(("a", "x", 1), ("b", "y", 1))
    routed.run()
    lake.sql("DELETE FROM {t} WHERE n = 1", "a")
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {lake.version('a') - 1}", "a")
    routed.send(("b", "y", 2))
    routed.run()
    routed.send(("a", "x", 3), ("b", "y", 3))
    routed.run()
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 1), ("x", 3)], [("y", 1), ("y", 2), ("y", 3)])


@pytest.mark.breadth
def test_a_changed_route_never_takes_part_in_an_epoch_in_doubt(routed: Routed) -> None:
    changed = {"by": "'c'", "sink": {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}}
    routed.send(("a", "x", 1), ("b", "y", 2))
    with pytest.raises(Killed):
        routed.run(observers=[killed_at(Step.DECIDED)])
    with pytest.raises(Diverged, match=r"The pipeline file.* has been changed since"):
        routed.run(route=changed)
    routed.run()
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 1)], [("y", 2)])
    routed.send(("a", "z", 3))
    routed.run(route=changed)
    assert (routed.rows("a"), routed.rows("c")) == ([("x", 1)], [("z", 3)])


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("setting", "other"),
    [("spark.sql.session.timeZone", "Asia/Tokyo"), ("spark.sql.legacy.timeParserPolicy", "LEGACY")],
)
def test_another_setting_of_the_session_never_takes_part_in_an_epoch_in_doubt(
    routed: Routed, setting: str, other: str
) -> None:
    """It may name another table: `by` may be the day of a time."""
    assert routed.lake.spark is not None
    routed.send(("a", "x", 1))
    with pytest.raises(Killed):
        routed.run(observers=[killed_at(Step.DECIDED)])
    with with_settings(routed.lake.spark, {setting: other}), pytest.raises(Diverged, match="changed since") as told:
        routed.run()
    assert f"Spark's {setting} has been changed" in told.value.message
    routed.run()
    assert routed.rows("a") == [("x", 1)]


@pytest.mark.breadth
@pytest.mark.parametrize(("folder", "how"), [("a", "have one place"), ("a/b", "lie in each other's folder")])
def test_two_values_with_one_place_or_one_in_the_other_are_refused(routed: Routed, folder: str, how: str) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2))
    overrides = {"b": {"sink": {"path": f"{routed.lake.folder}/{folder}"}}}
    with pytest.raises(ConfigurationError, match=how):
        routed.run(route={"overrides": overrides})


@pytest.mark.breadth
def test_two_values_with_one_place_by_a_link_are_refused(routed: Routed) -> None:
    """The rows of the second one would count as there."""
    routed.send(("a", "x", 1))
    routed.run()
    routed.lake.path("b").symlink_to(routed.lake.path("a"))
    routed.send(("a", "x", 2), ("b", "y", 3))
    with pytest.raises(ConfigurationError, match="have one place"):
        routed.run()
    assert routed.rows("a") == [("x", 1)]
    assert "nothing in doubt" in Pipeline.from_options(routed.options()).recover().found.value
    routed.lake.path("b").unlink()
    routed.run()
    assert (routed.rows("a"), routed.rows("b")) == ([("x", 1), ("x", 2)], [("y", 3)])


@pytest.mark.parametrize(
    ("by", "said"), [("no_such", "route.by: Spark doesn't take 'no_such'"), ("array(kind)", "has to be one value")]
)
def test_an_expression_that_cannot_name_a_table(routed: Routed, by: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        routed.run(route={"by": by, "sink": {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}})


# ------------------------------------------------------------------------------------------- what the commands say


@pytest.mark.breadth
@pytest.mark.parametrize("sink", [None, pytest.param(UPSERT, marks=BREADTH)])
def test_the_auditor_finds_each_record_in_its_own_table_alone(routed: Routed, sink: Any) -> None:
    assert routed.lake.spark is not None
    routed.send(("a", "x", 1), ("b", "y", 2), ("b", "z", 3), ("a", "w", 4))
    routed.run(sink=sink)
    exact = {"a": {"expected": 2, "found": 2}, "b": {"expected": 2, "found": 2}}
    assert routed.verified(sink=sink) == exact
    a, b = (f"delta.`{routed.lake.path(name)}`" for name in "ab")
    routed.lake.spark.sql(f"INSERT INTO {a} SELECT * FROM {b} WHERE k = 'y'")
    routed.lake.spark.sql(f"DELETE FROM {b} WHERE k = 'z'")
    assert routed.verified(sink=sink) == {
        "a": {"expected": 2, "found": 2, "unexpected": 1},
        "b": {"expected": 2, "found": 1, "lost": 1},
    }


@BREADTH
def test_the_auditor_claims_what_the_log_says(routed: Routed) -> None:
    """A table that got no row of the last epochs, and should have got one."""
    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.run()
    routed.send(("a", "x", 3))
    routed.run()
    by = {"by": "if(n = 3, 'b', kind)", "sink": {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}}
    assert routed.verified(route=by) == {
        "a": {"expected": 1, "found": 1, "unexpected": 1},
        "b": {"expected": 2, "found": 1, "lost": 1},
    }
    by["by"] = "if(n = 3, 'c', kind)"
    found = routed.verified(route=by)
    assert found['tables that aren\'t there, of "c"'] == {"expected": 1, "lost": 1}


@BREADTH
def test_the_auditor_knows_whose_letters_they_are(routed: Routed) -> None:
    routed.send(("a", "x", 1), ("b", "y", 2), (None, "n", 3))
    routed.topic.send(("k", {"kind": "a", "k": "z", "n": "no number"}), ("k", {"kind": "b", "n": 5}), partition=0)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    routed.run(sink=UPSERT, **letters)
    found = routed.verified(sink=UPSERT, **letters)
    assert {name: (each["found"], each["letters"]) for name, each in found.items()} == {"a": (1, 2), "b": (1, 3)}
    assert not any(fault in each for each in found.values() for fault in FAULTS)


@BREADTH
def test_a_letter_of_a_right_record_excuses_no_table_that_is_missing(routed: Routed) -> None:
    from pyspark.sql import functions as F

    routed.send(("a", "x", 1), ("b", "y", 2), ("a", "z", 3))
    routed.topic.send(("k", {"kind": "a", "k": "z", "n": "no number"}), partition=0)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    routed.run(**letters)
    name = 'tables that aren\'t there, of "c"'
    place = {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}
    by: dict[str, Any] = {"route": {"by": "if(n = 2, 'c', kind)", "sink": place}, **letters}
    assert routed.verified(**by)[name] == {"expected": 1, "lost": 1, "records": 1}
    one = routed.lake.frame("letters").withColumn("_offset", F.lit(1).cast("bigint"))
    one.withColumn("reason", F.lit("rule")).write.format("delta").mode("append").save(str(routed.lake.path("letters")))
    assert routed.verified(**by)[name] == {"expected": 1, "lost": 1, "records": 1, "letters_unexpected": 1}
    routed.lake.sql("UPDATE {t} SET reason = 'value' WHERE reason = 'rule'", "letters")
    # It is believed, but doesn't hold what the record holds.
    assert [each for each in routed.verified(**by).values() if "letters_altered" in each] == [
        {"records": 1, "letters_altered": 1, "letters_unconfirmed": 1}
    ]


@pytest.mark.breadth
def test_without_a_table_the_auditor_looks_at_the_letters(routed: Routed) -> None:
    bad = ("k", {"kind": "a", "k": "x", "n": "no number"})
    routed.topic.send(bad, bad, partition=0)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    pipeline = Pipeline.from_options(routed.options(**letters))
    pipeline.run()
    found = pipeline.verify()
    assert (found.verdict, counts(found.tables[0])) == (Verdict.UNKNOWN, {"records": 2, "letters": 2})
    routed.lake.sql("DELETE FROM {t} WHERE _offset = 1", "letters")
    found = pipeline.verify()
    assert (found.verdict, found.tables[0].totals["letters_lost"]) == (Verdict.NOT_EXACT, 1)


@pytest.mark.breadth
def test_every_command_knows_a_route(routed: Routed, tmp_path: Path) -> None:
    file = tmp_path / "routed.yaml"
    file.write_text(yaml.safe_dump(routed.options(route={"other": "ignore"})))
    routed.send(("a", "x", 1), ("b", "y", 2), (None, "z", 3))

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, str(file)])
        assert result.exit_code == 0, (arguments, result.output)
        return " ".join(result.output.split())

    checked = said("check")
    assert "/{kind} will be made" in checked
    assert all(f"1 for {name}" in checked for name in ("a", "b", "(other)"))
    assert "2 rows written" in said("run")
    routed.send(("b", "y", 4))
    said("run")
    assert "version 2" in said("history")
    assert "all sinks are at epoch 2" in said("recover")
    snapshot = said("snapshot")
    assert "/a` VERSION AS OF 1" in snapshot
    assert "/b` VERSION AS OF 2" in snapshot
    maintained = CliRunner().invoke(app, ["maintain", "--json", str(file)])
    assert str(routed.lake.path("a")) in maintained.stdout
    assert "lag" in said("status")
    verdict = json.loads(CliRunner().invoke(app, ["verify", "--json", str(file)], catch_exceptions=False).stdout)
    assert (verdict["ok"], len(verdict["tables"])) == (True, 2)
    for command in ("rewind", "accept", "fold"):
        refused = CliRunner().invoke(app, [command, str(file), *(["--to-version", "1"] if command == "rewind" else [])])
        assert refused.exit_code == 2, refused.output
