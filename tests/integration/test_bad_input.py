"""Bad input never loses anything: it stops the run, says where it is, and the position doesn't pass it."""

import pytest
from conftest import Lake, Topic

from sinks.errors import (
    BadRecord,
    ConfigurationError,
    KeyMoved,
    NotADeltaTable,
    OffsetsLost,
    SchemaMismatch,
    TopicMissing,
)

BAD = {
    "not json": b"hello",
    "cut off": b'{"k": "a", "n": 1',
    "wrong type": b'{"k": "a", "n": "one"}',
    "too large": b'{"k": "a", "n": 3000000000}',
    "a fraction": b'{"k": "a", "n": 1.5}',
    "text behind": b'{"k": "a", "n": 1} and more',
    "two objects": b'{"k": "a", "n": 1}{"k": "b", "n": 2}',
    "two objects, comma": b'{"k": "a", "n": 1},{"k": "b", "n": 2}',
    "brackets behind": b'{"k": "a", "n": 1}]}',
    "an array": b'[{"k": "a", "n": 1}]',
    "null": b"null",
    "a number": b"12",
    "empty": b"",
    "single quotes": b"{'k': 'a', 'n': 1}",
    "binary": bytes(range(256)),
    "tombstone": None,
}  # fmt: skip


@pytest.mark.breadth
@pytest.mark.parametrize(
    "kinds", [["two objects", "binary", "tombstone"], pytest.param([*BAD], marks=pytest.mark.breadth)], ids=len
)
def test_a_malformed_record_stops_the_run_with_its_coordinates_and_its_start(
    kinds: list[str], lake: Lake, topic: Topic
) -> None:
    topic.send_rows([("k", number) for number in range(5)], partition=1)
    lake.pipeline().run()
    for offset, what in enumerate(kinds):
        value = BAD[what]
        topic.send(("k", value), partition=0)
        pipeline = lake.pipeline(
            name=f"from-{offset}", source={"start": {topic.name: {"0": offset, "1": -1}}},
            sink={"path": str(lake.folder / f"t{offset}")},
        )  # fmt: skip
        with pytest.raises(BadRecord) as caught:
            pipeline.run()
        said = str(caught.value)
        assert f"{topic.name}-0, offset {offset}" in said, what
        assert ("tombstone" if value is None else value[:5].decode(errors="ignore").strip("\0")) in said, what
        assert "\n\tat " not in said
    assert len(lake.rows()) == 5


@pytest.mark.breadth
def test_the_position_does_not_pass_a_bad_record(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", number) for number in range(5)], partition=0)
    topic.send(("a", b"broken"), partition=0)
    topic.send_rows([("a", number) for number in range(5, 10)], partition=0)
    pipeline = lake.pipeline(epoch={"max_records": 5})
    for _ in range(2):
        with pytest.raises(BadRecord, match="offset 5"):
            pipeline.run()
    assert lake.rows() == [("a", number) for number in range(5)]
    assert lake.metadata()[-1]["offsets"][topic.name]["0"] == 5


def test_unknown_fields_are_left_out_and_missing_ones_are_null(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"n": 1, "other": {"deep": [1]}}), ("b", {"k": "b"}), ("c", {}))
    lake.pipeline().run()
    assert {tuple(row) for row in lake.frame().select("k", "n").collect()} == {(None, 1), ("b", None), (None, None)}


@pytest.mark.breadth
def test_a_null_key_stops_an_upsert_with_its_coordinates(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("a", {"n": 2}), partition=1)
    with pytest.raises(BadRecord, match=rf"{topic.name}-1, offset 1 has a null in its key k: it"):
        lake.pipeline("upsert").run()
    assert lake.rows("upsert") == []


@pytest.mark.parametrize("within_one_epoch", [True, False])
@pytest.mark.breadth
def test_a_key_that_turns_up_in_another_partition_stops_the_run(
    within_one_epoch: bool, lake: Lake, topic: Topic
) -> None:
    topic.send_rows([("a", 1), ("b", 1)], partition=0)
    if not within_one_epoch:
        lake.pipeline("upsert").run()
    topic.send_rows([("c", 1), ("a", 2)], partition=1)
    with pytest.raises(KeyMoved) as caught:
        lake.pipeline("upsert").run()
    said = str(caught.value)
    assert '"k":"a"' in said
    assert f"{topic.name}-0" in said
    assert f"{topic.name}-1" in said
    assert "can't be compared" in said
    assert lake.rows("upsert") == ([] if within_one_epoch else [("a", 1), ("b", 1)])


def test_records_that_retention_removed_stop_the_run_and_are_named(lake: Lake, topic: Topic) -> None:
    from kafka import KafkaAdminClient
    from kafka.structs import TopicPartition

    topic.send_rows([("a", number) for number in range(10)], partition=0)
    lake.pipeline().run()
    topic.send_rows([("a", number) for number in range(10, 20)], partition=0)
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    admin.delete_records({TopicPartition(topic.name, 0): 14})
    admin.close()
    with pytest.raises(OffsetsLost) as caught:
        lake.pipeline().run()
    assert "wants offset 10 next, Kafka holds [14, 20), so [10, 14) is missing, up to 4 records" in str(caught.value)
    lake.pipeline(source={"on_data_loss": "continue"}).run()
    assert lake.rows() == sorted([("a", n) for n in range(10)] + [("a", n) for n in range(14, 20)])
    assert lake.metadata()[-1]["lost"] == [[topic.name, 0, 10, 14]]
    assert lake.pipeline().run().epochs == 0


def test_a_topic_that_is_not_there_names_the_nearest(lake: Lake, topic: Topic) -> None:
    with pytest.raises(TopicMissing) as caught:
        lake.pipeline(source={"topics": [topic.name + "x"]}).run()
    assert topic.name in caught.value.hint


@pytest.mark.parametrize("what", ["files", "parquet", "a file"])
def test_a_path_with_something_else_is_refused_and_left_alone(what: str, lake: Lake, topic: Topic) -> None:
    place = lake.path()
    if what == "files":
        place.mkdir()
        (place / "mine.txt").write_text("mine")
    elif what == "parquet":
        assert lake.spark is not None
        lake.spark.range(3).write.parquet(str(place))
    else:
        place.write_text("mine")
    for act in (lake.pipeline().run, lake.pipeline().check):
        with pytest.raises(NotADeltaTable, match="isn't a Delta table"):
            act()
    assert not (place / "_delta_log").exists()


def test_an_empty_folder_becomes_a_table(lake: Lake, topic: Topic) -> None:
    lake.path().mkdir()
    topic.send_rows([("a", 1)])
    lake.pipeline().run()
    assert lake.rows() == [("a", 1)]


def test_columns_that_do_not_fit_are_all_named(lake: Lake, topic: Topic) -> None:
    lake.sql("CREATE TABLE {t} (K STRING, n STRING, must INT NOT NULL, _topic STRING, _partition INT) USING delta")
    for act in (lake.pipeline().run, lake.pipeline().check):
        with pytest.raises(SchemaMismatch) as caught:
            act()
        said = str(caught.value)
        assert "column n is STRING in the table, INT in the pipeline" in said.replace("string", "STRING").replace(
            "int", "INT"
        )
        assert "_offset" in said
        assert "_timestamp" in said
        assert "column must of the table is NOT NULL" in said
        assert "column k" not in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "k STRNG"}, "value.schema"),
        ({"schema": "k STRING, K INT"}, "twice"),
        ({"schema": "k STRING, _offset INT"}, "Lakelock itself uses the column _offset"),
        ({"schema": "k STRING", "sink": {"key": ["kk"]}}, "isn't a column of value.schema"),
        ({"schema": "k MAP<STRING, INT>"}, "MAP"),
    ],
)
def test_a_schema_that_can_not_be_written_is_a_wrong_configuration(changes: dict, said: str, lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match=said):
        lake.pipeline("upsert", **changes).run()
    assert not lake.path("upsert").exists()


@pytest.mark.parametrize(
    ("start", "said"),
    [({"0": 1}, "no offset for .*-1"), ({"0": 99, "1": 0}, "holds \\[0, 1\\), and offset 99 is outside")],
)
def test_starting_offsets_that_are_not_there_are_a_wrong_configuration(start, said, lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1)], partition=0)
    with pytest.raises(ConfigurationError, match=said):
        lake.pipeline(source={"start": {topic.name: start}}).run()
