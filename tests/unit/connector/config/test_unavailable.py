"""``unavailable: keep`` only goes with tables that have a value to keep."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import parse
from connector.config.unavailable import keeps_by
from connector.operations.dead_letters import refuse_unfit
from sinks.errors import ConfigurationError

UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id"}
BITEMPORAL = {**UPSERT, "type": "delta_history", "stored_as_scd_type": "bitemporal", "sequence_by": "id"}
SUM = {"type": "delta_aggregate", "path": "lake/s", "group_by": "id", "aggregates": {"n": "count(*)"}}
COORDINATED: dict[str, Any] = {"coordinator": {"path": "lake/log"}}
LETTERS: dict[str, Any] = {"on_bad_record": "dead_letter", "dead_letters": {"path": "lake/dead"}}
SMALL = {"format": "json", "schema": "id INT"}
NAMED = {"transform": "SELECT id, array('a') AS _unavailable FROM records"}


def config(sink: dict[str, Any] = UPSERT, **changes: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "debezium", "schema": "id INT, doc STRING", "unavailable": "keep"},
        **({} if "route" in changes else {"sinks": [sink]}),
        **changes,
    }


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (config({"type": "delta_append", "path": "lake/t"}), "keep needs a sink with a row for each key.*delta_append"),
        (config(SUM), "delta_aggregate has none"),
        (config(sinks=[UPSERT, {"type": "kafka_topic", "topic": "u"}], **COORDINATED), "kafka_topic has none"),
        (config(route={"by": "doc", "sink": {**SUM, "path": "lake/{route}"}}, **COORDINATED), "delta_aggregate has"),
        (config({**UPSERT, "deletes": "soft"}), "keep needs deletes: hard"),
        (config({**UPSERT, "column_list": ["id", "_unavailable"]}), "column_list: _unavailable says what a row keeps"),
        (config(on_new_column="add"), "keep doesn't work with on_new_column: add"),
        (config(BITEMPORAL), "value.unavailable: keep doesn't work with stored_as_scd_type: bitemporal"),
        (config({**UPSERT, "deletes": "soft"}, value=SMALL, **NAMED), "transform: the column _unavailable needs"),
    ],
)
def test_what_has_nothing_to_keep_is_refused_with_what_to_write(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse(options)


@pytest.mark.parametrize(
    "options",
    [
        config(),
        config({**UPSERT, "type": "delta_history"}, on_new_column="ignore"),
        config(sinks=[UPSERT, {**UPSERT, "path": "lake/u"}], **COORDINATED),
        config(route={"by": "doc", "sink": {**UPSERT, "path": "lake/{route}"}}, **COORDINATED),
        config(value=SMALL, **NAMED),
    ],
)
def test_a_table_with_a_row_for_each_key_keeps_its_values(options: dict[str, Any]) -> None:
    assert keeps_by(parse(options))


def test_a_column_with_a_longer_name_says_nothing_of_what_was_not_sent() -> None:
    soft = config({**UPSERT, "deletes": "soft"}, value=SMALL, transform="SELECT id, is_unavailable FROM records")
    assert keeps_by(parse(soft)) is None


def test_without_an_order_of_its_values_a_row_cannot_take_a_letter_again() -> None:
    with pytest.raises(ConfigurationError, match="unavailable: keep without sequence_by doesn't record which columns"):
        refuse_unfit(parse(config(**LETTERS)))
    refuse_unfit(parse(config({**UPSERT, "sequence_by": "_source_position"}, **LETTERS)))
    refuse_unfit(parse(config({**UPSERT, "type": "delta_history"}, **LETTERS)))
