"""The pipeline files of the lab: records ``{"k": ..., "n": ...}``, short Kafka sessions, Spark for short runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from connector.lab.check.history import Sink
from connector.spark import java
from connector.spark.tuning import INTERPRETED

SHORT_LIVED = {
    "spark.driver.extraJavaOptions": f"{java.QUICK_START} -XX:ReservedCodeCacheSize=256m",
    **INTERPRETED,
}
"""Spark settings for short runs. Spark starts in half the time."""

QUICK_MEMBER = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "auto.commit.interval.ms": "300"}
"""Kafka settings with which a killed member leaves its group soon, and auto-commit comes soon."""


def write_pipeline(
    file: Path,
    *,
    name: str,
    delivery: str,
    sink: Sink,
    table: Path,
    topic: str,
    max_records: int,
    kafka: Mapping[str, str],
    **more: object,
) -> None:
    """Write a pipeline file. ``kafka``: Kafka settings, including the servers. ``more``: other pipeline options;
    None takes one away."""
    key = {"key": "k"} if sink == "upsert" else {}
    document = {
        "name": name,
        "delivery": delivery,
        # A killed member leaves its group after this time.
        "source": {
            "topics": [topic],
            "kafka": {"session.timeout.ms": QUICK_MEMBER["session.timeout.ms"], **kafka},
        },
        "value": {"format": "json", "schema": "k STRING, n INT"},
        "epoch": {"max_records": max_records},
        "spark": SHORT_LIVED,
        "sinks": [{"type": f"delta_{sink}", "path": str(table), **key}],
        **more,
    }
    given = {name: value for name, value in document.items() if value is not None}
    # JSON is valid YAML.
    file.write_text(json.dumps(given, indent=2), encoding="utf-8")
