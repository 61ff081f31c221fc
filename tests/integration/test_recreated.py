"""A topic that was deleted and recreated under its name: another topic, taken in beside what the old one left."""

from typing import Any

import pytest
from conftest import Lake, Topic

from connector import Pipeline, read
from connector.audit import audit
from connector.config import parse
from connector.operations.dead_letters import Retried
from connector.protocol.steps import Event, Observer, Step
from sinks.errors import ConfigurationError, TopicRecreated

ON = {"on_recreated_topic": "continue"}
COUNTS = {
    "group_by": ["k"],
    # All records have the same order, so their coordinates decide.
    "aggregates": {"n_sum": "sum(n)", "times": "count(*)", "oldest": "first(n, 1)", "newest": "last(n, 1)"},
}


def make_again(topic: Topic, partitions: int = 2) -> None:
    topic.broker.delete_topic(topic.name)
    topic.broker.create_topic(topic.name, partitions)


def old_name(lake: Lake, topic: Topic, kind: str) -> str:
    (name,) = {name for name in lake.metadata(kind)[-1]["offsets"] if name.endswith(f"/{topic.name}")}
    assert name.startswith("#")
    return name


@pytest.mark.breadth
def test_one_with_more_records_is_not_taken_for_the_old_one_either(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline("upsert").run()
    make_again(topic)
    topic.send_rows([("a", n) for n in range(10, 15)], partition=0)
    with pytest.raises(TopicRecreated, match="deleted and recreated"):
        lake.pipeline("upsert").run()
    assert lake.pipeline("upsert").status().recreated == {topic.name}
    pipeline = lake.pipeline("upsert", source=ON)
    assert pipeline.check().behind == 5
    assert [pipeline.run().epochs for _ in range(2)] == [2, 0]
    assert lake.rows("upsert") == [("a", 14), ("b", 2)]


@pytest.mark.breadth
def test_rows_that_another_pipeline_has_read_say_nothing_of_another_topic_of_the_name(lake: Lake, topic: Topic) -> None:
    """As of one in another cluster. By the rows' offsets two records would be left out."""
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline().run()
    make_again(topic)
    topic.send_rows([("c", n) for n in range(3)], partition=0)
    for source in ({}, ON):
        with pytest.raises(ConfigurationError, match="come from another topic of this name"):
            lake.pipeline(name="other", source=source).run()
    assert lake.rows() == [("a", 1), ("b", 2)]
    assert lake.pipeline(source=ON).run().rows == 3
    assert lake.pipeline(name="other").run().rows == 0, "it is the one that the rows come from now"


@pytest.mark.breadth
def test_one_that_has_left_the_pipeline_is_unchecked(lake: Lake, topic: Topic) -> None:
    other = Topic(topic.broker, f"o-{topic.name}")
    topic.broker.create_topic(other.name, 1)
    topic.send_rows([("a", 1)], partition=0)
    other.send_rows([("b", 2)], partition=0)
    lake.pipeline(source={"topics": [topic.name, other.name]}).run()
    make_again(other, 1)
    other.send_rows([("c", 3)], partition=0)
    topic.send_rows([("d", 4)], partition=0)
    assert lake.pipeline().run().epochs == 1
    found = audit(parse(lake.options()))
    assert str(found).startswith("exact: 2 expected, 2 found; 1 row unchecked")
    assert any(f"Topic {other.name} isn't in Kafka any more, was recreated" in note for note in found.notes)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(
    "kind", ["append", *(pytest.param(kind, marks=pytest.mark.breadth) for kind in ("upsert", "aggregate"))]
)
def test_its_records_are_taken_in_beside_the_old_ones(kind: str, lake: Lake, topic: Topic) -> None:
    """Fewer than the old one had, so all of their offsets were there before; keys turn up in another partition."""
    sink = COUNTS if kind == "aggregate" else {}
    before, after = 10, 3
    topic.send_rows([(f"k{n % 3}", n) for n in range(before)], partition=1)
    lake.pipeline(kind, sink=sink).run()
    make_again(topic, 3)
    topic.send_rows([("k0", 100 + n) for n in range(after)], partition=0)
    with pytest.raises(TopicRecreated, match="deleted and recreated"):
        lake.pipeline(kind, sink=sink).run()
    pipeline = lake.pipeline(kind, sink=sink, source=ON)
    assert pipeline.run().epochs == 2

    old, new = [(f"k{n % 3}", n) for n in range(before)], [("k0", 100 + n) for n in range(after)]
    sums = {key: [n for k, n in old + new if k == key] for key in ("k0", "k1", "k2")}
    expected = {
        "append": sorted(old + new),
        "upsert": sorted({**dict(old), "k0": 99 + after}.items()),
        "aggregate": [(key, sum(all_), len(all_), all_[0], all_[-1]) for key, all_ in sums.items()],
    }
    columns = "k, n_sum, times, oldest, newest" if kind == "aggregate" else "k, n"
    assert sorted(lake.sql(f"SELECT {columns} FROM {{t}}", kind)) == expected[kind]

    gone = old_name(lake, topic, kind)
    metadata = lake.metadata(kind)[-1]
    assert metadata["offsets"] == {gone: {"0": 0, "1": before}, topic.name: {"0": after, "1": 0, "2": 0}}
    assert metadata["topics"] == {gone: gone[1:37], topic.name: pipeline.status().held.ids[topic.name]}
    if kind == "append":
        assert dict(lake.sql("SELECT _topic, count(*) FROM {t} GROUP BY 1")) == {gone: before, topic.name: after}
    found = audit(parse(lake.options(kind, sink=sink)))
    # A group is made of the old records too.
    assert found.verdict.value == ("unknown" if kind == "aggregate" else "exact")
    assert any(f"Rows of {gone} came from a topic that was recreated" in note for note in found.notes)


@pytest.mark.breadth
@pytest.mark.parametrize("crash", ["before the commit", "after it"])
def test_a_crash_in_between_changes_nothing(
    crash: str, lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordered by a sequence: a delete by the old topic's record goes on counting, and the new one's are newer."""
    from sinks.delta.proof import Proof

    sink = {"key": "k", "sequence_by": "s", "apply_as_deletes": "n = -1", "ignore_null_updates": True}
    pipeline = {"schema": "k STRING, n INT, s INT", "sink": sink}

    def send(*rows: tuple[str, int, int]) -> None:
        topic.send(*((k, {"k": k, "n": n, "s": s}) for k, n, s in rows))

    send(("a", 1, 5), ("b", 2, 5), ("c", 3, 5), ("a", -1, 10), ("x", 0, 1), ("x", 0, 2), ("x", 0, 3))
    lake.pipeline("upsert", **pipeline).run()
    make_again(topic)
    send(("a", 7, 7), ("b", 8, 5), ("c", 9, 4))

    def kill(*_: object) -> None:
        raise Killed

    def killed_then(event: Event) -> None:
        if event.note:
            raise Killed

    with monkeypatch.context() as patched:
        if crash == "before the commit":
            patched.setattr(Proof, "wanted", kill)
        with pytest.raises(Killed):
            lake.pipeline("upsert", source=ON, **pipeline).run(observers=[killed_then])
    lake.pipeline("upsert", source=ON, **pipeline).run()
    assert lake.rows("upsert") == [("b", 8), ("c", 3), ("x", 0)]
    send(("a", 11, 11))
    lake.pipeline("upsert", **pipeline).run()
    assert lake.rows("upsert") == [("a", 11), ("b", 8), ("c", 3), ("x", 0)]


@pytest.mark.breadth
def test_where_a_crash_leaves_new_names_and_the_old_topic_is_back_deletes_and_letters_count(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers move to another cluster, and back before a run has taken in what they wrote there."""
    from connector.delivery import transactional
    from sinks.delta.proof import Proof
    from sinks.recreated import retired_names

    def kill(*_: object) -> None:
        raise Killed

    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}, "source": ON}
    sink = {"key": "k", "sequence_by": "s", "apply_as_deletes": "n = 9"}
    pipeline: dict[str, Any] = {"schema": "k STRING, n INT, s INT", "sink": sink, **letters}
    topic.send(*(("a", {"k": "a", "n": n, "s": n}) for n in (1, 9)), ("b", {"k": "b", "n": "1", "s": 1}))
    lake.pipeline("upsert", **pipeline).run()
    with monkeypatch.context() as patched:
        patched.setattr(transactional, "recreated", lambda position, _: retired_names(position.topics))
        patched.setattr(Proof, "wanted", kill)
        with pytest.raises(Killed):
            lake.pipeline("upsert", **pipeline).run()
    assert lake.sql("SELECT startswith(_topic, '#') FROM {t}", "letters") == [(True,)]
    topic.send(("a", {"k": "a", "n": 5, "s": 5}))
    lake.pipeline("upsert", **pipeline).run()
    assert lake.rows("upsert") == []
    permissive = {"value": {"format": "json", "schema": pipeline.pop("schema"), "mode": "permissive"}}
    assert lake.pipeline("upsert", **pipeline, **permissive).retry_dead_letters().through == 1
    assert lake.rows("upsert") == [("b", 1)]


@pytest.mark.breadth
def test_one_that_is_made_again_while_it_is_read_is_taken_in_too(lake: Lake, topic: Topic) -> None:
    """With soft deletes in the order of offsets: these have coordinates of their own."""
    sink = {"key": "k", "deletes": "soft"}
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    topic.send(("a", None), partition=0)
    topic.send_rows([("c", 4)], partition=0)

    def again(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.number == 1:
            make_again(topic, 1)
            topic.send_rows([("a", 5)])
            topic.send(("b", None))

    pipeline = lake.pipeline("upsert", sink=sink, source=ON, epoch={"max_records": 3})
    pipeline.run(observers=[again])
    rows = lake.sql("SELECT k, n, _deleted, _topic, _deleted_by.topic FROM {t} ORDER BY k", "upsert")
    gone = old_name(lake, topic, "upsert")
    assert rows == [("a", 5, False, topic.name, gone), ("b", 2, True, gone, topic.name)]
    assert pipeline.run().epochs == 0


@pytest.mark.breadth
def test_its_records_are_not_those_that_spark_kept_of_the_old_one(lake: Lake, topic: Topic) -> None:
    """Spark's own source keeps what it has polled beyond an epoch, for the next read from that offset on."""
    topic.send_rows([("old", n) for n in range(5)], partition=0)
    new = [("new", n) for n in range(5)]

    def again(event: Event) -> None:
        if event.step is Step.COMMITTED and event.epoch.number == 1:
            make_again(topic, 1)
            topic.send_rows(new)

    source = {**ON, "reader": "spark"}
    lake.pipeline(source=source, epoch={"max_records": 2}).run(observers=[again])
    assert lake.rows() == sorted([*new, ("old", 0), ("old", 1)])


def made_again_at_the_write(topic: Topic, rows: list[tuple[str, int]]) -> Observer:
    """Once it was planned what to read, and before Spark reads it: with as many records as the old one had, or more."""
    done: list[Event] = []

    def observe(event: Event) -> None:
        if event.step is Step.WRITING and not done:
            done.append(event)
            make_again(topic)
            topic.send_rows(rows, partition=0)

    return observe


@pytest.mark.breadth
def test_what_was_read_of_it_as_if_it_were_the_old_one_is_taken_back(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline().run()
    topic.send_rows([("c", 3)], partition=0)
    new = [(f"k{number}", number) for number in range(4)]
    with pytest.raises(TopicRecreated):
        lake.pipeline().run(observers=[made_again_at_the_write(topic, new)])
    assert lake.rows() == [("a", 1), ("b", 2)]
    topic.send_rows([("k4", 4)], partition=0)
    newer = [(f"n{number}", number) for number in range(6)]
    assert lake.pipeline(source=ON).run(observers=[made_again_at_the_write(topic, newer)]).epochs == 3
    assert lake.rows() == sorted([("a", 1), ("b", 2), *newer])


@pytest.mark.breadth
def test_what_was_read_of_it_is_taken_out_of_a_change_log(lake: Lake, topic: Topic) -> None:
    on_read: dict[str, Any] = {"sink": {"merge": "on_read"}}

    def current() -> list[tuple[str, int]]:
        assert lake.spark is not None
        rows = read(lake.spark, lake.file("upsert", **on_read)).select("k", "n").collect()
        return sorted(tuple(row) for row in rows)

    rows = [("a", 1), ("b", 2), ("c", 3)]
    for row in rows:  # the first epoch is merged into the table, the others are appended to its log
        topic.send_rows([row], partition=0)
        lake.pipeline("upsert", **on_read).run()
    assert (lake.rows("upsert"), current()) == (rows[:1], rows)
    topic.send_rows([("d", 4)], partition=0)
    with pytest.raises(TopicRecreated):
        lake.pipeline("upsert", **on_read).run(observers=[made_again_at_the_write(topic, [("x", n) for n in range(5)])])
    assert lake.rows("upsert") == current() == rows
    assert lake.pipeline("upsert", **on_read).status().recreated == {topic.name}
    lake.pipeline("upsert", source=ON).run()  # which takes a table that is merged on write
    assert lake.rows("upsert") == [*rows, ("x", 4)]


@pytest.mark.breadth
def test_what_was_read_of_it_by_the_epoch_that_starts_a_change_log_is_taken_back(lake: Lake, topic: Topic) -> None:
    on_read: dict[str, Any] = {"sink": {"merge": "on_read"}}
    topic.send_rows([("a", 1)], partition=0)
    with pytest.raises(TopicRecreated):
        lake.pipeline("upsert", **on_read).run(observers=[made_again_at_the_write(topic, [("x", 1)])])
    assert lake.rows("upsert") == []


@pytest.mark.breadth
def test_of_several_sinks_none_gets_what_was_read_of_it(lake: Lake, topic: Topic) -> None:
    tables = [{"type": "delta_append", "path": str(lake.path(name))} for name in ("append", "other")]
    options = {**lake.options(), "sinks": tables, "coordinator": {"path": str(lake.path("log"))}}
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    with pytest.raises(TopicRecreated):
        Pipeline.from_options(options).run(observers=[made_again_at_the_write(topic, [("x", 1), ("y", 2)])])
    assert (lake.rows(), lake.rows("other")) == ([], [])
    Pipeline.from_options(options).run()
    assert lake.rows() == lake.rows("other") == [("x", 1), ("y", 2)]


@pytest.mark.breadth
def test_it_leaves_the_letters_of_other_pipelines_alone(lake: Lake, topic: Topic) -> None:
    """Two pipelines share a table of dead letters, and one has gone on to the new topic before the other."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}, "source": ON}
    first, second = (lake.pipeline(name=name, **letters, sink={"path": str(lake.path(name))}) for name in "ab")
    for _ in range(2):
        topic.send(("x", "no JSON"), partition=0)
        first.run()
        if not lake.path("b").exists():
            second.run()
            make_again(topic)
    second.run()
    kept = lake.sql(f"SELECT pipeline, _topic = '{topic.name}' FROM {{t}} ORDER BY 1, 2", "letters")
    assert kept == [("a", False), ("a", True), ("b", False), ("b", True)]


@pytest.mark.breadth
@pytest.mark.breadth
def test_letters_of_the_old_topic_change_nothing_that_the_new_one_has_brought(lake: Lake, topic: Topic) -> None:
    """By offset, with keys in other partitions than before, and with a letter of each topic for one key."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}, "source": ON}
    mended = {**letters, "value": {"format": "json", "schema": "k STRING, n INT", "mode": "permissive"}}
    topic.send_rows([("gone", 0)], partition=0)
    topic.send(*((key, {"k": key, "n": "1"}) for key in ("both", "new", "old", "gone")), partition=0)
    lake.pipeline("upsert", **letters).run()
    make_again(topic)
    topic.send_rows([("new", 10)], partition=1)
    topic.send(("both", {"k": "both", "n": "20"}), ("gone", None), partition=1)
    lake.pipeline("upsert", **letters).run()
    assert lake.pipeline("upsert", **mended).retry_dead_letters() == Retried(through=5, epoch=4)
    assert lake.rows("upsert") == [("both", 20), ("new", 10), ("old", 1)]


@pytest.mark.breadth
def test_a_restore_to_before_it_was_taken_in_keeps_each_topics_letters_apart(lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}, "source": ON}
    mended = {**letters, "value": {"format": "json", "schema": "k STRING, n INT", "mode": "permissive"}}
    topic.send(("old", {"k": "old", "n": "1"}), partition=0)
    topic.send_rows([("a", 1), ("a", 2)], partition=0)
    lake.pipeline(**letters).run()
    version = lake.version()
    make_again(topic)
    topic.send(("new", {"k": "new", "n": "2"}), partition=0)
    lake.pipeline(**letters).run()
    lake.sql(f"RESTORE {{t}} TO VERSION AS OF {version}")
    lake.pipeline(**letters).run()
    is_open = "SELECT startswith(_topic, '#'), _offset FROM {t} WHERE _retried_epoch IS NULL ORDER BY 1"
    assert lake.sql(is_open, "letters") == [(False, 0), (True, 0)]
    assert lake.pipeline(**mended).retry_dead_letters().through == 2
    assert lake.rows() == [("a", 1), ("a", 2), ("new", 2), ("old", 1)]


@pytest.mark.breadth
def test_a_history_by_a_sequence_goes_on(lake: Lake, topic: Topic) -> None:
    sink = {"key": ["k"], "sequence_by": "s"}
    pipeline = {"schema": "k STRING, n INT, s INT", "sink": sink}
    for first in (10, 15):
        topic.send(*(("a", {"k": "a", "n": s, "s": s}) for s in (first, first + 10)))
        lake.pipeline("history", source=ON, **pipeline).run()
        if first == 10:
            make_again(topic)
    versions = lake.sql("SELECT n, __START_AT, __END_AT FROM {t} ORDER BY 2", "history")
    assert versions == [(10, 10, 15), (15, 15, 20), (20, 20, 25), (25, 25, None)]
    topics = dict(lake.sql(f"SELECT n, _topic = '{topic.name}' FROM {{t}}", "history"))
    assert topics == {10: False, 15: True, 20: False, 25: True}
