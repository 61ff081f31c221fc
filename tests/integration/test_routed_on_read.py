"""Tables of a route that are merged on read: each epoch is appended to change logs, and folded table by table."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from conftest import Lake
from routing import Routed, dying_before_the_commit_of
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from connector.config import parse
from connector.operations.read import read_of
from sinks.errors import ConfigurationError

SINK = {"type": "delta_upsert", "key": "k", "merge": "on_read", "fold": {"epochs": 3}}


@pytest.mark.breadth
def test_each_table_is_exact_and_folded_by_itself(lake: Lake) -> None:
    routed = Routed(lake)

    def current(kind: str) -> list[tuple[Any, ...]]:
        return [
            tuple(row) for row in read_of(parse(routed.options(sink=SINK)), lake.spark, kind).select("k", "n").collect()
        ]

    routed.send(("a", "x", 1), ("b", "y", 2))
    routed.run(sink=SINK)
    routed.send(("a", "x", 3), ("b", "y", 4))
    with dying_before_the_commit_of("b"):
        routed.run(sink=SINK)
    assert [current(kind) for kind in "ab"] == [[("x", 3)], [("y", 2)]]
    routed.send(("a", "x", 5), ("c", "v", 6))
    assert routed.run(sink=SINK).epochs == 1
    # The first epoch was merged, the next ones are in the change logs: also the one that was rolled forward.
    assert [routed.rows(kind) for kind in "abc"] == [[("x", 1)], [("y", 2)], [("v", 6)]]
    assert [current(kind) for kind in "abc"] == [[("x", 5)], [("y", 4)], [("v", 6)]]
    routed.send(("a", "x", 7))
    routed.run(sink=SINK)
    assert [routed.rows(kind) for kind in "ab"] == [[("x", 7)], [("y", 2)]], "a is folded, and b has nothing new"
    exact = {"expected": 1, "found": 1}
    assert routed.verified(sink=SINK) == {"a": exact, "b": exact, "c": exact}, "as of the last fold of each"

    pipeline = Pipeline.from_options(routed.options(sink=SINK))
    for act in (lambda: pipeline.rewind(to_epoch=1), pipeline.snapshot):
        with pytest.raises(ConfigurationError, match=r"on_read|merged on read"):
            act()
    file = lake.folder / "routed.yaml"
    file.write_text(yaml.safe_dump(routed.options(sink=SINK)))
    folded = CliRunner().invoke(app, ["fold", str(file)])
    assert folded.exit_code == 0, folded.output
    assert routed.rows("b") == [("y", 4)]
    assert pipeline.fold() is None
    routed.send(("c", "v", 8))
    routed.run(sink=SINK)
    on_write = {**SINK, "merge": "on_write", "fold": None}
    with pytest.raises(ConfigurationError, match="folded into it yet"):
        routed.run(sink=on_write)
    pipeline.fold()
    routed.send(("c", "v", 9))
    routed.run(sink=on_write)
    assert [routed.rows(kind) for kind in "abc"] == [[("x", 7)], [("y", 4)], [("v", 9)]]
    assert routed.verified(sink=on_write) == {"a": exact, "b": exact, "c": exact}
