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


@pytest.mark.parametrize(
    "sql",
    ["at <= now()", "rand() < 0.5", "id IN (SELECT id FROM known)", "id IN (TABLE known)", "EXISTS (FROM known)"],
)
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


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT r.*, k.name FROM records r JOIN known k ON r.id = k.id", "known"),
        ("SELECT r.* FROM records r LEFT OUTER JOIN lake.shop.`the known` k USING (id)", "lake.shop.the known"),
        ("SELECT * FROM records WHERE id IN (SELECT id FROM known)", "known"),
        ("SELECT * FROM records WHERE id IN (TABLE known)", "known"),
        ("SELECT * FROM records WHERE EXISTS (FROM known SELECT 1)", "known"),
        ("SELECT *, (SELECT max(id) FROM delta.`/lake/known` VERSION AS OF 3) AS m FROM records", "delta./lake/known"),
        ("SELECT * FROM records r, known k WHERE r.id = k.id", "known"),
        ("SELECT * FROM records r CROSS JOIN (known) k", "known"),
        ("SELECT * FROM (records CROSS JOIN (SELECT * FROM known) AS k)", "known"),
        ("SELECT * FROM records, LATERAL (SELECT * FROM known WHERE id = records.id)", "known"),
        ("SELECT * FROM records, IDENTIFIER('known')", "IDENTIFIER()"),
        ("SELECT * FROM records, read_files('/lake')", "read_files()"),
        ("SELECT * FROM records, `explode`.known", "explode.known"),
        ("SELECT * FROM records, VALUES (1), (2) AS v(n), known", "known"),
        ("SELECT * FROM records, VALUES 1, 2 v, known", "known"),
        ("SELECT * FROM records, values v", "values"),
        ("SELECT * FROM (WITH k AS (SELECT id FROM known) SELECT r.* FROM records r JOIN k)", "known, k"),
        ("SELECT * FROM records |> JOIN known USING (id)", "known"),
        ("SELECT extract(YEAR FROM (SELECT max(at) FROM known)) AS y FROM records", "known"),
        ("SELECT *, 'FROM records' AS said FROM records -- JOIN other\n JOIN /* FROM */ known", "known"),
        ('SELECT * FROM records JOIN "known"', "known"),
        ("SELECT * FROM records, spark_catalog.default.records", "spark_catalog.default.records"),
    ],
)
def test_a_transform_reads_nothing_but_the_records(sql: str, read: str) -> None:
    with pytest.raises(ConfigurationError, match="beside records") as caught:
        parse(config(transform=sql))
    assert f"transform: reads {read} beside records" in caught.value.message


@pytest.mark.parametrize("sql", ["WITH k AS (SELECT 1) SELECT * FROM records", "SELECT 1 AS records FROM known"])
def test_a_transform_begins_with_select_and_reads_the_records(sql: str) -> None:
    with pytest.raises(ConfigurationError, match="write one SELECT"):
        parse(config(transform=sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, a, b FROM records LATERAL VIEW OUTER explode(x) t AS a, b WHERE a > 1",
        "SELECT * FROM records LATERAL VIEW explode(x) t AS a LATERAL VIEW posexplode(y) u AS b, c",
        "SELECT * FROM records r JOIN LATERAL inline(r.x) e ON true",
        "SELECT r.*, v.name FROM records AS r LEFT JOIN VALUES (1, 'a'), (2, 'b') AS v(id, name) ON r.id = v.id",
        "SELECT * FROM records r JOIN (VALUES (1), (2)) v(id) USING (id)",
        "SELECT * FROM records, VALUES NULL, array(1, n), DATE '2026-11-01'",
        "SELECT * FROM (SELECT * FROM (SELECT * FROM records WHERE n > 1) AS a) AS b",
        "SELECT * FROM records r, LATERAL (SELECT r.n + 1 AS more, 2 AS two)",
        "SELECT from, to, n AS table, records.join FROM records WHERE from IS NOT NULL AND from > to",
        "SELECT substring(name FROM 2 FOR 3) AS s, overlay(name PLACING 'x' FROM 2) AS o FROM records",
        "SELECT *, 'x JOIN known' AS said FROM records ORDER BY id, n",
        "SELECT * FROM RECORDS AS r (a, b, c)",
        "SELECT id, (SELECT max(e) FROM explode(x) AS t(e)) AS most FROM `records`",
    ],
)
def test_a_transform_may_make_rows_of_the_record_itself(sql: str) -> None:
    assert parse(config(transform=sql)).transform == sql


@pytest.mark.parametrize(
    "condition", ["from IS NOT NULL", "from > to", "table = 1", "join IN ('a', 'b')", "extract(YEAR FROM at) > 2020"]
)
def test_columns_may_have_the_names_of_keywords(condition: str) -> None:
    assert parse(config(require=condition)).require == condition


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
