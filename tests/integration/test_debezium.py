"""Change events reproduce the table that they come from."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from conftest import Lake, Topic
from kafka import KafkaProducer

from connector.audit.verdict import FAULTS
from sinks.errors import BadRecord, ConfigurationError

pytestmark = pytest.mark.compiled

ROW = "id INT, name STRING, amount DECIMAL(10,2)"
Message = tuple[dict[str, Any], dict[str, Any] | None]


class Database:
    """A table, and what Debezium's connector for PostgreSQL tells of its changes: key and value."""

    def __init__(self, seed: int) -> None:
        self.rows: dict[int, tuple[str, str]] = {}
        self._chance = random.Random(seed)
        self._lsn = 1000

    def changes(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            yield from self._change()

    def truncate(self) -> Message:
        self.rows.clear()
        return {}, self._event("t", None, None)

    def _change(self) -> Iterator[Message]:
        chance, known = self._chance, sorted(self.rows)
        kind = chance.choice(["insert", "update", "update", "delete", "move"]) if known else "insert"
        key = chance.choice(known) if known else 0
        row = (chance.choice("abc"), f"{chance.randrange(10**6) / 100:.2f}")
        if kind == "insert":
            key = chance.randrange(50)
            op, before = ("u", self._row(key)) if key in self.rows else ("c", None)
            yield self._written(key, row, op, before)
        elif kind == "update":
            yield self._written(key, row, "u", self._row(key))
        elif kind == "delete":
            yield from self._deleted(key)
        else:
            # An update of the key is a delete of the old one, and a new row.
            new = next(each for each in range(50, 10_000) if each not in self.rows)
            yield from self._deleted(key)
            yield self._written(new, row, "c", None)

    def _written(self, key: int, row: tuple[str, str], op: str, before: dict[str, Any] | None) -> Message:
        self.rows[key] = row
        return {"id": key}, self._event(op, before, self._row(key))

    def _deleted(self, key: int) -> Iterator[Message]:
        yield {"id": key}, self._event("d", self._row(key), None)
        yield {"id": key}, None
        del self.rows[key]

    def _row(self, key: int) -> dict[str, Any]:
        name, amount = self.rows[key]
        return {"id": key, "name": name, "amount": amount}

    def _event(self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
        self._lsn += self._chance.randrange(1, 10**9)
        source = {"version": "3", "connector": "postgresql", "snapshot": "false", "table": "orders", "lsn": self._lsn}
        return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 2, "transaction": None}


def send(
    topic: Topic, messages: list[Message], *, schemas: bool, partition: int | None = None, keys: bool = True
) -> None:
    """``schemas``: keys and values are within their schema, as Kafka Connect sends them by default. ``keys``: they can
    be read."""

    def text(part: dict[str, Any] | None) -> bytes | None:
        if part is None:
            return None
        return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": part} if schemas else part).encode()

    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for key, value in messages:
        at = key["id"] % 2 if partition is None else partition
        producer.send(topic.name, text(value), text(key) if keys else b"?", partition=at)
    producer.close()


def options(**changes: Any) -> dict[str, Any]:
    return {"value": {"format": "debezium", "schema": ROW}, "sink": {"key": "id"}, **changes}


def held(lake: Lake, kind: str = "upsert") -> dict[int, tuple[str, str]]:
    return {row[0]: (row[1], str(row[2])) for row in lake.sql("SELECT id, name, amount FROM {t}", kind)}


@pytest.mark.parametrize(
    "schemas", [pytest.param(False, id="bare", marks=pytest.mark.breadth), pytest.param(True, id="with schema")]
)
def test_inserts_updates_deletes_and_moves_of_keys_give_the_source_table(
    schemas: bool, lake: Lake, topic: Topic
) -> None:
    database = Database(seed=11)
    send(topic, list(database.changes(120)), schemas=schemas)
    lake.pipeline("upsert", **options(epoch={"max_records": 80})).run()
    assert held(lake) == database.rows
    assert [name for name in lake.frame("upsert").columns if not name.startswith("_")] == ["id", "name", "amount"]
    assert not {"_op", "_source", "_source_position"} & set(lake.frame("upsert").columns)
    assert verify(lake, "upsert", **options()).ok


@pytest.mark.breadth
def test_the_auditor_finds_what_is_wrong_with_a_table_of_events(lake: Lake, topic: Topic) -> None:
    database = Database(seed=12)
    send(topic, list(database.changes(100)), schemas=True)
    lake.pipeline("upsert", **options()).run()
    assert verify(lake, "upsert", **options()).ok
    lake.sql(f"UPDATE {{t}} SET amount = amount + 1 WHERE id = {max(database.rows)}", "upsert")
    lake.sql(
        "INSERT INTO {t} SELECT 77777, name, amount, _topic, _partition, _offset, _timestamp FROM {t} LIMIT 1", "upsert"
    )
    damaged = counts(verify(lake, "upsert", **options()))
    assert (damaged["altered"], damaged["unexpected"]) == (1, 1)


@pytest.mark.breadth
@pytest.mark.parametrize(
    "order", ["_source_position", "struct(IF(_topic = 'backfill', 0, 1) AS flow, _source_position)"]
)
def test_by_the_databases_own_order_truncates_count_and_partitions_do_not_matter(
    order: str, lake: Lake, topic: Topic
) -> None:
    database = Database(seed=5)
    messages = [*database.changes(60), database.truncate(), *database.changes(40)]
    # Each half in a partition of its own, the later one in the first: by offsets a key would have two partitions.
    send(topic, messages[50:], schemas=False, partition=0)
    send(topic, messages[:50], schemas=False, partition=1)
    ordered = options(sink={"key": "id", "sequence_by": order})
    lake.pipeline("upsert", **ordered).run()
    assert held(lake) == database.rows
    assert verify(lake, "upsert", **ordered).ok
    send(topic, [database.truncate(), *database.changes(3)], schemas=False, partition=1)
    lake.pipeline("upsert", **ordered).run()
    assert held(lake) == database.rows


@pytest.mark.breadth
def test_a_truncate_of_a_table_that_keeps_deleted_rows_is_a_bad_record(lake: Lake, topic: Topic) -> None:
    """Unless the file says that truncates are to delete nothing."""
    database = Database(seed=8)
    messages = list(database.changes(30))
    rows = dict(database.rows)
    send(topic, [*messages, database.truncate()], schemas=False, partition=0)
    sink = {"key": "id", "sequence_by": "_source_position", "deletes": "soft"}
    with pytest.raises(BadRecord, match="has a null in its key id"):
        lake.pipeline("upsert", **options(sink=sink)).run()
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    ignoring = options(sink={**sink, "path": str(lake.path("ignoring")), "apply_as_truncates": "false"})
    for place, changes in (("upsert", options(sink=sink, **dead)), ("ignoring", ignoring)):
        lake.pipeline("upsert", **changes).run()
        stored = lake.sql("SELECT id, name, amount FROM {t} WHERE NOT _deleted", place)
        assert {row[0]: (row[1], str(row[2])) for row in stored} == rows
        assert counts(verify(lake, "upsert", **changes)).keys().isdisjoint(FAULTS)
    assert query(lake.path("letters"), "SELECT count(*) FROM t") == [(1,)]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("snapshot", "change"),
    [
        (
            {"commit_lsn": "00000025:000004c0:001a", "change_lsn": None, "event_serial_no": None},
            {"commit_lsn": "00000025:000004d0:0003", "change_lsn": "00000025:000004d0:0002", "event_serial_no": 1},
        ),
        ({"scn": "12868546", "txId": None}, {"scn": "2868546", "commit_scn": "12868550", "txId": "6.28.807"}),
        ({"lsn": 200, "sequence": '[null,"200"]'}, {"lsn": 150, "sequence": '["205","150"]', "txId": 571}),
        ({"sequence": '["190","200"]'}, {"lsn": 150, "sequence": '["203","150"]', "txId": 571}),
        ({"file": "mariadb-bin.000002", "pos": 500, "row": 0}, {"file": "mariadb-bin.000002", "pos": 500, "row": 0}),
    ],
    ids=["SQL Server", "Oracle", "PostgreSQL", "PostgreSQL, incremental", "MariaDB"],
)
def test_a_snapshot_is_older_than_what_comes_after_it(
    snapshot: dict[str, Any], change: dict[str, Any], lake: Lake, topic: Topic
) -> None:
    """Also than a change that is before it in the log, and was committed behind it. The snapshot is read last."""

    def event(op: str, number: int, name: str, source: dict[str, Any]) -> dict[str, Any]:
        part = "before" if op == "d" else "after"
        return {"op": op, part: {"id": number, "name": name, "amount": "1.00"}, "source": source}

    topic.send(("1", event("u", 1, "new", change)), ("2", event("d", 2, "gone", change)), partition=0)
    topic.send(*((str(number), event("r", number, "old", snapshot)) for number in (1, 2)), partition=1)
    ordered = options(sink={"key": "id", "sequence_by": "_source_position"})
    if isinstance(change.get("txId"), str):
        with pytest.raises(BadRecord, match=r"field source\.txId: not a BIGINT, but '6\.28\.807'") as caught:
            lake.pipeline("upsert", **ordered).run()
        assert "value: {tx_id: string}" in str(caught.value.hint)
        ordered["value"]["tx_id"] = "string"
    lake.pipeline("upsert", **ordered).run()
    assert held(lake) == {1: ("new", "1.00")}
    assert verify(lake, "upsert", **ordered).ok
    lake.pipeline("append", value=ordered["value"]).run()
    assert "sequence" not in lake.frame("append").schema["_source"].dataType.names
    assert {row[0] for row in lake.sql("SELECT _source.txId FROM {t}")} == {change.get("txId"), None}
    assert verify(lake, "append", value=ordered["value"]).ok


@pytest.mark.breadth
def test_of_a_transaction_with_one_place_in_the_log_the_last_change_of_a_row_counts(lake: Lake, topic: Topic) -> None:
    """As with MariaDB from 11.4 and its defaults. Of some versions of Debezium its changes have no place at all."""

    def event(op: str, number: int, name: str, pos: int, row: int = 0) -> tuple[str, dict[str, Any]]:
        part = "before" if op == "d" else "after"
        source = {"connector": "mariadb", "file": "mariadb-bin.000002", "pos": pos, "row": row}
        return str(number), {"op": op, part: {"id": number, "name": name, "amount": "1.00"}, "source": source}

    topic.send(*(event("r", number, "old", 500) for number in (1, 2, 3)), partition=0)
    topic.send(*(event("u", number, "a", 500, row) for row, number in enumerate((1, 2, 3))), partition=0)
    topic.send(event("d", 2, "a", 500), event("u", 3, "b", 500), partition=0)
    ordered = options(sink={"key": "id", "sequence_by": "_source_position"})
    lake.pipeline("upsert", **ordered).run()
    assert held(lake) == {1: ("a", "1.00"), 3: ("b", "1.00")}
    assert verify(lake, "upsert", **ordered).ok
    topic.send(event("u", 1, "c", -57), partition=0)
    with pytest.raises(BadRecord, match="has no sequence") as caught:
        lake.pipeline("upsert", **ordered).run()
    assert "binlog_legacy_event_pos=ON" in str(caught.value.hint)


@pytest.mark.breadth
def test_changes_that_come_again_make_no_versions_in_a_history_of_the_databases_order(lake: Lake, topic: Topic) -> None:
    """In Kafka's order they do, and `check` says so."""
    row = {"id": 1, "name": "Ann", "amount": "1.00"}
    changes = [("1", event("r", row, 1)), ("1", event("u", {**row, "name": "Anna"}, 2))]
    ordered = options(sink={"key": "id", "sequence_by": "_source_position"})
    for _ in range(2):
        topic.send(*changes, partition=0)
        lake.pipeline("history", **ordered).run()
    versions = "SELECT name, __END_AT IS NULL FROM {t} ORDER BY __START_AT"
    assert lake.sql(versions, "history") == [("Ann", False), ("Anna", True)]
    assert verify(lake, "history", **ordered).ok
    assert lake.pipeline("history", **ordered).check().warnings == []
    (said,) = lake.pipeline("history", **options(sink={"key": "id", "path": str(lake.path("other"))})).check().warnings
    assert "sequence_by: _source_position" in said


@pytest.mark.breadth
def test_a_table_of_events_of_an_earlier_version_goes_on(lake: Lake, topic: Topic) -> None:
    """Its file says nothing of ``tx_id``, and its ``_source.txId`` is a BIGINT."""
    value = {"format": "debezium", "schema": "id INT"}
    for number in (1, 2):
        source = {"connector": "postgresql", "lsn": number, "txId": 570 + number}
        topic.send((str(number), {"op": "c", "after": {"id": number}, "source": source}))
        lake.pipeline("append", value=value).run()
        if number == 1:
            assert lake.frame("append").schema["_source"].dataType["txId"].dataType.simpleString() == "bigint"
    assert sorted(lake.sql("SELECT id, _source.txId FROM {t}")) == [(1, 571), (2, 572)]
    assert verify(lake, "append", value=value).ok


@pytest.mark.breadth
def test_a_tombstone_behind_a_delete_is_no_bad_record_whatever_its_key(lake: Lake, topic: Topic) -> None:
    """In the order of events it says nothing."""
    database = Database(seed=6)
    send(topic, list(database.changes(60)), schemas=True, keys=False)
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    for place, more in (
        ("whole", {}),
        ("chosen", {"transform": "SELECT id, name, amount, _op, _source_position FROM records"}),
    ):
        sink = {"key": "id", "sequence_by": "_source_position", "path": str(lake.path(place))}
        changes = options(sink=sink, **dead, **more)
        lake.pipeline("upsert", **changes).run()
        assert {
            row[0]: (row[1], str(row[2])) for row in lake.sql("SELECT id, name, amount FROM {t}", place)
        } == database.rows
        assert counts(verify(lake, "upsert", **changes)).keys().isdisjoint(FAULTS)
    assert not lake.path("letters").exists()


@pytest.mark.breadth
def test_a_delete_with_its_key_alone_needs_no_event_time_and_meets_no_rule(lake: Lake, topic: Topic) -> None:
    """As PostgreSQL sends it by default, and a connector with ``tombstones.on.delete: false``."""
    value = {"format": "debezium", "schema": "id INT, amount INT, at TIMESTAMP"}
    changes: dict[str, Any] = {"value": value, "event_time": "at", "require": "amount >= 0"}
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    rows = [{"id": number, "amount": 1, "at": "2026-01-01T00:00:00Z"} for number in (1, 2, 3)]
    topic.send(*((str(row["id"]), event("c", row, row["id"])) for row in rows), partition=0)
    bare = [event(op, {"id": 1, "amount": None, "at": None}, 4) for op in ("d", "u")]
    for order, more in ((None, {}), ("_source_position", dead)):
        sink = {"key": "id", "path": str(lake.path(f"by {order}")), **({"sequence_by": order} if order else {})}
        lake.pipeline("upsert", sink=sink, **changes, **more).run()
    topic.send(("1", bare[0]), partition=0)
    for order, more in ((None, {}), ("_source_position", dead)):
        sink = {"key": "id", "path": str(lake.path(f"by {order}")), **({"sequence_by": order} if order else {})}
        lake.pipeline("upsert", sink=sink, **changes, **more).run()
        assert query(sink["path"], "SELECT id FROM t ORDER BY id") == [(2,), (3,)]
        assert verify(lake, "upsert", sink=sink, **changes, **more).ok
    assert not lake.path("letters").exists()
    topic.send(("1", bare[1]), partition=0)
    lake.pipeline("upsert", sink=sink, **changes, **dead).run()
    audited = verify(lake, "upsert", sink=sink, **changes, **dead)
    assert (audited.ok, audited.totals["letters"]) == (True, 1), "an update is judged"


@pytest.mark.breadth
def test_ignoring_new_columns_ignores_no_delete(lake: Lake, topic: Topic) -> None:
    """The table has no column for what an event says of itself. No tombstone tells of the delete a second time."""
    rows = [{"id": number, "name": "a", "amount": "1.00"} for number in (1, 2)]
    topic.send(*((str(row["id"]), event("c", row, row["id"])) for row in rows), partition=0)
    for order in ({}, {"sequence_by": "_source_position"}):
        sink = {"key": "id", "path": str(lake.path(f"by {[*order]}")), **order}
        lake.pipeline("upsert", **options(on_new_column="ignore", sink=sink)).run()
    topic.send(("1", event("d", rows[0], 3)), partition=0)
    for order in ({}, {"sequence_by": "_source_position"}):
        sink = {"key": "id", "path": str(lake.path(f"by {[*order]}")), **order}
        lake.pipeline("upsert", **options(on_new_column="ignore", sink=sink)).run()
        assert query(sink["path"], "SELECT id FROM t") == [(2,)]


@pytest.mark.breadth
def test_events_without_their_op_are_rows(lake: Lake, topic: Topic) -> None:
    database = Database(seed=7)
    send(topic, [each for each in database.changes(40) if each[1] is None or each[1]["op"] != "d"], schemas=False)
    changes = options(sink={"key": "id"}, transform="SELECT id, name, amount, _ts_ms FROM records")
    with pytest.raises(ConfigurationError, match="leaves out _op"):
        lake.pipeline("upsert", **changes).run()
    changes = options(sink={"key": "id", "apply_as_deletes": "false"}, transform=changes["transform"])
    lake.pipeline("upsert", **changes).run()
    assert verify(lake, "upsert", **changes).ok


@pytest.mark.breadth
def test_every_change_is_kept_by_an_append(lake: Lake, topic: Topic) -> None:
    database = Database(seed=3)
    messages = [each for each in database.changes(30) if each[1] is not None]
    send(topic, messages, schemas=False, partition=0)
    lake.pipeline(value=options()["value"]).run()
    found = lake.sql("SELECT _op, id, _source.lsn, _source_position FROM {t} ORDER BY _offset")
    assert verify(lake, value=options()["value"]).ok
    assert [(op, lsn, where) for op, _, lsn, where in found] == [
        (value["op"], value["source"]["lsn"], f"{value['source']['lsn']:020}") for _, value in messages if value
    ]


@pytest.mark.breadth
def test_what_is_no_change_of_a_row_is_a_bad_record(lake: Lake, topic: Topic) -> None:
    topic.send(("1", {"op": "x", "message": "hello"}), partition=0)
    with pytest.raises(BadRecord, match="no change of a row, its op is x"):
        lake.pipeline("upsert", **options()).run()


LARGE = (
    "id INT, note STRING, tags ARRAY<STRING>, numbers ARRAY<INT>, photo BINARY, more MAP<STRING, STRING>, "
    "photos ARRAY<BINARY>, ratios ARRAY<DOUBLE>, prices ARRAY<DECIMAL(10,2)>, n INT"
)
GONE = "__debezium_unavailable_value"
HSTORE = f'{{"{GONE}":"{GONE}"}}'
FORMS = {
    "note": [GONE, HSTORE, base64.b64encode(GONE.encode()).decode(), GONE.encode().hex()],
    "tags": [[GONE], [base64.b64encode(GONE.encode()).decode()], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]],
    "numbers": [list(GONE.encode())],
    "photo": [base64.b64encode(GONE.encode()).decode()],
    "more": [{GONE: GONE}],
    "photos": [[base64.b64encode(GONE.encode()).decode()]],
    "ratios": [[float(byte) for byte in GONE.encode()]],
    "prices": [[f"{byte}.00" for byte in GONE.encode()], [f"{byte / 100:.2f}" for byte in GONE.encode()]],
}


def event(op: str, row: dict[str, Any], lsn: int) -> dict[str, Any]:
    part = "before" if op == "d" else "after"
    return {part: row, "op": op, "ts_ms": 1, "source": {"connector": "postgresql", "lsn": lsn}}


def large(**changes: Any) -> dict[str, Any]:
    value = {"format": "debezium", "schema": LARGE, **changes.pop("value", {})}
    return {"value": value, "unmatched": "warn", **changes}


@pytest.mark.breadth
def test_a_value_that_the_database_did_not_send_is_never_taken_for_one(lake: Lake, topic: Topic) -> None:
    forms = [(name, form) for name, forms in FORMS.items() for form in forms]
    for number, (name, form) in enumerate(forms):
        topic.send((str(number), event("u", {"id": number, name: form}, number)), partition=0)
    others = {
        "note": f'{{"about":"{GONE}"}}',
        "tags": ["a", GONE],
        "numbers": [],
        "prices": ["0.95"],
        "photos": [],
        "more": {},
    }
    topic.send(("x", event("u", {"id": 99, **others}, 99)), partition=0)
    with pytest.raises(BadRecord, match=r"offset 0.*did not send its column note .*REPLICA IDENTITY FULL"):
        lake.pipeline("append", **large()).run()
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    lake.pipeline("append", **large(**letters)).run()
    assert query(lake.path("append"), "SELECT id FROM t") == [(99,)]
    assert query(lake.path("letters"), "SELECT count(*) FROM t") == [(len(forms),)]
    nulls = {**large(value={"unavailable": "null"}), "sink": {"path": str(lake.path("nulls"))}}
    lake.pipeline("append", **nulls).run()
    left = query(
        lake.path("nulls"),
        f"SELECT count(*), {', '.join(f'count({name})' for name in FORMS)} FROM t WHERE id < 99",
    )
    assert left == [(len(forms), *(0 for _ in FORMS))]


@pytest.mark.breadth
def test_the_auditor_knows_what_the_database_did_not_send(lake: Lake, topic: Topic) -> None:
    topic.send(
        *(
            (str(number), event("u", {"id": number, name: form}, number))
            for number, (name, form) in enumerate((name, form) for name, forms in FORMS.items() for form in forms)
        ),
        ("x", event("u", {"id": 99, "tags": [], "numbers": [], "photos": [], "ratios": [], "prices": []}, 99)),
        partition=0,
    )
    lake.pipeline("append", **large(value={"unavailable": "null"})).run()
    assert verify(lake, **large(value={"unavailable": "null"})).ok
    assert not verify(lake, **large()).ok


@pytest.mark.breadth
@pytest.mark.spark4("VARIANT is a type of Spark 4")
def test_a_variant_has_no_value_that_the_database_did_not_send(lake: Lake, topic: Topic) -> None:
    document = {"id": 0, "doc": '{"a":1}'}
    texts = [GONE, HSTORE, GONE.encode().hex(), [GONE], {GONE: GONE}, [*GONE.encode()]]
    topic.send(
        *(("1", event("u", {"id": number, "doc": text}, number)) for number, text in enumerate(texts, 1)),
        ("1", event("u", document, 99)),
        partition=0,
    )
    value = {"format": "debezium", "schema": "id INT, doc VARIANT", "unavailable": "null"}
    lake.pipeline("append", value=value).run()
    assert sorted(lake.sql("SELECT id, to_json(doc) FROM {t}")) == [
        (0, json.dumps(document["doc"])), *((number, None) for number in range(1, len(texts) + 1)),
    ]  # fmt: skip
    assert verify(lake, value=value).ok


@pytest.mark.breadth
@pytest.mark.parametrize("order", [None, "_source_position"])
@pytest.mark.parametrize("merge", ["on_write", "on_read"])
def test_an_upsert_keeps_what_the_database_did_not_send(
    lake: Lake, topic: Topic, order: str | None, merge: str
) -> None:
    sink = {"key": "id", "ignore_null_updates": ["note"], "merge": merge}
    if merge == "on_read" and order:
        sink["apply_as_truncates"] = "false"  # a truncate needs a table that is merged on write
    value = {"unavailable": "null", "schema": "id INT, note STRING, n INT"}
    options = large(value=value, sink={**sink, **({"sequence_by": order} if order else {})})

    def change(op: str, number: int, note: str, n: int, lsn: int) -> None:
        topic.send((str(number), event(op, {"id": number, "note": note, "n": n}, lsn)), partition=0)

    change("c", 1, "one", 1, 1)
    change("u", 1, GONE, 2, 2)
    change("u", 1, GONE, 3, 3)
    change("c", 2, "two", 1, 4)
    lake.pipeline("upsert", **options).run()
    change("u", 1, GONE, 4, 5)
    change("d", 2, "two", 1, 6)
    change("c", 2, "again", 2, 7)
    change("u", 2, GONE, 3, 8)
    run = lake.pipeline("upsert", **options)
    run.run()
    if merge == "on_read":
        run.fold()
    assert query(lake.path("upsert"), "SELECT id, note, n FROM t ORDER BY id") == [(1, "one", 4), (2, "again", 3)]
    assert verify(lake, "upsert", **options).ok
