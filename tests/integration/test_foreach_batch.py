"""`connector.foreach_batch`: real streaming queries, stopped, killed, and started again."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import streams
import yaml
from conftest import Lake, Topic, wait_until
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from streams import Write, source, started

import connector
from connector.audit import audit
from connector.config import parse
from connector.lab.bench.faults import kill_group
from connector.pipeline import Pipeline
from connector.protocol.steps import Event, Step

pytestmark = pytest.mark.classic("foreach_batch is refused there, see test_connect")

ROWS = {"format": "rows", "schema": "k STRING, n INT, name STRING"}


def checkpoint(lake: Lake, name: str = "checkpoint") -> Path:
    return lake.folder / name


def stream(lake: Lake, write: Write, name: str = "checkpoint", **options: object) -> None:
    """Run a query over the topic until all that is there has been read."""
    assert lake.spark is not None
    records = source(lake.spark, lake.topic.broker.bootstrap, lake.topic.name, **options)
    started(records, write, checkpoint(lake, name)).awaitTermination()


def lakes(lake: Lake, kind: str = "append", at: str = "checkpoint", **changes: Any) -> Write:
    return connector.foreach_batch(lake.options(kind, **changes), checkpoint=checkpoint(lake, at))


def numbered(count: int) -> list[tuple[str, int]]:
    return [(f"k{number % 7}", number) for number in range(count)]


@pytest.mark.kills
def test_jobs_killed_between_our_commit_and_sparks_are_exact_and_bare_ones_are_not(lake: Lake, topic: Topic) -> None:
    sent, each = 160, 80  # Spark shares a batch between the partitions, and rounds down
    topic.send_rows(numbered(sent))
    counts = {"group_by": ["k"], "aggregates": {"records": "count(*)"}}
    both = [
        {"type": "delta_append", "path": str(lake.path("one"))},
        {"type": "delta_upsert", "path": str(lake.path("two")), "key": "k"},
    ]
    pipelines = {
        "append": lake.options(),
        "counts": lake.options("aggregate", name="counts", sink=counts),
        "both": lake.options(name="both", sinks=both, coordinator={"path": str(lake.path("log"))}),
    }
    for name, options in pipelines.items():
        (lake.folder / f"{name}.yaml").write_text(yaml.safe_dump(options))
    said = lake.folder / "said.txt"

    def job(kill: int | None) -> subprocess.Popen[bytes]:
        options = {
            "folder": str(lake.folder), "bootstrap": topic.broker.bootstrap, "topic": topic.name, "records": each,
            "kill": kill,
        }  # fmt: skip
        with said.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, streams.__file__, json.dumps(options)], start_new_session=True, stdout=out, stderr=out
            )

    def noted(batch: int) -> list[str]:
        """The jobs for which Spark knows that this batch was written."""
        return sorted(path.parents[1].name for path in (lake.folder / "checkpoints").glob(f"*/commits/{batch}"))

    process = job(kill=1)
    try:
        assert process.wait(timeout=200) == -signal.SIGKILL, said.read_text()[-3000:]
        assert noted(0) == ["append", "bare", "both", "counts", "merge"]
        assert noted(1) == []
        assert len(lake.rows()) == len(lake.rows("one")) > 2 * each - 5
        process = job(kill=None)
        wait_until(lambda: len(noted(1)) >= random.randint(1, 5), 150, "a random one of the jobs")
        kill_group(process)
        process = job(kill=None)
        assert process.wait(timeout=200) == 0, said.read_text()[-3000:]
    finally:
        kill_group(process)
    assert lake.rows() == lake.rows("one") == sorted(numbered(sent))
    assert lake.rows("two") == [(f"k{key}", max(range(key, sent, 7))) for key in range(7)]
    assert sorted(lake.sql("SELECT k, records FROM {t}", "aggregate")) == [
        (f"k{key}", len(range(key, sent, 7))) for key in range(7)
    ]
    assert lake.sql("SELECT sum(records) FROM {t}", "merge")[0][0] >= sent + each - 5, "a bare MERGE adds a batch twice"
    assert len(lake.rows("bare")) >= sent + each - 5
    for sink in range(2):
        assert str(audit(parse(pipelines["both"]).alone(sink))).startswith("exact")


@pytest.mark.breadth
def test_a_query_without_its_checkpoint_goes_on_from_the_table_and_so_does_a_run(lake: Lake, topic: Topic) -> None:
    topic.send_rows(numbered(60))
    stream(lake, lakes(lake), maxOffsetsPerTrigger=40)
    shutil.rmtree(checkpoint(lake))
    topic.send_rows([("x", 60)])
    stream(lake, lakes(lake), maxOffsetsPerTrigger=33)  # cut elsewhere
    assert lake.rows() == sorted([*numbered(60), ("x", 60)])
    batches = [made["batch"].split("/") for made in lake.metadata()]
    assert [number for _, number in batches] == ["0", "1", "1"], "the new query's first batch was there as a whole"
    assert batches[0][0] == batches[1][0] != batches[2][0]
    assert lake.pipeline().run().epochs == 0
    topic.send_rows([("y", 61)])
    assert lake.pipeline().run().epochs == 1
    topic.send_rows([("z", 62)])
    stream(lake, lakes(lake))
    assert lake.rows() == sorted([*numbered(60), ("x", 60), ("y", 61), ("z", 62)])
    assert lake.pipeline().status().position.epoch == len(lake.metadata()) == 5
    assert "batch" not in lake.metadata()[3]


def test_a_query_that_was_replaced_in_mid_batch_is_fenced_and_says_so(lake: Lake, topic: Topic) -> None:
    topic.send_rows(numbered(20))

    def replaced(event: Event) -> None:
        if event.step is Step.WRITING and event.epoch.number == 2:
            stream(lake, lakes(lake, at="another"), "another")

    zombie = connector.foreach_batch(lake.options(), checkpoint=checkpoint(lake), observers=[replaced])
    with pytest.raises(
        StreamingQueryException, match=r"sinks.errors.Fenced: Pipeline 'append' was replaced: run .* Two"
    ):
        stream(lake, zombie, maxOffsetsPerTrigger=10)
    assert lake.rows() == sorted(numbered(20))
    assert [made["epoch"] for made in lake.metadata()] == [1, 2]


@pytest.mark.breadth
def test_a_batch_ends_where_the_query_says_though_its_last_offsets_are_no_records(lake: Lake, topic: Topic) -> None:
    for keep in (True, False):
        producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"{topic.name}-{keep}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic.name, b'{"k": "a", "n": 1}', partition=0)
        producer.flush()
        producer.commit_transaction() if keep else producer.abort_transaction()
        producer.close()
    stream(lake, lakes(lake))
    assert lake.rows() == [("a", 1)]
    assert lake.metadata()[-1]["offsets"] == {topic.name: {"0": 4, "1": 0}}
    assert str(audit(lake.pipeline().config)).startswith("exact")


@pytest.mark.breadth
def test_after_a_restore_a_batch_that_would_leave_a_gap_is_refused_with_the_way_on(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    topic.send_rows(numbered(10), partition=0)
    stream(lake, lakes(lake), maxOffsetsPerTrigger=5)
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    topic.send_rows([("x", 10)], partition=0)
    with pytest.raises(StreamingQueryException, match=r"\[5, 10\) would be missing") as refused:
        stream(lake, lakes(lake))
    (starting,) = set(re.findall(r"startingOffsets\", '(.*)'\)", str(refused.value)))
    assert json.loads(starting) == {topic.name: {"0": 5, "1": 0}}
    stream(lake, lakes(lake, at="new"), "new", startingOffsets=starting)
    with pytest.raises(StreamingQueryException, match="belongs to another query"):
        stream(lake, lakes(lake), "a third")
    assert lake.rows() == sorted([*numbered(10), ("x", 10)])
    with pytest.raises(StreamingQueryException, match="records of the batches before it would be missing"):
        stream(lake, lakes(lake, "upsert"))


@pytest.mark.breadth
def test_a_restore_to_before_a_partition_was_added_leaves_no_gap(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    topic.send_rows(numbered(3), partition=0)
    stream(lake, lakes(lake))
    topic.broker.add_partitions(topic.name, 3)
    topic.send_rows(numbered(7), partition=2)
    stream(lake, lakes(lake))
    assert lake.rows() == sorted(numbered(3) + numbered(7))
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    topic.send_rows([("x", 10)], partition=2)
    with pytest.raises(
        StreamingQueryException, match=r"-2: the table wants offset 0 next, .*\[0, 7\) would be missing"
    ):
        stream(lake, lakes(lake))
    lake.pipeline().run()
    assert lake.rows() == sorted([*numbered(3), *numbered(7), ("x", 10)])


@pytest.mark.breadth
def test_functions_that_a_batch_calls_at_once_take_turns(lake: Lake, topic: Topic) -> None:
    """They share the query's session: the settings that a MERGE takes its epoch from, and the views that it reads."""
    topic.send_rows(numbered(20), partition=0)
    seen: list[str] = []

    def told(name: str) -> Callable[[Event], None]:
        def see(event: Event) -> None:
            seen.append(name)
            time.sleep(0.2)

        return see

    ours = [
        connector.foreach_batch(
            lake.options("upsert", name=name, sink={"path": str(lake.path(name))}),
            checkpoint=checkpoint(lake),
            observers=[told(name)],
        )
        for name in ("one", "two")
    ]

    def write(rows: DataFrame, number: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: each(rows, number), ours))

    stream(lake, write)
    assert len(list(groupby(seen))) == 2, seen
    for name in ("one", "two"):
        assert lake.sql("SELECT count(DISTINCT k), max(_offset) FROM {t}", name) == [(7, 19)]


@pytest.mark.breadth
def test_rows_that_the_query_has_made_itself_are_committed_with_the_coordinates_of_their_records(
    lake: Lake, topic: Topic
) -> None:
    assert lake.spark is not None
    topic.send_rows(numbered(20), partition=0)
    lake.spark.sql("SELECT 'k1' AS k, 'one' AS name UNION ALL SELECT 'k2', 'two'").createOrReplaceTempView("names")
    rows = lake.options("upsert", value=ROWS, name="rows", spark={})
    records = source(lake.spark, topic.broker.bootstrap, topic.name, maxOffsetsPerTrigger=12)
    made = (
        records.selectExpr(
            "from_json(CAST(value AS STRING), 'k STRING, n INT') AS row", "topic AS _topic", "partition AS _partition",
            "offset AS _offset", "timestamp AS _timestamp",
        )
        .selectExpr("row.*", "_topic", "_partition", "_offset", "_timestamp")
        .join(lake.spark.table("names"), "k")
    )  # fmt: skip
    write = connector.foreach_batch(rows, checkpoint=checkpoint(lake))
    started(made, write, checkpoint(lake)).awaitTermination()
    assert sorted(lake.sql("SELECT k, n, name, _offset FROM {t}", "upsert")) == [
        ("k1", 15, "one", 15),
        ("k2", 16, "two", 16),
    ]
    pipeline = connector.Pipeline.from_options(rows)
    assert pipeline.status().offsets.to_dict() == {topic.name: {"0": 20, "1": 0}}
    with pytest.raises(connector.ConfigurationError, match="for the batches of a streaming query"):
        pipeline.run()

    topic.send_rows(numbered(3))
    for changed, says in {
        "CAST(n AS BIGINT) AS n": r"n is BIGINT, not INT",
        "_offset + 1000 AS _offset": "which isn't in the batch by the query's checkpoint",
    }.items():
        name = changed.rsplit(" ", 1)[1]
        other = made.selectExpr(*(changed if each == name else each for each in made.columns))
        with pytest.raises(StreamingQueryException, match=says):
            started(other, write, checkpoint(lake)).awaitTermination()
    with pytest.raises(StreamingQueryException, match="it has to have Kafka's own columns"):
        started(made, lakes(lake, at="fresh"), checkpoint(lake, "fresh")).awaitTermination()
    # To go back needs no batch, nor does the epoch without records that follows.
    assert pipeline.rewind(to_epoch=1, confirm=True).done
    assert pipeline.status().offsets.to_dict() == {topic.name: {"0": 12, "1": 0}}


@pytest.mark.breadth
def test_an_epoch_in_doubt_that_ends_within_a_batch_is_completed_from_it(lake: Lake, topic: Topic) -> None:
    """A run has decided an epoch of a route and was killed between its tables; then a query reads more than that."""
    options = lake.options(
        sinks=None,
        route={"by": "k", "sink": {"type": "delta_append", "path": str(lake.path("t-{k}"))}},
        coordinator={"path": str(lake.path("log"))},
    )
    options = {name: value for name, value in options.items() if value is not None}
    topic.send_rows([("a", 1), ("b", 2)], partition=0)

    def crash(event: Event) -> None:
        if event.step is Step.SINK_COMMITTED:
            raise RuntimeError("killed between two tables")

    with pytest.raises(RuntimeError):
        Pipeline.from_options({**options, "retry": {"attempts": 1}}).run(observers=[crash])
    topic.send_rows([("a", 3), ("b", 4)], partition=0)
    stream(lake, connector.foreach_batch(options, checkpoint=checkpoint(lake)))
    assert (lake.rows("t-a"), lake.rows("t-b")) == ([("a", 1), ("a", 3)], [("b", 2), ("b", 4)])


@pytest.mark.breadth
def test_two_pipelines_in_one_query_are_each_one_run(lake: Lake, topic: Topic) -> None:
    topic.send_rows(numbered(20))
    one, two = (lakes(lake, kind) for kind in ("append", "upsert"))

    def both(rows: Any, number: int) -> None:
        one(rows, number)
        two(rows, number)

    stream(lake, both, maxOffsetsPerTrigger=10)
    for kind in ("append", "upsert"):
        assert len(lake.metadata(kind)) > 1
        assert len({made["owner"] for made in lake.metadata(kind)}) == 1, kind


@pytest.mark.breadth
def test_a_transaction_of_the_batch_function_s_own_skips_no_letter_and_is_there_afterwards(
    lake: Lake, topic: Topic
) -> None:
    """Delta's recipe for statements that a repeated batch may not repeat: its numbers stay in the query's session."""
    topic.send(*[(None, b'{"k": "a", "n": "many"}')] * 4)
    place = {"path": str(lake.folder / "letters")}
    function = lakes(lake, "upsert", on_bad_record="dead_letter", dead_letters=place)
    own = {"spark.databricks.delta.write.txnAppId": "job", "spark.databricks.delta.write.txnVersion": "1"}
    left: list[dict[str, str | None]] = []

    def write(rows: DataFrame, number: int) -> None:
        conf = rows.sparkSession.conf
        for name, value in own.items():
            conf.set(name, value)
        function(rows, number)
        left.append({name: conf.get(name, None) for name in own})

    stream(lake, write, maxOffsetsPerTrigger=2, includeHeaders="true")
    assert lake.spark is not None
    assert lake.spark.read.format("delta").load(str(lake.folder / "letters")).count() == 4
    assert len(left) > 1
    assert left == [own] * len(left)
