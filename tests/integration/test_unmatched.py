"""A field that the schema declares and no record has: said at once, not found months later as a column of nulls."""

import logging

import pytest
from conftest import Lake, Topic, lakelock
from golden_files import assert_told

from connector.source import few_records
from sinks.errors import SchemaMismatch

WRONG = "k STRING, n INT, custmer STRING"


def send(topic: Topic, *customers: str, field: str = "customer") -> None:
    topic.send(*((name, {"k": name, "n": 1, field: name}) for name in customers))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "lakelock.decode"]


def test_the_first_epoch_stops_before_anything_is_written(lake: Lake, topic: Topic) -> None:
    send(topic, "a", "b", "c")
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline(schema=WRONG).run()
    assert_told("misspelled_column", caught.value, topic=topic.name)
    assert not lake.path().exists(), "a table would have kept the wrong column"
    assert lake.pipeline(schema=WRONG.replace("custmer", "customer")).run().rows == 3, "the corrected file runs"


def test_the_first_records_stop_also_after_epochs_without_any(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline was there before its producer, and Kafka answers too late to give a sample."""
    assert lake.pipeline(schema=WRONG).run().epochs == 1
    send(topic, "a", "b", "c")
    monkeypatch.setattr(few_records, "_SECONDS", 0.0)
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline(schema=WRONG).run()
    assert_told("misspelled_column", caught.value, topic=topic.name)
    assert lake.sql("SELECT * FROM {t}") == []


def test_one_record_that_has_the_field_is_enough(lake: Lake, topic: Topic) -> None:
    # More than are looked at first, so that Spark has to count.
    topic.send(*((None, {"k": "x", "n": number}) for number in range(1000)), partition=0)
    topic.send((None, {"k": "last", "n": 0, "custmer": "c"}), partition=0)
    assert lake.pipeline(schema=WRONG).run().rows == 1001


def test_fields_in_structs_are_counted_too(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1, "to": {"city": "Zug"}}), ("b", {"k": "b", "n": 1, "to": {"city": "Bern"}}))
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline(schema="k STRING, n INT, `to` STRUCT<citty: STRING>").run()
    assert_told("misspelled_in_a_struct", caught.value, topic=topic.name)


def test_the_fields_of_keys_are_looked_for_in_keys(lake: Lake, topic: Topic) -> None:
    topic.send(('{"id": 1}', {"k": "a", "n": 1}))
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline(key={"format": "json", "schema": "ids INT"}).run()
    assert_told("misspelled_in_keys", caught.value, topic=topic.name)


def test_of_debezium_events_the_rows_are_looked_at(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"op": "c", "before": None, "after": {"k": "a", "customer": "c"}, "ts_ms": 1, "source": {}}))
    value = {"format": "debezium", "schema": "k STRING, custmer STRING"}
    with pytest.raises(SchemaMismatch) as caught:
        lake.pipeline(value=value).run()
    assert_told("misspelled_in_debezium", caught.value, topic=topic.name)


@pytest.mark.breadth
def test_names_are_counted_in_any_case(lake: Lake, topic: Topic) -> None:
    """More records than are looked at first have no such field, and Spark finds it in the last one."""
    topic.send(*((None, {"op": "c", "after": {"k": "x", "at": {}}}) for _ in range(1000)), partition=0)
    topic.send((None, {"op": "c", "AFTER": {"K": "last", "At": {"City": "Zug"}}}), partition=0)
    value = {"format": "debezium", "schema": "k STRING, at STRUCT<city: STRING>"}
    assert lake.pipeline(value=value).run().rows == 1001
    assert lake.sql("SELECT at.city FROM {t} WHERE k = 'last'") == [("Zug",)]


def test_with_warn_the_run_says_so_and_goes_on(lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    send(topic, "a")
    with caplog.at_level(logging.WARNING):
        assert lake.pipeline(schema=WRONG, unmatched="warn").run().rows == 1
    (said,) = warnings(caplog)
    assert_told("misspelled_with_warn", said, topic=topic.name)


def test_a_field_that_is_renamed_later_is_a_warning(lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    schema = "k STRING, n INT, customer STRING"
    send(topic, "a")
    lake.pipeline(schema=schema).run()
    send(topic, "b", field="customer_")
    with caplog.at_level(logging.WARNING):
        assert lake.pipeline(schema=schema).run().rows == 1
    assert_told("renamed_later", warnings(caplog)[0], topic=topic.name)


@pytest.mark.breadth
def test_a_field_that_is_merely_absent_later_is_none(
    lake: Lake, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    schema = "k STRING, n INT, customer STRING"
    send(topic, "a")
    lake.pipeline(schema=schema).run()
    topic.send(("b", {"k": "b", "n": 1}))
    with caplog.at_level(logging.WARNING):
        lake.pipeline(schema=schema).run()
        topic.send(("c", {"k": "c", "n": 1}))
    assert warnings(caplog) == []
    with pytest.raises(SchemaMismatch, match="customer"):
        lake.pipeline(schema=schema, unmatched="fail").run()


@pytest.mark.breadth
def test_a_batch_of_a_consumer_group_is_not_taken_for_the_first(lake: Lake, topic: Topic) -> None:
    pipeline = lake.pipeline(schema="k STRING, n INT, customer STRING", delivery="manual_commit")
    send(topic, "a")
    pipeline.run()
    topic.send(("b", {"k": "b", "n": 1}))
    assert pipeline.run().rows == 1


@pytest.mark.breadth
def test_two_phase_commit_stops_before_anything_is_prepared(lake: Lake, topic: Topic) -> None:
    send(topic, "a")
    sinks = [{"type": "delta_append", "path": str(lake.path(name))} for name in ("append", "other")]
    options = lake.options(schema=WRONG) | {"sinks": sinks, "coordinator": {"path": str(lake.folder / "log")}}
    from connector import Pipeline

    with pytest.raises(SchemaMismatch, match="custmer"):
        Pipeline.from_options(options).run()
    assert not lake.path().exists()
    assert Pipeline.from_options(options | {"unmatched": "warn"}).run().epochs == 1


@pytest.mark.breadth
def test_check_says_it_too(lake: Lake, topic: Topic) -> None:
    send(topic, "a")
    done = lakelock("check", lake.file(schema=WRONG))
    assert done.returncode == 2
    assert "Did you mean customer?" in done.stderr
