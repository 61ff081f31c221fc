"""Values in JSON, and what the columnar reader of Kafka and the decoder in Spark SQL make of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from conftest import Topic

from connector.decode.format import UNKNOWN, Format, problem_of
from connector.source import columnar
from connector.source.columnar import ODD, PLAIN
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connector.lab.bench.broker import Broker

NUMBERS = [
    "0", "-0", "1", "-1", "127", "128", "-128", "-129", "32767", "32768", "2147483647", "2147483648", "-2147483648",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "999999999999999999",
    "1000000000000000000", "1.0", "1.10", "1.234", "-0.0", "0.1", "0.005", "99999999.99", "100000000.00", "1e2",
    "1E+2", "1e-2", "1e400", "1e-400", "1e38", "123456789012345678901234567890", "0.1234567890", "3.4028235e38",
    "3.5e38", "1.17549435e-38", "1e999", "1e1000", "01", "1.", "-", ".5", "+1", "NaN", "Infinity", "-Infinity",
    "16777217", "16777217.0", "0.30000000000000004", "2.2250738585072014E-308", "1.00", "12345678.905", "0e5",
    "0.000", "1e0", "1.7976931348623157e308", "4.9e-324", "9007199254740993", "0.000001", "123456789.123456789",
]  # fmt: skip
TEXTS = [
    *(f'"{text}"' for text in (
        "", "x", "a b", "é", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\n\\t\\/\\\"", "\\x", "\\u12", "\x01",
        "\\u0000", "1", "1.5", "-2.25", "1e2", "NaN", "Infinity", "true", "😀", "\U0010ffff", "\x7f", " 1", "1 ", "+1",
        "2026-11-25", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "0001-01-01", "0000-01-01", "9999-12-31",
        "10000-01-01", "1582-10-10", "2026-1-5", " 2026-11-25", "2026-11-25 ", "2026-11-25T10:30:00",
        "2026-11-25 10:30:00", "2026-11-25T10:30:00Z", "2026-11-25T10:30:00.123456Z", "2026-11-25T10:30:00.1234567Z",
        "2026-11-25T10:30:00.1234560Z", "2026-11-25T10:30:00+02:00", "2026-11-25T10:30:00-17:59",
        "2026-11-25T10:30:00+18:00", "2026-11-25T24:00:00", "2026-11-25T10:30", "2026-11-25T10:30:60Z",
        "2026-11-25T10:30:00 Europe/Berlin", "2026-03-29T02:30:00", "2026-10-25T02:30:00", "1890-01-01T00:00:00.5",
        "2026-11-25T10:30:00.Z", "2026-11-25T10:30:00z", "2026-11-25T10:30:00+0200", "10:00", "1969-12-31T23:59:59.9Z",
    )),
]  # fmt: skip
OTHERS = [
    "null", "true", "false", "[]", "{}", "[1]", "[1,2,null]", '["a","b"]', '{"x":1}', '{"x":1,"y":"s","z":[]}',
    '{"x":1,"z":[{"p":"a","q":1},{"q":2}]}', '{"x":1,"z":[{"p":"a"}]}', '{"a":1,"b":2}', '{"a":1,"a":2}', '{"X":1}',
    '{"x":null,"w":{"deep":[1,2,{"a":"\\n"}]}}', '{"k":{"x":"2026-01-01"}}', '{"k":null}', "[[1]]", "nul", "tru",
    '{"x":1,"x":2}', "[1,]", '{"x":1,}', '{"x"}', "{x:1}", "'a'", '{"\\u0078":1}', "[1 2]", "[" * 300 + "]" * 300,
]  # fmt: skip


def read(spark: SparkSession, topic: Topic, records: int, format: Format, *, keep_odd: bool = True) -> DataFrame:
    assert format.plain is not None
    kafka = {"bootstrap.servers": topic.broker.bootstrap, "group.id": "reader"}
    values = replace(format.plain, keep_odd=keep_odd)
    return columnar.read(spark, kafka, [OffsetRange(topic.name, 0, 0, records)], values)


def compared(spark: SparkSession, broker: Broker, values: Sequence[bytes | None], format: Format) -> set[bytes]:
    """Decode the values with the reader and in Spark SQL. Returns those that the reader took.

    What it takes, Spark SQL takes too, and both make the same row of it, or refuse it for the same reason.
    """
    from pyspark.sql.types import StructType

    topic = Topic(broker, f"t-{uuid.uuid4()}")
    broker.create_topic(topic.name, 1)
    topic.send(*(("key", value) for value in values), partition=0)
    mine = format.of_plain(read(spark, topic, len(values), format), PLAIN, "mine")
    both = format.decoded(mine, "value", "theirs")
    assert isinstance(format.type, StructType)
    names = format.type.names
    made = []
    for side in ("mine", "theirs"):
        row = f"named_struct({', '.join(f'{name!r}, {side}.`{name}`' for name in names)})"
        problem = problem_of(side)
        made.append(f"coalesce({problem}, to_json({row}, map('ignoreNullFields', 'false'))) AS of_{side}")
    found = both.selectExpr("offset", "value", ODD, f"{PLAIN} IS NOT NULL AS plain", *made).orderBy("offset").collect()
    asked = {record["of_theirs"] for record in found if record["plain"] and record["of_theirs"].startswith(UNKNOWN)}
    if asked:
        format.resolve([each.removeprefix(UNKNOWN) for each in asked], mine.selectExpr("value AS bytes"))
        return compared(spark, broker, values, format)
    assert [record["offset"] for record in found] == [*range(len(values))]
    assert [None if record["value"] is None else bytes(record["value"]) for record in found] == [*values]
    for record in found:
        assert record[ODD] is (record["value"] is not None and not record["plain"])
        if record["plain"]:
            assert record["of_mine"] == record["of_theirs"], record["value"]
    return {bytes(record["value"]) for record in found if record["plain"]}
