"""What a table remembers of the options that made its rows, as the auditor reads it: by code of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from connector.audit import _as_then
from connector.audit.remembered import ZONE, no_longer_tracked, other_options, property_of, remembered
from connector.config import PipelineConfig, parse
from connector.derive.shape import shape

UPSERT: dict[str, Any] = {"type": "delta_upsert", "path": "/tmp/t", "key": ["id", "no"], "sequence_by": "n + 1"}
BITEMPORAL = {
    **UPSERT, "type": "delta_history", "stored_as_scd_type": "bitemporal", "system_sequence_by": "at",
}  # fmt: skip
HISTORY = {**UPSERT, "type": "delta_history", "track_history_except_column_list": ["at"]}
GROUPS: dict[str, Any] = {
    "type": "delta_aggregate", "path": "/tmp/t", "group_by": ["id"],
    "aggregates": {"all": "count(*)", "most": "max(n)"}, "window": {"time": "at", "size": "1 hour"},
}  # fmt: skip


def pipeline(sink: dict[str, Any]) -> PipelineConfig:
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}}
    value = {"format": "json", "schema": "id BIGINT, no BIGINT, n BIGINT, at TIMESTAMP"}
    return parse({"name": "p", "source": source, "value": value, "sinks": [sink]})


def written(sink: dict[str, Any], zone: str = "UTC") -> tuple[str, str]:
    """Name and text of the property that a run keeps."""
    config = pipeline(sink)
    rows = StructType(
        [*(StructField(name, LongType()) for name in ("id", "no", "n")), StructField("at", TimestampType())]
    )
    ((name, text),) = shape(config, rows, rows.add("all", StringType()), zone=zone).properties.items()
    return name, text


@pytest.mark.parametrize("sink", [UPSERT, HISTORY, BITEMPORAL, GROUPS], ids=lambda sink: sink["type"])
def test_what_a_run_keeps_is_read_and_is_no_other_option(sink: dict[str, Any]) -> None:
    name, text = written(sink, "Europe/Berlin")
    assert name == property_of("p")
    kept = remembered(text)
    assert kept[ZONE] == "Europe/Berlin"
    assert other_options(kept, pipeline(sink)) == []
    assert len(kept) > 1


@pytest.mark.parametrize(
    ("sink", "change", "told"),
    [
        (UPSERT, {"key": ["id"]}, "another sinks[0].key, id, no: the file says id,"),
        (UPSERT, {"sequence_by": "n"}, "another sinks[0].sequence_by, n + 1: the file says n,"),
        (HISTORY, {"track_history_except_column_list": ["n"]}, "column_list, at: the file says n,"),
        (BITEMPORAL, {"system_sequence_by": "n"}, "another sinks[0].system_sequence_by, at: the file says n,"),
        (GROUPS, {"aggregates": {"all": "count(*)"}}, "another sinks[0].aggregates.most, max(n): the file says none,"),
        (GROUPS, {"window": {"time": "at", "gap": "1 hour"}}, "another sinks[0].window.size, 1 hour: the file says "),
    ],
)
def test_another_option_is_told(sink: dict[str, Any], change: dict[str, Any], told: str) -> None:
    found = other_options(remembered(written(sink)[1]), pipeline({**sink, **change}))
    assert told in found[0]


@pytest.mark.parametrize("sink", [UPSERT, HISTORY, BITEMPORAL, GROUPS], ids=lambda sink: sink["type"])
def test_another_kind_of_table_is_told(sink: dict[str, Any]) -> None:
    """A table of every record isn't one of the latest per key: its rows are judged by the wrong rule."""
    append = {"type": "delta_append", "path": "/tmp/t"}
    told = f"The table's rows were made with another sinks[0].type, {sink['type']}: the file says delta_append,"
    assert told in other_options(remembered(written(sink)[1]), pipeline(append))[0]
    assert other_options(remembered(written(append)[1]), pipeline(append)) == []


def test_a_column_by_which_versions_were_told_apart_is_named_once_the_file_leaves_it_out() -> None:
    kept = remembered(written(HISTORY)[1])
    (told,) = no_longer_tracked(kept, ["id", "no", "at", "all"])
    assert told.startswith("The table's versions were told apart by n too, which the file leaves out:")
    assert no_longer_tracked(kept, ["ID", "NO", "N", "at", "all", "more"]) == []
    assert no_longer_tracked(remembered(written(UPSERT)[1]), []) == no_longer_tracked({}, []) == []


def test_the_same_option_in_other_words_is_not() -> None:
    kept = {"key": ["NO", "id"], "sequence_by": "`N`+1", "of_a_later_release": "x"}
    assert other_options(kept, pipeline(UPSERT)) == []
    assert remembered(None) == remembered("no hex") == remembered("5b5d") == {}


def test_times_are_read_in_the_zone_of_the_tables_rows() -> None:
    settings = {ZONE: "Europe/Berlin"}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=settings.get, set=settings.__setitem__))
    table: Any = SimpleNamespace(property=dict([written(UPSERT)]).get)
    (note,) = _as_then(pipeline(UPSERT), spark, table)
    assert note == (
        "Times without a time zone were read in UTC, as when the table's rows were made, not in Europe/Berlin."
    )
    assert settings == {ZONE: "UTC"}
    for same in ("UTC", "Etc/UTC", "GMT", "z", "+00:00"):
        settings[ZONE] = same
        assert _as_then(pipeline(UPSERT), spark, table) == []
