"""The recipes of docs/recipes.md, done as they stand there."""

from __future__ import annotations

import hmac
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import Send
from pages import Reader, blocks

import connector
from sinks.errors import BadRecord

PAGE = "docs/recipes.md"


def rows(reader: Reader, file: str, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in connector.read(reader.names["spark"], file).select(*columns).collect())


@pytest.mark.pages
def test_a_table_follows_a_database_and_is_moved(reader: Reader, send: Send) -> None:
    def change(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
        return {"op": op, "before": before, "after": after, "ts_ms": 1, "source": {"connector": "postgresql", "lsn": 1}}

    ann, bob = {"id": 1, "name": "Ann", "city": "Oslo"}, {"id": 2, "name": "Bob", "city": "Rome"}
    customers = "shop.public.customers"
    send(customers, ('{"id": 1}', change("r", None, ann)), ('{"id": 2}', change("c", None, bob)))
    send(customers, ('{"id": 2}', change("d", bob, None)), ('{"id": 2}', None))
    reader.follow(PAGE, "A table that follows a database: change data capture from Debezium")
    assert rows(reader, "customers.yaml", "id", "name", "city") == [(1, "Ann", "Oslo")]

    send(customers, ('{"id": 1}', change("u", ann, {**ann, "city": "Bergen"})))
    reader.follow(PAGE, "Move a table to another bucket")
    assert "archive/customers" in Path("customers.yaml").read_text()
    assert rows(reader, "customers.yaml", "id", "name", "city") == [(1, "Ann", "Bergen")]
    assert "1 epoch," in reader.said[-1]


@pytest.mark.pages
def test_a_flow_of_auto_cdc_is_a_pipeline(reader: Reader, send: Send) -> None:
    parcel = {"parcel": 1, "state": "new", "depot": "Riga", "changed_at": "2026-11-01T10:00:00Z", "step": 1}
    moved = {**parcel, "state": "moving", "depot": None, "step": 2}
    lost = {"parcel": 2, "changed_at": "2026-11-01T11:00:00Z", "step": 1}
    events = [moved, parcel, {**lost, "op": "DELETE"}, {**lost, "state": "new", "changed_at": "2026-11-01T10:00:00Z"}]
    send("parcel_events", *((str(event["parcel"]), event) for event in events))
    reader.follow(PAGE, "Moving from AUTO CDC")
    assert rows(reader, "parcels.yaml", "parcel", "state", "depot") == [(1, "moving", "Riga")]


@pytest.mark.pages
def test_a_backfill_and_a_live_topic_make_one_table(reader: Reader, send: Send) -> None:
    def change(number: int, state: str, day: int, op: str = "UPDATE") -> tuple[str, object]:
        at = f"2026-11-{day:02}T10:00:00Z"
        return f'{{"id": {number}}}', {"id": number, "state": state, "cents": 5, "changed_at": at, "op": op}

    def exported(number: int, status: str) -> tuple[str, object]:
        return str(number), {"number": str(number), "status": status, "exported_at": "2026-11-20T10:00:00Z"}

    send("invoices", change(1, "paid", 2), change(2, "void", 3, "DELETE"))
    send("invoices_export", exported(1, "open"), exported(2, "open"), exported(3, "open"))
    reader.follow(PAGE, "A backfill and a live topic in one table")
    found = rows(reader, "invoices.yaml", "id", "state", "cents")
    assert found == [(1, "paid", 5), (3, "open", None)]


@pytest.mark.pages
def test_a_table_is_the_newest_snapshot(reader: Reader, send: Send) -> None:
    def row(sku: str, price: str, snapshot: int) -> tuple[str, object]:
        return sku, {"sku": sku, "price": float(price), "snapshot": snapshot}

    def complete(snapshot: int) -> tuple[None, object]:
        return None, {"snapshot": snapshot, "complete": True}

    first = [row("a", "1.5", 1), row("b", "2", 1), row("c", "3.25", 1), row("d", "4", 1), complete(1)]
    second = [row("b", "2.5", 2), complete(2), row("a", "1.5", 2)]
    send("price_lists", *first[1:], *second, first[0], row("d", "5", 3))
    section = "A table that is sent whole, again and again: AUTO CDC from snapshots"
    reader.follow(PAGE, section)
    found = rows(reader, "prices.yaml", "sku", "price", "snapshot")
    assert found == [("a", Decimal("1.50"), 2), ("b", Decimal("2.50"), 2), ("d", Decimal("5.00"), 3)]
    assert rows(reader, "price_history.yaml", "sku", "price", "__START_AT", "__END_AT") == [
        ("a", Decimal("1.50"), 1, None), ("b", Decimal("2.00"), 1, 2), ("b", Decimal("2.50"), 2, None),
        ("c", Decimal("3.25"), 1, 2), ("d", Decimal("4.00"), 1, 2), ("d", Decimal("5.00"), 3, None),
    ]  # fmt: skip


@pytest.mark.pages
def test_tables_follow_events_of_other_shapes(reader: Reader, send: Send) -> None:
    def article(
        number: int, title: str | None, body: str | None, deleted: str = "false", lsn: int = 300
    ) -> tuple[str, object]:
        row = {"id": number, "title": title, "body": body}
        return f'{{"id": {number}}}', {**row, "__deleted": deleted, "__lsn": lsn}

    gone = "__debezium_unavailable_value"
    # The first is of a snapshot, and its update of a transaction that was open then, with a lower position in the log.
    send(
        "shop.public.articles", article(1, "a", "long", lsn=200), article(2, "b", "longer"), article(3, "c", "x"),
        article(1, "A", gone, lsn=150), article(2, "B", None), article(3, None, None, "true"), ('{"id": 3}', None),
    )  # fmt: skip

    def change(operation: str, number: int, name: str | None, **old: Any) -> tuple[str, object]:
        before = {"before-image": old} if operation == "update" else {}
        event = {**before, "data": {"id": number, "name": name}, "metadata": _of_dms(operation, "data")}
        return str(number), event

    def control(operation: str) -> tuple[str, object]:
        return "t", {"metadata": _of_dms(operation, "control")}

    send("parts", control("create-table"), change("load", 1, "nut"), change("insert", 2, "bolt"))
    send("parts", change("update", 1, "big nut", id=1), change("update", 1, "bigger nut"), change("delete", 2, None))
    reader.follow(PAGE, "Change events of another shape: flattened by Kafka Connect, or from AWS DMS")
    assert rows(reader, "articles.yaml", "id", "title", "body") == [(1, "A", "long"), (2, "B", None)]
    assert rows(reader, "parts.yaml", "id", "name") == [(1, "bigger nut")]

    send("parts", change("update", 4, "nut", id=1), control("drop-table"), control("truncate-table"))
    with pytest.raises(BadRecord, match="require"):
        connector.Pipeline.from_file("parts.yaml").run()
    set_aside = "--set on_bad_record=dead_letter --set 'dead_letters={path: lake/refused}'"
    for command in ("run", "verify"):
        reader.run(f"lakelock {command} parts.yaml {set_aside}")
    assert re.search("exact: 1 expected, 1 found.* 3 dead letters", reader.said[-1])
    assert rows(reader, "parts.yaml", "id", "name") == [(1, "bigger nut")]


def _of_dms(operation: str, kind: str) -> dict[str, str]:
    return {"operation": operation, "record-type": kind, "schema-name": "shop", "table-name": "parts"}


@pytest.mark.pages
def test_tables_follow_maxwell_and_canal(reader: Reader, send: Send) -> None:
    def of_maxwell(kind: str, row: dict[str, Any], **old: Any) -> tuple[str, object]:
        key = {"database": "shop", "table": "stock", "pk.id": row.get("id")}
        changed = {"old": old} if old else {}
        event = {"database": "shop", "table": "stock", "type": kind, "ts": 1449786310, "xid": 940752, "commit": True}
        return json.dumps(key), {**event, "data": row, **changed}

    nut, bolt = {"id": 1, "name": "nut", "pieces": 5}, {"id": 2, "name": "bolt", "pieces": 7}
    start, end = of_maxwell("bootstrap-start", {}), of_maxwell("bootstrap-complete", {})
    send("shop_stock", start, of_maxwell("bootstrap-insert", nut), end, of_maxwell("insert", bolt))
    send("shop_stock", of_maxwell("update", {**nut, "pieces": 4}, pieces=5), of_maxwell("delete", bolt))

    pin = {"id": 3, "name": "pin"}  # with minimal row images, and an insert that leaves `pieces` to its default
    send("shop_levels", of_maxwell("insert", nut), of_maxwell("insert", bolt), of_maxwell("insert", pin))
    send("shop_levels", of_maxwell("update", {"id": 1, "pieces": 4}, pieces=5), of_maxwell("delete", {"id": 2}))
    send("shop_levels", of_maxwell("update", {"id": 3, "name": None}, name="pin"))

    def of_canal(kind: str, *rows: dict[str, str], old: list[dict[str, str]] | None = None, ddl: bool = False) -> Any:
        event = {
            "database": "shop",
            "table": "tools",
            "type": kind,
            "isDdl": ddl,
            "pkNames": ["id"],
            "es": 1589373515000,
        }
        event |= {"id": 3, "mysqlType": {"id": "bigint"}, "sqlType": {"id": -5}, "sql": "", "ts": 1589373515477}
        return "by the primary key", {**event, "data": list(rows) or None, "old": old}

    saw, axe, file = ({"id": str(number), "name": name} for number, name in enumerate(("saw", "axe", "file")))
    send("shop_tools", of_canal("ALTER", ddl=True), of_canal("INSERT", saw, axe, file))
    axes = [{**axe, "name": name} for name in ("zax", "ax")]  # one statement changes the row twice
    send("shop_tools", of_canal("UPDATE", *axes, old=[{"name": "axe"}, {"name": "zax"}]), of_canal("DELETE", saw, file))
    reader.follow(PAGE, "Change events of MySQL, by Maxwell or Canal")
    assert rows(reader, "stock.yaml", "id", "name", "pieces") == [(1, "nut", 4)]
    assert rows(reader, "tools.yaml", "id", "name") == [(1, "ax")]
    assert rows(reader, "levels.yaml", "id", "name", "pieces") == [(1, "nut", 4), (3, None, 0)]

    send("shop_stock", of_maxwell("update", {**nut, "id": 9}, id=1))
    send("shop_tools", of_canal("TRUNCATE", ddl=True))
    for name in ("stock", "tools"):
        with pytest.raises(BadRecord, match="require"):
            connector.Pipeline.from_file(f"{name}.yaml").run()


@pytest.mark.pages
def test_personal_data_is_masked(reader: Reader, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SALT", salt := "what openssl prints")
    spent = {1: ("ann@example.com", "9.50"), 2: ("bob@example.com", "3"), 3: ("ann@example.com", "1")}
    device = {"os": "linux", "ip": "192.0.2.7"}
    for number, (email, cents) in spent.items():
        send("visits", (str(number), {"id": number, "email": email, "spent": cents, "device": device}))
    reader.follow(PAGE, "Personal data: masked before it is stored")
    assert rows(reader, "visits.yaml", "id", "visitor", "spent", "device_os") == [
        (number, hmac.new(salt.encode(), email.encode(), "sha256").hexdigest(), Decimal(sent), "linux")
        for number, (email, sent) in spent.items()
    ]


@pytest.mark.pages
def test_orders_and_payments_are_in_one_epoch(reader: Reader, send: Send) -> None:
    send("orders", ("1", {"order_id": 1, "customer": "ann", "cents": 500}), ("2", {"order_id": 2, "cents": 700}))
    send("payments", ("1", {"order_id": 1, "cents": 500}), ("2", {"order_id": 2, "cents": 300}))
    reader.follow(PAGE, "Orders and payments in one epoch")
    assert rows(reader, "balances.yaml", "order_id", "ordered", "paid") == [(1, 500, 500), (2, 700, 300)]
    assert [row.order_id for row in reader.names["open_orders"].collect()] == [2]
    assert "1 epoch," in reader.said[0]


@pytest.mark.pages
def test_a_backfill_with_another_logic_is_swapped_in(reader: Reader, send: Send) -> None:
    section = "Backfill: the same topic, another logic"
    send("sales", *(("a", {"shop": "a", "cents": cents, "day": "2026-11-01"}) for cents in (100, -40, 250)))
    old, new = (block for block in blocks(PAGE, section) if block.file)
    reader.write("daily.yaml", old.text)
    reader.run("lakelock run daily.yaml")
    send("sales", *(("a", {"shop": "a", "cents": cents, "day": "2026-11-01"}) for cents in (50, -1)))
    reader.follow(PAGE, section)
    assert rows(reader, "daily.yaml", "shop", "cents") == [("a", 400)]
    # The runs of the old file went on by the old logic, in the old table alone.
    reader.write("old.yaml", old.text)
    assert rows(reader, "old.yaml", "shop", "cents") == [("a", 359)]
    assert new.file == "daily_v2.yaml"
    assert not Path(new.file).exists()


@pytest.mark.pages
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_a_schema_changes(reader: Reader, send: Send) -> None:
    section = "Change a schema"
    send("visits", ("x", {"page": "/", "at": "2026-11-01T00:00:00Z"}))
    reader.write("before.yaml", _before(section))
    reader.run("lakelock run before.yaml")
    send("visits", ("x", {"page": "/buy", "at": "2026-11-01T00:00:01Z", "country": "NO"}))
    reader.follow(PAGE, section)
    assert rows(reader, "visits.yaml", "page", "country") == [("/", None), ("/buy", "NO")]


def _before(section: str) -> str:
    return blocks(PAGE, section)[0].text.replace(", country STRING", "").replace("on_new_column: add\n", "")
