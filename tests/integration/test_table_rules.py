"""Tables that a person has made, with rules and rows of their own: what breaks a rule is set aside or named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from audits import counts, verify
from conftest import Lake, Topic
from golden_files import assert_told
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from connector.protocol.steps import Event, Step
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord, ConfigurationError, KeyMoved, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

breadth = pytest.mark.breadth
SCHEMA = "k STRING, n BIGINT, v STRING, op STRING"
PLACES = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
OF_RECORDS = f"k STRING NOT NULL, n BIGINT, v VARCHAR(3), op STRING, twice BIGINT GENERATED ALWAYS AS (n * 2), {PLACES}"
EVENT = "STRUCT<at: BIGINT, topic: STRING, `partition`: INT, offset: BIGINT, timestamp: TIMESTAMP>"
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "upsert": {"type": "delta_upsert", "key": "k", "apply_as_deletes": "op = 'd'"},
    "on_read": {"type": "delta_upsert", "key": "k", "apply_as_deletes": "op = 'd'", "merge": "on_read"},
    "history": {"type": "delta_history", "key": "k", "apply_as_deletes": "op = 'd'"},
}
COLUMNS = {
    kind: OF_RECORDS
    + (
        f", __START_AT BIGINT, __END_AT BIGINT, _state STRUCT<events: ARRAY<{EVENT}>, ended_by: {EVENT}>"
        * (kind == "history")
    )
    for kind in SINKS
}
SMALL = "ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 100 AND n IS NOT NULL)"
RIGHT = {"k": "a", "n": 1, "v": "x", "op": "u"}
BROKEN: Sequence[tuple[dict[str, Any], str]] = [
    ({**RIGHT, "n": 1000}, "breaks the table's constraint small: n < 100 AND n IS NOT NULL"),
    ({**RIGHT, "n": None}, "breaks the table's constraint small: n < 100 AND n IS NOT NULL"),
    ({**RIGHT, "v": "long"}, "its v is longer than 3 characters, which the table allows"),
]


def made(lake: Lake, kind: str) -> dict[str, Any]:
    """A table with rules of its own, and the options of a pipeline that writes to it."""
    lake.sql(f"CREATE TABLE {{t}} ({COLUMNS[kind]}) USING delta", kind)
    lake.sql(SMALL, kind)
    sink = {**SINKS[kind], "path": str(lake.path(kind))}
    return {**lake.options(schema=SCHEMA, name=kind), "sinks": [sink]}


def setting_aside(lake: Lake) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}


def letters(lake: Lake) -> list[tuple[Any, ...]]:
    return query(lake.path("letters"), "SELECT _offset, reason, detail FROM t ORDER BY 1")


@pytest.mark.spark4("it makes no generated column by the path of a table")
@pytest.mark.parametrize("kind", ["upsert", *(pytest.param(kind, marks=breadth) for kind in SINKS if kind != "upsert")])
def test_records_that_break_a_rule_of_the_table_are_set_aside_with_its_name(lake: Lake, kind: str) -> None:
    options = made(lake, kind)
    lake.topic.send(("a", RIGHT), *(("a", record) for record, _ in BROKEN), partition=0)
    if kind != "append":
        # A delete brings no values into the table.
        lake.topic.send(("b", {**RIGHT, "k": "b"}), ("b", {"k": "b", "n": 1000, "v": "long", "op": "d"}), partition=0)
    if kind != "upsert":
        with pytest.raises(BadRecord) as refused:
            Pipeline.from_options(options).run()
        assert_told("a_record_breaks_a_rule_of_the_table", refused.value, topic=lake.topic.name)
    Pipeline.from_options({**options, **setting_aside(lake)}).run()
    assert letters(lake) == [(1 + at, "unfit", detail) for at, (_, detail) in enumerate(BROKEN)]
    if kind == "on_read":
        Pipeline.from_options({**options, **setting_aside(lake)}).fold()
    ended = " WHERE __END_AT IS NULL" if kind == "history" else ""
    assert lake.sql(f"SELECT k, n, v, twice FROM {{t}}{ended}", kind) == [("a", 1, "x", 2)]


@breadth
@pytest.mark.parametrize("several", [False, True])
def test_a_rule_whose_text_spark_hides_holds_as_any_other(lake: Lake, several: bool) -> None:
    """Of a table's properties Spark shows none with `url`, `token` or `password`, even inside a word."""
    schema = "k STRING, url STRING, hourly_rate INT"
    sinks = [{**SINKS["append"], "path": str(lake.path("append"))}]
    sinks += [{"type": "delta_upsert", "key": "k", "path": str(lake.path("upsert"))}] if several else []
    options = {**lake.options(schema=schema, **setting_aside(lake)), "sinks": sinks}
    options |= {"coordinator": {"path": str(lake.path("log"))}} if several else {}
    lake.sql(f"CREATE TABLE {{t}} ({schema}, {PLACES}) USING delta")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT here CHECK (url <> '')")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT paid CHECK (hourly_rate > 0)")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT no_token CHECK (k <> 'token')")
    right = {"k": "a", "url": "x", "hourly_rate": 1}
    broken = [{**right, "url": ""}, {**right, "hourly_rate": 0}, {**right, "k": "token"}]
    lake.topic.send(*(("a", record) for record in (*broken, right)), partition=0)
    Pipeline.from_options(options).run()
    rules = ["here: url <> ''", "paid: hourly_rate > 0", "no_token: k <> 'token'"]
    assert letters(lake) == [
        (at, "unfit", f"breaks the table's constraint {rule}") for at, rule in enumerate(rules)
    ]  # fmt: skip
    assert lake.sql("SELECT k, url, hourly_rate FROM {t}") == [("a", "x", 1)]


@breadth
def test_a_rule_that_spark_can_not_read_is_refused(lake: Lake) -> None:
    """As one with a function that only another engine has."""
    made(lake, "append")
    log = lake.path() / "_delta_log"
    newest = lake.version()
    text = (log / f"{newest:020}.json").read_text().replace("n < 100", "no_such(n)")
    (log / f"{newest + 1:020}.json").write_text(text)
    with pytest.raises(SchemaMismatch, match=r"its constraint small can't be read: no_such\(n\)"):
        lake.pipeline(schema=SCHEMA).check()


@breadth
def test_a_null_that_keeps_the_stored_value_breaks_no_rule(lake: Lake) -> None:
    options = made(lake, "upsert")
    options["sinks"][0] |= {"ignore_null_updates": ["n", "v"]}
    lake.topic.send(("a", RIGHT), ("a", {**RIGHT, "n": None, "v": "y"}), ("a", {**RIGHT, "n": 500}), partition=0)
    Pipeline.from_options({**options, **setting_aside(lake)}).run()
    assert letters(lake) == [(2, "unfit", BROKEN[0][1])]
    assert lake.sql("SELECT k, n, v, twice FROM {t}", "upsert") == [("a", 1, "y", 2)]


@breadth
def test_what_a_generated_column_is_given_has_to_be_what_the_table_generates(lake: Lake) -> None:
    lake.sql(f"CREATE TABLE {{t}} (n BIGINT, twice BIGINT GENERATED ALWAYS AS (n * 2), {PLACES}) USING delta")
    lake.topic.send((None, {"n": 1, "twice": 2}), (None, {"n": 2, "twice": 5}), (None, {"n": 3}), partition=0)
    lake.pipeline(schema="n BIGINT, twice BIGINT", **setting_aside(lake)).run()
    detail = "its twice isn't what the table generates: n * 2"
    assert letters(lake) == [(1, "unfit", detail), (2, "unfit", detail)]
    assert lake.sql("SELECT n, twice FROM {t}") == [(1, 2)]


SUM = {"type": "delta_aggregate", "group_by": "k", "aggregates": {"total": "sum(n)"}}


@pytest.mark.breadth
@pytest.mark.parametrize("merge", ["on_write", pytest.param("on_read", marks=breadth)])
def test_a_rule_on_a_value_of_several_records_stops_the_run_and_is_named(lake: Lake, merge: str) -> None:
    sink = {**SUM, "path": str(lake.path("sums")), "merge": merge}
    options = {**lake.options(schema="k STRING, n BIGINT", **setting_aside(lake)), "name": "sums", "sinks": [sink]}
    lake.topic.send(("a", {"k": "a", "n": 60}), partition=0)
    Pipeline.from_options(options).run()
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT low CHECK (total < 100)", "sums")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT named CHECK (k <> 'test')", "sums")
    lake.topic.send(("a", {"k": "a", "n": 60}), ("test", {"k": "test", "n": 1}), partition=0)
    pipeline = Pipeline.from_options(options)
    if merge == "on_read":
        pipeline.run()
    with pytest.raises(BadRecord) as caught:
        pipeline.fold() if merge == "on_read" else pipeline.run()
    assert_told("an_aggregate_breaks_a_rule_of_the_table", caught.value, folder=lake.folder)
    # What one record holds is set aside all the same.
    assert letters(lake) == [(2, "unfit", "breaks the table's constraint named: k <> 'test'")]
    lake.sql("ALTER TABLE {t} DROP CONSTRAINT low", "sums")
    pipeline.run()
    if merge == "on_read":
        pipeline.fold()
    assert lake.sql("SELECT k, total FROM {t}", "sums") == [("a", 120)]


@breadth
@pytest.mark.parametrize("several", [False, True])
def test_a_rule_that_the_table_gets_during_a_run_is_found_by_the_first_row_that_breaks_it(
    lake: Lake, several: bool
) -> None:
    kinds = ["append", "upsert"] if several else ["upsert"]
    sinks = [{**SINKS[kind], "path": str(lake.path(kind))} for kind in kinds]
    options = {
        **lake.options(schema=SCHEMA, epoch={"max_records": 2}, **setting_aside(lake)), "name": "live", "sinks": sinks,
        "coordinator": {"path": str(lake.path("log"))},
    }  # fmt: skip
    numbers = (1, 2, 1000, 3, 4, 2000)
    lake.topic.send(*((f"k{n}", {**RIGHT, "k": f"k{n}", "n": n}) for n in numbers), partition=0)

    def add_rule(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.number == 1:
            lake.sql(SMALL, "upsert")

    Pipeline.from_options(options).run(observers=[add_rule])
    assert letters(lake) == [(2, "unfit", BROKEN[0][1]), (5, "unfit", BROKEN[0][1])]
    for kind in kinds:
        right = (1, 2, 3, 4) if kind == "upsert" else numbers
        assert sorted(lake.sql("SELECT n FROM {t}", kind)) == sorted((n,) for n in right)


@pytest.mark.breadth
def test_check_says_which_rules_the_table_has(lake: Lake) -> None:
    made(lake, "append")
    shown = CliRunner().invoke(app, ["check", str(lake.file(schema=SCHEMA))])
    assert shown.exit_code == 0, shown.output
    assert [line for line in shown.stdout.splitlines() if line.startswith("rule")] == [
        "rule      CHECK small: n < 100 AND n IS NOT NULL", "rule      NOT NULL: k", "rule      v is VARCHAR(3)",
        "rule      twice is generated: n * 2",
    ]  # fmt: skip


@pytest.mark.breadth
@pytest.mark.parametrize(
    "kind", ["upsert", *(pytest.param(kind, marks=breadth) for kind in ("on_read", "history", "sums"))]
)
def test_a_table_that_only_takes_appends_is_refused_before_a_run(lake: Lake, kind: str) -> None:
    sink = {**SINKS.get(kind, SUM), "path": str(lake.path(kind))}
    options = {**lake.options(schema=SCHEMA), "name": kind, "sinks": [sink]}
    lake.topic.send(("a", RIGHT), partition=0)
    Pipeline.from_options(options).run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", kind)
    for act in (Pipeline.from_options(options).run, Pipeline.from_options(options).check):
        with pytest.raises(SchemaMismatch) as caught:
            act()
        assert_told("append_only", caught.value, table=lake.path(kind))


@breadth
def test_a_session_whose_tables_only_take_appends_keeps_what_lakelock_changes(lake: Lake) -> None:
    assert lake.spark is not None
    default = "spark.databricks.delta.properties.defaults.appendOnly"
    options = lake.options(schema=SCHEMA, require="n > 0", **setting_aside(lake))
    lake.topic.send(("a", RIGHT), ("a", {**RIGHT, "n": -1}), partition=0)
    lake.spark.conf.set(default, "true")
    try:
        Pipeline.from_options(options).run()
        Pipeline.from_options({**options, "require": "n > -2"}).retry_dead_letters()
    finally:
        lake.spark.conf.unset(default)
    assert sorted(lake.sql("SELECT n FROM {t}")) == [(-1,), (1,)]


def adopted(lake: Lake, kind: str = "upsert", columns: str = "k STRING, n INT") -> None:
    lake.sql(f"CREATE TABLE {{t}} ({columns}) USING delta", kind)
    lake.sql("INSERT INTO {t} (k, n) VALUES ('a', 1), ('b', 2), ('c', 3), ('c', 3)", kind)


@breadth
@pytest.mark.parametrize(
    "sink",
    [
        {},
        pytest.param({"deletes": "soft"}),
        pytest.param({"sequence_by": "n"}),
        pytest.param({"sequence_by": "n", "ignore_null_updates": ["n"]}),
    ],
    ids=["offset", "soft", "sequence", "nulls"],
)
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_an_upsert_may_go_on_in_a_table_that_held_rows_before(lake: Lake, sink: dict[str, Any]) -> None:
    """They are older than every change."""
    lake.sql("CREATE TABLE {t} (k STRING, n INT) USING delta", "upsert")
    lake.sql("INSERT INTO {t} VALUES ('a', 1), ('b', 2), ('c', 3)", "upsert")
    lake.topic.send_rows([("a", 10), ("d", 4)], partition=0)
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline("upsert", sink=sink).run()
    if not sink:
        assert_told("an_upsert_without_coordinates", caught.value, folder=lake.folder)
    options = {"on_new_column": "add", "sink": sink}
    lake.pipeline("upsert", **options).check()
    lake.pipeline("upsert", **options).run()
    assert lake.rows("upsert") == [("a", 10), ("b", 2), ("c", 3), ("d", 4)]
    if "sequence_by" in sink:
        return  # a tombstone has no sequence
    lake.topic.send(("b", None), partition=0)
    lake.pipeline("upsert", **options).run()
    there = "coalesce(NOT _deleted, true)" if sink else "true"
    assert lake.sql(f"SELECT k, n FROM {{t}} WHERE {there} ORDER BY k", "upsert") == [("a", 10), ("c", 3), ("d", 4)]
    found = verify(lake, "upsert", **options)
    assert (found.ok, found.totals["held_before"]) == (True, 1)


@breadth
def test_a_row_from_before_the_first_epoch_that_a_truncate_has_removed_is_resurrected(lake: Lake) -> None:
    adopted(lake, columns=f"k STRING, n INT, _sequence INT, {PLACES}")
    sink = {"sequence_by": "n", "apply_as_truncates": "k = 'all'"}
    lake.topic.send_rows([("a", 10), ("all", 20), ("d", 30)], partition=0)
    lake.pipeline("upsert", sink=sink).run()
    assert str(verify(lake, "upsert", sink=sink)) == "exact: 1 expected, 1 found"
    lake.sql("INSERT INTO {t} (k, n) VALUES ('a', 1), ('b', 2), ('c', 3)", "upsert")
    assert counts(verify(lake, "upsert", sink=sink)) == {"expected": 1, "found": 1, "resurrected": 3}


@breadth
def test_a_truncate_explains_no_missing_row_from_before_the_first_epoch_that_is_newer(lake: Lake) -> None:
    adopted(lake, columns=f"k STRING, n INT, _sequence INT, {PLACES}")
    lake.sql("UPDATE {t} SET _sequence = 25", "upsert")
    lake.sql("INSERT INTO {t} (k, n, _sequence) VALUES ('old', 1, 5)", "upsert")
    sink = {"sequence_by": "n", "apply_as_truncates": "k = 'all'"}
    lake.topic.send_rows([("d", 10), ("all", 20)], partition=0)
    lake.pipeline("upsert", sink=sink).run()
    held = lake.rows("upsert")
    found = verify(lake, "upsert", sink=sink)
    assert counts(found) == {"held_before": len(held)}
    assert "old" not in {row[0] for row in held}
    as_the_pipeline(lake, "upsert", "DELETE FROM {t} WHERE k = 'b'")
    left = len(lake.rows("upsert"))
    assert counts(verify(lake, "upsert", sink=sink)) == {"held_before": left, "gone_before": len(held) - left}


@pytest.mark.breadth
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_what_would_say_nothing_of_old_rows_is_not_added(lake: Lake) -> None:
    lake.sql("CREATE TABLE {t} (n INT) USING delta", "upsert")
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline("upsert", on_new_column="add").check()
    assert_told("a_key_that_the_table_lacks", caught.value, folder=lake.folder)
    lake.sql("CREATE TABLE {t} (k STRING, total BIGINT) USING delta", "sums")
    sums = {**lake.options(), "name": "sums", "sinks": [{**SUM, "path": str(lake.path("sums"))}]}
    with pytest.raises(SchemaMismatch) as caught:
        Pipeline.from_options(sums).check()
    assert_told("an_aggregate_into_a_table_that_was_there", caught.value, folder=lake.folder)


@pytest.mark.parametrize("kind", ["append", pytest.param("upsert", marks=breadth)])
def test_rows_that_a_table_held_before_are_counted_apart_while_they_are_unchanged(lake: Lake, kind: str) -> None:
    adopted(lake, kind, f"k STRING, n INT, {PLACES}")
    lake.topic.send_rows([("a", 10), ("d", 4)], partition=0)
    lake.pipeline(kind).run()
    held = 4 if kind == "append" else 3
    found = verify(lake, kind)
    assert counts(found) == {"expected": 2, "found": 2, "held_before": held}
    assert str(found) == f"exact: 2 expected, 2 found; {held} held before"
    lake.sql("UPDATE {t} SET n = 7 WHERE k = 'b' AND _offset IS NULL", kind)
    lake.sql("INSERT INTO {t} (k, n) VALUES ('c', 3)", kind)
    assert counts(verify(lake, kind)) == {"expected": 2, "found": 2, "held_before": held - 1, "unexpected": 2}


def as_the_pipeline(lake: Lake, kind: str, statement: str) -> None:
    """A statement whose commit says that it is one of the pipeline's epochs."""
    assert lake.spark is not None
    newest = lake.metadata(kind)[-1]
    conf = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(conf, json.dumps({**newest, "epoch": newest["epoch"] + 1, "base": None}))
    try:
        lake.sql(statement, kind)
    finally:
        lake.spark.conf.unset(conf)


@breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_rows_that_a_table_held_before_and_that_a_run_removed_are_a_fault(lake: Lake, kind: str) -> None:
    adopted(lake, kind, f"k STRING, n INT, {PLACES}")
    lake.sql("UPDATE {t} SET n = 3 WHERE k = 'c'", kind)  # before the first epoch it explains nothing
    lake.topic.send_rows([("a", 10), ("d", 4)], partition=0)
    lake.pipeline(kind).run()
    held = 4 if kind == "append" else 3
    as_the_pipeline(lake, kind, "DELETE FROM {t} WHERE k = 'b' AND _offset IS NULL")
    found = verify(lake, kind)
    assert counts(found) == {"expected": 2, "found": 2, "held_before": held - 1, "gone_before": 1}
    # Somebody else's commit explains as many rows as it has removed.
    lake.sql("DELETE FROM {t} WHERE k = 'c' AND _offset IS NULL", kind)
    found = verify(lake, kind)
    assert counts(found)["gone_before"] == 1
    assert any(
        note.startswith("2 rows that the table held before the pipeline's first epoch are gone") for note in found.notes
    )


@breadth
def test_rows_that_a_table_held_before_are_known_after_a_rewind_to_before_the_first_epoch(lake: Lake) -> None:
    adopted(lake, "append", f"k STRING, n INT, {PLACES}")
    lake.topic.send_rows([("a", 10), ("d", 4)], partition=0)
    lake.pipeline().run()
    for _ in range(2):
        lake.pipeline().rewind(to_epoch=0, confirm=True)
        lake.pipeline().run()
        assert lake.metadata("append")[-1]["epoch"] > 1
        assert str(verify(lake)) == "exact: 2 expected, 2 found; 4 held before"
    as_the_pipeline(lake, "append", "DELETE FROM {t} WHERE k = 'b' AND _offset IS NULL")
    assert counts(verify(lake)) == {"expected": 2, "found": 2, "held_before": 3, "gone_before": 1}


@breadth
def test_without_the_version_of_then_nothing_is_called_exact(lake: Lake) -> None:
    adopted(lake, "upsert", f"k STRING, n INT, {PLACES}")
    lake.topic.send_rows([("a", 10)], partition=0)
    lake.pipeline("upsert").run()
    assert lake.spark is not None
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    lake.spark.conf.set(check, "false")
    try:
        lake.sql("VACUUM {t} RETAIN 0 HOURS", "upsert")
    finally:
        lake.spark.conf.unset(check)
    found = verify(lake, "upsert")
    assert str(found).startswith("UNKNOWN: 3 rows have no coordinates, or those of a topic")
    assert counts(found) == {"expected": 1, "found": 1, "held_before": 3}
    as_the_pipeline(lake, "upsert", "DELETE FROM {t} WHERE _offset IS NULL")
    found = verify(lake, "upsert")
    assert str(found).startswith("UNKNOWN: The table held rows before the pipeline's first epoch.")
    assert counts(found) == {"expected": 1, "found": 1}


@pytest.mark.breadth
@pytest.mark.spark4("VARIANT")
@pytest.mark.parametrize("kind", ["append", pytest.param("upsert", marks=breadth)])
def test_variants_are_compared(lake: Lake, kind: str) -> None:
    schema = "k STRING, v VARIANT, l ARRAY<VARIANT>"
    values = ['{"b": 1.10, "a": [null, 12345678901234567890123]}', "9007199254740993", "1e300", '"x"', "null"]
    lake.topic.send(
        *((f"k{at}", f'{{"k": "k{at}", "v": {value}, "l": [{value}, 1]}}'.encode()) for at, value in enumerate(values)),
        partition=0,
    )
    lake.pipeline(kind, schema=schema).run()
    assert str(verify(lake, kind, schema=schema)) == "exact: 5 expected, 5 found"
    lake.sql("UPDATE {t} SET v = parse_json('9007199254740992') WHERE k = 'k1'", kind)
    assert counts(verify(lake, kind, schema=schema)) == {"expected": 5, "found": 4, "altered": 1}


@pytest.mark.breadth
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_a_map_with_keys_that_json_does_not_have_stays_out_of_the_way(lake: Lake) -> None:
    lake.sql(f"CREATE TABLE {{t}} (k STRING, n INT, m MAP<INT, STRING>, {PLACES}) USING delta")
    lake.topic.send(("a", {"k": "a", "n": 1, "more": "x"}))
    lake.pipeline(on_new_column="add").run()
    assert lake.sql("SELECT k, n, m, more FROM {t}") == [("a", 1, None, "x")]
    lake.topic.send(("a", {"k": "a", "n": 1, "m": {"1": "x"}}))
    with pytest.raises(SchemaMismatch) as a_record:
        lake.pipeline(on_new_column="add").run()
    assert_told("records_for_a_map_with_int_keys", a_record.value, folder=lake.folder)
    with pytest.raises(ConfigurationError) as the_schema:
        lake.pipeline(schema="k STRING, n INT, m MAP<INT, STRING>").check()
    assert_told("a_schema_with_int_keys", the_schema.value)


@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
@breadth
def test_what_delta_generates_is_not_taken_for_a_column_of_the_records(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE {t} (k STRING, n INT, twice INT GENERATED ALWAYS AS (n * 2), "
        f"number BIGINT GENERATED ALWAYS AS IDENTITY, {PLACES}) USING delta"
    )
    lake.topic.send(("a", {"k": "a", "n": 1, "more": "x"}))
    lake.pipeline(on_new_column="add").run()
    assert lake.sql("SELECT n, twice, number, more FROM {t}") == [(1, 2, 1, "x")]


@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
@breadth
def test_an_identity_by_default_is_compared_where_records_have_the_field(lake: Lake) -> None:
    lake.sql(
        f"CREATE TABLE {{t}} (k STRING, n INT, number BIGINT GENERATED BY DEFAULT AS IDENTITY, {PLACES}) USING delta"
    )
    lake.topic.send(("a", {"k": "a", "n": 1, "number": 70}), ("b", {"k": "b", "n": 2}), partition=0)
    add: dict[str, Any] = {"on_new_column": "add"}
    lake.pipeline(**add).run()
    assert lake.sql("SELECT k, number FROM {t} ORDER BY k") == [("a", 70), ("b", None)]
    assert str(verify(lake, **add)) == "exact: 2 expected, 2 found"
    columns = "k, n, _topic, _partition, _offset, _timestamp"
    lake.sql(f"INSERT INTO {{t}} ({columns}, number) SELECT {columns}, 71 FROM {{t}} WHERE k = 'a'")
    lake.sql("DELETE FROM {t} WHERE number = 70")
    assert counts(verify(lake, **add)) == {"expected": 2, "found": 1, "altered": 1}


@breadth
@pytest.mark.parametrize("letters", [False, True])
def test_a_table_without_rows_takes_the_order_that_the_hint_names(lake: Lake, letters: bool) -> None:
    changes = setting_aside(lake) if letters else {}
    lake.topic.send(("x", {"k": "gone", "n": 1}), ("gone", None), ("x", {"k": "a", "n": 1}), partition=0)
    lake.topic.send_rows([("a", 2)], partition=1)
    with pytest.raises(KeyMoved) as caught:
        lake.pipeline("upsert", **changes).run()
    assert_told("a_key_in_two_partitions", caught.value, topic=lake.topic.name, folder=lake.folder)
    changes = {**changes, "sink": {"sequence_by": "_timestamp"}}
    lake.pipeline("upsert", **changes).check()
    lake.pipeline("upsert", **changes).run()
    assert lake.rows("upsert") == [("a", 2)]
    with pytest.raises(SchemaMismatch) as mixed:
        lake.pipeline("upsert").check()
    assert_told("another_order", mixed.value, folder=lake.folder)


@breadth
def test_an_order_that_was_never_used_may_be_taken_back(lake: Lake) -> None:
    lake.topic.send_rows([("a", 1)], partition=0)
    sequence = {"sink": {"sequence_by": "n"}}

    def crash(event: Event) -> None:
        if event.step is Step.WRITING:
            raise KeyboardInterrupt

    for changes in (sequence, {}, sequence, {}):
        with pytest.raises(KeyboardInterrupt):
            lake.pipeline("upsert", **changes).run(observers=[crash])
    lake.pipeline("upsert").run()
    lake.topic.send_rows([("a", 0)], partition=0)
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == [("a", 0)]
    with pytest.raises(SchemaMismatch, match="two orders can't be mixed"):
        lake.pipeline("upsert", **sequence).check()


@pytest.mark.breadth
def test_epochs_without_rows_may_have_brought_deletes(lake: Lake) -> None:
    lake.topic.send(("a", None), partition=0)
    lake.pipeline("upsert").run()
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline("upsert", sink={"sequence_by": "n"}).check()
    assert_told("another_order_of_a_table_without_rows", caught.value, folder=lake.folder)


@breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_an_empty_text_in_a_partition_column_is_no_silent_null(lake: Lake, kind: str) -> None:
    lake.sql(f"CREATE TABLE {{t}} (k STRING, n INT, p STRING, {PLACES}) USING delta PARTITIONED BY (p)", kind)
    lake.topic.send(("a", {"k": "a", "n": 1, "p": ""}), ("b", {"k": "b", "n": 2, "p": None}), partition=0)
    lake.pipeline(kind, schema="k STRING, n INT, p STRING", **setting_aside(lake)).run()
    assert letters(lake) == [
        (0, "unfit", "its p is the empty text, and can't be stored in a column that the table is partitioned by")
    ]
    assert lake.sql("SELECT k, p FROM {t}", kind) == [("b", None)]


FEATURES = {  # of readers and writers, and of writers alone
    "catalogManaged": (["catalogManaged", "vacuumProtocolCheck"], ["inCommitTimestamp"]),
    "coordinatedCommits-preview": (["vacuumProtocolCheck"], ["coordinatedCommits-preview", "inCommitTimestamp"]),
}


@pytest.mark.spark4("knows the features")
@pytest.mark.parametrize(
    "feature", ["catalogManaged", pytest.param("coordinatedCommits-preview", marks=pytest.mark.breadth)]
)
def test_a_table_whose_commits_a_catalog_holds_is_refused(feature: str, lake: Lake, topic: Topic) -> None:
    """What is read of its log would be older than the table."""
    topic.send_rows([("a", 1)])
    log = lake.path() / "_delta_log"
    log.mkdir(parents=True)
    both, writers = FEATURES[feature]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": both, "writerFeatures": [*both, *writers],
    }  # fmt: skip
    timed = {"delta.enableInCommitTimestamps": "true"}
    metadata = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": from_ddl(SCHEMA).json()}
    actions = [
        {
            "commitInfo": {
                "timestamp": 1,
                "inCommitTimestamp": 1,
                "operation": "CREATE TABLE",
                "operationParameters": {},
            }
        },
        {"protocol": protocol},
        {"metaData": {**metadata, "partitionColumns": [], "configuration": timed, "createdTime": 1}},
    ]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    for call in (lake.pipeline().check, lake.pipeline().run):
        with pytest.raises(ConfigurationError, match=feature) as caught:
            call()
        assert "without this feature" in caught.value.hint
    assert [file.name for file in log.iterdir()] == [f"{0:020}.json"]
