"""A SELECT between decoding and the table."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Lake, Topic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connector.audit.decode import transformed
from connector.audit.records import Records
from connector.decode.records import CARRIED
from connector.decode.transform import refuse_made, transform
from sinks.errors import ConfigurationError

pytestmark = pytest.mark.compiled


@pytest.mark.breadth
def test_several_rows_of_a_record_keep_its_coordinates(lake: Lake, topic: Topic) -> None:
    topic.send(*((None, {"line": line}) for line in ("to be or", "not to be", "")), partition=1)
    lake.pipeline(
        schema="line STRING", transform="SELECT explode(split(line, ' ')) AS word FROM records WHERE line <> ''"
    ).run()
    assert lake.frame().columns == ["word", "_topic", "_partition", "_offset", "_timestamp"]
    rows = lake.sql("SELECT word, _partition, _offset FROM {t} ORDER BY _offset, word")
    assert rows == [("be", 1, 0), ("or", 1, 0), ("to", 1, 0), ("be", 1, 1), ("not", 1, 1), ("to", 1, 1)]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param("SELECT * FROM records", ["k", "n"], marks=pytest.mark.breadth),
        ("-- SELECT it\n select /*+ COALESCE(1) */ n + _partition AS n2, * FROM records", ["n2", "k", "n"]),
        pytest.param(
            "SELECT r.k, 'LIMIT' AS `group` FROM (SELECT * FROM records) AS r",
            ["k", "group"],
            marks=pytest.mark.breadth,
        ),
    ],
)
def test_columns_of_a_transform(sql: str, columns: list[str], lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)], partition=1)
    lake.pipeline(transform=sql).run()
    assert lake.frame().columns == [*columns, "_topic", "_partition", "_offset", "_timestamp"]
    assert lake.sql("SELECT _partition, _offset FROM {t}") == [(1, 0)]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT k, count(*) FROM records GROUP BY k", "GROUP can't be used"),
        ("SELECT k FROM records LIMIT 5", "LIMIT can't be used"),
        ("SELECT sum(n) OVER (ORDER BY k) AS s FROM records", "OVER can't be used"),
        ("SELECT max(n) AS n FROM records", "Spark doesn't take it"),
        ("SELECT nn FROM records", "nn"),
        ("SELECT k FROM record", "write one SELECT ... FROM records"),
        ("SELECT k FROM (SELECT k FROM records)", "added automatically"),
        ("DROP TABLE records", "write one SELECT"),
        ("SELECT k, n AS K FROM records", "there twice"),
        (
            "SELECT *, n = 1 AS _tombstone FROM records",
            "transform: makes _tombstone, which is a column of Lakelock's own",
        ),
    ],
)
def test_what_does_not_work_row_by_row_is_refused(sql: str, said: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)])
    with pytest.raises(ConfigurationError) as caught:
        lake.pipeline(transform=sql).run()
    assert said in f"{caught.value} {caught.value.hint}"
    assert not lake.path().exists()


def test_two_threads_of_a_session_select_from_their_own_records(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an epoch, and a rehearsal or a `status` beside it: each makes its view before the other uses its own."""
    both, records = threading.Barrier(2, timeout=60), spark.sql(_RECORD)
    create = type(records).createOrReplaceTempView

    def at_once(rows: DataFrame, name: str) -> None:
        create(rows, name)
        both.wait()

    def of_epoch(text: str) -> DataFrame:
        return transform(records.withColumn("k", F.lit(text)), sql, CARRIED, view="v").select("k")

    def of_auditor(text: str) -> DataFrame:
        rows = records.withColumn("k", F.lit(text)).selectExpr("*", "CAST(NULL AS STRING) AS _problem")
        return transformed(Records(rows, records.schema), sql).frame.select("k")

    monkeypatch.setattr(type(records), "createOrReplaceTempView", at_once)
    sql = "SELECT k FROM records"
    for select in of_epoch, of_auditor:
        with ThreadPoolExecutor(2) as pool:
            found = [frame.collect() for frame in pool.map(select, ("one", "two"))]
        assert found == [[("one",)], [("two",)]]


_RECORD = """
    SELECT 'a' AS k, TIMESTAMP'2026-11-01 00:00:00' AS at, named_struct('_timestamp', 1) AS s, 't' AS _topic,
    0 AS _partition, 0L AS _offset, TIMESTAMP'2026-11-02 00:00:00' AS _timestamp, false AS _tombstone
"""
_INNER = "_topic, _partition, _offset, _tombstone"


def test_a_select_passes_lakelocks_columns_on_and_makes_none(spark: SparkSession) -> None:
    records = spark.sql(_RECORD)
    every = Records(records.selectExpr("*", "CAST(NULL AS STRING) AS _problem"), records.schema)
    for sql in (
        "SELECT * FROM records",
        "SELECT k, _timestamp, _TOMBSTONE, _offset AS s FROM records",
        "SELECT r.*, n FROM (SELECT * FROM records WHERE _timestamp > at) AS r LATERAL VIEW explode(array(1, 2)) AS n",
    ):
        refuse_made(records, sql, CARRIED, view="v")
        made = transform(records, sql, CARRIED, view="v")
        own = [name for name in made.columns if name not in CARRIED]
        assert own == transformed(every, sql).columns.names
        assert not any(field.metadata for field in made.schema)
    for name, sql in {
        "_tombstone": "SELECT k, k = 'a' AS _tombstone FROM records",
        "_timestamp": "SELECT *, at AS _Timestamp FROM records",
        "_offset": "SELECT k, _offset + 1 AS _offset FROM records",
        "_partition": "SELECT k, _offset AS _partition FROM records",
        "_raw": "SELECT k, k AS _raw FROM records",
        "_timestamp ": "SELECT k, s.* FROM records",
        "_timestamp  ": f"SELECT k FROM (SELECT k, at AS _timestamp, {_INNER} FROM records)",
    }.items():
        with pytest.raises(ConfigurationError, match=f"makes {name.strip()}, which is a column of Lakelock's own"):
            refuse_made(records, sql, CARRIED, view="v")
        with pytest.raises(ConfigurationError, match=f"{name.strip()} is a column of Lakelock's own"):
            transformed(every, sql)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param("upsert", "n > 0", marks=pytest.mark.breadth),
        pytest.param("history", "n IS NOT NULL", marks=pytest.mark.breadth),
        ("upsert", "k <> 'b' AND n + 1 > 0"),
    ],
)
def test_a_filter_never_leaves_deletes_out_in_silence(kind: str, where: str, lake: Lake, topic: Topic) -> None:
    topic.send(
        ("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 0}), ("a", None), ("c", {"k": "c", "n": 3}), partition=0
    )
    sink = {"sink": {"key": "k"}}
    with pytest.raises(ConfigurationError, match="transform: leaves out tombstones, which delete rows"):
        lake.pipeline(kind, **sink, transform=f"SELECT * FROM records WHERE {where}").run()
    assert not lake.path(kind).exists()
    lake.pipeline(kind, **sink, transform=f"SELECT * FROM records WHERE _tombstone OR ({where})").run()
    alive = "__END_AT IS NULL" if kind == "history" else "true"
    assert lake.sql(f"SELECT k FROM {{t}} WHERE {alive} AND k <> 'b'", kind) == [("c",)]


@pytest.mark.breadth
def test_a_filter_by_the_key_takes_deletes_as_it_takes_rows(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 2}), ("a", None), partition=0)
    lake.pipeline("upsert", transform="SELECT * FROM records WHERE k IS NOT NULL AND k <> 'c'").run()
    assert lake.rows("upsert") == [("b", 2)]


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("transform", "deletes", "said"),
    [
        ("SELECT id, name, _op FROM records WHERE _tombstone OR name <> 'test'", None, "leaves out events"),
        *(
            pytest.param(*variant, marks=pytest.mark.breadth)
            for variant in (
                ("SELECT id, name FROM records", None, "leaves out _op"),
                ("SELECT id, name, _op FROM records WHERE name <> 'test'", None, "leaves out tombstones"),
                (None, "name = 'gone'", "doesn't say what becomes of the rows that the database deletes"),
            )
        ),
    ],
)
def test_what_the_database_deletes_is_deleted(
    transform: str | None, deletes: str | None, said: str, lake: Lake, topic: Topic
) -> None:
    before = {"id": 7, "name": None}
    topic.send(("7", {"op": "c", "after": {"id": 7, "name": "x"}}), ("7", {"op": "d", "before": before}), partition=0)
    value = {"format": "debezium", "schema": "id INT, name STRING"}
    sink = {"key": "id", **({"apply_as_deletes": deletes} if deletes else {})}
    with pytest.raises(ConfigurationError, match=said):
        lake.pipeline("upsert", value=value, sink=sink, transform=transform).run()
    if transform is not None and "WHERE" in transform:
        transform = "SELECT id, name, _op FROM records WHERE _tombstone OR _op = 'd' OR name <> 'test'"
    elif transform is not None:
        transform = "SELECT id, name, _op FROM records"
    if deletes:
        sink["apply_as_deletes"] = f"_op = 'd' OR {deletes}"
    lake.pipeline("upsert", value=value, sink=sink, transform=transform).run()
    assert lake.sql("SELECT * FROM {t}", "upsert") == []
