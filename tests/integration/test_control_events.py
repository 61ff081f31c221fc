"""Debezium's control events in a table's topic: heartbeats, transactions, changes of schemas, messages in the log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from avro_bytes import framed
from conftest import Lake, Topic
from registry import registry_server

from connector.audit.verdict import FAULTS
from connector.decode import control_events

SOURCE = {"version": "3.3", "connector": "postgresql", "name": "shop", "ts_ms": 1, "lsn": 5}
CONTROL: list[dict[str, Any]] = [
    {"ts_ms": 1764066600000},
    {"status": "BEGIN", "id": "571:53195832", "event_count": None, "data_collections": None, "ts_ms": 1},
    {
        "status": "END", "id": "571:53195832", "event_count": 1, "ts_ms": 2,
        "data_collections": [{"data_collection": "public.orders", "event_count": 1}],
    },
    {
        "source": SOURCE, "ts_ms": 1, "databaseName": "shop", "schemaName": None, "ddl": "ALTER TABLE orders ADD x INT",
        "tableChanges": [{"type": "ALTER", "id": '"shop"."orders"', "table": {"columns": []}}],
    },
    {"op": "m", "ts_ms": 1, "source": SOURCE, "message": {"prefix": "audit", "content": "aGk="}},
]  # fmt: skip
ALIKE: list[dict[str, Any]] = [
    {"ts_ms": 1, "n": 1},
    {"id": "1", "status": "END"},
    {"id": "1", "status": "END", "event_count": 1, "data_collections": None, "more": 1},
    {"source": SOURCE, "ts_ms": 1, "databaseName": "shop"},
    {"op": "x", "ts_ms": 1},
    {"op": None, "ts_ms": 1},
    {"payload": {"ts_ms": 1}, "more": 1},
    {"payload": None},
    {},
]
"""Nothing says that these aren't rows. The reader of an event that has lost its op must not pass over it."""
CHANGES: list[dict[str, Any]] = [
    {"op": "c", "before": None, "after": {"id": 1, "name": "a"}, "source": SOURCE, "ts_ms": 1},
    {"op": "u", "before": None, "after": {"id": 1, "name": "b"}, "source": SOURCE, "ts_ms": 1},
]


def within(event: dict[str, Any]) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": []}, "payload": event}


def letters(lake: Lake, name: str = "letters") -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path(name))}}


@pytest.mark.parametrize("kind", ["append", pytest.param("upsert", marks=pytest.mark.breadth)])
def test_they_are_no_rows_and_no_bad_records(kind: str, lake: Lake, topic: Topic) -> None:
    """Whatever their key is. What only looks like one is a bad record."""
    value, key = (
        {"format": "debezium", "schema": "id INT, name STRING"},
        {"format": "json", "schema": "id INT NOT NULL"},
    )
    changes: dict[str, Any] = {"value": value, "key": key, **({"sink": {"key": "id"}} if kind == "upsert" else {})}
    events = [('{"serverName":"shop"}', event) for each in CONTROL for event in (each, within(each))]
    topic.send(('{"id":1}', CHANGES[0]), *events, ('{"id":1}', CHANGES[1]), partition=0)
    lake.pipeline(kind, **changes).run()
    found = verify(lake, kind, **changes)
    assert found.ok, str(found)
    assert [row[0] for row in lake.sql("SELECT name FROM {t} ORDER BY name", kind)] == ["a", "b"][kind == "upsert" :]

    topic.send(*(('{"id":1}', event) for event in ALIKE), *events, partition=0)
    lake.pipeline(kind, **changes, **letters(lake)).run()
    offsets = query(lake.path("letters"), "SELECT _offset - min(_offset) OVER (), reason FROM t ORDER BY 1")
    assert offsets == [(number, "value") for number in range(len(ALIKE))]
    found = verify(lake, kind, **changes, **letters(lake))
    assert counts(found).keys().isdisjoint(FAULTS), str(found)
    assert counts(found)["letters"] == len(ALIKE)


@pytest.mark.breadth
def test_an_earlier_versions_letters_of_them_are_closed_by_a_retry(lake: Lake, topic: Topic) -> None:
    """With a header before them. Until then `verify` takes such a letter for what it is."""
    value = {"format": "debezium", "schema": "id INT, name STRING", "wire_format": "confluent"}
    given: dict[str, Any] = {"value": value, **letters(lake)}
    topic.send(*((None, b"\0\0\0\0\7" + json.dumps(event).encode()) for event in (*CHANGES, *CONTROL)), partition=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_events, "is_one", lambda *_: "false")
        lake.pipeline(**given).run()
    assert query(lake.path("letters"), "SELECT count(*) FROM t") == [(len(CONTROL),)]
    assert counts(verify(lake, **given)).keys().isdisjoint(FAULTS)
    lake.pipeline(**given).retry_dead_letters()
    assert [row[0] for row in lake.sql("SELECT name FROM {t} ORDER BY name")] == ["a", "b"]
    found = verify(lake, **given)
    assert found.ok, str(found)
    assert "letters" not in counts(found)


@pytest.mark.breadth
def test_in_avro_the_name_of_the_schema_tells(lake: Lake, topic: Topic) -> None:
    row = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
    }
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    event = {
        "type": "record", "name": "Envelope", "namespace": "shop.public.orders",
        "fields": [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]},
                   {"name": "source", "type": source}, {"name": "op", "type": "string"},
                   {"name": "ts_ms", "type": ["null", "long"]}],
    }  # fmt: skip
    at = [{"name": "ts_ms", "type": "long"}]
    heartbeat = {"type": "record", "name": "Heartbeat", "namespace": "io.debezium.connector.common", "fields": at}
    another = {**heartbeat, "namespace": "shop"}
    with registry_server() as registry:
        registry.register(f"{topic.name}-value", 3, event)
        registry.register("io.debezium.connector.common.Heartbeat", 4, heartbeat)
        registry.register("shop.Heartbeat", 5, another)
        beats = [framed(4, heartbeat, {"ts_ms": 1}), framed(5, another, {"ts_ms": 1})]
        topic.send(
            *((None, framed(3, event, change)) for change in CHANGES), *((None, beat) for beat in beats), partition=0
        )
        given: dict[str, Any] = {"value": {"format": "debezium", "registry": {"url": registry.url}}, **letters(lake)}
        lake.pipeline(**given).run()
        assert [row[0] for row in lake.sql("SELECT name FROM {t} ORDER BY name")] == ["a", "b"]
        assert query(lake.path("letters"), "SELECT _offset FROM t") == [(3,)]
        found = verify(lake, **given)
        assert counts(found).keys().isdisjoint(FAULTS), str(found)
