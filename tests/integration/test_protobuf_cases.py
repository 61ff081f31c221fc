"""The cases of Protobuf's own conformance suite: each is a row, or a dead letter, as docs/conformance.md says."""

from __future__ import annotations

from pathlib import Path

import pytest
from audits import verify
from conftest import Lake, Topic
from protobuf_bytes import compiled
from protobuf_cases import SUITES, Edition, Syntax

from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_schema import Messages
from sinks.spark.types import ddl

NAME = "lock.All"


@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(each, marks=[pytest.mark.breadth] if isinstance(each, Syntax) else [], id=each.name)
        for each in SUITES
    ],
)
def test_every_case_of_protobufs_own_suite_is_its_row_or_a_dead_letter(
    lake: Lake, topic: Topic, suite: Syntax | Edition
) -> None:
    cases, columns = suite.cases(), columns_of(Messages(compiled(suite.schema(whole=False))).of(NAME))
    lake.folder.mkdir(exist_ok=True)
    Path(lake.folder, "all.desc").write_bytes(compiled(suite.schema()))
    value = {"format": "protobuf", "descriptor_file": str(lake.folder / "all.desc"), "message": NAME}
    given = {
        "value": {**value, "schema": ddl(columns)},
        "on_bad_record": "dead_letter",
        "dead_letters": {"path": str(lake.path("dead"))},
    }
    topic.send(*((None, case.content) for case in cases), partition=0)
    lake.pipeline(**given).run()
    times = [f"unix_micros({name}) AS {name}" for name in columns.names if name == "at"]
    names = [name for name in columns.names if name != "at"]
    rows = {
        offset: row
        for each in lake.frame().selectExpr("_offset", *names, *times).collect()
        for row in [each.asDict(recursive=True)]
        for offset in [row.pop("_offset")]
    }
    has_letters = lake.path("dead").exists()  # not of an edition, which has no case of a bad record
    dead = {row["_offset"] for row in lake.frame("dead").collect()} if has_letters else set()
    wrong = []
    for at, case in enumerate(cases):
        expected = None if isinstance(case.found, str) else {**suite.empty, **case.found}
        if rows.get(at) != expected or (at in dead) is not (expected is None):
            wrong.append((case.about, case.found, rows.get(at)))
    assert wrong == []
    assert len(rows) + len(dead) == len(cases)
    found = verify(lake, **given)
    assert found.ok, str(found)
