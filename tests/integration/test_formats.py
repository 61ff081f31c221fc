"""Formats of Kafka's keys and values, as they come from a real broker."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from both_decoders import frame_of, until_learned
from conftest import Lake, Topic
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from connector.decode.json import Json
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord, ConfigurationError

pytestmark = pytest.mark.compiled


def of_json(spark: SparkSession, schema: str, *texts: str | bytes, permissive: bool = False) -> list[Any]:
    """For each text the first column's value, or the problem as text with a ! before it."""
    frame = frame_of(spark, [text if isinstance(text, bytes) else text.encode() for text in texts])
    found = until_learned(Json(from_ddl(schema), permissive), frame, ["found"])
    return [row["found"][0] if row["problem"] is None else f"!{row['problem']}" for row in found]


WHOLE = "!not one JSON object that fits value.schema"
LOSS = "!can't be had as value.schema says without loss"
UTC = timezone.utc

EXACT: list[tuple[str, str, Any]] = [
    ("DECIMAL(5,2)", "1.25", Decimal("1.25")),
    ("DECIMAL(5,2)", "1.2500", Decimal("1.25")),
    ("DECIMAL(5,2)", "1.239", LOSS),
    ("DECIMAL(5,2)", "999.999", LOSS),
    ("DECIMAL(5,2)", "1000", WHOLE),
    ("DECIMAL(38,18)", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    ("DECIMAL(10,2)", "1e99999999", WHOLE),
    ("DECIMAL(10,2)", "1e-99999999", WHOLE),
    ("DECIMAL(10,2)", "1e-400", LOSS),
    ("DECIMAL(10,2)", "125e-2", Decimal("1.25")),
    ("DECIMAL(10,2)", "1.250000000000000000000000000000000000000000", Decimal("1.25")),
    ("DECIMAL(10,2)", "1.2500000000000000000000000000000000000000001", LOSS),
    ("DECIMAL(38,10)", "0.1234567890", Decimal("0.1234567890")),
    ("DECIMAL(38,10)", "0.12345678906", LOSS),
    ("DECIMAL(38,10)", '"0.12345678906"', LOSS),
    ("DECIMAL(38,10)", "1.2e-9", Decimal("0.0000000012")),
    ("DECIMAL(38,10)", "1.23e-9", LOSS),
    ("DECIMAL(20,0)", "1.0000000000000000001", LOSS),
    ("ARRAY<DECIMAL(38,10)>", "[1.5, 0.12345678906]", LOSS),
    ("MAP<STRING, DECIMAL(38,10)>", '{"a": 0.12345678906}', LOSS),
    ("STRUCT<d: DECIMAL(38,10), e: DOUBLE>", '{"d": 0.12345678906}', LOSS),
    ("STRUCT<d: DECIMAL(38,10), e: DOUBLE>", '{"d": 1.5, "e": 1e-300}', (Decimal("1.5"), 1e-300)),
    ("STRUCT<d: DECIMAL(38,10), e: DOUBLE>", '{"d": 1.5, "e": 1e-400}', LOSS),
    ("STRUCT<d: DECIMAL(10,2), s: STRING>", '{"d": 1.5, "s": "3e881234-5b1f"}', (Decimal("1.5"), "3e881234-5b1f")),
    ("STRUCT<d: DECIMAL(10,2), s: STRING>", '{"d": 1.5, "s": "x, 12e34567"}', (Decimal("1.5"), "x, 12e34567")),
    ("STRUCT<d: DECIMAL(10,2), s: STRING>", '{"\\u0064": 1e-400}', LOSS),
    ("STRUCT<`a/b`: DECIMAL(38,10)>", '{"a\\/b": 0.12345678906}', LOSS),
    ("STRUCT<d: DECIMAL(38,10), s: STRING, e: DOUBLE>", '{"d": 1.5, "s": "\\u00e9", "e": 0.30000000000000004}',
     (Decimal("1.5"), "é", 0.30000000000000004)),
    ("BIGINT", "9223372036854775807", 2**63 - 1),
    ("BIGINT", "9223372036854775808", WHOLE),
    ("BIGINT", "1.0", WHOLE),
    ("BIGINT", '"1"', WHOLE),
    ("TINYINT", "128", LOSS),
    ("DOUBLE", "1e308", 1e308),
    ("DOUBLE", "1e309", LOSS),
    ("FLOAT", "1e39", LOSS),
    ("BOOLEAN", '"true"', WHOLE),
    ("TIMESTAMP", '"2026-03-01T12:00:00.123456+05:30"', datetime(2026, 3, 1, 6, 30, 0, 123456)),
    ("TIMESTAMP", '"2026-03-01T12:00:00.123456000Z"', datetime(2026, 3, 1, 12, 0, 0, 123456)),
    ("TIMESTAMP", '"2026-03-01T12:00:00.123456789Z"', LOSS),
    ("TIMESTAMP", "1772366400000", LOSS),
    ("TIMESTAMP", '"12:00"', LOSS),
    ("TIMESTAMP", '"2026-02-30T00:00:00Z"', LOSS),
    ("TIMESTAMP_NTZ", '"2026-03-01T12:00:00"', datetime(2026, 3, 1, 12)),
    ("TIMESTAMP_NTZ", '"2026-03-01T12:00:00Z"', LOSS),
    ("DATE", '"2026-03-01"', date(2026, 3, 1)),
    ("DATE", '"2026-03-01T12:00:00Z"', LOSS),
    ("DATE", '"2026"', LOSS),
    ("STRING NOT NULL", "null", LOSS),
    ("MAP<STRING, INT>", '{"a": 1, "a": 2}', LOSS),
    ("ARRAY<DECIMAL(3,1)>", "[1.5, 2.25]", LOSS),
    ("ARRAY<DECIMAL(3,1)>", "[1.5, null]", [Decimal("1.5"), None]),
    ("MAP<STRING, DATE>", '{"a": "2026-03-01"}', {"a": date(2026, 3, 1)}),
    ("STRUCT<d: DECIMAL(3,1), t: ARRAY<TIMESTAMP>>", '{"d": 1.55}', LOSS),
    ("STRUCT<d: DECIMAL(3,1)>", "null", None),
    ("STRING", '"\\ud83d\\ude00"', "\U0001f600"),
    ("STRING", '"\\ud83d"', "!half of a character: a \\u escape without its pair"),
    ("STRING", '"\\\\ud83d"', "\\ud83d"),
    ("STRING", '"\\\\ud83d\\ude00"', "!half of a character: a \\u escape without its pair"),
    ("STRING", '"\\ud83d\\\\\\ude00"', "!half of a character: a \\u escape without its pair"),
    ("STRING", '"\\\\\\ud83d\\ude00"', "\\\U0001f600"),
]  # fmt: skip


@pytest.mark.breadth
def test_json_keeps_values_exactly_or_says_that_it_cant(spark: SparkSession) -> None:
    # One query for each type: a plan costs more than its rows.
    for kind in dict.fromkeys(kind for kind, _, _ in EXACT):
        cases = [(text, expected) for each, text, expected in EXACT if each == kind]
        found = of_json(spark, f"x {kind}", *(f'{{"x": {text}}}' for text, _ in cases))
        assert list(zip((text for text, _ in cases), map(plain, found), strict=True)) == cases, kind


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, tuple) and not hasattr(value, "asDict") else value


def test_json_is_one_object_and_no_more(spark: SparkSession) -> None:
    texts = ["", " ", "null", "[]", "5", '{"a": 1}{"a": 2}', '{"a": 1}]}', '{"a": 1', "{'a': 1}", "{a: 1}", '{"a": 01}']
    texts += [
        "}", "{", '{"a": 1,}', '{"a":}', '{"a"}', '{"a": "}', '[{"a": 1}', '[{"a": 1}]', '{"b": {"a": 1}', '{"a": 1}}',
        '{"a": 1}],"end":true} x', '{"a": 1} x', 'x {"a": 1}', '"{}', '{"a": 1 /* }', "{,}", "}{",
    ]  # fmt: skip
    assert of_json(spark, "a INT", *texts) == [WHOLE] * len(texts)
    assert of_json(spark, "a INT", "{}", ' {"b": 2, "a": 1} ') == [None, 1]
    right = ["{ }", " {\n}\t\r\n", '{"b": {}}', '{"b": {} }', '{"b": "{"}', '{"b": "{" }', '{"b": [{}]\n}']
    assert of_json(spark, "a INT", *right) == [None] * len(right)
    assert of_json(spark, "a STRING", b'{"a": "\xff"}') == ["!not UTF-8 text"]


def test_permissive_json_takes_what_can_only_mean_one_thing(spark: SparkSession) -> None:
    texts = ["{'a': 1}", "{a: 1}", '{"a": 01}', '/* one */ {"a": "1"}', '{"a": 1.0}', '{"a": 1e0}']
    assert of_json(spark, "a INT", *texts, permissive=True) == [1] * len(texts)
    assert of_json(spark, "a INT", '{"a": 1.5}', '{"a": "x"}', permissive=True) == [LOSS, WHOLE]
    assert of_json(spark, "a BOOLEAN", '{"a": "true"}', '{"a": false}', '{"a": 1}', permissive=True) == [
        True,
        False,
        LOSS,
    ]
    assert of_json(spark, "a DOUBLE", '{"a": "1.5"}', '{"a": "Infinity"}', '{"a": 1e999}', permissive=True) == [
        1.5, float("inf"), LOSS,
    ]  # fmt: skip


def send(
    topic: Topic, *records: tuple[bytes | None, bytes | None], headers: Any = (), codec: str | None = None
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=topic.broker.bootstrap, compression_type=codec, max_request_size=20_000_000
    )
    for key, value in records:
        producer.send(topic.name, value, key, headers=list(headers), partition=0).get(30)
    producer.close()


@pytest.mark.breadth
def test_text_and_bytes_with_keys_and_headers(lake: Lake, topic: Topic) -> None:
    send(topic, (b"1", "é".encode()), (None, b""), headers=[("h", b"1"), ("h", b"\xff"), ("i", b"")])
    text = {"value": {"format": "string"}, "key": {"format": "string"}, "headers": True}
    lake.pipeline(**text).run()
    assert lake.sql("SELECT _offset, value, _key, _headers FROM {t} ORDER BY _offset") == [
        (0, "é", "1", {"h": b"\xff", "i": b""}), (1, "", None, {"h": b"\xff", "i": b""}),
    ]  # fmt: skip
    send(topic, (b"1", b"\xff"))
    with pytest.raises(BadRecord, match="offset 2 isn't right: its value: not UTF-8 text"):
        lake.pipeline(**text).run()
    raw = {"value": {"format": "bytes"}, "key": {"format": "bytes"}, "sink": {"path": str(lake.path("raw"))}}
    lake.pipeline(name="raw", **raw).run()
    assert lake.sql("SELECT value, _key FROM {t} ORDER BY _offset", "raw") == [
        ("é".encode(), b"1"), (b"", None), (b"\xff", b"1"),
    ]  # fmt: skip


@pytest.mark.breadth
def test_a_key_of_its_own_format_names_the_row_that_a_tombstone_deletes(lake: Lake, topic: Topic) -> None:
    send(topic, (b'{"id": 1}', b'{"id": 1, "n": 1}'), (b'{"id": 2}', b'{"id": 2, "n": 2}'), (b'{"id": 1}', None))
    options = {"schema": "id INT, n INT", "key": {"format": "json", "schema": "id INT"}, "sink": {"key": "id"}}
    lake.pipeline("upsert", **options).run()
    assert lake.sql("SELECT id, n, _key.id FROM {t}", "upsert") == [(2, 2, 2)]
    assert lake.frame("upsert").schema["_key"].dataType.simpleString() == "struct<id:int>"
    send(topic, (b"two", None))
    with pytest.raises(BadRecord, match="its key: not a JSON object"):
        lake.pipeline("upsert", **options).run()


@pytest.mark.breadth
def test_compressed_topics(lake: Lake, topic: Topic) -> None:
    codecs = ["gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        send(topic, *[(None, b'{"k": "%s", "n": %d}' % (codec.encode(), n)) for n in range(50)], codec=codec)
    expected = sorted((codec, n) for codec in codecs for n in range(50))
    lake.pipeline().run()
    assert lake.rows() == expected
    lake.pipeline(name=topic.name, delivery="manual_commit", sink={"path": str(lake.path("m"))}).run()
    assert lake.rows("m") == expected


def test_messages_of_ten_megabytes(lake: Lake, topic: Topic) -> None:
    large = Topic(topic.broker, f"{topic.name}-large")
    large.broker.create_topic(large.name, 1, {"max.message.bytes": "12000000"})
    send(large, (None, b'{"k": "%s", "n": 1}' % (b"x" * 10_000_000)))
    assert lake.pipeline(source={"topics": [large.name]}).run().rows == 1
    assert lake.sql("SELECT length(k), n FROM {t}") == [(10_000_000, 1)]


def test_what_is_not_there_is_said(lake: Lake) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"value\.format: is one of json, string, bytes, avro, protobuf, debezium, rows, not 'xml'",
    ):
        lake.pipeline(value={"format": "xml"})
    with pytest.raises(ConfigurationError, match=r"value\.schema: unknown option"):
        lake.pipeline(value={"format": "bytes", "schema": "a INT"})
