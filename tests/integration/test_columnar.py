"""The columnar reader of Kafka: the records that it decodes are those that Spark SQL decodes, with the same values."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from columns import NUMBERS, OTHERS, TEXTS, compared, read
from conftest import Lake, Topic, own_session
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from suites import draws

from connector.decode.json import Json
from connector.lab.bench.broker import Broker
from connector.source import columnar, records
from connector.source.columnar import ODD
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord
from sinks.kafka import EARLIEST_MILLIS
from sinks.kafka.reader import NO_TIMESTAMP
from sinks.offsets import OffsetRange

pytestmark = pytest.mark.spark4("the columnar reader is built for Spark 4")

TYPES = {
    "a": "INT", "b": "BIGINT", "c": "STRING", "d": "DECIMAL(10,2)", "e": "DOUBLE", "f": "FLOAT", "g": "BOOLEAN",
    "h": "DATE", "i": "TIMESTAMP", "j": "TIMESTAMP_NTZ", "k": "SMALLINT", "l": "TINYINT", "m": "ARRAY<INT>",
    "n": "STRUCT<x: INT, y: STRING, z: ARRAY<STRUCT<p: STRING, q: BIGINT NOT NULL>>>", "o": "MAP<STRING, INT>",
    "p": "DECIMAL(38,10)", "q": "ARRAY<STRING>", "r": "INT NOT NULL", "s t": "STRING", "ü": "STRING",
    "u": "DECIMAL(20,0)", "v": "MAP<STRING, STRUCT<x: DATE>>",
}  # fmt: skip
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
WITHOUT_STRUCTS = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items() if "STRUCT" not in kind)
GOOD = {
    "a": NUMBERS[2:8], "b": NUMBERS[2:13], "c": TEXTS[:6], "d": ["1.5", "2", '"1.5"', "-0.5"], "e": ["1.5", "0.1"],
    "f": ["1.5", "0.1", "3"], "g": ["true", "false"], "h": ['"2026-11-25"', '"2024-02-29"'],
    "i": ['"2026-11-25T10:30:00Z"', '"2026-11-25 10:30:00.5"'], "j": ['"2026-11-25T10:30:00"'], "k": ["1"],
    "l": ["7"], "m": ["[1]", "[]", "null"], "n": ['{"x":1}', '{"x":1,"z":[{"p":"a","q":1},{"q":2}]}', "null"],
    "o": ['{"a":1}', "{}"], "p": ["1.5", "12345678901234567890.5"], "q": ['["a","b"]'], "r": ["1", "2"],
    "s t": ['"x"'], "ü": ['"é"'], "u": ["5", "12345678901234567890"], "v": ['{"k":{"x":"2026-01-01"}}'],
}  # fmt: skip
WHOLES: list[bytes | None] = [b"", b"{}", b"[]", b"null", b"1", b'"x"', b" ", None, b'{"r":1}', b'{"r":null}']


def record(random: random.Random) -> bytes:
    """A JSON object of some fields. One of them may have any value, and a byte of the whole may be another one."""
    blank = lambda: random.choice(["", "", "", " ", "\t", " \r\n"])  # noqa: E731
    names = [name for name in GOOD if random.random() < 0.8 or name == "r"]
    random.shuffle(names)
    odd = random.choice(names) if random.random() < 0.6 else None
    pairs = []
    for name in names:
        value = random.choice(random.choice([NUMBERS, TEXTS, OTHERS]) if name == odd else GOOD[name])
        spelled = random.choice([name] * 60 + [name.upper(), "unknown", "ünknown", "\\u0061", "K"])
        pairs.append(f'{blank()}"{spelled}"{blank()}:{blank()}{value}{blank()}')
    made = (blank() + "{" + ",".join(pairs) + "}" + blank()).encode()
    at = random.randrange(len(made))
    return random.choice(
        [made] * 20
        + [made[:at], made + b"x", made + made, b"\xef\xbb\xbf" + made]
        + [made[:at] + bytes([random.randrange(256)]) + made[at + 1 :]]
        + [
            made[:at] + odd_bytes + made[at:]
            for odd_bytes in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff")
        ]
    )


def each_value_in_each_field() -> Iterator[bytes]:
    for value in (*NUMBERS, *TEXTS, *OTHERS):
        for name in GOOD:
            yield (f'{{"r":1,"{name}":{value}}}' if name != "r" else f'{{"r":{value}}}').encode()


def test_each_value_in_a_field_of_each_type(spark: SparkSession, broker: Broker) -> None:
    usual = [f'{{"r":1,"{name}":{value}}}'.encode() for name, values in GOOD.items() if name != "r" for value in values]
    taken = compared(spark, broker, [*usual, *each_value_in_each_field(), *WHOLES], Json(from_ddl(SCHEMA)))
    assert {*usual} <= taken
    assert b'{"r":1}' in taken
    assert {b"{}", b'{"r":null}', b'{"r":1,"n":{"X":1}}', b'{"r":1,"n":{"x":1,"x":2}}'} & taken == set()


@pytest.mark.law
@draws()
@given(seed=st.integers(0, 2**32 - 1))
def test_random_records(spark: SparkSession, broker: Broker, seed: int) -> None:
    draw = random.Random(seed)
    session = own_session(spark)
    session.conf.set("spark.sql.session.timeZone", draw.choice(["UTC", "Europe/Berlin", "America/New_York"]))
    # The reader sees new fields among the outermost ones only.
    format = draw.choice([Json(from_ddl(SCHEMA)), Json(from_ddl(WITHOUT_STRUCTS), on_new_column="fail")])
    assert Json(from_ddl(SCHEMA), on_new_column="fail").plain is None
    compared(session, broker, [record(draw) for _ in range(200)], format)


@pytest.mark.breadth
def test_an_odd_record_is_left_to_spark_sql_and_the_others_are_not(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of its fields are in upper case: unusual, and right. The epoch is read again, and nothing twice."""
    kept: list[bool] = []
    read = columnar.read

    def watched(*arguments: Any) -> DataFrame:
        kept.append(arguments[3].keep_odd)
        return read(*arguments)

    monkeypatch.setattr(columnar, "read", watched)
    topic.send_rows([("a", 1)], partition=0)
    topic.send(("b", b'{"K": "b", "N": 2}'), partition=0)
    topic.send_rows([("c", 3)], partition=1)
    lake.pipeline(source={"reader": "auto"}).run()
    assert lake.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert sorted(set(kept)) == [False, True]
    assert kept == sorted(kept)


@pytest.mark.breadth
def test_who_wants_sparks_own_reader_gets_it(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "read", lambda *_, **__: pytest.fail("the columnar reader ran"))
    topic.send_rows([("a", 1)], partition=0)
    lake.pipeline(source={"reader": "spark"}).run()
    assert lake.rows() == [("a", 1)]


def test_records_that_are_gone_fail_the_query(spark: SparkSession, topic: Topic) -> None:
    topic.send_rows([("a", number) for number in range(10)], partition=0)
    topic.delete_before(0, 4)
    with pytest.raises(Exception, match="OffsetOutOfRange"):
        read(spark, topic, 10, Json(from_ddl("k STRING, n INT"))).count()


@pytest.mark.breadth
def test_records_that_go_once_they_were_read_do_not_fail_it(spark: SparkSession, topic: Topic) -> None:
    """Retention close behind a slow task: it has passed a marker of a transaction, which left a gap, like a loss."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=topic.name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic.name, b'{"k": "a"}', partition=0)
    producer.commit_transaction()
    producer.close()
    # As much as makes the reader wait for the function below.
    topic.send(*[("b", {"k": "b" * 5_000})] * 6_000, partition=0)
    bootstrap, name = topic.broker.bootstrap, topic.name

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        from kafka import KafkaAdminClient
        from kafka.structs import TopicPartition

        for number, batch in enumerate(batches):
            if number == 0:
                admin = KafkaAdminClient(bootstrap_servers=bootstrap)
                admin.delete_records({TopicPartition(name, 0): 10})
                admin.close()
            yield batch.select(["offset"])

    session = own_session(spark)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    found = read(session, topic, 6_002, Json(from_ddl("k STRING"))).select("offset", "value")
    offsets = {row["offset"] for row in found.mapInArrow(slow, "offset BIGINT").collect()}
    assert offsets == {*range(6_002)} - {1}


@pytest.mark.breadth
@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_a_timestamp_in_nanoseconds_is_told_with_its_record(reader: str, lake: Lake, topic: Topic) -> None:
    from kafka import KafkaProducer

    old = Topic(topic.broker, f"old-{topic.name}")
    topic.broker.create_topic(old.name, 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})  # as before Kafka 4.0
    old.send_rows([("a", 1)])
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    producer.send(old.name, b'{"k": "b", "n": 2}', timestamp_ms=1_790_000_000 * 10**9).get(30)
    producer.close()
    assert lake.spark is not None
    named = reader == "auto" or lake.spark.version >= "4.2"  # Spark's own source names it from then on
    where = f"{old.name}-0, offset 1 has a" if named else "A record has a"
    with pytest.raises(BadRecord, match=f"{where} Kafka timestamp out of range"):
        lake.pipeline(source={"reader": reader, "topics": [old.name]}).run()


@pytest.mark.breadth
@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_a_timestamp_before_1900_is_refused_by_all_readers(reader: str, lake: Lake, topic: Topic) -> None:
    from kafka import KafkaProducer

    def send(millis: int) -> None:
        producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
        producer.send(topic.name, b'{"k": "a", "n": 1}', partition=0, timestamp_ms=millis).get(30)
        producer.close()

    send(EARLIEST_MILLIS)
    pipeline = lake.pipeline(source={"reader": reader, "topics": [topic.name]})
    pipeline.run()
    assert pipeline.verify().ok
    send(-62_135_596_800_000)
    with pytest.raises(BadRecord, match=f"{topic.name}-0, offset 1 has a Kafka timestamp out of range"):
        pipeline.run()


def test_no_odd_record_passes_a_query_that_needs_no_column_of_it(spark: SparkSession, topic: Topic) -> None:
    topic.send(("a", b"no JSON"), partition=0)
    format = Json(from_ddl("k STRING, n INT"))
    with pytest.raises(Exception, match=columnar.FOUND_ODD):
        read(spark, topic, 1, format, keep_odd=False).select("offset").collect()
    assert read(spark, topic, 1, format).where(ODD).count() == 1


@pytest.mark.breadth
def test_the_last_record_of_a_key_has_its_own_headers(spark: SparkSession, topic: Topic) -> None:
    """What is held back is a copy: a header would keep all that was fetched with it."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    given = [("a", [("h", b"1")]), ("b", []), ("a", [("h", b"2"), ("i", b"")])]
    for key, headers in given:
        producer.send(topic.name, json.dumps({"k": key}).encode(), key.encode(), headers, 0).get(30)
    producer.close()
    values = Json(from_ddl("k STRING")).plain
    assert values is not None
    kafka = {"bootstrap.servers": topic.broker.bootstrap, "group.id": "g"}
    found = columnar.read(spark, kafka, [OffsetRange(topic.name, 0, 0, 3)], replace(values, latest_by=("k",)))
    rows = found.orderBy("offset").select("offset", "key", "headers").collect()
    assert [(row["offset"], bytes(row["key"])) for row in rows] == [(1, b"b"), (2, b"a")]
    assert rows[0]["headers"] is None
    assert [(each["key"], each["value"]) for each in rows[1]["headers"]] == [("h", b"2"), ("i", b"")]
    assert [row["offset"] for row in found.orderBy("offset").select("offset").collect()] == [1, 2]


@pytest.mark.breadth
def test_no_record_with_a_timestamp_out_of_range_is_left_out_for_a_later_one_of_its_key(
    spark: SparkSession, topic: Topic
) -> None:
    """``verify`` looks at each record. Else it would refuse what the run has passed."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for millis in (-62_135_596_800_000, EARLIEST_MILLIS):
        producer.send(topic.name, b'{"k": "a"}', partition=0, timestamp_ms=millis).get(30)
    producer.close()
    values = Json(from_ddl("k STRING")).plain
    assert values is not None
    kafka = {"bootstrap.servers": topic.broker.bootstrap, "group.id": "g"}
    found = columnar.read(spark, kafka, [OffsetRange(topic.name, 0, 0, 2)], replace(values, latest_by=("k",)))
    assert [row["offset"] for row in found.orderBy("offset").select("offset").collect()] == [0, 1]
    with pytest.raises(Exception, match=f"{NO_TIMESTAMP} -62135596800000 0 0 {topic.name}"):
        found.select("offset", "timestamp").collect()


def test_the_cores_share_a_large_partition(spark: SparkSession, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORDS_PER_TASK", 10)
    topic.send_rows([("a", number) for number in range(101)], partition=0)
    found = read(spark, topic, 101, Json(from_ddl("k STRING, n INT")))
    rows = found.selectExpr("offset", "spark_partition_id() AS task").collect()
    assert sorted(row["offset"] for row in rows) == [*range(101)]
    assert len({row["task"] for row in rows}) >= min(2, os.cpu_count() or 1)
