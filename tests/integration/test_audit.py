"""The auditor is tested by damage: every fault done to a table by hand is found, counted exactly, and located."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from audits import counts, places, verify
from conftest import Lake, Topic
from typer.testing import CliRunner

from connector.audit.verdict import COUNTS
from connector.cli.app import app
from sinks.errors import ConfigurationError, NotADeltaTable, SchemaMismatch, TopicMissing, TopicRecreated

CONF = "spark.databricks.delta.commitInfo.userMetadata"


def some(first: int, count: int, keys: int = 7) -> list[tuple[str, int]]:
    return [(f"k{number % keys}", number) for number in range(first, first + count)]


def commit(lake: Lake, kind: str = "append", **fields: Any) -> None:
    """A commit whose metadata is that of the pipeline's newest one with these fields changed."""
    assert lake.spark is not None
    newest: Mapping[str, Any] = lake.metadata(kind)[-1]
    lake.spark.conf.set(CONF, json.dumps({**newest, "epoch": newest["epoch"] + 1, "base": None, **fields}))
    try:
        lake.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('crafted' = '{newest['epoch']}')", kind)
    finally:
        lake.spark.conf.unset(CONF)


@pytest.mark.breadth
def test_every_damage_to_an_appended_table_is_counted_with_its_coordinates(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 20), partition=0)
    topic.send_rows(some(20, 10), partition=1)
    lake.pipeline(epoch={"max_records": 20}).run()
    exact = verify(lake)
    assert counts(exact) == {"expected": 30, "found": 30}
    assert str(exact) == "exact: 30 expected, 30 found"
    damages = [
        "DELETE FROM {t} WHERE _partition = 0 AND _offset IN (3, 4)",
        "INSERT INTO {t} SELECT t.* FROM {t} t, VALUES (1), (2) WHERE _partition = 0 AND _offset = 7",
        "UPDATE {t} SET n = CASE _offset WHEN 9 THEN -1 ELSE n END, k = CASE _offset WHEN 10 THEN NULL ELSE k END, "
        "_timestamp = CASE _offset WHEN 11 THEN _timestamp + INTERVAL 1 MILLISECOND ELSE _timestamp END "
        "WHERE _partition = 0",
        "INSERT INTO {t} SELECT 'x', 1, i._topic, NULL, NULL, NULL FROM VALUES ('t'), (NULL) AS i(_topic) UNION ALL "
        "SELECT k, n, _topic, _partition, _offset + 1000, _timestamp FROM {t} WHERE _partition = 1 AND _offset = 5",
    ]
    for damage in damages:
        lake.sql(damage)
    found = verify(lake)
    assert counts(found) == {
        "expected": 30, "found": 25, "lost": 2, "duplicated": 2, "altered": 3, "unexpected": 3,
    }  # fmt: skip
    assert places(found) == {
        "lost": (0, 3), "duplicated": (0, 7), "altered": (0, 9), "unexpected": (1, 1005),
    }  # fmt: skip
    assert [(part.topic, part.partition) for part in found.partitions] == [
        (topic.name, 0), (topic.name, 1), (None, None),
    ]  # fmt: skip
    assert [part.counts["unexpected"] for part in found.partitions] == [0, 1, 2]
    assert str(found).startswith("NOT EXACT: lost 2, duplicated 2, altered 3, unexpected 3; 30 expected")
    first = verify(lake, version=1)
    assert (first.ok, first.totals["expected"]) == (True, 20)


@pytest.mark.breadth
def test_a_table_that_was_restored_twice_claims_what_it_held_then(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 20), partition=0)
    topic.send_rows(some(20, 10), partition=1)
    lake.pipeline(epoch={"max_records": 20}).run()
    intact = lake.version()
    lake.sql("DELETE FROM {t} WHERE _offset = 3")
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {intact}")
    assert lake.spark is not None
    history = lake.spark.sql(f"DESCRIBE HISTORY delta.`{lake.path()}`").where("version = 1")
    ((time,),) = history.selectExpr("CAST(timestamp AS STRING)").collect()
    lake.sql(f"RESTORE TABLE {{t}} TO TIMESTAMP AS OF '{time}'")
    restored = verify(lake)
    assert (str(restored), restored.version) == ("exact: 20 expected, 20 found", lake.version())


def test_every_damage_to_an_upserted_table_is_counted_with_its_key(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 21), partition=0)  # k0 to k6: offsets 14 to 20 are the newest
    topic.send_rows([("other", 1), ("other", 2)], partition=1)
    lake.pipeline("upsert").run()
    old = "CAST('2001-01-01' AS TIMESTAMP)"
    damages = [
        "DELETE FROM {t} WHERE k = 'k1'",
        "UPDATE {t} SET n = 2, _offset = 2 WHERE k = 'k2'",
        "UPDATE {t} SET n = -3 WHERE k = 'k3'",
        f"INSERT INTO {{t}} SELECT i.*, {old} FROM VALUES ('k4', 4, '{topic.name}', 0, 4L), "
        f"('nobody', 4, '{topic.name}', 0, 11L), (NULL, 4, '{topic.name}', 0, 12L) AS i",
    ]
    for damage in damages:
        lake.sql(damage, "upsert")
    found = verify(lake, "upsert")
    assert counts(found) == {
        "expected": 8, "found": 5, "lost": 1, "stale": 1, "altered": 1, "duplicated": 1, "unexpected": 2,
    }  # fmt: skip
    assert {kind: (place.offset, place.key) for kind, place in found.first.items()} == {
        "lost": (15, {"k": "k1"}), "stale": (2, {"k": "k2"}), "altered": (17, {"k": "k3"}),
        "duplicated": (4, {"k": "k4"}), "unexpected": (11, {"k": "nobody"}),
    }  # fmt: skip


@pytest.mark.breadth
def test_a_row_whose_key_was_deleted_by_a_tombstone_is_resurrected(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 1), ("c", 1)], partition=0)
    lake.pipeline("upsert").run()
    topic.send(("a", None), ("c", None), ("c", {"k": "c", "n": 2}), partition=0)
    commit(lake, "upsert", offsets={topic.name: {"0": 6, "1": 0}})
    lake.sql("UPDATE {t} SET n = 2, _offset = 5 WHERE k = 'c'", "upsert")
    found = verify(lake, "upsert")
    assert counts(found) == {"expected": 2, "found": 1, "altered": 1, "resurrected": 1}  # c: the timestamp
    assert found.first["resurrected"].key == {"k": "a"}


@pytest.mark.breadth
def test_what_retention_removed_is_named_and_no_fault(lake: Lake, topic: Topic) -> None:
    from kafka import KafkaAdminClient
    from kafka.structs import TopicPartition

    topic.send_rows(some(0, 20, keys=12), partition=0)
    for kind in ("append", "upsert"):
        lake.pipeline(kind).run()
    lake.sql("DELETE FROM {t} WHERE _offset IN (3, 16)")
    lake.sql("UPDATE {t} SET n = 3, _offset = 3 WHERE k = 'k3'", "upsert")  # its newest is at 15
    lake.sql("UPDATE {t} SET n = 99 WHERE k = 'k9'", "upsert")  # its newest is at 9
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    admin.delete_records({TopicPartition(topic.name, 0): 14})
    admin.close()
    found = verify(lake)
    assert counts(found) == {"expected": 6, "found": 5, "lost": 1, "unchecked": 13}
    assert [tuple(gap) for gap in found.unchecked] == [(topic.name, 0, 0, 14)]
    assert places(found) == {"lost": (0, 16), "unchecked": (0, 0)}
    found = verify(lake, "upsert")
    assert counts(found) == {"expected": 6, "found": 5, "stale": 1, "unchecked": 6}
    assert places(found)["stale"] == (0, 3)
    # Lost ranges that the pipeline has reported are no part of the claim: a row from there is nobody's.
    commit(lake, lost=[[topic.name, 0, 2, 5]])
    found = verify(lake)
    assert counts(found) == {"expected": 6, "found": 5, "lost": 1, "unchecked": 11, "unexpected": 2}
    assert [tuple(gap)[2:] for gap in found.unchecked] == [(0, 2), (5, 14)]


@pytest.mark.breadth
def test_gaps_of_aborted_transactions_are_no_records_and_a_row_from_there_is_unexpected(
    lake: Lake, topic: Topic
) -> None:
    from kafka import KafkaProducer

    compacted = Topic(topic.broker, f"c-{topic.name}")
    topic.broker.create_topic(compacted.name, 1, {"cleanup.policy": "compact"})
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"x-{topic.name}")
    producer.init_transactions()
    for number, keep in enumerate([True, False, True]):
        producer.begin_transaction()
        for name in (topic.name, compacted.name):
            for row in range(5):
                producer.send(name, b'{"k": "k%d", "n": %d}' % (number, row), b"%d" % row, partition=0)
        producer.flush()
        producer.commit_transaction() if keep else producer.abort_transaction()
    producer.close()
    both = {"topics": [topic.name, compacted.name]}
    lake.pipeline(source=both).run()
    assert str(verify(lake, source=both)) == "exact: 20 expected, 20 found"
    lake.sql("INSERT INTO {t} SELECT k, n, _topic, _partition, 8, _timestamp FROM {t} WHERE _offset = 0")
    found = verify(lake, source=both)
    assert counts(found) == {"expected": 20, "found": 20, "unexpected": 1, "unchecked": 1}
    assert (found.first["unexpected"].topic, found.first["unchecked"].topic) == (topic.name, compacted.name)
    assert any("compacted" in note for note in found.notes)


@pytest.mark.breadth
def test_a_consumer_delivery_claims_what_its_group_has_committed(lake: Lake, topic: Topic) -> None:
    from kafka import KafkaAdminClient
    from kafka.structs import OffsetAndMetadata, TopicPartition

    topic.send_rows(some(0, 10), partition=0)
    for kind in ("append", "upsert"):
        lake.pipeline(kind).run()
        nothing_yet = {topic.name: {"0": 0, "1": 0}}
        commit(lake, kind, offsets=nothing_yet, since=nothing_yet, delivery="manual_commit")
    topic.send_rows(some(10, 2), partition=0)
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)

    def group_at(offset: int) -> None:
        for group in ("append", "upsert"):
            stored = {
                TopicPartition(topic.name, partition): OffsetAndMetadata(upto, "", -1)
                for partition, upto in enumerate((offset, 0))
            }
            admin.alter_group_offsets(group, stored)

    weaker = {"delivery": "manual_commit"}
    admin.delete_groups(["append"])
    forgotten = verify(lake, **weaker)
    assert (forgotten.verdict.value, counts(forgotten)) == ("unknown", {"expected": 10, "found": 10})
    assert "has no offset of" in forgotten.unknown[0]
    group_at(6)
    found = verify(lake, **weaker)
    assert (found.ok, counts(found)) == (True, {"expected": 6, "found": 6, "ahead": 4})
    # k0, k1, k2 were overwritten by rows that aren't committed yet, k6 is not claimed yet.
    found = verify(lake, "upsert", **weaker)
    assert (found.verdict.value, counts(found)) == ("unknown", {"expected": 3, "found": 3, "ahead": 4})
    group_at(12)
    assert counts(verify(lake, **weaker)) == {"expected": 12, "found": 10, "lost": 2}
    assert counts(verify(lake, "upsert", **weaker)) == {"expected": 7, "found": 5, "stale": 2}
    admin.close()
    lake.sql("DELETE FROM {t} WHERE _offset = 2")
    older = verify(lake, version=lake.version() - 1, **weaker)
    assert counts(older) == {"expected": 10, "found": 10}
    assert any("older version" in note for note in older.notes)


ODD = (
    "`key` STRING, `_x y` MAP<STRING, INT>, `t``k` STRUCT<`a b`: ARRAY<MAP<STRING, STRUCT<d: DOUBLE, m: MAP<STRING, "
    "BOOLEAN>>>>>, d DOUBLE, e_offset DECIMAL(20, 3), claim TIMESTAMP, kind ARRAY<STRING>"
)


@pytest.mark.breadth
def test_maps_nested_values_nan_and_odd_names_are_compared(lake: Lake, topic: Topic) -> None:
    value = {
        "key": "v", "_x y": {"a": 1, "b": 2}, "d": "NaN", "e_offset": 1.5, "claim": "2026-01-31T01:02:03.456Z",
        "t`k": {"a b": [{"1": {"d": "NaN", "m": {"p": True, "q": None}}}, None]}, "kind": ["x", None],
    }  # fmt: skip
    topic.send(*((str(number), {**value, "key": f"v{number}"}) for number in range(6)), ("e", {"key": "empty"}))
    read = {"format": "json", "schema": ODD, "mode": "permissive"}  # strict JSON has no NaN
    for kind in ("append", "upsert"):
        options = {"value": read, "sink": {"key": ["key"]} if kind == "upsert" else {}}
        lake.pipeline(kind, **options).run()
        lake.sql("UPDATE {t} SET `_x y` = map('b', 2, 'a', 1) WHERE key = 'v0'", kind)  # the order is no difference
        assert counts(verify(lake, kind, **options)) == {"expected": 7, "found": 7}
        if kind == "append":  # by a file that the records don't fit, nobody can say
            strict = verify(lake, kind, schema=ODD)
            assert counts(strict) == {"expected": 7, "found": 1, "unreadable": 6}
            assert str(strict).startswith("UNKNOWN: 6 records can't be read as the pipeline file says")
        lake.sql(
            "UPDATE {t} SET d = CASE key WHEN 'v3' THEN NULL ELSE d END, "
            "`_x y` = CASE key WHEN 'empty' THEN map() WHEN 'v1' THEN map('a', 1) ELSE `_x y` END, "
            "`t``k` = CASE key WHEN 'v2' THEN named_struct('a b', array("
            "map('1', named_struct('d', double('NaN'), 'm', map('p', true, 'q', true))), NULL)) ELSE `t``k` END",
            kind,
        )
        assert counts(verify(lake, kind, **options)) == {"expected": 7, "found": 3, "altered": 4}
    with pytest.raises(SchemaMismatch, match=r"the table has no column z\."):
        verify(lake, schema=ODD.replace("d DOUBLE, e", "d FLOAT, z INT, e"))


@pytest.mark.breadth
def test_without_its_history_a_table_claims_what_its_rows_show(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    lake.pipeline(source={"start": {topic.name: {"0": 4, "1": 0}}}).run()
    copy = {"sink": {"path": str(lake.folder / "copy")}}
    assert lake.spark is not None
    lake.sql(f"CREATE TABLE delta.`{lake.folder / 'copy'}` USING delta AS SELECT * FROM {{t}} WHERE _offset <> 6")
    latest = verify(lake, **copy, source={"start": "latest"})
    assert counts(latest) == {"expected": 6, "found": 5, "lost": 1}
    assert latest.claim.to_dict()["since"] == {topic.name: {"0": 4, "1": 0}}
    assert any("no commit of this pipeline" in note for note in latest.notes)
    assert any("first coordinates of its rows" in note for note in latest.notes)
    assert verify(lake, **copy).totals["lost"] == 5


@pytest.mark.breadth
def test_another_pipelines_rows_are_not_part_of_the_audit(lake: Lake, topic: Topic) -> None:
    other = Topic(topic.broker, f"o-{topic.name}")
    topic.broker.create_topic(other.name, 1)
    for one, count in ((topic, 4), (other, 3)):
        one.send_rows(some(0, count))
    lake.pipeline().run()
    lake.pipeline(name="second", source={"topics": [other.name]}).run()
    commit(lake, pipeline="append", epoch="no number")
    found = verify(lake)
    assert counts(found) == {"expected": 4, "found": 4}
    assert found.notes == [f"Rows of topic {other.name} are of pipeline second, and not part of this audit."]
    assert counts(verify(lake, name="second", source={"topics": [other.name]})) == {"expected": 3, "found": 3}


@pytest.mark.breadth
def test_where_nothing_can_be_compared_it_says_so(lake: Lake, topic: Topic) -> None:
    with pytest.raises(NotADeltaTable, match="holds no Delta table"):
        verify(lake)
    topic.send_rows(some(0, 3))
    lake.pipeline().run()
    with pytest.raises(ConfigurationError, match="has no version 7: its history goes from 0 to 1"):
        verify(lake, version=7)
    with pytest.raises(TopicMissing, match="nowhere"):
        verify(lake, source={"topics": ["nowhere"]})
    commit(lake, topics={topic.name: "another-id"})
    with pytest.raises(TopicRecreated, match="nothing of the table can be checked"):
        verify(lake)


@pytest.mark.breadth
def test_the_command_says_exact_or_not_and_ends_so(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    lake.pipeline("upsert").run()
    file = lake.file("upsert")

    def run(*options: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["verify", str(file), *options])
        return done.exit_code, done.stdout, done.stderr

    code, said, progress = run()
    assert (code, said.splitlines()[-1]) == (0, "exact: 7 expected, 7 found")
    assert "reading 10 offsets of 1 partition from Kafka" in progress
    lake.sql("DELETE FROM {t} WHERE k = 'k4'", "upsert")
    code, said, _ = run()
    assert (code, said.splitlines()[-1]) == (1, "NOT EXACT: lost 1; 7 expected, 6 found")
    assert f'first lost (expected, and not in the table): {topic.name}-0, offset 4, key {{"k": "k4"}}' in said
    code, said, _ = run("--json")
    fields = json.loads(said)
    assert (code, fields["ok"], fields["totals"]["lost"], fields["delivery"]) == (1, False, 1, "transactional")
    assert set(fields["totals"]) == set(COUNTS)
    assert fields["partitions"][0]["first"]["lost"] == {"at": [topic.name, 0, 4], "key": {"k": "k4"}}
    assert fields["claim"] == {
        "since": {topic.name: {"0": 0, "1": 0}}, "offsets": {topic.name: {"0": 10, "1": 0}}, "lost": [],
    }  # fmt: skip
    code, said, _ = run("--json", "--version", "1")
    assert (code, json.loads(said)["ok"]) == (0, True)
    assert run("--version", "99")[0] == 2
