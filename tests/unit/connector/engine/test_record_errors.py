"""What a run makes of an error that a query raises on an executor."""

from __future__ import annotations

import pytest

from connector.engine.record_errors import about_the_records
from connector.spark.jars import JSON_JAR, PROTOBUF_JAR, READER_JAR
from sinks.errors import BadRecord, ConfigurationError
from sinks.spark.row_errors import raise_text


@pytest.mark.parametrize(
    ("missing", "jar"),
    [
        ("lakelock.protobuf.Decode", PROTOBUF_JAR.name),
        ("lakelock.json.Validate", JSON_JAR.name),
        ("lakelock.reader.RecordsReader", READER_JAR.name),
    ],
)
def test_a_jar_that_the_executors_lack_is_named(missing: str, jar: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The driver has {jar}, and the executors lack it") as caught:
        with about_the_records():
            raise RuntimeError(f"Job aborted: java.lang.ClassNotFoundException: {missing}")
    assert "--jars" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "has no event time: its 'at' is null"),
        ({"far": "true"}, r"has an event time out of range: its 'at' isn't in the years 1 to 9999 \(UTC\)"),
    ],
)
def test_a_record_whose_time_no_commit_can_hold_is_named(fields: dict[str, str], says: str) -> None:
    with pytest.raises(BadRecord, match=f"t-0, offset 7 {says}"):
        with about_the_records():
            raise RuntimeError(raise_text("null_time", column="at", topic="t", partition="0", offset="7", **fields))
