"""What catches up with the other sinks of a pipeline, and what doesn't."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from connector.engine.joining import Joining
from sinks.errors import ConfigurationError


def test_only_a_table_catches_up() -> None:
    config: Any = None
    joining = Joining(config, "run", config, lambda _: nullcontext(None), lambda _: None)
    with pytest.raises(ConfigurationError, match="'topic:x' was added to the pipeline, which has begun"):
        joining(config, {"topic:x": None})


def test_a_run_that_is_to_end_leaves_the_rest_to_the_next() -> None:
    class Table:
        def run_epoch(self, *_: Any) -> Any:
            raise AssertionError("no epoch begins after the signal")

    config: Any = None
    table: Any = Table()
    joining = Joining(config, "run", config, lambda _: nullcontext(table), lambda _: None, lambda: True)
    assert joining(config, {"b": None}) == {"b": None}
