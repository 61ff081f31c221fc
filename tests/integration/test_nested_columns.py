"""Fields of STRUCTs that records have in another order than the table, or that it lacks, in every rule of an upsert."""

from __future__ import annotations

from typing import Any

import pytest
from audits import verify
from conftest import Lake, Topic

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
