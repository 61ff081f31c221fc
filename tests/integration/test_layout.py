"""Tables that a run makes as their sinks say: partitions or clusters, properties, comments."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest
from another_engine import query
from avro_bytes import field, record
from golden_files import assert_told
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from sinks.delta.detail import Detail
from sinks.delta.table import DeltaTable
from sinks.errors import BadRecord, ConfigurationError
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Lake

breadth = pytest.mark.breadth
SCHEMA = "k STRING COMMENT 'of the \"order\"', day DATE, n BIGINT"
COMMENT = "orders of today's \\ customers, from {5} $ or €"
FEED = "delta.enableChangeDataFeed"
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "upsert": {"type": "delta_upsert", "key": "k"},
    "history": {"type": "delta_history", "key": "k"},
    "sums": {"type": "delta_aggregate", "group_by": ["day", "k"], "aggregates": {"total": "sum(n)"}},
}
FIRST, SECOND = "2026-11-01", "2026-11-02"


def laid_out(lake: Lake, kind: str, **changes: Any) -> dict[str, Any]:
    """Of a pipeline with one table."""
    sink = {**SINKS[kind], "path": str(lake.path(kind)), **changes.pop("sink", {})}
    return {**lake.options(schema=SCHEMA, **changes), "name": kind, "sinks": [sink]}


def send(lake: Lake, *rows: tuple[str, str, int]) -> None:
    """(key, day, number)."""
    lake.topic.send(*((key, {"k": key, "day": day, "n": number}) for key, day, number in rows), partition=0)


@pytest.mark.breadth
@pytest.mark.parametrize("parted", [("append", "upsert"), ("history", "sums")])
def test_all_kinds_of_tables_are_made_so_and_keep_exact_rows(lake: Lake, parted: Sequence[str]) -> None:
    layout = {"properties": {FEED: True, "team": "sales"}, "comment": COMMENT, "comments": {"day": COMMENT}}
    options = laid_out(lake, "append")
    options["sinks"] = [
        {**sink, "path": str(lake.path(kind)), **layout, "partition_by" if kind in parted else "cluster_by": "day"}
        for kind, sink in SINKS.items()
    ]
    options["coordinator"] = {"path": str(lake.path("log"))}
    send(lake, ("a", FIRST, 1), ("b", FIRST, 2), ("a", SECOND, 3), ("c", SECOND, 4))
    Pipeline.from_options(options).run()
    assert lake.spark is not None
    for kind in SINKS:
        detail = DeltaTable(lake.spark, path=str(lake.path(kind))).detail()
        assert detail is not None
        assert (detail.partitions, detail.clusters) == ((["day"], []) if kind in parted else ([], ["day"]))
        assert {name: detail.properties.get(name) for name in (FEED, "team")} == {FEED: "true", "team": "sales"}
        assert detail.comment == COMMENT
        comments = {each.name: each.metadata.get("comment") for each in lake.frame(kind).schema}
        assert (comments["day"], comments["k"]) == (COMMENT, 'of the "order"')
    rows = "SELECT k, CAST(day AS VARCHAR), n FROM t"
    latest = [("a", SECOND, 3), ("b", FIRST, 2), ("c", SECOND, 4)]
    assert sorted(query(lake.path("append"), rows)) == [("a", FIRST, 1), *latest]
    assert sorted(query(lake.path("upsert"), rows)) == latest
    versions = f"{rows.removesuffix('FROM t')}, __END_AT IS NULL FROM t"
    assert sorted(query(lake.path("history"), versions)) == [("a", FIRST, 1, False), *((*row, True) for row in latest)]
    assert sorted(query(lake.path("sums"), rows.replace("n FROM", "total FROM"))) == [("a", FIRST, 1), *latest]


@pytest.mark.breadth
def test_check_shows_the_sql_then_the_differences_and_a_run_only_warns(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    send(lake, ("a", FIRST, 1))
    sink = {**SINKS["upsert"], "partition_by": "day", "properties": {FEED: True}, "comment": "orders"}
    checked = CliRunner().invoke(app, ["check", str(lake.file("upsert", schema=SCHEMA, sink=sink))])
    assert checked.exit_code == 0, checked.output
    shown = checked.stdout[checked.stdout.index("layout") : checked.stdout.index("position")]
    assert_told("check_a_layout", shown, folder=lake.folder)
    assert not lake.path("upsert").exists()

    Pipeline.from_options(laid_out(lake, "upsert", sink=sink)).run()
    send(lake, ("a", SECOND, 2))
    other = {"partition_by": (), "cluster_by": "k", "properties": {FEED: False}, "comment": "all orders"}
    changed = laid_out(lake, "upsert", sink={**sink, **other, "comments": {"k": "the key"}})
    with caplog.at_level(logging.WARNING):
        Pipeline.from_options(changed).run()
    assert [record.getMessage() for record in caplog.records if record.name == "lakelock.delta"] == [
        f"{str(lake.path('upsert'))!r} was made with another layout, and stays as it is: cluster_by: k, and the table "
        f"isn't clustered; properties: {FEED} = false, and the table has true"
    ]
    assert lake.sql("SELECT k, CAST(day AS STRING), n FROM {t}", "upsert") == [("a", SECOND, 2)]
    (found,) = Pipeline.from_options(changed).check().sinks
    assert found.made_by == ""
    assert found.differs == [
        "cluster_by: k, and the table isn't clustered",
        f"properties: {FEED} = false, and the table has true",
        "comment: the table's is 'orders'",
        "comments: the table has other ones of k",
    ]
    assert len([commit for commit in lake.commits("upsert") if "metaData" in commit]) == 1


@pytest.mark.breadth
def test_what_a_partition_can_not_hold_is_a_bad_record_before_there_is_a_table(lake: Lake) -> None:
    options = laid_out(lake, "append", sink={"partition_by": "k"})
    send(lake, ("a", FIRST, 1), ("", FIRST, 2))
    (fault,) = Pipeline.from_options(options).check().sample.faults
    assert (fault.offset, fault.detail.split(",")[0]) == (1, "its k is the empty text")
    assert not lake.path().exists()
    with pytest.raises(BadRecord, match="offset 1 isn't right: its k is the empty text"):
        Pipeline.from_options(options).run()


def made(lake: Lake, path: Path) -> Detail:
    assert lake.spark is not None
    detail = DeltaTable(lake.spark, path=str(path)).detail()
    assert detail is not None
    return detail


@pytest.mark.breadth
def test_the_tables_of_a_route_and_of_dead_letters_get_it_too(lake: Lake) -> None:
    route = {
        "by": "k",
        "sink": {"type": "delta_append", "path": str(lake.path("{k}")), "partition_by": "k"},
        "overrides": {"b": {"sink": {"partition_by": [], "cluster_by": "day"}}},
    }
    letters = {"path": str(lake.path("letters")), "properties": {FEED: True}}
    options = {
        **laid_out(lake, "append"), "name": "routed", "route": route, "coordinator": {"path": str(lake.path("log"))},
        "require": "n > 0", "on_bad_record": "dead_letter", "dead_letters": letters,
    }  # fmt: skip
    del options["sinks"]
    checked = Pipeline.from_options(options).check()
    assert "PARTITIONED BY (`k`)" in checked.sinks[0].made_by
    send(lake, ("a", FIRST, 1), ("b", FIRST, 2), ("c", FIRST, 0))
    Pipeline.from_options(options).run()

    of_a, of_b = made(lake, lake.path("a")), made(lake, lake.path("b"))
    assert (of_a.partitions, of_a.clusters) == (["k"], [])
    assert (of_b.partitions, of_b.clusters) == ([], ["day"])
    assert made(lake, lake.path("letters")).properties[FEED] == "true"


@breadth
def test_a_replay_and_a_table_that_is_made_again_get_it_and_the_change_log_does_not(lake: Lake) -> None:
    options = laid_out(lake, "upsert", sink={"cluster_by": ["day", "k"], "merge": "on_read"})
    send(lake, ("a", FIRST, 1))
    pipeline = Pipeline.from_options(options)
    pipeline.run()
    pipeline.replay(str(lake.path("anew")))
    shutil.rmtree(lake.path("upsert"))
    pipeline.run()
    assert made(lake, lake.path("upsert")).clusters == made(lake, lake.path("anew")).clusters == ["day", "k"]
    assert made(lake, lake.path("upsert") / "_lakelock" / "changes").clusters == []


def test_the_docs_of_an_avro_schema_are_comments_unless_a_transform_makes_the_columns(lake: Lake) -> None:
    schema = record(field("k", "string", doc="the customer's"), field("n", ["null", "int"]))
    (lake.folder / "order.avsc").write_text(json.dumps(schema))
    options = laid_out(lake, "upsert")
    options["value"] = {"format": "avro", "schema_file": str(lake.folder / "order.avsc")}
    (found,) = Pipeline.from_options(options).check().sinks
    assert "`k` string COMMENT 'the customer\\u0027s'" in found.made_by
    (found,) = Pipeline.from_options({**options, "transform": "SELECT * FROM records"}).check().sinks
    assert found.made_by == ""


@pytest.mark.spark4("an older Delta says it in other words")
def test_what_only_delta_knows_to_be_wrong_is_told_and_nothing_is_written(lake: Lake) -> None:
    send(lake, ("a", FIRST, 1))
    properties = {"delta.parquet.format.version": "nine"}
    with pytest.raises(ConfigurationError) as caught:
        Pipeline.from_options(laid_out(lake, "append", sink={"properties": properties})).run()
    assert_told("delta_refuses_a_layout", caught.value, folder=lake.folder)
    assert not (lake.path() / "_delta_log").exists()


def test_a_property_of_databricks_is_refused_elsewhere(lake: Lake) -> None:
    options = laid_out(lake, "append", sink={"properties": {"delta.targetFileSize": "32mb"}})
    with pytest.raises(ConfigurationError, match=r"delta\.targetFileSize = 32mb is for Databricks"):
        Pipeline.from_options(options).check()


def test_a_column_that_is_not_there_is_refused_before_a_run(lake: Lake) -> None:
    for act in ("check", "run"):
        with pytest.raises(ConfigurationError) as caught:
            getattr(Pipeline.from_options(laid_out(lake, "upsert", sink={"cluster_by": "date"})), act)()
        assert_told("a_cluster_column_that_is_not_there", caught.value)
    assert not lake.path("upsert").exists()


@pytest.mark.breadth
@pytest.mark.parametrize("how", ["partition_by", "cluster_by"])
@pytest.mark.parametrize("kind", ["upsert", "history", "sums"])
def test_a_merge_passes_over_files_that_no_key_is_in(lake: Lake, kind: str, how: str) -> None:
    """A file that is gone shows it: a MERGE that read the file would fail."""
    key = {} if kind == "sums" else {"key": ["day", "k"]}
    options = laid_out(lake, kind, sink={**key, how: "day"})
    for rows in ([("a", FIRST, 1)], [("a", SECOND, 2), ("b", SECOND, 3)]):
        send(lake, *rows)
        Pipeline.from_options(options).run()
    gone = [row[0] for row in lake.sql(f"SELECT DISTINCT _metadata.file_path FROM {{t}} WHERE day = '{FIRST}'", kind)]
    for file in gone:
        Path(unquote(urlparse(file).path)).unlink()
    send(lake, ("b", SECOND, 4), ("c", "2026-11-03", 5))
    if kind != "sums":
        lake.topic.send((f'{{"day": "{SECOND}", "k": "a"}}', None), partition=0)
    Pipeline.from_options(options).run()
    value, now = "total" if kind == "sums" else "n", " AND __END_AT IS NULL" if kind == "history" else ""
    found = lake.sql(f"SELECT k, {value} FROM {{t}} WHERE day > '{FIRST}'{now} ORDER BY 1", kind)
    assert found == ([("a", 2), ("b", 7), ("c", 5)] if kind == "sums" else [("b", 4), ("c", 5)])


@pytest.mark.breadth
def test_a_session_that_the_watermark_closes_is_found_in_whichever_file_it_is(lake: Lake) -> None:
    """Its group need not be among those of the epoch, nor between them."""
    sink = {"group_by": "k", "window": {"gap": "1 minute"}, "cluster_by": "k"}
    options = laid_out(lake, "sums", sink=sink)
    noon = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
    for key, minutes in (("a", 0), ("m", 10)):
        lake.topic.send((key, {"k": key, "day": FIRST, "n": 1}), partition=0, at=noon + timedelta(minutes=minutes))
        Pipeline.from_options(options).run()
    rows = lake.sql("SELECT k, total, window_closed FROM {t} ORDER BY k, window_start", "sums")
    assert rows == [("a", 1, True), ("m", 1, False)]


@pytest.mark.parametrize(
    "how", [{"cluster_by": "k"}, pytest.param({"merge": "on_read", "fold": {"epochs": 1}}, marks=pytest.mark.breadth)]
)
def test_a_key_that_is_not_utf8_is_found_though_the_statistics_lack_it(lake: Lake, how: dict[str, Any]) -> None:
    options = laid_out(lake, "upsert", sink=how, transform="SELECT CAST(value AS STRING) AS k FROM records")
    options["value"] = {"format": "bytes"}
    for values in ([b"\xff\x01", b"a"], [b"\xff\x01"]):
        lake.topic.send(*((None, value) for value in values), partition=0)
        Pipeline.from_options(options).run()
    assert lake.sql("SELECT hex(k) FROM {t} ORDER BY k", "upsert") == [("61",), ("FF01",)]


@pytest.mark.breadth
def test_a_time_in_an_hour_that_comes_twice_is_no_folder(lake: Lake) -> None:
    """Delta would read it back as the first of the two, and a key would never be found again."""
    assert lake.spark is not None
    sink = {"key": "at", "partition_by": "at"}
    options = {**laid_out(lake, "upsert", sink=sink), "value": {"format": "json", "schema": "at TIMESTAMP"}}
    first, second = "2026-11-01T05:30:00.123456Z", "2026-11-01T06:30:00.123456Z"
    with with_settings(lake.spark, {"spark.sql.session.timeZone": "America/New_York"}):
        lake.topic.send((None, {"at": first}), (None, {"at": "2026-03-08T07:30:00Z"}), partition=0)
        Pipeline.from_options(options).run()
        lake.topic.send((None, {"at": first}), (None, {"at": second}), partition=0)
        with pytest.raises(BadRecord, match=r"offset 3 .*its at is in an hour that the clocks show twice"):
            Pipeline.from_options(options).run()
    assert lake.sql("SELECT count(*) FROM {t}", "upsert") == [(2,)]


def test_without_a_key_column_in_the_layout_every_file_is_looked_into(lake: Lake) -> None:
    """A key that moves between partitions has its row in another one."""
    options = laid_out(lake, "upsert", sink={"partition_by": "day", "properties": {FEED: True}})
    send(lake, ("a", FIRST, 1), ("b", SECOND, 2))
    Pipeline.from_options(options).run()
    send(lake, ("a", SECOND, 3), ("b", FIRST, 4))
    Pipeline.from_options(options).run()
    found = query(lake.path("upsert"), "SELECT k, CAST(day AS VARCHAR), n FROM t")
    assert sorted(found) == [("a", SECOND, 3), ("b", FIRST, 4)]
    assert lake.spark is not None
    changes = lake.spark.read.option("readChangeFeed", "true").option("startingVersion", 0).format("delta")
    kinds = changes.load(str(lake.path("upsert"))).groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in kinds} == {"insert": 2, "update_preimage": 2, "update_postimage": 2}
