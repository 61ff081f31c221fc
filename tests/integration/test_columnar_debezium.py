"""Debezium's events through the columnar reader: an envelope that it decodes is judged as one of Spark SQL's is."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from columns import NUMBERS, OTHERS, TEXTS, compared
from conftest import Lake, Topic, own_session
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from suites import draws

from connector.decode.avro import AvroFile
from connector.decode.debezium import Debezium, envelope
from connector.decode.json import Json
from connector.lab.bench.broker import Broker
from connector.spark.compat import from_ddl

pytestmark = pytest.mark.spark4("the columnar reader is built for Spark 4")

UNAVAILABLE = "__debezium_unavailable_value"
ROW = "id INT NOT NULL, name STRING, amount DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, op STRING, payload STRING"
"""With columns that are called as parts of the envelope are."""
GOOD = {
    "id": ["1", "2", "-3"], "name": ['"a"', '"\\u00e9"', "null"], "amount": ['"1.50"', "2", "null"],
    "at": ['"2026-11-25T10:30:00Z"', "null"], "tags": ['["a",null]', "[]", "null"], "op": ['"x"', '"d"', "null"],
    "payload": ['"{}"', "null"],
}  # fmt: skip
PLACES = {
    "postgresql": '"lsn":123456789,"txId":7,"schema":"public"',
    "postgresql, overtaken": r'"lsn":123456789,"sequence":"[\"123456790\",\"123456789\"]"',
    "postgresql, incremental": r'"lsn":null,"sequence":"[null,\"123456789\"]"',
    "mysql": '"file":"binlog.000003","pos":154,"row":0,"gtid":null',
    "mysql, later": '"file":"binlog.1000000","pos":154,"row":0',
    "no row": '"file":"binlog.000003","pos":154',
    "no place": '"file":"mariadb-bin.000003","pos":-57,"row":2',
    "sqlserver": '"commit_lsn":"00000025:00000d98:00a2","change_lsn":null,"event_serial_no":1',
    "sqlserver's snapshot": '"commit_lsn":"00000025:000004c0:001a","change_lsn":null,"event_serial_no":null',
    "sqlserver's first": '"change_lsn":"00000025:00000d98:00a2"',
    "informix": '"commit_lsn":"627404540760620","change_lsn":"627404540485812","txId":"157"',
    "oracle": '"scn":"2868546","commit_scn":"2868550","txId":"6.28.807"',
    "of no known kind": '"lsn":null,"wal":[1,{"x":"y"}]',
}
SOURCES = [*(f'{{"version":"3","table":"t",{place}}}' for place in PLACES.values()), "null", "{}"]
TRANSACTIONS = ["null", '{"id":"571","total_order":1,"data_collection_order":1}', '{"id":null,"more":true}']
SCHEMA = '{"type":"struct","fields":[{"field":"id","type":"int32"},{"field":"op","optional":false}],"version":1}'


def debezium(*, text_ids: bool = True) -> Debezium:
    """``text_ids``: as Oracle's and Informix' events have, which PostgreSQL's fit too."""
    return Debezium(Json(envelope(from_ddl(ROW), text_ids=text_ids)), UNAVAILABLE)


def of(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}"


def wrapped(event: str) -> str:
    return f'{{"schema":{SCHEMA},"payload":{event}}}'


def unusual(draw: random.Random, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields, maybe in another order, and rarely one in another case, one twice, none, or an unknown one.

    An unknown one is no number: Spark SQL refuses more of them than it must, see `json_decimals`.
    """
    pairs = [pair for pair in pairs if draw.random() < 0.97]
    if draw.random() < 0.2:
        draw.shuffle(pairs)
    at = draw.randrange(len(pairs) + 1)
    if draw.random() < 0.15:
        pairs.insert(at, (draw.choice(["more", "ü", "schema", "\\u0061"]), draw.choice([*TEXTS, *OTHERS])))
    elif pairs and draw.random() < 0.05:
        name, value = draw.choice(pairs)
        pairs.insert(at, (draw.choice([name, name.upper()]), value))
    return pairs


def image(draw: random.Random) -> str:
    odd = draw.choice([*GOOD]) if draw.random() < 0.1 else None
    pairs = [
        (name, draw.choice(draw.choice([NUMBERS, TEXTS, OTHERS]) if name == odd else good))
        for name, good in GOOD.items()
    ]
    return of(unusual(draw, pairs))


def event(draw: random.Random) -> str:
    return of(
        unusual(
            draw,
            [
                ("before", draw.choice([image(draw), image(draw), "null"])),
                ("after", draw.choice([image(draw), image(draw), "null"])),
                ("source", draw.choice(SOURCES)),
                ("op", draw.choice(['"c"', '"u"', '"r"', '"d"', '"t"'] * 4 + ['"m"', '""', '"C"', "null", "1"])),
                ("ts_ms", draw.choice(["1764066600000"] * 8 + ["null", "1.5", '"1"'])),
                ("transaction", draw.choice(TRANSACTIONS)),
            ],
        )
    )


def record(draw: random.Random) -> bytes:
    inner = draw.choice([event(draw)] * 12 + ["null", "{}", "[]"])
    # Fields of the payload go before those beside it.
    both = wrapped(inner)[:-1] + "," + event(draw)[1:]
    made = draw.choice([inner, inner, wrapped(inner), wrapped(inner), both]).encode()
    at = draw.randrange(len(made))
    another = made[:at] + bytes([draw.randrange(256)]) + made[at + 1 :]
    return draw.choice([made] * 20 + [made[:at], made + made, another])


@pytest.mark.breadth
def test_every_op_with_and_without_each_image(spark: SparkSession, broker: Broker) -> None:
    def row(number: int) -> str:
        return f'{{"id":{number},"name":"a","amount":"1.50","at":"2026-11-25T10:30:00Z","tags":["a"],"op":"x"}}'

    ops = ['"c"', '"u"', '"r"', '"d"', '"t"', '"m"', '"C"', '""', "null", None]
    events = [
        of([(name, value) for name, value in zip(("before", "after", "op"), parts, strict=True) if value is not None])
        for parts in itertools.product([row(1), "null", None], [row(2), "null", None], ops)
    ]
    events += [of([("after", row(1)), ("op", '"c"'), ("source", source)]) for source in SOURCES]
    events += [of([("after", row(1)), ("op", '"c"'), ("transaction", each)]) for each in TRANSACTIONS]
    values = [made.encode() for each in events for made in (each, wrapped(each))]
    values += [b"{}", b'{"payload":null}', b'{"payload":{}}', b'{"op":"c","payload":{"after":{"id":1}}}']
    assert compared(spark, broker, [*values, None], debezium()) == {*values}


@pytest.mark.breadth
def test_what_is_no_plain_envelope_is_left_to_spark_sql(spark: SparkSession, broker: Broker) -> None:
    values = [
        b'{"op":"c","op":"d","after":{"id":1}}', b'{"op":"c","after":{"id":1,"id":2}}', b'{"OP":"c","after":{"id":1}}',
        b'{"op":"c","after":{"ID":1}}', b'{"op":"c","after":{"id":null}}', b'{"op":"c","after":{}}',
        b'{"op":"c","after":{"id":1},"before":{"name":"a"}}', b'{"op":1.5,"after":{"id":1}}',
        b'{"op":"c","after":{"id":1.5}}', b'{"op":"c","after":{"id":1,"amount":"1.505"}}',
        b'{"op":"c","after":{"id":1,"name":-0}}', b'{"op":"c","after":[]}', b'{"op":"c","after":"null"}',
        b'{"op":"c","after":{"id":1}', b'{"op":"c","after":{"id":1}}x', b'{"op":"c","after":{"id":1}}{"op":"d"}',
        b'{"op":"c","after":{"id":1},"source":{"lsn":"1"}}', b'{"op":"c","after":{"id":1},"source":7}',
        b'{"op":"c","after":{"id":1},"source":{"lsn":8,"sequence":["9","8"]}}',
        b'{"op":"c","after":{"id":1},"ts_ms":1.0}', b'{"payload":"x","op":"c","after":{"id":1}}', b"", b"null", b"[]",
    ]  # fmt: skip
    assert compared(spark, broker, values, debezium()) == set()


@pytest.mark.breadth
def test_texts_for_ids_of_transactions_are_bad_records_unless_the_file_has_them(
    spark: SparkSession, broker: Broker
) -> None:
    events = {source: f'{{"op":"c","after":{{"id":1}},"source":{source}}}'.encode() for source in SOURCES}
    numbers = {event for source, event in events.items() if '"txId":"' not in source}
    assert len(numbers) == len(events) - 2
    assert compared(spark, broker, [*events.values()], debezium(text_ids=False)) == numbers


@pytest.mark.breadth
@pytest.mark.law
@draws()
@given(seed=st.integers(0, 2**32 - 1))
def test_random_events(spark: SparkSession, broker: Broker, seed: int) -> None:
    draw = random.Random(seed)
    session = own_session(spark)
    session.conf.set("spark.sql.session.timeZone", draw.choice(["UTC", "Europe/Berlin", "America/New_York"]))
    taken = compared(session, broker, [record(draw) for _ in range(200)], debezium())
    assert len(taken) > 40, "most are plain"


def test_the_reader_decodes_no_other_envelopes(spark: SparkSession) -> None:
    assert Debezium(Json(envelope(from_ddl(ROW)), permissive=True), UNAVAILABLE).plain is None
    avro = {"type": "record", "name": "e", "fields": [{"name": "op", "type": "string"}]}
    assert Debezium(AvroFile(spark, json.dumps(avro)), UNAVAILABLE).plain is None


def changes(*events: dict[str, Any] | bytes | None) -> list[tuple[str, object]]:
    return [("key", each) for each in events]


def test_plain_and_odd_events_become_rows_and_dead_letters_of_one_table(lake: Lake, topic: Topic) -> None:
    """A fraction for a text makes an event odd. Of the plain ones and of the odd ones some are bad."""
    topic.send(
        *changes(
            {"op": "c", "after": {"id": 1, "name": "a"}, "source": {"lsn": 5}},
            {"schema": {}, "payload": {"op": "d", "before": {"id": 2, "name": "b"}, "after": None}},
            {"op": "t"},
            {"op": "u", "after": {"id": 3, "name": 7.5}},
            {"op": "u", "before": {"id": 1}, "after": None},
            {"op": "x", "message": "hello"},
            {"op": "d", "after": {"id": 1, "name": 7.5}},
            b"{'op': 'c'}",
            None,
        ),
        partition=0,
    )
    lake.pipeline(
        value={"format": "debezium", "schema": "id INT, name STRING"}, on_bad_record="dead_letter",
        dead_letters={"path": str(lake.path("letters"))},
    ).run()  # fmt: skip
    assert lake.sql("SELECT _offset, id, name, _op, _source_position FROM {t} ORDER BY _offset") == [
        (0, 1, "a", "c", f"{5:020}"), (1, 2, "b", "d", None), (2, None, None, "t", None), (3, 3, "7.5", "u", None),
    ]  # fmt: skip
    assert lake.sql("SELECT _offset, reason, detail FROM {t} ORDER BY _offset", "letters") == [
        (4, "value", "its value: no row after the change"),
        (5, "value", "its value: no change of a row, its op is x"),
        (6, "value", "its value: no row before the delete"),
        (7, "value", "its value: not one whole JSON object"),
        (8, "tombstone", "has no value (a tombstone)"),
    ]


@pytest.mark.breadth
def test_rows_whose_key_is_called_as_a_field_of_the_envelope_are_all_there(lake: Lake, topic: Topic) -> None:
    """The reader must not take the envelope's field for the key: both events have the same op."""
    topic.send(*changes(*({"op": "c", "after": {"op": key, "n": 1}} for key in ("x", "y"))), partition=0)
    lake.pipeline("upsert", value={"format": "debezium", "schema": "op STRING, n INT"}, sink={"key": "op"}).run()
    assert sorted(lake.sql("SELECT op, n FROM {t}", "upsert")) == [("x", 1), ("y", 1)]
