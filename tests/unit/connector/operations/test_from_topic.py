"""The pipeline file that a look at records makes."""

import json
from typing import NamedTuple

import pytest
import yaml

from connector.config import (
    AvroFormat,
    DebeziumFormat,
    DeltaAppendSink,
    DeltaUpsertSink,
    JsonFormat,
    PipelineConfig,
    parse,
)
from connector.operations.from_topic import written

KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None


def sent(key: object, value: object) -> Sent:
    return Sent(*(each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in (key, value)))


def file_for(*records: Sent, topic: str = "orders", kafka: dict[str, str] = KAFKA) -> PipelineConfig:
    return parse(yaml.safe_load(written(topic, kafka, records).text))


def columns(config: PipelineConfig) -> str:
    return " ".join(config.value.schema_.split())  # type: ignore[union-attr]


def test_json_gets_its_columns_and_the_key_that_kafkas_key_is() -> None:
    first = {"id": 1, "at": "2026-11-01T10:00:00.5Z", "name": "a"}
    second = {"id": 2, "at": "2026-11-01 10:00:00+01:00", "odd name": [1.5]}
    config = file_for(sent(b"1", first), sent(b"2", second), sent(b"2", None))
    assert columns(config) == "`id` BIGINT, `at` TIMESTAMP, `name` STRING, `odd name` ARRAY<DOUBLE>"
    (sink,) = config.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert (sink.key, sink.path, config.name) == (("id",), sink.path, "orders")
    assert sink.path is not None
    assert sink.path.endswith("lake/orders")


@pytest.mark.parametrize("keys", [[b"7", b"2"], [None, b"2"], [b'{"other": 1}', b'{"other": 2}'], [None, None]])
def test_a_key_that_is_no_column_makes_no_key(keys: list[bytes | None]) -> None:
    config = file_for(*(sent(key, {"id": number}) for number, key in enumerate(keys, 1)))
    assert isinstance(config.sinks[0], DeltaAppendSink)


def test_a_record_that_is_no_json_takes_nothing_from_the_others_and_is_told() -> None:
    rows = [sent(str(n).encode(), {"id": n}) for n in range(3)]
    config = file_for(*rows, sent(b"9", b'{"id": '))
    assert isinstance(config.value, JsonFormat)
    assert isinstance(config.sinks[0], DeltaUpsertSink)
    told = " ".join(written("orders", KAFKA, [*rows, sent(b"9", b'{"id": ')]).remarks)
    assert "newest row of each id" in told
    assert "1 of 4 values is no JSON object" in told
    assert (config.on_bad_record, file_for(*rows).on_bad_record) == ("dead_letter", "fail")
    assert config.dead_letters is not None
    assert str(config.dead_letters.path).endswith("lake/orders_dead")
    assert "no JSON object" not in " ".join(written("orders", KAFKA, rows).remarks)

    event = {"op": "c", "before": None, "after": {"id": 7}}
    assert isinstance(file_for(sent({"id": 7}, event), sent({"id": 7}, b"{")).value, DebeziumFormat)
    config = file_for(*(sent(None, framed({"id": n})) for n in range(2)), sent(None, framed({"id": 3})[:-2]))
    assert isinstance(config.value, JsonFormat)
    assert config.value.wire_format == "confluent"


def test_a_key_that_only_kafka_has_is_the_key_of_a_table_with_deletes() -> None:
    config = file_for(sent(b"c-1", {"name": "a"}), sent(b"c-1", None))
    (sink,) = config.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.key == ("_key",)
    assert config.key is not None
    assert config.key.format == "string"

    config = file_for(sent({"shop": 1, "sku": "x"}, {"n": 1}), sent({"shop": 2, "sku": "x"}, None))
    assert isinstance(config.key, JsonFormat)
    assert " ".join(str(config.key.schema_).split()) == "`shop` BIGINT, `sku` STRING"
    (sink,) = config.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.key == ("_key",)

    # Without a delete nothing says that a later record replaces an earlier one.
    draft = written("clicks", KAFKA, [sent(b"anna", {"page": "a"}), sent(b"anna", {"page": "b"})])
    assert isinstance(parse(yaml.safe_load(draft.text)).sinks[0], DeltaAppendSink)
    assert "or key: kafka_key" in draft.text
    assert draft.remarks == ["The table keeps every record (delta_append)."]
    assert isinstance(file_for(sent(b"\xff", {"n": 1}), sent(b"\xff", None)).sinks[0], DeltaAppendSink)
    assert isinstance(file_for(sent(b"a", {"kafka_key": 1}), sent(b"a", None)).sinks[0], DeltaAppendSink)
    draft = written("clicks", KAFKA, [sent(b"a", {"_Key": 1, "n": 2, "_offset": 3}), sent(b"a", None)])
    assert columns(parse(yaml.safe_load(draft.text))) == "`n` BIGINT"
    assert "# _Key, _offset: left out" in draft.text


def test_a_text_that_may_be_meant_as_something_else_is_said_so() -> None:
    row = {
        "total": "1.50",
        "at": "2026-11-01 10:00:00",
        "name": "1.50 each",
        "sent": "2026-11-01T10:00:00Z",
        "day": "2026-11-01",
    }
    text = written("orders", KAFKA, [sent(None, row), sent(None, {**row, "name": "x", "at": None})]).text
    assert "# total: numbers in quotes" in text
    assert "# at: times" in text
    assert "# day: dates" in text
    assert columns(parse(yaml.safe_load(text))) == (
        "`total` STRING, `at` STRING, `name` STRING, `sent` TIMESTAMP, `day` STRING"
    )


def test_a_key_of_several_columns() -> None:
    config = file_for(*(sent({"a": n, "b": "x"}, {"a": n, "b": "x", "n": n}) for n in range(2)))
    (sink,) = config.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.key == ("a", "b")


def test_debeziums_events_are_known() -> None:
    row = {"id": 7, "name": "x"}
    events = [
        {"op": "c", "before": None, "after": row},
        {"schema": {}, "payload": {"op": "d", "before": row, "after": None}},
    ]
    config = file_for(*(sent({"id": 7}, event) for event in events), sent({"id": 7}, None))
    assert isinstance(config.value, DebeziumFormat)
    assert columns(config) == "`id` BIGINT, `name` STRING"
    assert isinstance(config.sinks[0], DeltaUpsertSink)
    assert config.value.tx_id is None


@pytest.mark.parametrize(("tx_id", "kind"), [("6.28.807", "string"), (571, None), (None, None)])
def test_events_whose_transactions_have_texts_for_ids_are_known(tx_id: str | int | None, kind: str | None) -> None:
    event = {"op": "c", "before": None, "after": {"id": 7}, "source": {"txId": tx_id}}
    for value in (event, framed(event), {"schema": {}, "payload": event}):
        config = file_for(sent(None, value))
        assert isinstance(config.value, DebeziumFormat)
        assert config.value.tx_id == kind


def test_other_formats() -> None:
    of_registry = sent(None, b"\0\0\0\0\7\x02a")
    assert isinstance(file_for(of_registry).value, AvroFormat)
    assert "format: avro    # or protobuf" in written("t", {}, [of_registry]).text
    assert file_for(sent(None, b"a line"), sent(None, b"\xc3\xa9")).value.format == "string"
    assert file_for(sent(None, b"\xff\xfe")).value.format == "bytes"
    lines = file_for(sent(None, b"a line"), sent(None, b"another"), sent(None, {"id": 1}))
    assert (lines.value.format, lines.on_bad_record) == ("string", "fail")


def framed(value: object, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()


def test_json_after_confluents_header_is_known_in_values_and_keys() -> None:
    row = {"id": 1, "at": "2026-11-01T10:00:00Z"}
    config = file_for(sent(framed({"id": 1}), framed(row)), sent(framed({"id": 2}), framed({"id": 2}, 8)))
    for format in (config.value, config.key):
        assert isinstance(format, JsonFormat)
        assert format.wire_format == "confluent"
    assert columns(config) == "`id` BIGINT, `at` TIMESTAMP"
    assert " ".join(config.key.schema_.split()) == "`id` BIGINT"  # type: ignore[union-attr]
    (sink,) = config.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.key == ("id",)


def test_debeziums_events_after_confluents_header_are_known() -> None:
    event = {"op": "c", "before": None, "after": {"id": 7, "name": "x"}}
    config = file_for(sent(framed({"id": 7}), framed(event)), sent(framed({"id": 7}), None))
    assert isinstance(config.value, DebeziumFormat)
    assert config.value.wire_format == "confluent"
    assert columns(config) == "`id` BIGINT, `name` STRING"
    assert isinstance(config.key, JsonFormat)
    assert config.key.wire_format == "confluent"


def test_a_key_of_text_beside_a_framed_value_needs_no_format() -> None:
    config = file_for(sent(b"1", framed({"id": 1})), sent(b"1", None))
    assert config.key is None
    assert isinstance(config.sinks[0], DeltaUpsertSink)
    config = file_for(sent(framed({"other": 1}), framed({"id": 1})))
    assert config.key is None
    assert isinstance(config.sinks[0], DeltaAppendSink)


def test_values_with_and_without_the_header_are_nothing_in_particular() -> None:
    assert file_for(sent(None, framed({"id": 1})), sent(None, b'{"id": 1}')).value.format == "json"
    assert file_for(sent(None, framed({})), sent(None, framed([1]))).value.format == "avro"


def test_names_and_options_are_quoted_as_they_need() -> None:
    kafka = {**KAFKA, "sasl.jaas.config": "${env:LAKELOCK_TEST_JAAS}", "client.id": 'a "b": #c'}
    text = written("Odd.Topic-1", kafka, [sent(None, {"a:b #c": 1, "`": True})]).text
    assert yaml.safe_load(text)["source"]["kafka"] == kafka
    assert "```` BOOLEAN" in text
    assert yaml.safe_load(text)["name"] != "Odd.Topic-1"
