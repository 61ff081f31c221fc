"""`on_bad_record: dead_letter`: what isn't right is kept whole, once, and nothing else is kept from the table."""

import json
import random
import re
import uuid
from typing import Any

import pyarrow.parquet as pq
import pytest
from audits import verify
from conftest import Lake, Topic
from kafka import KafkaProducer
from typer.testing import CliRunner

from connector import Pipeline
from connector.audit import audit
from connector.cli.app import app
from connector.config import parse
from connector.engine import assembly
from connector.protocol.steps import Event, Step
from sinks.errors import BadRecord, ConfigurationError, TooManyDeadLetters
from sinks.spark.settings import with_settings

pytestmark = pytest.mark.compiled

BAD = b'{"k": "b", "n": "many"}'


def letters(lake: Lake, columns: str, name: str = "letters") -> list[tuple[Any, ...]]:
    assert lake.spark is not None
    frame = lake.spark.read.format("delta").load(str(lake.folder / name))
    return sorted((tuple(row) for row in frame.selectExpr(*re.split(r", (?![^(]*\))", columns)).collect()), key=str)


def setting_aside(lake: Lake, **changes: Any) -> dict[str, Any]:
    place = {"path": str(lake.folder / "letters"), **changes.pop("dead_letters", {})}
    return {"on_bad_record": "dead_letter", "dead_letters": place, **changes}


def send_whole(topic: Topic, *records: tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]) -> None:
    """Key, value, headers; into partition 0."""
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for key, value, headers in records:
        producer.send(topic.name, value, key, headers=headers, partition=0)
    producer.close()


@pytest.mark.breadth
def test_a_table_of_letters_with_a_name_is_made_and_its_store_asked_before_the_first_letter(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.spark is not None
    asked: list[str] = []
    monkeypatch.setattr(assembly, "require_conditional_writes", lambda _, url: asked.append(url))
    name = f"dead_{uuid.uuid4().hex[:8]}"
    pipeline = lake.pipeline(on_bad_record="dead_letter", dead_letters={"table": f"default.{name}"})
    topic.send((None, {"k": "a", "n": 1}))
    assert pipeline.run().epochs == 1
    assert lake.spark.table(f"default.{name}").count() == 0
    assert asked[-1].endswith(name)
    topic.send((None, BAD))
    pipeline.run()
    assert lake.spark.table(f"default.{name}").count() == 1


@pytest.mark.breadth
def test_a_bad_record_is_kept_whole_with_its_coordinates_and_the_reason(lake: Lake, topic: Topic) -> None:
    headers = [("trace", b"\xff1"), ("trace", b"2")]
    send_whole(
        topic, (b"a", b'{"k": "a", "n": 1}', []), (b"\xfe", b"\xff no JSON", headers), (b"{}", None, []),
        (b"c", b'{"k": "c", "n": -1}', []), (b"d", b'{"k": "d", "n": 2}', []),
    )  # fmt: skip
    done = lake.pipeline(**setting_aside(lake, require="n >= 0")).run()
    assert (done.epochs, lake.rows()) == (1, [("a", 1), ("d", 2)])
    where = "_topic, _partition, _offset, pipeline, sink, epoch"
    assert letters(lake, where) == [(topic.name, 0, offset, "append", None, 1) for offset in (1, 2, 3)]
    assert letters(lake, "_offset, reason, CAST(key AS BINARY), value") == [
        (1, "value", b"\xfe", b"\xff no JSON"),
        (2, "tombstone", b"{}", None),
        (3, "rule", b"c", b'{"k": "c", "n": -1}'),
    ]
    assert letters(lake, "_offset, transform(headers, h -> h.key), transform(headers, h -> h.value)")[0] == (
        1, ["trace", "trace"], [b"\xff1", b"2"],
    )  # fmt: skip
    details = letters(lake, "_offset, detail")
    assert details[0] == (1, "its value: not a JSON object")
    assert details[2] == (3, "breaks the rule n >= 0")
    assert letters(lake, "_timestamp IS NOT NULL AND _noted_at >= _timestamp") == [(True,)] * 3
    shown = CliRunner().invoke(app, ["dead-letters", str(lake.file(**setting_aside(lake)))])
    assert all(reason in shown.stdout for reason in ("value", "tombstone", "rule")), shown.output


@pytest.mark.breadth
@pytest.mark.parametrize(
    "step",
    [
        Step.WRITING,
        pytest.param(Step.READ, marks=pytest.mark.breadth),
        pytest.param(Step.COMMITTED, marks=pytest.mark.breadth),
    ],
)
def test_a_crash_leaves_each_letter_once(step: Step, lake: Lake, topic: Topic) -> None:
    def die(event: Event) -> None:
        if event.step is step:
            raise SystemExit

    send_whole(topic, *[(None, BAD if n % 3 else b'{"k": "a", "n": %d}' % n, []) for n in range(12)])
    with pytest.raises(SystemExit):
        lake.pipeline(**setting_aside(lake, epoch={"max_records": 7})).run(observers=[die])
    # The next run cuts its epochs elsewhere.
    lake.pipeline(**setting_aside(lake)).run()
    assert lake.rows() == [("a", n) for n in range(0, 12, 3)]
    assert letters(lake, "_offset") == sorted(((n,) for n in range(12) if n % 3), key=str)


@pytest.mark.breadth
def test_an_upsert_sets_aside_what_names_no_row(lake: Lake, topic: Topic) -> None:
    send_whole(
        topic, (b"a", b'{"k": "a", "n": 1}', []), (b"b", b'{"k": "b", "n": 2}', []), (b"x", b'{"n": 3}', []),
        (b"{}", None, []), (b"b", None, []),
    )  # fmt: skip
    lake.pipeline("upsert", **setting_aside(lake)).run()
    assert lake.rows("upsert") == [("a", 1)]
    told = letters(lake, "_offset, reason, value")
    assert told == [(2, "no_key", b'{"n": 3}'), (3, "no_key", None)]
    assert letters(lake, "sink") == [(str(lake.path("upsert")),)] * 2


def test_too_many_stop_the_run_before_anything_is_written(lake: Lake, topic: Topic) -> None:
    send_whole(topic, *[(None, BAD if n < 3 else b'{"k": "a", "n": 1}', []) for n in range(10)])
    with pytest.raises(TooManyDeadLetters, match="Epoch 1 has 3 bad records among 10"):
        lake.pipeline(**setting_aside(lake, dead_letters={"max_share": 0.2})).run()
    assert not (lake.folder / "letters").exists()
    assert lake.rows() == []
    assert lake.pipeline(**setting_aside(lake, dead_letters={"max_share": 0.3})).run().rows == 7


@pytest.mark.breadth
def test_a_record_counts_once_however_many_rows_and_sinks_it_is_bad_for(lake: Lake, topic: Topic) -> None:
    bad = {"k": "b", "ns": [None] * 8}
    topic.send(*(("a", {"k": "a", "ns": [n]}) for n in range(8)), ("b", bad), ("c", "no JSON"))
    counted: list[int] = []
    sinks = [{"type": "delta_upsert", "path": str(lake.path(name)), "key": ["k", "n"]} for name in ("one", "two")]
    letting = setting_aside(lake, dead_letters={"max_share": 0.2})
    sql = "SELECT k, explode(ns) AS n FROM records WHERE NOT _tombstone"
    options = {**lake.options(schema="k STRING, ns ARRAY<INT>", transform=sql, **letting), "sinks": sinks}
    options["coordinator"] = {"path": str(lake.path("log"))}
    Pipeline.from_options(options).run(observers=[lambda event: counted.append(event.letters)])
    assert len(letters(lake, "_offset")) == max(counted) == 3
    assert lake.rows("one") == lake.rows("two") == [("a", n) for n in range(8)]


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["manual_commit", "auto_commit"])
def test_the_weaker_deliveries_set_aside_too(delivery: str, lake: Lake, topic: Topic) -> None:
    send_whole(topic, (b"\xff", BAD, [("h", b"1")]), (None, b'{"k": "a", "n": 1}', []))
    lake.pipeline(name=topic.name, delivery=delivery, **setting_aside(lake)).run()
    assert lake.rows() == [("a", 1)]
    assert letters(lake, "_offset, key, headers[0].value") == [(0, b"\xff", b"1")]


@pytest.mark.breadth
def test_a_transform_sees_no_bad_record_and_a_record_is_set_aside_as_a_whole(lake: Lake, topic: Topic) -> None:
    # The filter alone would drop the bad one, whose columns are null; of the third record one row has no key.
    send_whole(
        topic, (None, b"{", []), (None, b'{"k": "a", "ns": [1, 2]}', []), (None, b'{"k": "b", "ns": [3, null]}', []),
    )  # fmt: skip
    sql = "SELECT k, n FROM records LATERAL VIEW explode(ns) AS n WHERE k IS NOT NULL AND NOT _tombstone"
    lake.pipeline(
        "upsert", schema="k STRING, ns ARRAY<INT>", transform=sql, sink={"key": ["k", "n"]}, **setting_aside(lake)
    ).run()
    assert lake.rows("upsert") == [("a", 1), ("a", 2)]
    assert letters(lake, "_offset, reason, value") == [
        (0, "value", b"{"), (2, "no_key", b'{"k": "b", "ns": [3, null]}'),
    ]  # fmt: skip


@pytest.mark.breadth
def test_sinks_that_move_together_share_the_letters_of_the_decoder(lake: Lake, topic: Topic) -> None:
    sinks = [
        {"type": "delta_append", "path": str(lake.path("one"))},
        {"type": "delta_upsert", "path": str(lake.path("two")), "key": "k"},
    ]
    send_whole(topic, (b"a", b'{"k": "a", "n": 1}', []), (b"b", b"{", []), (b"a", None, []), (b"c", b'{"n": 2}', []))
    options = setting_aside(lake, name="both", sinks=sinks, coordinator={"path": str(lake.path("log"))})
    lake.pipeline(**options).run()
    assert lake.sql("SELECT k, n FROM {t} ORDER BY _offset", "one") == [("a", 1), (None, 2)]
    assert lake.rows("two") == []
    assert letters(lake, "_offset, reason, element_at(split(sink, '/'), -1)") == [
        (1, "value", None), (2, "tombstone", "one"), (3, "no_key", "two"),
    ]  # fmt: skip
    config = parse(lake.options(**options))
    assert [str(audit(config.alone(index))) for index in range(2)] == [
        "exact: 2 expected, 2 found; 4 records = 2 rows + 2 dead letters",
        "exact: 0 expected, 0 found; 4 records = 2 for the table + 2 dead letters",
    ]


@pytest.mark.breadth
def test_a_rule_stops_the_run_where_nothing_is_set_aside(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", -1)], partition=0)
    # The rule counts for records that the transform would drop, too.
    changes = {"require": "n >= 0", "transform": "SELECT k, n FROM records WHERE n > 0"}
    with pytest.raises(BadRecord, match=f"{topic.name}-0, offset 1 isn't right: breaks the rule n >= 0"):
        lake.pipeline(**changes).run()
    with pytest.raises(ConfigurationError, match="require: Spark doesn't take 'm >= 0'"):
        lake.pipeline(require="m >= 0").check()


def noise(chance: random.Random) -> bytes:
    """Like the records of this topic, but for something; sometimes right after all."""
    right = {
        "k": f"k{chance.randrange(9)}",
        "n": chance.randrange(-(2**31), 2**31),
        "d": "1.25",
        "x": 0.5,
        "l": [{"a": 1}],
    }
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(40))
    if kind == 1:
        name = chance.choice([*right])
        values = [None, "x", True, 10 ** chance.randrange(40), 1e308, [], {}, [[]], "2026-01-01", -0.0, "\ud800", "\0"]
        right[name] = chance.choice(values)
    text = json.dumps(right).encode()
    if kind == 2:
        return text[: chance.randrange(len(text))]
    if kind == 3:
        at = chance.randrange(len(text))
        return text[:at] + chance.randbytes(1) + text[at + 1 :]
    if kind == 4:
        depth = chance.choice([1, 10, 999, 5000])
        return text.replace(b"0.5", b"[" * depth + b"]" * depth)
    return text.replace(b"0.5", chance.choice([b"1e999", b"1e-99999999", b"9" * 500, b'0.5, "x": 1', b"NaN"]))


@pytest.mark.draws
def test_of_noise_every_record_is_a_row_or_a_letter(lake: Lake, topic: Topic) -> None:
    chance = random.Random(7)
    count = 5_000
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for _ in range(count):
        producer.send(topic.name, noise(chance))
    producer.close()
    schema = "k STRING, n INT, d DECIMAL(10,2), x DOUBLE, l ARRAY<STRUCT<a: INT>>"
    options = setting_aside(lake, schema=schema)
    lake.pipeline(**options).run()
    rows = {
        (p, o): tuple(values)
        for p, o, *values in lake.sql("SELECT _partition, _offset, k, n, d, x, to_json(l) FROM {t}")
    }
    kept = letters(lake, "_partition, _offset, value")
    assert len(rows) + len(kept) == count
    assert rows.keys().isdisjoint((p, o) for p, o, _ in kept)
    assert 500 < len(kept) < 4500
    audited = verify(lake, **options)
    assert (audited.ok, audited.totals["records"], audited.totals["letters"]) == (True, count, len(kept))


@pytest.mark.breadth
def test_an_event_time_that_no_commit_can_hold_is_kept_as_a_letter(lake: Lake, topic: Topic) -> None:
    far = ["10000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00"]
    times = ["2026-01-01T00:00:00Z", *far, "0001-01-01T00:00:00Z"]
    topic.send(*((f"k{number}", {"k": f"k{number}", "at": at}) for number, at in enumerate(times)), partition=0)
    timed = {"value": {"format": "json", "schema": "k STRING, at TIMESTAMP"}, "event_time": "at"}
    with pytest.raises(BadRecord, match="offset 1 has an event time out of range: its 'at' isn't in the years 1 to"):
        lake.pipeline(**timed).run()
    options = setting_aside(lake, **timed)
    lake.pipeline(**options).run()
    assert letters(lake, "_offset, reason") == [(1, "no_time"), (2, "no_time")]
    assert lake.sql("SELECT k FROM {t} ORDER BY k") == [("k0",), ("k3",)]
    assert verify(lake, **options).verdict.value == "exact"


@pytest.mark.breadth
@pytest.mark.parametrize("mode", ["EXCEPTION", "LEGACY"])
def test_old_dates_are_no_bad_records_and_stored_as_they_are_whatever_the_session_has(
    lake: Lake, topic: Topic, mode: str
) -> None:
    """EXCEPTION is the default of Spark 3.5. What LEGACY shifts, only Spark shifts back."""
    assert lake.spark is not None
    days = ["0001-01-01", "1582-01-01", "1899-12-31"]
    topic.send(*((f"k{number}", {"born": day, "at": f"{day}T00:00:00Z"}) for number, day in enumerate(days)))
    modes = {f"spark.sql.parquet.{kind}RebaseModeInWrite": mode for kind in ("datetime", "int96")}
    with with_settings(lake.spark, modes):
        lake.pipeline(value={"format": "json", "schema": "born DATE, at TIMESTAMP"}).run()
        assert {name: lake.spark.conf.get(name) for name in modes} == modes
    assert [day for (day,) in lake.sql("SELECT CAST(born AS STRING) FROM {t} ORDER BY born")] == days
    rows = pq.ParquetDataset([str(file) for file in lake.path().glob("*.parquet")]).read(columns=["born"]).to_pydict()
    assert sorted(str(day) for day in rows["born"]) == days
