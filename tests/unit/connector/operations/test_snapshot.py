"""How a snapshot reads objects (where Spark guesses no types), a topic, and the table of a weaker delivery."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from connector.config import DeltaSink, S3ObjectsSink
from connector.operations import snapshot
from connector.operations.snapshot import _messages, _objects, _refuse_another, snapshot_of
from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets

GUESSED = "spark.sql.sources.partitionColumnTypeInference.enabled"
URLS = ["s3://lake/t/payer=007/part-p-1-0.parquet"]


class Reader:
    """Spark's reader: notes each load with the schema, the options and whether types would be guessed."""

    def __init__(self, spark: "Spark", schema: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._spark, self._schema, self._options = spark, schema, options or {}

    def option(self, name: str, value: str) -> "Reader":
        return Reader(self._spark, self._schema, {**self._options, name: value})

    def schema(self, schema: str) -> "Reader":
        return Reader(self._spark, schema, self._options)

    def parquet(self, *places: str) -> Any:
        guesses = self._schema is None and self._spark.conf.get(GUESSED, "true") == "true"
        self._spark.loads.append((list(places), self._schema, self._options, guesses))
        found = SimpleNamespace(schema=self._schema or "as found")
        found.unionByName = lambda _: found
        return found

    def json(self, places: list[str]) -> Any:
        return self.parquet(*places)


class Conf(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


class Spark:
    def __init__(self) -> None:
        self.conf = Conf()
        self.loads: list[tuple[list[str], str | None, Mapping[str, str], bool]] = []

    @property
    def read(self) -> Reader:
        return Reader(self)


@pytest.mark.parametrize("kind", ["parquet", "json_lines"])
@pytest.mark.parametrize("known", ["payer STRING, amount DECIMAL(9, 2)", None])
def test_objects_are_read_by_the_columns_of_the_sink_and_no_type_is_guessed(kind: str, known: str | None) -> None:
    spark = Spark()
    sink = S3ObjectsSink.model_validate({"type": "s3_objects", "url": "s3://lake/t", "format": kind})
    found = _objects(spark, sink, dict.fromkeys(URLS, "UTC"), "UTC", lambda: known)  # type: ignore[arg-type, return-value]
    assert found.schema == (known or "as found")
    assert [guesses for *_, guesses in spark.loads] == [False] * len(spark.loads)
    places, schema, options, _ = spark.loads[-1]
    assert (places, schema) == (["s3a://lake/t/payer=007/part-p-1-0.parquet"], known or "as found")
    assert options["basePath"] == "s3a://lake/t"
    assert options["mode"] == "FAILFAST", "a JSON value of another type isn't read as null"
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

    assert read({"s3://lake/t/a": "UTC", "s3://lake/t/b": "UTC"}, "CET") == [
        (["s3a://lake/t/a", "s3a://lake/t/b"], "UTC")
    ]
    assert read({}, "CET") == [([], "CET")]
    assert read({"s3://lake/t/a": None}, "Asia/Tokyo") == [(["s3a://lake/t/a"], "Asia/Tokyo")]
    assert read({"s3://lake/t/a": None}, "UTC", partition_by=["day"]) == [(["s3a://lake/t/a"], "UTC")]
    assert not caplog.records
    both = {"s3://lake/t/a": None, "s3://lake/t/b": "UTC", "s3://lake/t/c": None}
    assert read(both, "CET") == [(["s3a://lake/t/a", "s3a://lake/t/c"], "CET"), (["s3a://lake/t/b"], "UTC")]
    assert "wrote hour into" in caplog.text
    assert (
        f"is read as CET. If these runs had another zone, say it in a copy of the file, as spark: {{{zone}:"
        in caplog.text
    )


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
