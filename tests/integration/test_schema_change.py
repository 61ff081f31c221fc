"""`on_new_column`: what becomes of columns that the records have, and the table lacks."""

from __future__ import annotations

from typing import Any

import pytest
from audits import counts
from conftest import Lake, Topic
from pyspark.sql import SparkSession

from connector.audit import audit
from connector.protocol.steps import Event, Step
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord, SchemaMismatch
from sinks.spark.schema_changes import differences, narrowed


def columns(lake: Lake, kind: str = "append") -> dict[str, str]:
    """The user's."""
    return {field.name: field.dataType.simpleString() for field in lake.frame(kind).schema if field.name[0] != "_"}


learns = pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")


@pytest.mark.breadth
@learns
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_column_more_in_the_file_is_in_the_commit_of_the_first_rows(lake: Lake, topic: Topic, kind: str) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 1}))
    lake.pipeline(kind).run()
    topic.send(("b", {"N": 5_000_000_000, "at": {"zip": "1"}, "k": "b"}), ("c", {"k": "c", "n": 2, "x": 1.5}))
    more = "at STRUCT<zip: STRING>, N BIGINT, k STRING, x DOUBLE"

    with pytest.raises(
        SchemaMismatch, match=r"column at STRUCT<`zip`: string> is missing in the table; column x double is"
    ) as refused:
        lake.pipeline(kind, schema=more).run()
    assert "on_new_column: add" in refused.value.hint
    before = lake.version(kind)
    lake.pipeline(kind, schema=more, on_new_column="add").run()
    assert columns(lake, kind) == {"k": "string", "n": "bigint", "at": "struct<zip:string>", "x": "double"}
    rows = lake.sql("SELECT k, n, at.zip, x FROM {t} ORDER BY k, n", kind)
    old = [("a", 1, None, None)] + ([("b", 1, None, None)] if kind == "append" else [])
    assert rows == [*old, ("b", 5_000_000_000, "1", None), ("c", 2, None, 1.5)]
    # Only that it may be widened is a commit of its own, without rows.
    added = lake.commits(kind)[before + 1 :]
    assert [bool(commit.get("txn")) for commit in added] == [False, True]
    assert "metaData" in added[-1]
    assert lake.metadata(kind)[-1]["epoch"] == 2

    topic.send(("d", {"k": "d", "n": 3, "at": {"zip": "1", "city": "X"}}))
    narrow = "k STRING, n INT, at STRUCT<city: STRING, zip: STRING>"
    lake.pipeline(kind, schema=narrow, on_new_column="add").run()
    assert lake.sql("SELECT k, n, at.zip, at.city, x FROM {t} WHERE k = 'd'", kind) == [("d", 3, "1", "X", None)]


@learns
def test_what_would_lose_values_is_refused(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}))
    lake.pipeline().run()
    topic.send(("b", {"k": "b", "n": "x"}))
    with pytest.raises(SchemaMismatch, match="column n is int in the table, string in the pipeline"):
        lake.pipeline(schema="k STRING, n STRING", on_new_column="add").run()
    assert lake.rows() == [("a", 1)]


@learns
def test_new_fields_of_records_become_columns(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}))
    pipeline = lake.pipeline(on_new_column="add", epoch={"max_records": 3})
    pipeline.run()
    topic.send(
        ("b", {"k": "b", "n": 2, "size": 3, "tags": ["x"], "at": {"zip": "1"}, "huge": 2**70, "both": 1, "none": None}),
        ("c", b'{"k": "c", "n": 3, "size": 4, "ratio": 0.5, "both": "x", "price": 1234567890.12345678901}'),
        partition=0,
    )  # fmt: skip
    pipeline.run()
    assert columns(lake) == {
        "k": "string", "n": "int", "at": "struct<zip:string>", "both": "string", "huge": "decimal(38,0)",
        "none": "string", "price": "string", "ratio": "double", "size": "bigint", "tags": "array<string>",
    }  # fmt: skip
    assert lake.sql("SELECT k, size, tags, at.zip, huge, both, ratio, price FROM {t} ORDER BY k") == [
        ("a", None, None, None, None, None, None, None),
        ("b", 3, ["x"], "1", 2**70, "1", None, None),
        ("c", 4, None, None, None, "x", 0.5, "1234567890.12345678901"),
    ]
    # The next run has them from the table, and what doesn't fit into them is no silent null.
    topic.send(("d", {"k": "d", "n": 4, "size": 5, "SIZE2": 1}))
    pipeline.run()
    assert lake.sql("SELECT size, size2 FROM {t} WHERE k = 'd'") == [(5, 1)]
    # The auditor compares the columns that the table has got since, too.
    assert str(audit(pipeline.config)).startswith("exact: 4 expected, 4 found")
    lake.spark.sql(f"UPDATE delta.`{lake.path()}` SET size = 0 WHERE k = 'b'")  # type: ignore[union-attr]
    assert counts(audit(pipeline.config))["altered"] == 1
    topic.send(("e", {"k": "e", "n": 5, "size": 5.5}))
    with pytest.raises(BadRecord, match=r"field size: not a BIGINT, but .5\.5."):
        pipeline.run()


NESTED = (
    "k STRING, at STRUCT<city: STRING>, stops ARRAY<STRUCT<city: STRING>>, by_name MAP<STRING, STRUCT<city: STRING>>"
)
WITH_MORE = {
    "k": "b", "at": {"city": "x", "zip": 1, "geo": {"lat": 1.5}}, "stops": [{"city": "x"}, {"code": "s"}],
    "by_name": {"a": {"size": 7}},
}  # fmt: skip


@pytest.mark.breadth
def test_fields_inside_of_columns_are_bad_records_with_fail(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "at": {"city": "x"}, "stops": [], "by_name": {}}), partition=0)
    options: dict[str, Any] = {"schema": NESTED, "on_new_column": "fail", "unmatched": "warn"}
    lake.pipeline(**options).run()
    topic.send(("b", WITH_MORE), partition=0)
    with pytest.raises(BadRecord, match=r"lacks: at\.zip, at\.geo, stops\.code, by_name\.size"):
        lake.pipeline(**options).run()


@pytest.mark.breadth
@learns
def test_new_fields_inside_of_columns_are_added(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "at": {"city": "x"}, "stops": [], "by_name": {}}), partition=0)
    pipeline = lake.pipeline(schema=NESTED, on_new_column="add", unmatched="warn")
    pipeline.run()
    topic.send(("b", WITH_MORE), ("c", {"k": "c", "At": {"zip": 2}}), partition=0)
    pipeline.run()
    assert columns(lake) == {
        "k": "string", "at": "struct<city:string,zip:bigint,geo:struct<lat:double>>",
        "stops": "array<struct<city:string,code:string>>", "by_name": "map<string,struct<city:string,size:bigint>>",
    }  # fmt: skip
    held = "SELECT k, at.city, at.zip, at.geo.lat, stops.code, by_name['a'].size FROM {t} ORDER BY k"
    rows = [("a", "x", None, None, [], None), ("b", "x", 1, 1.5, [None, "s"], 7), ("c", None, 2, None, None, None)]
    assert lake.sql(held) == rows
    # The next run has them from the table, and what doesn't fit into them is no silent null.
    topic.send(("d", {"k": "d", "at": {"zip": "no number"}}), partition=0)
    with pytest.raises(BadRecord, match="at"):
        pipeline.run()


def event(row: dict[str, Any]) -> dict[str, Any]:
    """Its envelope has fields that no pipeline file declares."""
    return {"op": "c", "before": None, "after": row, "source": {"lsn": 1, "sequence": "[]"}, "ts_us": 1}


DEBEZIUM = {"value": {"format": "debezium", "schema": "k STRING, at STRUCT<city: STRING>"}}


@pytest.mark.breadth
def test_the_columns_of_a_database_that_the_schema_lacks_are_bad_records_with_fail(lake: Lake, topic: Topic) -> None:
    options: dict[str, Any] = DEBEZIUM | {"on_new_column": "fail"}
    topic.send(("a", event({"k": "a", "at": {"city": "x"}})), partition=0)
    lake.pipeline(**options).run()
    topic.send(("b", event({"k": "b", "n": 1, "at": {"zip": "1"}})), partition=0)
    with pytest.raises(BadRecord, match=r"has fields that value\.schema lacks: after\.n, after\.at\.zip"):
        lake.pipeline(**options).run()


@pytest.mark.breadth
@learns
def test_new_columns_of_a_database_are_added(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline(on_new_column="add", **DEBEZIUM)
    topic.send(("a", event({"k": "a", "at": {"city": "x"}})), partition=0)
    pipeline.run()
    topic.send(("b", {"payload": event({"k": "b", "n": 1, "at": {"zip": "1"}})}), partition=0)
    pipeline.run()
    assert columns(lake) == {"k": "string", "at": "struct<city:string,zip:string>", "n": "bigint"}
    topic.send(("c", event({"k": "c", "n": 2, "_op": 1})), partition=0)
    with pytest.raises(BadRecord, match=r"can't become columns by themselves: after\._op"):
        pipeline.run()
    assert lake.sql("SELECT k, n, at.zip, _op, _source.lsn FROM {t} ORDER BY k") == [
        ("a", None, None, "c", 1), ("b", 1, "1", "c", 1),
    ]  # fmt: skip


@learns
@pytest.mark.breadth
def test_a_table_whose_new_column_was_dropped_is_not_exact(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1, "zip": "1"}), ("b", {"k": "b", "n": 2}), partition=0)
    pipeline = lake.pipeline(on_new_column="add")
    pipeline.run()
    topic.send(("c", {"k": "c", "n": 3, "later": 1}))  # no run has read it
    assert str(audit(pipeline.config)) == "exact: 2 expected, 2 found"
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    lake.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({mapped})")
    lake.sql("ALTER TABLE {t} DROP COLUMN zip")
    found = audit(pipeline.config)
    assert found.verdict.exit_code == 4
    assert "no column for these fields of records, which aren't compared: zip." in found.unknown[0]


@learns
@pytest.mark.breadth
def test_fields_that_cant_be_columns_are_bad_records(lake: Lake, topic: Topic) -> None:
    topic.send(
        ("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 2, "of that name": 1}), ("c", {"k": "c", "n": 3, "more": {}}),
        ("d", b'{"k": "d", "n": 4, "x": {"y": 1, "Y": 2}}'), ("e", {"k": "e", "n": 5, "_offset": 6}),
        ("f", b'{"k": "f", "n": 6, "t": 1, "t": 2}'), partition=0,
    )  # fmt: skip
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    lake.pipeline(on_new_column="add", **dead).run()
    assert lake.sql("SELECT k, more FROM {t} ORDER BY k") == [("a", None), ("c", "{}")]
    why = "its value: has fields that can't become columns by themselves: "
    assert lake.sql("SELECT _offset, detail FROM {t} ORDER BY _offset", "dead") == [
        (1, f"{why}of that name"), (3, f"{why}x"), (4, f"{why}_offset"), (5, f"{why}t"),
    ]  # fmt: skip
    assert audit(lake.pipeline(on_new_column="add", **dead).config).ok


@pytest.mark.breadth
@learns
def test_new_fields_are_learned_once_for_both_tables_of_two_phase_commit(lake: Lake, topic: Topic) -> None:
    sinks = [
        {"type": "delta_append", "path": str(lake.path("append"))},
        {"type": "delta_upsert", "path": str(lake.path("upsert")), "key": "k"},
    ]
    options = lake.options(on_new_column="add") | {"sinks": sinks, "coordinator": {"path": str(lake.path("log"))}}
    from connector import Pipeline

    pipeline = Pipeline.from_options(options)
    topic.send(("a", {"k": "a", "n": 1}))
    pipeline.run()
    topic.send(("a", {"k": "a", "n": 2, "more": "x"}))
    pipeline.run()
    assert lake.sql("SELECT n, more FROM {t} ORDER BY n", "append") == [(1, None), (2, "x")]
    assert lake.sql("SELECT n, more FROM {t}", "upsert") == [(2, "x")]


@pytest.mark.breadth
@learns
def test_a_crash_before_the_commit_leaves_the_table_without_the_column(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}))
    lake.pipeline().run()
    topic.send(("b", {"k": "b", "n": 2, "more": 1}))

    def crash(event: Event) -> None:
        if event.step is Step.WRITING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.pipeline(on_new_column="add").run(observers=[crash])
    assert columns(lake) == {"k": "string", "n": "int"}
    lake.pipeline(on_new_column="add").run()
    assert lake.sql("SELECT k, more FROM {t} ORDER BY k") == [("a", None), ("b", 1)]


@pytest.mark.breadth
def test_ignored_and_failing(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}))
    wide: dict[str, Any] = {"schema": "k STRING, n INT, x INT, at STRUCT<zip: STRING>"}
    lake.pipeline(schema="k STRING, n INT, at STRUCT<city: STRING>", unmatched="warn").run()
    topic.send(("b", {"k": "b", "n": 2, "x": 1, "at": {"zip": "1"}, "unknown": 1}))
    with pytest.raises(BadRecord, match=r"has fields that value\.schema lacks: x, at, unknown"):
        lake.pipeline(schema="k STRING, n INT", on_new_column="fail").run()
    lake.pipeline(on_new_column="ignore", **wide).run()
    assert columns(lake) == {"k": "string", "n": "int", "at": "struct<city:string>"}
    assert lake.sql("SELECT k, n, at.city FROM {t} ORDER BY k") == [("a", 1, None), ("b", 2, None)]


@pytest.mark.breadth
def test_the_case_of_a_name_is_no_difference(lake: Lake, topic: Topic) -> None:
    topic.send(
        ("a", b'{"K": "a", "N": 1}'), ("b", b'{"k": "b", "n": 2}'), ("c", b'{"N": 3, "k": "c"}'),
        ("d", b'{"k": "d"}'), partition=0,
    )  # fmt: skip
    lake.pipeline().run()
    assert lake.sql("SELECT k, n FROM {t} ORDER BY k") == [("a", 1), ("b", 2), ("c", 3), ("d", None)]
    assert str(audit(lake.pipeline().config)).startswith("exact: 4 expected")
    topic.send(("e", b'{"k": "e", "N": 3, "K": "f"}'), partition=0)
    lake.pipeline().run()
    assert lake.sql("SELECT n FROM {t} WHERE k = 'e'") == [(3,)]


@pytest.mark.parametrize(
    ("table", "rows", "found"),
    [
        ("a INT, b STRING", "B STRING, A INT", {}),
        ("a INT", "a INT, b STRING", {"new": ["b"]}),
        ("a INT, b STRING", "a INT", {}),
        (
            "a TINYINT, b FLOAT, c DECIMAL(5,2)",
            "a BIGINT, b DOUBLE, c DECIMAL(8,3)",
            {"wider": ["a", "b", "c"], "rounded": ["b"]},
        ),
        ("a BIGINT", "a INT", {"narrower": ["a"]}),
        ("a INT", "a STRING", {"others": ["a"]}),
        ("a INT", "a DOUBLE", {"others": ["a"]}),
        ("a DECIMAL(5,2)", "a DECIMAL(5,3)", {"others": ["a"]}),
        ("a STRUCT<x: INT, y: INT>", "a STRUCT<Y: BIGINT, x: INT, z: INT>", {"new": ["a.z"], "wider": ["a.Y"]}),
        ("a ARRAY<STRUCT<x: INT>>", "a ARRAY<STRUCT<x: INT, y: INT>>", {"new": ["a.element.y"]}),
        ("a MAP<STRING, STRUCT<x: INT>>", "a MAP<STRING, STRUCT<y: INT>>", {"new": ["a.value.y"]}),
        ("a MAP<STRING, INT>", "a MAP<INT, INT>", {"others": ["a"]}),
    ],
)
def test_which_differences_there_are(spark: SparkSession, table: str, rows: str, found: dict[str, list[str]]) -> None:
    told = differences(from_ddl(table), from_ddl(rows))  # type: ignore[arg-type]
    assert {kind: list(names) for kind, names in vars(told).items() if names} == found


def test_what_the_table_lacks_is_left_out_of_a_value(spark: SparkSession) -> None:
    table, rows = (from_ddl(ddl)["a"].dataType for ddl in ("a STRUCT<x: INT>", "a STRUCT<x: INT, y: INT>"))
    assert narrowed("a", rows, table) == "CASE WHEN a IS NOT NULL THEN named_struct('x', a.`x`) END"
    assert narrowed("a", table, table) == "a"


@learns
@pytest.mark.breadth
def test_verify_passes_over_a_column_that_delta_fills_and_no_other(lake: Lake, topic: Topic) -> None:
    spark = lake.spark
    assert spark is not None
    own = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
    made = "k STRING, n INT, twice INT GENERATED ALWAYS AS (n * 2)"
    spark.sql(f"CREATE TABLE delta.`{lake.path()}` ({made}, {own}) USING delta")
    topic.send(("a", {"k": "a", "n": 1, "size": 3}))
    pipeline = lake.pipeline(on_new_column="add")
    pipeline.run()
    assert lake.sql("SELECT k, twice, size FROM {t}") == [("a", 2, 3)]
    assert audit(pipeline.config).ok
    spark.sql(f"UPDATE delta.`{lake.path()}` SET size = NULL")
    assert counts(audit(pipeline.config))["altered"] == 1


@pytest.mark.breadth
@pytest.mark.parametrize("says", [{"on_new_column": "ignore"}, {}])
def test_a_key_that_gets_or_loses_a_field_is_refused(lake: Lake, topic: Topic, says: dict[str, str]) -> None:
    """Left out of {1, EU} and {1, US} the region makes them one row; as null it makes another key of each."""

    def keyed(name: str, fields: str) -> Any:
        key = {"key": {"format": "json", "schema": fields}, "sink": {"key": "kafka_key", "path": str(lake.path(name))}}
        return lake.pipeline("upsert", name=name, **key, **says)

    for region in ("EU", "US"):
        topic.send((f'{{"id": 1, "region": "{region}"}}', {"k": region, "n": 1}), partition=0)
    less, more = "id INT", "id INT, region STRING"
    keyed("less", less).run()
    keyed("more", more).run()
    assert lake.sql("SELECT count(*) FROM {t}", "less") + lake.sql("SELECT count(*) FROM {t}", "more") == [(1,), (2,)]
    for name, other, told in (("less", more, "the table has no"), ("more", less, "the records have no")):
        with pytest.raises(SchemaMismatch, match=rf"{told} _key\.region") as refused:
            keyed(name, other).run()
        assert "lakelock replay" in refused.value.hint
        with pytest.raises(SchemaMismatch, match=rf"{told} _key\.region, a part of the key"):
            audit(keyed(name, other).config)
