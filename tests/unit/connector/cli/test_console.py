"""What all commands share."""

import os
import signal

import pytest

from connector.cli.broker import STOPS
from connector.cli.console import say_error, stop_on_signal
from sinks.errors import ConfigurationError, SourceError


def test_a_signal_says_what_stops_and_a_broker_knows_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    for says, words in ({}, "stopping after the running epoch; a second signal abandons it"), ({"says": STOPS}, STOPS):
        with stop_on_signal(**says) as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(5)
        assert capsys.readouterr().err.strip() == words
    assert "epoch" not in STOPS


@pytest.mark.parametrize(
    ("error", "pipeline", "said"),
    [
        # The name of a pipeline may be a part of any word.
        (SourceError("Kafka doesn't answer."), "a", "error: a: Kafka doesn't answer."),
        (ConfigurationError("Nobody can log in."), "body", "error: body: Nobody can log in."),
        (ConfigurationError("f/01.yaml has 2 faults"), "01.yaml", "error: f/01.yaml has 2 faults"),
        (ConfigurationError("f/01.yaml, line 1, column 2: no YAML"), "01.yaml", "error: f/01.yaml, line 1, column 2:"),
        (ConfigurationError("f/s.yaml#b has 1 fault"), "s.yaml#b", "error: f/s.yaml#b has 1 fault"),
        (SourceError("Kafka doesn't answer."), "", "error: Kafka doesn't answer."),
    ],
)
def test_an_error_of_several_pipelines_says_once_whose_it_is(
    error: Exception, pipeline: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say_error(error, pipeline)
    assert capsys.readouterr().err.startswith(said)


def test_an_error_that_was_kept_for_later_has_its_stack_trace_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    def breaks() -> None:
        raise ValueError("a file is gone")

    with pytest.raises(ValueError, match="gone") as caught:
        breaks()
    say_error(caught.value, "orders")
    assert "breaks" not in capsys.readouterr().err
    say_error(caught.value, "orders", debug=True)
    assert "in breaks" in capsys.readouterr().err
