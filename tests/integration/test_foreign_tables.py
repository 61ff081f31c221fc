"""Tables that others have made, with each feature of Delta, as targets: values are intact, or the run is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from conftest import Lake

from connector import Pipeline
from connector.config import parse
from connector.engine.outputs import outputs
from connector.operations.read import read_of
from connector.source.records import no_records
from sinks.errors import LakelockError

pytestmark = pytest.mark.spark4("Spark 3.5 has not all of these features")
PAGE = Path(__file__).parents[2] / "docs" / "foreign-tables.md"
WORKS, NOT_ELSEWHERE, REFUSED = "works", "works in Spark", "refused"
SINKS: Mapping[str, Mapping[str, Any]] = {
    "append": {"type": "delta_append"},
    "upsert": {"type": "delta_upsert", "key": "k"},
    "upsert, on read": {"type": "delta_upsert", "key": "k", "merge": "on_read"},
    "history": {"type": "delta_history", "key": "k"},
    "aggregate": {"type": "delta_aggregate", "group_by": "k", "aggregates": {"total": "sum(n)"}},
}
RECORDS = [("a", 1), ("b", 2), ("c", 3), ("a", 4), ("b", 5), ("d", 6), ("a", 7)]
TWO_EPOCHS = {"max_records": 4}


@dataclass(frozen=True)
class Feature:
    """How a person's table differs from one that Lakelock makes."""

    clause: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    column: str = ""
    """One that the records don't have. ``{value}``: the one with numbers that they have."""
    of_records: str = ""
    """One that the records have, too: its name and type."""
    value: object = None
    """Of that column, in each record."""
    after: Sequence[str] = ()
    """SQL once the table is there."""
    holds: str = "true"
    """SQL that is true of each row."""
    at_once: bool = True
    """Whether that is so of rows, too, that aren't folded yet. Else it is unknown of them."""


FEATURES: Mapping[str, Feature] = {
    "partitions": Feature("PARTITIONED BY (k)"),
    "liquid clustering": Feature("CLUSTER BY (k)"),
    "column mapping by name": Feature(
        properties={"delta.columnMapping.mode": "name"},
        after=["ALTER TABLE {t} RENAME COLUMN k TO `its k`", "ALTER TABLE {t} RENAME COLUMN `its k` TO k"],
    ),
    "column mapping by id": Feature(properties={"delta.columnMapping.mode": "id"}),
    "deletion vectors": Feature(properties={"delta.enableDeletionVectors": "true"}),
    "change data feed": Feature(properties={"delta.enableChangeDataFeed": "true"}),
    "CHECK constraint": Feature(after=["ALTER TABLE {t} ADD CONSTRAINT named CHECK (k IS NOT NULL)"]),
    "generated column": Feature(column="twice BIGINT GENERATED ALWAYS AS ({value} * 2)", holds="twice = {value} * 2"),
    "identity column": Feature(column="number BIGINT GENERATED ALWAYS AS IDENTITY", holds="number > 0", at_once=False),
    "default value": Feature(
        column="origin STRING DEFAULT 'somebody'",
        properties={"delta.feature.allowColumnDefaults": "supported"},
        holds="origin = 'somebody'",
    ),
    "row tracking": Feature(properties={"delta.enableRowTracking": "true"}),
    "type widening": Feature(
        properties={"delta.enableTypeWidening": "true"}, after=["ALTER TABLE {t} ALTER COLUMN {value} TYPE BIGINT"]
    ),
    "v2 checkpoints": Feature(properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1"}),
    "in-commit timestamps": Feature(properties={"delta.enableInCommitTimestamps": "true"}),
    "append only": Feature(properties={"delta.appendOnly": "true"}),
    "TIMESTAMP_NTZ": Feature(
        of_records="at TIMESTAMP_NTZ", value="2026-11-01T10:00:00", holds="at = TIMESTAMP_NTZ'2026-11-01 10:00:00'"
    ),
    "VARIANT": Feature(
        of_records="doc VARIANT", value={"x": [1, 2.5, None]}, holds="to_json(doc) = '{\"x\":[1,2.5,null]}'"
    ),
}
IN_EVERY_SUITE = [("generated column", "append"), ("type widening", "aggregate"), ("append only", "upsert")]
"""Of a kind each: what the table works out, what was changed since it was made, what is refused."""
CELLS = [
    pytest.param(name, sink, marks=[] if (name, sink) in IN_EVERY_SUITE else pytest.mark.breadth)
    for name in FEATURES
    for sink in SINKS
]
_CREATED: dict[tuple[str, str], str] = {}
"""(sink, column of the records) -> the CREATE TABLE of the sink's own table."""


@pytest.mark.parametrize(("name", "sink"), CELLS)
def test_the_page_says_what_becomes_of_it(lake: Lake, name: str, sink: str) -> None:
    feature = FEATURES[name]
    options = _options(lake, sink, feature)
    _send(lake, feature)
    _make(lake, name, sink, options)
    assert _outcome(lake, name, sink, options) == _told()[name][sink]


def test_the_page_has_every_feature_and_every_sink() -> None:
    assert {name: list(sinks) for name, sinks in _told().items()} == {name: list(SINKS) for name in FEATURES}


def _options(lake: Lake, sink: str, feature: Feature) -> dict[str, Any]:
    schema = ", ".join(filter(None, ["k STRING", "n BIGINT", feature.of_records]))
    described = {**SINKS[sink], "path": str(lake.path("target"))}
    if sink == "aggregate" and feature.of_records:
        column = feature.of_records.split()[0]
        described["aggregates"] = {**described["aggregates"], column: f"last({column}, n)"}
    return {**lake.options(schema=schema, name="orders", epoch=TWO_EPOCHS), "sinks": [described]}


def _send(lake: Lake, feature: Feature) -> None:
    more = {feature.of_records.split()[0]: feature.value} if feature.of_records else {}
    lake.topic.send(*((k, {"k": k, "n": n, **more}) for k, n in RECORDS), partition=0)


def _make(lake: Lake, name: str, sink: str, options: dict[str, Any]) -> None:
    """As a person does: the CREATE TABLE that a dry run shows, and more to it."""
    assert lake.spark is not None
    feature, own = FEATURES[name], (sink, FEATURES[name].of_records)
    if own not in _CREATED:
        if name == "VARIANT" and sink == "history":
            untracked = {"track_history_except_column_list": ["doc"]}
            options = {**options, "sinks": [{**options["sinks"][0], **untracked}]}
        with outputs(parse(options), lake.spark, no_records(lake.spark), "") as (output,):
            _CREATED[own] = output.made_by(plain=True)
    columns = re.sub(r"(?s)^CREATE TABLE IF NOT EXISTS \S+ \((.*?)\)\s*USING delta.*", r"\1", _CREATED[own]).strip()
    value = _value(sink)
    if name == "type widening":
        columns, narrowed = re.subn(f"(?i)^(.*?`{value}`) bigint", r"\1 INT", columns, flags=re.DOTALL)
        assert narrowed
    more = feature.column.replace("{value}", value)
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in feature.properties.items())
    lake.sql(
        f"CREATE TABLE {{t}} ({', '.join(filter(None, [columns, more]))}) USING delta {feature.clause}"
        + (f" TBLPROPERTIES ({properties})" if properties else ""),
        "target",
    )
    for statement in feature.after:
        lake.sql(statement.replace("{value}", value), "target")


def _outcome(lake: Lake, name: str, sink: str, options: dict[str, Any]) -> str:
    before = lake.version("target")
    readable = _read_elsewhere(lake, sink) is not None
    try:
        assert Pipeline.from_options(options).run().epochs == 2
    except LakelockError as error:
        _is_said_first(name, options, error)
        assert lake.version("target") == before
        assert not (lake.path("target") / "_lakelock").exists()
        return REFUSED
    _has_all(lake, name, sink, options, "on read" in sink)
    if "on read" in sink:
        assert Pipeline.from_options(options).fold() is not None
        _has_all(lake, name, sink, options)
    elsewhere = _read_elsewhere(lake, sink)
    if elsewhere is None:
        assert not readable, "of the connector's doing"
        return NOT_ELSEWHERE
    assert elsewhere == _expected(sink)
    return WORKS


def _is_said_first(name: str, options: dict[str, Any], refused: LakelockError) -> None:
    """`check` says the same as the run: what is in the way, by its name, and what to do."""
    with pytest.raises(type(refused)) as caught:
        Pipeline.from_options(options).check()
    assert (caught.value.message, caught.value.hint) == (refused.message, refused.hint)
    assert any(word in refused.message for word in [*FEATURES[name].properties, name])
    assert "ALTER TABLE" in refused.hint or "track_history_except_column_list" in refused.hint


def _has_all(lake: Lake, name: str, sink: str, options: dict[str, Any], unfolded: bool = False) -> None:
    assert lake.spark is not None
    rows = read_of(parse(options), lake.spark)
    holds = FEATURES[name].holds.replace("{value}", _value(sink))
    found = rows.selectExpr("k", f"{_value(sink)} AS value", f"({holds}) AS holds").collect()
    assert sorted((row["k"], row["value"]) for row in found) == _expected(sink)
    assert {row["holds"] for row in found} == ({True} if FEATURES[name].at_once or not unfolded else {True, None})


def _expected(sink: str) -> list[tuple[Any, ...]]:
    if sink == "aggregate":
        return sorted((k, sum(n for key, n in RECORDS if key == k)) for k in dict(RECORDS))
    return sorted(dict(RECORDS).items() if sink.startswith("upsert") else RECORDS)


def _value(sink: str) -> str:
    return "total" if sink == "aggregate" else "n"


def _read_elsewhere(lake: Lake, sink: str) -> list[tuple[Any, ...]] | None:
    """By delta-rs. None: it doesn't read tables with the feature."""
    try:
        return sorted(query(lake.path("target"), f"SELECT k, {_value(sink)} FROM t"))
    except Exception as error:
        print(type(error), str(error)[:300])
        return None


def _told() -> dict[str, dict[str, str]]:
    """The page's table: feature -> sink -> what becomes of it."""
    table = PAGE.read_text(encoding="utf-8").partition("| feature |")[1:]
    lines = "".join(table).partition("\n\n")[0].splitlines()
    heading, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}
