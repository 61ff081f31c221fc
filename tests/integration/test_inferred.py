"""``schema: inferred`` and ``key: kafka_key``: a file that fits topics whose columns nobody has written down."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from another_engine import query
from conftest import Lake

from connector import Pipeline
from connector.audit import audit
from connector.operations.read import read_of
from connector.protocol.steps import Event, Step
from sinks.errors import BadRecord, ConfigurationError, NoRecordYet, UnknownSchema


def pipeline(lake: Lake, kind: str = "append", *, sink: Any = None, **changes: Any) -> Pipeline:
    return lake.pipeline(kind, schema="inferred", sink=sink or {}, **changes)


@pytest.mark.breadth
def test_the_table_keeps_the_schema_of_the_first_records(lake: Lake) -> None:
    assert pipeline(lake).run().epochs == 0
    with pytest.raises(NoRecordYet, match="has no record yet that could show the schema"):
        pipeline(lake).check()
    assert not (lake.folder / "append").exists()
    lake.topic.send(("a", {"id": 1, "price": 2.5, "tags": ["x"]}), ("b", {"id": 2, "at": {"city": "Ulm"}}))
    assert pipeline(lake).run().rows == 2
    found = query(lake.folder / "append", "SELECT id, price, tags, at.city FROM t ORDER BY id")
    assert found == [(1, 2.5, ["x"], None), (2, None, None, "Ulm")]
    # Later records are read by the same schema, whatever they have.
    lake.topic.send(("c", {"id": 3, "more": True}))
    assert pipeline(lake).run().rows == 1
    assert audit(pipeline(lake).config).ok
    assert lake.spark is not None
    assert read_of(pipeline(lake).config, lake.spark).count() == 3
    lake.topic.send(("d", {"id": "four"}))
    with pytest.raises(BadRecord, match="field id: not a BIGINT, but 'four'"):
        pipeline(lake).run()
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "dead")}}
    pipeline(lake, **dead).run()
    assert query(lake.folder / "dead", "SELECT reason FROM t") == [("value",)]
    assert audit(pipeline(lake, **dead).config).ok


@pytest.mark.breadth
def test_a_replay_reads_by_the_schema_of_the_old_table(lake: Lake) -> None:
    lake.topic.send(("a", {"id": 1, "more": True}), ("b", {"id": 2}), partition=0)
    pipeline(lake).run()
    lake.topic.delete_before(0, 1)
    new = str(lake.folder / "new")
    assert pipeline(lake).replay(new).rows == 1
    assert query(lake.folder / "new", "SELECT id, more FROM t") == [(2, None)]
    lake.topic.send(("c", {"id": 3, "more": False}), partition=0)
    swapped = pipeline(lake, sink={"path": new})
    swapped.run()
    assert query(lake.folder / "new", "SELECT id, more FROM t ORDER BY id") == [(2, None), (3, False)]
    assert audit(swapped.config).ok


def test_the_end_of_a_topic_without_records_is_no_start(lake: Lake) -> None:
    """No table would keep where it was, and the first records would be left out."""
    with pytest.raises(ConfigurationError, match=r"source.start: latest: .* has no record") as caught:
        pipeline(lake, source={"start": "latest"}).run()
    assert "start: earliest" in caught.value.hint


@pytest.mark.breadth
def test_names_that_look_like_secrets_and_a_start_at_the_end(lake: Lake) -> None:
    """Spark hides properties with such names. Where only what comes is read, what is there shows the schema."""
    start = {"source": {"start": "latest"}}
    lake.topic.send(("a", {"password": "x", "avatar_url": "y", "n": 1}))
    assert pipeline(lake, **start).run().rows == 0
    lake.topic.send(("b", {"password": "z", "avatar_url": "w", "n": 2}))
    assert pipeline(lake, **start).run().rows == 1
    assert query(lake.folder / "append", "SELECT password, avatar_url, n FROM t") == [("z", "w", 2)]
    assert audit(pipeline(lake, **start).config).ok


@pytest.mark.breadth
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_new_columns_come_with_the_records(lake: Lake) -> None:
    lake.topic.send(("a", {"id": 1}))
    pipeline(lake, on_new_column="add").run()
    lake.topic.send(("a", {"id": 2, "city": "Ulm"}))
    pipeline(lake, on_new_column="add").run()
    lake.topic.send(("a", {"id": 3, "city": "Bonn"}))
    pipeline(lake, on_new_column="add").run()
    assert query(lake.folder / "append", "SELECT id, city FROM t ORDER BY 1") == [(1, None), (2, "Ulm"), (3, "Bonn")]


def test_a_table_that_was_there_has_to_say_its_schema(lake: Lake) -> None:
    lake.topic.send(("a", {"k": "a", "n": 1}))
    lake.pipeline().run()
    with pytest.raises(ConfigurationError, match="has no schema that was inferred for it"):
        pipeline(lake).run()


def test_records_without_a_field_show_no_schema(lake: Lake) -> None:
    lake.topic.send(("a", b"[1]"), ("b", b"text"))
    with pytest.raises(ConfigurationError, match=r"2 records of .* looked at, and none is a JSON object with a field"):
        pipeline(lake).run()


@pytest.mark.parametrize(
    ("key", "sink"),
    [
        (None, "delta_upsert"),
        pytest.param({"format": "json", "schema": "id INT, line STRING"}, "delta_upsert", marks=pytest.mark.breadth),
        pytest.param({"format": "json", "schema": "id INT, line STRING"}, "delta_history", marks=pytest.mark.breadth),
    ],
)
def test_kafkas_key_identifies_the_rows(lake: Lake, key: Any, sink: str) -> None:
    def of(number: int) -> str:
        return json.dumps({"id": number, "line": "a"}) if key else f"k{number}"

    options = {"key": key} if key else {}
    table = {"type": sink, "key": "kafka_key", "path": str(lake.folder / "keyed")}
    lake.topic.send((of(1), {"n": 1}), (of(2), {"n": 2}), (of(1), {"n": 3}), partition=0)
    pipeline(lake, sink=table, **options).run()
    lake.topic.send((of(2), None), (of(3), {"n": 4}), partition=0)
    pipeline(lake, sink=table, **options).run()
    current = "" if sink == "delta_upsert" else " WHERE __END_AT IS NULL"
    column = "_key.id" if key else "_key"
    found = query(lake.folder / "keyed", f"SELECT {column}, n FROM t{current} ORDER BY 1")
    assert found == ([(1, 3), (3, 4)] if key else [("k1", 3), ("k3", 4)])
    assert audit(pipeline(lake, sink=table, **options).config).ok


@pytest.mark.breadth
def test_a_run_that_inferred_another_schema_than_the_table_has_stops(lake: Lake) -> None:
    """Two first runs at once may see different records: one of them makes the table, and its schema counts."""
    lake.topic.send(("a", {"id": 1}), partition=0)
    first = pipeline(lake)
    with lake.pipeline("append", schema="inferred")._assembled() as assembly:
        lake.topic.send(("b", {"id": 2, "more": True}), partition=0)
        lake.topic.delete_before(0, 1)
        first.run()
        with pytest.raises(UnknownSchema, match="Another run has made the table"):
            assembly.make_ready()
    assert audit(pipeline(lake).config).ok


@pytest.mark.breadth
def test_a_run_with_an_interval_waits_for_the_first_record(lake: Lake) -> None:
    stop, ends = threading.Event(), []
    run = pipeline(lake, trigger={"interval": "1 second"})

    def ended(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.ranges:
            stop.set()

    thread = threading.Thread(target=lambda: ends.append(run.run(stop=stop, observers=[ended])))
    thread.start()
    thread.join(3)
    assert thread.is_alive()
    assert not (lake.folder / "append").exists()
    lake.topic.send(("a", {"id": 1}))
    thread.join(60)
    assert [each.rows for each in ends] == [1]
