"""Objects in S3 show what every sink must, and hold what the rows held."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import pytest

from connector.engine.outputs import Other
from connector.operations.snapshot import _objects
from sinks.conformance import TwoPhaseConformance
from sinks.contract import Epoch
from sinks.delta.shape import ZONE
from sinks.errors import ConfigurationError, SchemaMismatch
from sinks.objects import S3Objects
from sinks.objects.layout import NULL
from sinks.offsets import Offsets, TopicPartition
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from conftest import Store
    from pyspark.sql import DataFrame, SparkSession


class ObjectsConformance(TwoPhaseConformance["DataFrame"]):
    options: ClassVar[dict[str, Any]]

    @pytest.fixture(autouse=True)
    def _bucket(self, spark: "SparkSession", s3: "Store") -> None:
        self.spark = spark
        self.s3 = s3

    def make_sink(self) -> S3Objects:
        url = f"s3://{self.s3.bucket}/lake/words"
        return S3Objects(self.spark, url, pipeline="conformance", options=self.s3.options, **self.options)

    def make_rows(self, values: Sequence[str], first_offset: int) -> "DataFrame":
        rows = [(value, offset) for offset, value in enumerate(values, start=first_offset)]
        return self.spark.createDataFrame(rows, "k STRING, _offset BIGINT")

    def read_values(self) -> list[str]:
        return [row["k"] for key in self.s3.visible("lake/words/") for row in read(self.s3, key)]


@pytest.mark.breadth
class TestParquet(ObjectsConformance):
    options: ClassVar = {"format": "parquet"}


@pytest.mark.breadth
class TestJsonLines(ObjectsConformance):
    options: ClassVar = {"format": "json_lines"}


@pytest.mark.breadth
class TestPartitioned(ObjectsConformance):
    options: ClassVar = {"format": "parquet", "partition_by": ["_offset"]}


ROWS = """
SELECT id AS `a b`, CAST(id AS DECIMAL(38, 9)) AS `x.y`, timestamp_micros(1767225600123456 + id) AS `T`,
    TIMESTAMP_NTZ'2026-01-01 00:00:00.000001' AS ntz, DATE'1969-12-31' AS `day,of;it`, unhex('00ff') AS bin,
    IF(id % 2 = 0, NULL, named_struct('in ner', array(map('k', id), map()), 'n', CAST(NULL AS INT))) AS nested,
    double('NaN') AS `größe`, CAST(id AS TINYINT) AS `=`, id % 3 = 0 AS `"q"`,
    element_at(array('a/b=c%', NULL, 'ü x', "it's"), CAST(id % 4 AS INT) + 1) AS `p 1`,
    IF(id % 5 = 0, NULL, DATE'2026-01-01' + CAST(id % 2 AS INT)) AS p2
FROM range(40)
"""


def commit(sink: S3Objects, rows: "DataFrame") -> None:
    epoch = Epoch("p", 1, "run", (), Offsets({TopicPartition("t", 0): 1}), {}, None, None, attempt=1)
    prepared = sink.prepare(epoch, rows)
    sink.commit(epoch, prepared)
    assert prepared.rows == sum(each["rows"] for each in sink.objects(1)) == rows.count()


def objects(spark: "SparkSession", s3: "Store", kind: Any, *partition_by: str, **changes: Any) -> S3Objects:
    changes = {"options": s3.options, **changes}
    return S3Objects(spark, f"s3a://{s3.bucket}/lake/", pipeline="p", format=kind, partition_by=partition_by, **changes)


def download(s3: "Store", folder: Path) -> str:
    for key in s3.visible():
        file = folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read())
    return str(folder / "lake")


@pytest.mark.breadth
@pytest.mark.parametrize("partition_by", [pytest.param((), marks=pytest.mark.breadth), ("P 1", "p2")])
def test_parquet_holds_the_very_values(
    spark: "SparkSession", s3: "Store", tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    rows = spark.sql(ROWS)
    commit(objects(spark, s3, "parquet", *partition_by), rows)
    found = spark.read.schema(rows.schema).parquet(download(s3, tmp_path)).selectExpr(*map(quoted, rows.columns))
    assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.collect()))
    if partition_by:
        assert any(
            key.startswith("lake/p 1=a%2Fb%3Dc%25/p2=__HIVE_DEFAULT_PARTITION__/part-p-") for key in s3.visible()
        )
        assert "p2" not in read(s3, s3.visible()[0])[0]


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["parquet", "json_lines"])
def test_a_time_in_a_folder_is_the_same_instant_in_every_zone(
    spark: "SparkSession", s3: "Store", tmp_path: Path, kind: str
) -> None:
    """No object holds it: the folder's name does, and names no zone. Clocks of the writer's zone show an hour twice."""
    times = [
        "0001-01-01T00:00:00", "1969-12-31T23:59:59.999999", "2026-03-29T00:59:59.5", "2026-03-29T01:00:00",
        "2026-10-25T00:30:00", "2026-10-25T01:30:00", "9999-12-31T23:00:00",
    ]  # fmt: skip
    listed = ", ".join(f"TIMESTAMP'{each}Z'" for each in times)
    sent = spark.sql(f"SELECT pos AS id, `a t` FROM (SELECT posexplode(array({listed}, NULL)) AS (pos, `a t`))")
    with with_settings(spark, {ZONE: "Europe/Berlin"}):
        sink = objects(spark, s3, kind, "a t", options=s3.options)
        limits = Other(unused, unused, sink, ["a t"]).unfit(sent)  # type: ignore[arg-type]
        assert not sent.where(" OR ".join(each.broken for each in limits)).head(1)
        commit(sink, sent)
    folders = sorted(unquote(key.split("/")[1]) for key in s3.visible("lake/a t"))
    assert folders == sorted(f"a t={each}" for each in [*(time.replace("T", " ") for time in times), NULL])

    at = download(s3, tmp_path)
    zones: dict[str, str | None] = {f"{tmp_path}/{each['key']}": each["zone"] for each in sink.objects(1)}
    early = Path(at, "a t=2026-07-01 02%3A00%3A00", "part")  # as a run in Berlin by an earlier version
    early.parent.mkdir()
    early.write_bytes(Path(next(iter(zones))).read_bytes())
    place: Any = SimpleNamespace(
        place=at, format=kind, partition_by=("a t",), endpoint=None, region=None, path_style=False
    )
    expected = sorted([*((row[0], row[1]) for row in in_micros(sent)), (0, 1_782_864_000_000_000)], key=repr)
    for zone in ("America/New_York", "UTC"):
        with with_settings(spark, {ZONE: zone}):
            found = _objects(spark, place, {**zones, str(early): None}, "Europe/Berlin", lambda: sent.schema)
            assert sorted(((row[0], row[1]) for row in in_micros(found)), key=repr) == expected


@pytest.mark.breadth
@pytest.mark.parametrize("known", [True, False])
def test_objects_of_every_layout_and_format_are_read_together(
    spark: "SparkSession", s3: "Store", tmp_path: Path, known: bool
) -> None:
    """The options of the sink were changed between epochs. Objects beside folders were left out, without an error."""
    layouts: list[tuple[Any, tuple[str, ...]]] = [
        ("parquet", ()), ("parquet", ("day",)), ("json_lines", ("day",)), ("json_lines", ()), ("parquet", ("day", "k"))
    ]  # fmt: skip
    zones: dict[str, str | None] = {}
    for number, (kind, partition_by) in enumerate(layouts):
        rows = spark.sql(f"SELECT {number}L AS id, '007' AS k, DATE'2026-11-0{number + 1}' AS day")
        sink = S3Objects(
            spark, f"s3a://{s3.bucket}/lake", pipeline=f"p{number}", format=kind, partition_by=partition_by,
            options=s3.options,
        )  # fmt: skip
        commit(sink, rows)
        zones |= {f"{tmp_path}/{each['key']}": each["zone"] for each in sink.objects(1)}
    at, columns = download(s3, tmp_path), rows.schema if known else None
    for kind, partition_by in layouts:
        place: Any = SimpleNamespace(
            place=at, format=kind, partition_by=partition_by, endpoint=None, region=None, path_style=False
        )
        found = _objects(spark, place, zones, "UTC", lambda: columns).selectExpr("id", "k", "CAST(day AS STRING)")
        assert sorted(map(tuple, found.collect())) == [(n, "007", f"2026-11-0{n + 1}") for n in range(len(layouts))]


def in_micros(rows: "DataFrame") -> list[Any]:
    return rows.selectExpr("id", "unix_micros(`a t`)").collect()


def unused(*_: object) -> Any:
    raise AssertionError


def quoted(name: str) -> str:
    return f"`{name}`"


@pytest.mark.breadth
def test_lines_hold_the_very_values(spark: "SparkSession", s3: "Store", tmp_path: Path) -> None:
    rows = spark.sql(ROWS).drop("größe")
    commit(objects(spark, s3, "json_lines"), rows)
    line = min((line for key in s3.visible() for line in read(s3, key)), key=lambda line: line["a b"])
    assert line["nested"] is None, "a null is written"
    assert line["T"] == "2026-01-01T00:00:00.123456Z"
    found = spark.read.schema(rows.schema).json(download(s3, tmp_path))
    assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.collect()))


def test_a_large_object_has_several_parts_and_a_larger_one_becomes_two(spark: "SparkSession", s3: "Store") -> None:
    rows = spark.range(0, 20_000, 1, 1).selectExpr("id", "repeat(sha2(string(id), 512), 10) AS text")
    sink = objects(spark, s3, "json_lines", max_object_bytes=18 * 1024 * 1024)
    commit(sink, rows)
    large, rest = sink.objects(1)
    assert large["bytes"] > 18 * 1024 * 1024 > rest["bytes"]
    for each in (large, rest):
        answer = s3.client.get_object(Bucket=s3.bucket, Key=each["key"])
        body = answer["Body"].read()
        assert (len(body), hashlib.sha256(body).hexdigest()) == (each["bytes"], each["sha256"])
        assert len(body.splitlines()) == each["rows"]
        assert answer["ETag"].strip('"').endswith("-3" if each is large else "-1")


def test_rows_that_do_not_fit_are_refused(spark: "SparkSession", s3: "Store") -> None:
    rows = spark.sql("SELECT 1 AS a, INTERVAL '1' DAY AS i, array(1) AS p")
    epoch = Epoch("p", 1, "run", (), Offsets(), {}, None, None, attempt=1)
    with pytest.raises(SchemaMismatch) as told:
        objects(spark, s3, "parquet", "p", "q").prepare(epoch, rows)
    for word in ("no column q", "column p is array<int>", "column i is interval day"):
        assert word in told.value.message


def test_what_s3_told_a_worker_reaches_the_user(spark: "SparkSession", s3: "Store") -> None:
    epoch = Epoch("p", 1, "run", (), Offsets(), {}, None, None, attempt=1)
    s3.client.delete_bucket(Bucket=s3.bucket)
    with pytest.raises(ConfigurationError, match="doesn't exist"):
        objects(spark, s3, "parquet").prepare(epoch, spark.range(2))


def read(s3: "Store", key: str) -> list[dict[str, Any]]:
    """The rows of one object, without Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    body = s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read()
    if key.endswith(".jsonl"):
        return [json.loads(line) for line in body.splitlines()]
    return pq.ParquetFile(pa.BufferReader(body)).read().to_pylist()
