"""Several flows into one table: topics of different formats, one order of updates and deletes, one position."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from another_engine import query
from audits import counts
from avro_bytes import encoded, field, framed, record
from conftest import Lake, Topic, wait_until
from registry import RegistryServer, registry_server
from typer.testing import CliRunner

from connector import Pipeline
from connector.audit import audit
from connector.cli.app import app
from connector.config import parse
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.operations.dead_letters import Retried
from sinks.errors import BadRecord, ConfigurationError, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD = record(
    field("order_id", "long"),
    field("status", ["null", "string"]),
    field("changed", {"type": "long", "logicalType": "timestamp-micros"}),
    field("clerk", ["null", "string"]),
)
RENAMED = [{"rename": {"order_id": "id", "changed": "updated_at"}}]
LIVE = "id BIGINT, status STRING, updated_at TIMESTAMP, op STRING, cents INT"


@dataclass
class Shop:
    """Orders: a backfill topic in Avro, a live one in JSON, and one table."""

    lake: Lake
    live: Topic
    backfill: Topic

    def __post_init__(self) -> None:
        (self.lake.folder / "old.avsc").write_text(json.dumps(OLD))

    def options(self, flow: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        late = "coalesce(updated_at, _timestamp)"
        sink = {
            "type": "delta_upsert", "path": str(self.lake.path("orders")), "key": "id", "apply_as_deletes": "op = 'D'",
            "sequence_by": f"struct(IF(_topic = '{self.live.name}', 1, 0), {late})", "except_column_list": ["op"],
            **changes.pop("sink", {}),
        }  # fmt: skip
        return {
            "name": "orders",
            "source": {
                "topics": [self.backfill.name, self.live.name],
                "kafka": {"bootstrap.servers": self.live.broker.bootstrap},
            },
            "value": {"format": "json", "schema": LIVE},
            "flows": [
                {
                    "topics": [self.backfill.name],
                    "value": {"format": "avro", "schema_file": str(self.lake.folder / "old.avsc")},
                    "steps": RENAMED,
                    **(flow or {}),
                }
            ],
            "sinks": [sink],
            **changes,
        }

    def pipeline(self, **changes: Any) -> Pipeline:
        return Pipeline.from_options(self.options(**changes))

    def file(self, **changes: Any) -> Path:
        file = self.lake.folder / "orders.yaml"
        file.write_text(yaml.safe_dump(self.options(**{"spark": SHORT_LIVED, **changes})))
        return file

    def rows(self) -> list[tuple[Any, ...]]:
        return query(self.lake.path("orders"), "SELECT id, status, clerk, cents FROM t ORDER BY id")

    def verified(self, **changes: Any) -> Any:
        return audit(parse(self.options(**changes)))


@pytest.fixture
def shop(lake: Lake, topic: Topic) -> Iterator[Shop]:
    name = f"{topic.name}-old"
    topic.broker.create_topic(name, 1)
    yield Shop(lake, topic, Topic(topic.broker, name))
    topic.broker.delete_topic(name)


def at(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=timezone.utc)


def old(number: int, status: str | None, day: int = 1, clerk: str | None = "Ann") -> tuple[str, bytes]:
    value = {"order_id": number, "status": status, "changed": at(day), "clerk": clerk}
    return f'{{"order_id": {number}}}', encoded(OLD, value)


def live(number: object, status: str | None, day: int, op: str = "U", cents: int = 5) -> tuple[str, dict[str, Any]]:
    found = {"id": number, "status": status, "updated_at": f"2026-01-{day:02}T00:00:00Z", "op": op, "cents": cents}
    return f'{{"id": {number}}}', found


def invoked(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.breadth
def test_a_backfill_in_avro_and_a_live_topic_in_json_make_one_table(shop: Shop) -> None:
    """Deletes of the one hold for late updates of the other; each flow's dead letters are its own; a kill in between
    changes nothing."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(shop.lake.path("letters"))}}
    strict = {"flow": {"require": "order_id > 0"}, **letters}
    shop.backfill.send(*(old(number, "old", 9) for number in range(1, 7)), old(-1, "refused"), ("{}", b"\x01"))
    shop.live.send(live(1, "paid", 2), live(2, None, 2, "D"), live("4x", "bad", 2), ('{"id": 5}', None))
    shop.live.send(live(3, "new", 3), live("8", "text", 4), live(9, "alone", 4))

    run = subprocess.Popen(
        [sys.executable, "-m", "connector", "run", str(shop.file(**strict, epoch={"max_records": 2}))],
        start_new_session=True,
    )
    log = shop.lake.path("orders") / "_delta_log"
    wait_until(lambda: len([*log.glob("*.json")]) > 2 or run.poll() is not None, 120, what="an epoch")
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert run.returncode == -signal.SIGKILL

    shop.pipeline(**strict).run()
    expected = [
        (1, "paid", None, 5), (3, "new", None, 5), (4, "old", "Ann", None), (6, "old", "Ann", None),
        (9, "alone", None, 5),
    ]  # fmt: skip
    assert shop.rows() == expected
    # Late records of the backfill: of an order that was deleted, of one that was changed, and of a new one.
    shop.backfill.send(old(2, "back", 30), old(5, "back", 30), old(1, "back", 30), old(7, "late", 30, None))
    shop.pipeline(**strict).run()
    expected.insert(-1, (7, "late", None, None))
    assert shop.rows() == expected
    found = shop.verified(**strict)
    assert found.ok, found
    assert {name: count for name, count in counts(found).items() if name.startswith("letters")} == {"letters": 4}
    held = query(shop.lake.path("letters"), "SELECT _topic, reason FROM t WHERE _retried_epoch IS NULL")
    mine, theirs = shop.live.name, shop.backfill.name
    assert sorted(held) == sorted([(mine, "value"), (mine, "value"), (theirs, "rule"), (theirs, "value")])

    # The corrected file: each letter is decoded as its own flow says now.
    wide = {**letters, "value": {"format": "json", "schema": LIVE, "mode": "permissive"}}
    epoch = _epoch(shop) + 1
    assert shop.pipeline(**wide).retry_dead_letters() == Retried(through=2, still_bad=2, epoch=epoch)
    expected = [(-1, "refused", "Ann", None), *expected[:-1], (8, "text", None, 5), expected[-1]]
    assert shop.rows() == expected
    found = shop.verified(**wide)
    assert found.ok, found

    shop.lake.sql("UPDATE {t} SET clerk = 'Bob' WHERE id = 4", "orders")
    shop.lake.sql("UPDATE {t} SET cents = 6 WHERE id = 3", "orders")
    found = shop.verified(**wide)
    assert not found.ok
    assert counts(found)["altered"] == 2


def _epoch(shop: Shop) -> int:
    return max(commit["epoch"] for commit in shop.lake.metadata("orders"))


@pytest.mark.breadth
def test_the_commands_work_on_a_file_with_flows(shop: Shop) -> None:
    shop.backfill.send(*(old(number, "old") for number in range(3)))
    shop.live.send(live(1, "paid", 2), live(7, "new", 2))
    file = shop.file(spark={})
    said = invoked("check", file)
    assert f"2 of {shop.live.name}, 3 of {shop.backfill.name}" in said
    assert not shop.lake.path("orders").exists()
    said = invoked("preview", file)
    assert "paid" in said
    assert "Ann" in said
    invoked("run", file, "--dry-run")
    assert not shop.lake.path("orders").exists()
    invoked("run", file)
    assert [row[0] for row in shop.rows()] == [0, 1, 2, 7]
    assert "orders" in invoked("status", file)
    invoked("verify", file)
    replayed = shop.lake.path("replayed")
    invoked("replay", file, "--into", replayed)
    assert query(replayed, "SELECT id, status, clerk, cents FROM t ORDER BY id") == shop.rows()
    shop.backfill.send(old(9, "more"))
    invoked("run", file)
    invoked("rewind", file, "--to-epoch", 1, "--yes")
    assert [row[0] for row in shop.rows()] == [0, 1, 2, 7]
    invoked("run", file)
    assert [row[0] for row in shop.rows()] == [0, 1, 2, 7, 9]
    invoked("verify", file)


def test_flows_that_do_not_fit_together_are_refused_before_anything_is_written(shop: Shop) -> None:
    shop.backfill.send(old(1, "old"))
    events = {"format": "debezium", "schema": "id BIGINT, updated_at TIMESTAMP, op STRING"}
    for value, flow, says in (
        (
            {"schema": "id INT, updated_at TIMESTAMP, op STRING"}, {},
            "column id is INT in the top of the file, and BIGINT in flows[0]",
        ),
        ({"schema": "ID BIGINT, op STRING"}, {}, "ID of the top of the file is written id in flows[0]"),
        ({}, {"value": {"format": "json", "schema": "order_id BIGINT, changed NONE"}}, "flows[0].value.schema"),
        ({}, {"steps": [{"rename": {"nothing": "id"}}]}, "flows[0].steps[0]"),
        ({}, {"require": "nothing > 0"}, "flows[0].require"),
        (events, {"value": events, "steps": [{"drop": "_op"}]}, "flows[0].steps[0].drop: _op is a column of"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError) as caught:
            shop.pipeline(value={"format": "json", "schema": LIVE, **value}, flow=flow).run()
        assert says in str(caught.value)
        assert not shop.lake.path("orders").exists()
    # A record that doesn't fit stops the run, and is named by its own flow's second look.
    shop.live.send(live(1, "paid", 2), live(2, "x", 2, cents="many"))  # type: ignore[arg-type]
    with pytest.raises(BadRecord, match="cents"):
        shop.pipeline().run()
    # A declared field that no record of its flow has is told, though records of the other have it.
    with pytest.raises(SchemaMismatch, match="clerk"):
        shop.pipeline(value={"format": "json", "schema": f"{LIVE}, clerk STRING"}).run()


@pytest.mark.breadth
def test_flows_of_a_registry_go_into_several_tables(shop: Shop, lake: Lake) -> None:
    """Each flow asks for its own schemas, and several tables get the same rows."""
    first = record(field("id", "long"), field("status", "string"))
    then = record(field("id", "long"), field("status", "string"), field("clerk", "string", default="nobody"))
    with registry_server() as server:
        _subjects(server, shop, first, then)
        flow = {"topics": [shop.backfill.name], "value": {"format": "avro", "registry": {"url": server.url}}}
        sinks = [
            {"type": "delta_append", "path": str(lake.path("all"))},
            {"type": "delta_history", "path": str(lake.path("orders")), "key": "id", "sequence_by": "_timestamp"},
        ]
        options = shop.options(
            flows=[flow], sinks=sinks, coordinator={"path": str(lake.path("log"))},
            value={"format": "json", "schema": "id BIGINT, status STRING, cents INT"},
        )  # fmt: skip
        shop.backfill.send(
            ("1", framed(3, first, {"id": 1, "status": "old"})),
            ("2", framed(4, then, {"id": 2, "status": "old", "clerk": "Bob"})),
        )
        shop.live.send(("1", {"id": 1, "status": "new", "cents": 5}))
        Pipeline.from_options(options).run()
        every = [(1, "new", None, 5), (1, "old", "nobody", None), (2, "old", "Bob", None)]
        rows = "SELECT id, status, clerk, cents FROM t ORDER BY id, status"
        assert query(lake.path("all"), rows) == every
        assert query(lake.path("orders"), rows) == every
        for audited in Pipeline.from_options(options).verify().tables:
            assert audited.ok, audited


def _subjects(server: RegistryServer, shop: Shop, first: object, then: object) -> None:
    server.register(f"{shop.backfill.name}-value", 3, first)
    server.register(f"{shop.backfill.name}-value", 4, then)


@pytest.mark.breadth
def test_the_events_of_two_databases_make_one_table(shop: Shop) -> None:
    """Each database's deletes count, and the tombstones after them say nothing."""

    def event(op: str, number: int, name: str, at: int, column: str = "id") -> tuple[str, dict[str, Any]]:
        row = {column: number, "name": name}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return f'{{"{column}": {number}}}', {"op": op, "ts_ms": at, "source": {"connector": "mysql"}, **images}

    shop.live.send(event("c", 1, "a", 10), event("d", 2, "b", 40), ('{"id": 2}', None), event("c", 3, "c", 10))
    shop.backfill.send(
        event("c", 2, "late", 30, "number"), event("d", 3, "c", 20, "number"), ('{"number": 3}', None),
        event("u", 1, "A", 20, "number"), ('{"number": 1}', None), event("r", 4, "d", 1, "number"),
    )  # fmt: skip
    flow = {
        "value": {"format": "debezium", "schema": "number BIGINT, name STRING"},
        "steps": [{"rename": {"number": "id"}}],
    }
    sink = {"type": "delta_upsert", "path": str(shop.lake.path("orders")), "key": "id", "sequence_by": "_ts_ms"}
    value = {"format": "debezium", "schema": "id BIGINT, name STRING"}
    changes = {"flow": flow, "sinks": [sink], "value": value}
    shop.pipeline(**changes).run()
    assert query(shop.lake.path("orders"), "SELECT id, name FROM t ORDER BY id") == [(1, "A"), (4, "d")]
    assert shop.verified(**changes).ok
