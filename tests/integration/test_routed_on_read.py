"""Tables of a route that are merged on read: each epoch is appended to change logs, and folded table by table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from audits import counts
from conftest import Lake
from routing import Routed, dying_before_the_commit_of
from typer.testing import CliRunner

from connector import Pipeline
from connector.audit import audit, audit_routes
from connector.audit.verdict import FAULTS
from connector.cli.app import app
from connector.config import parse
from connector.operations.read import read_of
from sinks.errors import ConfigurationError, PositionMismatch

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


@pytest.mark.breadth
def test_every_command_takes_such_a_route_also_with_an_interval(lake: Lake) -> None:
    routed = Routed(lake)
    routed.send(("a", "x", 1), ("b", "y", 2))
    pipeline = Pipeline.from_options(routed.options(sink=SINK, trigger={"interval": "10 seconds"}))
    assert pipeline.run(max_epochs=1).limited
    routed.send(("a", "x", 3))
    assert pipeline.check().sample
    assert pipeline.dry_run()
    assert pipeline.run(max_epochs=1).limited
    assert pipeline.status().position is not None
    assert len(pipeline.history()) == 2
    assert pipeline.preview().tables
    assert not pipeline.recover().held
    assert pipeline.verify().ok
    assert pipeline.fold() is not None
    pipeline.maintain(dry_run=True)
    assert routed.rows("a") == [("x", 3)]
    with pytest.raises(ConfigurationError, match="one view"):
        pipeline.view("mine")


@pytest.mark.breadth
@pytest.mark.parametrize("how", ["deleted", "restored"])
def test_a_table_that_lacks_the_epochs_of_its_change_log_is_not_exact(lake: Lake, how: str) -> None:
    routed = Routed(lake)
    sink = {**SINK, "fold": {"epochs": 9}}
    for n in range(3):
        routed.send(("a", "x", n), ("b", "y", n))
        routed.run(sink=sink)

    def unknown() -> dict[str, tuple[str, ...]]:
        config = parse(routed.options(sink=sink))
        audits = audit_routes(config, lambda one, upto: audit(one, upto=upto))
        assert not any(counts(each).get(fault) for each in audits for fault in FAULTS)
        return {Path(each.table).name: each.claim.unknown for each in audits}

    assert unknown() == {"a": (), "b": ()}
    if how == "deleted":
        shutil.rmtree(lake.folder / "a" / "_lakelock" / "changes")
    else:
        before = lake.sql("DESCRIBE HISTORY {t} LIMIT 1", "a")[0][0]
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('mine' = 'x')", "a")
        lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {before}", "a")
    found = unknown()
    assert found["b"] == ()
    assert "the table has epoch 3, and with its change log it has none after epoch 1" in found["a"][0]
    routed.send(("a", "x", 4))
    with pytest.raises(PositionMismatch):
        routed.run(sink=sink)
