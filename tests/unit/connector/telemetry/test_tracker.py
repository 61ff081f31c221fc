import io
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from connector.protocol.steps import Event, Step, stages
from connector.telemetry.json_lines import json_lines
from connector.telemetry.progress import now, progress, span
from connector.telemetry.tracker import Done, Observed
from sinks.contract import Committed, Epoch
from sinks.errors import BrokerUnreachable
from sinks.offsets import OffsetRange, Offsets, TopicPartition


def epoch(number: int) -> Epoch:
    start, end = (number - 1) * 100, number * 100
    return Epoch(
        "flights", number, "run-1", (OffsetRange("t", 0, start, end),), Offsets({TopicPartition("t", 0): end}),
        topics={}, read_to=None, expected=None,
    )  # fmt: skip


class Told:
    """Steps at times of our choice."""

    def __init__(self) -> None:
        self.at = 0.0
        self.done: list[Done] = []
        self.observed = Observed(self.done.append, clock=lambda: self.at)

    def step(self, step: Step, number: int, at: float, behind: int = 0) -> None:
        self.at = at
        made = epoch(number)
        committed = Committed(replace(made.position(), version=number), rows=90)
        self.observed(
            Event(step, made, committed if step in (Step.COMMITTED, Step.FOLDED) else None, behind=behind)
        )  # fmt: skip

    def epoch(self, number: int, at: float, behind: int) -> None:
        self.step(Step.PLANNED, number, at, behind)
        self.step(Step.READ, number, at + 1, behind)
        self.step(Step.WRITING, number, at + 1, behind)
        self.step(Step.COMMITTED, number, at + 5, behind)


def test_where_the_time_of_an_epoch_goes_and_when_it_will_have_caught_up() -> None:
    told = Told()
    assert told.observed.seconds_to_catch_up is None
    told.epoch(1, at=10, behind=900)
    (done,) = told.done
    assert (done.what, done.offsets, done.rows, done.seconds, done.behind, done.version) == (
        "epoch",
        100,
        90,
        5,
        900,
        1,
    )
    assert done.phases == {"analyse": 1, "commit": 4}
    assert done.offsets_per_second == 20
    told.epoch(2, at=20, behind=800)
    told.step(Step.PLANNED, 3, at=25, behind=700)
    assert told.observed.offsets_per_second == pytest.approx(200 / 15)
    assert told.observed.behind == 800, "what is read and not committed is behind"
    assert told.observed.seconds_to_catch_up == pytest.approx(800 / (200 / 15))
    told.at = 28
    assert (told.observed.doing, told.observed.seconds) == ("reading", 3)


def test_what_waits_is_behind_and_a_failure_that_passes_is_shown_until_all_is_well() -> None:
    told = Told()
    told.step(Step.RETRYING, 1, at=1)
    told.step(Step.LOOKED, 1, at=2, behind=30)
    assert (told.observed.doing, told.observed.behind) == ("waiting to try again", 30)
    assert "epoch" not in now("flights", told.observed).plain
    told.step(Step.WAITING, 1, at=3, behind=40)
    assert (told.observed.doing, told.observed.behind) == ("waiting", 40)
    assert told.done == []


def test_phases_of_two_phase_commit() -> None:
    told = Told()
    for at, step in enumerate(
        [Step.PLANNED, Step.BEGUN, Step.READ, Step.WRITING, Step.PREPARED, Step.DECIDED, Step.SINK_COMMITTED]
    ):
        told.step(step, 1, at)
    assert told.observed.doing == "committing"
    told.step(Step.COMMITTED, 1, 9)
    assert told.done[0].phases == {"analyse": 2, "prepare": 2, "decide": 1, "commit": 4}


def test_a_person_sees_a_line_that_lives_only_on_a_terminal() -> None:
    told = Told()
    told.epoch(1, at=0, behind=900)
    told.step(Step.WRITING, 2, at=6, behind=800)
    assert now("flights", told.observed).plain == (
        "flights  epoch 2: writing, 6.0 s  20/s  behind 900, about 45 s to go"
    )
    told.observed.complete_to = datetime.now(timezone.utc) - timedelta(minutes=12)
    assert "behind 900 and 12 min, about" in now("flights", told.observed).plain
    told.step(Step.WAITING, 2, at=7)
    assert "and 12 min" not in now("flights", told.observed).plain, "nothing waits"
    piped = io.StringIO()
    with progress(Console(file=piped)) as watch, watch("flights") as observe:
        observe(Event(Step.PLANNED, epoch(1), behind=900))
        observe(Event(Step.COMMITTED, epoch(1), Committed(epoch(1).position(), rows=90), 900))
    assert piped.getvalue().startswith("flights  epoch 1  offsets +100  rows 90  0.0 s")
    assert piped.getvalue().count("\n") == 1
    seen = io.StringIO()
    with progress(Console(file=seen, force_terminal=True, width=200)) as watch, watch("flights"):
        pass
    assert "flights  starting" in seen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (720, "12 min"), (12_600, "4 h"), (1.5, "1.5 s"), (2_592_000, "30 days")]
)
def test_times_are_told_as_people_do(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_program_reads_an_object_per_line_each_with_the_id_of_the_run() -> None:
    said: list[str] = []

    def fail() -> None:
        with json_lines(said.append, "flights") as observe:
            observe(Event(Step.PLANNED, epoch(1), behind=900))
            observe(Event(Step.COMMITTED, epoch(1), Committed(epoch(1).position(), rows=90), 900))
            observe(Event(Step.RESUMED, epoch(2), note='topic "t" was recreated'))
            raise BrokerUnreachable("away", hint="wait")

    with pytest.raises(BrokerUnreachable):
        fail()
    lines = [json.loads(line) for line in said]
    assert [each["event"] for each in lines] == ["epoch", "note", "error"]
    assert {(each["pipeline"], each["run"]) for each in lines} == {("flights", "run-1")}
    assert (lines[0]["offsets"], lines[0]["rows"], lines[0]["behind"], lines[0]["lost"]) == (100, 90, 900, 0)
    assert lines[1]["message"] == 'topic "t" was recreated'
    assert (lines[2]["error"], lines[2]["message"], lines[2]["hint"]) == ("BrokerUnreachable", "away", "wait")


def test_the_line_of_an_epoch_tells_changed_rows_and_dead_letters_if_there_are_any() -> None:
    piped, said = io.StringIO(), []
    with progress(Console(file=piped)) as watch, watch("flights") as observe, json_lines(said.append, "p") as lines:
        for each in (observe, lines):
            for number, (changed, letters) in enumerate([(30, 3), (None, 0), (0, 0)], start=1):
                made = epoch(number)
                each(Event(Step.PLANNED, made))
                each(Event(Step.READ, made, letters=letters))
                each(Event(Step.COMMITTED, made, Committed(made.position(), rows=90, changed=changed)))
    told = [line.split("  ")[3:5] for line in piped.getvalue().splitlines()]
    assert told[0] == ["rows 90 (30 of them changed)", "set aside 3"]
    assert [line[0] for line in told[1:]] == ["rows 90", "rows 90"]
    assert "set aside" not in "".join(map(str, told[1:]))
    fields = [(each["rows"], each["changed"], each["set_aside"]) for each in map(json.loads, said)]
    assert fields == [(90, 30, 3), (90, None, 0), (90, 0, 0)]


def test_while_a_run_starts_the_live_line_says_what_it_does() -> None:
    told = Told()
    tell = stages(told.observed, "flights")
    assert now("flights", told.observed).plain == "flights  starting, 0.0 s"
    tell("asking Kafka")
    told.at = 2.0
    tell("starting Spark")
    assert now("flights", told.observed).plain == "flights  starting Spark, 2.0 s"
    assert told.done == []
    told.epoch(1, at=5, behind=0)
    assert "starting" not in now("flights", told.observed).plain
