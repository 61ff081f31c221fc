"""`lakelock dead-letters --retry`: what is right by now gets in, once, whatever crashes; and letters in a topic."""

import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from another_engine import query
from conftest import Lake, Topic
from kafka import KafkaConsumer, KafkaProducer
from typer.testing import CliRunner

from connector.cli.app import app
from connector.operations.dead_letters import Retried
from connector.protocol.steps import Event, Observer, Step
from sinks.delta.tombstones import FOLDER, Tombstones
from sinks.errors import Fenced, TopicMissing

N, S = '{"k": "%s", "n": %d}', '{"k": "%s", "n": "%s"}'


def wide(lake: Lake, **changes: Any) -> dict[str, Any]:
    """The corrected file: numbers may be text now."""
    return {
        **setting_aside(lake),
        "value": {"format": "json", "schema": "k STRING, n INT", "mode": "permissive"},
        **changes,
    }


def dying_at(step: Step) -> Observer:
    def die(event: Event) -> None:
        if event.step is step:
            raise SystemExit

    return die


def setting_aside(lake: Lake, **changes: Any) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}, **changes}


def letters(lake: Lake, *columns: str) -> list[tuple[Any, ...]]:
    named = ", ".join(["_offset", *columns])
    return query(lake.folder / "letters", f"SELECT {named} FROM t ORDER BY _offset, _noted_at")


def send(topic: Topic, *values: str | None, key: bytes = b"k") -> None:
    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap)
    for value in values:
        producer.send(topic.name, value and value.encode(), key, headers=[("h", b"1")], partition=0)
    producer.close()


@pytest.mark.breadth
def test_a_clone_leaves_the_letters_of_its_source_alone(lake: Lake, topic: Topic) -> None:
    strict, clone = setting_aside(lake), {"path": str(lake.path("clone"))}
    send(topic, N % ("a", 0), S % ("b", 1))
    lake.pipeline(**strict).run()
    lake.sql(f"CREATE TABLE delta.`{lake.path('clone')}` SHALLOW CLONE {{t}}")
    send(topic, N % ("c", 2))
    lake.pipeline(**strict, sink=clone).run()
    version = lake.version("clone")
    send(topic, S % ("d", 3))
    lake.pipeline(**strict).run()
    lake.pipeline(**strict, sink=clone).run()  # a letter of each
    send(topic, S % ("e", 4))
    lake.pipeline(**strict).run()
    lake.pipeline(**strict, sink=clone).rewind(to_version=version, confirm=True)
    assert letters(lake, "_retried_epoch IS NULL") == [(1, True), (3, True), (3, False), (4, True)]
    assert lake.pipeline(**wide(lake), sink=clone).retry_dead_letters() == Retried(of_others=1)
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 3
    assert lake.rows() == [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 4)]


@pytest.mark.breadth
def test_a_record_that_two_tables_set_aside_goes_through_into_each_of_them(lake: Lake, topic: Topic) -> None:
    strict, clone = setting_aside(lake), {"path": str(lake.path("clone"))}
    send(topic, N % ("a", 0))
    lake.pipeline(**strict).run()
    lake.sql(f"CREATE TABLE delta.`{lake.path('clone')}` SHALLOW CLONE {{t}}")
    send(topic, S % ("b", 1))
    for sink in ({}, {"sink": clone}):
        lake.pipeline(**strict, **sink).run()
    for sink in ({}, {"sink": clone}):
        assert lake.pipeline(**wide(lake), **sink).retry_dead_letters().through == 1
        (audit,) = lake.pipeline(**wide(lake), **sink).verify().tables
        totals = audit.totals  # the other's letter says nothing of this table
        assert [totals[kind] for kind in ("records", "letters", "letters_unexpected")] == [2, 0, 0]
        assert not lake.pipeline(**wide(lake), **sink).dead_letters()
    assert lake.rows() == query(lake.path("clone"), "SELECT k, n FROM t ORDER BY 1") == [("a", 0), ("b", 1)]
    assert letters(lake, "_retried_epoch") == [(1, 3), (1, 3)]


@pytest.mark.parametrize(
    "crashes",
    [[Step.COMMITTED], pytest.param([Step.READ, Step.COMMITTED], marks=pytest.mark.breadth)],
    ids=["once", "twice"],
)
def test_what_is_right_now_gets_in_once_whatever_crashes(crashes: list[Step], lake: Lake, topic: Topic) -> None:
    send(topic, N % ("a", 0), S % ("b", 1), "{", S % ("c", -3), N % ("d", 4))
    lake.pipeline(**setting_aside(lake)).run()
    # A letter of an epoch that is never committed: its record is still to be read, and isn't tried.
    send(topic, S % ("e", 5))
    with pytest.raises(SystemExit):
        lake.pipeline(**setting_aside(lake)).run(observers=[dying_at(Step.READ)])
    mended = wide(lake, require="n >= 0")
    for step in crashes:
        with pytest.raises(SystemExit):
            lake.pipeline(**mended).retry_dead_letters(observers=[dying_at(step)])
        assert lake.rows() == [("a", 0), *([("b", 1)] if step is Step.COMMITTED else []), ("d", 4)]
    # A run comes in between, and reads what is still to be read, which is right by now: it closes that letter.
    lake.pipeline(**mended).run()
    assert lake.pipeline(**mended).retry_dead_letters() == Retried(through=1, still_bad=2, epoch=4)
    assert lake.rows() == [("a", 0), ("b", 1), ("d", 4), ("e", 5)]
    assert letters(lake, "reason", "epoch", "_retried_epoch") == [
        (1, "value", 1, 4), (2, "value", 1, None), (3, "rule", 1, None), (5, "value", 2, 3),
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["dead-letters", str(lake.file(**wide(lake))), "--retry"])
    assert result.exit_code == 0, result.output
    assert "1 dead letter went through in epoch 5, 1 is still bad" in " ".join(result.output.split())
    assert lake.rows() == [("a", 0), ("b", 1), ("c", -3), ("d", 4), ("e", 5)]
    run, retried = lake.metadata()[2], lake.metadata()[-1]
    for unmoved in ("offsets", "topics", "read_to", "since"):
        assert run[unmoved] == retried[unmoved]


@pytest.mark.breadth
def test_the_table_taken_back_takes_its_letters_along(lake: Lake, topic: Topic) -> None:
    send(topic, S % ("b", 1))
    lake.pipeline(**setting_aside(lake)).run()
    before = lake.version()
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    send(topic, "{", S % ("c", 2))
    lake.pipeline(**setting_aside(lake)).run()
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {before}")
    # What went through is gone, and is sent again; what will be read again has no letter, unless it is bad once more.
    assert lake.pipeline(**wide(lake)).retry_dead_letters() == Retried(through=1, epoch=4)
    assert letters(lake, "_retried_epoch") == [(0, 4), (1, 4), (2, 4)]
    lake.pipeline(**wide(lake)).run()
    assert lake.rows() == [("b", 1), ("c", 2)]
    assert letters(lake, "epoch", "_retried_epoch") == [(0, 1, 4), (1, 5, None), (2, 3, 4)]


@pytest.mark.breadth
@pytest.mark.parametrize("looks", ["a run without letters", "accept"])
def test_the_table_taken_back_takes_its_letters_along_whoever_sees_it_first(
    looks: str, lake: Lake, topic: Topic
) -> None:
    """Its own epoch hides the RESTORE from the next one."""
    send(topic, S % ("b", 1))
    lake.pipeline(**setting_aside(lake)).run()
    before = lake.version()
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {before}")
    if looks == "accept":
        lake.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t}")
        lake.pipeline(**wide(lake)).accept()
        assert letters(lake, "_retried_epoch") == [(0, None)]
    else:
        send(topic, N % ("c", 2))
        lake.pipeline().run()
        assert letters(lake, "_retried_epoch") == [(0, 2)]
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    assert lake.pipeline(**wide(lake)).retry_dead_letters() == Retried()
    assert lake.rows() == [("b", 1), *([("c", 2)] if looks != "accept" else [])]
    assert lake.pipeline(**wide(lake)).verify().ok


@pytest.mark.breadth
def test_the_table_taken_back_to_before_it_was_replaced_takes_its_letters_along(lake: Lake, topic: Topic) -> None:
    """`accept` had given them the new table's id, and a RESTORE brings back the old one."""
    send(topic, S % ("b", 1))
    lake.pipeline(**setting_aside(lake)).run()
    before = lake.version()
    lake.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t}")
    lake.pipeline(**setting_aside(lake)).accept()
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {before}")
    assert lake.pipeline(**wide(lake)).retry_dead_letters() == Retried(through=1, epoch=4)
    assert lake.rows() == [("b", 1)]
    assert lake.pipeline(**wide(lake)).verify().ok


@pytest.mark.breadth
def test_the_table_taken_back_under_a_run_takes_its_letters_along(lake: Lake, topic: Topic) -> None:
    """Also those of a partition that was added after the version that it went back to: they are read once more."""
    send(topic, S % ("b", 1))
    lake.pipeline(**setting_aside(lake)).run()
    before = lake.version()
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    topic.broker.add_partitions(topic.name, 3)
    topic.send((None, b"{"), partition=2)
    stop, rounds = threading.Event(), []

    def behind_its_back(event: Event) -> None:
        if event.step is Step.WAITING:
            rounds.append(event)
            if len(rounds) == 1:
                lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {before}")
                send(topic, N % ("d", 4))
            if len(rounds) == 3:
                stop.set()

    lake.pipeline(**setting_aside(lake, trigger={"interval": "1 second"})).run(stop=stop, observers=[behind_its_back])
    assert lake.rows() == [("d", 4)]
    # Both are open, and each once: one was reopened, the other closed and, read once more, bad again.
    stands = letters(lake, "_topic", "_partition", "_retried_epoch")
    assert [row[1:] for row in stands if row[-1] is None] == [(topic.name, 0, None), (topic.name, 2, None)]
    assert lake.pipeline(**wide(lake)).retry_dead_letters().through == 1
    assert lake.rows() == [("b", 1), ("d", 4)]


@pytest.mark.parametrize("kind", ["upsert", pytest.param("history", marks=pytest.mark.breadth)])
@pytest.mark.breadth
def test_a_letter_goes_in_where_it_belongs(kind: str, lake: Lake, topic: Topic) -> None:
    changes = {"sink": {"key": "k"}}
    send(topic, S % ("old", 1), S % ("gone", 2), S % ("new", 3), N % ("old", 4))
    send(topic, None, key=b"gone")
    send(topic, S % ("new", 6))
    lake.pipeline(kind, **setting_aside(lake, **changes)).run()
    assert lake.pipeline(kind, **wide(lake, **changes)).retry_dead_letters() == Retried(through=4, epoch=2)
    if kind == "upsert":
        assert lake.rows(kind) == [("new", 6), ("old", 4)]
        return
    versions = "SELECT k, n, __START_AT, __END_AT FROM {t} ORDER BY __START_AT"
    assert lake.sql(versions, kind) == [
        ("old", 1, 0, 3), ("gone", 2, 1, 4), ("new", 3, 2, 5), ("old", 4, 3, None), ("new", 6, 5, None),
    ]  # fmt: skip


@pytest.mark.breadth
@pytest.mark.parametrize("merge", ["on_write", "on_read"])
def test_a_letter_does_not_bring_back_a_row_whose_delete_was_not_kept(merge: str, lake: Lake, topic: Topic) -> None:
    """A run without dead letters keeps no deletes, so nobody can tell whether one came after the letter."""
    merged = {"sink": {"merge": merge}}
    send(topic, N % ("k", 0), S % ("k", 1))
    lake.pipeline("upsert", **setting_aside(lake, **merged)).run()
    send(topic, None)
    without = lake.pipeline("upsert", **merged)
    without.run()
    retrying = lake.pipeline("upsert", **wide(lake, **merged))
    if merge == "on_read":
        without.fold()
    assert lake.rows("upsert") == []
    assert retrying.retry_dead_letters() == Retried(too_old=1)
    # From now on deletes are kept again.
    send(topic, S % ("l", 3), key=b"l")
    lake.pipeline("upsert", **setting_aside(lake, **merged)).run()
    send(topic, None, key=b"l")
    retrying.run()
    assert retrying.retry_dead_letters() == Retried(through=1, too_old=1, epoch=5)
    if merge == "on_read":
        retrying.fold()
    assert lake.rows("upsert") == []


@pytest.mark.breadth
def test_a_letter_does_not_bring_back_a_row_whose_delete_has_expired(lake: Lake, topic: Topic) -> None:
    """The option may be longer by then."""
    send(topic, N % ("k", 0), S % ("k", 1))
    lake.pipeline("upsert", **setting_aside(lake)).run()
    send(topic, None)
    lake.pipeline("upsert", **setting_aside(lake, sink={"tombstone_retention": "0 seconds"})).run()
    send(topic, N % ("l", 2), None, key=b"l")
    lake.pipeline("upsert", **setting_aside(lake, sink={"tombstone_retention": "0 seconds"})).run()
    assert lake.pipeline("upsert", **wide(lake)).retry_dead_letters() == Retried(too_old=1)
    assert lake.rows("upsert") == []


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_a_letter_does_not_bring_back_a_row_whose_delete_0_2_has_let_expire(
    kind: str, lake: Lake, topic: Topic
) -> None:
    """It said nothing of that, and the option may be longer by then. A letter that comes later is tried."""
    keyed = {"sink": {"key": "k"}}
    send(topic, N % ("k", 0), S % ("k", 1))
    lake.pipeline(kind, **setting_aside(lake, **keyed)).run()
    send(topic, None)
    lake.pipeline(kind, **setting_aside(lake, **keyed)).run()
    tombstones = f"{kind}/{FOLDER}"
    lake.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('lakelock.expired_before')", tombstones)
    lake.sql("DELETE FROM {t} WHERE _noted_at < current_timestamp()", tombstones)
    row = "SELECT * FROM {t} WHERE k = 'k'"
    before = lake.sql(row, kind)
    send(topic, S % ("m", 2), key=b"m")
    lake.pipeline(kind, **setting_aside(lake, **keyed)).run()
    assert lake.pipeline(kind, **wide(lake, **keyed)).retry_dead_letters() == Retried(through=1, too_old=1, epoch=4)
    assert lake.sql(row, kind) == before


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
@pytest.mark.parametrize("taken_back", [True, False], ids=["taken back", "killed before the commit"])
def test_a_delete_of_a_retry_that_does_not_stand_is_forgotten(
    kind: str, taken_back: bool, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first file the letter is a delete, by the second one an update."""
    changes = {"sink": {"key": "k"}}
    send(topic, N % ("k", 3), S % ("k", 7))
    lake.pipeline(kind, **setting_aside(lake, **changes)).run()
    wrong = lake.pipeline(kind, **wide(lake, sink={"key": "k", "apply_as_deletes": "n = 7"}))
    if taken_back:
        assert wrong.retry_dead_letters() == Retried(through=1, epoch=2)
        assert wrong.rewind(to_epoch=1, confirm=True).done
    else:
        with monkeypatch.context() as patched:
            patched.setattr(Tombstones, "add", gone_after(Tombstones.add))
            with pytest.raises(SystemExit):
                wrong.retry_dead_letters()
    assert letters(lake, "_retried_epoch") == [(1, None)]
    assert lake.pipeline(kind, **wide(lake, **changes)).retry_dead_letters().through == 1
    assert query(lake.path(kind), "SELECT max(n) FROM t") == [(7,)]


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["upsert", "history"])
def test_a_rewind_of_a_retry_that_is_undone_brings_its_delete_back(kind: str, lake: Lake, topic: Topic) -> None:
    send(topic, N % ("k", 3), S % ("k", 7))
    lake.pipeline(kind, **setting_aside(lake, sink={"key": "k"})).run()
    deletes = lake.pipeline(kind, **wide(lake, sink={"key": "k", "apply_as_deletes": "n = 7"}))
    assert deletes.retry_dead_letters() == Retried(through=1, epoch=2)
    version = lake.version(kind)
    assert deletes.rewind(to_epoch=1, confirm=True).done
    assert lake.sql("SELECT count(*) FROM {t}", f"{kind}/{FOLDER}") == [(0,)]
    assert deletes.rewind(to_version=version, confirm=True).done
    assert lake.sql("SELECT k, _offset FROM {t}", f"{kind}/{FOLDER}") == [("k", 1)]
    assert letters(lake, "_retried_epoch") == [(1, None)]


def gone_after(add: Callable[..., None]) -> Callable[..., None]:
    def added_and_gone(*args: Any) -> None:
        add(*args)
        raise SystemExit

    return added_and_gone


@pytest.mark.breadth
def test_of_a_run_and_a_retry_at_once_one_is_fenced(lake: Lake, topic: Topic) -> None:
    def overtake(event: Event) -> None:
        if event.step is Step.WRITING:
            send(topic, N % ("a", 1))
            lake.pipeline(**wide(lake)).run()

    send(topic, S % ("b", 0))
    lake.pipeline(**setting_aside(lake)).run()
    with pytest.raises(Fenced):
        lake.pipeline(**wide(lake)).retry_dead_letters(observers=[overtake])
    assert lake.rows() == [("a", 1)]
    assert letters(lake, "_retried_epoch") == [(0, None)]


@pytest.mark.breadth
def test_letters_in_a_topic_keep_what_they_were(lake: Lake, topic: Topic) -> None:
    place = f"{topic.name}-dead"
    options = setting_aside(lake, dead_letters={"topic": place}, require="n > 0")
    with pytest.raises(TopicMissing, match=place):
        lake.pipeline(**options).run()
    topic.broker.create_topic(place, 1)
    send(topic, N % ("a", 1), "{", N % ("b", -1), None)
    lake.pipeline(**options).run()
    assert lake.rows() == [("a", 1)]
    consumer = KafkaConsumer(
        place, bootstrap_servers=topic.broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = sorted(islice(consumer, 3), key=lambda each: int(dict(each.headers)["lakelock.offset"]))
    consumer.close()
    assert [(each.key, each.value) for each in found] == [
        (b"k", b"{"), (b"k", b'{"k": "b", "n": -1}'), (b"k", None),
    ]  # fmt: skip
    assert [dict(each.headers)["lakelock.reason"] for each in found] == [b"value", b"rule", b"tombstone"]
    assert found[1].headers == [
        ("h", b"1"), ("lakelock.pipeline", b"append"), ("lakelock.reason", b"rule"),
        ("lakelock.detail", b"breaks the rule n > 0"), ("lakelock.topic", topic.name.encode()),
        ("lakelock.partition", b"0"), ("lakelock.offset", b"2"), ("lakelock.epoch", b"1"),
    ]  # fmt: skip
