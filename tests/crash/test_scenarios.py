"""The classic scenarios hold: what theory says breaks is seen to break, and nothing else."""

import io
import json

import pytest
from rich.console import Console

from connector.lab.bench.broker import Broker
from connector.lab.trials.scenarios import MESSAGES, SCENARIOS, Facts, Outcome, compare, print_outcome
from sinks.errors import ConfigurationError

EXPECTED = {
    "commit_first": {"processed": Facts(lost=("M6", "M7", "M8", "M9", "M10"))},
    "write_first": {"processed": Facts(duplicated=("M1", "M2", "M3", "M4", "M5"))},
    "lost_acknowledgement": {"without idempotence": Facts(duplicated=("M1",)), "with idempotence": Facts()},
    "read_uncommitted": {"read_uncommitted": Facts(wrong=("A1", "A2", "A3")), "read_committed": Facts()},
    "side_effect": {
        "output, read_committed": Facts(),
        "output, read_uncommitted": Facts(duplicated=MESSAGES[:10]),
        "e-mails": Facts(duplicated=MESSAGES[:10]),
    },
}


def test_every_scenario_is_tested() -> None:
    assert set(EXPECTED) == set(SCENARIOS)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_must_break_breaks_and_nothing_else(name: str, broker: Broker) -> None:
    outcome = SCENARIOS[name](broker)
    assert outcome.name == name
    assert outcome.observed == EXPECTED[name], "\n".join(outcome.timeline)
    assert outcome.held
    assert json.loads(json.dumps(outcome.to_dict()))["held"] is True
    assert "held" in shown(outcome)


def shown(outcome: Outcome) -> str:
    out = io.StringIO()
    print_outcome(outcome, Console(file=out, width=200))
    return out.getvalue()


def test_a_scenario_in_which_nothing_breaks_has_failed() -> None:
    outcome = Outcome("calm", "Why.", {"v": Facts(lost=("M1",))}, {"v": Facts()}, ["[nothing] happened"])
    assert not outcome.held
    assert outcome.to_dict()["held"] is False
    assert "DID NOT HOLD" in shown(outcome)
    assert "[nothing] happened" in shown(outcome)
    assert "lost=('M1',)" in shown(outcome)


def test_lost_duplicated_and_wrong_messages_are_told_apart() -> None:
    assert compare(["a", "b", "c"], ["x", "c", "a", "x", "c"]) == Facts(("b",), ("c",), ("x",))
    assert compare(["a", "b"], ["b", "a"]) == Facts()


def test_a_broker_without_a_proxy_is_refused() -> None:
    class Plain(Broker):
        def create_topic(self, *args: object, **kwargs: object) -> None: ...

    with pytest.raises(ConfigurationError, match="second listener"):
        SCENARIOS["lost_acknowledgement"](Plain())
