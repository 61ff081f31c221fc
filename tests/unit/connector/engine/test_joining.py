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
