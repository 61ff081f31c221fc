"""The pipeline files of the lab: records ``{"k": ..., "n": ...}``, short sessions, and Spark made for short lives."""

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
"""Settings of a Spark that does little, and then ends: it starts in half the time."""

QUICK_MEMBER = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "auto.commit.interval.ms": "300"}
"""Kafka's options of a member that is killed, leaves its group soon, and commits by itself soon."""


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
    """``kafka``: Kafka's options, its servers among them. ``more``: further options of a pipeline file."""
    key = {"key": "k"} if sink == "upsert" else {}
    document = {
        "name": name,
        "delivery": delivery,
        # A member that was killed leaves its group after its session.
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
    # JSON is YAML.
    file.write_text(json.dumps(document, indent=2), encoding="utf-8")
