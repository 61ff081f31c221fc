"""Several pipelines in one process: what needs no Spark."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sent import receiver

from connector.config import parse
from connector.delivery.ports import Delivered
from connector.fleet import run
from connector.fleet.files import PipelineFile
from connector.fleet.run import Fleet, exit_code, state
from connector.protocol.gone import Looks
from connector.telemetry.exporters import monitored
from connector.telemetry.run_report import RunReport
from sinks.errors import BrokerUnreachable, ConfigurationError, Fenced, LakelockError, NotAuthorized, TopicMissing

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


def test_a_topic_that_another_ones_override_seemed_to_mean_starts_when_that_topic_is_there() -> None:
    """Kafka may tell of one topic a moment before the other, and a deleted one may be made again."""
    right = of_topic("shop-return")
    meant = replace(right, config=None, error=ConfigurationError("no override"), intended=right.config, for_now=True)
    looks = [[meant], [right, of_topic("shop-returns")], []]
    known: list[set[str]] = []
    ended: list[RunReport] = []

    def look(_: list[Path], *, known: Any, asked: Any = known) -> list[PipelineFile]:
        asked.append(known)
        return looks.pop(0)

    fleet = Fleet([meant, of_topic("other")], lambda _: nullcontext(lambda _: None), look=look, ended=ended.append)
    assert fleet._appeared() == [], "it is told once"
    assert [(number, file.name) for number, file in fleet._appeared()] == [(0, "shop-return"), (2, "shop-returns")]
    assert fleet._appeared() == []
    assert known == [{"shop.yaml#other"}] * 2 + [
        {f"shop.yaml#{name}" for name in ("shop-return", "other", "shop-returns")}
    ]
    assert [report.state for report in fleet.reports] == ["running"] * 3
    assert ended == []


def test_a_file_that_finds_no_topics_any_more_is_told_once_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody looks for a table that isn't there, and the run goes on for weeks."""
    broken = PipelineFile(str(TEMPLATE), error=ConfigurationError("shop.yaml is not valid YAML", hint="Mend it."))
    other = PipelineFile(str(TEMPLATE), error=NotAuthorized("Kafka refuses the login"))
    plain = replace(of_topic("shop"), file=str(TEMPLATE), template=None)
    looks = [[broken], [broken], [other], [other], [awaiting(AWAY)], [], [broken], [plain], [plain], [of_topic("late")]]
    fleet = Fleet([of_topic("first")], lambda _: nullcontext(lambda _: None), look=lambda *_, **__: looks.pop(0))
    for _ in range(9):
        assert fleet._appeared() == []
    told = [message.partition(": ")[2] for message in caplog.messages]
    no_table = "topics that appear get no table until this is mended: "
    assert told == [
        f"{no_table}shop.yaml is not valid YAML Mend it.",
        f"{no_table}Kafka refuses the login",
        f"{no_table}shop.yaml is not valid YAML Mend it.",
        f"{no_table}the file has no tables any more",
    ]
    assert [file.name for _, file in fleet._appeared()] == ["late"]


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


class Topics:
    """Kafka as a pipeline that waits sees it: what each look finds. A look for which there is nothing ends the run."""

    def __init__(self, looks: list[object], fleet: Fleet) -> None:
        self.looks, self.fleet, self.waited = looks, fleet, []

    def __call__(self, _: object) -> "Topics":
        return self

    def topics(self) -> list[str]:
        return ["a"]

    def deleted(self, topics: Any) -> Any:
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return not self.looks


def kept(
    file: PipelineFile, errors: list[Exception], looks: list[object], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[RunReport], list[float]]:
    """The ends of a pipeline whose starts raise these errors, and then end well, and what it waited in between."""
    ended: list[RunReport] = []
    fleet = Fleet([file], lambda _: nullcontext(lambda _: None), ended=ended.append)
    kafka, left = Topics(looks, fleet), [*errors]

    def once(_: PipelineFile, __: object, report: RunReport) -> None:
        if left:
            raise left.pop(0)
        report.ended(Delivered(), table=None, stopped=False)

    monkeypatch.setattr(fleet, "_once", once)
    monkeypatch.setattr(fleet._stop, "wait", kafka.wait)
    monkeypatch.setattr(run, "KafkaSource", kafka)
    monkeypatch.setattr(run, "_answers", lambda _: True)
    fleet._keep(0, file, None)  # type: ignore[arg-type]
    return ended, kafka.waited


MISSING = TopicMissing("no such topic", topic="a", hint="Did you mean 'b'?")
AWAY = BrokerUnreachable("no answer")


@pytest.mark.parametrize("error", [MISSING, AWAY])
def test_a_topic_of_tables_that_is_not_there_for_a_while_is_looked_for_until_it_is(
    error: LakelockError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended, waited = kept(of_topic("a"), [error], [{"a"}, AWAY, {"a"}, set()], monkeypatch)
    assert [(report.state, report.error) for report in ended] == [(ended[0].state, error), ("done", None)]
    assert waited == [5.0] * 4
    assert caplog.text.count("a: waits for its topic") == 1


@pytest.mark.parametrize("error", [MISSING, LakelockError("stops, and is started again")])
def test_a_run_that_is_started_again_goes_on_with_the_looks_of_the_one_before(
    error: LakelockError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has seen and not read of a topic is lost if that is deleted before the next start."""
    given: list[Any] = []

    class Kafka:
        def __init__(self, *_: object, looks: Any = None, **__: object) -> None:
            given.append(looks)

        def look(self) -> None:
            if len(given) < 3:
                raise error
            raise ConfigurationError("enough")

        def close(self) -> None: ...

    file = of_topic("a", retry={"restart_after": "1 minute"})
    fleet = Fleet([file, of_topic("b")], lambda _: nullcontext(lambda _: None))
    monkeypatch.setattr("connector.engine.assembly.KafkaSource", Kafka)
    monkeypatch.setattr(run, "isolated", nullcontext)
    monkeypatch.setattr(run, "_answers", lambda _: True)
    monkeypatch.setattr(run, "KafkaSource", Topics([set()] * 9, fleet))
    monkeypatch.setattr(fleet._stop, "wait", lambda _: len(given) > 3)
    paused: list[Looks] = []
    monkeypatch.setattr(Looks, "pause", lambda looks: paused.append(looks))
    fleet._keep(0, file, None)  # type: ignore[arg-type]
    assert isinstance(given[0], Looks)
    assert [looks is given[0] for looks in [*given, *paused]] == [True] * 6


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (of_topic("a", trigger="available_now"), MISSING),
        (of_topic("a", trigger="available_now"), AWAY),
        (replace(of_topic("a"), template=None), MISSING),
        (replace(of_topic("a"), template=None), AWAY),
        (of_topic("a"), TopicMissing("no topic for dead letters")),
        (of_topic("a"), ConfigurationError("wrong")),
    ],
)
def test_nothing_else_waits_for_a_topic(
    file: PipelineFile, error: LakelockError, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, waited = kept(file, [error], [], monkeypatch)
    assert ([report.error for report in ended], waited) == ([error], [])


def test_a_topic_that_one_broker_knows_and_the_next_does_not_is_tried_more_and_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, waited = kept(of_topic("a"), [MISSING] * 8, [set()] * 8, monkeypatch)
    assert ([report.state for report in ended], waited) == (
        ["refused"] * 8 + ["done"],
        [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0],
    )


def test_a_pipeline_that_waits_for_its_topic_ends_with_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, waited = kept(of_topic("a"), [MISSING], [], monkeypatch)
    assert ([report.state for report in ended], waited) == (["refused"], [5.0])


@pytest.mark.parametrize("epochs", [0, 1])
@pytest.mark.parametrize("error", [AWAY, MISSING])
def test_a_process_that_outlives_an_outage_of_kafka_has_all_of_its_pipelines_back(
    error: LakelockError, epochs: int
) -> None:
    """The pipeline of a topic that rests waits. So no process is started anew, whatever becomes of the others."""
    plain, once = replace(of_topic("b"), template=None), of_topic("c", trigger="available_now")
    fleet = Fleet([of_topic("a"), plain, once], lambda _: nullcontext(lambda _: None))
    report = RunReport("a", print, error=error, epochs=epochs)
    waits = [fleet._waits_for_kafka(file, report) for file in fleet.files]
    assert waits == [True, error is AWAY, False]
    alone = Fleet([plain, once], lambda _: nullcontext(lambda _: None))
    assert not any(alone._waits_for_kafka(file, report) for file in alone.files)


def test_a_pipeline_of_another_file_waits_for_kafka_and_not_for_its_topics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = replace(of_topic("b"), template=None)
    fleet = Fleet([of_topic("a"), plain], lambda _: nullcontext(lambda _: None))
    kafka = Topics([AWAY, AWAY, {"b"}, "never asked"], fleet)
    monkeypatch.setattr(fleet._stop, "wait", kafka.wait)
    monkeypatch.setattr(run, "KafkaSource", kafka)
    monkeypatch.setattr(run, "_answers", lambda _: True)
    assert fleet._is_there(plain, None, 5.0)  # type: ignore[arg-type]
    assert (kafka.looks, "b: waits for Kafka" in caplog.text) == (["never asked"], True), "a start says what is missing"


def shown(port: int) -> dict[str, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line.split('"') for line in lines if line.startswith("lakelock_run_state{") and line.endswith(" 1.0")]
    assert len(found) == len({line[1] for line in found}), "a state for each"
    return {line[1]: line[3] for line in found}


def test_what_is_refused_shows_as_failed_where_the_metrics_of_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with intervals goes on for weeks, and its log is the only other place that tells."""
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(run, "_answers", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    metrics = {"port": port}
    seen: list[dict[str, str]] = []
    late = [of_topic("first", metrics=metrics), replace(of_topic("other", metrics=metrics), file="shop.yaml#late")]

    class Measured(WithoutSpark):
        def _once(self, file: PipelineFile, spark: object, report: RunReport) -> None:
            with monitored(file.usable()):
                deadline = time.monotonic() + 60
                while file.name == "other" and not (seen and {"first", "shop.yaml#late"} <= seen[-1].keys()):
                    seen.append(shown(port))
                    assert time.monotonic() < deadline, seen[-1]
            report.ended(Delivered(), table=None, stopped=False)

    twice = [replace(of_topic("t", metrics=metrics), file=f"{path}.yaml", template=None) for path in "ab"]
    files = [
        replace(of_topic("other", metrics=metrics), file="other.yaml", template=None),
        PipelineFile("pipelines/broken.yaml", error=ConfigurationError("no YAML")),
        *twice,
        awaiting(TopicMissing("none yet"), metrics=metrics),
    ]

    def look(_: list[Path], *, known: Any) -> list[PipelineFile]:
        return [file for file in late if seen and file.file not in known]

    (other, *_) = Measured(files, lambda _: nullcontext(lambda _: None), look=look).run()
    assert other.state == "done", other.error
    refused = {"broken.yaml": "failed", "t": "failed"}
    assert seen[0] == {"other": "starting", **refused, "shop": "failed"}
    assert seen[-1] == {"other": "starting", **refused, "first": seen[-1]["first"], "shop.yaml#late": "failed"}
    with pytest.raises(OSError):
        shown(port)
