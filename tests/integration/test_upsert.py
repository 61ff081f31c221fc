"""Upserts beyond the simple case: deletes, sequences, truncates, parts of rows. The result never depends on the way."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from audits import verify
from conftest import Lake, Topic, own_session
from hypothesis import given
from suites import draws
from upserts import SEEDS, Model, Record, Table, by_offset, by_sequence

from connector import Pipeline
from connector.protocol.steps import Event, Step
from connector.source.group_member import GroupMember
from sinks.delta.merge import Merge
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import FOLDER, Tombstones
from sinks.delta.upsert import Merges
from sinks.delta.without_offsets import PlainUpsert
from sinks.errors import BadRecord, ConfigurationError, Fenced, KeyMoved, SchemaMismatch
from sinks.offsets import Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.law
@pytest.mark.parametrize("delivery", [pytest.param("transactional", marks=pytest.mark.draws), "idempotent"])
@draws()
@given(seed=SEEDS)
def test_deletes_in_the_order_of_offsets(spark: SparkSession, tmp_path: Path, delivery: str, seed: int) -> None:
    records, epochs = by_offset(seed)
    table = Table(own_session(spark), tmp_path, delivery)
    for start, end in epochs:
        table.write(records[start:end])
        assert table.rows() == Model(False, records=records[:end]).rows()


@pytest.mark.draws
@draws()
@given(seed=SEEDS)
def test_soft_deletes_in_the_order_of_offsets(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records, epochs = by_offset(seed)
    table = Table(own_session(spark), tmp_path, deletes="soft")
    for start, end in epochs:
        table.write(records[start:end])
    by = "CASE WHEN _deleted_by IS NOT NULL THEN struct(_deleted_by.`partition`, _deleted_by.offset) END"
    assert table.rows("_deleted", by) == Model(False, records=records).soft_rows()


@pytest.mark.draws
@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
@draws()
@given(seed=SEEDS)
def test_nulls_leave_older_values_in_the_order_of_offsets(
    spark: SparkSession, tmp_path: Path, delivery: str, seed: int
) -> None:
    records, epochs = by_offset(seed)
    table = Table(own_session(spark), tmp_path, delivery, ignore_null_updates=True)
    for start, end in epochs:
        table.write(records[start:end])
        assert table.rows() == Model(False, True, records[:end]).rows()


@pytest.mark.breadth
@pytest.mark.law
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("manual_commit", marks=pytest.mark.draws)])
@draws()
@given(seed=SEEDS)
def test_deletes_and_truncates_in_the_order_of_a_sequence(
    spark: SparkSession, tmp_path: Path, delivery: str, seed: int
) -> None:
    epochs = by_sequence(seed)
    table = Table(own_session(spark), tmp_path, delivery, sequence_by="seq", apply_as_truncates="op = 't'")
    seen: list[Record] = []
    for epoch in epochs:
        table.write(epoch)
        seen += epoch
        assert table.rows() == Model(True, records=seen).rows()


@pytest.mark.draws
@draws()
@given(seed=SEEDS)
def test_soft_deletes_in_the_order_of_a_sequence(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    epochs = by_sequence(seed, "uuud")
    table = Table(own_session(spark), tmp_path, sequence_by="seq", deletes="soft")
    for epoch in epochs:
        table.write(epoch)
    by = "CASE WHEN _deleted_by IS NOT NULL THEN struct(_deleted_by.`partition`, _deleted_by.offset) END"
    assert (
        table.rows("_deleted", by) == Model(True, records=[record for epoch in epochs for record in epoch]).soft_rows()
    )


@pytest.mark.draws
@draws()
@given(seed=SEEDS)
def test_nulls_leave_older_values_in_the_order_of_a_sequence(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    epochs = by_sequence(seed)
    table = Table(
        own_session(spark), tmp_path, sequence_by="seq", apply_as_truncates="op = 't'", ignore_null_updates=True
    )
    seen: list[Record] = []
    for epoch in epochs:
        table.write(epoch)
        seen += epoch
        assert table.rows() == Model(True, True, seen).rows()


@pytest.mark.breadth
def test_a_delete_that_leaves_no_row_in_the_first_epoch_is_remembered(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(own_session(spark), tmp_path, sequence_by="seq")
    table.write([Record("a", "u", 1, 1, seq=1), Record("a", "d", None, None, seq=3, offset=1)])
    table.write([Record("a", "u", 2, 2, seq=2, offset=2)])
    assert table.rows() == {}


@pytest.mark.breadth
def test_a_key_is_deleted_by_a_tombstone_with_its_text_or_its_json_for_a_key(lake: Lake, topic: Topic) -> None:
    schema = {"schema": "k STRING, n INT"}
    topic.send_rows([(key, 1) for key in ("a", "b", "c", "d")], partition=0)
    topic.send(("a", None), ('{"k": "b"}', None), ('"c"', None), ("nobody", None), partition=0)
    lake.pipeline("upsert", **schema).run()
    assert lake.rows("upsert") == [("d", 1)]
    topic.send(("d", None), ("d", {"k": "d", "n": 2}), ("d", None), partition=0)
    topic.send_rows([("a", 3)], partition=0)
    lake.pipeline("upsert", **schema, epoch={"max_records": 2}).run()
    assert lake.rows("upsert") == [("a", 3)]
    assert not (lake.path("upsert") / FOLDER).exists()


@pytest.mark.breadth
@pytest.mark.parametrize("key", [b"\0\0\0\0\1\x06abc", b"\xff\xfe"])
def test_a_key_that_is_no_text_names_no_row(key: bytes, lake: Lake, topic: Topic) -> None:
    """As a key in Avro, if the file doesn't say its format: read as text it would delete nothing."""
    topic.send(("abc", {"k": "abc", "n": 1}), (key, None), partition=0)
    with pytest.raises(BadRecord, match="nothing says which row it deletes"):
        lake.pipeline("upsert").run()
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    lake.pipeline("upsert", **letters).run()
    assert verify(lake, "upsert", **letters).ok


@pytest.mark.breadth
@pytest.mark.parametrize(
    "key", [{"format": "string"}, pytest.param({"format": "json", "schema": "k STRING"}, marks=pytest.mark.breadth)]
)
def test_a_text_in_kafkas_key_names_a_number_only_if_it_is_one(key: dict[str, str], lake: Lake, topic: Topic) -> None:
    """A cast would leave out the bytes of a header, and delete another row."""
    text = "{}" if key["format"] == "string" else '{{"k": "{}"}}'
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    options: dict[str, Any] = {"schema": "k BIGINT, n INT", "key": key, **letters}
    header = "\0\0\0\0\1" if key["format"] == "string" else "\\u0000\\u0001"
    topic.send(*((text.format(number), {"k": number, "n": 1}) for number in (42, 142, 7)), partition=0)
    topic.send((text.format(f"{header}42"), None), (text.format("142"), None), (text.format("7.5"), None), partition=0)
    lake.pipeline("upsert", **options).run()
    assert sorted(lake.rows("upsert")) == [(7, 1), (42, 1)]
    assert verify(lake, "upsert", **options).ok


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("kind", "of_key", "kept", "deleted", "no_key"),
    [
        ("STRING", "k BIGINT", ["007", "12"], "7", "null"),  # a column of numbers would have 7 and 007 in one row
        ("INT", "k DOUBLE", ["7", "2147483647"], "12", "12.5"),
    ],
)
def test_a_key_of_another_type_leaves_the_values_column_as_it_is(
    kind: str, of_key: str, kept: list[str], deleted: str, no_key: str, lake: Lake, topic: Topic
) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}
    options: dict[str, Any] = {"schema": f"k {kind}, n INT", "key": {"format": "json", "schema": of_key}, **letters}

    def value(key: str) -> object:
        return key if kind == "STRING" else int(key)

    topic.send(*(('{"k": 1}', {"k": value(key), "n": 1}) for key in (*kept, deleted)), partition=0)
    topic.send(*((f'{{"k": {key}}}', None) for key in (deleted, no_key)), partition=0)
    lake.pipeline("upsert", **options).run()
    assert lake.frame("upsert").schema["k"].dataType.simpleString().upper() == kind
    assert {row["k"] for row in lake.frame("upsert").collect()} == set(map(value, kept))
    assert lake.sql("SELECT reason, _offset FROM {t}", "dead") == [("no_key", 4)]
    assert verify(lake, "upsert", **options).ok


@pytest.mark.breadth
def test_a_key_of_a_type_without_an_exact_cast_is_refused(lake: Lake, topic: Topic) -> None:
    topic.send(('{"k": "2026-11-01"}', {"k": "2026-11-01T10:00:00Z", "n": 1}), partition=0)
    options: dict[str, Any] = {"schema": "k TIMESTAMP, n INT", "key": {"format": "json", "schema": "k DATE"}}
    with pytest.raises(ConfigurationError, match="k is DATE in Kafka's key and TIMESTAMP in the value"):
        lake.pipeline("upsert", **options).run()
    assert not lake.path("upsert").exists()


@pytest.mark.breadth
def test_a_tombstone_for_several_columns_has_them_as_json(lake: Lake, topic: Topic) -> None:
    options: dict[str, Any] = {"schema": "k STRING, n INT, v STRING", "sink": {"key": ["k", "n"]}}
    topic.send(*(("x", {"k": "a", "n": number, "v": "v"}) for number in (1, 2)), partition=0)
    topic.send(('{"n": 1, "k": "a", "more": true}', None), partition=0)
    lake.pipeline("upsert", **options).run()
    assert lake.rows("upsert") == [("a", 2)]
    topic.send(("a", None), partition=0)
    with pytest.raises(BadRecord, match=r"-0, offset 3 has no value .* gives no") as caught:
        lake.pipeline("upsert", **options).run()
    assert "JSON object" in caught.value.hint


@pytest.mark.breadth
def test_a_tombstone_has_no_sequence_but_kafkas_timestamp(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    topic.send(("a", None), partition=1)
    with pytest.raises(BadRecord, match=r'-1, offset 0, key {"k":"a"}, has no sequence') as caught:
        lake.pipeline("upsert", sink={"sequence_by": "n"}).run()
    assert "sequence_by: _timestamp" in caught.value.hint
    later = {"sequence_by": "_timestamp", "path": str(lake.folder / "later")}
    lake.pipeline("upsert", name="later", sink=later).run()
    assert lake.rows("later") == [("b", 2)]


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_a_sequence_of_several_parts_has_them_all(kind: str, lake: Lake, topic: Topic) -> None:
    """Spark takes a null in a struct for the lowest value: such a record would count as older than all others."""
    whole, step = {"day": 1, "of": {"step": 1, "path": [1]}}, {"step": 2, "path": [2]}
    bad = [None, {"day": None, "of": step}, {"day": 2, "of": None}]
    bad += [{"day": 2, "of": {**step, **lack}} for lack in ({"step": None}, {"path": None}, {"path": [2, None]})]
    records = [("a", {"k": "a", "n": n, "at": at}) for n, at in enumerate([whole, *bad])]
    topic.send(*records, ("a", None), ("b", {"k": "b", "n": 2, "at": {"day": 1}}), partition=0)
    options: dict[str, Any] = {
        "schema": "k STRING, n INT, at STRUCT<day: INT, of: STRUCT<step: INT, path: ARRAY<INT>>>",
        "sink": {"sequence_by": "struct(at.day, at.of)", "key": "k", "column_list": ["k", "n"]},
    }
    with pytest.raises(BadRecord, match=r"offset 1, key .* has no sequence \(.* or has a null in it\)"):
        lake.pipeline(kind, **options).run()
    options |= {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    lake.pipeline(kind, **options).run()
    assert lake.sql("SELECT k, n FROM {t}", kind) == [("a", 0)]
    assert lake.sql("SELECT _offset, reason FROM {t} ORDER BY 1", "letters") == [
        (n, "no_sequence") for n in range(1, 9)
    ]
    assert verify(lake, kind, **options).ok


SEQUENCED: dict[str, Any] = {"schema": "k STRING, n INT, seq INT, op STRING"}
BY_SEQ = {"sequence_by": "seq", "apply_as_deletes": "op = 'D'", "except_column_list": "op"}


def send(topic: Topic, key: str, n: int | None, seq: int, op: str = "U", partition: int = 0) -> None:
    topic.send((key, {"k": key, "n": n, "seq": seq, "op": op}), partition=partition)


@pytest.mark.breadth
def test_a_late_update_does_not_bring_a_deleted_row_back(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "a", 1, 1)
    send(topic, "b", 1, 1)
    pipeline.run()
    assert not (lake.path("upsert") / FOLDER).exists()
    send(topic, "a", None, 5, "D", partition=1)
    pipeline.run()
    send(topic, "a", 4, 4)
    send(topic, "c", 7, 7)
    pipeline.run()
    assert lake.rows("upsert") == [("b", 1), ("c", 7)]
    columns = ["k", "n", "seq", "_topic", "_partition", "_offset", "_timestamp", "_sequence"]
    assert lake.frame("upsert").columns == columns
    send(topic, "a", 5, 4, partition=1)
    pipeline.run()
    assert lake.rows("upsert") == [("b", 1), ("c", 7)]
    send(topic, "a", 6, 6)
    pipeline.run()
    assert lake.rows("upsert") == [("a", 6), ("b", 1), ("c", 7)]


@pytest.mark.breadth
def test_tombstones_are_in_no_readers_way_and_survive_a_vacuum(lake: Lake, topic: Topic) -> None:
    from deltalake import DeltaTable as DeltaRs

    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "a", 1, 1)
    pipeline.run()
    send(topic, "a", None, 5, "D", partition=1)
    send(topic, "c", 7, 7)
    pipeline.run()
    assert len(DeltaRs(str(lake.path("upsert"))).file_uris()) <= 3
    assert not [uri for uri in DeltaRs(str(lake.path("upsert"))).file_uris() if "_lakelock" in uri]
    lake.sql("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
    lake.sql("VACUUM {t} RETAIN 0 HOURS", "upsert")
    lake.sql("RESET spark.databricks.delta.retentionDurationCheck.enabled")
    send(topic, "a", 5, 4, partition=1)
    pipeline.run()
    assert lake.rows("upsert") == [("c", 7)]


@pytest.mark.breadth
def test_tombstones_expire(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "tombstone_retention": "0 seconds"})
    send(topic, "a", None, 5, "D")
    pipeline.run()
    send(topic, "b", None, 5, "D")
    pipeline.run()
    assert lake.spark is not None
    noted = lake.spark.read.format("delta").load(str(lake.path("upsert") / FOLDER))
    assert [row["k"] for row in noted.collect()] == ["b"]
    send(topic, "a", 4, 4)
    send(topic, "b", 4, 4)
    pipeline.run()
    assert lake.rows("upsert") == [("a", 4)]


@pytest.mark.breadth
def test_a_restore_takes_back_what_later_tombstones_count_for(lake: Lake, topic: Topic) -> None:
    send(topic, "a", 1, 1)
    send(topic, "b", 1, 1)
    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    pipeline.run()
    version = lake.version("upsert")
    send(topic, "a", None, 9, "D")
    pipeline.run()
    lake.sql(f"RESTORE {{t}} TO VERSION AS OF {version}", "upsert")
    # Up to the delete, which is then read again.
    seen = []
    lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ).run(observers=[lambda event: seen.append(event.step)])
    assert lake.rows("upsert") == [("b", 1)]
    lake.sql(f"RESTORE {{t}} TO VERSION AS OF {version}", "upsert")
    table = DeltaTable(pipeline_spark(lake), path=str(lake.path("upsert")))
    tombstones = Tombstones(table, ["k"])
    for offset, count in ((2, 0), (3, 1)):  # the first run's was forgotten
        passed = tombstones.passed_sql(Offsets({TopicPartition(topic.name, 0): offset}))
        assert passed is not None
        assert pipeline_spark(lake).sql(f"SELECT * FROM {passed}").count() == count


@pytest.mark.breadth
@pytest.mark.parametrize("left_by", ["a rewind", pytest.param("a crash", marks=pytest.mark.breadth)])
def test_a_delete_that_was_none_is_forgotten(
    left_by: str, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "apply_as_deletes": "op = 'X'"})
    mended = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "b", None, 3, "X")
    send(topic, "a", 1, 1)
    wrong.run()
    version = lake.version("upsert")
    send(topic, "a", 10, 10, "X")
    with monkeypatch.context() as patched:
        if left_by == "a crash":
            patched.setattr(Tombstones, "add", crash_after(Tombstones.add))
            with pytest.raises(KeyboardInterrupt):
                wrong.run()
        else:
            wrong.run()
            mended.rewind(to_version=version, confirm=lambda _: True)
    mended.run()
    assert lake.rows("upsert") == [("a", 10)]
    send(topic, "a", 5, 5)
    send(topic, "b", 2, 2)  # its delete was committed
    mended.run()
    assert lake.rows("upsert") == [("a", 10)]


@pytest.mark.breadth
def test_a_rewind_that_is_undone_brings_its_deletes_back(lake: Lake, topic: Topic) -> None:
    def gone(event: Event) -> None:
        if event.step is Step.PLANNED:
            raise SystemExit

    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "a", 1, 1)
    pipeline.run()
    send(topic, "a", None, 5, "D")
    pipeline.run()
    version = lake.version("upsert")
    pipeline.rewind(to_epoch=1, confirm=True)
    with pytest.raises(SystemExit):
        pipeline.run(observers=[gone])
    assert lake.sql("SELECT count(*) FROM {t}", f"upsert/{FOLDER}") == [(0,)], "forgotten, and not read again yet"
    assert lake.rows("upsert") == [("a", 1)]
    pipeline.rewind(to_version=version, confirm=True)
    send(topic, "a", 3, 3)
    pipeline.run()
    assert lake.rows("upsert") == []
    assert lake.sql("SELECT count(*) FROM {t}", f"upsert/{FOLDER}") == [(1,)]


def two_files(lake: Lake, topic: Topic) -> tuple[Pipeline, Pipeline]:
    """Two files of one pipeline: other records are deletes in the second one. The first has run once."""
    right = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    wrong = lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "apply_as_deletes": "op = 'X'"})
    send(topic, "b", 1, 1)
    right.run()
    return right, wrong


@pytest.mark.breadth
def test_deletes_of_a_file_whose_epochs_were_taken_back_count_only_with_them(lake: Lake, topic: Topic) -> None:
    """Both files have read the same records, and the table's position has passed them, whichever it goes back to."""
    right, wrong = two_files(lake, topic)
    send(topic, "a", 10, 10, "X")
    right.run()
    without = lake.version("upsert")
    wrong.rewind(to_epoch=1, confirm=True)
    wrong.run()
    assert lake.rows("upsert") == [("b", 1)]
    with_it = lake.version("upsert")
    for _ in range(2):
        right.rewind(to_version=without, confirm=True)
        assert lake.sql("SELECT count(*) FROM {t}", f"upsert/{FOLDER}") == [(0,)]
        wrong.rewind(to_version=with_it, confirm=True)
        assert lake.sql("SELECT count(*) FROM {t}", f"upsert/{FOLDER}") == [(1,)]
    right.rewind(to_version=without, confirm=True)
    send(topic, "a", 5, 5)
    right.run()
    assert lake.rows("upsert") == [("a", 10), ("b", 1)]


@pytest.mark.breadth
def test_a_run_that_was_replaced_leaves_no_delete_of_its_own_file(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "apply_as_deletes": "op IN ('X', 'D')"})
    mended = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "b", None, 3, "D")
    send(topic, "a", 1, 1)
    wrong.run()
    send(topic, "a", 10, 10, "X")
    send(topic, "c", None, 10, "D")
    noting = Merges.note

    def replaced_before_it_notes(merges: Merges, *given: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Merges, "note", noting)
            mended.run()
        noting(merges, *given)

    monkeypatch.setattr(Merges, "note", replaced_before_it_notes)
    with pytest.raises(Fenced):
        wrong.run()
    monkeypatch.undo()
    for key in "abc":
        send(topic, key, 2, 2)
    mended.run()
    assert lake.rows("upsert") == [("a", 10)], "the deletes of b and c are those of commits"


@pytest.mark.breadth
def test_a_clone_takes_over_the_deletes_that_its_source_remembers(
    lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the clone of a clone. If its source is gone, the run says that it can't."""
    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    send(topic, "a", 1, 1)
    send(topic, "b", 1, 1)
    send(topic, "a", None, 5, "D")
    pipeline.run()
    for name, of in (("first", "upsert"), ("second", "first")):
        lake.sql(f"CREATE TABLE delta.`{lake.path(name)}` SHALLOW CLONE {{t}}", of)
    send(topic, "a", 4, 4)
    clone = lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "path": str(lake.path("second"))})
    with caplog.at_level(logging.WARNING, logger="lakelock.delta"):
        clone.run()
    assert (lake.sql("SELECT k, n FROM {t}", "second"), caplog.messages) == ([("b", 1)], [])
    lake.sql("CREATE TABLE {t} SHALLOW CLONE delta.`" + str(lake.path("upsert")) + "`", "third")
    shutil.rmtree(lake.path("upsert") / "_delta_log")
    with caplog.at_level(logging.WARNING, logger="lakelock.delta"):
        lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "path": str(lake.path("third"))}).run()
    assert "can't be taken over" in caplog.text


@pytest.mark.breadth
def test_a_clone_of_an_earlier_version_takes_over_the_deletes_that_counted_then(lake: Lake, topic: Topic) -> None:
    right, wrong = two_files(lake, topic)
    send(topic, "a", 10, 10, "X")
    send(topic, "c", None, 10, "D")
    right.run()
    version = lake.version("upsert")
    wrong.rewind(to_epoch=1, confirm=True)
    wrong.run()
    lake.sql(f"CREATE TABLE delta.`{lake.path('clone')}` SHALLOW CLONE {{t}} VERSION AS OF {version}", "upsert")
    for key in ("a", "c"):
        send(topic, key, 5, 5)
    lake.pipeline("upsert", **SEQUENCED, sink={**BY_SEQ, "path": str(lake.path("clone"))}).run()
    assert lake.sql("SELECT k, n FROM {t} ORDER BY k", "clone") == [("a", 10), ("b", 1)]


def pipeline_spark(lake: Lake) -> SparkSession:
    assert lake.spark is not None
    return lake.spark


def test_a_crash_between_the_tombstones_and_the_commit_changes_nothing(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(topic, "a", 1, 1)
    send(topic, "b", 1, 1)
    pipeline = lake.pipeline("upsert", **SEQUENCED, sink=BY_SEQ)
    pipeline.run()
    send(topic, "a", None, 5, "D")
    with monkeypatch.context() as patched:
        patched.setattr(Tombstones, "add", crash_after(Tombstones.add))
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    assert lake.rows("upsert") == [("a", 1), ("b", 1)]
    status = pipeline.status()
    assert sum(status.lag.values()) == 1
    send(topic, "a", 3, 3, partition=1)
    pipeline.run()
    assert lake.rows("upsert") == [("b", 1)]


def crash_after(add: Callable[..., None]) -> Callable[..., None]:
    def added_and_gone(*args: Any) -> None:
        add(*args)
        raise KeyboardInterrupt

    return added_and_gone


@pytest.mark.breadth
def test_an_idempotent_delivery_ignores_what_was_deleted_when_it_comes_again(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send_rows([("a", 1), ("b", 1)], partition=0)
    pipeline = lake.pipeline("upsert", name=topic.name, delivery="idempotent")
    pipeline.run()
    topic.send_rows([("a", 2), ("b", 2)], partition=0)
    topic.send(("a", None), partition=0)
    with monkeypatch.context() as patched:
        patched.setattr(GroupMember, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    assert lake.rows("upsert") == [("b", 2)]
    again = lake.pipeline("upsert", name=topic.name, delivery="idempotent", commit_every={"records": 1})
    rows = []
    again.run(observers=[lambda event: rows.append(lake.rows("upsert")) if event.step is Step.COMMITTED else None])
    assert rows
    assert {tuple(each) for each in rows} == {(("b", 2),)}


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.breadth
@pytest.mark.parametrize("op", ["d", pytest.param("t", marks=pytest.mark.breadth)])
@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.breadth)])
def test_a_delete_counts_that_another_member_brings_between_a_look_at_the_deletes_and_the_merge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, op: str
) -> None:
    truncates = {"apply_as_truncates": "op = 't'"} if op == "t" else {}
    table = Table(own_session(spark), tmp_path, "idempotent", sequence_by="seq", **truncates)
    if not first:
        table.write([Record("a", "d", None, None, seq=1, offset=0)])
    plain = table.derivation.plain
    assert isinstance(plain, PlainUpsert)
    merge = plain._run

    def overtaken(*planned: Any) -> int:
        monkeypatch.undo()
        table.write([Record("b", op, None, None, seq=10, partition=1, offset=0)])
        return merge(*planned)

    monkeypatch.setattr(plain, "_run", overtaken)
    table.write([Record("b", "u", 1, 1, seq=5, offset=1), Record("c", "u", 1, 1, seq=12, offset=2)])
    assert table.rows() == {"c": (1, 1)}


def test_the_two_orders_are_never_mixed(lake: Lake, topic: Topic) -> None:
    options: dict[str, Any] = {"schema": "k STRING, n INT"}
    topic.send_rows([("a", 1)], partition=0)
    lake.pipeline("upsert", **options).run()
    topic.send_rows([("a", 0), ("a", 3)], partition=1)
    ordered = lake.pipeline("upsert", **options, sink={"sequence_by": "n"})
    version = lake.version("upsert")
    for refused in (ordered.run, ordered.check):
        with pytest.raises(SchemaMismatch, match="ordered by Kafka's offset") as caught:
            refused()
    assert lake.version("upsert") == version
    for step in caught.value.hint.split("ALTER TABLE")[1].split(". A row")[0].split("; "):
        lake.sql(step if step.startswith("UPDATE") else f"ALTER TABLE{step}", "upsert")
    ordered.run()
    assert lake.rows("upsert") == [("a", 3)]
    with pytest.raises(SchemaMismatch, match="ordered by their column _sequence"):
        lake.pipeline("upsert", **options).run()


@pytest.mark.breadth
def test_a_table_that_remembers_deletes_can_get_a_sequence(lake: Lake, topic: Topic) -> None:
    """The statements of the error are about its rows alone, and the deletes are beside it."""
    dead = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    options: dict[str, Any] = {"schema": "k STRING, n INT", **dead}
    topic.send_rows([("a", 1), ("b", 1)], partition=0)
    topic.send(("b", None), partition=0)
    lake.pipeline("upsert", **options).run()
    ordered = lake.pipeline("upsert", **options, sink={"sequence_by": "coalesce(n, 9)"})
    with pytest.raises(SchemaMismatch, match="ordered by Kafka's offset") as caught:
        ordered.run()
    for step in caught.value.hint.split("ALTER TABLE")[1].split(". A row")[0].split("; "):
        lake.sql(step if step.startswith("UPDATE") else f"ALTER TABLE{step}", "upsert")
    topic.send_rows([("a", 0), ("a", 3), ("c", 1)], partition=1)
    topic.send(("c", None), partition=0)
    ordered.run()
    assert lake.rows("upsert") == [("a", 3)]


@pytest.mark.breadth
@pytest.mark.spark4("on_new_column: add, of JSON, goes by VARIANT")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"deletes": "soft"}, {}, "was written with deletes: soft.* says deletes: hard"),
        pytest.param(
            {}, {"deletes": "soft"}, "was written with deletes: hard.* says deletes: soft", marks=pytest.mark.breadth
        ),
        ({"sequence_by": "s", "ignore_null_updates": "n"}, {"sequence_by": "s"}, "value of n, .* nulls in no column"),
        pytest.param(
            {"sequence_by": "s"},
            {"sequence_by": "s", "ignore_null_updates": "n"},
            "value of no column, .* nulls in n",
            marks=pytest.mark.breadth,
        ),
    ],
    ids=["soft_to_hard", "hard_to_soft", "nulls_off", "nulls_on"],
)
def test_a_table_of_other_options_is_refused(
    before: dict[str, Any], after: dict[str, Any], said: str, lake: Lake, topic: Topic
) -> None:
    options: dict[str, Any] = {"schema": "k STRING, n INT, s INT", "on_new_column": "add"}
    topic.send(("a", {"k": "a", "n": 1, "s": 1}))
    lake.pipeline("upsert", **options, sink=before).run()
    other = lake.pipeline("upsert", **options, sink=after)
    for refused in (other.run, other.check, *([other.verify] if "deletes" in before else [])):
        with pytest.raises(SchemaMismatch, match=said):
            refused()
    lake.pipeline("upsert", **options, sink=before).run()


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"sequence_by": "nothing"}, r"sinks\[0\].sequence_by: Spark doesn't take 'nothing'"),
        ({"sequence_by": "max(n)"}, r"sinks\[0\].sequence_by: Spark doesn't take"),
        ({"sequence_by": "map(k, n)"}, r"sinks\[0\].sequence_by: .* is MAP<.* no order"),
        ({"sequence_by": "array(struct(n, n))"}, r"sinks\[0\].sequence_by: .* has several fields called n"),
        ({"apply_as_deletes": "n"}, r"sinks\[0\].apply_as_deletes: 'n' is INT, not BOOLEAN"),
        ({"apply_as_deletes": "n ="}, r"sinks\[0\].apply_as_deletes: Spark doesn't take"),
        ({"sequence_by": "n", "apply_as_truncates": "k"}, r"sinks\[0\].apply_as_truncates: 'k' is STRING"),
        ({"ignore_null_updates": "n", "column_list": ["k"]}, r"ignore_null_updates: 'n' isn't a column of the table"),
    ],
)
def test_a_wrong_expression_is_refused_before_anything_is_touched(
    sink: dict[str, Any], said: str, lake: Lake, topic: Topic
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        lake.pipeline("upsert", sink=sink).run()
    assert not lake.path("upsert").exists()


@pytest.mark.parametrize("option", [{"ignore_null_updates": True}, {"sequence_by": "n", "apply_as_truncates": "n = 1"}])
def test_a_row_that_stays_cannot_tell_its_whole_past(option: dict[str, Any], lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="needs deletes: hard"):
        lake.pipeline("upsert", sink={"deletes": "soft", **option})


@pytest.mark.breadth
def test_the_table_has_the_columns_that_are_listed(lake: Lake, topic: Topic) -> None:
    schema = "k STRING, n INT, secret STRING"
    topic.send(("a", {"k": "a", "n": 1, "secret": "s"}))
    lake.pipeline("upsert", schema=schema, sink={"column_list": ["k", "n"], "deletes": "soft"}).run()
    columns = ["k", "n", "_topic", "_partition", "_offset", "_timestamp", "_deleted", "_deleted_by"]
    assert lake.frame("upsert").columns == columns
    lake.pipeline(
        "upsert", name="b", schema=schema, sink={"except_column_list": "secret", "path": str(lake.path("b"))}
    ).run()
    assert lake.frame("b").columns == columns[:6]


@pytest.mark.breadth
def test_several_rows_of_one_record_make_one_row_whatever_their_order(lake: Lake, topic: Topic) -> None:
    for number, order in enumerate(("7, 9, 8", "9, 8, 7")):
        topic.send(("a", {"k": "a", "n": 1}), partition=0)
        lake.pipeline("upsert", transform=f"SELECT k, explode(array({order})) AS n FROM records").run()
        assert lake.rows("upsert") == [("a", 9)], number


@pytest.mark.parametrize("key", ["a", pytest.param("nobody", marks=pytest.mark.breadth)])
@pytest.mark.breadth
def test_an_update_that_moved_its_key_is_refused_where_its_delete_is_known(key: str, lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline("upsert", sink={"deletes": "soft"})
    topic.send_rows([("a", 1), ("b", 1)], partition=0)
    pipeline.run()
    topic.send(("a", None), ("nobody", None), partition=0)
    pipeline.run()
    deleted = lake.sql("SELECT k, n, _deleted, _deleted_by.offset FROM {t} ORDER BY k", "upsert")
    assert deleted == [("a", 1, True, 2), ("b", 1, False, None), ("nobody", None, True, 3)]
    topic.send_rows([(key, 2)], partition=1)
    with pytest.raises(KeyMoved, match=f'{{"k":"{key}"}} of .* came from {topic.name}-0 so far'):
        pipeline.run()


@pytest.mark.breadth
@pytest.mark.parametrize("order", [{}, {"sequence_by": "struct(_offset, 1 AS n)"}])
def test_a_key_that_moved_is_found_by_its_tombstone(order: dict[str, str], lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    pipeline = lake.pipeline("upsert", sink=order, **letters)
    topic.send(("gone", None), partition=1)
    pipeline.run()
    topic.send_rows([("b", 1), ("gone", 1)], partition=0)
    with pytest.raises(KeyMoved, match=f'{{"k":"gone"}} of .* came from {topic.name}-1 so far'):
        pipeline.run()


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", pytest.param("aggregate", marks=pytest.mark.breadth)])
def test_the_first_epoch_of_a_new_table_is_inserted_and_reads_the_table_as_a_merge_does(
    kind: str, lake: Lake, topic: Topic
) -> None:
    changes = {"sink": {"group_by": "k", "aggregates": {"n": "sum(n)"}}} if kind == "aggregate" else {}
    topic.send_rows([("a", 1), ("b", 2), ("a", 3)])
    lake.pipeline(kind, **changes).run()
    info = lake.commits(kind)[-1]["commitInfo"]
    assert info["operation"] == "WRITE"
    # Delta compares it with what others have committed meanwhile.
    assert info["isBlindAppend"] is False
    topic.send_rows([("a", 4)])
    lake.pipeline(kind, **changes).run()
    assert lake.commits(kind)[-1]["commitInfo"]["operation"] == "MERGE"
    assert lake.rows(kind) == [("a", 8 if kind == "aggregate" else 4), ("b", 2)]


@pytest.mark.breadth
def test_a_table_that_gets_rows_just_before_the_first_epoch_is_merged_into(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send_rows([("a", 1)])
    lake.pipeline("upsert").run()
    topic.send_rows([("a", 2), ("b", 3)])
    asked: list[str] = []
    command = Merge.command

    def late(merge: Merge, table: DeltaTable, source: str) -> str:
        """As if the table had been new when it was looked at."""
        asked.append(table.label)
        return merge.insertion(table.sql, source) if len(asked) == 1 else command(merge, table, source)

    monkeypatch.setattr(Merge, "command", late)
    lake.pipeline("upsert").run()
    assert len(asked) == 2
    assert lake.rows("upsert") == [("a", 2), ("b", 3)]
