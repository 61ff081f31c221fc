"""The protocol in every state that it can get into, wrong protocols that have to be caught, and what recovery says."""

import os
from dataclasses import replace

import pytest
from explorer import Delta, Explorer, Held, KafkaTopic, Objects, Pc, Program, Violation, plan, rewritten

from connector.protocol import two_phase
from connector.protocol.decided import LogHeld, Row, State, gone_from_kafka, refuse_other_rows
from connector.protocol.two_phase import (
    Abort,
    Append,
    AskPositions,
    Begin,
    Commit,
    Did,
    Found,
    Join,
    Prepare,
    Ran,
    ReadLog,
    Recovered,
    recover,
    run_epoch,
)
from sinks.contract import Committed, Epoch, Position, Prepared
from sinks.errors import Diverged, Fenced, PositionMismatch
from sinks.offsets import Offsets, TopicPartition

PROCESSES = int(os.environ.get("LAKELOCK_TEST_PROCESSES", "3"))
"""How many processes get as far as to append something. With 4 it takes minutes, with 5 a night."""
ENDS = {"done", "Fenced", "CommitUnknown", "SinkError"}

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look again is what a fresh process does, which may come at any time: a tenth of the states, and none less."""
    monkeypatch.setattr(two_phase, "_LOOKS", 1)


# --------------------------------------------------------------------------------------------------------- every state


@pytest.mark.parametrize(
    ("sinks", "processes", "states"),
    [((Delta(), KafkaTopic()), PROCESSES - 1, 80_000), ((Delta(), Objects()), PROCESSES - 1, 80_000)],
    ids=["topic", "objects"],
)
@pytest.mark.usefixtures("one_look")
def test_every_state_of_two_coordinators(sinks, processes: int, states: int) -> None:
    explored = Explorer(sinks, processes=processes).run()
    assert explored.ends == ENDS
    assert explored.states > states, "something keeps the search from states that there are"


@pytest.mark.draws
@pytest.mark.usefixtures("one_look")
def test_every_state_of_three_processes_in_one_epoch() -> None:
    assert Explorer((Objects(), KafkaTopic()), processes=PROCESSES, epochs=1).run().ends == ENDS


def test_a_run_that_looks_again_does_no_harm() -> None:
    assert Explorer((Delta(), Objects()), processes=2, epochs=1).run().ends == ENDS


@pytest.mark.parametrize("sinks", [(Delta(), Objects()), (Delta(), KafkaTopic())], ids=lambda each: each[1].name)
@pytest.mark.usefixtures("one_look")
def test_what_was_prepared_and_removed_is_read_again(sinks) -> None:
    assert Explorer(sinks, processes=2, removed=1, epochs=1).run().ends == ENDS


@pytest.mark.usefixtures("one_look")
def test_an_epoch_read_again_by_an_edited_file_is_never_mixed() -> None:
    explored = Explorer((Delta(), Objects()), processes=2, removed=1, epochs=1, edited=True).run()
    assert explored.ends == ENDS | {"Diverged"}


# -------------------------------------------------------------------------------------------------- wrong protocols


NO_ABORTED_ENTRY = (
    ("            number = known.number + 1\n", "            number = known.number\n"),
    ("            yield Append(number, (Row(State.ABORTED, doubted.epoch, run),))\n", ""),
)
UNBOUNDED = (
    ("Abort(before=known.over)", "Abort(before=10**9)"),
    ("            yield Abort(before=number + 1)", "            yield Abort(before=10**9)"),
)
ABORTS_DECIDED = (("elif doubted.state is State.BEGUN:", "elif doubted.state in (State.BEGUN, State.DECIDED):"),)
NO_ROLL_FORWARD = (("yield from _forward(known.number, doubted, run, config)", "known.number, {}, Did.ROLLED_FORWARD"),)


def decide_before_all_are_prepared(epoch: Epoch, number: int, config: str, done: Row | None):
    epoch = replace(epoch, attempt=number + 1)
    begun = Row(State.BEGUN, epoch, epoch.owner)
    yield Append(number + 1, (done, begun) if done else (begun,))
    _, first = yield Prepare(epoch, ["delta"])
    (one,) = first.values()
    prepared = {"delta": one, "objects": one}
    decided = Row(State.DECIDED, epoch, epoch.owner, prepared, config=config)
    yield Append(number + 2, (decided,))
    yield Prepare(epoch, ["objects"])
    committed = yield Commit(epoch, prepared)
    return Ran(number + 2, committed, Row(State.DONE, epoch, epoch.owner))


def commit_before_the_decision(epoch: Epoch, number: int, config: str, done: Row | None):
    epoch = replace(epoch, attempt=number + 1)
    begun = Row(State.BEGUN, epoch, epoch.owner)
    yield Append(number + 1, (done, begun) if done else (begun,))
    _, prepared = yield Prepare(epoch)
    committed = yield Commit(epoch, prepared)
    yield Append(number + 2, (Row(State.DECIDED, epoch, epoch.owner, prepared, config=config),))
    return Ran(number + 2, committed, Row(State.DONE, epoch, epoch.owner))


def done_before_the_commits(epoch: Epoch, number: int, config: str, done: Row | None):
    epoch = replace(epoch, attempt=number + 1)
    begun = Row(State.BEGUN, epoch, epoch.owner)
    yield Append(number + 1, (done, begun) if done else (begun,))
    _, prepared = yield Prepare(epoch)
    decided = Row(State.DECIDED, epoch, epoch.owner, prepared, config=config)
    yield Append(number + 2, (decided,))
    yield Append(number + 3, (Row(State.DONE, epoch, epoch.owner),))
    yield Commit(epoch, prepared)
    return Ran(number + 3, {}, Row(State.DONE, epoch, epoch.owner))


def never_commits(epoch: Epoch, number: int, config: str, done: Row | None):
    """Goes on to the next epoch right after its decision."""
    epoch = replace(epoch, attempt=number + 1)
    begun = Row(State.BEGUN, epoch, epoch.owner)
    yield Append(number + 1, (done, begun) if done else (begun,))
    _, prepared = yield Prepare(epoch)
    yield Append(number + 2, (Row(State.DECIDED, epoch, epoch.owner, prepared, config=config),))
    return Ran(number + 2, {}, Row(State.DONE, epoch, epoch.owner))


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (Program(recover=rewritten(recover, *NO_ABORTED_ENTRY)), "was thrown away"),
        (Program(recover=rewritten(recover, *UNBOUNDED)), "was thrown away"),
        (Program(recover=rewritten(recover, *ABORTS_DECIDED)), "was thrown away|ended with PositionMismatch"),
        (Program(recover=rewritten(recover, *NO_ROLL_FORWARD)), "on its own ended with PositionMismatch"),
        (Program(run_epoch=decide_before_all_are_prepared), "was thrown away"),
        (Program(run_epoch=commit_before_the_decision), "wasn't decided"),
        (Program(run_epoch=done_before_the_commits), "log says done"),
        (Program(run_epoch=never_commits), "was thrown away|was begun, with the sinks at"),
    ],
    ids=["no aborted entry", "unbounded abort", "aborts what was decided", "done, not rolled forward",
         "decides too early", "commits too early", "done too early", "next too early"],
)  # fmt: skip
@pytest.mark.usefixtures("one_look")
def test_a_wrong_protocol_is_caught(program: Program, what: str) -> None:
    with pytest.raises(Violation, match=what):
        Explorer((Delta(), Objects()), program, processes=2).run()


class NamedByEpoch(Delta):
    """Stages without the attempt in the name."""

    def staged(self, epoch, run, version, *, whole):
        return super().staged(epoch, run, version, whole=whole)._replace(name=f"epoch-{epoch.number}")


class Blind(Delta):
    """Commits what it is told to, whatever it holds by then."""

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "commit":
            return super().step(held._replace(visible=()), pc, epoch, name, run)
        return super().step(held, pc, epoch, name, run)


class Twice(Delta):
    """Looks, and later commits without another look."""

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "commit":
            return self.show(held, epoch, str(pc[1]), name), super().step(Held(), pc, plan(run, None), name, run)[1]
        return super().step(held, pc, epoch, name, run)


class TriesAgain(KafkaTopic):
    """Fenced, it introduces itself once more, and sends the same again without a look at what is there."""

    def step(self, held: Held, pc: Pc, epoch: Epoch, name: str, run: str) -> tuple[Held, Pc]:
        if pc[0] == "again":
            return held._replace(producer=run), ("commit", *pc[1:])
        return super().step(held, pc, epoch, name, run)

    def fenced(self, pc: Pc) -> Pc:
        return ("again", *pc[1:])


@pytest.mark.parametrize(
    ("sink", "what"),
    [
        (NamedByEpoch(), "was thrown away"),
        (Blind(), "went backwards|holds an epoch twice"),
        (Twice(), "holds an epoch twice"),
        (TriesAgain(), "holds an epoch twice"),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else "",
)
@pytest.mark.usefixtures("one_look")
def test_a_sink_that_breaks_its_promise_is_caught(sink, what: str) -> None:
    with pytest.raises(Violation, match=what):
        Explorer((sink, Objects()), processes=2).run()


@pytest.mark.usefixtures("one_look")
def test_a_log_that_lets_two_take_one_number_is_caught() -> None:
    with pytest.raises(Violation, match="written over"):
        Explorer((Delta(), Objects()), processes=2, honest=False).run()


NOT_DECIDED_AGAIN = (
    ("        yield Append(number, (replace(decided, run=run, prepared=prepared, config=config),))\n", ""),
    ("number, did = number + 1, Did.READ_AGAIN", "did = Did.READ_AGAIN"),
    ("attempt=number)", "attempt=number + 1)"),
)
OTHER_ROWS = (("            refuse_other_rows(name, decided, anew.get(name, none), config)\n", "            pass\n"),)


@pytest.mark.parametrize(
    ("changes", "edited", "what"),
    [(NOT_DECIDED_AGAIN, False, "wasn't decided"), (OTHER_ROWS, True, "mixture")],
    ids=["not decided again", "other rows"],
)
@pytest.mark.usefixtures("one_look")
def test_what_is_read_again_without_care_is_caught(monkeypatch: pytest.MonkeyPatch, changes, edited, what) -> None:
    monkeypatch.setattr(two_phase, "_forward", rewritten(two_phase._forward, *changes))
    program = Program(rewritten(recover), rewritten(run_epoch))
    with pytest.raises(Violation, match=what):
        Explorer((Delta(), Objects()), program, processes=2, removed=1, epochs=1, edited=edited).run()


class ToTheLetter(Delta):
    """Told of an epoch that its owner went on from, while another run was about to commit it."""

    def settled(self, held, epoch):
        answer = super().settled(held, epoch)
        ahead = held.visible and held.visible[-1].number > epoch.number and held.visible[-1].owner == epoch.owner
        return answer and answer._replace(error="PositionMismatch") if ahead else answer


@pytest.mark.usefixtures("one_look")
def test_a_run_that_was_overtaken_must_not_take_it_for_damage() -> None:
    """Why a sink says Fenced for a higher epoch, whoever made it."""
    with pytest.raises(Violation, match="ended with PositionMismatch"):
        Explorer((ToTheLetter(), Objects()), processes=2).run()


# ------------------------------------------------------------------------------------------------- what recovery says


def at(epoch: Epoch, **changes) -> Position:
    return replace(Position(epoch.number, epoch.offsets, owner=epoch.owner), **changes)


FIRST = replace(plan("before", None), attempt=1)
SECOND = replace(plan("before", FIRST), attempt=3)
PREPARED = {name: Prepared(3, "sum", {"staged": f"3-{name}"}) for name in ("a", "b")}
ONE = Row(State.DECIDED, FIRST, "before", PREPARED)
BEGUN = LogHeld(3, Row(State.BEGUN, SECOND, "before"), ONE)
TWO = Row(State.DECIDED, SECOND, "before", PREPARED, config="file")
DECIDED = LogHeld(4, TWO, TWO)
DONE = LogHeld(3, Row(State.DONE, FIRST, "before"), ONE)


def recovering(
    known: LogHeld,
    positions: dict[str, Position | None],
    *,
    gone: tuple[str, ...] = (),
    rows: int = 3,
    config: str = "file",
    then: LogHeld | None = None,
    join: bool = True,
) -> tuple[Recovered, list]:
    """What it says in the end, and what it has asked for: of sinks that stand still, and a log that is at ``then``."""
    steps, asked, answer, logs = (
        recover("run", config, join=join),
        [],
        None,
        iter([known, then or known, then or known]),
    )
    try:
        while True:
            action = steps.send(answer)
            asked.append(action)
            answer = None
            if isinstance(action, ReadLog):
                answer = next(logs)
                if then is None and any(isinstance(each, Append) for each in asked):
                    answer = LogHeld(answer.number + 1, answer.last, answer.decided)
            elif isinstance(action, AskPositions):
                answer = positions
            elif isinstance(action, Prepare):
                prepared = {name: Prepared(rows, "sum" if rows == 3 else "other", {}) for name in action.again}
                answer = action.epoch, prepared
            elif isinstance(action, Join):
                answer = {name: at(action.epoch, owner="run") for name in action.positions}
            elif isinstance(action, Commit):
                lost = () if any(isinstance(each, Prepare) for each in asked) else gone
                answer = {name: None if name in lost else Committed(at(action.epoch), 3) for name in action.prepared}
    except StopIteration as stop:
        return stop.value, asked


def test_an_attempt_that_may_be_committed_is_never_over() -> None:
    assert (LogHeld().over, DONE.over) == (1, DONE.number + 1)
    assert BEGUN.over == SECOND.attempt
    # Also where what was lost has been prepared again since, under the number of a later entry.
    assert DECIDED.over == replace(DECIDED, number=9).over == SECOND.attempt


def test_with_nothing_in_doubt_it_only_clears_up() -> None:
    recovered, asked = recovering(DONE, {"a": at(FIRST), "b": at(FIRST)})
    assert (recovered.found, recovered.did, recovered.stands) == (Found.NOTHING_IN_DOUBT, Did.NOTHING, FIRST)
    assert asked == [ReadLog(), Abort(before=4), AskPositions(("a", "b"))]


def test_a_pipeline_that_never_ran_stands_nowhere() -> None:
    recovered, _ = recovering(LogHeld(), {"a": None, "b": None})
    assert (recovered.number, recovered.stands, recovered.did) == (0, None, Did.NOTHING)


def test_what_was_only_begun_is_fenced_before_it_is_thrown_away() -> None:
    recovered, asked = recovering(BEGUN, {"a": at(FIRST), "b": at(FIRST)})
    assert (recovered.found, recovered.did, recovered.number) == (Found.NOTHING, Did.ABORTED, 4)
    assert (recovered.stands, recovered.doubted, recovered.held) == (FIRST, BEGUN.last, {"a": False, "b": False})
    assert asked == [
        ReadLog(),
        Append(4, (Row(State.ABORTED, SECOND, "run"),)),
        Abort(before=5),
        AskPositions(("a", "b")),
    ]


@pytest.mark.parametrize(
    ("a", "b", "found"), [(1, 1, Found.NOTHING), (2, 1, Found.PART), (1, 2, Found.PART), (2, 2, Found.SAME)]
)
def test_what_was_decided_is_committed_whatever_of_it_is_there(a: int, b: int, found: Found) -> None:
    epochs = {1: FIRST, 2: SECOND}
    recovered, asked = recovering(DECIDED, {"a": at(epochs[a]), "b": at(epochs[b])})
    assert (recovered.found, recovered.did, recovered.stands) == (found, Did.ROLLED_FORWARD, SECOND)
    assert recovered.held == {"a": a == 2, "b": b == 2}
    assert {position.epoch for position in recovered.positions.values() if position} == {2}
    assert [type(each) for each in asked] == [ReadLog, AskPositions, Commit, Append, Abort]
    assert recovered.number == 5
    assert asked[-1] == Abort(before=6), "all but what a later entry begins"


def test_what_could_not_be_prepared_is_aborted_and_everything_before_it() -> None:
    steps = run_epoch(SECOND, 3, "file", None)
    epoch = replace(SECOND, attempt=4)
    assert steps.send(None) == Begin(Append(4, (Row(State.BEGUN, epoch, epoch.owner),)), Prepare(epoch))
    assert steps.send(OSError("no room")) == Append(5, (Row(State.ABORTED, epoch, epoch.owner),))
    assert steps.send(None) == Abort(before=6)
    with pytest.raises(OSError, match="no room"):
        steps.send(None)


def test_what_is_gone_is_read_again_and_decided_again() -> None:
    recovered, asked = recovering(DECIDED, {"a": at(SECOND), "b": at(FIRST)}, gone=("b",))
    assert (recovered.found, recovered.did, recovered.number) == (Found.PART, Did.READ_AGAIN, 6)
    prepare = next(each for each in asked if isinstance(each, Prepare))
    assert (prepare.epoch, list(prepare.again)) == (replace(SECOND, attempt=5), ["b"])
    assert [type(each) for each in asked[3:6]] == [Prepare, Append, Commit]
    decided = asked[4].rows[0]
    assert (decided.state, decided.run, decided.epoch) == (State.DECIDED, "run", SECOND)
    assert decided.prepared["a"] == PREPARED["a"]


def test_other_rows_are_refused_and_both_counts_are_named() -> None:
    with pytest.raises(Diverged, match=r"4 rows \(checksum other\), where 3 rows \(checksum sum\)") as caught:
        recovering(DECIDED, {"a": at(SECOND), "b": at(FIRST)}, gone=("b",), rows=4)
    assert "Bring the staged files back" in caught.value.hint
    assert "restore" not in caught.value.hint, "a table that is restored by hand isn't where the log says"
    assert "`lakelock rewind FILE --to-epoch 1`" in caught.value.hint
    lost = gone_from_kafka(TWO).hint
    assert "`lakelock rewind FILE --to-epoch 1 --allow-data-loss`" in lost
    assert "topic" in lost
    with pytest.raises(Diverged, match="has been changed since") as caught:
        recovering(DECIDED, {"a": at(SECOND), "b": at(FIRST)}, gone=("b",), rows=4, config="edited")
    assert "Put back what has been changed" in caught.value.hint


def test_a_route_that_lacks_records_of_a_decided_epoch_is_told_how_to_give_it_up() -> None:
    """It stages nothing: after retention or compaction there are no files to bring back."""
    row = Row(State.DECIDED, SECOND, "run", {"a": Prepared(3, "", {}, 1)}, config="file")
    with pytest.raises(Diverged, match="3 rows were prepared") as caught:
        refuse_other_rows("a", row, Prepared(2, "", {}, 1), "file")
    assert "`lakelock rewind FILE --to-epoch 1 --allow-data-loss`" in caught.value.hint
    assert "merge: on_read" in caught.value.hint
    assert "staged" not in caught.value.hint
    assert "Kafka may have lost some of its records" in caught.value.hint
    with pytest.raises(Diverged, match="3 rows were prepared") as caught:
        refuse_other_rows("a", row, Prepared(4, "", {}, 1), "file")
    assert "Kafka may" not in caught.value.hint, "which has more than there was"
    assert "Somebody may have changed a table" in caught.value.hint


@pytest.mark.parametrize("known", [DONE, BEGUN], ids=["done", "begun"])
@pytest.mark.parametrize(
    ("b", "found", "hint"),
    [
        (at(SECOND), 'b epoch 2 with {"t":{"0":3}}', "A sink holds more than the log knows"),
        (None, "b no epoch", "restored or emptied"),
        (at(FIRST, offsets=Offsets({TopicPartition("t", 0): 1})), 'b epoch 1 with {"t":{"0":1}}', "restored"),
        (at(FIRST, owner="somebody"), "b epoch 1", "restored"),
    ],
    ids=["more than it", "emptied", "restored", "of another run"],
)
def test_sinks_that_disagree_with_the_log_stop_the_run(known: LogHeld, b, found: str, hint: str) -> None:
    with pytest.raises(PositionMismatch) as caught:
        recovering(known, {"a": at(FIRST), "b": b})
    assert 'expected epoch 1 with {"t":{"0":2}} in all of them' in caught.value.message
    assert found in caught.value.message
    assert hint in caught.value.hint


def test_a_sink_that_is_behind_a_decided_epoch_by_more_than_it_stops_the_run() -> None:
    with pytest.raises(PositionMismatch, match="b no epoch") as caught:
        recovering(DECIDED, {"a": at(SECOND), "b": None})
    assert "lakelock rewind" in caught.value.hint


def test_a_log_without_epochs_refuses_sinks_that_hold_some() -> None:
    with pytest.raises(PositionMismatch, match="expected no epoch in all of them, found a epoch 1") as caught:
        recovering(LogHeld(), {"a": at(FIRST), "b": None})
    assert "holds more than the log knows" in caught.value.hint


def test_a_sink_that_had_to_ask_its_rows_needs_only_the_epoch() -> None:
    rows = at(FIRST, offsets=Offsets({TopicPartition("t", 0): 1}), source="rows", owner="")
    recovered, _ = recovering(DONE, {"a": at(FIRST), "b": rows})
    assert recovered.stands == FIRST


def test_where_the_log_has_moved_it_looks_again() -> None:
    moved = LogHeld(5, Row(State.DONE, SECOND, "other"), TWO)
    recovered, asked = recovering(DONE, {"a": at(SECOND), "b": at(SECOND)}, then=moved)
    assert (recovered.number, recovered.stands) == (5, SECOND)
    assert sum(isinstance(each, ReadLog) for each in asked) == 3


def test_where_the_log_moves_at_every_look_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase, "_LOOKS", 1)
    moved = LogHeld(5, Row(State.DONE, SECOND, "other"), TWO)
    with pytest.raises(Fenced) as caught:
        recovering(DONE, {"a": at(SECOND), "b": at(SECOND)}, then=moved)
    assert (caught.value.owner, caught.value.epoch) == ("other", 2)


@pytest.mark.parametrize("known", [DONE, BEGUN, DECIDED], ids=["done", "begun", "decided"])
@pytest.mark.parametrize("behind", [None, at(replace(FIRST, number=0))], ids=["new", "on its way"])
def test_a_sink_that_was_added_catches_up_after_the_others_are_settled(known: LogHeld, behind) -> None:
    """Whatever is in doubt is settled without it, for it isn't named there."""
    stands = SECOND if known is DECIDED else FIRST
    recovered, asked = recovering(known, {"a": at(FIRST), "b": at(FIRST), "c": behind})
    joins = [each for each in asked if isinstance(each, Join)]
    assert joins == [Join(stands, {"c": behind})]
    assert asked.index(joins[0]) > max(asked.index(each) for each in asked if isinstance(each, AskPositions | Commit))
    assert recovered.stands == stands
    assert {position.epoch for position in recovered.positions.values() if position} == {stands.number}


def test_a_sink_that_was_added_and_has_caught_up_is_where_the_others_are() -> None:
    recovered, asked = recovering(DONE, {"a": at(FIRST), "b": at(FIRST), "c": at(FIRST, owner="run")})
    assert not any(isinstance(each, Join) for each in asked)
    assert recovered.stands == FIRST


@pytest.mark.parametrize(
    "beyond",
    [
        at(SECOND),
        at(replace(FIRST, number=0, offsets=Offsets({TopicPartition("t", 0): 9}))),
        at(replace(FIRST, number=0), delivery="manual_commit"),
    ],
    ids=["a later epoch", "more offsets", "another delivery"],
)
def test_a_sink_that_was_added_and_holds_more_stops_the_run(beyond) -> None:
    with pytest.raises(PositionMismatch, match="c epoch"):
        recovering(DONE, {"a": at(FIRST), "b": at(FIRST), "c": beyond})


def test_a_recovery_alone_leaves_an_added_sink_where_it_is() -> None:
    """`lakelock recover` settles what is in doubt, and reads no backlog."""
    recovered, asked = recovering(DONE, {"a": at(FIRST), "b": at(FIRST), "c": None}, join=False)
    assert not any(isinstance(each, Join) for each in asked)
    assert recovered.positions["c"] is None


def test_an_added_sink_of_a_pipeline_that_never_ran_is_one_of_its_sinks() -> None:
    recovered, asked = recovering(LogHeld(), {"a": None, "b": None, "c": None})
    assert recovered.stands is None
    assert not any(isinstance(each, Join) for each in asked)
