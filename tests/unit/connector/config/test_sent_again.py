"""`check` warns of tables that would keep what Debezium sends again."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import parse
from connector.config.sent_again import kept_again

EVENTS: dict[str, Any] = {"format": "debezium", "schema": "id INT, doc STRING"}
ROWS: dict[str, Any] = {"format": "json", "schema": "id INT, doc STRING"}
UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id"}
HISTORY = {**UPSERT, "type": "delta_history"}
ORDERED = {**HISTORY, "sequence_by": "_source_position"}
SUM = {"type": "delta_aggregate", "path": "lake/s", "group_by": "id", "aggregates": {"n": "count(*)"}}
COORDINATED: dict[str, Any] = {"coordinator": {"path": "lake/log"}}


def warnings(*sinks: dict[str, Any], value: dict[str, Any] = EVENTS, **changes: Any) -> list[str]:
    options = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": value,
        **({"sinks": [*sinks]} if sinks else {}),
        **changes,
    }
    return list(kept_again(parse(options)))


def test_a_history_that_would_have_versions_that_never_were_is_told_its_order() -> None:
    (said,) = warnings(HISTORY)
    assert said.startswith("sinks[0]: ")
    assert "sequence_by: _source_position" in said


def test_an_aggregate_that_would_count_a_change_twice_is_told_of_kafka_connect() -> None:
    said = warnings(UPSERT, SUM, {**HISTORY, "path": "lake/h"}, **COORDINATED)
    assert [each.split(":")[0] for each in said] == ["sinks[1]", "sinks[2]"]
    assert "exactly.once.source.support" in said[0]


def test_the_tables_of_a_route_are_told_once() -> None:
    (said,) = warnings(route={"by": "doc", "sink": {**HISTORY, "path": "lake/{route}"}}, **COORDINATED)
    assert said.startswith("route.sink: ")


@pytest.mark.parametrize(
    ("sink", "value"),
    [(UPSERT, EVENTS), (ORDERED, EVENTS), ({"type": "delta_append", "path": "lake/t"}, EVENTS), (HISTORY, ROWS)],
)
def test_what_ends_as_the_last_change_left_it_is_no_reason_to_warn(sink: dict[str, Any], value: dict[str, Any]) -> None:
    assert warnings(sink, value=value) == []
