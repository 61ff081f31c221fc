"""What is stored depends on the records alone: not on when they are read, or on where epochs begin and end."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import parse
from sinks.errors import ConfigurationError

UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id", "sequence_by": "at"}
SUM = {"type": "delta_aggregate", "path": "lake/s", "group_by": "id", "aggregates": {"n": "count(*)"}}


def config(sink: dict[str, Any] = UPSERT, **changes: Any) -> dict[str, Any]:
    return {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "id INT, at TIMESTAMP, n INT"},
        "sinks": [sink],
        **changes,
    }


@pytest.mark.parametrize(
    ("sink", "word"),
    [
        ({**UPSERT, "sequence_by": "current_timestamp()"}, "current_timestamp"),
        ({**UPSERT, "sequence_by": "struct(at, rand())"}, "rand"),
        ({**UPSERT, "apply_as_deletes": "at < now()"}, "now"),
        ({**UPSERT, "apply_as_truncates": "n = (SELECT max(n) FROM x)"}, "SELECT"),
        ({**SUM, "aggregates": {"late": "count_if(at < DATE 'today')"}}, "DATE 'today'"),
    ],
)
def test_what_orders_deletes_and_counts_gives_the_same_at_any_time(sink: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match="may give another value each time") as caught:
        parse(config(sink))
    assert word in caught.value.message


@pytest.mark.parametrize("sql", ["at <= now()", "rand() < 0.5", "id IN (SELECT id FROM known)"])
def test_a_record_is_good_or_bad_for_good(sql: str) -> None:
    with pytest.raises(ConfigurationError, match=r"require: .* may give another value each time"):
        parse(config(require=sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, current_timestamp() AS loaded_at FROM records",
        "SELECT uuid() AS row, id FROM records",
        "SELECT * FROM records WHERE at > now() - INTERVAL 7 DAYS",
        "SELECT * FROM records WHERE day >= CAST('today' AS DATE)",
    ],
)
def test_a_row_is_made_of_its_record_alone(sql: str) -> None:
    with pytest.raises(ConfigurationError, match=r"transform: .* may give another value .* DESCRIBE HISTORY"):
        parse(config(transform=sql))


@pytest.mark.parametrize(
    "condition",
    [
        "day < CAST('today' AS DATE)", "day < try_cast('today' AS DATE)", "to_date('today') > day", "'now' >= at",
        "CAST('now' AS TIMESTAMP) > at", "DATE('today') > day", "timestamp('now') = at", 'to_timestamp_ntz("now") > x',
        "day >= 'yesterday'", "'now'::timestamp > at", "at<'now'", "day BETWEEN '2026-01-01' AND 'today'",
        "'today' BETWEEN a AND b", "day NOT BETWEEN 'yesterday' AND last", "date_diff('today', day) < 3",
        "at < TIMESTAMP 'now Europe/Berlin'",
    ],
)  # fmt: skip
def test_texts_that_stand_for_today_are_no_times(condition: str) -> None:
    with pytest.raises(ConfigurationError, match="may give another value each time"):
        parse(config(require=condition))


@pytest.mark.parametrize(
    "condition",
    [
        "status = 'now'", "status <> 'now'", "'now' <=> status", "status <=> 'today'", "status IN ('now', 'today')",
        "exists(states, each -> 'now' = each)", "transform(states, each -> 'now') = states", "name > 'nowhere'",
        "day < CAST('epoch' AS DATE)", "day > '2026-01-01' AND status = 'now'", "n BETWEEN 1 AND 2 AND status = 'now'",
        "CASE WHEN n > 1 THEN 'today' ELSE 'now' END = status", "day < other -- < 'now'", "said = \"it's < 'now'\"",
        "records.current_date > day",
    ],
)  # fmt: skip
def test_texts_may_be_now(condition: str) -> None:
    assert parse(config(require=condition)).require == condition


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.* FROM records a JOIN records b ON a.id = b.id",
        "SELECT a.* FROM records AS a, records AS b WHERE a.id = b.id",
        "SELECT *, (SELECT max(id) FROM records) AS m FROM records",
        "SELECT * FROM records WHERE id IN (SELECT id FROM `records`)",
        "SELECT a.* FROM records a JOIN (records) b ON a.id = b.id",
        "SELECT a.* FROM records a, other o, records b",
        "SELECT a.* FROM records a, LATERAL explode(a.x) e, records b",
        "SELECT a.* FROM (SELECT * FROM records) AS a, records AS b",
        "SELECT * FROM records r WHERE NOT EXISTS (SELECT 1 FROM records n WHERE n.id = r.id AND n._offset > 1)",
    ],
)
def test_a_transform_reads_the_records_once(sql: str) -> None:
    with pytest.raises(ConfigurationError, match="records may be read once"):
        parse(config(transform=sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT r.id, records FROM (SELECT *, n AS records FROM records) AS r",
        "SELECT id, records.n FROM records",
        "SELECT id, extract(YEAR FROM records.at) AS y, trim(BOTH ' ' FROM records.name) AS name FROM records",
        "SELECT id, records, n FROM records WHERE records > 0",
        "SELECT id, e.* FROM records, LATERAL explode(x) e",
        "SELECT id, explode(array(n, 1)) AS n FROM records",
        "SELECT *, 'FROM records' AS said FROM records -- FROM records",
        "SELECT *, 'current_date' AS said, now, version AS uuid FROM (SELECT * FROM records)",
    ],
)
def test_a_transform_may_say_records_elsewhere(sql: str) -> None:
    assert parse(config(transform=sql)).transform == sql


def test_a_pipeline_has_one_event_time() -> None:
    windows = {**SUM, "window": {"size": "1 hour", "time": "at"}}
    assert parse(config(windows, event_time="at")).clock == "at"
    assert parse(config(windows)).clock == "at"
    for sink in ({**windows, "window": {"size": "1 hour"}}, {**windows, "window": {"gap": "1 hour", "time": "_x"}}):
        with pytest.raises(ConfigurationError, match=r"event_time: is at, and window\.time is _"):
            parse(config(sink, event_time="at"))


def test_sessions_need_a_guard_that_idempotent_delivery_lacks() -> None:
    sessions = {**SUM, "window": {"gap": "1 hour"}}
    parse(config(sessions))
    with pytest.raises(ConfigurationError, match=r"window\.gap doesn't work with delivery: idempotent"):
        parse(config(sessions, delivery="idempotent"))
