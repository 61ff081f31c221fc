from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine.record_errors import about_the_records
from connector.source.columnar import NO_TIMESTAMP
from connector.source.records import polled
from sinks.errors import BadRecord

NANOSECONDS = 1_790_000_000 * 10**9
SAYS = r"The record at my-1, offset 7 has a Kafka timestamp out of range: 1,790,000,000,000,000,000 milliseconds"


def test_a_polled_record_whose_timestamp_is_out_of_range_is_named() -> None:
    unused: Any = None
    record = SimpleNamespace(topic="my", partition=1, offset=7, timestamp=NANOSECONDS)
    with pytest.raises(BadRecord, match=SAYS):
        polled(unused, iter([record]))


def test_one_that_the_columnar_reader_has_met_too() -> None:
    with pytest.raises(BadRecord, match=SAYS.replace("my", "my")), about_the_records():
        raise RuntimeError(f"Lost task 0.0: java.lang.{NO_TIMESTAMP} {NANOSECONDS} 1 7 my\n\tat lakelock.reader")


def test_of_one_that_sparks_own_source_has_met_it_is_said_what_is_wrong() -> None:
    said = "java.lang.ArithmeticException: long overflow\n\tat java.lang.Math.multiplyExact"
    at = "\n\tat org.apache.spark.sql.kafka010.KafkaRecordToRowConverter$.$anonfun$toInternalRowWithoutHeaders$1"
    with pytest.raises(BadRecord, match="A record has a Kafka timestamp out of range") as caught, about_the_records():
        raise RuntimeError(said + at)
    assert "kafka-delete-records" in caught.value.hint
    with pytest.raises(RuntimeError), about_the_records():
        raise RuntimeError(said)
