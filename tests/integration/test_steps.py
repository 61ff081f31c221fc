"""Steps between decoding and the table: what they make, what they refuse, and that nobody sees a salt."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from audits import counts, verify
from conftest import Lake, Topic
from kafka import KafkaProducer
from pydantic import SecretStr
from pyspark.sql import SparkSession

from connector import Pipeline
from connector.audit.records import PROBLEM, TOMBSTONE, Records
from connector.audit.steps import stepped
from connector.config import Step, parse
from connector.decode.exact_cast import exactly
from connector.decode.steps import Steps, type_named
from connector.engine.decoders import decoders
from sinks.errors import BadRecord, ConfigurationError
from sinks.spark.settings import with_settings

pytestmark = pytest.mark.compiled

SALT = "0123 a salt of the tests"
ORDERS = """id BIGINT, email STRING, amount STRING, internal STRING,
            address STRUCT<city: STRING, geo: STRUCT<lat: DOUBLE>>"""
STEPS: list[dict[str, Any]] = [
    {"filter": "internal IS NULL OR internal <> 'test'"},
    {"drop": "internal"},
    {"rename": {"id": "order_id"}},
    {"mask": "email", "salt": "${env:MASK_SALT}"},
    {"flatten": "address"},
    {"cast": {"amount": "DECIMAL(10,2)", "order_id": "STRING"}},
    {"header": {"trace": "x-trace"}},
    {"add": {"region": "eu"}},
]


@pytest.fixture(autouse=True)
def _salt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SALT", SALT)


def masked(text: str) -> str:
    return hmac.new(SALT.encode(), text.encode(), "sha256").hexdigest()


def send(topic: Topic, *records: tuple[str, str | None, Mapping[str, bytes]]) -> None:
    """Key, value, headers; into partition 0."""
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for key, value, headers in records:
        sent = value.encode() if value is not None else None
        producer.send(topic.name, sent, key.encode(), headers=list(headers.items()), partition=0)
    producer.close()


@pytest.mark.breadth
def test_steps_shape_rows_refuse_what_they_would_change_and_are_verified(
    lake: Lake, topic: Topic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    send(
        topic,
        ("1", '{"id": 1, "email": "ann@x.org", "amount": "10.50", "address": {"city": "Oslo", "geo": {"lat": 59.9}}}',
         {"x-trace": b"t1"}),
        ("2", '{"id": 2, "email": "bob@x.org", "amount": "10.505"}', {}),
        ("3", '{"id": 3, "email": "cid@x.org", "amount": "3"}', {}),
        ("4", '{"id": 4, "internal": "test", "amount": "no number"}', {}),
        ("5", '{"id": 5}', {}),
        ("6", '{"id": 6}', {"x-trace": b"\xff"}),
        ("3", None, {}),
    )  # fmt: skip
    options: dict[str, Any] = {
        "schema": ORDERS, "steps": STEPS, "sink": {"key": "order_id"},
        "on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))},
    }  # fmt: skip
    pipeline = lake.pipeline("upsert", **options)
    pipeline.run()
    columns = "order_id, email, amount, address_city, address_geo_lat, trace, region"
    assert lake.sql(f"SELECT {columns} FROM {{t}} ORDER BY order_id", "upsert") == [
        ("1", masked("ann@x.org"), Decimal("10.50"), "Oslo", 59.9, "t1", "eu"),
        ("5", None, None, None, None, None, "eu"),
    ]
    assert lake.sql("SELECT reason, detail FROM {t} ORDER BY _offset", "letters") == [
        ("step", "its amount can't be cast to DECIMAL(10,2) exactly (steps[5].cast)"),
        ("step", "its header x-trace is no UTF-8 text (steps[6].header)"),
    ]
    exact = verify(lake, "upsert", **options)
    assert counts(exact)["found"] == 2
    assert str(exact).startswith("exact:")
    assert pipeline.retry_dead_letters().still_bad == 2

    lake.sql("UPDATE {t} SET email = 'bob' WHERE order_id = '1'", "upsert")
    assert counts(verify(lake, "upsert", **options))["altered"] == 1

    (decoder, *_) = decoders(parse(lake.options("upsert", **options)), spark)
    kafkas = "CAST(NULL AS BINARY) AS key, value, '{}' AS topic, 0 AS partition, 0L AS offset, now() AS timestamp"
    headers = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    records = spark.sql(f"SELECT {kafkas}, {headers} FROM VALUES (X'7b7d'), (X'7b') AS t(value)")
    decoder(records).explain(extended=True)
    shown = capfd.readouterr().out
    assert "lakelock_mask" in shown
    files = b"".join(file.read_bytes() for file in lake.folder.rglob("*") if file.is_file())
    inner = bytes(byte ^ 0x36 for byte in SALT.encode())
    for secret in (SALT, SALT.encode().hex(), inner.hex()):
        assert secret.lower() not in shown.lower()
        assert secret.lower().encode() not in files.lower()


@pytest.mark.breadth
def test_the_last_record_that_a_filter_keeps_is_the_row_of_its_key(lake: Lake, topic: Topic) -> None:
    """The columnar reader passes over records that a later one replaces: it doesn't know what a filter leaves out."""
    topic.send_rows([("a", 1), ("a", -5), ("b", -1)], partition=0)
    lake.pipeline("upsert", steps=[{"filter": "n > 0"}]).run()
    assert lake.rows("upsert") == [("a", 1)]


CASTS = [
    ("STRING", "'12'", "INT", 12), ("STRING", "'12.5'", "INT", None), ("STRING", "'2147483648'", "INT", None),
    ("STRING", "'1.50'", "DECIMAL(10,2)", Decimal("1.50")), ("STRING", "'1.505'", "DECIMAL(10,2)", None),
    ("STRING", "'yes, please'", "BOOLEAN", None), ("STRING", "'2026-02-28'", "DATE", date(2026, 2, 28)),
    ("STRING", "'2026-02-30'", "DATE", None), ("STRING", "''", "INT", None),
    ("BIGINT", "2147483648", "INT", None), ("BIGINT", "7", "TINYINT", 7), ("BIGINT", "128", "TINYINT", None),
    ("BIGINT", "9007199254740992", "DOUBLE", 2.0**53), ("BIGINT", "9007199254740993", "DOUBLE", None),
    ("BIGINT", "9223372036854775807", "DOUBLE", None), ("INT", "2147483647", "FLOAT", None),
    ("BIGINT", "1152921504606846976", "DOUBLE", 2.0**60), ("BIGINT", "12345", "DECIMAL(4,0)", None),
    ("DOUBLE", "1.5", "INT", None), ("DOUBLE", "2.0", "INT", 2), ("DOUBLE", "0.1", "DECIMAL(3,1)", Decimal("0.1")),
    ("DOUBLE", "0.125", "DECIMAL(3,1)", None), ("DOUBLE", "0.1", "FLOAT", None), ("DOUBLE", "0.5", "FLOAT", 0.5),
    ("DOUBLE", "'NaN'", "DECIMAL(3,1)", None), ("DOUBLE", "1e300", "BIGINT", None),
    ("DOUBLE", "9223372036854775808", "BIGINT", None), ("FLOAT", "9223372036854775808", "BIGINT", None),
    ("DOUBLE", "-9223372036854775808", "BIGINT", -(2**63)), ("FLOAT", "2147483648", "INT", None),
    ("DOUBLE", "9223372036854774784", "BIGINT", 2**63 - 1024), ("DOUBLE", "128", "TINYINT", None),
    ("DECIMAL(18,8)", "0", "STRING", "0.00000000"), ("DECIMAL(18,8)", "0.00000012", "STRING", "0.00000012"),
    ("DECIMAL(5,2)", "1.50", "DECIMAL(5,1)", Decimal("1.5")), ("DECIMAL(5,2)", "1.55", "DECIMAL(5,1)", None),
    ("DECIMAL(5,2)", "1.55", "STRING", "1.55"), ("DATE", "'2026-11-01'", "STRING", "2026-11-01"),
    ("BOOLEAN", "true", "STRING", "true"), ("BIGINT", "-7", "STRING", "-7"),
    ("STRING", "'12d'", "DOUBLE", None), ("STRING", "'7F'", "FLOAT", None), ("STRING", "'0x10p1'", "DOUBLE", None),
    ("STRING", "' 1.5e3 '", "DOUBLE", 1500.0), ("STRING", "'2026-02-28T10'", "DATE", None),
]  # fmt: skip


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.breadth)])
def test_a_cast_gives_the_same_value_or_none_and_the_auditor_agrees(spark: SparkSession, ansi: str) -> None:
    """The auditor may take a value that the pipeline doesn't, whose letter it believes, and never the other way."""
    with with_settings(spark, {"spark.sql.ansi.enabled": ansi}):
        _casts_are_exact(spark)


def _casts_are_exact(spark: SparkSession) -> None:
    values = [f"CAST({value} AS {kind}) AS c{number}" for number, (kind, value, _, _) in enumerate(CASTS)]
    named = [f"false AS {TOMBSTONE}", f"CAST(NULL AS STRING) AS {PROBLEM}", *values]
    frame = spark.sql(f"SELECT {', '.join(named)}")
    types = {f"c{number}": to for number, (_, _, to, _) in enumerate(CASTS)}
    expected = [value for *_, value in CASTS]
    made = [exactly(frame.schema[name].dataType, type_named(to), name) or "" for name, to in types.items()]
    assert list(frame.selectExpr(*made).first() or ()) == expected
    found = stepped(Records(frame, frame.select(*types).schema), [Step(cast=types)], "true").frame.select(*types)
    theirs = list(found.first() or ())
    assert [mine for mine, value in zip(theirs, expected, strict=True) if value is not None] == [
        value for value in expected if value is not None
    ]


@pytest.mark.breadth
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_hash_of_a_decimal_is_the_same_in_every_session(spark: SparkSession, ansi: str) -> None:
    step = Step(mask=("n",), salt=SecretStr(SALT))
    with with_settings(spark, {"spark.sql.ansi.enabled": ansi}):
        frame = spark.sql(
            f"SELECT CAST(0 AS DECIMAL(18,8)) AS n, false AS {TOMBSTONE}, CAST(NULL AS STRING) AS {PROBLEM}"
        )
        ours = Steps([step], "true").applied(frame).select("n").first()
        theirs = stepped(Records(frame, frame.select("n").schema), [step], "true").frame.select("n").first()
    assert ours == theirs == (masked("0.00000000"),)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"drop": "nn"}], r"steps\[0\].drop: nn isn't a column here"),
        *(
            pytest.param(*variant, marks=pytest.mark.breadth)
            for variant in (
                ([{"rename": {"n": "k"}}], "column k is there twice"),
                ([{"filter": "n"}], "'n' is INT, not BOOLEAN"),
                ([{"filter": "nn > 0"}], "Spark doesn't take 'nn > 0'"),
                ([{"filter": "sum(n) > 1"}], r"steps\[0\].filter: Spark doesn't take it"),
            )
        ),
    ],
)
def test_a_wrong_step_stops_the_run_before_it_makes_a_table(
    steps: list[dict[str, Any]], said: str, lake: Lake, topic: Topic
) -> None:
    topic.send_rows([("a", 1)])
    with pytest.raises(ConfigurationError, match=said):
        lake.pipeline(steps=steps).run()
    assert not lake.path().exists()


@pytest.mark.breadth
def test_a_value_that_a_cast_would_change_stops_the_run_unless_it_is_set_aside(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 300}), partition=0)
    with pytest.raises(BadRecord, match=r"offset 0 isn't right: its n can't be cast to TINYINT exactly") as caught:
        lake.pipeline(steps=[{"cast": {"n": "TINYINT"}}]).run()
    assert "Correct the step" in str(caught.value.hint)
    assert lake.rows() == []


@pytest.mark.breadth
def test_a_filter_keeps_what_a_database_deletes(lake: Lake, topic: Topic) -> None:
    value = {"format": "debezium", "schema": "id INT, name STRING"}
    topic.send(
        ("1", {"op": "c", "after": {"id": 1, "name": "a"}}), ("2", {"op": "c", "after": {"id": 2, "name": "test"}}),
        ("3", {"op": "c", "after": {"id": 3, "name": "c"}}), ("1", {"op": "d", "before": {"id": 1, "name": None}}),
        ("1", None), partition=0,
    )  # fmt: skip
    changes: dict[str, Any] = {
        "value": value, "sink": {"key": "number"}, "steps": [{"rename": {"id": "number"}}, {"filter": "name <> 'test'"}]
    }  # fmt: skip
    lake.pipeline("upsert", **changes).run()
    assert lake.sql("SELECT number, name FROM {t}", "upsert") == [(3, "c")]
    assert str(verify(lake, "upsert", **changes)).startswith("exact:")


@pytest.mark.breadth
def test_a_filter_keeps_truncates_of_a_database(lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    def event(op: str, lsn: int, **after: Any) -> dict[str, Any]:
        return {"op": op, "before": None, "after": after or None, "source": {"lsn": lsn}}

    topic.send(
        ("1", event("c", 7, id=1, amount=5)), ("2", event("c", 8, id=2, amount=7)), (None, event("t", 9)),
        ("3", event("c", 10, id=3, amount=2)), partition=0,
    )  # fmt: skip
    changes: dict[str, Any] = {
        "value": {"format": "debezium", "schema": "id INT, amount INT"},
        "sink": {"key": "id", "sequence_by": "_source_position"},
    }
    steps = {"steps": [{"filter": "amount > 0"}]}
    lake.pipeline("upsert", **changes, **steps).run()
    assert lake.sql("SELECT id, amount FROM {t}", "upsert") == [(3, 2)]
    assert str(verify(lake, "upsert", **changes, **steps)).startswith("exact:")

    select = "SELECT id, amount, _op, _source_position FROM records WHERE _tombstone OR {} OR amount > 0"
    lake.pipeline("upsert", **changes, transform=select.format("_op = 'd'")).check()
    assert "leaves out truncates" in caplog.text
    assert "_op IN ('d', 't')" in caplog.text
    caplog.clear()
    lake.pipeline("upsert", **changes, transform=select.format("_op IN ('d', 't')")).check()
    assert "leaves out truncates" not in caplog.text


@pytest.mark.breadth
def test_a_filter_keeps_truncates_only_for_tables_with_a_key(lake: Lake, topic: Topic) -> None:
    """Also where both kinds are in one file, and in one route."""

    def event(op: str, lsn: int, table: str, **after: Any) -> dict[str, Any]:
        return {"op": op, "before": None, "after": after or None, "source": {"lsn": lsn, "table": table}}

    topic.send(
        ("1", event("c", 7, "a", id=1, amount=5)), ("2", event("c", 8, "b", id=2, amount=7)),
        (None, event("t", 9, "a")), (None, event("t", 10, "b")), ("3", event("c", 11, "a", id=3, amount=2)),
        ("4", event("c", 12, "b", id=4, amount=-2)), partition=0,
    )  # fmt: skip
    upsert = {"type": "delta_upsert", "key": "id", "sequence_by": "_source_position"}
    aggregate = {"type": "delta_aggregate", "group_by": "id", "aggregates": {"n": "count(*)"}}
    both: dict[str, Any] = {
        "value": {"format": "debezium", "schema": "id INT, amount INT"}, "steps": [{"filter": "amount > 0"}],
        "coordinator": {"path": str(lake.path("log"))},
    }  # fmt: skip
    sinks = {"append": {"type": "delta_append"}, "upsert": upsert, "aggregate": aggregate}
    pipeline = lake.pipeline(**both, sinks=[{**sink, "path": str(lake.path(name))} for name, sink in sinks.items()])
    pipeline.run()
    assert sorted(lake.sql("SELECT id, amount FROM {t}")) == [(1, 5), (2, 7), (3, 2)]
    assert lake.sql("SELECT id, amount FROM {t}", "upsert") == [(3, 2)]
    assert sorted(lake.sql("SELECT id, n FROM {t}", "aggregate")) == [(1, 1), (2, 1), (3, 1)]
    assert pipeline.verify().ok

    options = lake.options("routed", **{**both, "coordinator": {"path": str(lake.path("log of routes"))}})
    del options["sinks"]
    options["route"] = {
        "by": "_source.table",
        "sink": {**upsert, "path": str(lake.folder / "of_{route}")},
        "other": {"type": "delta_append", "path": str(lake.path("others"))},
        "values": ["a"],
    }
    pipeline = Pipeline.from_options(options)
    pipeline.run()
    assert lake.sql("SELECT id, amount FROM {t}", "of_a") == [(3, 2)]
    assert lake.sql("SELECT id, amount FROM {t}", "others") == [(2, 7)]
    assert pipeline.verify().ok


@pytest.mark.breadth
def test_tables_of_a_route_and_a_masked_header_are_verified(lake: Lake, topic: Topic) -> None:
    send(
        topic, ("1", '{"k": "a", "n": 1}', {"user": b"ann"}), ("2", '{"k": "b", "n": 2}', {}),
        ("3", '{"k": "c", "n": -3}', {}), ("4", '{"k": "a", "n": -4}', {"user": b"bob"}),
    )  # fmt: skip
    options = lake.options(
        steps=[
            {"header": {"user": "user"}}, {"mask": "user", "salt": "${env:MASK_SALT}"}, {"filter": "n > 0"},
            {"rename": {"k": "kind"}},
        ],
        coordinator={"path": str(lake.path("log"))},
        route={"by": "k", "sink": {"type": "delta_append", "path": str(lake.folder / "of_{route}")}},
    )  # fmt: skip
    del options["sinks"]
    pipeline = Pipeline.from_options(options)
    pipeline.run()
    assert lake.sql("SELECT kind, n, user FROM {t}", "of_a") == [("a", 1, masked("ann"))]
    assert not lake.path("of_c").exists()
    assert pipeline.verify().ok


@pytest.mark.breadth
def test_a_masked_key_is_the_key_of_tombstones_too(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("b", {"k": "b", "n": 2}), ("a", None), partition=0)
    steps = [{"mask": "k", "salt": "${env:MASK_SALT}"}]
    lake.pipeline("upsert", steps=steps, transform="SELECT k, n + 1 AS n FROM records").run()
    assert lake.rows("upsert") == [(masked("b"), 3)]
    assert str(verify(lake, "upsert", steps=steps, transform="SELECT k, n + 1 AS n FROM records")).startswith("exact:")
