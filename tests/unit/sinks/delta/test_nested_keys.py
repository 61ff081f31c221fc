"""A nested key of the records, the change log or the tombstones may have its fields in another order than the table's.

Spark refuses to compare two such keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sinks.delta import bitemporal, history, tombstones, upsert, without_offsets
from sinks.delta.history import _Versions
from sinks.delta.tombstones import Tombstones
from sinks.delta.upsert import DeltaUpsert, Merges
from sinks.delta.upsert_rule import DELETED_BY, SOURCE, UpsertRule
from sinks.delta.without_offsets import PlainUpsert
from sinks.offsets import Offsets, TopicPartition

COORDINATES = [
    StructField("_topic", StringType()), StructField("_partition", LongType()), StructField("_offset", LongType())
]  # fmt: skip
NOTED = [*COORDINATES, StructField("_noted_at", TimestampType()), StructField("_noted_by", StringType())]
AT = Offsets({TopicPartition("t", 0): 7})


def with_key(*fields: str, but: list[StructField] = COORDINATES, deletes: bool = False) -> StructType:
    key = StructType([StructField(name, LongType()) for name in fields])
    mark = StructType([StructField(each.name[1:], each.dataType) for each in COORDINATES])
    last = [StructField(DELETED_BY, mark)] if deletes else []
    return StructType([StructField("k", key), StructField("n", LongType()), *but, *last])


TABLE = with_key("a", "b")
OTHER = with_key("b", "a", deletes=True)
IN_ORDER = "named_struct('a', `k`.`a`, 'b', `k`.`b`)"


@dataclass
class Rows:
    """Rows that tell what was selected of them."""

    schema: StructType
    chosen: tuple[str, ...] = ()
    views: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    def selectExpr(self, *columns: str) -> Rows:
        own = [
            StructField(name, TABLE["k"].dataType if IN_ORDER in each else self.schema[name].dataType)
            for each, name in zip(columns, self.columns, strict=True)
        ]
        return Rows(StructType(own), columns, self.views)

    def createOrReplaceTempView(self, name: str) -> None:
        self.views += [name, *self.chosen]


def table_of(schema: StructType, rows: Rows | None = None) -> Any:
    def sql(_: str) -> Any:
        return rows if rows is not None else SimpleNamespace(collect=list)

    return SimpleNamespace(
        spark=SimpleNamespace(sql=sql), schema=schema, sql="t", sql_at=lambda _: "t", detail=lambda: None,
        exists=lambda: True, evolves=False, label="t", is_new=True,
    )  # fmt: skip


def tombstones_of(key: StructType) -> Tombstones:
    kept = Tombstones(table_of(TABLE), ["k"])
    kept._table = table_of(StructType([key["k"], *NOTED]))
    kept._table.sql = "notes"
    return kept


def merged(table: StructType, changes: StructType, noted: StructType | None = None) -> str:
    merges = Merges(
        table_of(table, Rows(changes)), UpsertRule(("k",)), keep=noted is not None, retention=timedelta(days=7)
    )
    if noted is not None:
        merges.tombstones = tombstones_of(noted)
    return merges.merged_sql("net", "raw", None, hint="")


def test_the_keys_of_the_changes_are_compared_in_the_order_of_the_table() -> None:
    """Else Spark refuses to compare them, and only a fold could read such changes."""
    same = merged(with_key("a", "b"), with_key("a", "b"))
    assert "named_struct" not in same
    other = merged(with_key("a", "b"), with_key("b", "a"))
    keys = other[other.index("LEFT ANTI JOIN") : other.index("UNION ALL")]
    assert "raw" in keys
    assert keys.index("`k`.`a`") < keys.index("`k`.`b`")


@pytest.mark.parametrize("changes", [with_key("a", "b", deletes=True), OTHER], ids=["same", "other"])
def test_tombstones_of_another_order_are_compared_in_that_of_the_table(changes: StructType) -> None:
    """They keep the order of the rows that they were made with, also those of earlier releases."""
    query = merged(TABLE, changes, with_key("b", "a"))
    *before, _ = query.split("FROM notes")
    assert before
    assert all(IN_ORDER in text[text.rindex("SELECT") :] for text in before)
    assert (IN_ORDER in merged(TABLE, changes, TABLE)) is (changes is OTHER)


def test_tombstones_that_count_so_far_have_the_keys_of_the_rows_that_they_are_compared_with() -> None:
    in_order = tombstones_of(TABLE)
    assert in_order.passed_sql(None, TABLE) == "notes"
    assert "SELECT * FROM notes WHERE" in str(in_order.passed_sql(AT, TABLE))
    other = tombstones_of(OTHER)
    assert IN_ORDER in str(other.passed_sql(None, TABLE))
    passed = str(other.passed_sql(AT, TABLE))
    assert IN_ORDER in passed
    assert "`_noted_at`" in passed
    assert "WHERE" in passed


def test_a_delete_is_noted_by_the_names_of_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append may go by their places, and would keep another key."""
    written: list[Rows] = []
    monkeypatch.setattr(tombstones, "append", lambda rows, _: written.append(rows))
    kept = tombstones_of(TABLE)
    kept._append(Rows(StructType([OTHER["k"], *NOTED])))  # type: ignore[arg-type]
    assert IN_ORDER in written[0].chosen[0]
    # A field that the table has got since: without it, the delete would be another key's.
    kept._append(Rows(StructType([with_key("b", "a", "c")["k"], *NOTED])))  # type: ignore[arg-type]
    assert "'c', `k`.`c`" in written[1].chosen[0]


def upserts(monkeypatch: pytest.MonkeyPatch) -> DeltaUpsert:
    monkeypatch.setattr(upsert, "demands", lambda *_: [])
    return DeltaUpsert(table_of(TABLE), None, rule=UpsertRule(("k",)))  # type: ignore[arg-type]


def test_a_rehearsal_compares_keys_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another sink each epoch is rehearsed, and none would pass."""
    rows = Rows(OTHER)
    upserts(monkeypatch).rehearse(rows, SimpleNamespace(passed=AT))  # type: ignore[arg-type]
    assert rows.views[0] == SOURCE
    assert IN_ORDER in rows.views[1]


def test_an_epoch_is_written_and_its_deletes_are_kept_in_the_order_of_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Rows] = []

    def pruning(_: Any, __: Any, rows: Rows, ___: str) -> Any:
        given.append(rows)
        raise InterruptedError

    monkeypatch.setattr(upsert, "pruning", pruning)
    with pytest.raises(InterruptedError):
        upserts(monkeypatch).write(None, Rows(OTHER))  # type: ignore[arg-type]
    plain = PlainUpsert(table_of(TABLE), pipeline="p", rule=UpsertRule(("k",)))
    monkeypatch.setattr(without_offsets, "without_position", lambda *_: None)
    monkeypatch.setattr(plain, "_write", given.append)
    plain.write(None, Rows(OTHER))  # type: ignore[arg-type]
    assert [IN_ORDER in rows.chosen[0] for rows in given] == [True, True]


def test_deletes_noted_meanwhile_are_compared_in_the_order_of_the_rows() -> None:
    newer = Rows(StructType([OTHER["k"]]))
    merges = Merges(table_of(TABLE, newer), UpsertRule(("k",)), keep=True, retention=timedelta(days=7))
    merges.tombstones = tombstones_of(OTHER)
    chosen: list[str] = []

    def selected(*columns: str) -> Any:
        chosen.extend(columns)
        raise InterruptedError

    newer.selectExpr = selected  # type: ignore[method-assign, assignment]
    with pytest.raises(InterruptedError):
        merges.overtaken(Rows(TABLE), None)  # type: ignore[arg-type]
    assert IN_ORDER in chosen[0]


def test_a_history_compares_keys_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = _Versions(
        table_of(TABLE), SimpleNamespace(key=("k",)), timedelta(days=7), ties=False, by_offset=True  # type: ignore[arg-type]
    )  # fmt: skip
    versions.tombstones = tombstones_of(OTHER)
    asked: list[Any] = []
    monkeypatch.setattr(history, "events_moved_sql", lambda *given: str(asked.append(given)))
    rows = Rows(OTHER)
    versions.refuse_moved(rows, AT)  # type: ignore[arg-type]
    assert IN_ORDER in rows.views[1]
    assert IN_ORDER in asked[0][2]
    seen: list[Rows] = []

    def stop(events: Rows, _: Any = None) -> None:
        seen.append(events)
        raise InterruptedError

    monkeypatch.setattr(versions, "_note", stop)
    with pytest.raises(InterruptedError):
        versions.changed(rows, AT)  # type: ignore[arg-type]
    recorded = bitemporal._Versions(table_of(TABLE), SimpleNamespace(key=("k",)), ties=False)  # type: ignore[arg-type]
    monkeypatch.setattr(bitemporal, "struct_of", lambda _: "k")
    monkeypatch.setattr(Rows, "selectExpr", lambda _, *columns: stop(Rows(TABLE, columns)))
    with pytest.raises(InterruptedError):
        recorded.changed(rows)  # type: ignore[arg-type]
    assert [IN_ORDER in each.chosen[0] for each in seen] == [True, True]
