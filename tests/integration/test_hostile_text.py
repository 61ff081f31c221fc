"""Record data never becomes SQL: whatever keys, values, names and headers hold, tables hold just that."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pytest
from another_engine import query
from bench import Bench, ListedTopic
from conftest import Lake, Store, Topic, own_session
from hostile import PLANTED, SUBSTITUTED, shown, texts
from hypothesis import given
from kafka import KafkaConsumer, KafkaProducer
from pyspark.sql.types import StructType
from streams import source, started
from suites import draws
from upserts import SEEDS, Record, Table

from connector import Pipeline, foreach_batch
from connector.audit import audit
from connector.config import parse
from connector.spark.compat import from_ddl
from connector.spark.jars import built_for
from sinks.delta.values import digits_sql, value_sql
from sinks.errors import BadRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row: TypeAlias = tuple[str, str, int]


@pytest.mark.breadth
@pytest.mark.law
@draws()
@given(seed=SEEDS)
def test_a_fold_finds_the_rows_of_any_keys(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """In a session that substitutes: of the changes' keys the lowest and the highest are in the MERGE."""
    low, high = "${x}zzzz", "z${env:PLANTED_THING}"
    keys = sorted({*texts(seed, 20), *SUBSTITUTED})
    changed = [key for key in keys if low <= key <= high]
    table = Table(own_session(spark), tmp_path, merge="on_read")
    table.write([Record(key, "u", 0, None, 0, offset=at) for at, key in enumerate(keys)])
    table.write([Record(key, "u", 1, None, 0, offset=len(keys) + at) for at, key in enumerate(changed)])
    assert table.derivation.log is not None
    assert table.derivation.log.fold("me") is not None
    assert {key: a for key, (a, _) in table.rows().items()} == {key: int(key in changed) for key in keys}
    assert not shown(tmp_path)


@pytest.mark.law
@draws()
@given(seed=SEEDS)
def test_a_truncate_deletes_what_is_older_than_its_text(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """A sequence of texts, in a session that substitutes: ``${x}M`` would be M, and newer than A."""
    table = Table(own_session(spark), tmp_path, sequence_by="latest", key="b", apply_as_truncates="op = 't'")
    sequences = sorted({"A", "z", "${x}M", "${env:PLANTED_THING}", *texts(seed, 20)})
    updates = [Record(text, "u", 0, number, 0, offset=number) for number, text in enumerate(sequences)]
    table.write([*updates, Record("${x}M", "t", None, None, 0, offset=len(updates))])
    assert {*table.rows()} == {text for text in sequences if text > "${x}M"}
    assert not shown(tmp_path)


VALUES = (
    "CAST(X'80ff00' AS STRING)", "'${x}'", "''", "X'00ff'", "X''", "-1Y", "9223372036854775807L", "-0.10BD",
    "DATE'-0001-01-01'", "timestamp_micros(-62135596800000001)", "TIMESTAMP_NTZ'2026-10-25 02:30:00.000001'",
    "double('nan')", "-0D", "0.1F", "true", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND",
    "INTERVAL '-1-2' YEAR TO MONTH", "struct('${x} -' AS `a'b`, '' AS `c``.d`, CAST(NULL AS INT) AS n)",
    "struct(array(struct(array(timestamp_micros(-1), NULL), X'00')) AS a, 1)", "array('', NULL, ' ')", "array('')",
    "CAST(array() AS ARRAY<DATE>)", "array(array(1Y), array(), NULL)", "CAST(NULL AS STRUCT<a: INT>)",
    "CAST(NULL AS ARRAY<INT>)", "CAST(NULL AS INT)",
)  # fmt: skip


def test_a_value_is_the_same_in_the_next_query(spark: SparkSession) -> None:
    """As UTF-8 that it isn't, too: on its way through Python a text would become another one."""
    values = spark.sql(f"SELECT {', '.join(f'{value} AS v{index}' for index, value in enumerate(VALUES))}")
    kinds = [field.dataType for field in values.schema]
    digits = values.selectExpr(*(digits_sql(f"v{index}", kind) for index, kind in enumerate(kinds))).first()
    assert digits is not None
    assert [digit is None for digit in digits] == [value.startswith("CAST(NULL") for value in VALUES]
    pairs = zip(VALUES, digits, kinds, strict=True)
    again = {sql: value_sql(found, kind) for sql, found, kind in pairs if found is not None}
    same = spark.sql(f"SELECT {', '.join(f'{sql} <=> {new}' for sql, new in again.items())}").first()
    assert same is not None
    assert [sql for sql, found in zip(again, same, strict=True) if not found] == []


# Spark 3.5 reads some of the SQL in a pipeline file as the user's session does, and that one expands.
V = "v.w " + ("" if built_for.installed().spark == "3.5" else "${x}") + " '\\ /* -- {} `"
QUOTED, IN_OTHERS = "`" + V.replace("`", "``") + "`", f'"{V}"'
DDL = f"k STRING, {QUOTED} STRING, n INT"
TOTALS = {"records": "count(1)", "highest": f"max({QUOTED})", "latest": f"last({QUOTED})"}


@dataclass(frozen=True)
class Sent:
    """A record. One that isn't good is no JSON."""

    key: str
    text: str
    good: bool = True

    @property
    def bad(self) -> bytes:
        return f"!{self.text}".encode()

    @property
    def fits_a_path(self) -> bool:
        return self.text != "" and "\0" not in self.text

    def value(self, n: int) -> bytes:
        return json.dumps({"k": self.key, V: self.text, "n": n}).encode() if self.good else self.bad


def drawn(seed: int) -> list[Sent]:
    """Several of each key."""
    keys = [*SUBSTITUTED, *texts(seed, 8)]
    values = texts(seed + 1, 2 * len(keys))
    good = [Sent(key, text) for key, text in zip(keys * 2, values, strict=True)]
    return [*good, *(Sent(key, key, good=False) for key in keys if key)]


def send(topic: Topic, records: Sequence[Sent], first: int = 0) -> None:
    """To partition 0, in this order, with headers."""
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, acks="all")
    for n, record in enumerate(records, first):
        producer.send(topic.name, record.value(n), record.key.encode(), [(record.text, record.key.encode())], 0)
    producer.flush()
    producer.close()


def latest(rows: Iterable[Row]) -> dict[str, tuple[str, int]]:
    return {key: (text, n) for key, text, n in rows}


def totals(rows: Sequence[Row]) -> list[tuple[str, int, str, str]]:
    """TOTALS, per key."""
    found: dict[str, list[str]] = {}
    for key, text, _ in rows:
        found.setdefault(key, []).append(text)
    return sorted((key, len(texts), max(texts), texts[-1]) for key, texts in found.items())


def sinks(lake: Lake, s3: Store) -> dict[str, dict[str, Any]]:
    """One of every kind."""
    keyed = {"key": "k", "except_column_list": ["_headers"]}
    store = {"endpoint": s3.endpoint, "region": "us-east-1", "path_style": True}
    return {
        "append": {"type": "delta_append"},
        "upsert": {"type": "delta_upsert", **keyed},
        "history": {"type": "delta_history", **keyed},
        "aggregate": {"type": "delta_aggregate", "group_by": "k", "aggregates": TOTALS},
        "objects": {
            "type": "s3_objects", "url": f"s3://{s3.bucket}/o", "format": "json_lines", "partition_by": [V], **store
        },
        "topic": {"type": "kafka_topic", "topic": f"{lake.topic.name}-out", "key": V},
    }  # fmt: skip


TRANSFORM = f"SELECT k, {QUOTED}, n, _headers FROM records"


def pipeline_into(kinds: Sequence[str], lake: Lake, s3: Store, **changes: Any) -> dict[str, Any]:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    options = lake.options(name=lake.topic.name, schema=DDL, headers=True, **letters, **changes)
    made = {kind: sink for kind, sink in sinks(lake, s3).items() if kind in kinds}
    for kind, sink in made.items():
        if sink["type"].startswith("delta"):
            sink["path"] = str(lake.path(kind))
    return options | {"sinks": [*made.values()], "coordinator": {"path": str(lake.path("log"))}}


TABLES = {
    "append": lambda rows: sorted(rows),
    "history": lambda rows: sorted(rows),
    "upsert": lambda rows: sorted((key, *row) for key, row in latest(rows).items()),
    "aggregate": totals,
}
"""What each holds, in plain Python."""


def rows_of(lake: Lake, kind: str) -> list[tuple[Any, ...]]:
    columns = "k, records, highest, latest" if kind == "aggregate" else f"k, {IN_OTHERS}, n"
    return sorted(query(lake.path(kind), f"SELECT {columns} FROM t"))


def messages(topic: Topic, count: int) -> list[Row]:
    consumer = KafkaConsumer(
        f"{topic.name}-out", bootstrap_servers=topic.broker.bootstrap, auto_offset_reset="earliest",
        isolation_level="read_committed", consumer_timeout_ms=10_000,
    )  # fmt: skip
    found = [(json.loads(each.value), each.key.decode()) for each in itertools.islice(consumer, count)]
    consumer.close()
    assert all(value[V] == key for value, key in found)
    return [(value["k"], value[V], value["n"]) for value, _ in found]


def objects(s3: Store) -> list[Row]:
    """By the folders that the store has, and the lines in them."""
    found = []
    for name in s3.visible("o/"):
        text = unquote(name.split("/")[1].partition("=")[2])
        body = s3.client.get_object(Bucket=s3.bucket, Key=name)["Body"].read()
        found += [(line["k"], text, line["n"]) for line in map(json.loads, body.splitlines())]
    return found


@pytest.mark.breadth
@pytest.mark.law
@pytest.mark.parametrize(
    ("kinds", "epochs", "transform"),
    [
        (("append", "history", "aggregate"), 1, TRANSFORM),
        pytest.param(
            ("append", "upsert", "history", "aggregate", "objects", "topic"), 3, None, marks=pytest.mark.draws
        ),
    ],
    ids=["tables", "all"],
)
@draws()
@given(seed=SEEDS)
def test_every_sink_holds_what_records_hold(
    lake: Lake, s3: Store, tmp_path_factory: pytest.TempPathFactory, kinds: Sequence[str], epochs: int,
    transform: str | None, seed: int,
) -> None:  # fmt: skip
    topic = Topic(lake.topic.broker, f"t-{uuid.uuid4().hex[:12]}")
    s3 = replace(s3, bucket=topic.name)
    s3.client.create_bucket(Bucket=s3.bucket)
    for name in (topic.name, f"{topic.name}-out"):
        topic.broker.create_topic(name, 1)
    lake = Lake(tmp_path_factory.mktemp("lake"), topic, lake.spark)
    records = drawn(seed)
    send(topic, records)
    options = pipeline_into(kinds, lake, s3, transform=transform, epoch={"max_records": -(-len(records) // epochs)})
    Pipeline.from_options(options).run()
    good = [(each.key, each.text, n) for n, each in enumerate(records) if each.good]
    # What no partition's path can tell is set aside by the objects, and by no other sink.
    unfit = {n for n, each in enumerate(records) if each.good and "objects" in kinds and not each.fits_a_path}
    aside = unfit | {n for n, each in enumerate(records) if not each.good}
    for kind in kinds:
        if kind in TABLES:
            assert rows_of(lake, kind) == TABLES[kind](good), kind
    letters = query(lake.path("letters"), "SELECT key, value, headers FROM t")
    assert sorted((key, value, [tuple(header.values()) for header in headers]) for key, value, headers in letters) == (
        sorted((e.key.encode(), e.value(n), [(e.text, e.key.encode())]) for n, e in enumerate(records) if n in aside)
    )
    if "topic" in kinds:
        assert sorted(messages(topic, len(good))) == sorted(good)
    if "objects" in kinds:
        assert sorted(objects(s3)) == sorted(row for row in good if row[2] not in unfit)
    for sink in options["sinks"][: 1 if epochs == 1 else 4]:
        first = options | {"sinks": [sink, *(other for other in options["sinks"] if other is not sink)]}
        assert audit(parse(first)).ok, sink
    assert not shown(lake.folder)


@pytest.mark.draws
@pytest.mark.parametrize("kind", ["upsert", "aggregate"])
@draws()
@given(seed=SEEDS)
def test_what_is_merged_on_read_holds_it_too(
    lake: Lake, s3: Store, tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int
) -> None:
    topic = Topic(lake.topic.broker, f"t-{uuid.uuid4().hex[:12]}")
    topic.broker.create_topic(topic.name, 1)
    lake = Lake(tmp_path_factory.mktemp("lake"), topic, lake.spark)
    options = pipeline_into([kind], lake, s3)
    del options["coordinator"]
    options["sinks"][0] |= {"merge": "on_read", "fold": {"epochs": 1}}
    good: list[Row] = []
    for number in range(3):
        records = drawn(seed + number)
        send(topic, records, first=100 * number)
        Pipeline.from_options(options).run()
        good += [(each.key, each.text, n) for n, each in enumerate(records, 100 * number) if each.good]
        assert lake.spark is not None
        assert rows_of(lake, kind) == TABLES[kind](good)
        assert audit(parse(options)).ok
    assert not shown(lake.folder)


def test_a_schema_has_the_names_that_it_says(spark: SparkSession) -> None:
    """Whoever parses it."""
    names = [name for name in SUBSTITUTED if name] + ["a`b", "\ue000${x}"]
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    columns = from_ddl(", ".join(f"{name} STRUCT<{name}: ARRAY<INT>> NOT NULL COMMENT '${{x}}'" for name in quoted))
    assert isinstance(columns, StructType)
    assert columns.names == names == [name for column in columns for name in column.dataType.names]
    assert not any(column.nullable for column in columns)


@pytest.mark.breadth
def test_sessions_of_a_column_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    times = [f"2026-01-01T00:{minute:02}:00Z" for minute in (1, 3, 20)]
    topic = ListedTopic([[(None, {"v.w": text, "t": time}) for text in SUBSTITUTED for time in times]])
    bench = Bench(
        spark, tmp_path, topic, "`v.w` STRING, t TIMESTAMP",
        sink={"type": "delta_aggregate", "group_by": "v.w", "aggregates": {"records": "count(*)"},
              "window": {"time": "t", "gap": "9 minutes", "allowed_lateness": "1 hour"}},
    )  # fmt: skip
    for end in (4, len(SUBSTITUTED) * len(times)):
        bench.run(end)
    found = bench.rows("`v.w`, records")
    assert sorted(found) == sorted((text, count) for text in SUBSTITUTED for count in (1, 2))


@pytest.mark.breadth
def test_a_record_is_refused_as_a_whole_whatever_its_columns_are_called(lake: Lake, topic: Topic, s3: Store) -> None:
    """A transform may make several rows of it."""
    topic.send(("a", {"k": "a", V: "${x}", "n": 1}), ("b", {V: "no key", "n": 2}))
    options = pipeline_into(["upsert"], lake, s3, transform=TRANSFORM)
    del options["coordinator"]
    Pipeline.from_options(options).run()
    assert rows_of(lake, "upsert") == [("a", "${x}", 1)]
    assert query(lake.path("letters"), "SELECT reason FROM t") == [("no_key",)]
    assert audit(parse(options)).ok


@pytest.mark.breadth
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
def test_fields_of_any_name_become_columns_or_bad_records_and_the_users_session_stays(lake: Lake, topic: Topic) -> None:
    """Delta takes no braces in a column's name: such fields are told apart by what they are called."""
    names = ["${x}", "${env:PLANTED_THING}", "$x", "it's", "a`b", "--no", "/*no*/", "\\", '"q"', "\u202ex", "%s", "?"]
    topic.send(("a", {"k": "a", "n": -1}), *((name, {"k": name, "n": n, name: n}) for n, name in enumerate(names)))
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    pipeline = lake.pipeline(on_new_column="add", **dead)
    pipeline.run()
    columns = [name for name in names if "{" not in name]
    found = lake.frame().collect()
    assert sorted((row["k"], row["n"]) for row in found) == sorted(
        [("a", -1), *((name, names.index(name)) for name in columns)]
    )
    assert {row["k"]: row[row["k"]] for row in found if row["k"] != "a"} == {c: names.index(c) for c in columns}
    why = "its value: has fields that can't become columns by themselves: "
    assert {detail for (detail,) in query(lake.path("dead"), "SELECT detail FROM t")} == {
        why + name for name in names if name not in columns
    }
    assert audit(pipeline.config).ok
    assert not shown(lake.folder)
    assert lake.sql("SELECT '${env:PLANTED_THING}'") == [(PLANTED["PLANTED_THING"],)]


def test_a_bad_record_is_told_as_it_is(lake: Lake, topic: Topic) -> None:
    topic.send(("a", b"${env:PLANTED_THING} <x> ' %s"), partition=0)
    with pytest.raises(BadRecord, match=r"\$\{env:PLANTED_THING\} <x> ' %s"):
        lake.pipeline().run()


@pytest.mark.breadth
def test_the_view_of_current_rows_is_read_as_it_was_made(lake: Lake, topic: Topic) -> None:
    """In the user's session, which substitutes."""
    assert lake.spark is not None
    name = f"t_{topic.name[2:]}"
    sink = {"path": None, "table": f"default.{name}", "merge": "on_read"}
    for n in range(2):
        topic.send(("${x}", {"k": "${x}", V: "${env:PLANTED_THING}", "n": n}), partition=0)
        lake.pipeline("upsert", schema=DDL, sink=sink).run()
    (row,) = lake.spark.table(f"default.{name}_live").collect()
    assert (row["k"], row[V], row["n"]) == ("${x}", "${env:PLANTED_THING}", 1)


@pytest.mark.breadth
@pytest.mark.classic("foreach_batch is refused there, see test_connect")
def test_a_streaming_job_substitutes_in_its_own_statements_only(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", V: "${env:PLANTED_THING}", "n": 1}))
    folder = lake.folder / "checkpoint"
    ours = foreach_batch(lake.options("upsert", schema=DDL), checkpoint=folder)
    theirs = []

    def write(rows: DataFrame, number: int) -> None:
        ours(rows, number)
        theirs.append(rows.sparkSession.sql("SELECT '${env:PLANTED_THING}' AS x").collect()[0]["x"])

    assert lake.spark is not None
    started(source(lake.spark, topic.broker.bootstrap, topic.name), write, folder).awaitTermination()
    assert rows_of(lake, "upsert") == [("a", "${env:PLANTED_THING}", 1)]
    assert theirs == [PLANTED["PLANTED_THING"]]
