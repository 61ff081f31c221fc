"""What a webhook is told of a run, step by step, and where the bounds are."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hostile
import pytest
from hypothesis import given
from sent import Sent, receiver
from typer.testing import CliRunner

from connector.cli.app import app
from connector.config import PipelineConfig, load, parse
from connector.protocol.steps import Event, Step
from connector.telemetry.exporters import monitored
from connector.telemetry.notify import Notifier, QueryNotifier, shaped
from sinks.contract import Committed, Epoch, Position
from sinks.errors import BadRecord, BrokerUnreachable, ConfigurationError, Fenced, NoRecordYet
from sinks.offsets import OffsetRange, Offsets, TopicPartition

AT = TopicPartition("flights", 0)
BEGAN = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
SECRET = "T0KEN-hunter2"
ALL = ["failed", "fenced", "behind", "dead_letters"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    with receiver() as sent:
        monkeypatch.setenv("HOOK", f"{sent.url}/services/{SECRET}")
        yield sent


def config(changes: dict[str, Any] | None = None, **notify: Any) -> PipelineConfig:
    return parse(
        {
            "name": "flights",
            "source": {"topics": ["flights"], "kafka": {"bootstrap.servers": "b:9092"}},
            "value": {"format": "json", "schema": "a INT"},
            "sinks": [{"type": "delta_append", "path": "s3a://lake/flights"}],
            "notify": {"url": "${env:HOOK}", **notify},
            **(changes or {}),
        }
    )


@pytest.fixture(autouse=True)
def hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:9/{SECRET}")


def epoch(number: int, read_to: datetime | None = None) -> Epoch:
    start, end = (number - 1) * 10, number * 10
    return Epoch(
        "flights", number, "run-1", (OffsetRange("flights", 0, start, end),), Offsets({AT: end}), {}, read_to,
        Position(number - 1, Offsets({AT: start})),
    )  # fmt: skip


class Run:
    """Steps at times of our choice, and the messages that they made."""

    def __init__(self, **notify: Any) -> None:
        self.at = BEGAN
        self.sent: list[dict[str, Any]] = []
        made = config(**{"on": ALL, **notify})
        assert made.notify is not None
        self.notifier = Notifier(made, made.notify, lambda _, body: self.sent.append(body), lambda: self.at)

    def after(self, **time: float) -> Run:
        self.at += timedelta(**time)
        self.notifier.tick()
        return self

    def step(self, step: Step, number: int = 1, read_to: datetime | None = None, **fields: Any) -> Run:
        self.notifier(Event(step, epoch(number, read_to), **fields))
        return self

    def epoch(self, number: int, behind: int = 0, letters: int = 0, first: str = "", complete: bool = True) -> Run:
        made = epoch(number, self.at if complete else None)
        self.notifier(Event(Step.PLANNED, made, behind=behind))
        self.notifier(Event(Step.READ, made, behind=behind, letters=letters, first_letter=first))
        self.notifier(Event(Step.COMMITTED, made, Committed(made.position(), rows=9), behind))
        return self

    @property
    def events(self) -> list[str]:
        return [body["event"] for body in self.sent]


def test_a_run_that_fails_says_why_and_where_it_stands() -> None:
    run = Run().epoch(3, behind=40)
    run.notifier.ended(BadRecord("flights-0, offset 12: not JSON", hint="Mend the producer."))
    (body,) = run.sent
    assert body == {
        "event": "failed",
        "pipeline": "flights",
        "run": "run-1",
        "time": "2026-11-01T12:00:00.000+00:00",
        "tables": ["s3a://lake/flights"],
        "epoch": 3,
        "offsets": {"flights": {"0": 30}},
        "behind": 40,
        "behind_seconds": 0.0,
        "error": {"type": "BadRecord", "message": "flights-0, offset 12: not JSON", "hint": "Mend the producer."},
        "text": "flights has failed: BadRecord: flights-0, offset 12: not JSON. Mend the producer.",
    }


def test_a_fenced_run_is_no_failed_one() -> None:
    fenced = Fenced("Pipeline 'flights' was replaced", owner="run-2", epoch=4)
    for on, events in ((ALL, ["fenced"]), (["failed"], []), (["fenced"], ["fenced"])):
        run = Run(on=on)
        run.notifier.ended(fenced)
        assert run.events == events


def test_a_run_that_ends_well_or_by_a_signal_or_waits_for_a_first_record_says_nothing() -> None:
    for end in (None, KeyboardInterrupt(), NoRecordYet("none yet")):
        run = Run().epoch(1)
        run.notifier.ended(end)
        assert run.events == []


def test_of_an_error_that_nobody_knows_the_first_line_is_told() -> None:
    run = Run()
    run.notifier.ended(RuntimeError("\njava.lang.Thing: away" + "!" * 5000 + "\n\tat Some.java"))
    assert run.sent[0]["error"]["type"] == "RuntimeError"
    assert run.sent[0]["error"]["message"].startswith("java.lang.Thing: away!!!")
    assert len(run.sent[0]["error"]["message"]) == 1000


def test_a_lag_is_told_once_and_once_when_it_is_over() -> None:
    run = Run(behind="10 minutes").epoch(1)
    run.step(Step.LOOKED, 1, BEGAN, behind=500)
    assert run.after(minutes=10).events == []
    assert run.after(seconds=1).events == ["behind"], "the clock alone: a run that hangs takes no step"
    run.after(hours=1).step(Step.LOOKED, 1, BEGAN, behind=900)
    assert run.events == ["behind"]
    run.epoch(2, behind=3)
    assert run.events == ["behind", "recovered"]
    assert (run.sent[0]["behind"], run.sent[0]["behind_seconds"]) == (500, 601.0)
    assert run.sent[0]["text"].startswith(
        "flights has been behind for 10 min, more than the 10 min of notify.behind: 500 offsets aren't committed."
    )
    assert run.sent[1]["text"] == "flights has caught up again: 3 offsets behind."


def test_a_lag_around_the_bound_is_no_flood() -> None:
    run = Run(behind="10 minutes")
    for minute in range(100):
        # Each epoch is complete up to nine minutes ago, and takes two.
        run.step(Step.LOOKED, 1, run.at - timedelta(minutes=9), behind=5).after(minutes=2)
        assert minute or run.events == []
    assert run.events == ["behind"]


def test_a_busy_topic_that_is_read_to_its_end_again_and_again_is_not_behind() -> None:
    run = Run(behind="10 minutes")
    for number in range(1, 60):
        run.after(minutes=1).epoch(number, behind=7)
    assert run.events == []


def test_what_waited_before_the_run_began_counts_from_its_beginning() -> None:
    run = Run(behind="10 minutes")
    run.step(Step.LOOKED, 1, BEGAN - timedelta(days=3), behind=5)
    assert run.after(minutes=9).events == []
    assert run.after(minutes=2).events == ["behind"]


def test_epochs_that_commit_and_do_not_catch_up_are_behind() -> None:
    run = Run(behind="10 minutes")
    for number in range(1, 7):
        run.after(minutes=2).epoch(number, behind=900, complete=False)
    assert run.events == ["behind"]


def test_dead_letters_are_told_at_once_and_then_at_most_once_a_minute_with_their_sum() -> None:
    run = Run().epoch(1).epoch(2, letters=3, first="field a: not an INT (flights-0, offset 12)")
    assert (run.sent[0]["count"], run.sent[0]["first"]) == (3, "field a: not an INT (flights-0, offset 12)")
    assert run.sent[0]["text"].startswith(
        "flights has set aside 3 records, the first: field a: not an INT (flights-0, offset 12). `lakelock dead-letters"
    )
    for number in range(3, 23):
        run.after(seconds=2).epoch(number, letters=10, first=f"bad {number}")
    assert len(run.sent) == 1
    run.after(seconds=20)
    assert [(body["count"], body["first"]) for body in run.sent[1:]] == [(200, "bad 3")]
    run.epoch(23, letters=1).after(seconds=1)
    run.notifier.ended(None)
    assert [body["count"] for body in run.sent] == [3, 200, 1], "the end of a run keeps nothing back"


def test_letters_of_an_epoch_that_was_not_committed_are_not_told() -> None:
    run = Run()
    run.step(Step.READ, 1, letters=5, first_letter="a").step(Step.RETRYING, 1, error=BrokerUnreachable("away"))
    run.epoch(1, letters=4, first="b")
    assert [(body["count"], body["first"]) for body in run.sent] == [(4, "b")]


def test_a_failure_that_is_tried_again_within_the_run_is_not_told() -> None:
    assert Run().step(Step.RETRYING, error=BrokerUnreachable("away")).events == []


def test_a_fault_of_its_own_stops_no_run_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(behind="10 minutes").step(Step.LOOKED, 1, datetime(2026, 11, 1), behind=5)  # a time without a zone
    assert "notify: a message of flights can't be made: TypeError" in caplog.text
    run.notifier.ended(BadRecord("x"))
    assert run.events == ["failed"]


def test_only_what_is_asked_for_is_told() -> None:
    run = Run(on=["dead_letters"]).epoch(1, behind=9, letters=1)
    run.after(days=1)
    run.notifier.ended(BadRecord("x"))
    assert run.events == ["dead_letters"]


@given(hostile.TEXTS)
def test_no_text_is_markup_in_slack(text: str) -> None:
    (said,) = shaped("slack", {}, f"flights has failed: {text}", text).values()
    assert isinstance(said, str)
    assert "<" not in said
    assert ">" not in said
    unescaped = said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert unescaped == f"flights has failed: {text}" + (f"\nWhat to do: {text}" if text else "")


def test_the_real_thing_from_a_run_to_the_server(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def fenced() -> None:
        with monitored(config(shape="slack")) as told:
            for observe in told:
                observe(Event(Step.COMMITTED, epoch(1), Committed(epoch(1).position(), rows=9)))
            raise Fenced("replaced by <run 2>", owner="run-2", epoch=2, hint="Nothing is lost.")

    with pytest.raises(Fenced):
        fenced()
    (request,) = server.requests
    assert request.path == f"/services/{SECRET}"
    assert json.loads(request.body) == {
        "text": "flights was replaced by another run: Fenced: replaced by &lt;run 2&gt;.\nWhat to do: Nothing is lost."
    }
    assert SECRET not in caplog.text


def test_each_restarted_run_tells_its_own_end(server: Sent) -> None:
    for _ in range(2):
        with pytest.raises(BadRecord):
            with monitored(config()):
                raise BadRecord("not JSON")
    assert [json.loads(request.body)["event"] for request in server.requests] == ["failed", "failed"]


def test_a_streaming_query_tells_what_stops_it_before_the_process_may_end(
    server: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    made = config(on=ALL)
    assert made.notify is not None
    notifier = QueryNotifier(made, made.notify)
    notifier(Event(Step.READ, epoch(1), letters=2))
    notifier(Event(Step.COMMITTED, epoch(1), Committed(epoch(1).position(), rows=9), behind=9))
    notifier.failed(BadRecord("not JSON"))
    assert [json.loads(request.body)["event"] for request in server.requests] == ["dead_letters", "failed"]
    assert "behind isn't told of a streaming query" in caplog.text


_QUERY = """
import sys
from connector.config import load
from connector.protocol.steps import Event, Step
from connector.telemetry.notify import QueryNotifier
from sinks.contract import Committed, Epoch, Position
from sinks.offsets import Offsets

config = load(sys.argv[1])
notifier = QueryNotifier(config, config.notify)
for letters in (2, 3, 4):
    at = Position(1, Offsets())
    epoch = Epoch.that_left(at, pipeline="flights")
    notifier(Event(Step.READ, epoch, letters=letters))
    notifier(Event(Step.COMMITTED, epoch, Committed(at, rows=9)))
"""


def test_what_a_streaming_query_has_not_told_yet_is_told_when_the_process_ends(server: Sent, tmp_path: Path) -> None:
    """The messages about dead letters are a minute apart, and a query with availableNow may take less."""
    file = written(tmp_path, "{url: '${env:HOOK}'}")
    subprocess.run([sys.executable, "-c", _QUERY, str(file)], check=True, timeout=120)
    assert [json.loads(request.body)["count"] for request in server.requests] == [2, 7]


def written(tmp_path: Path, notify: str) -> Path:
    file = tmp_path / "flights.yaml"
    file.write_text(
        "name: flights\nsource: {topics: [t], kafka: {bootstrap.servers: 'b:1'}}\n"
        f"value: {{format: json, schema: a INT}}\nsinks: [{{type: delta_append, path: lake}}]\nnotify: {notify}\n"
    )
    return file


def test_yaml_takes_the_key_on_for_true_and_it_is_an_option_all_the_same(tmp_path: Path) -> None:
    file = written(tmp_path, "{url: '${env:HOOK}', on: [failed]}")
    for overrides, events in (
        ([], {"failed"}),
        (["notify.on=[fenced]"], {"fenced"}),
        (["notify.on="], {"failed", "fenced", "dead_letters"}),
        (["notify={url: '${env:HOOK}', on: [behind]}"], {"behind"}),
    ):
        notify = load(file, overrides).notify
        assert notify is not None
        assert notify.events == events
    assert config(on=["failed"]).notify == config({"notify": {"url": "${env:HOOK}", True: ["failed"]}}).notify
    notify = config(behind="1 hour").notify
    assert notify is not None
    assert notify.events == set(ALL)


@pytest.mark.parametrize(
    ("notify", "changes", "said"),
    [
        ({"url": f"https://h/{SECRET}"}, {}, "notify.url: a secret must not be written in a pipeline file"),
        ({"on": []}, {}, "notify.on: is empty"),
        ({"on": ["crashed"]}, {}, "notify.on[0]: is one of failed, fenced, behind or dead_letters, not 'crashed'"),
        ({"of": ["failed"]}, {}, "notify.of: unknown option, did you mean on?"),
        ({"on": ["failed"], "behind": "1 hour"}, {}, "notify.behind: is never used: add behind to on, or remove it"),
        ({"behind": 5}, {}, "notify.behind: write a number and a unit"),
        ({"behind": "1 minute"}, {"trigger": {"interval": "1 minute"}}, "has to be longer than trigger.interval"),
        (
            {"behind": "1 minute"},
            {"trigger": {"target_latency": "5 minutes"}},
            "has to be longer than trigger.target_latency",
        ),
        ({"on": ["behind"]}, {"delivery": "manual_commit"}, "notify.behind: needs delivery: transactional"),
    ],
)
def test_wrong_options_are_named(notify: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config(changes, **notify)
    assert said in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        f"{SECRET}", f"ftp://h/{SECRET}", f"https://{SECRET}:90x/", f"https://[{SECRET}", f"https://h/ {SECRET}",
        f"https://{SECRET}@h/", f"https://h/{SECRET}\nx", f"https://\u2100{SECRET}/", f"https:///{SECRET}", "",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_being_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", url)
    with pytest.raises(ConfigurationError, match=r"notify\.url: ") as caught:
        config()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_url_comes_from_a_file_too_and_is_in_no_text_of_the_options(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"https://hooks.example.com/{SECRET}\n")
    made = load(written(tmp_path, "{url: '${file:hook}'}"))
    assert made.notify is not None
    assert made.notify.url.get_secret_value() == f"https://hooks.example.com/{SECRET}"
    for text in (repr(made), str(made), made.model_dump_json(include={"notify"}), str(made.model_dump())):
        assert SECRET not in text
    assert made.shape == replace_notify(made).shape, "who is told doesn't shape the rows"


def replace_notify(made: PipelineConfig) -> PipelineConfig:
    return made.model_copy(update={"notify": None})


def command(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["notify", *map(str, arguments)])
    assert SECRET not in result.output
    return result.exit_code, " ".join(result.output.split())


def test_the_command_sends_a_test_message_only_if_it_is_told_to(server: Sent, tmp_path: Path) -> None:
    file = written(tmp_path, "{url: '${env:HOOK}', on: [failed, behind], shape: slack}")
    assert command(file) == (0, "flights: behind for more than 10 min, failed; as slack")
    assert server.requests == []
    code, said = command(file, "--test")
    assert (code, said.endswith("flights: a test message was sent")) == (0, True)
    assert json.loads(server.requests[0].body) == {"text": "flights: this is a test message. Nothing has happened."}
    assert command(file, "--test", "--set", "notify.shape=json")[0] == 0
    assert json.loads(server.requests[1].body)["event"] == "test"


def test_the_command_says_what_is_wrong_with_the_webhook(server: Sent, tmp_path: Path) -> None:
    server.status = 404
    code, said = command(written(tmp_path, "{url: '${env:HOOK}'}"), "--test")
    assert (code, "couldn't be sent to notify.url: it answers with status 404." in said) == (1, True)
    code, said = command(written(tmp_path, "null"), "--test")
    assert (code, "There is no webhook to test." in said) == (2, True)
    assert command(written(tmp_path, "null")) == (0, "flights: no notify")


def test_a_message_of_an_earlier_owner_is_not_taken_for_this_run() -> None:
    run = Run()
    run.notifier(Event(Step.IN_DOUBT, replace(epoch(1), owner="run-0")))
    run.notifier.ended(BadRecord("x"))
    assert run.sent[0]["run"] is None
