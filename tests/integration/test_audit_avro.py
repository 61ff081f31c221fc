"""The audit of tables whose records are in Avro: read by fastavro, with none of the pipeline's code."""

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from audits import counts, verify
from avro_bytes import framed
from conftest import Lake, Topic
from registry import RegistryServer, registry_server

from sinks.errors import UnusableSchema

ONE = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "int"}]}
TWO = {
    "type": "record", "name": "R",
    "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "long"},
               {"name": "rate", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
                "default": "\u0000"},
               {"name": "kind", "type": "string", "default": "plain"},
               {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
               {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}, "default": {}}],
}  # fmt: skip
KEY = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "string"}]}


@pytest.fixture
def registry(topic: Topic) -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.register(f"{topic.name}-value", 1, ONE)
        server.register(f"{topic.name}-key", 5, KEY)
        yield server


def options(lake: Lake, registry: RegistryServer, **more: Any) -> dict[str, Any]:
    avro = {"format": "avro", "registry": {"url": registry.url}}
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    return {"value": avro, "key": avro, "on_new_column": "add", **letters, **more}


def news(number: int) -> dict[str, Any]:
    return {
        "k": f"k{number % 7}", "n": 2**40 + number, "rate": number / 100, "kind": "x", "at": number * 1000,
        "tags": {"a": number, "b": None},
    }  # fmt: skip


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", pytest.param("append", marks=pytest.mark.breadth)])
def test_records_of_several_schemas_are_compared_value_by_value(
    lake: Lake, topic: Topic, registry: RegistryServer, kind: str
) -> None:
    given = options(lake, registry)
    topic.send(
        *((framed(5, KEY, {"k": f"k{n}"}), framed(1, ONE, {"k": f"k{n}", "n": n})) for n in range(20)), partition=0
    )
    lake.pipeline(kind, **given).run()
    registry.register(f"{topic.name}-value", 2, TWO)
    written = [{**news(n), "rate": Decimal(n).scaleb(-2)} for n in range(20)]
    topic.send(
        *((framed(5, KEY, {"k": each["k"]}), framed(2, TWO, each)) for each in written),
        # A value of before, a tombstone, a header of nothing, a schema that nobody has, a byte too many.
        (framed(5, KEY, {"k": "k1"}), framed(1, ONE, {"k": "k1", "n": 1})),
        *(((framed(5, KEY, {"k": "k19"}), None),) if kind == "upsert" else ()),
        (None, b"{}"), (None, framed(9, ONE, {"k": "a", "n": 1})), (None, framed(1, ONE, {"k": "a", "n": 1}) + b"\0"),
        partition=0,
    )  # fmt: skip
    lake.pipeline(kind, **given).run()
    found = verify(lake, kind, **given)
    assert found.ok, str(found)
    assert "3 dead letters" in str(found)
    assert any("count as the same in: rate, kind, tags" in note for note in found.notes)
    lake.spark.sql(f"UPDATE delta.`{lake.path(kind)}` SET n = n + 1 WHERE k = 'k3' AND kind = 'x'")
    damaged = verify(lake, kind, **given)
    assert not damaged.ok
    assert counts(damaged)["altered"] >= 1


@pytest.mark.breadth
@pytest.mark.parametrize("bitemporal", [False, True])
def test_a_version_may_start_or_not_where_only_a_default_tells_it_from_the_one_before(
    lake: Lake, topic: Topic, registry: RegistryServer, bitemporal: bool
) -> None:
    """A row from before the field has null in it, a later one the default: the same record may end a version, or not.
    The next one does, as it differs anyway."""
    grown = {**ONE, "fields": [*ONE["fields"], {"name": "c", "type": ["string", "null"], "default": "x"}]}
    sink: dict[str, Any] = {"key": "k", "sequence_by": "s", "except_column_list": ["s"]}
    if bitemporal:
        sink |= {"stored_as_scd_type": "bitemporal", "system_sequence_by": "s"}
    given = options(
        lake, registry, key=None, transform="SELECT *, unix_millis(_timestamp) AS s FROM records", sink=sink
    )
    del given["on_new_column"]

    def old(*keys: str) -> None:
        topic.send(*((None, framed(1, ONE, {"k": key, "n": 1})) for key in keys), partition=0)
        lake.pipeline("history", **given).run()

    def new(*values: tuple[str, int, str | None]) -> None:
        sent = ({"k": key, "n": n, "c": c} for key, n, c in values)
        topic.send(*((None, framed(2, grown, each)) for each in sent), partition=0)
        lake.pipeline("history", **given).run()

    old("a", "b", "c")
    registry.register(f"{topic.name}-value", 2, grown)
    for column in ("c", *(["_state.events.element.values.c"] if bitemporal else [])):
        lake.sql(f"ALTER TABLE {{t}} ADD COLUMNS ({column} STRING)", "history")
    new(("a", 1, "x"), ("b", 1, None))
    old("c", "d", "e", "a")
    new(("d", 1, "x"), ("e", 1, None), ("a", 2, "x"))
    found = verify(lake, "history", **given)
    assert found.ok, str(found)
    starts = [row[0] for row in lake.sql("SELECT DISTINCT _offset FROM {t} ORDER BY 1", "history")]
    assert starts == [0, 1, 2, 3, 5, 6, 7, 10, 11], "of b and d one version, of c and e two"
    for gone in (3, 10):
        lake.sql(f"DELETE FROM {{t}} WHERE _offset = {gone}", "history")
        damaged = verify(lake, "history", **given)
        assert damaged.verdict.value == "not exact", (gone, str(damaged))
        lake.sql("RESTORE {t} TO VERSION AS OF " + str(lake.version("history") - 1), "history")


@pytest.mark.breadth
def test_a_default_that_its_type_cannot_hold_is_in_no_row(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    """Rows from before the field stay right. A later record without it is a letter, as Java makes no number of it."""
    rate = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    grown = {**ONE, "fields": [*ONE["fields"], {"name": "rate", "type": rate, "default": ""}]}
    given = options(lake, registry, key=None)
    topic.send((None, framed(1, ONE, {"k": "a", "n": 1})), partition=0)
    lake.pipeline("append", **given).run()
    registry.register(f"{topic.name}-value", 2, grown)
    sent = {"k": "b", "n": 2, "rate": Decimal("1.50")}
    topic.send((None, framed(2, grown, sent)), (None, framed(1, ONE, {"k": "c", "n": 3})), partition=0)
    lake.pipeline("append", **given).run()
    found = verify(lake, "append", **given)
    assert found.ok, str(found)
    assert "1 dead letter" in str(found)


@pytest.mark.breadth
def test_a_field_of_a_type_in_a_union_is_added_and_compared(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    """The run begins with a version that lacks it, and learns the other one by the id in its records."""

    def of(*fields: Any) -> dict[str, Any]:
        card = {"type": "record", "name": "Card", "fields": [{"name": "no", "type": "string"}, *fields]}
        cash = {"type": "record", "name": "Cash", "fields": [{"name": "till", "type": "int"}]}
        paid = [{"name": "how", "type": ["null", card, cash]}, {"name": "parts", "type": {"type": "array", "items": [
            "Card", "Cash"]}}]  # fmt: skip
        return {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, *paid]}

    old, new = of(), of({"name": "holder", "type": "string", "default": "?"})
    registry.answers.clear()
    registry.register(f"{topic.name}-value", 1, old)
    registry.answers["/schemas/ids/2"] = {"schema": json.dumps(new)}
    first, second = ("Card", {"no": "1"}), ("Card", {"no": "2", "holder": "h"})
    cash = ("Cash", {"till": 3})
    topic.send(
        (None, framed(1, old, {"k": "a", "how": first, "parts": [cash, first]})),
        (None, framed(1, old, {"k": "b", "how": cash, "parts": []})),
        (None, framed(2, new, {"k": "c", "how": second, "parts": [second, cash]})),
        (None, framed(2, new, {"k": "d", "how": None, "parts": [second]})), partition=0,
    )  # fmt: skip
    given = options(lake, registry, key=None, epoch={"max_records": 2})
    assert lake.pipeline(**given).run().epochs == 2
    columns = (
        "k, how.member0.no, how.member0.holder, how.member1.till, transform(parts, x -> x.member0.holder) AS holders"
    )
    assert [tuple(row) for row in lake.sql(f"SELECT {columns} FROM {{t}} ORDER BY k")] == [
        ("a", "1", None, None, [None, None]), ("b", None, None, 3, []),
        ("c", "2", "h", None, ["h", None]), ("d", None, None, None, ["h"]),
    ]  # fmt: skip
    registry.register(f"{topic.name}-value", 2, new)
    found = verify(lake, **given)
    assert found.ok, str(found)
    assert any("count as the same in: how.member0.holder" in note for note in found.notes), found.notes
    lake.sql("UPDATE {t} SET how.member0.holder = 'x' WHERE k = 'c'")
    assert counts(verify(lake, **given))["altered"] == 1


@pytest.mark.breadth
def test_events_in_avro_are_compared(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "int"}]}
    source = {"type": "record", "name": "S", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    event = {
        "type": "record", "name": "E",
        "fields": [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]},
                   {"name": "source", "type": source}, {"name": "op", "type": "string"},
                   {"name": "ts_ms", "type": ["null", "long"]}],
    }  # fmt: skip
    registry.answers.clear()
    registry.register(f"{topic.name}-value", 3, event)
    chance, held, messages = random.Random(3), dict[str, Any](), []
    for lsn in range(60):
        key = f"k{chance.randrange(6)}"
        before = held.get(key)
        gone = before is not None and chance.random() < 0.3
        after = None if gone else {"k": key, "n": lsn}
        held[key] = after
        body = {"before": before, "after": after, "source": {"lsn": lsn}, "op": "d" if gone else "u", "ts_ms": None}
        messages.append((key, framed(3, event, body)))
    topic.send(*messages, (None, framed(3, event, {**body, "op": "d", "before": None})), partition=0)
    given = options(lake, registry, on_new_column=None, key=None)
    given["value"] = {"format": "debezium", "registry": {"url": registry.url}}
    for kind, more in (("upsert", {}), ("append", {}), ("history", {"sink": {"key": "k"}})):
        letters = {"dead_letters": {"path": str(lake.path(f"dead_{kind}"))}}
        lake.pipeline(kind, **{**given, **letters}, **more).run()
        found = verify(lake, kind, **{**given, **letters}, **more)
        assert found.ok, (kind, str(found), found.notes)
        assert "1 dead letter" in str(found)


@pytest.mark.breadth
def test_a_registry_without_a_schema_is_told(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send((None, framed(1, ONE, {"k": "a", "n": 1})), partition=0)
    given = {"value": {"format": "avro", "registry": {"url": registry.url}}}
    lake.pipeline(**given).run()
    registry.answers.clear()
    with pytest.raises(UnusableSchema, match="has no Avro schema"):
        verify(lake, **given)
