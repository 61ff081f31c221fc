"""The columnar reader of Kafka: the records that it decodes are those that Spark SQL decodes, with the same values."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Lake, Topic
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from connector.decode.format import problem_of
from connector.decode.json import Json
from connector.source import columnar
from connector.source.columnar import ODD, PLAIN
from connector.spark.compat import from_ddl
from sinks.errors import BadRecord
from sinks.offsets import OffsetRange
from suites import draws

pytestmark = pytest.mark.spark4("the columnar reader is built for Spark 4")

TYPES = {
    "a": "INT", "b": "BIGINT", "c": "STRING", "d": "DECIMAL(10,2)", "e": "DOUBLE", "f": "FLOAT", "g": "BOOLEAN",
    "h": "DATE", "i": "TIMESTAMP", "j": "TIMESTAMP_NTZ", "k": "SMALLINT", "l": "TINYINT", "m": "ARRAY<INT>",
    "n": "STRUCT<x: INT, y: STRING, z: ARRAY<STRUCT<p: STRING, q: BIGINT NOT NULL>>>", "o": "MAP<STRING, INT>",
    "p": "DECIMAL(38,10)", "q": "ARRAY<STRING>", "r": "INT NOT NULL", "s t": "STRING", "ü": "STRING",
    "u": "DECIMAL(20,0)", "v": "MAP<STRING, STRUCT<x: DATE>>",
}  # fmt: skip
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
NUMBERS = """
    0 -0 1 -1 127 128 -128 -129 32767 32768 2147483647 2147483648 -2147483648 9223372036854775807 9223372036854775808
    -9223372036854775808 999999999999999999 1000000000000000000 1.0 1.10 1.234 -0.0 0.1 0.005 99999999.99 100000000.00
    1e2 1E+2 1e-2 1e400 1e-400 1e38 123456789012345678901234567890 0.1234567890 3.4028235e38 3.5e38 1.17549435e-38 1e999
    1e1000 01 1. - .5 +1 NaN Infinity -Infinity 16777217 16777217.0 0.30000000000000004 2.2250738585072014E-308 1.00
    12345678.905 0e5 0.000 1e0 1.7976931348623157e308 4.9e-324 9007199254740993 0.000001 123456789.123456789
""".split()
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
GOOD = {
    "a": NUMBERS[:8], "b": NUMBERS[:14], "c": TEXTS[:6], "d": ["1.5", "2", '"1.5"', "-0.5"], "e": ["1.5", "0.1", "1e10"],
    "f": ["1.5", "0.1", "3"], "g": ["true", "false"], "h": ['"2026-11-25"', '"2024-02-29"'],
    "i": ['"2026-11-25T10:30:00Z"', '"2026-11-25 10:30:00.5"'], "j": ['"2026-11-25T10:30:00"'], "k": ["1"], "l": ["7"],
    "m": ["[1]", "[]", "null"], "n": ['{"x":1}', '{"x":1,"z":[{"p":"a","q":1},{"q":2}]}', "null"], "o": ['{"a":1}', "{}"],
    "p": ["1.5", "12345678901234567890.5"], "q": ['["a","b"]'], "r": ["1", "2"], "s t": ['"x"'], "ü": ['"é"'],
    "u": ["5", "12345678901234567890"], "v": ['{"k":{"x":"2026-01-01"}}'],
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
        + [made[:at] + odd_bytes + made[at:] for odd_bytes in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff")]
    )


def each_value_in_each_field() -> Iterator[bytes]:
    for value in (*NUMBERS, *TEXTS, *OTHERS):
        for name in GOOD:
            yield (f'{{"r":1,"{name}":{value}}}' if name != "r" else f'{{"r":{value}}}').encode()


def read(spark: SparkSession, topic: Topic, records: int, format: Json, *, keep_odd: bool = True) -> DataFrame:
    assert format.plain is not None
    kafka = {"bootstrap.servers": topic.broker.bootstrap, "group.id": "reader"}
    return columnar.read(spark, kafka, [OffsetRange(topic.name, 0, 0, records)], format.plain, keep_odd=keep_odd)


def refused(spark: SparkSession, topic: Topic, values: list[bytes | None], new: Any = None) -> int:
    """Compare both decoders, record by record. Returns how many records Spark SQL takes, and the reader doesn't."""
    for value in values:
        topic.send((None, value), partition=0)
    format = Json(from_ddl(SCHEMA), on_new_column=new)
    mine = read(spark, topic, len(values), format).withColumnRenamed(PLAIN, "mine")
    both = format.decoded(mine, "value", "theirs")
    fields = [f"named_struct({', '.join(f'{name!r}, {side}.`{name}`' for name in TYPES)})" for side in ("mine", "theirs")]
    compared = both.selectExpr(
        "offset", "value", ODD, f"{problem_of('theirs')} AS problem",
        *(f"to_json({side}, map('ignoreNullFields', 'false')) AS {name}" for side, name in zip(fields, "mt", strict=True)),
        f"mine IS NOT NULL AS plain",
    ).orderBy("offset").collect()  # fmt: skip
    assert [row["offset"] for row in compared] == [*range(len(values))]
    assert [None if row["value"] is None else bytes(row["value"]) for row in compared] == values
    for row in compared:
        assert row[ODD] is (row["value"] is not None and not row["plain"])
        if row["plain"]:
            assert row["problem"] is None, row["value"]
            assert row["m"] == row["t"], row["value"]
    return sum(row[ODD] and row["problem"] is None for row in compared)
