"""Which words of a ``transform`` say that it means to leave deletes out. All others are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import DeltaUpsertSink, parse
from connector.config.transform_sql import condition_names
from connector.derive.changes import check_expressions
from connector.engine import transformed_deletes
from connector.engine.transformed_deletes import refuse_lost_deletes
from sinks.errors import ConfigurationError

UPSERT: dict[str, Any] = {"type": "delta_upsert", "path": "lake/t", "key": "id", "sequence_by": "_source_position"}
COLUMNS = ["id", "amount", "_op", "_source_position", "_tombstone"]


def refused(sql: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What an error says of a SELECT that no delete gets through."""
    config = parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT, amount INT"},
            "sinks": [UPSERT],
            "transform": sql,
        }
    )
    frame = SimpleNamespace(columns=COLUMNS)
    decode: Any = SimpleNamespace(decode=lambda _: frame, shape=lambda _: frame)
    monkeypatch.setattr(transformed_deletes, "_passes", lambda *_, **__: False)
    try:
        refuse_lost_deletes(config, config.sinks[0], decode, frame)  # type: ignore[arg-type]
    except ConfigurationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT id, _op, date_format(at, 'd') AS day FROM records WHERE NOT _tombstone AND amount > 0", "events"),
        ("SELECT id, _op, _tombstone AS gone FROM records WHERE amount > 0", "leaves out tombstones"),
        ("SELECT id, _op FROM records WHERE amount > 0 -- no _tombstone, _op <> 'd'", "leaves out tombstones"),
        ("SELECT id, _op FROM records WHERE _tombstone OR _op = 'd' OR amount > 0", ""),
        ("SELECT id, _op, 'd' AS x FROM records WHERE _tombstone OR _op <> 't' AND amount > 0", "events"),
        ("SELECT id, _op FROM records WHERE NOT _tombstone AND _op NOT IN ('d', 't') AND amount > 0", ""),
        ("SELECT id, _op FROM records where id > 9 AND (`_tombstone` OR _OP IN ('d', 't') OR amount > 0)", ""),
    ],
)
def test_only_a_condition_says_what_becomes_of_deletes(sql: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert says in (said := refused(sql, monkeypatch))
    assert bool(says) == bool(said)


def test_truncates_that_are_left_out_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Few databases' events have any, and a file that lets deletes through goes on."""
    assert not refused("SELECT id, _op FROM records WHERE _tombstone OR _op = 'd' OR amount > 0", monkeypatch)
    (warning,) = caplog.messages
    assert "leaves out truncates" in warning
    assert "WHERE _op IN ('d', 't') OR (...)" in warning
    assert "write sinks[0].apply_as_truncates: 'false'" in warning
    caplog.clear()
    assert not refused("SELECT id, _op FROM records WHERE _tombstone OR _op IN ('d', 't') OR amount > 0", monkeypatch)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT * FROM (SELECT * FROM records WHERE _op = 'd') WHERE true", True),
        ('SELECT * FROM records WHERE _op = "d"', True),
        ("SELECT * FROM records WHERE my_op = 'd'", False),
        ("SELECT 'WHERE', _op = 'd' FROM records", False),
        ("SELECT * FROM records /* WHERE _op = 'd' */", False),
    ],
)
def test_a_condition_begins_with_where(sql: str, named: bool) -> None:
    assert condition_names(sql, "_op", "d") == named


@pytest.mark.parametrize("condition", ["my_op = 'x'", "stop_op = 1", "kind = '_op'"])
def test_a_column_with_a_longer_name_says_nothing_about_what_the_database_deletes(condition: str) -> None:
    sink = DeltaUpsertSink.model_validate({**UPSERT, "apply_as_deletes": condition})
    records: Any = SimpleNamespace(columns=COLUMNS)
    with pytest.raises(ConfigurationError, match="doesn't say what becomes of the rows that the database deletes"):
        check_expressions(records, sink)
