"""Debezium's control events, as the connector and the auditor know them."""

from __future__ import annotations

import pytest

from connector.audit.control import is_of_control
from connector.decode.control_events import is_of_schema


@pytest.mark.parametrize(
    ("name", "control"),
    [
        ("io.debezium.connector.common.Heartbeat", True),
        ("io.debezium.connector.common.TransactionMetadataValue", True),
        ("io.debezium.connector.mysql.SchemaChangeValue", True),
        ("io.debezium.connector.postgresql.MessageValue", True),
        ("shop.public.orders.Envelope", False),
        ("shop.public.Heartbeat", False),
        ("Heartbeat", False),
        ("io.debezium.connector", False),
        ("io.debezium.connectors.Heartbeat", False),
        ("io.debezium.connector.mysql.Source", False),
        ("io.debezium.connector.mysql.SchemaChangeValue2", False),
        ("", False),
    ],
)
def test_the_name_of_an_avro_schema_tells_a_control_event(name: str, control: bool) -> None:
    assert is_of_schema(name) is is_of_control(name) is control
