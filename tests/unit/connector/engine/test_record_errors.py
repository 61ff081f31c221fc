"""What a run makes of an error that a query raises on an executor."""

from __future__ import annotations

import pytest

from connector.engine.record_errors import about_the_records, because
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


@pytest.mark.parametrize(
    ("field", "helps"), [("source.txId", True), ("payload.source.txId", True), ("source.pos", False)]
)
def test_who_reads_ids_that_are_texts_is_told_how(field: str, helps: bool) -> None:
    bad = BadRecord("its value: not one JSON object", hint="Make value.schema fit.")
    bad.detail = "its value: not one JSON object"
    problem = {"reason": "value", "detail": f"its value: field {field}: not a BIGINT"}
    found = because(bad, problem, "6.28.807", {"value": b""}, 0)
    assert found.message == f"its value: field {field}: not a BIGINT, but '6.28.807'"
    assert found.hint is not None
    assert ("value: {tx_id: string}" in found.hint) is helps
    assert "Make value.schema fit." in found.hint
