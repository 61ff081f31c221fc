"""The protocol of a route in every state that it can get into, and wrong protocols that have to be caught."""

from __future__ import annotations

from functools import partial

import pytest
from explorer import Answer, Held, Pc, Program, Violation, rewritten
from explorer_routed import Routed, Table

from connector.protocol import decided, two_phase
from connector.protocol.two_phase import recover, run_epoch

ENDS = {"done", "Fenced", "CommitUnknown", "SinkError"}
TABLES = (Table("a", 1, 2, 3), Table("b", 1, 3), Table("c", 2))

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look again is what a fresh process does, which may come at any time."""
    monkeypatch.setattr(two_phase, "_LOOKS", 1)


@pytest.mark.parametrize(
    ("epochs", "processes", "states"),
    [
        (2, 3, 3_000),
        pytest.param(3, 3, 3_000, marks=pytest.mark.draws),
        pytest.param(2, 4, 10_000, marks=pytest.mark.draws),
    ],
)
def test_every_state_of_several_processes(epochs: int, processes: int, states: int) -> None:
    explored = Routed(TABLES, epochs=epochs, processes=processes).run()
    assert explored.ends == ENDS
    assert explored.states > states, "something keeps the search from states that there are"


def test_an_epoch_is_never_split_between_two_versions_of_the_file() -> None:
    explored = Routed(TABLES, epochs=2, processes=3, edited=True).run()
    assert explored.ends == ENDS | {"Diverged"}


def test_a_route_that_changes_in_an_epoch_in_doubt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase, "refuse_other_file", lambda *_: None)
    with pytest.raises(Violation, match=r"mixture|decided twice"):
        Routed(TABLES, epochs=2, processes=3, edited=True).run()


def test_a_recovery_that_forgets_tables_is_caught() -> None:
    wrong = rewritten(
        recover, ("yield from _forward(known.number, doubted, run, config)", "known.number, {}, Did.NOTHING")
    )
    with pytest.raises(Violation, match=r"says done|ended with|one too few"):
        Routed(TABLES, Program(wrong, partial(run_epoch, stages=False)), epochs=2, processes=3).run()


def test_tables_that_write_before_the_decision_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    decides = "    yield Append(number + 1, (done, decided) if done else (decided,))\n"
    late = rewritten(two_phase._decide, (decides, f"    yield Commit(epoch, prepared)\n{decides}"))
    monkeypatch.setattr(two_phase, "_decide", late)
    with pytest.raises(Violation, match="wasn't decided"):
        Routed(TABLES, epochs=2, processes=3).run()


def test_a_table_that_is_passed_by_has_to_be_where_the_log_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a run takes a table at its last epoch for one that lacks the newest."""
    monkeypatch.setattr(decided.Row, "left_at", lambda *_: None)
    with pytest.raises(Violation, match="PositionMismatch"):
        Routed(TABLES, epochs=2, processes=3).run()


class Careless(Table):
    """Commits without looking whether another commit has come first."""

    def commit(self, held: Held, pc: Pc, *rest):  # type: ignore[no-untyped-def]
        if pc[0] == "commit":
            epoch, _, version = rest
            return self.show(held, epoch, f"{epoch.number} {version}", ""), Answer(stands=True)
        return super().commit(held, pc, *rest)


def test_a_table_that_lets_two_take_one_epoch_is_caught() -> None:
    with pytest.raises(Violation, match="twice"):
        Routed((Careless("a", 1, 2), Table("b", 1)), epochs=2, processes=3).run()
