"""Whether SQL over a time depends on the session's time zone."""

from __future__ import annotations

import pytest

from connector.config.transform_sql import computes_with


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (_timestamp)::string AS x FROM records",
        "SELECT k, (_timestamp)::string AS x FROM records",
        "SELECT DISTINCT (_timestamp) || '' AS x FROM records",
        "SELECT (_timestamp) > '2020' AS x FROM records",
        "SELECT nvl(_timestamp, _timestamp)::string AS x FROM records",
        "SELECT k, named_struct('at', _timestamp)::string AS x FROM records",
        "SELECT k, nvl(_timestamp, 'none') AS x FROM records",
        "SELECT k, coalesce((_timestamp), ('2020')) AS x FROM records",
        "unix_micros(coalesce(_timestamp, '2020-01-01'))",
        "unix_micros(greatest(_timestamp, DATE '2026-01-01'))",
        "date_format(_timestamp, 'yyyy')",
    ],
)
def test_what_becomes_of_a_time_by_the_zone(sql: str) -> None:
    assert computes_with(sql, {"_timestamp"})


@pytest.mark.parametrize(
    "sql",
    [
        "_timestamp",
        "struct(_timestamp, n)",
        "coalesce(_timestamp, at)",
        "unix_millis(_timestamp) + 5",
        "unix_micros(nvl(_timestamp, at))",
        "SELECT k, (_timestamp) FROM records",
        "SELECT (k), n, named_struct('at', _timestamp) AS s FROM records",
        "SELECT * EXCEPT (_timestamp) FROM records",
        "SELECT 'x' AS t, coalesce(_timestamp, at) AS at FROM records",
    ],
)
def test_what_is_the_same_in_every_zone(sql: str) -> None:
    assert not computes_with(sql, {"_timestamp"})
