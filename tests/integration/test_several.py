"""Several pipelines in one process: each for itself, whatever becomes of the others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Lake, Topic, own_session, wait_until
from typer.testing import CliRunner, Result

from connector import Pipeline, PipelinesFailed, run_all
from connector.cli.app import app
from connector.config import parse
from connector.config.table_per_topic import safe
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.protocol.steps import Event, Step
from sinks.errors import ConfigurationError


@pytest.fixture
def made(lake: Lake, topic: Topic) -> Callable[..., dict[str, Any]]:
    """The options of a pipeline with a topic of its own, which has ten records."""

    def options(name: str, **changes: Any) -> dict[str, Any]:
        own = Topic(topic.broker, f"{name}-{uuid.uuid4().hex[:8]}")
        topic.broker.create_topic(own.name, 2)
        own.send_rows(((f"k{number}", number) for number in range(10)), partition=0)
        kind = changes.pop("kind", "append")
        sink = {"path": str(lake.path(name)), **changes.pop("sink", {})}
        return {**Lake(lake.folder, own).options(kind, sink=sink, **changes), "name": name}

    return options


TEN = sorted((f"k{number}", number) for number in range(10))


def test_one_that_fails_stops_no_other(lake: Lake, made: Callable[..., dict[str, Any]]) -> None:
    good, bad, upserted = made("good"), made("bad", schema="k STRING, n INT, no_such STRING"), made("u", kind="upsert")
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    with pytest.raises(PipelinesFailed) as caught:
        run_all([Pipeline.from_options(each) for each in (good, bad, {**upserted, **letters})], at_once=2)
    states = {report.pipeline: (report.state, report.exit_code) for report in caught.value.reports}
    assert states == {"good": ("done", 0), "bad": ("refused", 2), "u": ("done", 0)}
    assert "1 of 3 pipelines didn't end well:\n  - bad: refused. value.schema doesn't fit" in str(caught.value)
    assert lake.rows("good") == lake.rows("u") == TEN
    assert not lake.path("bad").exists()


@pytest.mark.breadth
def test_the_session_that_a_pipeline_was_given_says_where_its_tables_are(
    lake: Lake, made: Callable[..., dict[str, Any]]
) -> None:
    assert lake.spark is not None
    prod, table = (f"{what}_{uuid.uuid4().hex[:8]}" for what in ("prod", "orders"))
    lake.spark.sql(f"CREATE DATABASE {prod}")
    there = own_session(lake.spark)
    there.sql(f"USE {prod}")
    config = parse({**made("orders"), "sinks": [{"type": "delta_append", "table": table}]})
    given, active = Pipeline(config, spark=there), Pipeline(config)
    active.run()
    (report,) = run_all([given])
    assert report.rows == 10
    assert there.table(f"{prod}.{table}").count() == 10
    there.sql(f"DELETE FROM {table} WHERE n = 3")
    assert active.verify().ok
    assert [found.totals["lost"] for found in given.verify().tables] == [1]


OVERLAPPING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from lakelock import Pipeline
from connector.protocol.steps import Step

first, second, elsewhere = map(Pipeline.from_file, sys.argv[1:])
has_spark, has_begun, is_over = threading.Event(), threading.Event(), threading.Event()

def until_the_second_has_begun(event):
    if event.step is Step.PLANNED:
        has_spark.set()
        assert has_begun.wait(120)

def until_the_first_is_over(event):
    if event.step is Step.PLANNED:
        has_begun.set()
        assert is_over.wait(120)

with ThreadPoolExecutor() as threads:
    one = threads.submit(first.run, observers=[until_the_second_has_begun])
    assert has_spark.wait(120)
    two = threads.submit(second.run, observers=[until_the_first_is_over])
    assert has_begun.wait(120)
    try:
        elsewhere.run()
    except Exception as error:
        print(type(error).__name__, error)
    one.result()
    is_over.set()
    two.result()
"""


@pytest.mark.breadth
def test_the_run_that_started_the_session_leaves_it_to_the_other_one(
    lake: Lake, made: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """It ends while the other one is in mid-epoch. A third one, with another time zone, is refused."""
    files = []
    for name, zone in (("first", {}), ("second", {}), ("elsewhere", {"spark.sql.session.timeZone": "Europe/Berlin"})):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(made(name, kind="upsert", spark={**SHORT_LIVED, **zone})))
        files.append(file)
    command = [sys.executable, "-c", OVERLAPPING, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "ConfigurationError" in done.stdout
    assert "timeZone" in done.stdout
    assert lake.rows("first") == lake.rows("second") == TEN
    assert not lake.path("elsewhere").exists()


@pytest.mark.breadth
def test_each_has_a_session_of_its_own(lake: Lake, made: Callable[..., dict[str, Any]]) -> None:
    """A MERGE takes its epoch and its offsets from the session's settings: in one session they would mix."""
    pipelines = [
        Pipeline.from_options(made(f"p{number}", kind="upsert", epoch={"max_records": 3})) for number in range(3)
    ]
    reports = run_all(pipelines, at_once=3)
    assert [(report.state, report.rows) for report in reports] == [("done", 10)] * 3
    for number in range(3):
        assert lake.rows(f"p{number}") == TEN
        commits = [(each["pipeline"], each["epoch"]) for each in lake.metadata(f"p{number}")]
        assert commits == [(f"p{number}", epoch) for epoch in (1, 2, 3, 4)]


def test_a_stop_ends_all_after_their_epoch(lake: Lake, made: Callable[..., dict[str, Any]]) -> None:
    stop, seen = threading.Event(), set()

    def observe(event: Event) -> None:
        if event.step is Step.COMMITTED:
            seen.add(event.epoch.pipeline)
        if len(seen) == 2:
            stop.set()

    endless = {"trigger": {"interval": "100 milliseconds"}}
    pipelines = [Pipeline.from_options(made(name, **endless)) for name in ("a", "b")]
    reports = run_all(pipelines, at_once=1, stop=stop, observers=[observe])
    assert [report.state for report in reports] == ["stopped", "stopped"]
    assert lake.rows("a") == lake.rows("b") == TEN


@pytest.mark.breadth
def test_one_that_fails_is_started_again_if_its_file_says_so(lake: Lake, made: Callable[..., dict[str, Any]]) -> None:
    options = made("a", trigger={"interval": "100 milliseconds"}, retry={"restart_after": "200 milliseconds"})
    own = Topic(lake.topic.broker, options["source"]["topics"][0])
    own.send(("x", b"broken"), partition=1)
    stop, runs = threading.Event(), set()

    def note(event: Event) -> None:
        if event.step is Step.PLANNED:
            runs.add(event.run)

    def mend() -> None:
        # Retention removes the bad record; the pipeline may then go on.
        wait_until(lambda: len(runs) > 1, 60, "a second start")
        own.delete_before(1, 1)
        own.send_rows([("later", 11)], partition=1)
        wait_until(lambda: len(lake.rows("a")) == 11, 60, "the row after the restart")
        stop.set()

    thread = threading.Thread(target=mend)
    thread.start()
    options["source"]["on_data_loss"] = "continue"
    try:
        reports = run_all([Pipeline.from_options(options)], stop=stop, observers=[note])
    finally:
        stop.set()
        thread.join()
    assert reports[0].state == "stopped"
    assert lake.rows("a") == sorted([*TEN, ("later", 11)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines"
    found.mkdir()
    return found


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def write(folder: Path, options: dict[str, Any]) -> None:
    (folder / f"{options['name']}.yaml").write_text(yaml.safe_dump({**options, "spark": SHORT_LIVED}))


@pytest.mark.breadth
def test_the_commands_take_a_folder(lake: Lake, made: Callable[..., dict[str, Any]], folder: Path) -> None:
    for name in ("a", "b"):
        write(folder, made(name, kind="upsert"))
    (folder / "broken.yaml").write_text("source: [")
    report = lake.folder / "report.json"
    done = command("run", folder, "--report", report)
    assert done.exit_code == 2, done.stderr
    said = done.stdout.splitlines()
    assert said[-1] == "3 pipelines: 2 done, 1 refused; exit code 2."
    assert any(line.startswith("a: done. 1 epoch, 10 rows written") for line in said)
    assert "broken.yaml, line 1, column " in done.stderr
    told = json.loads(report.read_text())
    assert (told["state"], told["exit_code"]) == ("refused", 2)
    assert [(each["pipeline"], each["state"]) for each in told["pipelines"]] == [
        ("a", "done"), ("b", "done"), ("broken.yaml", "refused"),
    ]  # fmt: skip
    (folder / "broken.yaml").unlink()
    verified = command("verify", folder, "--json")
    assert verified.exit_code == 0, verified.stderr
    assert [json.loads(line)["ok"] for line in verified.stdout.splitlines()] == [True, True]
    checked = command("check", folder)
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.count("behind    0 offsets") == 2


def test_each_of_several_ends_after_so_many_epochs(
    lake: Lake, made: Callable[..., dict[str, Any]], folder: Path
) -> None:
    for name in ("a", "b"):
        write(folder, made(name, trigger={"interval": "1 second"}, epoch={"max_records": 4}))
    done = command("run", folder, "--max-epochs", 2)
    assert done.exit_code == 0, done.stderr
    ends = [line for line in done.stdout.splitlines() if "because of --max-epochs" in line]
    assert sorted(line.split(" in ")[0] for line in ends) == [
        f"{name}: done. 2 epochs, 8 rows written" for name in ("a", "b")
    ]
    assert lake.rows("a") == lake.rows("b") == TEN[:8]


@pytest.mark.breadth
@pytest.mark.classic("its run is a process of its own")
def test_a_signal_ends_all_and_one_port_has_the_metrics_of_all(
    lake: Lake, made: Callable[..., dict[str, Any]], folder: Path, port: int
) -> None:
    endless = {"trigger": {"interval": "200 milliseconds"}, "metrics": {"port": port}}
    for name in ("a", "b", "c"):
        write(folder, made(name, **endless))
    line = [sys.executable, "-m", "connector", "run", str(folder), "--at-once", "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            wait_until(
                lambda: all(lake.version(name) >= 0 and lake.rows(name) == TEN for name in "abc"), 120, "all rows"
            )
            wait_until(lambda: scraped(port).count("lakelock_epochs_total{") == 3, 20, "the metrics of all three")
            assert scraped(port).count("# HELP lakelock_epochs_total") == 1
            run.send_signal(signal.SIGTERM)
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
    assert run.returncode == 0, err
    assert out.splitlines()[-1] == "3 pipelines: 3 stopped."


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.breadth
def test_each_topic_has_a_table_also_one_that_appears_during_the_run(lake: Lake, topic: Topic) -> None:
    start = f"shop-{uuid.uuid4().hex[:6]}."

    def sent(name: str, number: int) -> None:
        topic.broker.create_topic(start + name, 1)
        Topic(topic.broker, start + name).send_rows([("a", number)])

    sent("orders", 1)
    sent("Odd_Name", 2)
    sent("broken", 3)
    file = lake.folder / "shop.yaml"
    options = {
        **lake.options(source={"topics": f"{start}.*"}, trigger={"interval": "100 milliseconds"}),
        "name": "shop",
        "tables": {
            "for_each": "topic",
            "sink": {"type": "delta_upsert", "path": str(lake.folder / "t-{topic}"), "key": "k"},
            "overrides": {f"{start}broken": {"value": {"schema": "k STRING, no_such INT"}}},
        },
    }
    del options["sinks"]
    file.write_text(yaml.safe_dump(options))
    stop = threading.Event()
    places = {name: f"t-{safe(start + name, 'path')}" for name in ("orders", "Odd_Name", "late")}

    def late() -> None:
        wait_until(lambda: all(lake.version(places[name]) >= 0 for name in ("orders", "Odd_Name")), 60, "two tables")
        sent("late", 4)
        wait_until(lambda: lake.version(places["late"]) >= 0 and lake.rows(places["late"]), 60, "the third")
        stop.set()

    thread = threading.Thread(target=late)
    thread.start()
    try:
        with pytest.raises(PipelinesFailed) as caught:
            run_all([file], stop=stop)
    finally:
        stop.set()
        thread.join()
    assert sorted(report.state for report in caught.value.reports) == ["refused", "stopped", "stopped", "stopped"]
    assert "no record of this epoch has a field no_such" in str(caught.value)
    for name, number in (("orders", 1), ("Odd_Name", 2), ("late", 4)):
        assert lake.rows(places[name]) == [("a", number)]
    done = command("verify", f"{file}#{start}late")
    assert done.exit_code == 0, done.stderr
    assert command("status", file, "--json").stdout.count('"epoch": 1') == 3


@pytest.mark.breadth
def test_a_topic_of_a_list_that_is_not_there_yet_gets_its_table_when_it_is(lake: Lake, topic: Topic) -> None:
    early, late = (f"shop-{name}-{uuid.uuid4().hex[:6]}" for name in ("early", "late"))

    def sent(name: str, number: int) -> None:
        topic.broker.create_topic(name, 1)
        Topic(topic.broker, name).send_rows([("a", number)])

    sent(early, 1)
    file = lake.folder / "shop.yaml"
    options = {
        **lake.options(source={"topics": [early, late]}, trigger={"interval": "100 milliseconds"}),
        "name": "shop",
        "tables": {"for_each": "topic", "sink": {"type": "delta_append", "path": str(lake.folder / "{topic}")}},
    }
    del options["sinks"]
    file.write_text(yaml.safe_dump(options))
    stop = threading.Event()

    def later() -> None:
        wait_until(lambda: lake.version(early) >= 0, 60, "the first table")
        sent(late, 2)
        wait_until(lambda: lake.version(late) >= 0 and lake.rows(late), 60, "the second")
        stop.set()

    thread = threading.Thread(target=later)
    thread.start()
    try:
        reports = run_all([file], stop=stop)
    finally:
        stop.set()
        thread.join()
    assert [report.state for report in reports] == ["stopped"] * 2
    assert (lake.rows(early), lake.rows(late)) == ([("a", 1)], [("a", 2)])


def both(lake: Lake, **changes: Any) -> dict[str, Any]:
    sinks = [
        {"type": "delta_append", "path": str(lake.path("every"))},
        {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k"},
    ]
    log = {"path": str(lake.path("log"))}
    return {**lake.options(), "name": "shop", "sinks": sinks, "coordinator": log, **changes}


@pytest.mark.breadth
def test_a_sink_that_does_not_say_where_it_stands_is_not_written_again(lake: Lake, topic: Topic) -> None:
    topic.broker.create_topic(f"{topic.name}-booked", 1)
    options = both(lake)
    options["sinks"] = [options["sinks"][0], {"type": "kafka_topic", "topic": f"{topic.name}-booked", "key": ["k"]}]
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    Pipeline.from_options(options).run()
    file = lake.folder / "shop.yaml"
    file.write_text(yaml.safe_dump({**options, "together": "eventual"}))
    topic.send_rows([("c", 3)], partition=0)
    with pytest.raises(PipelinesFailed) as caught:
        run_all([file])
    assert {report.state for report in caught.value.reports} == {"done", "refused"}
    assert "it would get them all again" in str(caught.value)
    assert lake.rows("every") == [("a", 1), ("b", 2), ("c", 3)]
    options["sinks"][1]["topic"] = f"{topic.name}-new"
    topic.broker.create_topic(f"{topic.name}-new", 1)
    file.write_text(yaml.safe_dump({**options, "together": "eventual"}))
    assert [report.rows for report in run_all([file])] == [0, 3]


@pytest.mark.breadth
def test_sinks_that_move_by_themselves_go_on_from_where_each_stands(lake: Lake, topic: Topic) -> None:
    file = lake.folder / "shop.yaml"
    topic.send_rows([("a", 1), ("b", 2), ("a", 3)], partition=0)
    Pipeline.from_options(both(lake)).run()
    file.write_text(yaml.safe_dump(both(lake, together="eventual")))
    topic.send_rows([("b", 4)], partition=0)
    assert [report.state for report in run_all([file])] == ["done", "done"]
    assert lake.rows("every") == [("a", 1), ("a", 3), ("b", 2), ("b", 4)]
    assert lake.rows("latest") == [("a", 3), ("b", 4)]

    # One that can't go on stops no other; one that is added later catches up.
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "latest")
    options = both(lake, together="eventual")
    options["sinks"].append({"type": "delta_append", "path": str(lake.path("late"))})
    file.write_text(yaml.safe_dump(options))
    topic.send_rows([("c", 5)], partition=0)
    with pytest.raises(PipelinesFailed) as caught:
        run_all([file])
    assert {report.pipeline: report.state for report in caught.value.reports} == {
        "shop-every": "done", "shop-latest": "refused", "shop-late": "done",
    }  # fmt: skip
    assert lake.rows("every") == lake.rows("late") == [("a", 1), ("a", 3), ("b", 2), ("b", 4), ("c", 5)]
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false')", "latest")
    run_all([file])
    assert lake.rows("latest") == [("a", 3), ("b", 4), ("c", 5)]
    verified = command("verify", "--json", f"{file}#late")
    assert (verified.exit_code, json.loads(verified.stdout)["ok"]) == (0, True)

    # They have no position together any more, so they don't move together again.
    topic.send_rows([("d", 6)], partition=0)
    with pytest.raises(ConfigurationError, match="was last written by pipeline 'shop-every', with together: eventual"):
        Pipeline.from_options(both(lake)).run()
    assert lake.rows("every") == [("a", 1), ("a", 3), ("b", 2), ("b", 4), ("c", 5)]


@pytest.mark.breadth
def test_the_last_sink_of_several_keeps_its_letters_while_the_file_names_the_log(lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    topic.send_rows([("a", 1)], partition=0)
    topic.send(("bad", b"no JSON"), ("of latest alone", b'{"n": 2}'), partition=0)
    options = both(lake, **letters)
    Pipeline.from_options(options).run()
    left = Pipeline.from_options({**options, "sinks": options["sinks"][:1]})
    topic.send_rows([("b", 3)], partition=0)
    left.run()
    assert left.verify().ok
    assert left.retry_dead_letters().of_others == 0


def begun_at_the_end(lake: Lake, topic: Topic) -> tuple[Path, dict[str, Any]]:
    """A file of two tables, yet to be written, and its options. A run has passed over the only record."""
    from_now = both(lake, source=lake.options(source={"start": "latest"})["source"])
    topic.send_rows([("old", 0)], partition=0)
    Pipeline.from_options(from_now).run()
    return lake.folder / "shop.yaml", from_now


@pytest.mark.breadth
def test_a_table_without_rows_tells_its_new_pipeline_where_it_stands(lake: Lake, topic: Topic) -> None:
    """Its rows say nothing, and `latest` would be the end of another time: its commits say it."""
    file, from_now = begun_at_the_end(lake, topic)
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    Pipeline.from_options(from_now).run()
    lake.sql("DELETE FROM {t}", "every")
    topic.send_rows([("c", 3)], partition=0)
    file.write_text(yaml.safe_dump({**from_now, "together": "eventual"}))
    run_all([file])
    assert lake.rows("every") == [("c", 3)]
    assert lake.rows("latest") == [("a", 1), ("b", 2), ("c", 3)]
    every = lake.metadata("every")
    assert [each["pipeline"] for each in every][-1] == "shop-every"
    assert len({json.dumps(each["since"]) for each in every}) == 1
    assert every[-1]["epoch"] == every[-2]["epoch"] + 1


@pytest.mark.breadth
def test_a_table_that_had_no_record_before_it_moved_misses_none(lake: Lake, topic: Topic) -> None:
    file, from_now = begun_at_the_end(lake, topic)
    topic.send_rows([("a", 1)], partition=0)
    file.write_text(yaml.safe_dump({**from_now, "together": "eventual"}))
    run_all([file])
    assert lake.rows("every") == lake.rows("latest") == [("a", 1)]
    verified = command("verify", "--json", f"{file}#every")
    assert (verified.exit_code, json.loads(verified.stdout)["ok"]) == (0, True), verified.stdout


@pytest.mark.breadth
def test_a_sink_keeps_its_name_whatever_other_sinks_there_are(lake: Lake, topic: Topic) -> None:
    """Under another name a run that is still at work wouldn't be fenced."""
    topic.send_rows([("a", 1)], partition=0)
    file = lake.folder / "shop.yaml"
    old, new = ({"type": "delta_append", "path": str(lake.path(f"{folder}/all"))} for folder in ("old", "new"))

    def ran(*sinks: dict[str, Any]) -> dict[str, str]:
        file.write_text(yaml.safe_dump(both(lake, together="eventual", sinks=list(sinks))))
        try:
            return {report.pipeline: report.state for report in run_all([file])}
        except PipelinesFailed as failed:
            said.append(str(failed))
            return {report.pipeline: report.state for report in failed.reports}

    said: list[str] = []
    assert ran(old) == {"shop-all": "done"}
    states = ran(old, new)
    assert sorted(states.values()) == ["done", "refused"]
    assert "old/all' was written by pipeline 'shop-all', and the file now calls that pipeline 'shop-all_" in said[0]
    (added,) = (name for name, state in states.items() if state == "done")
    topic.send_rows([("b", 2)], partition=0)
    assert ran({**old, "part": "all"}, new) == {"shop-all": "done", added: "done"}
    assert ran(new) == {"shop-all": "refused"}
    assert f"was written by pipeline '{added}'" in said[1]
    refused = command("status", f"{file}#all")
    assert refused.exit_code == 2
    assert f"part: {added.removeprefix('shop-')}" in refused.stderr
    assert ran({**new, "part": added.removeprefix("shop-")}) == {added: "done"}
    assert lake.rows("old/all") == lake.rows("new/all") == [("a", 1), ("b", 2)]
    assert [each["epoch"] for each in lake.metadata("old/all")] == [1, 2]
