"""Records of a route that have a schema of their own: their tables have its columns, and only these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from another_engine import query
from conftest import Lake
from routing import Routed
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from sinks.errors import BadRecord, SchemaMismatch

UPSERT = {"type": "delta_upsert", "key": "id"}
OWN = "kind STRING, id BIGINT, why STRING, lines ARRAY<STRUCT<n: INT>>"


@pytest.fixture
def routed(lake: Lake) -> Routed:
    return Routed(lake)


def refunds(sink: Any = None, schema: str = OWN) -> dict[str, Any]:
    return {"route": {"overrides": {"refund": {"value": {"schema": schema}, "sink": sink or {}}}}}


def by_header(routed: Routed, sink: Any) -> dict[str, Any]:
    options = routed.options(
        sink={"path": f"{routed.lake.folder}/{{route}}"}, headers=True, **refunds(sink, "id BIGINT, why STRING")
    )
    options["route"]["by"] = "CAST(_headers['kind'] AS STRING)"
    options["value"]["schema"] = "k STRING, n INT"
    return options


def send(routed: Routed, *values: Any) -> None:
    routed.topic.send(*((None, value) for value in values), partition=0)


def told(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, (arguments, result.output)
    return " ".join(result.output.split())


@pytest.mark.breadth
def test_its_table_has_these_columns_alone(routed: Routed) -> None:
    send(
        routed,
        {"kind": "refund", "id": 1, "why": "late", "lines": [{"n": 1}], "n": "no number"},
        {"kind": "order", "k": "x", "n": 3, "why": 5},
        {"kind": "refund", "id": 2, "WHY": "odd"},
    )
    with pytest.raises(BadRecord, match=r"offset 0.*field n"):  # every record has to fit value.schema
        routed.run(**refunds())
    options = routed.options(**refunds())
    options["value"]["schema"] = "kind STRING, k STRING"
    done = Pipeline.from_options(options).run()
    assert done.rows == 3
    assert query(routed.lake.folder / "refund", "SELECT id, why FROM t ORDER BY 1") == [(1, "late"), (2, "odd")]
    assert query(routed.lake.folder / "order", "SELECT kind, k FROM t") == [("order", "x")]
    columns = [row[0] for row in query(routed.lake.folder / "refund", "DESCRIBE t")]
    assert columns == ["kind", "id", "why", "lines", "_topic", "_partition", "_offset", "_timestamp"]


@pytest.mark.breadth
def test_a_bad_record_is_explained_by_its_own_schema_alone(routed: Routed) -> None:
    """Others give the same field another type."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.folder / "_dead")}}
    schemas = {"refund": "kind STRING, id STRING, n INT", "order": "kind STRING, id INT"}
    own = {"route": {"overrides": {value: {"value": {"schema": schema}} for value, schema in schemas.items()}}}
    options = routed.options(**own, **letters)
    options["value"]["schema"] = "kind STRING, k INT"
    send(
        routed, {"kind": "refund", "id": "A7", "n": "x"}, {"kind": "order", "id": "A7", "n": "x"},
        {"kind": "order", "id": 1, "k": "y"}, {"kind": "refund", "id": "A8", "n": 1},
    )  # fmt: skip
    assert Pipeline.from_options(options).run().rows == 1
    found = query(routed.lake.folder / "_dead", "SELECT _offset, detail FROM t ORDER BY 1")
    said = [(offset, detail.partition("its value: field ")[2].partition(":")[0]) for offset, detail in found]
    assert said == [(0, "n"), (1, "id"), (2, "k")]


@pytest.mark.breadth
def test_deletes_bad_records_and_the_auditor_go_by_them(routed: Routed, tmp_path: Path) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.folder / "_dead")}}
    options = {**by_header(routed, UPSERT), **letters}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(options))
    routed.send_named(
        ("refund", "1", {"id": 1, "why": "late"}),
        ("refund", "2", {"id": 2, "why": "early"}),
        ("refund", "3", {"id": "three"}),
        ("refund", "4", {"why": "nobody's"}),
        ("order", "x", {"k": "x", "n": 5}),
        ("order", "y", {"k": "y", "n": "six"}),
        ("refund", "1", None),
    )
    checked = told("check", str(file))
    assert "field id: not a BIGINT" in checked
    assert "field n: not an INT" in checked
    assert "3 for refund, 1 for order" in checked
    assert '{"id":1,"why":"late"}' in checked
    Pipeline.from_options(options).run()
    assert query(routed.lake.folder / "refund", "SELECT id, why FROM t") == [(2, "early")]
    found = query(routed.lake.folder / "_dead", "SELECT reason, detail, _offset FROM t ORDER BY 3")
    assert [(reason, offset) for reason, _, offset in found] == [("value", 2), ("no_key", 3), ("value", 5)]
    verdict = json.loads(CliRunner().invoke(app, ["verify", "--json", str(file)], catch_exceptions=False).stdout)
    assert (verdict["ok"], [each["verdict"] for each in verdict["tables"]]) == (True, ["exact", "exact"])
    spark = routed.lake.spark
    assert spark is not None
    spark.sql(f"UPDATE delta.`{routed.lake.folder}/refund` SET why = 'changed'").collect()
    again = json.loads(CliRunner().invoke(app, ["verify", "--json", str(file)]).stdout)
    assert not again["ok"]


@pytest.mark.breadth
@pytest.mark.parametrize("letters", [False, True])
def test_the_rules_of_its_table_are_over_them(routed: Routed, letters: bool) -> None:
    spark = routed.lake.spark
    assert spark is not None
    place = f"delta.`{routed.lake.folder}/refund`"
    spark.sql(
        f"CREATE TABLE {place} ({OWN}, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP) USING delta"
    )
    spark.sql(f"ALTER TABLE {place} ADD CONSTRAINT told CHECK (why <> '')")
    send(
        routed,
        {"kind": "order", "k": "x", "n": 1},
        {"kind": "refund", "id": 1, "why": ""},
        {"kind": "refund", "id": 2, "why": "late"},
    )
    if letters:
        dead = {"path": str(routed.lake.folder / "_dead")}
        assert routed.run(on_bad_record="dead_letter", dead_letters=dead, **refunds()).rows == 2
        assert query(routed.lake.folder / "_dead", "SELECT reason, _offset FROM t") == [("unfit", 1)]
        return
    with pytest.raises(BadRecord, match=r"offset 1.*told"):
        routed.run(**refunds())
    assert not (routed.lake.folder / "order").exists() or routed.rows("order") == []


@pytest.mark.breadth
def test_a_misspelled_field_stops_the_run_before_its_table_is_made(routed: Routed, tmp_path: Path) -> None:
    send(routed, {"kind": "order", "k": "x", "n": 1, "reason": "none"}, {"kind": "refund", "id": 1, "reason": "late"})
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(routed.options(**refunds(schema="kind STRING, id INT, reasn STRING"))))
    said = "route.overrides.refund.value.schema doesn't fit the records"
    meant = "1 have reason, which the schema lacks. Did you mean reason?"
    checked = told("check", str(file), code=2)
    assert said in checked
    assert meant in checked
    with pytest.raises(SchemaMismatch, match=said) as refused:
        Pipeline.from_file(file).run()
    assert meant in str(refused.value)
    assert not (routed.lake.folder / "refund").exists()


@pytest.mark.breadth
def test_records_that_are_all_set_aside_make_no_table_and_are_not_lost(routed: Routed) -> None:
    send(routed, {"kind": "order", "k": "x", "n": 1}, {"kind": "refund", "id": "one"}, {"kind": "refund", "id": "two"})
    changes = {**refunds(schema="kind STRING, id INT"), "on_bad_record": "dead_letter"}
    changes["dead_letters"] = {"path": str(routed.lake.folder / "_dead")}
    routed.run(**changes)
    assert not (routed.lake.folder / "refund").exists()
    assert routed.verified(**changes) == {"order": {"expected": 1, "found": 1, "records": 1}}
