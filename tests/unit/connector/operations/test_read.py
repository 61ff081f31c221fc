"""A session of a reader may compute what Delta fills otherwise than a fold in a run's session."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType, TimestampNTZType, TimestampType

from connector.config import parse
from connector.operations import read
from sinks.delta.shape import ZONE, Shape

FOLDED, UNFOLDED = "SELECT * FROM delta.`t` VERSION AS OF 3", "SELECT\n  t.`k`\nFROM t"
BERLIN = "Europe/Berlin"
DAY = {"day": "CAST(at AS DATE)"}
COLUMNS = (
    StructType().add("k", StringType()).add("at", TimestampType()).add("n", IntegerType()).add("w", TimestampNTZType())
)


def told(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    *,
    session: str,
    of_rows: str | None,
    generated: dict[str, str] = DAY,
    defaults: dict[str, str] | None = None,
    rows: str = UNFOLDED,
    in_file: str | None = None,
) -> str:
    """What a read of the table says. ``of_rows``: the zone that the table remembers."""
    properties = Shape("orders", texts={"key": "k", ZONE: of_rows} if of_rows else {"key": "k"}).properties
    detail = SimpleNamespace(generated=generated, defaults=defaults or {}, properties=properties)
    table = SimpleNamespace(detail=lambda: detail, label="lake/orders", schema=COLUMNS)
    monkeypatch.setattr(read, "DeltaTable", lambda *_, **__: table)
    monkeypatch.setattr(read, "commits_of", lambda *_: None)
    monkeypatch.setattr(read, "reading_of", lambda *_: SimpleNamespace(live_sql=lambda: rows))
    config = parse(
        {
            "name": "orders",
            "source": {"topics": "orders", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "k STRING, at TIMESTAMP"},
            "sinks": [{"type": "delta_upsert", "path": "lake/orders", "key": "k", "merge": "on_read"}],
            "spark": {ZONE: in_file} if in_file else {},
        }
    )
    spark: Any = SimpleNamespace(conf={ZONE: session, "spark.sql.ansi.enabled": "true"})
    assert read._rows_sql(config, spark) == rows
    return "\n".join(caplog.messages)


@pytest.mark.parametrize(("session", "of_rows"), [(BERLIN, "UTC"), ("UTC", BERLIN), (BERLIN, "Etc/UTC")])
def test_a_reader_is_told_if_its_session_fills_columns_otherwise_than_a_fold(
    session: str, of_rows: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = told(caplog, monkeypatch, session=session, of_rows=of_rows)
    zone = of_rows.removeprefix("Etc/")
    assert f"in day than the fold will store: this session's time zone is {session}, and" in said
    assert f"spark.conf.set({json.dumps(ZONE)}, {json.dumps(zone)})" in said


@pytest.mark.parametrize(
    ("session", "of_rows", "in_file"),
    [
        (BERLIN, BERLIN, None),  # the runs work in a session of the user's
        (BERLIN, BERLIN, "UTC"),
        (BERLIN, None, None),  # nobody knows the runs' zone
        ("Etc/UTC", "UTC", None),
        ("+00:00", "UTC", None),
        ("UTC", "GMT", None),
    ],
)
def test_a_reader_is_told_nothing_where_its_zone_is_that_of_the_runs(
    session: str,
    of_rows: str | None,
    in_file: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert told(caplog, monkeypatch, session=session, of_rows=of_rows, in_file=in_file) == ""


@pytest.mark.parametrize(
    ("generated", "defaults", "rows"),
    [
        (DAY, {}, FOLDED),
        ({}, {}, UNFOLDED),
        ({"twice": "n * 2"}, {}, UNFOLDED),
        ({"text": "CAST(w AS STRING)"}, {}, UNFOLDED),
        ({}, {"status": "'new'", "n": "0", "x": "NULL", "y": "true", "kind": "'overtime'"}, UNFOLDED),
        ({}, {"made": "current_timestamp()", "seen": "CURRENT_TIMESTAMP", "then": "now()"}, UNFOLDED),
    ],
)
def test_a_reader_is_told_nothing_of_columns_that_no_zone_changes(
    generated: dict[str, str],
    defaults: dict[str, str],
    rows: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = told(caplog, monkeypatch, session=BERLIN, of_rows="UTC", generated=generated, defaults=defaults, rows=rows)
    assert said == ""


@pytest.mark.parametrize("sql", ["hour(at)", "CAST(`at` AS STRING)", "to_timestamp(k)", "CAST(now() AS DATE)"])
def test_what_a_zone_may_change_is_named(
    sql: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = told(
        caplog, monkeypatch, session=BERLIN, of_rows="UTC", generated={"g": sql}, defaults={"d": "current_date()"}
    )
    assert "in g, d than" in said
