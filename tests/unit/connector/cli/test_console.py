"""What all commands share."""

import os
import signal

import pytest

from connector.cli.broker import STOPS
from connector.cli.console import stop_on_signal


def test_a_signal_says_what_stops_and_a_broker_knows_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    for says, words in ({}, "stopping after the running epoch; a second signal abandons it"), ({"says": STOPS}, STOPS):
        with stop_on_signal(**says) as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait(5)
        assert capsys.readouterr().err.strip() == words
    assert "epoch" not in STOPS
