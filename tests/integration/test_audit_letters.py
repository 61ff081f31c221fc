"""The auditor where bad records are set aside: rows + letters = records, and every damage to either is found."""

from __future__ import annotations

import io
import shutil
from typing import Any

import pytest
from audits import counts, places, verify
from conftest import Lake, Topic
from kafka import KafkaProducer
from rich.console import Console

from connector.audit import show

TWICE = b'{"k": "x", "n": 1}{"k": "y", "n": 2}'


def setting_aside(lake: Lake, kind: str = "letters", **changes: Any) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path(kind))}, **changes}


def send(topic: Topic, *records: tuple[bytes | None, bytes | None]) -> None:
    """Key, value; each with headers of one name; into partition 0."""
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for key, value in records:
        producer.send(topic.name, value, key, headers=[("h", b"\xff1"), ("h", b"\xfe"), ("i", b"")], partition=0)
    producer.close()


def test_every_damage_to_rows_and_letters_is_counted_with_its_coordinates(lake: Lake, topic: Topic) -> None:
    send(
        topic, (b"a", b'{"k": "a", "n": 1}'), (None, b"{"), (b"c", None), (b"d", b'{"k": "d", "n": -1}'),
        (b"e", b'{"k": "e", "n": 4}'), (b"f", b'{"k": "f", "n": "many"}'), (None, b'{"k": "g", "n": 6}'),
        (b"h", b'{"k": "h"}'), (b"i", TWICE), (b"\xff", b'{"k": "j", "n": 9}'), (b"k", b'{"k": "k\xff", "n": 10}'),
        (b"l", b'{"k": "l", "n": 11}'),
    )  # fmt: skip
    options = setting_aside(lake, require="n >= 0", key={"format": "string"}, headers=True)
    lake.pipeline(**options).run()
    exact = verify(lake, **options)
    assert counts(exact) == {"expected": 4, "found": 4, "records": 12, "letters": 8, "letters_unconfirmed": 1}
    assert str(exact) == "exact: 4 expected, 4 found; 12 records = 4 rows + 8 dead letters"
    assert places(exact) == {"letters_unconfirmed": (0, 8)}
    damages = {
        "letters": [
            "DELETE FROM {t} WHERE _offset IN (1, 2)",
            "INSERT INTO {t} SELECT t.* FROM {t} t, VALUES (1), (2) WHERE _offset = 3",
            "UPDATE {t} SET value = CASE _offset WHEN 5 THEN CAST('{' AS BINARY) ELSE value END, "
            "headers = CASE _offset WHEN 7 THEN reverse(headers) ELSE headers END",
            # Of a record that is right, of none, of somebody else, and of an epoch that was never committed.
            "INSERT INTO {t} (pipeline, sink, epoch, reason, detail, key, value, headers, window_start, window_end, "
            "_topic, _partition, _offset, _timestamp, _noted_at) "
            "SELECT i.pipeline, sink, epoch, 'rule', detail, key, value, headers, window_start, "
            "window_end, i.topic, i.p, i.o, _timestamp, _noted_at FROM {t}, VALUES ('append', 'nowhere', 0, 3L), "
            f"('other', 'nowhere', 0, 3L), ('append', '{topic.name}', 0, 6L), ('append', '{topic.name}', 0, 400L) "
            "AS i(pipeline, topic, p, o) WHERE _offset = 9",
        ],
        "append": [
            "DELETE FROM {t} WHERE _offset = 4",
            "UPDATE {t} SET _headers = map('h', X'31') WHERE _offset = 0",
            "UPDATE {t} SET _key = 'another' WHERE _offset = 11",
            f"INSERT INTO {{t}} (k, n, _topic, _partition, _offset) VALUES ('k', 10, '{topic.name}', 0, 10L)",
        ],
    }  # fmt: skip
    for kind, texts in damages.items():
        for text in texts:
            lake.sql(text, kind)
    found = verify(lake, **options)
    assert counts(found) == {
        "expected": 4, "found": 1, "lost": 1, "altered": 2, "unexpected": 1, "records": 12, "letters": 4,
        "letters_lost": 2, "letters_duplicated": 2, "letters_altered": 2, "letters_unexpected": 2,
        "letters_unconfirmed": 1, "letters_ahead": 1,
    }  # fmt: skip
    assert places(found) == {
        "lost": (0, 4), "altered": (0, 0), "unexpected": (0, 10), "letters_lost": (0, 1), "letters_duplicated": (0, 3),
        "letters_altered": (0, 5), "letters_unexpected": (0, 6), "letters_unconfirmed": (0, 8),
        "letters_ahead": (0, 400),
    }  # fmt: skip
    written = io.StringIO()
    show(found, Console(file=written, width=250))
    assert "first letters lost (the record isn't right, and is not among the dead letters)" in written.getvalue()
    assert written.getvalue().splitlines()[-1].endswith("; 4 expected, 1 found; 12 records, 4 dead letters")


def test_letters_in_a_topic_are_not_audited_and_the_rows_are(lake: Lake, topic: Topic) -> None:
    letters = f"letters-{topic.name}"
    topic.broker.create_topic(letters, 1)
    options: dict[str, Any] = {
        "on_bad_record": "dead_letter", "dead_letters": {"topic": letters}, "require": "n >= 0",
    }  # fmt: skip
    send(topic, (None, b'{"k": "a", "n": 1}'), (None, b"{"), (None, b'{"k": "d", "n": -1}'), (b"e", None))
    lake.pipeline(**options).run()
    found = verify(lake, **options)
    assert str(found) == "exact: 1 expected, 1 found"
    assert found.notes[0].startswith(f"The dead letters are in topic {letters}, and aren't audited.")
    # The pipeline refuses this record, and the auditor reads it.
    send(topic, (None, TWICE))
    lake.pipeline(**options).run()
    found = verify(lake, **options)
    assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 2, "found": 1, "doubtful": 1})


@pytest.mark.breadth
def test_letters_of_a_table_that_was_moved_since_are_its_letters(lake: Lake, topic: Topic) -> None:
    send(topic, (b"a", b'{"k": "a", "n": 1}'), (b"b", b'{"n": 2}'))
    lake.pipeline("upsert", **setting_aside(lake)).run()
    shutil.copytree(lake.path("upsert"), lake.folder / "archive" / "customers")
    moved = setting_aside(lake, sink={"path": str(lake.folder / "archive" / "customers")})
    found = verify(lake, "upsert", **moved)
    assert str(found) == "exact: 1 expected, 1 found; 2 records = 1 row + 1 dead letter"


PERMISSIVE = {"format": "json", "mode": "permissive", "schema": "k STRING, n INT, d DECIMAL(9,2), l ARRAY<INT>"}
RULE = "coalesce(n, 0) >= 0"
SEVERAL = "SELECT k, each FROM records LATERAL VIEW OUTER explode(array(n, if(n = 7, NULL, 0))) AS each"
KINDS: dict[str, dict[str, Any]] = {
    "history": {
        "value": PERMISSIVE, "require": RULE, "key": {"format": "json", "schema": "k STRING"},
        "sink": {"key": "k", "sequence_by": "n"},
    },
    "aggregate": {
        "value": PERMISSIVE, "require": RULE, "key": {"format": "bytes"},
        "sink": {"group_by": ["k"], "aggregates": {"sum_n": "sum(n)", "keys": "count(_key)"}},
    },
    "append": {
        "value": PERMISSIVE, "require": RULE, "transform": SEVERAL,
        "sink": {"type": "delta_upsert", "key": ["k", "each"]},
    },
    "upsert": {"value": {"format": "string"}, "key": {"format": "string"}, "headers": True, "sink": {"key": "_key"}},
}  # fmt: skip


@pytest.mark.breadth
def test_what_was_set_aside_for_once_is_not_called_lost_without_a_word(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 0), ("b", -1), ("c", 2)], partition=0)
    lake.pipeline(**setting_aside(lake, require="n >= 0")).run()
    found = verify(lake, require="n >= 0")
    assert counts(found) == {"expected": 3, "found": 2, "lost": 1}
    assert any("give verify the same" in note for note in found.notes)


@pytest.mark.breadth
def test_a_record_has_a_letter_of_each_reason_that_its_rows_have(lake: Lake, topic: Topic) -> None:
    send(topic, (None, b'{"k": "a", "n": 1}'), (None, b'{"k": "b", "n": 2}'), (None, b'{"k": "c", "n": 7}'))
    two = "SELECT IF(n > 1 AND each = 0, NULL, k) AS k, IF(n = 7 AND each = 1, NULL, n) AS n, each FROM records "
    options = setting_aside(
        lake, transform=two + "LATERAL VIEW explode(array(0, 1)) AS each",
        sink={"key": ["k", "each"], "sequence_by": "n"},
    )  # fmt: skip
    lake.pipeline("upsert", **options).run()
    reasons = "SELECT _offset, reason FROM {t} ORDER BY ALL"
    assert lake.sql(reasons, "letters") == [(1, "no_key"), (2, "no_key"), (2, "no_sequence")]
    found = verify(lake, "upsert", **options)
    assert str(found) == "exact: 2 expected, 2 found; 3 records = 1 for the table + 2 dead letters"
    # A retry with the same file finds the same reasons, and a letter that it has no more, or twice, is mended.
    for damage in (
        "SELECT 1",
        "UPDATE {t} SET reason = 'no_sequence' WHERE _offset = 2",
        "DELETE FROM {t} WHERE _offset = 2 AND reason = 'no_key'",
        "UPDATE {t} SET reason = 'unfit' WHERE _offset = 1",
    ):
        lake.sql(damage, "letters")
        assert lake.pipeline("upsert", **options).retry_dead_letters().through == 0
        assert lake.sql(reasons, "letters") == [(1, "no_key"), (2, "no_key"), (2, "no_sequence")]
        assert str(verify(lake, "upsert", **options)) == str(found)
    columns = "pipeline, sink, key, value, headers, _topic, _partition, _offset, _timestamp"
    for offset in (1, 2):  # the first has another reason than its row, and the second is a copy
        copied = f"SELECT DISTINCT 'no_sequence', {columns} FROM {{t}} WHERE _offset = {offset}"
        lake.sql(f"INSERT INTO {{t}} (reason, {columns}) {copied}", "letters")
    assert counts(verify(lake, "upsert", **options))["letters_duplicated"] == 2
    lake.sql("DELETE FROM {t} WHERE _offset = 2 AND reason = 'no_key'", "letters")
    damaged = counts(verify(lake, "upsert", **options))
    assert (damaged["letters_lost"], damaged["letters_duplicated"]) == (1, 2)


EXACT = {
    "history": "exact: 4 expected, 4 found; 10 records = 4 rows + 6 dead letters",
    "aggregate": "exact: 4 expected, 4 found; 10 records = 6 for the table + 4 dead letters",
    "append": "exact: 5 expected, 5 found; 10 records = 3 for the table + 7 dead letters",
    "upsert": "exact: 2 expected, 2 found; 10 records = 9 for the table + 1 dead letter",
}


@pytest.mark.breadth
@pytest.mark.parametrize("kind", EXACT)
def test_tables_of_every_kind_leave_out_what_is_set_aside(kind: str, lake: Lake, topic: Topic) -> None:
    a, b, c = (b'{"k": "%s"}' % name for name in (b"a", b"b", b"c"))
    send(
        topic, (a, b"{'k': 'a', n: '1', d: '1.50'}"), (b, b'{"k": "b", "n": "02"}'), (c, b'{"k": "c", "n": "two"}'),
        (c, b'{"n": 4}'), (a, b'{"k": "a", "n": 5.0, "l": ["5", 6]}'), (b, None), (a, b"\xff"),
        (c, b'{"k": "c", "n": 7}'), (c, b'{"k": "c", "n": -8}'), (c, b'{"k": "c", "l": [1]}'),
    )  # fmt: skip
    options = setting_aside(lake, **KINDS[kind])
    lake.pipeline(kind, **options).run()
    assert str(verify(lake, kind, **options)) == EXACT[kind]
    if kind != "append":
        return
    lake.sql("DELETE FROM {t} WHERE _offset IN (2, 7, 8)", "letters")
    found = verify(lake, kind, **options)
    assert (counts(found)["letters_lost"], places(found)["letters_lost"]) == (3, (0, 2))
    assert (found.totals["expected"], found.totals["found"]) == (5, 5)
