"""Fields of STRUCTs that records have in another order than the table, or that it lacks, in every rule of an upsert."""

from __future__ import annotations

from typing import Any

import pytest
from audits import verify
from conftest import Lake, Topic

from connector import Pipeline, read
from connector.audit import audit
from connector.config import parse

RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft": {"deletes": "soft"},
    "ignored": {"ignore_null_updates": ["at"]},
    "by sequence": {"ignore_null_updates": ["at"], "sequence_by": "n"},
}
HELD = "SELECT k, at.city, at.zip, n FROM {t} ORDER BY k"


def sent(key: str, number: int, **at: str) -> tuple[str, dict[str, Any]]:
    return key, {"k": key, "at": at, "n": number}


def given(lake: Lake, name: str, schema: str, **more: Any) -> dict[str, Any]:
    sink = {"type": "delta_upsert", "key": "k", "path": str(lake.path(name)), **RULES[name]}
    return {"schema": f"k STRING, at {schema}, n INT", "sink": sink, "unmatched": "warn", **more}


@pytest.mark.breadth
@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_fields_makes_no_difference(rule: str, lake: Lake, topic: Topic) -> None:
    """Not where the table is new, and not where a rule chooses between a row's value and a record's."""
    assert lake.spark is not None
    lake.spark.sql(
        f"CREATE TABLE delta.`{lake.path(rule)}` (k STRING, at STRUCT<zip: STRING, city: STRING>, n INT) USING delta"
    )
    changes = given(lake, rule, "STRUCT<city: STRING, zip: STRING>", on_new_column="add")
    for number, keys in enumerate(("ab", "bc")):
        topic.send(*(sent(key, number, city=f"c{number}", zip=f"z{number}") for key in keys), partition=0)
        lake.pipeline("upsert", **changes).run()
    assert lake.sql(HELD, rule) == [("a", "c0", "z0", 0), ("b", "c1", "z1", 1), ("c", "c1", "z1", 1)]
    assert verify(lake, "upsert", **changes).ok


@pytest.mark.breadth
@pytest.mark.parametrize("rule", RULES)
def test_new_fields_come_to_rows_that_a_rule_keeps(rule: str, lake: Lake, topic: Topic) -> None:
    changes = given(lake, rule, "STRUCT<city: STRING>", on_new_column="add")
    topic.send(*(sent(key, 0, city="x") for key in "ab"), partition=0)
    lake.pipeline("upsert", **changes).run()
    topic.send(sent("b", 1, zip="1", city="y"), ("c", {"k": "c", "n": 1}), partition=0)
    lake.pipeline("upsert", **changes).run()
    assert lake.sql(HELD, rule) == [("a", "x", None, 0), ("b", "y", "1", 1), ("c", None, None, 1)]
    assert verify(lake, "upsert", **changes).ok


@pytest.mark.breadth
@pytest.mark.parametrize("merge", ["on_write", "on_read"])
def test_groups_are_the_same_whatever_the_order_of_their_fields(merge: str, lake: Lake, topic: Topic) -> None:
    def counting(schema: str) -> dict[str, Any]:
        sink = {"type": "delta_aggregate", "group_by": "at", "aggregates": {"n": "count(*)"}, "merge": merge}
        return {"schema": f"at {schema}", "sink": {**sink, "path": str(lake.path("groups"))}, "name": "groups"}

    for schema in ("STRUCT<zip: STRING, city: STRING>", "STRUCT<city: STRING, zip: STRING>"):
        topic.send(*(("k", {"at": {"city": city, "zip": "1"}}) for city in "xy"), partition=0)
        changes = counting(schema)
        lake.pipeline("aggregate", **changes).run()
        if merge == "on_read":
            lake.pipeline("aggregate", **changes).fold()
        assert verify(lake, "aggregate", **changes).ok
    assert lake.sql("SELECT at.city, at.zip, n FROM {t} ORDER BY 1", "groups") == [("x", "1", 2), ("y", "1", 2)]


ORDERS = ("STRUCT<a: STRING, b: STRING>", "STRUCT<b: STRING, a: STRING>")
KEYED = {
    "upsert": {},
    "on read": {"merge": "on_read"},
    "history": {"type": "delta_history"},
}
"""Sinks with a STRUCT key."""


def changed(name: str, number: int, *, gone: bool = False) -> tuple[str, dict[str, Any]]:
    return name, {"k": {"a": name, "b": "x"}, "n": number, "gone": gone}


def keyed(order: str, **sink: Any) -> dict[str, Any]:
    return {"schema": f"k {order}, n INT, gone BOOLEAN", "sink": {"key": "k", "apply_as_deletes": "gone", **sink}}


@pytest.mark.breadth
@pytest.mark.parametrize("kind", KEYED)
def test_the_fields_of_a_key_may_come_in_another_order_before_the_first_delete_and_after_it(
    kind: str, lake: Lake, topic: Topic
) -> None:
    assert lake.spark is not None
    spark = lake.spark
    own = "history" if kind == "history" else "upsert"
    there = {"path": str(lake.path(own)), "sequence_by": "n", **KEYED[kind]}
    notes = f"{lake.path(own)}/_lakelock/tombstones"

    def run(order: str, *records: tuple[str, dict[str, Any]]) -> None:
        topic.send(*records, partition=0)
        pipeline = lake.pipeline(own, **keyed(order, **there))
        pipeline.run()
        if kind == "on read":
            read(spark, lake.file(own, **keyed(order, **there))).collect()
            pipeline.fold()

    run(ORDERS[0], changed("a", 0), changed("b", 0))
    run(ORDERS[1], changed("a", 2, gone=True))
    run(ORDERS[1], changed("a", 1), changed("b", 3, gone=True), changed("c", 3))
    # As an earlier release has made them: in the order of the records.
    other = "CASE WHEN k IS NOT NULL THEN named_struct('b', k.b, 'a', k.a) END AS k"
    kept = spark.table(f"delta.`{notes}`")
    columns = [other if name == "k" else name for name in kept.columns]
    kept.selectExpr(*columns).write.format("delta").mode("overwrite").option("overwriteSchema", True).save(notes)
    for number, order in enumerate(ORDERS, 4):
        run(order, changed("a", 1), changed("b", 2), changed("c", number), changed(f"d{number}", 0, gone=True))
    current = " WHERE __END_AT IS NULL" if kind == "history" else ""
    assert lake.sql(f"SELECT k.a, k.b, n FROM {{t}}{current} ORDER BY n", own) == [("c", "x", 5)]
    noted = {tuple(row) for row in spark.sql(f"SELECT k.a, k.b FROM delta.`{notes}`").collect()}
    assert noted == {("a", "x"), ("b", "x"), ("d4", "x"), ("d5", "x")}
    for order in ORDERS:
        assert verify(lake, own, **keyed(order, **there)).ok


@pytest.mark.breadth
def test_the_fields_of_a_key_may_come_in_another_order_beside_another_sink(lake: Lake, topic: Topic) -> None:
    """Each epoch is rehearsed there, which compares the keys of the records with the table's."""
    for number, order in enumerate((*ORDERS, ORDERS[0])):
        options = lake.options("upsert", **keyed(order))
        options["sinks"].append({"type": "delta_append", "path": str(lake.path("append"))})
        options["coordinator"] = {"path": str(lake.path("log"))}
        topic.send(changed("a", number), changed(f"b{number}", number), partition=0)
        topic.send(changed(f"b{number - 1}", number, gone=True), partition=0)
        Pipeline.from_options(options).run()
        assert audit(parse(options)).ok
    assert lake.sql("SELECT k.a, k.b, n FROM {t} ORDER BY 1", "upsert") == [("a", "x", 2), ("b2", "x", 2)]
    assert len(lake.sql("SELECT * FROM {t}")) == 9
