"""Debezium's events without Spark: the types of their columns, and what stands for a value that wasn't sent."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import Any

import pytest
from ddl import columns_of
from pyspark.sql.types import StringType, StructType

from connector.audit import debezium as auditor
from connector.audit.formats import forms
from connector.config import DebeziumFormat, PipelineConfig, parse
from connector.decode import record_format
from connector.decode.unavailable import unavailable
from sinks.errors import ConfigurationError
from sinks.spark.schema_changes import Differences, differences


@pytest.mark.parametrize("placeholder", ["__debezium_unavailable_value", "nö value"])
def test_a_text_that_stands_for_a_value_that_was_not_sent_is_known_in_each_form(placeholder: str) -> None:
    sent = placeholder.encode()
    forms = {
        placeholder, sent.hex(), base64.b64encode(sent).decode(), base64.urlsafe_b64encode(sent).decode(),
        json.dumps({placeholder: placeholder}, ensure_ascii=False, separators=(",", ":")),  # of an hstore
    }  # fmt: skip
    events = auditor.Events(StructType(), placeholder, "null", permissive=False)
    sqls = unavailable("sent", StringType(), placeholder), events._absent(StringType(), "sent")
    for sql in sqls:
        assert sql is not None
        told = [sqlite3.connect(":memory:").execute(f"SELECT {sql} FROM (SELECT ? AS sent)", [text]).fetchone()[0]
                for text in (*forms, f"about {placeholder}", "{}", json.dumps({"about": placeholder}))]  # fmt: skip
        assert told == [1] * len(forms) + [0] * 3


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark alone knows its DDL, and only with a JVM."""
    monkeypatch.setattr(StructType, "fromDDL", staticmethod(columns_of), raising=False)  # Spark 3.5 has none


def config(**value: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT", **value},
            "sinks": [{"type": "delta_append", "path": "lake/t"}],
        }
    )


def of_events(**value: Any) -> list[StructType]:
    """The columns of events, as the pipeline and the auditor have them."""
    made = config(**value)
    assert isinstance(made.value, DebeziumFormat)
    found = record_format("value", made.value, None, ["t"]).type, forms(made).value.type  # type: ignore[arg-type]
    assert all(isinstance(kind, StructType) for kind in found)
    return list(found)  # type: ignore[arg-type]


def test_a_table_that_is_there_has_the_types_of_events(without_spark: None) -> None:
    there = columns_of(
        "id INT, _op STRING, _source STRUCT<version: STRING, connector: STRING, name: STRING, ts_ms: BIGINT, "
        "snapshot: STRING, db: STRING, schema: STRING, table: STRING, txId: BIGINT, lsn: BIGINT, file: STRING, "
        "pos: BIGINT, row: BIGINT, gtid: STRING, commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT, "
        "scn: STRING, commit_scn: STRING>, _ts_ms BIGINT, "
        "_transaction STRUCT<id: STRING, total_order: BIGINT, data_collection_order: BIGINT>, _source_position STRING"
    )
    assert [differences(there, kind) for kind in of_events()] == [Differences(), Differences()]


def test_ids_of_transactions_are_texts_where_the_file_says_so(without_spark: None) -> None:
    ours, auditors = of_events(tx_id="string")
    assert ours == auditors
    numbers, _ = of_events()
    assert differences(numbers, ours).others == {"_source.txId": "is bigint in the table, string in the pipeline"}


def test_an_epoch_in_doubt_of_an_earlier_version_is_read_by_the_same_file() -> None:
    assert config().shape == "ae3d47e954f6a997"
    assert config(tx_id="string").shape != config().shape


def test_what_the_file_says_of_ids_is_of_events_in_json() -> None:
    with pytest.raises(ConfigurationError, match="tx_id: is for events in JSON, with schema"):
        of_events(schema=None, registry={"url": "http://127.0.0.1:8081"}, tx_id="string")
