"""A session of a reader may compute what Delta fills otherwise than a fold in a run's session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import parse
from connector.operations import read
from connector.spark.row_settings import ALWAYS

ZONE, ANSI = ALWAYS
FOLDED, UNFOLDED = "SELECT * FROM delta.`t` VERSION AS OF 3", "SELECT\n  t.`k`\nFROM t"


@pytest.mark.parametrize(
    ("of_runs", "session", "generated", "rows", "asked"),
    [
        ({}, {ZONE: "Europe/Berlin"}, True, UNFOLDED, [f'spark.conf.set("{ZONE}", "UTC")']),
        ({}, {ANSI: "false"}, True, UNFOLDED, [f'spark.conf.set("{ANSI}", "true")']),
        ({ZONE: "Europe/Berlin"}, {}, True, UNFOLDED, [f'spark.conf.set("{ZONE}", "Europe/Berlin")']),
        ({}, {}, True, UNFOLDED, []),
        ({}, {ZONE: "Europe/Berlin"}, False, UNFOLDED, []),
        ({}, {ZONE: "Europe/Berlin"}, True, FOLDED, []),
    ],
)
def test_a_reader_is_told_if_its_session_fills_columns_otherwise_than_a_fold(
    of_runs: dict[str, str],
    session: dict[str, str],
    generated: bool,
    rows: str,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {ZONE: "UTC", ANSI: "true", **session}
    detail = SimpleNamespace(generated={"day": "CAST(at AS DATE)"} if generated else {}, defaults={})
    table = SimpleNamespace(detail=lambda: detail, label="lake/orders")
    monkeypatch.setattr(read, "DeltaTable", lambda *_, **__: table)
    monkeypatch.setattr(read, "commits_of", lambda *_: None)
    monkeypatch.setattr(read, "reading_of", lambda *_: SimpleNamespace(live_sql=lambda: rows))
    config = parse(
        {
            "name": "orders",
            "source": {"topics": "orders", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "k STRING, at TIMESTAMP"},
            "sinks": [{"type": "delta_upsert", "path": "lake/orders", "key": "k", "merge": "on_read"}],
            "spark": of_runs,
        }
    )
    spark: Any = SimpleNamespace(conf=settings)
    assert read._rows_sql(config, spark) == rows
    assert [each for each in asked if each in caplog.text] == asked
    assert bool(caplog.records) == bool(asked)
    assert ("day" in caplog.text) == bool(asked)
