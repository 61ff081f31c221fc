"""How a snapshot reads objects (where Spark guesses no types), a topic, and the table of a weaker delivery."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from connector.config import DeltaSink, S3ObjectsSink
from connector.operations import snapshot
from connector.operations.snapshot import _messages, _objects, _refuse_another, snapshot_of
from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets

URLS = ["s3://lake/t/payer=007/part-p-1-0"]
IN_OBJECTS = StructType([StructField("amount", LongType())])


class Reader:
    """Spark's reader: notes each load with the schema, the options and whether folders' types would be guessed."""

    def __init__(self, spark: "Spark", schema: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._spark, self._schema, self._options = spark, schema, options or {}

    def option(self, name: str, value: str) -> "Reader":
        """As PySpark's: changes the reader itself."""
        self._options = {**self._options, name: value}
        return self

    def schema(self, schema: str) -> "Reader":
        self._schema = schema
        return self

    def parquet(self, *places: str) -> Any:
        return self._load("parquet", list(places))

    def json(self, places: list[str]) -> Any:
        return self._load("json_lines", places)

    def _load(self, kind: str, places: list[str]) -> Any:
        guesses = self._schema is None and self._options.get("recursiveFileLookup") != "true"
        self._spark.loads.append((places, self._schema, self._options, guesses))
        self._spark.kinds.append(kind)
        found = SimpleNamespace(schema=self._schema or self._spark.found[kind])
        found.selectExpr = lambda *_: found
        found.union = lambda _: found
        return found


class Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


class Spark:
    def __init__(self) -> None:
        self.conf = Conf()
        self.loads: list[tuple[list[str], str | None, Mapping[str, str], bool]] = []
        self.kinds: list[str] = []
        self.found = {"parquet": IN_OBJECTS, "json_lines": IN_OBJECTS}

    @property
    def read(self) -> Reader:
        return Reader(self)


@pytest.mark.parametrize("kind", ["parquet", "json_lines"])
@pytest.mark.parametrize("known", [StructType([StructField("payer", StringType())]), None], ids=["known", "unknown"])
def test_objects_are_read_by_the_columns_of_the_sink_and_no_type_is_guessed(
    kind: str, known: StructType | None
) -> None:
    spark = Spark()
    sink = S3ObjectsSink.model_validate({"type": "s3_objects", "url": "s3://lake/t", "format": kind})
    found = _objects(spark, sink, dict.fromkeys(URLS, "UTC"), "UTC", lambda: known)  # type: ignore[arg-type, return-value]
    as_text = StructType([*IN_OBJECTS, StructField("payer", StringType())])
    assert found.schema == (known or as_text)
    assert set(spark.kinds) == {kind}
    assert [guesses for *_, guesses in spark.loads] == [False] * len(spark.loads)
    places, schema, options, _ = spark.loads[-1]
    assert (places, schema) == (["s3a://lake/t/payer=007/part-p-1-0"], known or as_text)
    assert options["basePath"] == "s3a://lake/t"
    assert options["mode"] == "FAILFAST", "a JSON value of another type isn't read as null"
    assert "recursiveFileLookup" not in options, "Spark would read nothing of what folders say"
    modes = [options.get(name) for name in ("datetimeRebaseMode", "int96RebaseMode")]
    assert modes == ["CORRECTED"] * 2, "Spark 3.5 refuses Arrow's old dates, and a session with LEGACY shifts them"
    assert spark.conf == {}, "the session's settings are what they were"


def test_times_in_folders_are_read_in_the_zone_in_which_they_were_written(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the session's is. Objects of an earlier version don't say theirs: a warning does, if it may matter."""
    spark, zone = Spark(), "spark.sql.session.timeZone"
    spark.conf.set(zone, "Asia/Tokyo")
    made = {"type": "s3_objects", "url": "s3://lake/t", "partition_by": ["day", "Hour"]}
    columns = StructType([StructField("day", StringType()), StructField("hour", TimestampType())])

    def read(zones: Mapping[str, str | None], then: str, **changes: Any) -> list[tuple[list[str], str]]:
        spark.loads.clear()
        sink = S3ObjectsSink.model_validate({**made, **changes})
        _objects(spark, sink, zones, then, lambda: columns)  # type: ignore[arg-type]
        return [(places, options["timeZone"]) for places, _, options, _ in spark.loads]

    at, at_a = ("s3://lake/t/day=1/hour=2", "s3a://lake/t/day=1/hour=2")
    assert read({f"{at}/a": "UTC", f"{at}/b": "UTC"}, "CET") == [([f"{at_a}/a", f"{at_a}/b"], "UTC")]
    assert read({}, "CET") == [([], "CET")]
    assert read({f"{at}/a": None}, "Asia/Tokyo") == [([f"{at_a}/a"], "Asia/Tokyo")]
    by_day = "lake/t/day=1/a"  # no time names its folder, whatever the file says now
    assert read({f"s3://{by_day}": None}, "UTC") == [([f"s3a://{by_day}"], "UTC")]
    spark.conf.set(zone, "Etc/UTC")  # another name of UTC
    assert read({f"{at}/a": None}, "UTC") == [([f"{at_a}/a"], "UTC")]
    assert not caplog.records
    spark.conf.set(zone, "Asia/Tokyo")
    both = {f"{at}/a": None, f"{at}/b": "UTC", f"{at}/c": None}
    assert read(both, "CET") == [([f"{at_a}/a", f"{at_a}/c"], "CET"), ([f"{at_a}/b"], "UTC")]
    assert "wrote hour into" in caplog.text
    assert (
        f"is read as CET. If these runs had another zone, say it in a copy of the file, as spark: {{{zone}:"
        in caplog.text
    )


def test_objects_are_read_as_they_lie_not_as_the_file_lays_them_now(caplog: pytest.LogCaptureFixture) -> None:
    """In one read with folders Spark leaves out what lies beside them, and it reads all objects in one format."""
    places = [f"lake/t=x/{each}" for each in ("a.parquet", "day=1/b.parquet", "day=2/c.jsonl", "day=3/d.parquet")]
    places += ["lake/t=x/day=1/hour=2/e.parquet", "lake/t=x/f.jsonl"]
    a, b, c, d, e, f = (f"s3a://{place}" for place in places)
    zones = dict.fromkeys((f"s3://{place}" for place in places), "UTC")
    for now in ({}, {"partition_by": "day"}, {"format": "json_lines"}):
        spark = Spark()
        made = {"type": "s3_objects", "url": "s3://lake/t=x", "format": "parquet", **now}
        sink = S3ObjectsSink.model_validate(made)
        _objects(spark, sink, zones, "CET", lambda: IN_OBJECTS)  # type: ignore[arg-type]
        read = list(zip(spark.kinds, (loaded for loaded, *_ in spark.loads), strict=True))
        assert sorted(read) == sorted(
            [("parquet", [a]), ("parquet", [b, d]), ("json_lines", [c]), ("parquet", [e]), ("json_lines", [f])]
        )
        assert not caplog.records


def test_columns_that_the_session_cannot_tell_are_those_of_all_objects() -> None:
    """What a folder names in some, others hold with its type: in Parquet that of the rows, in lines a guess."""
    spark = Spark()
    spark.found["parquet"] = StructType([StructField("day", TimestampType()), StructField("amount", LongType())])
    spark.found["json_lines"] = StructType([StructField("Amount", StringType()), StructField("note", StringType())])
    sink = S3ObjectsSink.model_validate({"type": "s3_objects", "url": "s3://lake/t", "partition_by": "day"})
    urls = ["s3://lake/t/Day=1/land%3D=x/a.jsonl", "s3://lake/t/b.parquet"]
    found = _objects(spark, sink, dict.fromkeys(urls, "UTC"), "UTC", lambda: None)  # type: ignore[arg-type]
    assert [(each.name, each.dataType) for each in found.schema] == [
        ("day", TimestampType()), ("amount", LongType()), ("note", StringType()), ("land=", StringType())
    ]  # fmt: skip


def test_of_a_topic_only_the_partitions_are_read_that_it_had_at_that_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses ends that lack a partition of those that it reads."""
    asked: dict[str, str] = {}
    reader = SimpleNamespace(load=lambda: "records")
    reader.option = lambda name, value: asked.update({name: value}) or reader
    monkeypatch.setattr(snapshot, "spark_reader", lambda *_: reader)
    config: Any = SimpleNamespace(source=SimpleNamespace(kafka_options={}))
    spark: Any = None
    assert _messages(spark, config, {"out": {"0": 7, "1": 0}}) == "records"
    assert json.loads(asked["assign"]) == {"out": [0, 1]}
    assert json.loads(asked["endingOffsets"]) == {"out": {"0": 7, "1": 0}}
    assert "subscribe" not in asked


def test_a_version_of_another_table_of_the_same_name_is_refused() -> None:
    for entry in ({"version": 3, "id": "a"}, {"version": 3}, {"version": 3, "id": ""}):  # older entries have no id
        _refuse_another("lake/t", entry, "a", "version")
    for now in ("b", ""):
        with pytest.raises(ConfigurationError, match=r"lake/t was removed, or recreated .* was a\)"):
            _refuse_another("lake/t", {"version": 3, "id": "a"}, now, "version")


def test_a_table_of_a_weaker_delivery_has_no_version_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batches carry no epoch: the newest commit that has one says where the consumer group began."""
    noon = datetime(2026, 11, 26, tzinfo=timezone.utc)
    history = [
        (Commit(version, noon, "WRITE", {}, None), CommitMetadata("p", Position(version, Offsets(), delivery=delivery)))
        for version, delivery in ((2, "manual_commit"), (1, "transactional"))
    ]
    commits = SimpleNamespace(lineage=lambda: history, is_own=lambda *_: True)
    monkeypatch.setattr(snapshot, "DeltaTable", lambda *_, **__: SimpleNamespace(sql="`t`", label="t"))
    monkeypatch.setattr(snapshot, "PipelineCommits", lambda *_, **__: commits)
    sink = DeltaSink.model_construct(path="lake/t")
    config: Any = SimpleNamespace(two_phase=False, name="p", sinks=[sink], source=SimpleNamespace(topics=[]))
    spark: Any = SimpleNamespace(sql=str)
    for epoch in (None, 2):
        with pytest.raises(ConfigurationError, match="delivery: manual_commit") as refused:
            snapshot_of(config, spark, epoch)
        assert "lakelock.read" in refused.value.hint
    assert snapshot_of(config, spark, 1).sql == {"lake/t": "SELECT * FROM `t` VERSION AS OF 1"}
    del history[0]
    assert snapshot_of(config, spark, None).epoch == 1
