"""What a run makes of an error that a query raises on an executor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connector.delivery.retries import passes
from connector.engine.epoch import Reading
from connector.engine.record_errors import SchemaToAskFor, about_the_records, because
from connector.spark.jars import JSON_JAR, PROTOBUF_JAR, READER_JAR
from sinks.errors import BadRecord, BrokerUnreachable, ConfigurationError
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


@pytest.mark.parametrize(("by", "helps"), [("_source_position", True), ("changed_at", False)])
def test_who_orders_by_a_place_that_mariadb_does_not_tell_is_told_the_setting(by: str, helps: bool) -> None:
    with pytest.raises(BadRecord, match="has no sequence") as caught:
        with about_the_records():
            raise RuntimeError(raise_text("null_sequence", by=by, key="1", topic="t", partition="0", offset="7"))
    assert ("binlog_legacy_event_pos=ON" in (caught.value.hint or "")) is helps


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


UNANSWERED = {
    "the columnar reader": "java.lang.IllegalStateException: Kafka gave no record of t-0 from offset 5 on within 120 s."
    " The records up to 9 were there when the epoch was planned.",
    "Spark's own source": "java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 120000 "
    "milliseconds",
    "a question": "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position for "
    "partition t-0 could be determined",
    "the plan": "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out "
    "waiting for a node assignment. Call: describeTopics",
    "a name": "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
}


@pytest.mark.parametrize("said", UNANSWERED.values(), ids=UNANSWERED)
def test_a_broker_that_is_away_while_a_task_reads_is_a_failure_that_passes(said: str) -> None:
    with pytest.raises(BrokerUnreachable) as caught:
        with about_the_records():
            raise RuntimeError(f"Job aborted due to stage failure: Lost task 0.0 in stage 3.0: {said}\n\tat x.Y.z")
    assert passes(caught.value)
    assert said.partition(": ")[2].rpartition(": ")[2] in caught.value.message


def test_also_while_the_run_reads_the_records_again_for_a_schema() -> None:
    def resolve(*_: object) -> None:
        raise RuntimeError(UNANSWERED["Spark's own source"])

    output: Any = SimpleNamespace(decode=SimpleNamespace(decode=SimpleNamespace(resolve=resolve)))
    records: Any = None
    reading = Reading(lambda *_: records, {"t": output}, timing=None, letters=None)
    with pytest.raises(BrokerUnreachable):
        reading.learn(SchemaToAskFor("value", "7"), ())
