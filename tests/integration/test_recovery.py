"""Where a pipeline goes on: after RESTORE, in a clone, with a cleaned log, with somebody else at work."""

import json
import os
import shutil
import threading
import uuid
from pathlib import Path

import another_engine
import pytest
from audits import verify
from conftest import Lake, Topic, forget_history

from connector import Fenced, Pipeline
from connector.audit.verdict import Verdict
from connector.protocol.steps import Event, Step
from sinks.delta.metadata import FORMAT
from sinks.errors import CommitSkipped, PositionMismatch, SchemaMismatch, TopicRecreated, UnsupportedFormat

KINDS = ("append", "upsert")
IN_BREADTH = [pytest.param("append", marks=pytest.mark.breadth), "upsert"]


def some(first: int, count: int) -> list[tuple[str, int]]:
    return [(f"k{number}", number) for number in range(first, first + count)]


def three_epochs(lake: Lake, topic: Topic, kind: str = "append") -> None:
    """Epochs 1, 2, 3 with 10 records each, in versions 1, 2, 3."""
    for first in (0, 10, 20):
        topic.send_rows(some(first, 10))
        lake.pipeline(kind).run()


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        ("VERSION AS OF 1", "upsert"),
        pytest.param("VERSION AS OF 0", "append", marks=pytest.mark.breadth),
        pytest.param("TIMESTAMP 0", "append", marks=pytest.mark.breadth),
        pytest.param("TIMESTAMP 1", "append", marks=pytest.mark.breadth),
        pytest.param("CLONE 2", "upsert", marks=pytest.mark.breadth),
    ],
)
def test_after_a_restore_the_pipeline_rewinds_with_its_table(to: str, kind: str, lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    three_epochs(lake, topic, kind)
    how, version = to.split()[0], to.split()[-1]
    if how == "CLONE":  # of a backup that was made in time
        lake.sql(f"CREATE TABLE delta.`{lake.path('backup')}` SHALLOW CLONE {{t}} VERSION AS OF {version}", kind)
        lake.sql("DELETE FROM {t}", kind)  # Delta clones over an empty table; Databricks over any
        lake.sql(f"CREATE OR REPLACE TABLE {{t}} SHALLOW CLONE delta.`{lake.path('backup')}`", kind)
    elif how == "TIMESTAMP":
        history = lake.spark.sql(f"DESCRIBE HISTORY delta.`{lake.path(kind)}`").where(f"version = {version}")
        time = history.selectExpr("CAST(timestamp AS STRING) AS time").collect()[0]["time"]
        lake.sql(f"RESTORE TABLE {{t}} TO TIMESTAMP AS OF '{time}'", kind)
    else:
        lake.sql(f"RESTORE TABLE {{t}} TO {to}", kind)
    assert len(lake.rows(kind)) < 30
    position = lake.pipeline(kind).status().position
    assert position is not None
    assert position.lacks_epochs
    lake.pipeline(kind).run()
    assert lake.rows(kind) == sorted(some(0, 30))
    assert lake.metadata(kind)[-1]["epoch"] == 4
    assert lake.pipeline(kind).run().epochs == 0


@pytest.mark.breadth
def test_a_table_goes_back_to_before_the_first_epoch_more_than_once(lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic)
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 0")
    for last in (4, 6, 8):
        lake.pipeline().run()
        assert (lake.rows(), lake.metadata()[-1]["epoch"]) == (sorted(some(0, 30)), last)
        found = lake.pipeline().rewind(to_epoch=0, confirm=True)
        assert (found.done, found.target.epoch, found.again, lake.rows()) == (True, 0, 30, [])


@pytest.mark.breadth
def test_the_status_after_a_restore_says_so(lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic)
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 2")
    status = lake.pipeline().status()
    assert status.position is not None
    assert (status.position.source, status.position.epoch, sum(status.lag.values())) == ("restored", 3, 10)


@pytest.mark.parametrize("kind", ["upsert"])
def test_a_shallow_clone_goes_on_from_where_its_source_stood(kind: str, lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic, kind)
    clone = lake.folder / "clone"
    lake.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {{t}} VERSION AS OF 2", kind)
    topic.send_rows(some(30, 10))
    lake.pipeline(kind, sink={"path": str(clone)}).run()
    lake.pipeline(kind).run()
    for path in (clone, lake.path(kind)):
        assert lake.spark is not None
        rows = lake.spark.read.format("delta").load(str(path)).select("k", "n").collect()
        assert sorted(tuple(row) for row in rows) == sorted(some(0, 40))


@pytest.mark.breadth
@pytest.mark.parametrize("made", ["before the clone", "after it"])
def test_another_table_that_got_the_name_of_a_clones_source_says_nothing(made: str, lake: Lake, topic: Topic) -> None:
    """Made before, it had come less far; made after, further."""
    assert lake.spark is not None
    name, clone, other = f"default.t{uuid.uuid4().hex[:12]}", str(lake.folder / "clone"), str(lake.folder / "other")
    topic.send_rows(some(0, 10))
    if made == "before the clone":
        lake.pipeline(sink={"path": other}).run()
        topic.send_rows(some(10, 10))
    lake.pipeline().run()
    lake.sql(f"CREATE TABLE {name} USING delta LOCATION '{lake.path()}'")
    lake.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {name}")
    lake.sql(f"DROP TABLE {name}")
    topic.send_rows(some(20, 10))
    if made == "after it":
        lake.pipeline(sink={"path": other}).run()
    lake.sql(f"CREATE TABLE {name} USING delta LOCATION '{other}'")
    cloned = lake.pipeline(sink={"path": clone})
    position = cloned.status().position
    cloned.run()
    lake.sql(f"DROP TABLE {name}")
    lake.pipeline().run()
    rows = [tuple(row) for row in lake.spark.read.format("delta").load(clone).select("k", "n").collect()]
    assert sorted(rows) == lake.rows()
    assert position is not None
    assert position.source == "rows"


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append"])
def test_a_copy_without_its_log_goes_on_from_its_rows(kind: str, lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic, kind)
    copy = lake.folder / "copy"
    lake.sql(f"CREATE TABLE delta.`{copy}` USING delta AS SELECT * FROM {{t}}", kind)
    topic.send_rows(some(30, 10))
    lake.pipeline(kind, sink={"path": str(copy)}).run()
    assert lake.spark is not None
    rows = lake.spark.read.format("delta").load(str(copy)).select("k", "n").collect()
    assert sorted(tuple(row) for row in rows) == sorted(some(0, 40))


@pytest.mark.parametrize("kind", ["upsert"])
def test_with_a_cleaned_log_the_rows_and_the_checkpoint_say_where_it_stands(
    kind: str, lake: Lake, topic: Topic
) -> None:
    three_epochs(lake, topic, kind)
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')", kind)
    lake.sql("UPDATE {t} SET n = n WHERE k = 'k0'", kind)
    forget_history(lake.path(kind))
    topic.send_rows(some(30, 10))
    pipeline = lake.pipeline(kind)
    status = pipeline.status()
    assert status.position is not None
    assert (status.position.source, status.position.epoch) == ("rows", 3)
    pipeline.run()
    assert lake.rows(kind) == sorted(some(0, 40))
    assert lake.metadata(kind)[-1]["epoch"] == 4


@pytest.mark.breadth
@pytest.mark.parametrize("window", [{"size": "1 hour"}, {"gap": "10 minutes"}], ids=["windows", "sessions"])
def test_what_closed_stays_final_where_only_the_rows_tell(window: dict[str, str], lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None

    def send(*minutes: int) -> None:
        topic.send(*(("k", {"k": "k", "t": f"2026-01-01T{12 + at // 60}:{at % 60:02}:00Z"}) for at in minutes))

    table, copy = lake.path("windows"), lake.folder / "copy"
    sink = {"type": "delta_aggregate", "group_by": "k", "aggregates": {"n": "count(*)"}, "path": str(table),
            "window": {"time": "t", "late": "dead_letter", "allowed_lateness": "0 seconds", **window}}  # fmt: skip
    changes = {"schema": "k STRING, t TIMESTAMP", "dead_letters": {"path": str(lake.folder / "letters")}}
    options = {**lake.options(**changes), "sinks": [sink]}
    send(5, 10, 90)
    Pipeline.from_options(options).run()
    lake.spark.sql(f"CREATE TABLE delta.`{copy}` USING delta AS SELECT * FROM delta.`{table}`")
    send(7, 95)
    Pipeline.from_options({**options, "sinks": [{**sink, "path": str(copy)}]}).run()
    rows = another_engine.query(copy, "SELECT n, window_closed FROM t ORDER BY window_start")
    assert rows == [(2, True), (2, False)]
    letters = lake.spark.read.format("delta").load(str(lake.folder / "letters"))
    assert [row["reason"] for row in letters.collect()] == ["late"]


@pytest.mark.breadth
def test_a_topic_without_rows_stands_at_zero_where_only_rows_tell(lake: Lake, topic: Topic) -> None:
    """Not where `start` would begin today: its records came after the pipeline had begun."""
    other = Topic(topic.broker, f"{topic.name}.other")
    topic.broker.create_topic(other.name, 1)
    source = {"topics": [topic.name, other.name], "start": "latest"}
    lake.pipeline(source=source).run()
    topic.send_rows(some(0, 4), partition=0)
    lake.pipeline(source=source).run()
    assert lake.rows() == some(0, 4)
    copy = lake.folder / "copy"
    lake.sql(f"CREATE TABLE delta.`{copy}` USING delta AS SELECT * FROM {{t}}")
    other.send_rows(some(10, 3))
    changes = {"sink": {"path": str(copy)}, "source": source}
    assert (found := verify(lake, **changes)).verdict is Verdict.EXACT, str(found)
    lake.pipeline(**changes).run()
    assert another_engine.query(copy, "SELECT k, n FROM t ORDER BY n") == some(0, 4) + some(10, 3)
    assert (found := verify(lake, **changes)).verdict is Verdict.EXACT, str(found)


@pytest.mark.breadth
def test_verify_doesnt_know_of_a_table_that_another_pipeline_has_written(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 3))
    lake.pipeline().run()
    assert verify(lake).ok
    renamed = verify(lake, name="renamed")
    assert renamed.verdict is Verdict.UNKNOWN
    assert "has commits of pipeline" in str(renamed)


@pytest.mark.breadth
def test_an_idle_pipeline_writes_its_position_again_before_the_log_is_cleaned(lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic)
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 10 days')")
    assert lake.pipeline().run().epochs == 0
    log = lake.path() / "_delta_log"
    for file in log.glob("*.json"):
        aged = file.stat().st_mtime - 6 * 86400
        os.utime(file, (aged, aged))
    assert lake.pipeline().run().epochs == 1
    assert lake.metadata()[-1]["epoch"] == 4
    assert lake.metadata()[-1]["offsets"] == lake.metadata()[-2]["offsets"]
    assert lake.rows() == sorted(some(0, 30))
    assert lake.pipeline().run().epochs == 0


def test_a_topic_made_again_under_its_name_stops_the_run(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline().run()
    topic.broker.delete_topic(topic.name)
    topic.broker.create_topic(topic.name, 2)
    topic.send_rows(some(100, 50))
    with pytest.raises(TopicRecreated, match="deleted and recreated"):
        lake.pipeline().run()
    assert lake.rows() == sorted(some(0, 10))


def test_a_table_whose_epochs_can_expire_is_refused(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline().run()
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    for act in (lake.pipeline().run, lake.pipeline().check):
        with pytest.raises(SchemaMismatch, match="setTransactionRetentionDuration"):
            act()


def test_a_commit_of_a_newer_format_is_refused(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    topic.send_rows(some(0, 10))
    lake.pipeline().run()
    newer = json.dumps({"lakelock": FORMAT + 1, "pipeline": "append"})
    lake.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", newer)
    lake.sql("UPDATE {t} SET n = n")
    lake.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    with pytest.raises(UnsupportedFormat, match=f"format {FORMAT + 1}"):
        lake.pipeline().run()


class At:
    """An observer that does something once, at a step of an epoch."""

    def __init__(self, step: Step, epoch: int, act) -> None:
        self.step, self.epoch, self.act = step, epoch, act

    def __call__(self, event: Event) -> None:
        if event.step is self.step and event.epoch.number == self.epoch:
            self.act()


@pytest.mark.parametrize("kind", IN_BREADTH)
def test_of_two_runs_one_wins_and_the_other_is_told_who(kind: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 20))
    loser = lake.pipeline(kind, epoch={"max_records": 10})
    with pytest.raises(Fenced) as caught:
        loser.run(observers=[At(Step.WRITING, 2, lake.pipeline(kind).run)])
    winner = lake.metadata(kind)[-1]["owner"]
    assert caught.value.owner == winner
    assert winner in str(caught.value)
    assert caught.value.exit_code == 3
    assert lake.rows(kind) == sorted(some(0, 20))


@pytest.mark.parametrize("kind", IN_BREADTH)
def test_a_write_that_delta_skips_in_silence_is_an_error(kind: str, lake: Lake, topic: Topic) -> None:
    """Somebody has used the pipeline's name as txnAppId with a higher number: Delta says OK, and writes nothing."""
    assert lake.spark is not None
    topic.send_rows(some(0, 10))
    lake.pipeline(kind).run()
    stranger = lake.frame(kind).where("false").write.format("delta").mode("append")
    stranger.option("txnAppId", kind).option("txnVersion", "50").save(str(lake.path(kind)))
    topic.send_rows(some(10, 10))
    with pytest.raises(CommitSkipped, match="no commit of it stands"):
        lake.pipeline(kind).run()
    assert lake.rows(kind) == sorted(some(0, 10))


@pytest.mark.breadth
def test_a_restore_right_before_the_write_is_noticed(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 30))
    pipeline = lake.pipeline(epoch={"max_records": 10})

    def restore() -> None:
        lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1")

    with pytest.raises(PositionMismatch, match="expected epoch 2"):
        pipeline.run(observers=[At(Step.WRITING, 3, restore)])
    pipeline.run()
    assert lake.rows() == sorted(some(0, 30))


def test_a_commit_that_landed_but_was_reported_failed_is_not_committed_twice(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sinks.delta.proof import Proof

    real = Proof.__exit__

    def answer_lost(self: Proof, *_: object) -> bool:
        return real(self, ConnectionError, ConnectionError("the answer was lost"), None)

    monkeypatch.setattr(Proof, "__exit__", answer_lost)
    topic.send_rows(some(0, 30))
    assert lake.pipeline(epoch={"max_records": 10}).run().epochs == 3
    assert lake.rows() == sorted(some(0, 30))


def test_a_write_that_failed_is_reported_failed(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ConnectionError("no connection")

    assert lake.spark is not None
    monkeypatch.setattr(type(lake.spark.range(1).writeTo("t")), "append", fail)
    topic.send_rows(some(0, 10))
    with pytest.raises(ConnectionError):
        lake.pipeline().run()
    assert lake.rows() == []


@pytest.mark.breadth
def test_a_conflict_with_somebody_elses_commit_is_tried_again(lake: Lake, topic: Topic) -> None:
    """A person's UPDATE of all rows while the MERGE runs."""
    topic.send_rows(some(0, 10))
    lake.pipeline("upsert").run()
    topic.send_rows([(f"k{n}", n + 100) for n in range(10)])

    def update() -> None:
        lake.sql("UPDATE {t} SET n = n", "upsert")

    racer = threading.Thread(target=update)
    lake.pipeline("upsert").run(observers=[At(Step.WRITING, 2, racer.start)])
    racer.join()
    assert lake.rows("upsert") == [(f"k{n}", n + 100) for n in range(10)]


@pytest.mark.breadth
def test_a_moved_table_goes_on(lake: Lake, topic: Topic) -> None:
    three_epochs(lake, topic)
    moved = Path(shutil.move(lake.path(), lake.folder / "moved"))
    topic.send_rows(some(30, 10))
    lake.pipeline(sink={"path": str(moved)}).run()
    assert lake.spark is not None
    assert lake.spark.read.format("delta").load(str(moved)).count() == 40


def test_a_table_is_made_after_a_kill_in_the_middle_of_making_it(lake: Lake, topic: Topic) -> None:
    """Delta takes the log for a table, though nothing was committed to it."""
    log = lake.path() / "_delta_log"
    (log / "_staged_commits").mkdir(parents=True)
    (log / ".00000000000000000000.json.24afb4a0-9173-4d3d-a982-b5ae366cb91f.tmp").touch()
    topic.send_rows([("a", 1)])
    lake.pipeline().run()
    assert lake.rows() == [("a", 1)]
