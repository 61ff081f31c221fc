"""Bitemporal histories: for every recorded time the history that was known, from whatever order the events come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import bitemporal
import pytest
from another_engine import query
from audits import counts, verify
from bitemporal import Change, as_sent, logs_of, record, rows_in, rows_of, shuffled
from conftest import Lake, Topic, own_session
from hypothesis import given
from hypothesis import strategies as st
from suites import draws

from connector import Pipeline
from connector.config import parse
from connector.derive import derive
from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.delta.table import DeltaTable
from sinks.errors import BadRecord, SchemaMismatch
from sinks.offsets import OffsetRange, Offsets, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
RECORDS = (
    "k STRING, a INT, b INT, seq INT, sys INT, op STRING, _tombstone BOOLEAN, _topic STRING, _partition INT, "
    "_offset BIGINT, _timestamp TIMESTAMP"
)


class Table:
    """A history without Kafka: epochs are written from lists."""

    def __init__(self, spark: SparkSession, path: str, **sink: Any) -> None:
        self.spark, self.path = spark, path
        options = {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "none:1"}},
            "value": {"format": "json", "schema": "k STRING, a INT, b INT, seq INT, sys INT, op STRING"},
            "sinks": [
                {
                    "type": "delta_history",
                    "stored_as_scd_type": "bitemporal",
                    "path": path,
                    "key": "k",
                    "sequence_by": "seq",
                    "system_sequence_by": "sys",
                    "apply_as_deletes": "op = 'd'",
                    "column_list": ["k", "a", "b"],
                    **sink,
                }
            ],
        }
        table = DeltaTable(spark, path=path)
        commits = PipelineCommits(table, pipeline="p", topics=["t"])
        self.derivation = derive(parse(options), table, commits, self.frame([]))
        table.create(self.derivation.columns)

    def frame(self, changes: Iterable[Change]) -> DataFrame:
        rows = [
            (each.key, each.a, each.b, each.seq, each.recorded, each.op, each.op == "t", "t", each.partition,
             each.offset, AT)
            for each in changes
        ]  # fmt: skip
        return self.spark.createDataFrame(rows, RECORDS)

    def write(
        self, changes: Sequence[Change], ends: Mapping[int, int] | None = None, *, plain: bool = False
    ) -> Committed:
        """The next epoch, which moves the position to ``ends``; without, to what is behind the changes."""
        sink = self.derivation.sink
        expected = sink.position()
        if ends is None:
            ends = {}
            for each in changes:
                ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
        reached = Offsets({TopicPartition("t", partition): end for partition, end in ends.items()})
        epoch = Epoch(
            pipeline="p",
            number=expected.epoch + 1 if expected else 1,
            owner="run",
            ranges=tuple(OffsetRange("t", partition, 0, end) for partition, end in ends.items()),
            offsets=expected.offsets.join(reached) if expected else reached,
            topics={"t": "id"},
            read_to=AT,
            expected=expected,
        )
        rows = self.derivation.reduce(self.frame(changes), epoch)
        return (self.derivation.plain if plain else sink).write(epoch, rows)

    def rows(self) -> list[tuple[Any, ...]]:
        columns = ("k", "a", "b", "__START_AT", "__END_AT", "__SYSTEM_START_AT", "__SYSTEM_END_AT")
        found = self.spark.read.format("delta").load(self.path).where("NOT __SYSTEM_START_AT <=> __SYSTEM_END_AT")
        rows = found.select(*columns, "_partition", "_offset").collect()
        return sorted((tuple(row) for row in rows), key=repr)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return own_session(spark)


@pytest.mark.law
def test_a_bitemporal_history_depends_on_its_events_alone(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However the log is cut into epochs, whatever is read again: the table is the model's."""

    @draws()
    @given(seed=st.integers(0, 2**32))
    def check(seed: int) -> None:
        random, logs = Random(seed), logs_of(seed)
        table = Table(session, str(tmp_path_factory.mktemp("bitemporal")))
        read = [0, 0]
        for last in (False, False, True):
            ends = [len(log) if last else random.randint(at, len(log)) for at, log in zip(read, logs, strict=True)]
            starts = [max(0, at - random.randrange(20)) for at in read]
            batch = [change for log, start, end in zip(logs, starts, ends, strict=True) for change in log[start:end]]
            table.write(shuffled(random, batch), {partition: 2 * end for partition, end in enumerate(ends)})
            seen = [change for log, end in zip(logs, ends, strict=True) for change in log[:end]]
            assert table.rows() == rows_of(seen)
            read = ends

    check()


@pytest.mark.breadth
def test_an_epoch_writes_only_the_rows_that_differ(session: SparkSession, tmp_path: Path) -> None:
    table = Table(session, str(tmp_path / "t"))
    first = [Change("x", at, at, 0, at, a=at) for at in range(5)] + [Change("y", 0, 0, 0, 5, "d")]
    assert table.write(first).rows == 10, "each later version ends one, and y has a row for no time"
    assert table.write(first, {0: 6}).rows == 0, "what comes again changes nothing"
    assert table.write([Change("x", 5, 5, 0, 6, a=5)]).rows == 3, "one is no longer on record, one ends, one starts"
    late = [Change("y", 0, 1, 0, 7)]
    assert table.write(late).rows == 2, "the row for no time goes"
    assert table.rows() == rows_of([*first, Change("x", 5, 5, 0, 6, a=5), *late])


@pytest.mark.breadth
def test_weaker_deliveries_write_recorded_times_too(session: SparkSession, tmp_path: Path) -> None:
    table = Table(session, str(tmp_path / "t"))
    (log,) = logs_of(3, 1, number=30, keys=4)
    assert table.write(log, plain=True).rows > 0
    for again in (log, log[1:9], log[:1]):
        assert table.write(again, plain=True).rows == 0
    assert table.rows() == rows_of(log)


@pytest.mark.breadth
def test_columns_may_be_called_anything_and_a_record_may_make_several_rows(lake: Lake, topic: Topic) -> None:
    names = ["s", "t", "key", "event", "at", "a b", "tick`ed", "events", "spans", "before", "i", "p"]
    quoted = [f"`{name.replace('`', '``')}`" for name in names]
    schema = ", ".join(f"{name} INT" for name in quoted)
    more = {
        "schema": schema,
        "transform": f"SELECT {', '.join(quoted[:-1])}, explode(array(p, p + 1)) AS p FROM records",
        "sink": {
            "key": ["s", "tick`ed"], "stored_as_scd_type": "bitemporal", "sequence_by": "`a b`",
            "system_sequence_by": "event", "apply_as_deletes": "at = 0",
        },
    }  # fmt: skip
    for at, event, p in ((1, 1, 1), (1, 3, 5), (2, 2, 7), (3, 3, 9)):
        values = dict.fromkeys(names, 1) | {"a b": at, "event": event, "p": p, "at": int(at != 3)}
        topic.send(("x", values), partition=0)
    lake.pipeline("history", **more).run()
    columns = 'p, "__START_AT", "__END_AT", "__SYSTEM_START_AT", "__SYSTEM_END_AT"'
    assert sorted(query(lake.path("history"), f"SELECT {columns} FROM t"), key=repr) == [
        (2, 1, 2, 2, 3), (2, 1, None, 1, 2), (6, 1, 2, 3, None), (8, 2, 3, 3, None), (8, 2, None, 2, 3),
    ]  # fmt: skip
    assert verify(lake, "history", **more).ok


def send(topic: Topic, logs: Sequence[Sequence[Change]]) -> list[Change]:
    for partition, log in enumerate(logs):
        topic.send(*map(record, log), partition=partition)
    return as_sent(logs)


@pytest.mark.breadth
def test_a_restore_takes_the_events_back_with_the_rows(lake: Lake, topic: Topic) -> None:
    more = bitemporal.options(epoch={"max_records": 30})
    sent = send(topic, logs_of(11, number=90))
    pipeline = lake.pipeline("history", **more)
    pipeline.run()
    assert rows_in(lake.path("history")) == rows_of(sent)
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1", "history")
    pipeline.run()
    assert rows_in(lake.path("history")) == rows_of(sent)
    assert verify(lake, "history", **more).ok


@pytest.mark.breadth
def test_columns_in_another_order_are_the_same_columns(lake: Lake, topic: Topic) -> None:
    """Of a table whose fields are in another order, too: events are kept in the order of the run that made it."""
    logs = logs_of(9, number=90)
    with_shop = {"column_list": ["k", "a", "b", "shop"]}
    first = bitemporal.options(sink=with_shop) | {"schema": f"{bitemporal.SCHEMA}, shop STRUCT<x: INT, y: INT>"}
    turned = bitemporal.options(sink=with_shop) | {
        "schema": "shop STRUCT<y: INT, x: INT>, b INT, a INT, op STRING, sys INT, seq INT, k STRING"
    }
    sent: list[list[Change]] = [[] for _ in logs]
    for number, options in enumerate((first, turned, first)):
        for partition, log in enumerate(logs):
            part = log[number * len(log) // 3 : (number + 1) * len(log) // 3]
            sent[partition] += part
            records = [(key, {**value, "shop": {"x": 1, "y": 2}}) for key, value in map(record, part)]
            topic.send(*records, partition=partition)
        lake.pipeline("history", **options).run()
        assert rows_in(lake.path("history")) == rows_of(as_sent(sent))
    assert lake.sql("SELECT DISTINCT shop.x, shop.y FROM {t} WHERE __START_AT <> __END_AT", "history") == [(1, 2)]
    assert verify(lake, "history", **turned).ok
    fewer = bitemporal.options()
    with pytest.raises(SchemaMismatch, match="the pipeline has no shop, and _state keeps it of earlier records"):
        lake.pipeline("history", **fewer).check()


@pytest.mark.breadth
def test_a_dead_letter_takes_its_place_in_both_times(lake: Lake, topic: Topic) -> None:
    """Also one that deletes, and after a rewind that has undone its retry."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    log = [
        Change("x", 1, 1, 0, 0), Change("x", 5, 2, 0, 1, "d"), Change("x", 3, 4, 0, 2, a=1),
        Change("y", 5, 2, 0, 3, "d"),
    ]  # fmt: skip
    send(topic, [log])
    strict = {**bitemporal.options(require="op <> 'd'"), **letters}
    lake.pipeline("history", **strict).run()
    assert rows_in(lake.path("history")) == rows_of([log[0], log[2]])
    mended = {**bitemporal.options(), **letters}
    pipeline = lake.pipeline("history", **mended)
    assert pipeline.retry_dead_letters().through == 2
    assert rows_in(lake.path("history")) == rows_of(log)
    assert verify(lake, "history", **mended).ok
    assert pipeline.rewind(to_epoch=1, confirm=True).done
    assert rows_in(lake.path("history")) == rows_of([log[0], log[2]])
    assert pipeline.retry_dead_letters().through == 2
    assert rows_in(lake.path("history")) == rows_of(log)


@pytest.mark.breadth
def test_it_is_one_of_several_sinks_and_keeps_what_the_table_demands(lake: Lake, topic: Topic) -> None:
    options = lake.options("history", **bitemporal.options(epoch={"max_records": 40}))
    of_history = options["sinks"][0]
    append = {"type": "delta_append", "path": str(lake.path("append"))}
    options |= {"sinks": [append, of_history], "coordinator": {"path": str(lake.folder / "log")}}
    logs = logs_of(17, number=60)
    sent = send(topic, logs)
    Pipeline.from_options(options).run()
    assert rows_in(lake.path("history")) == rows_of(sent)
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (a IS NULL OR a < 9)", "history")
    topic.send(record(Change("new", 1, 1, 0, 0, a=9)), partition=0)
    before = lake.version("history"), lake.version("append")
    with pytest.raises(BadRecord, match="small"):
        Pipeline.from_options(options).run()
    assert (lake.version("history"), lake.version("append")) == before
    assert Pipeline.from_options(options).verify().ok


@pytest.mark.breadth
def test_a_record_without_a_recorded_time_is_a_bad_record(lake: Lake, topic: Topic) -> None:
    key, values = record(Change("x", 1, 1, 0, 0))
    topic.send((key, values), (key, {**values, "sys": None}), (key, None), partition=0)
    more = bitemporal.options()
    with pytest.raises(BadRecord, match=r"offset 1.* has no recorded time \(sinks\[\].system_sequence_by is null,"):
        lake.pipeline("history", **more).run()
    more |= {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    lake.pipeline("history", **more).run()
    assert query(lake.folder / "letters", "SELECT _offset, reason FROM t ORDER BY 1") == [
        (1, "no_sequence"), (2, "no_sequence"),
    ]  # fmt: skip
    assert verify(lake, "history", **more).ok


@pytest.mark.breadth
def test_other_options_than_the_tables_are_refused(lake: Lake, topic: Topic) -> None:
    send(topic, [[Change("x", 1, 1, 0, 0)]])
    lake.pipeline("history", **bitemporal.options()).run()
    version = lake.version("history")
    for sink in ({"system_sequence_by": "seq"}, {"system_sequence_by": None, "stored_as_scd_type": 2}):
        changed = bitemporal.options(sink=sink)
        changed["sink"] = {name: value for name, value in changed["sink"].items() if value is not None}
        with pytest.raises(SchemaMismatch):
            lake.pipeline("history", **changed).run()
    assert lake.version("history") == version


SCHEMA = "id INT, name STRING, at INT, told INT, op STRING"


def price(id: int, name: str, at: int, told: int, op: str = "update") -> tuple[str, dict[str, Any]]:
    return str(id), {"id": id, "name": name, "at": at, "told": told, "op": op}


def options(**changes: Any) -> dict[str, Any]:
    sink = {
        "key": "id",
        "stored_as_scd_type": "bitemporal",
        "sequence_by": "at",
        "system_sequence_by": "told",
        "apply_as_deletes": "op = 'delete'",
        "column_list": ["id", "name"],
        **changes.pop("sink", {}),
    }
    return {"schema": SCHEMA, "sink": {name: value for name, value in sink.items() if value is not None}, **changes}


def spans(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.sql(
        "SELECT id, name, __START_AT, __END_AT, __SYSTEM_START_AT, __SYSTEM_END_AT FROM {t} "
        "ORDER BY id, __SYSTEM_START_AT, __START_AT",
        "history",
    )


@pytest.mark.breadth
def test_a_late_correction_changes_the_history_from_its_recorded_time_on(lake: Lake, topic: Topic) -> None:
    topic.send(price(1, "Ann", 10, 100), price(1, "Bob", 20, 101), price(2, "", 5, 100, "delete"))
    lake.pipeline("history", **options()).run()
    # A correction of the first, an update between the two, and a delete that is valid before the second.
    topic.send(price(1, "Anne", 10, 102), price(1, "Eve", 15, 103), price(1, "", 18, 104, "delete"))
    lake.pipeline("history", **options(epoch={"max_records": 1})).run()
    expected = [
        (1, "Ann", 10, None, 100, 101),
        (1, "Ann", 10, 20, 101, 102),
        (1, "Bob", 20, None, 101, None),
        (1, "Anne", 10, 20, 102, 103),
        (1, "Anne", 10, 15, 103, None),
        (1, "Eve", 15, 20, 103, 104),
        (1, "Eve", 15, 18, 104, None),
        (2, None, 5, 5, 100, 100),  # valid and on record for no time
    ]
    assert spans(lake) == expected
    assert lake.frame("history").columns == [
        "id", "name", "__START_AT", "__END_AT", "__SYSTEM_START_AT", "__SYSTEM_END_AT", "_topic", "_partition",
        "_offset", "_timestamp", "_state",
    ]  # fmt: skip
    assert str(verify(lake, "history", **options())) == "exact: 8 expected, 8 found"
    version = lake.version("history")
    assert lake.pipeline("history", **options()).run().epochs == 0
    assert lake.version("history") == version


@pytest.mark.breadth
def test_every_damage_to_recorded_spans_is_found(lake: Lake, topic: Topic) -> None:
    topic.send(
        price(1, "Ann", 10, 100), price(1, "Bob", 20, 101), price(1, "Anne", 10, 102), price(2, "", 5, 100, "delete"),
        price(3, "", 7, 104, "delete"), price(3, "Eve", 3, 103),
        partition=0,
    )  # fmt: skip
    lake.pipeline("history", **options()).run()
    assert str(verify(lake, "history", **options())) == "exact: 7 expected, 7 found"
    lake.sql("UPDATE {t} SET __SYSTEM_END_AT = 103 WHERE name = 'Bob'", "history")
    found = verify(lake, "history", **options())
    assert counts(found) == {"expected": 7, "found": 6, "altered": 1}
    assert found.first["altered"].offset == 1
    for damage in (
        "UPDATE {t} SET __SYSTEM_END_AT = NULL WHERE name = 'Ann' AND __END_AT = 20",
        "UPDATE {t} SET name = 'Al' WHERE name = 'Anne'",
        "UPDATE {t} SET __SYSTEM_START_AT = 99 WHERE name = 'Ann' AND __END_AT IS NULL",
        "DELETE FROM {t} WHERE id = 2",
        "INSERT INTO {t} SELECT * FROM {t} WHERE id = 3 AND __END_AT IS NULL",
    ):
        lake.sql(damage, "history")
    assert counts(verify(lake, "history", **options())) == {
        "expected": 7, "found": 2, "altered": 3, "lost": 2, "unexpected": 1, "duplicated": 1,
    }  # fmt: skip
