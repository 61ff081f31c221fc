"""``unavailable: keep``: a value that the database did not send leaves the stored one; a null that it sent does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from audits import counts, verify
from conftest import Lake, Topic, own_session
from hypothesis import given
from kept import COLUMNS, GONE, Change, Database, drawn, keeping, rows_of, send, versions_of
from suites import draws
from upserts import SEEDS

from connector import Pipeline, read
from connector.audit import audit
from connector.config import parse
from connector.derive import derive
from sinks.contract import Epoch, Position
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = (
    "k STRING, a STRING, b STRING, seq INT, op STRING, _unavailable ARRAY<STRING>, _tombstone BOOLEAN, _topic STRING, "
    "_partition INT, _offset BIGINT, _timestamp TIMESTAMP"
)
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Table:
    """A table without Kafka: epochs are written from lists."""

    def __init__(self, spark: SparkSession, path: Path, delivery: str = "transactional", **sink: Any) -> None:
        self._spark, self.path = spark, path
        options = {
            "name": "p",
            "delivery": delivery,
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "k STRING"},
            "sinks": [
                {"path": str(path), "key": "k", "apply_as_deletes": "op = 'd'",
                 "except_column_list": ["seq", "op"], **sink}
            ],
        }  # fmt: skip
        self._plain = delivery != "transactional"
        table = DeltaTable(spark, path=str(path))
        commits = PipelineCommits(table, pipeline="p", topics=["t"])
        self.derivation = derive(parse(options), table, commits, self._frame([]))
        table.create(self.derivation.columns)
        self._position: Position | None = None

    def _frame(self, changes: Sequence[Change]) -> DataFrame:
        rows = [
            (each.key, *(each.values.get(name) for name in COLUMNS), each.seq, each.op,
             [name for name in COLUMNS if name not in each.values], False, "t", each.partition, each.offset, AT)
            for each in changes
        ]  # fmt: skip
        return self._spark.createDataFrame(rows, RECORDS)

    def write(self, changes: Sequence[Change]) -> None:
        stood = self._position.offsets if self._position else Offsets()
        ends: dict[TopicPartition, int] = {}
        for each in changes:
            at = TopicPartition("t", each.partition)
            ends[at] = max(ends.get(at, 0), each.offset + 1)
        epoch = Epoch(
            pipeline="p", number=self._position.epoch + 1 if self._position else 1, owner="me", ranges=(),
            offsets=stood.join(Offsets(ends)), topics={}, read_to=None, expected=self._position,
        )  # fmt: skip
        writer = self.derivation.plain if self._plain else self.derivation.sink
        committed = writer.write(epoch, self.derivation.reduce(self._frame(changes), epoch))
        if not self._plain:
            self._position = committed.position

    def rows(self) -> dict[str, tuple[str | None, ...]]:
        return {row[0]: row[1:] for row in query(self.path, "SELECT k, a, b FROM t")}

    def live(self) -> dict[str, tuple[str | None, ...]]:
        assert self.derivation.log is not None
        return {row[0]: tuple(row[1:]) for row in self.derivation.log.live().select("k", *COLUMNS).collect()}

    def fold(self) -> None:
        assert self.derivation.log is not None
        self.derivation.log.fold("me")

    def versions(self) -> list[tuple[Any, ...]]:
        found = query(self.path, 'SELECT k, a, b, "__START_AT", "__END_AT" FROM t')
        return sorted(map(tuple, found), key=repr)


BY_SEQUENCE = {"sequence_by": "seq"}
TRUNCATED = {**BY_SEQUENCE, "apply_as_truncates": "op = 't'"}


@pytest.mark.law
@pytest.mark.parametrize(
    ("sink", "delivery"),
    [
        pytest.param({}, "transactional", marks=pytest.mark.draws),
        pytest.param({}, "idempotent", marks=pytest.mark.draws),
        (TRUNCATED, "transactional"),
    ],
    ids=["offset", "offset, idempotent", "sequence"],
)
@draws()
@given(seed=SEEDS)
def test_a_row_has_the_newest_value_that_was_sent_for_each_column(
    sink: dict[str, str], delivery: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    sequenced = "sequence_by" in sink
    path = tmp_path_factory.mktemp("kept") / "t"
    table = Table(own_session(spark), path, delivery, type="delta_upsert", **sink)
    seen: list[Change] = []
    for epoch in drawn(seed, sequenced=sequenced, truncates=sequenced):
        table.write(epoch)
        seen += epoch
        assert table.rows() == rows_of(seen, sequenced=sequenced)


@pytest.mark.breadth
@pytest.mark.law
@pytest.mark.parametrize("sink", [pytest.param({}, marks=pytest.mark.draws), BY_SEQUENCE], ids=["offset", "sequence"])
@draws()
@given(seed=SEEDS)
def test_what_is_merged_on_read_has_it_before_and_after_a_fold(
    sink: dict[str, str], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    sequenced = "sequence_by" in sink
    path = tmp_path_factory.mktemp("kept") / "t"
    table = Table(own_session(spark), path, type="delta_upsert", merge="on_read", **sink)
    seen: list[Change] = []
    for number, epoch in enumerate(drawn(seed, sequenced=sequenced)):
        table.write(epoch)
        seen += epoch
        assert table.live() == rows_of(seen, sequenced=sequenced)
        if number == 1:
            table.fold()
            assert table.rows() == rows_of(seen, sequenced=sequenced)
    table.fold()
    assert table.rows() == rows_of(seen, sequenced=sequenced)


@pytest.mark.breadth
@pytest.mark.law
@pytest.mark.parametrize(
    ("tracked", "order"),
    [
        ("a", "truncates"),
        pytest.param("a", "sequence", marks=pytest.mark.draws),
        pytest.param("ab", "offset", marks=pytest.mark.draws),
        pytest.param("ab", "sequence", marks=pytest.mark.draws),
        pytest.param("a", "offset", marks=pytest.mark.draws),
    ],
)
@draws()
@given(seed=SEEDS)
def test_a_version_has_the_newest_value_that_was_sent_before_it(
    tracked: str, order: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    sequenced, truncates = order != "offset", order == "truncates"
    by = TRUNCATED if truncates else BY_SEQUENCE if sequenced else {}
    sink = {**by, "track_history_column_list": list(tracked)}
    table = Table(own_session(spark), tmp_path_factory.mktemp("kept") / "t", type="delta_history", **sink)
    seen: list[Change] = []
    for epoch in drawn(seed, sequenced=sequenced, truncates=truncates):
        table.write(epoch)
        seen += epoch
        assert table.versions() == versions_of(seen, sequenced=sequenced, tracked=tracked)


BY_LSN = {"sequence_by": "_source_position"}
ON_READ = {"merge": "on_read", "apply_as_truncates": "false"}


@pytest.mark.breadth
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kind", "sink"),
    [
        pytest.param("upsert", {}, id="by offset"),
        pytest.param("upsert", {**BY_LSN, **ON_READ}, id="by lsn, on read", marks=pytest.mark.breadth),
        pytest.param("history", BY_LSN, id="history", marks=pytest.mark.breadth),
        pytest.param("upsert", BY_LSN, id="by lsn", marks=pytest.mark.breadth),
        pytest.param("history", {}, id="history by offset", marks=pytest.mark.breadth),
    ],
)
def test_the_table_is_the_databases_and_the_auditor_knows(
    kind: str, sink: dict[str, Any], lake: Lake, topic: Topic
) -> None:
    database, random = Database(seed=7), Random(8) if sink else None
    options = keeping(**sink)
    send(topic, database.changes(200), random)
    run = lake.pipeline(kind, **options)
    run.run()
    if "merge" in sink:
        assert lake.spark is not None
        current = read(lake.spark, lake.file(kind, **options)).select("id", "doc", "photo", "n").collect()
        assert {row[0]: tuple(row[1:]) for row in current} == database.held
        run.fold()
    now = "" if kind == "upsert" else ' WHERE "__END_AT" IS NULL'
    held = query(lake.path(kind), f"SELECT id, doc, photo, n FROM t{now}")
    assert {row[0]: tuple(row[1:]) for row in held} == database.held
    assert verify(lake, kind, **options).ok
    # Another rule would have made other rows, and a value that is gone or stayed is found.
    assert not verify(lake, kind, **keeping("null", **sink)).ok
    (key,) = next(iter(query(lake.path(kind), "SELECT min(id) FROM t WHERE doc IS NOT NULL")))
    lake.sql(f"UPDATE {{t}} SET doc = NULL WHERE id = {key}", kind)
    assert counts(verify(lake, kind, **options))["altered"] >= 1


@pytest.mark.breadth
def test_a_transform_says_which_of_its_columns_were_not_sent(lake: Lake, topic: Topic) -> None:
    database = Database(seed=9)
    send(topic, database.changes(80))
    chosen = "id, doc AS body, length(doc) AS size, n, _op"
    lacking = {**keeping(), "transform": f"SELECT {chosen} FROM records"}
    with pytest.raises(ConfigurationError, match="transform: leaves out _unavailable"):
        lake.pipeline("upsert", **lacking).run()
    wrong = {**keeping(), "transform": f"SELECT {chosen}, size(_unavailable) AS _unavailable FROM records"}
    with pytest.raises(ConfigurationError, match=r"transform: _unavailable is INT, and has to be ARRAY<STRING>"):
        lake.pipeline("upsert", **wrong).run()
    named = "IF(array_contains(_unavailable, 'doc'), array('body', 'size'), array()) AS _unavailable"
    options = {**keeping(), "transform": f"SELECT {chosen}, {named} FROM records"}
    lake.pipeline("upsert", **options).run()
    held = query(lake.path("upsert"), "SELECT id, body, size, n FROM t")
    docs = {key: (row["doc"], row["doc"] and len(row["doc"]), row["n"]) for key, row in database.rows.items()}
    assert {row[0]: row[1:] for row in held} == docs
    assert verify(lake, "upsert", **options).ok


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_a_transform_may_write_a_columns_name_in_another_case(kind: str, lake: Lake, topic: Topic) -> None:
    database = Database(seed=10)
    send(topic, database.changes(80))
    options = {**keeping(), "transform": "SELECT id, DOC, photo, n, _op, _unavailable FROM records"}
    lake.pipeline(kind, **options).run()
    now = "" if kind == "upsert" else ' WHERE "__END_AT" IS NULL'
    held = query(lake.path(kind), f'SELECT id, "DOC", photo, n FROM t{now}')
    assert {row[0]: tuple(row[1:]) for row in held} == database.held
    assert verify(lake, kind, **options).ok


@pytest.mark.breadth
def test_what_comes_first_of_a_key_without_a_value_is_null(lake: Lake, topic: Topic) -> None:
    """The topic may begin later than the table of the database: nothing is stored that could be kept."""
    change = {"after": {"id": 1, "doc": GONE, "photo": None, "n": 1}, "op": "u", "source": {"lsn": 1}}
    topic.send(('{"id": 1}', change), partition=0)
    lake.pipeline("upsert", **keeping()).run()
    assert query(lake.path("upsert"), "SELECT id, doc, n FROM t") == [(1, None, 1)]
    assert verify(lake, "upsert", **keeping()).ok


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["auto_commit", "manual_commit", "idempotent"])
def test_deliveries_that_keep_no_position_keep_values(delivery: str, lake: Lake, topic: Topic) -> None:
    database = Database(seed=11)
    send(topic, database.changes(120))
    options = {**keeping(), "delivery": delivery}
    lake.pipeline("upsert", **options).run()
    held = query(lake.path("upsert"), "SELECT id, doc, photo, n FROM t")
    assert {row[0]: tuple(row[1:]) for row in held} == database.held


@pytest.mark.breadth
def test_tables_that_commit_together_keep_values(lake: Lake, topic: Topic) -> None:
    database = Database(seed=12)
    send(topic, database.changes(120), Random(13))
    options = lake.options("upsert", **keeping())
    kinds = {"upsert": {"type": "delta_upsert"}, "history": {"type": "delta_history"}}
    sinks = [{**sink, **BY_LSN, "key": "id", "path": str(lake.path(kind))} for kind, sink in kinds.items()]
    options |= {"sinks": sinks, "coordinator": {"path": str(lake.path("log"))}}
    Pipeline.from_options(options).run()
    for number, now in enumerate(("", ' WHERE "__END_AT" IS NULL')):
        held = query(lake.path(list(kinds)[number]), f"SELECT id, doc, photo, n FROM t{now}")
        assert {row[0]: tuple(row[1:]) for row in held} == database.held
        assert audit(parse(options).alone(number)).ok


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_a_dead_letter_that_is_retried_brings_its_value(kind: str, lake: Lake, topic: Topic) -> None:
    rows = [{"doc": "a", "n": 1}, {"doc": "b", "n": 9}, {"doc": GONE, "n": 2}, {"doc": None, "n": 3}]
    for lsn, row in enumerate(rows, start=1):
        change = {"after": {"id": lsn // 4, "photo": None, **row}, "op": "u", "source": {"lsn": lsn}}
        topic.send(("x", change), partition=0)
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    options = {**keeping(**BY_LSN), **letters}
    now = "" if kind == "upsert" else ' WHERE "__END_AT" IS NULL'
    lake.pipeline(kind, **options, require="n < 9").run()
    assert sorted(query(lake.path(kind), f"SELECT id, doc, n FROM t{now}")) == [(0, "a", 2), (1, None, 3)]
    lake.pipeline(kind, **options).retry_dead_letters()
    assert sorted(query(lake.path(kind), f"SELECT id, doc, n FROM t{now}")) == [(0, "b", 2), (1, None, 3)]
    assert verify(lake, kind, **options).ok
