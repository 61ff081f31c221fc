"""What a webhook hears of real runs: of one, of those of a folder, and of a streaming query."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Lake, Topic, lakelock
from sent import Sent, receiver
from streams import source, started

from connector import Pipeline, PipelinesFailed, foreach_batch, run_all
from connector.protocol.steps import Event, Step
from sinks.errors import BadRecord, Fenced

SECRET = "T0KEN-hunter2"
BAD = (None, b"broken")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    with receiver() as sent:
        monkeypatch.setenv("HOOK", f"{sent.url}/services/{SECRET}")
        yield sent


def heard(hook: Sent) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in hook.requests]


def setting_aside(lake: Lake) -> dict[str, Any]:
    return {
        "on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))},
        "notify": {"url": "${env:HOOK}"},
    }  # fmt: skip


def test_records_that_are_set_aside_are_told_with_the_first_of_them(lake: Lake, topic: Topic, hook: Sent) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": "many"}), BAD, partition=1)
    lake.pipeline(**setting_aside(lake)).run()
    (body,) = heard(hook)
    assert (body["event"], body["pipeline"], body["count"]) == ("dead_letters", "append", 2)
    assert body["first"].endswith(f"({topic.name}-1, offset 1)")
    assert (body["place"], body["tables"]) == (str(lake.path("letters")), [str(lake.path())])
    assert (body["epoch"], body["offsets"], body["behind"]) == (1, {topic.name: {"0": 0, "1": 3}}, 0)
    assert body["run"] == lake.metadata()[-1]["owner"]


@pytest.mark.breadth
def test_a_failed_and_a_fenced_run_are_told(lake: Lake, topic: Topic, hook: Sent) -> None:
    topic.send_rows([("a", 1)], partition=0)
    notify = {"notify": {"url": "${env:HOOK}"}}

    def overtake(event: Event) -> None:
        if event.step is Step.WRITING:
            lake.pipeline().run()

    with pytest.raises(Fenced):
        lake.pipeline(**notify).run(observers=[overtake])
    topic.send(BAD, partition=0)
    with pytest.raises(BadRecord):
        lake.pipeline(**notify).run()
    fenced, failed = heard(hook)
    assert (fenced["event"], fenced["error"]["type"]) == ("fenced", "Fenced")
    assert (failed["event"], failed["error"]["type"], failed["epoch"], failed["behind"]) == (
        "failed",
        "BadRecord",
        1,
        1,
    )
    assert failed["error"]["hint"]


@pytest.mark.breadth
def test_each_pipeline_of_a_folder_tells_its_own_end(lake: Lake, topic: Topic, hook: Sent) -> None:
    pipelines = []
    for name in ("one", "two", "three"):
        own = Topic(topic.broker, f"{name}-{uuid.uuid4().hex[:8]}")
        topic.broker.create_topic(own.name, 1)
        own.send(BAD if name != "three" else ("a", {"k": "a", "n": 1}))
        options = Lake(lake.folder, own).options(sink={"path": str(lake.path(name))})
        pipelines.append(Pipeline.from_options({**options, "name": name, "notify": {"url": "${env:HOOK}"}}))
    with pytest.raises(PipelinesFailed):
        run_all(pipelines)
    assert sorted((body["event"], body["pipeline"]) for body in heard(hook)) == [("failed", "one"), ("failed", "two")]


@pytest.mark.breadth
@pytest.mark.classic("foreach_batch needs it")
def test_a_streaming_query_tells_what_stops_it(lake: Lake, topic: Topic, hook: Sent) -> None:
    topic.send(BAD, partition=0)
    assert lake.spark is not None
    checkpoint = lake.folder / "checkpoint"
    write = foreach_batch(lake.options(notify={"url": "${env:HOOK}"}), checkpoint=checkpoint)
    query = started(source(lake.spark, topic.broker.bootstrap, topic.name), write, checkpoint)
    with pytest.raises(Exception, match="JSON"):
        query.awaitTermination()
    assert [(body["event"], body["error"]["type"]) for body in heard(hook)] == [("failed", "BadRecord")]


@pytest.mark.breadth
@pytest.mark.classic("the command is a process of its own")
def test_a_webhook_that_is_away_changes_nothing_but_the_log_and_shows_no_secret(
    lake: Lake, topic: Topic, hook: Sent
) -> None:
    topic.send(("a", {"k": "a", "n": 1}), BAD, partition=0)
    hook.status = 404
    file = lake.file(**setting_aside(lake))
    checked = lakelock("check", file)
    assert "notify    dead_letters, failed, fenced: nothing was sent" in checked.stdout
    assert hook.requests == []
    ran = lakelock("run", file, "--report", lake.folder / "report.json", "--debug", "--log-level", "debug")
    assert ran.returncode == 0, ran.stderr
    assert (
        "the message 'dead_letters' of append couldn't be sent to notify.url: it answers with status 404" in ran.stderr
    )
    assert lake.rows() == [("a", 1)]
    seen = [*map(str, (checked.stdout, checked.stderr, ran.stdout, ran.stderr))]
    seen += [each.read_text(errors="replace") for each in lake.folder.rglob("*") if each.is_file()]
    assert not any(SECRET in text for text in seen)
