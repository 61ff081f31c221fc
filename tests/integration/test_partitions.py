"""Tables that a person has partitioned: a value that the name of a folder can't tell exactly is a bad record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query

from connector import Pipeline
from sinks.errors import BadRecord, SchemaMismatch

if TYPE_CHECKING:
    from conftest import Lake, Store

RECORD = "k STRING, n BIGINT, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
SINKS: dict[str, dict[str, Any]] = {
    "append": {"type": "delta_append"},
    "upsert": {"type": "delta_upsert", "key": "k"},
    "history": {"type": "delta_history", "key": "k"},
    "sums": {"type": "delta_aggregate", "group_by": "k", "aggregates": {"total": "sum(n)"}},
}
EVENT = "STRUCT<at: BIGINT, topic: STRING, `partition`: INT, offset: BIGINT, timestamp: TIMESTAMP>"
COLUMNS = {
    "append": RECORD,
    "upsert": RECORD,
    "history": f"{RECORD}, __START_AT BIGINT, __END_AT BIGINT, _state STRUCT<events: ARRAY<{EVENT}>, "
    f"ended_by: {EVENT}>",
    "sums": "k STRING, total BIGINT, _state STRUCT<total: DECIMAL(37, 0)>, _applied MAP<STRING, BIGINT>",
}
NOT_NAMES = ["", "__HIVE_DEFAULT_PARTITION__", "a\x00b", "x" * 254, "é" * 127, ":" * 85]
NAMES = ["a", "a ", " a", "x" * 253, "a/b=c%20'", ".", "null", "\n", ":" * 84]


def made(lake: Lake, *kinds: str, columns: dict[str, str] = COLUMNS, by: str = "k") -> None:
    for kind in kinds:
        lake.sql(f"CREATE TABLE {{t}} ({columns[kind]}) USING delta PARTITIONED BY ({by})", kind)


def of_kind(lake: Lake, kind: str, **changes: Any) -> dict[str, Any]:
    return lake.options(kind, sink={**SINKS[kind], **changes.pop("sink", {})}, schema="k STRING, n BIGINT", **changes)


@pytest.mark.breadth
def test_values_that_are_no_names_of_folders_are_set_aside_and_all_others_exact(lake: Lake) -> None:
    made(lake, *SINKS)
    options = of_kind(lake, "append", on_bad_record="dead_letter", dead_letters={"path": str(lake.path("letters"))})
    options["sinks"] = [{**sink, "path": str(lake.path(name))} for name, sink in SINKS.items()]
    options["coordinator"] = {"path": str(lake.path("log"))}
    options["epoch"] = {"max_records": len(NOT_NAMES + NAMES)}
    for _ in range(2):
        lake.topic.send_rows([(value, 1) for value in NOT_NAMES + NAMES], partition=0)
    Pipeline.from_options(options).run()
    for name in SINKS:
        found = lake.sql(f"SELECT k, {'total' if name == 'sums' else 'n'} FROM {{t}}", name)
        rows = [(value, 2 if name == "sums" else 1) for value in NAMES]
        assert sorted(found) == sorted(rows * 2 if name == "append" else rows), name
    letters = query(lake.path("letters"), "SELECT sink, reason, count(*) AS n FROM t GROUP BY 1, 2 ORDER BY 1")
    assert letters == sorted((str(lake.path(name)), "unfit", 2 * len(NOT_NAMES)) for name in SINKS)


@pytest.mark.parametrize(
    ("kind", "merge"),
    [
        ("append", {}),
        *(
            pytest.param(kind, merge, marks=pytest.mark.breadth)
            for kind in ("upsert", "history", "sums")
            for merge in ({}, {"merge": "on_read"})
            if not (merge and kind == "history")
        ),
    ],
)
def test_the_first_such_record_stops_the_run_with_its_column_and_its_place(
    lake: Lake, kind: str, merge: dict[str, str]
) -> None:
    made(lake, kind)
    options = of_kind(lake, kind, sink=merge)
    lake.topic.send_rows([("a", 1)], partition=0)
    Pipeline.from_options(options).run()
    version = lake.version(kind)
    lake.topic.send_rows([("b", 1), ("", 2)], partition=0)
    for _ in range(2):
        with pytest.raises(BadRecord, match="offset 2 isn't right: its k is the empty text") as caught:
            Pipeline.from_options(options).run()
        assert "partitioned" in caught.value.hint
    assert lake.version(kind) == version


@pytest.mark.breadth
def test_times_before_the_first_year_and_text_that_is_cut_are_bad_records(lake: Lake) -> None:
    lake.sql("CREATE TABLE {t} (at TIMESTAMP, v VARCHAR(2), _topic STRING, _partition INT, _offset BIGINT, "
             "_timestamp TIMESTAMP) USING delta PARTITIONED BY (at, _topic)")  # fmt: skip
    options = lake.options(
        schema="at TIMESTAMP, v STRING", on_bad_record="dead_letter", dead_letters={"path": str(lake.path("letters"))}
    )
    times = [
        "0001-01-01T00:00:00Z",
        "1582-10-10T00:00:00.000001Z",
        "1899-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59Z",
    ]
    lake.topic.send(*((None, {"at": at, "v": "ab"}) for at in ["0000-12-31T23:59:59.999999Z", *times]), partition=0)
    lake.topic.send((None, {"at": times[0], "v": "ab "}), (None, {"at": None, "v": "é\n"}), partition=0)
    Pipeline.from_options(options).run()
    found = lake.sql("SELECT date_format(at, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\"), v FROM {t}")
    assert sorted(at.replace(".000000", "") + "Z" for at, _ in found if at) == times
    assert query(lake.path("letters"), "SELECT _offset, detail FROM t ORDER BY 1") == [
        (0, "its at is before the year 1, and can't be stored in a column that the table is partitioned by"),
        (5, "its v is longer than 2 characters, which the table allows"),
    ]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("columns", "by", "says"),
    [
        ("k BINARY, n BIGINT", "k", "partitioned by k, and a BINARY isn't the name of a folder"),
        ("k CHAR(3), n BIGINT", "n", r"column k is CHAR\(3\), which pads or cuts text"),
    ],
)
def test_columns_that_hold_nothing_exactly_are_refused_before_a_run(
    lake: Lake, columns: str, by: str, says: str
) -> None:
    made(lake, "append", columns={"append": columns + RECORD.removeprefix("k STRING, n BIGINT")}, by=by)
    schema = "k BINARY, n BIGINT" if "BINARY" in columns else "k STRING, n BIGINT"
    with pytest.raises(SchemaMismatch, match=says):
        Pipeline.from_options(lake.options(schema=schema)).check()


@pytest.mark.breadth
def test_objects_are_no_different(lake: Lake, s3: Store) -> None:
    options = lake.options()
    options["sinks"] = [
        {"type": "s3_objects", "url": f"s3://{s3.bucket}/t", "partition_by": "k", "endpoint": s3.endpoint,
         "region": "us-east-1", "path_style": True}
    ]  # fmt: skip
    options["coordinator"] = {"path": str(lake.path("log"))}
    lake.topic.send_rows([("a", 1), ("", 2)], partition=0)
    with pytest.raises(BadRecord, match="offset 1 isn't right: its k is the empty text"):
        Pipeline.from_options(options).run()
    assert s3.visible() == []
