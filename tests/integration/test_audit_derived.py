"""The auditor of derived tables. These are made by hand, row by row, as the rules say: exact ones are exact, and every
damage is counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from audits import CHANGES, change, counts, group_offsets, make, places, verify
from conftest import Lake, Topic


@pytest.mark.breadth
def test_a_record_that_makes_several_rows_is_compared_with_all_of_them(lake: Lake, topic: Topic) -> None:
    lines = ("to be or not to be", "never", "a a a", "to", "drop me", "x y")
    topic.send(*((None, {"line": line}) for line in lines), partition=0)
    words = "explode(split(line, ' ')) AS word"
    sql = f"-- words\n SELECT /*+ COALESCE(1) */ {words} FROM records WHERE line NOT LIKE 'drop%'"
    options = {"schema": "line STRING", "transform": sql}
    lake.pipeline(**options).run()
    assert str(verify(lake, **options)) == "exact: 13 expected, 13 found"
    for damage in (
        "DELETE FROM {t} WHERE word = 'be'",  # both, of offset 0
        "INSERT INTO {t} SELECT * FROM {t} WHERE word IN ('never', 'or')",
        "UPDATE {t} SET word = 'b' WHERE word = 'a'",
        "INSERT INTO {t} SELECT 'me', _topic, _partition, 4, _timestamp FROM {t} WHERE word = 'never' LIMIT 1",
    ):
        lake.sql(damage)
    found = verify(lake, **options)
    # Of offset 0, the second "or" stands where one of the two that were lost should be.
    assert counts(found) == {
        "expected": 13, "found": 8, "lost": 1, "altered": 4, "duplicated": 1, "unexpected": 1,
    }  # fmt: skip
    assert places(found) == {"lost": (0, 0), "altered": (0, 0), "duplicated": (0, 1), "unexpected": (0, 4)}


@pytest.mark.breadth
def test_an_upsert_by_sequence_with_deletes_and_truncates(lake: Lake, topic: Topic) -> None:
    topic.send(
        change("a", 15, 1), change("b", 11, 1), change("b", 12, op="D"), change("c", 12, op="D"), change("c", 14, 3),
        change("d", 15, 1), change("e", 9, 1), change("f", 16, 1), ("f", None), change("g", 5, op="D"),
        partition=0,
    )  # fmt: skip
    topic.send(
        change("a", 13, 2), change("b", 11, 2), change("d", 15, 2), change("z", 10, op="T"), change("h", 10, 1),
        ('"i"', {"k": "i", "n": 7, "s": 20}), ('{"k":"j"}', {"k": "j", "n": 7, "s": 20}), ('"i"', None),
        ('{"k":"j"}', None), change("k", 20, 9),
        partition=1,
    )  # fmt: skip
    options = {
        "schema": CHANGES,
        "sink": {
            "sequence_by": "coalesce(s, 100)", "apply_as_deletes": "op = 'D'", "apply_as_truncates": "op = 'T'",
            "except_column_list": ["op", "note", "s"],
        },
    }  # fmt: skip
    make(
        lake, "upsert", "k STRING, n INT, _sequence INT, _partition INT, _offset LONG",
        ("a", 1, 15, 0, 0), ("c", 3, 14, 0, 4), ("d", 2, 15, 1, 2), ("h", 1, 10, 1, 4), ("k", 9, 20, 1, 9),
        upto={"0": 10, "1": 10},
    )  # fmt: skip
    assert str(verify(lake, "upsert", **options)) == "exact: 5 expected, 5 found"
    for damage in (
        "UPDATE {t} SET n = 2, _sequence = 13, _partition = 1, _offset = 0 WHERE k = 'a'",
        "DELETE FROM {t} WHERE k = 'c'",
        "UPDATE {t} SET n = NULL WHERE k = 'k'",
    ):
        lake.sql(damage, "upsert")
    names = {"k": "i.k", "n": "i.n", "_sequence": "i.s", "_partition": "i.p", "_offset": "i.o"}
    columns = ", ".join(names.get(name, f"t.{name}") for name in lake.frame("upsert").columns)
    more = "(1, 'e', 9, 0, 6L), (2, 'b', 11, 1, 1L), (7, 'i', 20, 1, 5L), (1, 'nobody', 9, 0, 6L) AS i(n, k, s, p, o)"
    lake.sql(f"INSERT INTO {{t}} SELECT {columns} FROM {{t}} t, VALUES {more} WHERE t.k = 'k'", "upsert")
    found = verify(lake, "upsert", **options)
    assert counts(found) == {
        "expected": 5, "found": 2, "lost": 1, "stale": 1, "altered": 1, "resurrected": 3, "unexpected": 1,
    }  # fmt: skip
    assert {kind: place.key for kind, place in found.first.items()} == {
        "lost": {"k": "c"}, "stale": {"k": "a"}, "altered": {"k": "k"}, "resurrected": {"k": "e"},
        "unexpected": {"k": "nobody"},
    }  # fmt: skip


@pytest.mark.breadth
def test_soft_deleted_rows_stay_with_the_values_of_their_latest_update(lake: Lake, topic: Topic) -> None:
    topic.send(
        change("a", 0, 1), change("b", 0, 1), ("b", None), change("c", 0, 1), change("c", 0, op="D", n=5),
        change("c", 0, 2), ("d", None), change("e", 0, 1),
        partition=0,
    )  # fmt: skip
    sink = {"deletes": "soft", "apply_as_deletes": "op = 'D'", "column_list": ["k", "n"]}
    options = {"schema": CHANGES, "sink": sink}
    make(
        lake, "upsert", "k STRING, n INT, _deleted BOOLEAN, _partition INT, _offset LONG",
        ("a", 1, False, 0, 0), ("b", 1, True, 0, 1), ("c", 2, False, 0, 5), ("d", None, True, None, None),
        ("e", 1, False, 0, 7),
        upto={"0": 8, "1": 0},
    )  # fmt: skip
    assert str(verify(lake, "upsert", **options)) == "exact: 5 expected, 5 found"
    for damage in (
        "UPDATE {t} SET _deleted = NOT _deleted WHERE k IN ('a', 'b')",
        "DELETE FROM {t} WHERE k = 'e'",
        "UPDATE {t} SET n = 1 WHERE k = 'd'",
    ):
        lake.sql(damage, "upsert")
    found = verify(lake, "upsert", **options)
    assert counts(found) == {"expected": 5, "found": 1, "lost": 1, "altered": 2, "resurrected": 1}


@pytest.mark.breadth
def test_nulls_that_are_ignored_keep_the_value_before_them_but_none_from_before_a_delete(
    lake: Lake, topic: Topic
) -> None:
    topic.send(
        change("a", 1, 1, note="x"), change("a", 2, 2), change("a", 3),
        change("b", 1, 1, note="x"), change("b", 2, op="D"), change("b", 3),
        change("c", 5, 5), change("c", 4, 4, note="late"),
        partition=0,
    )  # fmt: skip
    shape = "k STRING, n INT, note STRING, _sequence INT, _partition INT, _offset LONG"
    sink = {"sequence_by": "s", "apply_as_deletes": "op = 'D'", "column_list": ["k", "n", "note"]}
    every, some = ({"schema": CHANGES, "sink": {**sink, "ignore_null_updates": which}} for which in (True, ["note"]))
    make(
        lake, "upsert", shape,
        ("a", 2, "x", 3, 0, 2), ("b", None, None, 3, 0, 5), ("c", 5, "late", 5, 0, 6),
        upto={"0": 8, "1": 0},
    )  # fmt: skip
    assert str(verify(lake, "upsert", **every)) == "exact: 3 expected, 3 found"
    assert counts(verify(lake, "upsert", **some)) == {"expected": 3, "found": 2, "altered": 1}
    lake.sql("UPDATE {t} SET n = NULL WHERE k = 'a'", "upsert")
    assert str(verify(lake, "upsert", **some)) == "exact: 3 expected, 3 found"
    assert counts(verify(lake, "upsert", **every)) == {"expected": 3, "found": 2, "altered": 1}


@pytest.mark.breadth
def test_every_damage_to_a_history_is_counted_by_version(lake: Lake, topic: Topic) -> None:
    topic.send(
        change("a", 10, 1), change("a", 20, 2, note="x"), change("a", 30, 2, note="y"), change("a", 40, op="D"),
        change("a", 50, 2), change("b", 30, 3), change("b", 10, 1), change("b", 20, 1), change("b", 25, op="D"),
        change("c", 10, 1), change("c", 10, 2), change("d", 5, op="D"), change("a", 45, op="D"),
        partition=0,
    )  # fmt: skip
    sink = {
        "key": "k", "sequence_by": "s", "apply_as_deletes": "op = 'D'", "track_history_except_column_list": ["note"],
        "column_list": ["k", "n", "note"],
    }  # fmt: skip
    options = {"schema": CHANGES, "sink": sink}
    make(
        lake, "history",
        "k STRING, n INT, note STRING, `__START_AT` INT, `__END_AT` INT, _partition INT, _offset LONG",
        ("a", 1, None, 10, 20, 0, 0), ("a", 2, "y", 20, 40, 0, 1), ("a", 2, None, 50, None, 0, 4),
        ("b", 1, None, 10, 25, 0, 6), ("b", 3, None, 30, None, 0, 5), ("c", 2, None, 10, None, 0, 10),
        upto={"0": 13, "1": 0},
    )  # fmt: skip
    assert str(verify(lake, "history", **options)) == "exact: 6 expected, 6 found"
    for damage in (
        "UPDATE {t} SET `__END_AT` = NULL WHERE k = 'a' AND n = 1",
        "UPDATE {t} SET note = 'x' WHERE k = 'a' AND note = 'y'",
        "DELETE FROM {t} WHERE k = 'b' AND n = 3",
        "INSERT INTO {t} SELECT * FROM {t} WHERE k = 'c'",
        "UPDATE {t} SET _offset = 7 WHERE k = 'b'",
    ):
        lake.sql(damage, "history")
    found = verify(lake, "history", **options)
    assert counts(found) == {
        "expected": 6, "found": 2, "lost": 2, "altered": 2, "duplicated": 1, "unexpected": 1,
    }  # fmt: skip
    assert (found.first["altered"].offset, found.first["lost"].key) == (0, {"k": "b"})


@pytest.mark.breadth
def test_a_truncate_ends_what_is_current_and_what_its_snapshot_has_stays(lake: Lake, topic: Topic) -> None:
    topic.send(
        change("stays", 1, 7), change("goes", 1, 7), change("changes", 1, 7), change("late", 1, 7),
        change("-", 2, op="T"), change("stays", 2, 7), change("comes", 2, 7), change("changes", 2, 8),
        change("back", 1, 7), change("back", 3, 7), change("deleted", 1, 7), change("deleted", 2, op="D"),
        partition=0,
    )  # fmt: skip
    sink = {
        "key": "k", "sequence_by": "s", "apply_as_deletes": "op = 'D'", "apply_as_truncates": "op = 'T'",
        "column_list": ["k", "n"],
    }  # fmt: skip
    options = {"schema": CHANGES, "sink": sink, "epoch": {"max_records": 7}}
    lake.pipeline("history", **options).run()
    topic.send(change("late", 2, 7), change("x", 1, 7), partition=1)  # behind the truncate's record, not behind it
    lake.pipeline("history", **options).run()
    rows = lake.frame("history").select("k", "n", "__START_AT", "__END_AT").collect()
    assert sorted(map(tuple, rows), key=repr) == sorted(
        [
            ("stays", 7, 1, None), ("goes", 7, 1, 2), ("changes", 7, 1, 2), ("changes", 8, 2, None),
            ("late", 7, 1, None), ("comes", 7, 2, None), ("back", 7, 1, 2), ("back", 7, 3, None),
            ("deleted", 7, 1, 2), ("x", 7, 1, 2),
        ],
        key=repr,
    )  # fmt: skip
    assert str(verify(lake, "history", **options)) == "exact: 10 expected, 10 found"
    lake.sql("UPDATE {t} SET `__END_AT` = NULL WHERE k = 'goes'", "history")
    lake.sql("UPDATE {t} SET `__END_AT` = 2 WHERE k = 'stays'", "history")
    found = verify(lake, "history", **options)
    assert counts(found) == {"expected": 10, "found": 8, "altered": 2}


@pytest.mark.breadth
@pytest.mark.parametrize(
    "sink",
    [
        {
            "sequence_by": "coalesce(s, 39)",
            "track_history_except_column_list": "note",
            "column_list": ["k", "n", "note"],
        },
        {"track_history_column_list": "n"},
        {"sequence_by": "coalesce(s, 39)", "apply_as_truncates": "op = 'T'", "column_list": ["k", "n"]},
        {"sequence_by": "struct(coalesce(s, 39) AS s)", "apply_as_truncates": "op = 'T'", "column_list": ["k", "n"]},
    ],
    ids=["sequence", "offsets", "truncates", "truncates_by_several"],
)
def test_histories_that_a_pipeline_has_written_are_exact(sink: dict[str, Any], lake: Lake, topic: Topic) -> None:
    dice = Random(len(sink))
    for partition in (0, 1):
        records: list[tuple[str, Any]] = []
        for _ in range(60):
            # In the order of offsets a key stays in its partition.
            key = f"{'k' if 'sequence_by' in sink else partition}{dice.randrange(8)}"
            operation = dice.choice("DUUUUUUUUT" if "apply_as_truncates" in sink else "DUUUU")
            values = (dice.randrange(40), dice.choice([None, 1, 2]), operation, dice.choice("xyz"))
            records.append((key, None) if dice.random() < 0.07 else change(key, *values))
        topic.send(*records, partition=partition)
    sink = {**sink, "key": "k", "apply_as_deletes": "op = 'D'"}
    options = {"schema": CHANGES, "sink": sink, "epoch": {"max_records": 45}}
    lake.pipeline("history", **options).run()
    found = verify(lake, "history", **options)
    assert found.ok, (counts(found), found.first)
    assert found.totals["found"] == lake.frame("history").count() > 30


@pytest.mark.breadth
@pytest.mark.parametrize(
    "sink",
    [
        {},
        {"deletes": "soft"},
        {"sequence_by": "coalesce(s, 39)", "apply_as_truncates": "op = 'T'"},
        {"sequence_by": "struct(coalesce(s, 39) AS s, array(_topic) AS a)", "apply_as_truncates": "op = 'T'"},
        {"sequence_by": "coalesce(s, 39)", "ignore_null_updates": "n"},
    ],
    ids=["offsets", "soft", "truncates", "truncates_by_several", "nulls"],
)
def test_upserts_that_a_pipeline_has_written_are_exact(sink: dict[str, Any], lake: Lake, topic: Topic) -> None:
    dice = Random(len(sink))
    for partition in (0, 1):
        records: list[tuple[str, Any]] = []
        for _ in range(60):
            key = f"{'k' if 'sequence_by' in sink else partition}{dice.randrange(12)}"
            operation = dice.choice("DUUUUUUUUT" if "apply_as_truncates" in sink else "DUUUUU")
            values = (dice.randrange(40), dice.choice([None, 1, 2]), operation, dice.choice("xyz"))
            records.append((key, None) if dice.random() < 0.07 else change(key, *values))
        topic.send(*records, partition=partition)
    options = {"schema": CHANGES, "sink": {**sink, "apply_as_deletes": "op = 'D'"}, "epoch": {"max_records": 45}}
    lake.pipeline("upsert", **options).run()
    found = verify(lake, "upsert", **options)
    assert found.ok, (counts(found), found.first)
    assert found.totals["found"] == lake.frame("upsert").count() > 2


@pytest.mark.breadth
def test_a_key_with_records_in_two_partitions_has_no_last_one_that_offsets_tell(lake: Lake, topic: Topic) -> None:
    options = {"schema": CHANGES, "sink": {"apply_as_deletes": "op = 'D'"}}
    # "a" is created first, but its delete is read first: there is no row that could tell that it moved.
    topic.send(change("a", 0, op="D"), change("gone", 0, op="D"), partition=1)
    lake.pipeline("upsert", **options).run()
    topic.send(change("b", 0, 1), change("a", 0, 1), change("gone", 0, op="D"), partition=0)
    lake.pipeline("upsert", **options).run()
    assert sorted(row.k for row in lake.frame("upsert").collect()) == ["a", "b"]
    found = verify(lake, "upsert", **options)
    assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 1, "found": 1, "moved": 1})
    assert found.first["moved"].key == {"k": "a"}


@pytest.mark.breadth
def test_a_history_in_the_order_of_offsets(lake: Lake, topic: Topic) -> None:
    topic.send(change("a", 0, 1), change("a", 0, 1), ("a", None), ("a", None), change("a", 0, 1), partition=1)
    options = {"schema": CHANGES, "sink": {"key": "k", "column_list": ["k", "n"]}}
    make(
        lake, "history", "k STRING, n INT, `__START_AT` LONG, `__END_AT` LONG, _partition INT, _offset LONG",
        ("a", 1, 0, 2, 1, 0), ("a", 1, 4, None, 1, 4),
        upto={"0": 0, "1": 5},
    )  # fmt: skip
    assert str(verify(lake, "history", **options)) == "exact: 2 expected, 2 found"


NUMBERS = "g STRING, n INT, x DOUBLE, d DECIMAL(10,2), at TIMESTAMP"
AGGREGATES = {
    "records": "count(*)", "ns": "count(n)", "n_sum": "SUM(n + 1)", "x_sum": "sum(x)", "d_sum": "sum(d)",
    "low": "min(n)", "high": "max(x)", "x_avg": "avg(x)", "d_avg": "mean(d)", "spread": "stddev(x)",
    "d_var": "var_pop(d)", "earliest": "first(n, at)", "latest": "last(n)", "some": "collect_set(n, 3)",
    "most": "top_n(n, 3)", "kinds": "approx_count_distinct(n)", "p90": "approx_percentile(x, 0.9)",
    "own": "mine(concat(g, ','))",
}  # fmt: skip


@pytest.mark.breadth
def test_groups_are_recomputed_with_every_function(lake: Lake, topic: Topic) -> None:
    def number(g: str | None, n: int | None, x: float, minute: int) -> tuple[None, dict[str, Any]]:
        return None, {"g": g, "n": n, "x": x, "d": n, "at": f"2026-01-01T00:{minute:02}:00Z"}

    damaged = [name for name in AGGREGATES if name != "own"]
    topic.send(*(number("a", n % 40, n / 10, 59 - n % 60) for n in range(100)), partition=0)
    topic.send(number(None, 5, 0.5, 1), number(None, None, 1.5, 2), partition=1)
    topic.send(*(number(name, *values) for name in damaged for values in ((3, 0.5, 1), (5, 1.5, 2))), partition=1)
    sink = {"group_by": "g", "aggregates": AGGREGATES, "states": {"mine": "my.states:Mine"}}
    options = {"schema": NUMBERS, "sink": sink}
    pair = (2, 2, 10, 2.0, Decimal(8), 3, 1.5, 1.0, Decimal(4), 0.5**0.5, 1.0, 3, 5, [3, 5], [5, 3], 2, 1.49, "?", "?")
    make(
        lake, "aggregate",
        "g STRING, records LONG, ns LONG, n_sum LONG, x_sum DOUBLE, d_sum DECIMAL(38,2), low INT, high DOUBLE, "
        "x_avg DOUBLE, d_avg DECIMAL(38,6), spread DOUBLE, d_var DOUBLE, earliest INT, latest INT, some ARRAY<INT>, "
        "most ARRAY<INT>, kinds LONG, p90 DOUBLE, own STRING, _state STRING",
        ("a", 100, 100, 1850, 495.0, Decimal(1750), 0, 9.9, 4.95, Decimal("17.5"), 2.901149197588202, 129.25, 19, 19,
         [0, 1, 2], [39, 39, 38], 41, 8.97, "?", "?"),
        (None, 2, 1, 6, 2.0, Decimal(5), 5, 1.5, 1.0, Decimal(5), 0.5**0.5, 0.0, 5, None, [5], [5], 1, 1.49, "?", "?"),
        *((name, *pair) for name in damaged),
        upto={"0": 100, "1": 2 + 2 * len(damaged)},
    )  # fmt: skip
    found = verify(lake, "aggregate", **options)
    assert str(found) == "exact: 19 expected, 19 found"
    assert found.notes == [
        "These columns of Lakelock's own aren't compared: _state.",
        "Column own isn't compared: mine(concat(g, ',')) is computed by code of your own (states).",
    ]
    changed = {"some": "array(3)", "most": "array(3, 5)", "x_sum": "x_sum + 1e-6"}
    each = (f"{name} = IF(g = '{name}', {changed.get(name, f'{name} * 1.2 + 1')}, {name})" for name in damaged)
    lake.sql(f"UPDATE {{t}} SET {', '.join(each)}", "aggregate")
    lake.sql("INSERT INTO {t} SELECT * FROM {t} WHERE g = 'a'", "aggregate")
    lake.sql("INSERT INTO {t} (g) VALUES ('b')", "aggregate")
    lake.sql("DELETE FROM {t} WHERE g IS NULL", "aggregate")
    found = verify(lake, "aggregate", **options)
    assert counts(found) == {
        "expected": 19, "found": 1, "altered": 17, "duplicated": 1, "unexpected": 1, "lost": 1,
    }  # fmt: skip
    assert found.first["lost"].key == {"g": None}


def at(minute: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        pytest.param(
            {"size": "10 minutes"},
            [("a", 0, 10, 2), ("a", 10, 20, 1), ("a", 30, 40, 1), ("b", 0, 10, 1), ("c", 40, 50, 1)],
            marks=pytest.mark.breadth,
        ),
        pytest.param(
            {"size": "10 minutes", "slide": "5 minutes"},
            [("a", -5, 5, 1), ("a", 0, 10, 2), ("a", 5, 15, 2), ("a", 10, 20, 1), ("a", 25, 35, 1), ("a", 30, 40, 1),
             ("b", -5, 5, 1), ("b", 0, 10, 1), ("c", 40, 50, 1), ("c", 45, 55, 1)],
            marks=pytest.mark.breadth,
        ),
        ({"gap": "5 minutes"}, [("a", 1, 6, 1), ("a", 6, 15.5, 2), ("a", 30, 35, 1), ("b", 1, 6, 1), ("c", 45, 50, 1)]),
    ],
)  # fmt: skip
@pytest.mark.breadth
def test_windows_hold_the_records_of_their_time(window: dict[str, Any], rows: list, lake: Lake, topic: Topic) -> None:
    times = [("a", 1), ("a", 6), ("a", 10.5), ("b", 1), ("a", 30), ("c", 45), ("a", 33)]
    topic.send(*((None, {"g": g, "at": at(minute).isoformat()}) for g, minute in times), partition=0)
    assert lake.spark is not None
    letters = lake.folder / "letters"
    starts = [None] if "gap" in window else [at(30)] if "slide" not in window else [at(25), at(30)]
    late: list[tuple[Any, ...]] = [("aggregate", "late", 0, 6, start) for start in starts]
    late += [("aggregate", "bad", 0, 0, None), ("other", "late", 0, 0, None)]
    columns = "pipeline STRING, reason STRING, _partition INT, _offset LONG, window_start TIMESTAMP"
    sent = lake.spark.read.format("kafka").option("kafka.bootstrap.servers", topic.broker.bootstrap)
    sent = sent.option("subscribe", topic.name).option("includeHeaders", "true").load()
    sent = sent.selectExpr(
        "'aggregate' AS sink", "key", "value", "headers", "topic AS _topic", "partition AS _partition",
        "offset AS _offset", "timestamp AS _timestamp",
    )  # fmt: skip
    written = lake.spark.createDataFrame(late, columns).join(sent, ["_partition", "_offset"])
    written.write.format("delta").save(str(letters))
    sink = {"group_by": "g", "aggregates": {"c": "count(*)"}, "window": {"time": "at", "late": "dead_letter", **window}}
    options = {"schema": "g STRING, at TIMESTAMP", "sink": sink, "dead_letters": {"path": str(letters)}}
    make(
        lake, "aggregate",
        "g STRING, window_start TIMESTAMP, window_end TIMESTAMP, c LONG, window_closed BOOLEAN",
        *((g, at(start), at(end), c, False) for g, start, end, c in rows),
        upto={"0": 7, "1": 0},
    )  # fmt: skip
    found = verify(lake, "aggregate", **options)
    assert str(found) == f"exact: {len(rows)} expected, {len(rows)} found"
    assert "came late" in found.notes[0]
    raised = {**options, "sink": {**sink, "window": {**sink["window"], "allowed_lateness": "1 day"}}}
    found = verify(lake, "aggregate", **raised)
    assert found.ok
    assert found.totals["letters_unconfirmed"] == len(starts)
    damaged = (
        ("UPDATE {t} SET value = X'00' WHERE reason = 'late' AND pipeline = 'aggregate'", "letters_altered"),
        ("INSERT INTO {t} SELECT * FROM {t} WHERE reason = 'late' AND pipeline = 'aggregate'", "letters_duplicated"),
        ("UPDATE {t} SET _offset = 4 WHERE reason = 'late' AND pipeline = 'aggregate'", "letters_unexpected"),
    )
    for damage, fault in damaged:
        before = len(list((letters / "_delta_log").glob("*.json"))) - 1
        lake.sql(damage, "letters")
        assert counts(verify(lake, "aggregate", **options))[fault] == len(starts)
        lake.sql(f"RESTORE {{t}} TO VERSION AS OF {before}", "letters")
    lake.sql("UPDATE {t} SET window_end = window_end + INTERVAL 1 SECOND WHERE g = 'b'", "aggregate")
    lake.sql("DELETE FROM {t} WHERE g = 'a' AND window_start = TIMESTAMP'2026-01-01 00:30:00'", "aggregate")
    found = verify(lake, "aggregate", **options)
    of_b = sum(row[0] == "b" for row in rows)
    assert counts(found) == {
        "expected": len(rows), "found": len(rows) - 1 - of_b, "altered": of_b, "lost": 1,
    }  # fmt: skip


@pytest.mark.breadth
def test_a_late_letter_leaves_out_the_rows_that_may_be_late_and_no_others(lake: Lake, topic: Topic) -> None:
    """Each record makes a row per minute that it names; by the first, all before minute 100 come late."""
    for n, minutes in enumerate(([100], [10, 110], [20, 200], [30, 99])):
        topic.send(("a", {"k": "a", "n": n, "minutes": minutes}), partition=0)
    window = {"time": "at", "late": "dead_letter", "gap": "5 minutes"}
    options = {
        "schema": "k STRING, n INT, minutes ARRAY<INT>", "dead_letters": {"path": str(lake.folder / "letters")},
        "transform": "SELECT k, TIMESTAMP'2026-01-01' + make_dt_interval(0, 0, each) AS at FROM records "
        "LATERAL VIEW explode(minutes) AS each",
        "sink": {"group_by": "k", "aggregates": {"c": "count(*)"}, "window": window},
        "epoch": {"max_records": 1},
    }  # fmt: skip
    lake.pipeline("aggregate", **options).run()
    minute = "CAST((unix_seconds(window_start) - unix_seconds(TIMESTAMP'2026-01-01')) / 60 AS INT)"
    assert lake.sql(f"SELECT {minute} FROM {{t}} ORDER BY 1", "aggregate") == [(100,), (110,), (200,)]
    found = verify(lake, "aggregate", **options)
    assert str(found).startswith("exact: 3 expected, 3 found"), (str(found), found.notes)
    lake.sql(f"DELETE FROM {{t}} WHERE {minute} = 110", "aggregate")
    assert counts(verify(lake, "aggregate", **options))["lost"] == 1
    lake.sql(f"UPDATE {{t}} SET c = 2 WHERE {minute} = 100", "aggregate")  # minute 99 may have been in time
    found = verify(lake, "aggregate", **options)
    assert (found.totals["doubtful"], found.totals["altered"], found.totals["lost"]) == (1, 0, 1)


@pytest.mark.breadth
@pytest.mark.parametrize(
    "window",
    [{"gap": "90 seconds"}, pytest.param({"size": "4 minutes", "slide": "2 minutes"}, marks=pytest.mark.breadth)],
)
def test_windows_that_a_pipeline_has_written_are_exact(window: dict[str, Any], lake: Lake, topic: Topic) -> None:
    def number(n: int) -> tuple[str, dict[str, Any]]:
        minute = n - 9 if n % 7 == 0 else n
        return f"g{n % 3}", {"g": None if n % 3 == 0 else f"g{n % 3}", "n": n, "x": n / 7, "d": n / 10,
                             "at": at(minute).isoformat()}  # fmt: skip

    topic.send(*(number(n) for n in range(30)), partition=0)
    topic.send(*(number(n) for n in range(30, 40)), partition=1)
    aggregates = {name: text for name, text in AGGREGATES.items() if name != "own"}
    sink = {"group_by": "g", "aggregates": aggregates, "window": {"time": "at", "late": "dead_letter", **window}}
    options = {
        "schema": NUMBERS, "sink": sink, "dead_letters": {"path": str(lake.folder / "letters")},
        "epoch": {"max_records": 15},
    }  # fmt: skip
    lake.pipeline("aggregate", **options).run()
    found = verify(lake, "aggregate", **options)
    assert found.ok, counts(found)
    assert found.totals["expected"] == lake.frame("aggregate").count() > 10
    assert any("dead letters aren't expected" in note for note in found.notes)
    raised = {**options, "sink": {**sink, "window": {**sink["window"], "allowed_lateness": "1 day"}}}
    found = verify(lake, "aggregate", **raised)
    assert found.ok, counts(found)
    lake.sql("UPDATE {t} SET x_sum = x_sum + 1 WHERE g = 'g1'", "aggregate")
    assert verify(lake, "aggregate", **options).totals["altered"] > 3
    lake.sql("RESTORE {t} TO VERSION AS OF " + str(lake.version("aggregate") - 1), "aggregate")
    still_open = lake.frame("aggregate").where("NOT window_closed").count()
    lake.sql("UPDATE {t} SET window_closed = true", "aggregate")
    found = verify(lake, "aggregate", **options)
    assert 0 < found.totals["altered"] <= still_open
    assert any("closed too late doesn't show" in note for note in found.notes)


@pytest.mark.breadth
def test_what_only_the_removed_records_could_tell_is_unchecked(lake: Lake, topic: Topic) -> None:
    topic.send(change("a", 10, 1), change("b", 10, 1), change("a", 20, 2), change("c", 20, 2), partition=0)
    make(
        lake, "history", "k STRING, n INT, `__START_AT` INT, `__END_AT` INT, _partition INT, _offset LONG",
        ("a", 1, 10, 20, 0, 0), ("b", 1, 10, None, 0, 1), ("a", 2, 20, None, 0, 2), ("c", 2, 20, 30, 0, 3),
        upto={"0": 4, "1": 0},
    )  # fmt: skip
    make(lake, "aggregate", "k STRING, c LONG", ("a", 99), ("b", 1), upto={"0": 4, "1": 0})
    topic.delete_before(0, 2)
    sink: dict[str, Any] = {"key": "k", "sequence_by": "s", "column_list": ["k", "n"]}
    found = verify(lake, "history", schema=CHANGES, sink=sink)
    assert counts(found) == {"expected": 1, "found": 1, "doubtful": 1, "unchecked": 2}
    sink = {"group_by": "k", "aggregates": {"c": "count(*)"}}
    found = verify(lake, "aggregate", schema=CHANGES, sink=sink)
    assert counts(found) == {"unchecked": 2}
    assert found.unknown[0].startswith("No group was compared")


@pytest.mark.breadth
def test_what_is_written_but_not_committed_yet_is_ahead_in_every_kind_of_table(lake: Lake, topic: Topic) -> None:
    topic.send(change("a", 1, 1), change("c", 1, 1), ("a", None), change("b", 1, 1), change("a", 1, 2), partition=0)
    topic.send(change("d", 1, 1), partition=1)
    claimed: dict[str, Any] = {"upto": {"0": 2, "1": 1}, "delivery": "manual_commit"}
    group_offsets(topic, {0: 2, 1: 1}, "upsert", "history", "aggregate")
    row = "k STRING, n INT, _partition INT, _offset LONG"
    make(lake, "upsert", row, ("b", 1, 0, 3), ("c", 1, 0, 1), **claimed)
    make(
        lake, "history", row.replace("_part", "`__START_AT` LONG, `__END_AT` LONG, _part"),
        ("a", 1, 0, 2, 0, 0), ("a", 2, 4, None, 0, 4), ("b", 1, 3, None, 0, 3), ("c", 1, 1, None, 0, 1), **claimed,
    )  # fmt: skip
    make(lake, "aggregate", "k STRING, c LONG", ("a", 2), ("b", 1), ("c", 1), **claimed)
    aggregates = {"group_by": "k", "aggregates": {"c": "count(*)"}}
    sinks = {"upsert": {"column_list": ["k", "n"]}, "history": {"key": "k", "column_list": ["k", "n"]},
             "aggregate": aggregates}  # fmt: skip
    found = {
        kind: counts(verify(lake, kind, schema=CHANGES, sink=sink, delivery="manual_commit"))
        for kind, sink in sinks.items()
    }
    # Of the key "d" nothing is there: that is lost, whatever follows. The key "a" may have been deleted since.
    assert found == {
        "upsert": {"expected": 2, "found": 1, "lost": 1, "ahead": 1, "doubtful": 1},
        "history": {"expected": 2, "found": 1, "lost": 1, "ahead": 3},
        "aggregate": {"expected": 2, "found": 1, "lost": 1, "ahead": 2},
    }


@pytest.mark.breadth
def test_a_record_that_nobody_has_consumed_excuses_no_other_value(lake: Lake, topic: Topic) -> None:
    topic.send(change("a", 1, 1), change("b", 1, 1), change("a", 1, 2), partition=0)
    claimed: dict[str, Any] = {"upto": {"0": 2}, "delivery": "manual_commit"}
    group_offsets(topic, {0: 2}, "history", "aggregate")
    row = "k STRING, n INT, `__START_AT` LONG, `__END_AT` LONG, _partition INT, _offset LONG"
    make(lake, "history", row, ("a", 1, 0, None, 0, 0), ("b", 1, 1, None, 0, 1), **claimed)
    make(lake, "aggregate", "k STRING, c LONG", ("a", 1), ("b", 1), **claimed)
    sinks = {
        "history": {"key": "k", "column_list": ["k", "n"]},
        "aggregate": {"group_by": "k", "aggregates": {"c": "count(*)"}},
    }
    changes: dict[str, tuple[str, str]] = {
        "history": ("`__END_AT` = 2", "n = 9"), "aggregate": ("c = 2", "c = 0")
    }  # fmt: skip
    for kind, (as_later, wrong) in changes.items():
        options: dict[str, Any] = {"schema": CHANGES, "sink": sinks[kind], "delivery": "manual_commit"}
        assert str(verify(lake, kind, **options)) == "exact: 2 expected, 2 found"
        lake.sql(f"UPDATE {{t}} SET {as_later} WHERE k = 'a'", kind)
        assert counts(verify(lake, kind, **options)) == {"expected": 1, "found": 1, "ahead": 1}
        lake.sql(f"UPDATE {{t}} SET {wrong} WHERE k = 'a'", kind)
        found = verify(lake, kind, **options)
        assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 1, "found": 1, "doubtful": 1})
        assert "Verify again when the pipeline is at rest." in str(found)
        lake.sql(f"UPDATE {{t}} SET {wrong} WHERE k = 'b'", kind)
        assert verify(lake, kind, **options).totals["altered"] == 1


@pytest.mark.breadth
def test_a_version_that_a_claimed_record_starts_once_a_later_one_is_known_is_ahead(lake: Lake, topic: Topic) -> None:
    """The later one comes between two records that had made one version."""
    topic.send(change("a", 1, 1), change("a", 3, 1), change("a", 2, 2), change("b", 1, 1), partition=0)
    claimed: dict[str, Any] = {"upto": {"0": 2}, "delivery": "manual_commit"}
    group_offsets(topic, {0: 2}, "history")
    make(
        lake, "history", "k STRING, n INT, `__START_AT` INT, `__END_AT` INT, _partition INT, _offset LONG",
        ("a", 1, 1, 2, 0, 0), ("a", 2, 2, 3, 0, 2), ("a", 1, 3, None, 0, 1), ("c", 1, 1, None, 0, 0), **claimed,
    )  # fmt: skip
    sink = {"key": "k", "sequence_by": "s", "column_list": ["k", "n"]}
    found = verify(lake, "history", schema=CHANGES, sink=sink, delivery="manual_commit")
    assert counts(found) == {"ahead": 3, "unexpected": 1}


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("sequence", "rows"),
    [
        ({}, [(9, None)]),  # as texts: 9 is the last
        ({"sequence_by": "s"}, [(9, None)]),
        ({"sequence_by": "n"}, [(1, 2), (2, 3), (3, 7), (7, 9), (9, 11), (11, None)]),
    ],
)
def test_of_the_rows_of_one_record_the_same_one_makes_the_version(
    sequence: dict[str, Any], rows: list[tuple[int, int | None]], lake: Lake, topic: Topic
) -> None:
    topic.send(*(("a", {"k": "a", "s": number}) for number in (1, 2, 3)), partition=0)
    select = "SELECT k, s, explode(array(7, 9, 11) || array(s)) AS n FROM records"
    options = {
        "schema": "k STRING, s INT",
        "transform": select,
        "sink": {"key": "k", "column_list": ["k", "n"], **sequence},
    }
    lake.pipeline("history", **options).run()
    assert sorted(lake.sql("SELECT n, __END_AT FROM {t}", "history")) == rows
    assert verify(lake, "history", **options).ok
    lake.sql("UPDATE {t} SET __END_AT = 12 WHERE __END_AT IS NULL", "history")
    assert counts(verify(lake, "history", **options))["altered"] == 1
