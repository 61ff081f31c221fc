"""What catches up with the other sinks of a pipeline, and what doesn't."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine import assembly as module
from connector.engine.assembly import Assembly
from connector.engine.joining import Joining
from connector.engine.outputs import Table
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

    config: Any = SimpleNamespace(of_rows=False)
    table: Any = Table()
    joining = Joining(config, "run", config, lambda _: nullcontext(table), lambda _: None, lambda: True)
    assert joining(config, {"b": None}) == {"b": None}


def test_rows_that_only_a_query_makes_are_not_read_again() -> None:
    config: Any = SimpleNamespace(of_rows=True)
    table: Any = nullcontext(SimpleNamespace())
    joining = Joining(config, "run", config, lambda _: table, lambda _: None)
    with pytest.raises(ConfigurationError, match="only the query makes rows"):
        joining(config, {"b": None})


def test_a_table_of_a_streaming_query_catches_up_from_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch's rows are of the query's session: the MERGE of the table's own session wouldn't find them."""
    table: Any = object.__new__(Table)
    object.__setattr__(table, "table", SimpleNamespace(label="b"))
    config: Any = SimpleNamespace(alone=lambda _: SimpleNamespace(source=None, reads_headers=False))
    unused: Any = None
    of_query = Assembly(config, "run", unused, unused, unused, unused, [table], unused, read=lambda *_: unused)
    monkeypatch.setattr(module, "is_connect", lambda _: True)
    monkeypatch.setattr(module, "no_records", lambda _: None)
    monkeypatch.setattr(module, "outputs", lambda *_: nullcontext([table]))
    monkeypatch.setattr(Assembly, "one_table", lambda self, _: self)
    monkeypatch.setattr(module, "Reader", lambda _: SimpleNamespace(read=lambda *_, headers: "kafka"))
    with of_query._alone(lambda _: None, "b") as alone:
        made: Any = alone
        assert made.read is None
        assert made.of_kafka() == "kafka"
