"""The main job: rows and offsets in one commit, read back at every start."""

import itertools
import threading
from datetime import datetime, timedelta, timezone

import pytest
from conftest import Lake, Topic
from pyspark.sql import SparkSession

from connector import Pipeline
from connector.config import parse
from connector.protocol.steps import Event, Step
from connector.spark.session import isolated
from sinks.errors import ConfigurationError
from sinks.spark.settings import with_settings

KINDS = ("append", "upsert")


def some(first: int, count: int, keys: int = 7) -> list[tuple[str, int]]:
    return [(f"k{number % keys}", number) for number in range(first, first + count)]


def latest(rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(dict(rows).items())


def test_append_holds_every_record_with_its_coordinates(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 100))
    assert lake.pipeline().run().rows == 100
    assert lake.rows() == sorted(some(0, 100))
    assert lake.frame().columns == ["k", "n", "_topic", "_partition", "_offset", "_timestamp"]
    assert dict(lake.frame().dtypes)["_partition"] == "int"
    assert dict(lake.frame().dtypes)["_offset"] == "bigint"
    assert lake.sql("SELECT count(DISTINCT _topic, _partition, _offset) FROM {t}") == [(100,)]
    assert lake.sql("SELECT count(*) FROM {t} WHERE _timestamp < current_timestamp() - INTERVAL 1 HOUR") == [(0,)]


@pytest.mark.breadth
def test_upsert_holds_the_latest_record_per_key(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 100))
    lake.pipeline("upsert", epoch={"max_records": 30}).run()
    assert lake.rows("upsert") == latest(some(0, 100))
    topic.send_rows(some(100, 20))
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == latest(some(0, 120))


@pytest.mark.breadth
@pytest.mark.parametrize("kind", KINDS)
def test_offsets_epoch_and_owner_are_in_the_commit_of_the_rows(kind: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    before = datetime.now(timezone.utc)
    pipeline = lake.pipeline(kind)
    pipeline.run()
    pipeline.run()
    commit = lake.commits(kind)[-1]
    assert "add" in commit
    assert (commit["txn"]["appId"], commit["txn"]["version"]) == (kind, 1)
    (metadata,) = lake.metadata(kind)
    ends = {at.partition: end for at, end in pipeline.status().held.ends.items()}
    assert metadata["offsets"] == {topic.name: {str(partition): end for partition, end in ends.items()}}
    assert metadata["topics"] == pipeline.status().held.ids
    assert (metadata["lakelock"], metadata["pipeline"], metadata["epoch"]) == (3, kind, 1)
    assert len(metadata["owner"]) == 36
    assert timedelta(0) <= datetime.fromisoformat(metadata["read_to"]) - before < timedelta(minutes=1)


@pytest.mark.breadth
@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_run_commits_nothing(kind: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline(kind).run()
    version = lake.version(kind)
    for _ in range(2):
        assert lake.pipeline(kind).run().epochs == 0
    assert lake.version(kind) == version


@pytest.mark.breadth
def test_epochs_are_bounded_and_their_offsets_only_grow(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 100))
    assert lake.pipeline(epoch={"max_records": 30}).run().epochs == 4
    assert lake.rows() == sorted(some(0, 100))
    read = [metadata["offsets"][topic.name] for metadata in lake.metadata()]
    assert [metadata["epoch"] for metadata in lake.metadata()] == [1, 2, 3, 4]
    for earlier, later in itertools.pairwise(read):
        assert all(later[partition] >= offset for partition, offset in earlier.items())


@pytest.mark.breadth
def test_an_epoch_in_which_every_update_is_stale_still_moves_the_position(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline("upsert").run()
    lake.sql("UPDATE {t} SET _offset = 1000000", "upsert")
    topic.send_rows([("k0", -1), ("k1", -2)])
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == latest(some(0, 10))
    assert sum(lake.metadata("upsert")[-1]["offsets"][topic.name].values()) == 12
    assert lake.pipeline("upsert").run().epochs == 0


@pytest.mark.breadth
def test_other_peoples_commits_in_between_change_nothing(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline("upsert").run()
    lake.sql("UPDATE {t} SET n = n + 1000", "upsert")
    lake.sql("OPTIMIZE {t}", "upsert")
    lake.sql("VACUUM {t}", "upsert")
    topic.send_rows([("k0", 5)])
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == sorted([*((k, n + 1000) for k, n in latest(some(0, 10)) if k != "k0"), ("k0", 5)])


@pytest.mark.breadth
def test_two_pipelines_share_a_table_without_taking_the_others_position(lake: Lake, topic: Topic) -> None:
    other = "other-" + topic.name
    topic.broker.create_topic(other, 1)
    topic.send_rows(some(0, 10))
    Topic(topic.broker, other).send_rows(some(100, 5))
    both = [lake.pipeline(), lake.pipeline(name="second", source={"topics": [other]})]
    for _ in range(2):
        for pipeline in both:
            pipeline.run()
    assert lake.rows() == sorted(some(0, 10) + some(100, 5))


def test_a_foreign_commit_with_a_stale_copy_of_the_metadata_is_not_ours(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    lake.pipeline(epoch={"max_records": 5}).run()
    assert lake.spark is not None
    first = next(commit["commitInfo"]["userMetadata"] for commit in lake.commits() if "txn" in commit)
    lake.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", first)
    try:
        lake.sql("UPDATE {t} SET n = n")
    finally:
        lake.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    assert lake.pipeline().run().epochs == 0
    topic.send_rows(some(10, 5))
    lake.pipeline().run()
    assert lake.rows() == sorted(some(0, 15))


@pytest.mark.breadth
def test_nothing_of_a_run_stays_in_the_users_session(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    topic.send_rows(some(0, 10))
    lake.pipeline("upsert").run()
    settings = {row["key"] for row in lake.spark.sql("SET").collect()}
    assert not [name for name in settings if "txn" in name or "userMetadata" in name]
    lake.sql("UPDATE {t} SET n = n", "upsert")
    assert "userMetadata" not in lake.commits("upsert")[-1]["commitInfo"]
    assert not lake.spark.catalog.tableExists("lakelock_epoch")


def test_a_catalog_that_the_user_has_named_in_the_session_is_known_to_a_run(spark: SparkSession) -> None:
    name, catalog = "spark.sql.catalog.theirs", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    spark.conf.set(name, catalog)
    try:
        with isolated(spark) as own:
            assert own.conf.get(name) == catalog
    finally:
        spark.conf.unset(name)


@pytest.mark.breadth
def test_a_file_that_is_gone_stops_a_run_and_verify_whatever_the_session_ignores(lake: Lake, topic: Topic) -> None:
    """Else its groups would be made anew, from zero, and nobody counts what isn't there."""
    assert lake.spark is not None
    options = lake.options("aggregate", sink={"group_by": ["k"], "aggregates": {"records": "count(*)"}})
    topic.send_rows([("a", 1), ("b", 1)])
    Pipeline.from_options(options).run()
    for file in lake.path("aggregate").glob("*.parquet"):
        file.rename(lake.folder / file.name)
    topic.send_rows([("a", 2)])
    ignoring = {f"spark.sql.files.ignore{what}Files": "true" for what in ("Missing", "Corrupt")}
    with with_settings(lake.spark, ignoring):
        for fails in (Pipeline.from_options(options).run, Pipeline.from_options(options).verify):
            with pytest.raises(Exception, match=r"part-.*\.parquet|VACUUM"):
                fails()
        with pytest.raises(ConfigurationError, match="ignoreMissingFiles = true: Spark would lose rows"):
            Pipeline(parse(options), spark=lake.spark).run()
    for file in lake.folder.glob("*.parquet"):
        file.rename(lake.path("aggregate") / file.name)
    Pipeline.from_options(options).run()
    assert sorted(lake.sql("SELECT k, records FROM {t}", "aggregate")) == [("a", 2), ("b", 1)]


@pytest.mark.breadth
def test_times_keep_their_microseconds_whatever_the_session_writes(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    topic.send(("a", {"k": "a", "at": "2026-11-01T00:00:00.123456Z"}))
    with with_settings(lake.spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}):
        lake.pipeline(schema="k STRING, at TIMESTAMP").run()
    assert lake.sql("SELECT unix_micros(at) % 1000000 FROM {t}") == [(123456,)]


@pytest.mark.breadth
@pytest.mark.parametrize("delivery", ["transactional", "manual_commit"])
def test_the_users_session_stays_the_active_one(delivery: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 3))
    lake.pipeline(name=topic.name, delivery=delivery).run()
    assert SparkSession.active() is lake.spark


@pytest.mark.breadth
def test_the_users_session_stays_the_active_one_whatever_a_run_makes(lake: Lake, topic: Topic) -> None:
    on_read = {"merge": "on_read"}
    bad = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("bad"))}}
    topic.send_rows(some(0, 3))
    topic.send(("k", b"no JSON"))
    lake.pipeline("upsert", sink=on_read, **bad).run()
    assert SparkSession.active() is lake.spark, "a table of dead letters is made"
    topic.send_rows(some(3, 3))
    lake.pipeline("upsert", **bad).run()
    assert SparkSession.active() is lake.spark, "a change log is folded, and emptied"
    assert lake.rows("upsert") == latest(some(0, 6))


@pytest.mark.breadth
def test_start_at_latest_reads_what_comes_after_the_first_run(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    pipeline = lake.pipeline(source={"start": "latest"})
    pipeline.run()
    topic.send_rows(some(10, 5))
    pipeline.run()
    assert lake.rows() == sorted(some(10, 5))


@pytest.mark.breadth
def test_start_at_offsets_and_at_a_time(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    topic.send_rows(some(10, 10), partition=1)
    offsets = {topic.name: {"0": 4, "1": -1}}
    lake.pipeline(source={"start": offsets}).run()
    assert lake.rows() == sorted(some(4, 6))
    now = datetime.now(timezone.utc)
    topic.send_rows(some(20, 5), partition=0, at=now + timedelta(seconds=1))
    by_time = {"start": {"timestamp": now}}
    lake.pipeline("upsert", source=by_time).run()
    assert lake.rows("upsert") == latest(some(20, 5))


def test_a_partition_added_between_runs_is_picked_up_from_its_beginning(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline(source={"start": "latest"})
    pipeline.run()
    topic.broker.add_partitions(topic.name, 3)
    topic.send_rows(some(0, 4), partition=2)
    pipeline.run()
    assert lake.rows() == sorted(some(0, 4))


def test_gaps_of_aborted_transactions_are_no_records_and_no_loss(lake: Lake, topic: Topic) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=topic.broker.bootstrap, transactional_id=f"x-{topic.name}")
    producer.init_transactions()
    for number, keep in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for row in range(5):
            producer.send(topic.name, b'{"k": "k%d", "n": %d}' % (number, row), partition=0)
        producer.flush()
        producer.commit_transaction() if keep else producer.abort_transaction()
    producer.close()
    pipeline = lake.pipeline(epoch={"max_records": 4})
    pipeline.run()
    assert lake.rows() == sorted((f"k{number}", row) for number in (0, 2) for row in range(5))
    status = pipeline.status()
    assert sum(status.lag.values()) == 0


def test_a_table_of_the_catalog_is_written_by_its_name(lake: Lake, topic: Topic) -> None:
    assert lake.spark is not None
    name = "spark_catalog.default.`of_a_catalog`"
    topic.send_rows(some(0, 10))
    pipeline = lake.pipeline(sink={"path": None, "table": name})
    for _ in range(2):
        pipeline.run()
    assert lake.spark.table(name).count() == 10
    lake.spark.sql(f"DROP TABLE {name}")


@pytest.mark.breadth
def test_a_table_that_a_person_made_with_more_columns_is_written(lake: Lake, topic: Topic) -> None:
    lake.sql(
        "CREATE TABLE {t} (note STRING, n INT, k STRING, _topic STRING, _partition INT, _offset BIGINT, "
        "_timestamp TIMESTAMP) USING delta",
        "upsert",
    )
    topic.send_rows(some(0, 3))
    lake.pipeline("upsert").run()
    lake.sql("UPDATE {t} SET note = 'mine'", "upsert")
    topic.send_rows(some(10, 7))
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == latest(some(0, 3) + some(10, 7))
    assert lake.sql("SELECT count(*) FROM {t} WHERE note = 'mine'", "upsert") == [(3,)]


@pytest.mark.breadth
def test_a_row_that_a_person_put_in_is_replaced_by_the_first_update(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)])
    lake.pipeline("upsert").run()
    lake.sql("INSERT INTO {t} (k, n) VALUES ('b', 99), ('c', 99)", "upsert")
    topic.send_rows([("b", 2)])
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == [("a", 1), ("b", 2), ("c", 99)]


@pytest.mark.breadth
def test_a_column_added_by_a_person_between_runs_is_left_alone(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 3))
    lake.pipeline().run()
    lake.sql("ALTER TABLE {t} ADD COLUMN note STRING")
    topic.send_rows(some(3, 3))
    lake.pipeline().run()
    assert lake.rows() == sorted(some(0, 6))


NAMES = ["a b", "dotted.name", "tick`ed", "quo'ted", 'dou"ble', "semi;colon", "back\\slash", "latest", "first", "größe"]


@pytest.mark.breadth
def test_columns_and_paths_may_be_called_anything(lake: Lake, topic: Topic) -> None:
    schema = ", ".join(f"`{name.replace('`', '``')}` INT" for name in NAMES)
    path = str(lake.folder / "a `b` 'c' [d] {e} ; -- x%41")
    records = [{name: index if name == "latest" else 7 for name in NAMES} for index in range(3)]
    topic.send(*(("key", record) for record in records), *(("key", record) for record in records))
    pipeline = lake.pipeline("upsert", schema=schema, sink={"key": NAMES, "path": path})
    pipeline.run()
    pipeline.run()
    assert lake.spark is not None
    written = lake.spark.read.format("delta").load(path)
    assert written.columns[: len(NAMES)] == NAMES
    assert written.count() == 3


KEYS = [
    ("BOOLEAN", "true"), ("TINYINT", "1"), ("BIGINT", "9007199254740993"), ("FLOAT", "1.5"), ("DOUBLE", "-0.0"),
    ("DECIMAL(38,10)", "123456789012345678.0123456789"), ("DATE", '"2026-01-31"'),
    ("TIMESTAMP", '"2026-01-31T01:02:03.456789Z"'), ("TIMESTAMP_NTZ", '"2026-01-31T01:02:03.456789"'),
    ("BINARY", '"AAEC"'), ("STRUCT<`x y`: INT, z: STRING>", '{"x y": 1, "z": "q"}'), ("ARRAY<INT>", "[1, null, 2]"),
]  # fmt: skip


@pytest.mark.breadth
def test_a_key_may_be_of_any_type_that_can_be_compared(lake: Lake, topic: Topic) -> None:
    schema = ", ".join(f"c{index} {sql_type}" for index, (sql_type, _) in enumerate(KEYS))
    pipeline = lake.pipeline(
        "upsert", schema=f"{schema}, n INT", sink={"key": [f"c{index}" for index in range(len(KEYS))]}
    )
    for number in range(3):
        values = ", ".join(f'"c{index}": {text}' for index, (_, text) in enumerate(KEYS))
        topic.send(("key", f'{{{values}, "n": {number}}}'.encode()))
        pipeline.run()
    assert lake.sql("SELECT n FROM {t}", "upsert") == [(2,)]


def test_status_tells_what_is_committed_next_to_what_kafka_holds(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10), partition=0)
    pipeline: Pipeline = lake.pipeline()
    before = pipeline.status()
    assert before.position is None
    assert sum(before.lag.values()) == 10
    pipeline.run()
    topic.send_rows(some(10, 3), partition=1)
    after = pipeline.status()
    assert after.position is not None
    assert (after.position.epoch, list(after.lag.values())) == (1, [0, 3])


def test_check_touches_nothing(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 10))
    found = lake.pipeline().check()
    assert ([sink.exists for sink in found.sinks], found.behind) == ([False], 10)
    assert not lake.path().exists()


@pytest.mark.breadth
def test_a_partition_added_while_running_is_picked_up_from_its_beginning(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 4))
    stop = threading.Event()

    def grow_then_stop(event: Event) -> None:
        if event.step is not Step.COMMITTED:
            return
        if event.epoch.number == 1:
            topic.broker.add_partitions(topic.name, 4)
            topic.send_rows(some(4, 4), partition=3)
        else:
            stop.set()

    late = threading.Timer(60, stop.set)
    late.start()
    pipeline = lake.pipeline(trigger={"interval": "1 second"}, source={"start": "latest", "topics": [topic.name]})
    pipeline.run(stop=stop, observers=[grow_then_stop])
    late.cancel()
    assert lake.rows() == sorted(some(4, 4))
    assert lake.metadata()[-1]["offsets"][topic.name].keys() == {"0", "1", "2", "3"}


@pytest.mark.breadth
def test_there_are_as_few_epochs_as_the_latency_asked_for_allows(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 1))
    lake.pipeline().run()  # a first epoch takes long, and who knows nothing else expects the next to
    stop, committed, left_waiting = threading.Event(), [], []
    numbers = iter(range(1, 12))

    def observe(event: Event) -> None:
        if event.step is Step.WAITING:
            if event.behind:
                left_waiting.append(event.behind)
            if (number := next(numbers, None)) is not None:
                topic.send_rows(some(number, 1))
        if event.step is Step.COMMITTED:
            committed.append(event.epoch.number)
            if event.epoch.offsets and sum(event.epoch.offsets.values()) == 12:
                stop.set()

    late = threading.Timer(90, stop.set)
    late.start()
    lake.pipeline(trigger={"target_latency": "12 seconds"}).run(stop=stop, observers=[observe])
    late.cancel()
    assert lake.rows() == sorted(some(0, 12))
    # Nearly each look finds something to do; without a latency to wait for, as many of them are followed by an epoch.
    assert len(left_waiting) >= 2 * len(committed)
