"""Several pipelines in one process: what needs no Spark."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sent import receiver

from connector.config import parse
from connector.fleet import run
from connector.fleet.files import PipelineFile
from connector.fleet.run import Fleet, exit_code, state
from connector.telemetry.run_report import RunReport
from sinks.errors import BrokerUnreachable, ConfigurationError, Fenced, LakelockError, TopicMissing

TEMPLATE = Path("shop.yaml")


def of_topic(topic: str, **changes: Any) -> PipelineFile:
    options = {
        "name": topic,
        "source": {"topics": [topic], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "a INT"},
        "trigger": {"interval": "1 second"},
        "sinks": [{"type": "delta_append", "path": f"lake/{topic}"}],
        **changes,
    }
    return PipelineFile(f"{TEMPLATE}#{topic}", parse(options), template=TEMPLATE)


def test_of_topics_that_appear_the_right_ones_start_and_a_wrong_one_is_refused_once() -> None:
    wrong = PipelineFile(f"{TEMPLATE}#wrong", error=ConfigurationError("no schema"), template=TEMPLATE)
    there, asked = [of_topic("first"), of_topic("late"), wrong], []
    ended: list[RunReport] = []

    def look(files: list[Path], *, known: Any) -> list[PipelineFile]:
        asked.append(files)
        return [file for file in there if file.file not in known]

    fleet = Fleet(there[:1], lambda _: nullcontext(lambda _: None), look=look, ended=ended.append)
    assert [(number, file.name) for number, file in fleet._appeared()] == [(1, "late")]
    assert fleet._appeared() == []
    assert asked == [[TEMPLATE]] * 2
    assert [(report.pipeline, report.state, str(report.error)) for report in ended] == [
        ("shop.yaml#wrong", "refused", "no schema")
    ]
    assert [report.state for report in fleet.reports] == ["running", "running", "refused"]


class WithoutSpark(Fleet):
    """A fleet whose pipelines are done as soon as they begin."""

    @contextmanager
    def _session(self) -> Iterator[Any]:
        yield None

    def _once(self, file: PipelineFile, spark: object, report: RunReport) -> None:
        report.state, report.exit_code = "done", 0


def awaiting(error: LakelockError, **changes: Any) -> PipelineFile:
    return PipelineFile(str(TEMPLATE), error=error, template=TEMPLATE, intended=of_topic("shop", **changes).config)


@pytest.mark.parametrize("error", [BrokerUnreachable("no answer"), TopicMissing("none yet")])
@pytest.mark.parametrize("others", [False, True])
def test_a_file_whose_topics_kafka_has_not_told_yet_is_looked_at_until_it_has(
    error: LakelockError, others: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(run, "_answers", lambda _: True)
    looks = [[awaiting(error)], [], [of_topic("first"), of_topic("second")]]
    ended: list[RunReport] = []
    fleet = WithoutSpark(
        [awaiting(error), *([of_topic("other", trigger="available_now")] if others else [])],
        lambda _: nullcontext(lambda _: None),
        look=lambda files, known: looks.pop(0) if looks else [],
        ended=ended.append,
    )
    reports = fleet.run()
    assert (ended[0].pipeline, ended[0].error) == ("shop.yaml", error), "told at once, although it goes on"
    assert "shop.yaml: looks again for its topics" in caplog.text
    names = ["first", *(["other"] if others else []), "second"]
    assert [(report.pipeline, report.state) for report in reports] == [(name, "done") for name in names]


def test_a_second_signal_ends_the_reports_too() -> None:
    class Abandoned(BaseException):
        pass

    class Ended(WithoutSpark):
        @contextmanager
        def _session(self) -> Iterator[Any]:
            raise Abandoned
            yield

    fleet = Ended([of_topic("a"), of_topic("b")], lambda _: nullcontext(lambda _: None))
    with pytest.raises(Abandoned):
        fleet.run()
    assert [(report.state, report.exit_code) for report in fleet.reports] == [("failed", 1)] * 2


def test_a_file_without_an_interval_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.01)
    once = awaiting(BrokerUnreachable("no answer"), trigger="available_now")
    (report,) = WithoutSpark([once], lambda _: nullcontext(lambda _: None)).run()
    assert report.state == "failed"


def test_a_file_that_is_waited_for_ends_with_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    fleet = WithoutSpark([awaiting(TopicMissing("none yet"))], lambda _: nullcontext(lambda _: None), stop=stop)
    assert [report.state for report in fleet.run()] == ["refused"]


def test_a_pipeline_that_is_refused_beside_others_tells_its_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as sent:
        monkeypatch.setenv("HOOK", sent.url)
        notify = {"url": "${env:HOOK}"}
        twice = [of_topic("t", sinks=[{"type": "delta_append", "path": path}], notify=notify) for path in "ab"]
        twice = [replace(file, file=f"{path}.yaml") for file, path in zip(twice, "ab", strict=True)]
        fleet = WithoutSpark(
            [*twice, awaiting(TopicMissing("none yet"), notify=notify, trigger="available_now")],
            lambda _: nullcontext(lambda _: None),
        )
        assert [report.state for report in fleet.run()] == ["refused"] * 3
    told = [json.loads(request.body) for request in sent.requests]
    assert sorted((body["pipeline"], body["event"], body["error"]["type"]) for body in told) == [
        ("shop", "failed", "TopicMissing"),
        ("t", "failed", "ConfigurationError"),
        ("t", "failed", "ConfigurationError"),
    ]


PIPELINE = """
name: {name}
source: {{topics: [t], kafka: {{bootstrap.servers: "127.0.0.1:1"}}}}
value: {{format: string}}
sinks: [{{type: delta_append, path: {name}}}]
"""
NOTIFY = 'notify: {url: "${env:HOOK}"}\n'


def test_where_spark_does_not_start_each_pipeline_tells_its_webhook(tmp_path: Path) -> None:
    """In a process of its own: here another test's Spark may be there already."""
    for name, notify in (("one", NOTIFY), ("two", NOTIFY), ("silent", "")):
        (tmp_path / f"{name}.yaml").write_text(PIPELINE.format(name=name) + notify)
    with receiver() as sent:
        here = {**os.environ, "JAVA_HOME": "/nowhere", "HOOK": sent.url}
        here.pop("SPARK_REMOTE", None)
        report = tmp_path / "report.json"
        command = [sys.executable, "-m", "connector", "run", str(tmp_path), "--report", str(report)]
        done = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "3 pipelines: 3 failed; exit code 1."
    ended = json.loads(report.read_text())
    assert (ended["state"], ended["exit_code"]) == ("failed", 1), "the report, too"
    assert [each["state"] for each in ended["pipelines"]] == ["failed"] * 3
    told = [json.loads(request.body) for request in sent.requests]
    assert sorted((body["pipeline"], body["event"]) for body in told) == [("one", "failed"), ("two", "failed")]
    assert "java" in told[0]["error"]["message"].lower()


def test_the_worst_end_counts_and_one_that_has_not_ended_is_none() -> None:
    def reports(*states: str) -> list[RunReport]:
        return [RunReport("p", lambda _: None, state=state) for state in states]

    assert (state(reports("done", "fenced", "refused", "failed")), exit_code(reports("refused", "failed"))) == (
        "failed",
        1,
    )
    assert (exit_code(reports("fenced", "refused", "done")), exit_code(reports("done", "fenced"))) == (2, 3)
    assert (state(reports("done", "stopped")), exit_code(reports("done", "stopped"))) == ("stopped", 0)
    assert (state(reports("done", "running", "failed")), exit_code(reports("done", "running"))) == ("running", 1)


@pytest.mark.parametrize(
    ("error", "epochs", "waits"),
    [
        (ConfigurationError("wrong"), [], 0),
        (RuntimeError("a broker is away"), [], 1),
        (Fenced("by a command", owner="c", epoch=4), [4], 1),
        (Fenced("by a run that goes on, and ends", owner="r", epoch=4), [5, 9, 9], 3),
        (Fenced("by a run whose table can't be read now", owner="r", epoch=4), [None], 1),
    ],
)
def test_who_was_fenced_comes_back_when_nobody_goes_on(
    error: Exception, epochs: list[int | None], waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = of_topic("a", retry={"restart_after": "1 minute"})
    fleet, starts, waited = Fleet([file], lambda _: nullcontext(lambda _: None)), [], []

    def once(_: PipelineFile, __: object, report: RunReport) -> None:
        starts.append(len(waited))
        if len(starts) == 1:
            raise error
        report.stopped()

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    seen = iter(epochs)
    monkeypatch.setattr(fleet, "_once", once)
    monkeypatch.setattr(fleet._stop, "wait", wait)
    monkeypatch.setattr("connector.fleet.run._answers", lambda _: True)
    monkeypatch.setattr("connector.fleet.run._epoch", lambda *_: next(seen))
    fleet._keep(0, file, None)  # type: ignore[arg-type]
    assert starts == ([0, waits] if waits else [0])
    assert waited == [60.0] * waits
    assert next(seen, "all asked") == "all asked"
