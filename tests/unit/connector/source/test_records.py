from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine.record_errors import about_the_records
from connector.source.records import polled
from connector.spark.jars import READER_JAR
from sinks.errors import BadRecord
from sinks.kafka import EARLIEST_MILLIS, reader_refused
from sinks.kafka.reader import NO_TIMESTAMP

NANOSECONDS = 1_790_000_000 * 10**9
SAYS = r"The record at my-1, offset 7 has a Kafka timestamp out of range: 1,790,000,000,000,000,000 milliseconds"


def test_a_polled_record_whose_timestamp_is_out_of_range_is_named() -> None:
    unused: Any = None
    record = SimpleNamespace(topic="my", partition=1, offset=7, timestamp=NANOSECONDS)
    with pytest.raises(BadRecord, match=SAYS):
        polled(unused, iter([record]))


def test_one_that_the_columnar_reader_has_met_too() -> None:
    with pytest.raises(BadRecord, match=SAYS), about_the_records():
        raise RuntimeError(
            f"Lost task 0.0: java.lang.IllegalStateException: {NO_TIMESTAMP} {NANOSECONDS} 1 7 my\n\tat lakelock.reader"
        )


NEVER_SET = -62_135_596_800_000
"""The first day of the year 1, the zero of .NET's time. Spark's own source takes it for the third."""


@pytest.mark.parametrize("millis", [NEVER_SET, EARLIEST_MILLIS - 1])
def test_a_polled_one_that_sparks_own_source_would_take_for_another_time_is_named(millis: int) -> None:
    unused: Any = None
    record = SimpleNamespace(topic="my", partition=1, offset=7, timestamp=millis)
    with pytest.raises(BadRecord, match=f"offset 7 has a Kafka timestamp out of range: {millis:,} milliseconds"):
        polled(unused, [record])


def test_of_such_a_one_sparks_own_source_tells_only_where_it_is() -> None:
    refusal = reader_refused(RuntimeError(f"[USER_RAISED_EXCEPTION] {NO_TIMESTAMP} ? 1 7 my\n\tat org.apache.spark"))
    assert isinstance(refusal, BadRecord)
    assert "The record at my-1, offset 7 has a Kafka timestamp out of range: before 1900." in str(refusal)
    assert "message.timestamp.before.max.ms" in refusal.hint


def test_all_readers_begin_at_one_time() -> None:
    assert datetime.fromtimestamp(EARLIEST_MILLIS / 1000, timezone.utc) == datetime(1900, 1, 2, tzinfo=timezone.utc)
    columnar = (READER_JAR.parent / "java/reader/RecordsReader.java").read_text()
    assert f"EARLIEST_MILLIS = {EARLIEST_MILLIS:_}L;" in columnar


def test_one_that_sparks_own_source_names_from_spark_4_2_on_is_named() -> None:
    said = (
        f"[KAFKA_MALFORMED_RECORD_TIMESTAMP] Record at topic my partition 1 offset 7 has timestamp value {NANOSECONDS} "
        "that overflows when converting to Spark's microsecond-precision TimestampType.\nKafka record timestamps must"
    )
    with pytest.raises(BadRecord, match=SAYS), about_the_records():
        raise RuntimeError(said)


def test_of_one_that_sparks_own_source_has_met_it_is_said_what_is_wrong() -> None:
    said = "java.lang.ArithmeticException: long overflow\n\tat java.lang.Math.multiplyExact"
    at = "\n\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter$.$anonfun$toInternalRowWithoutHeaders$1"
    with pytest.raises(BadRecord, match="A record has a Kafka timestamp out of range") as caught, about_the_records():
        raise RuntimeError(said + at)
    assert "kafka-delete-records" in caught.value.hint
    # Brokers delete no records of a topic that is compacted only.
    assert all(each in caught.value.hint for each in ("compact,delete", "retention.ms", "send the key once more"))
    with pytest.raises(RuntimeError), about_the_records():
        raise RuntimeError(said)
