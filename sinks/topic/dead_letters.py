"""Records that don't get into the sinks, as messages of a topic: key, value, headers as they were, and what is wrong.

They are there before the commit of their epoch, which passes them. A topic can't be asked what it holds already: where
an epoch is tried again, after a crash or a failed task, its letters are there once more. The coordinates tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinks.contract import Epoch
from sinks.delta.dead_letters import identified
from sinks.kafka import Clients, spark_options
from sinks.spark.sql import literal
from sinks.topic.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DEFAULTS = {"max.request.size": str(32 * 1024 * 1024)}
"""A record that its own topic took isn't to fail at the client's limit, 1 MiB, for the headers that it gets here."""
_OURS = {"acks": "all"}
HEADERS = {
    "pipeline": "",
    "sink": "sink",
    "reason": "reason",
    "detail": "detail",
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "epoch": "",
    "window_start": "window_start",
    "window_end": "window_end",
}
"""Headers that are added, ``lakelock.`` and this: text. One without a value isn't there."""


class TopicDeadLetters:
    """The letters of one pipeline. At least once."""

    def __init__(self, topic: str, *, pipeline: str, kafka: Mapping[str, str]) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._kafka = kafka

    def check(self) -> None:
        """Raises TopicMissing: a broker might make it with whatever settings, or let the writer wait for it."""
        clients = Clients(self._kafka, group=self._pipeline)
        try:
            Target(self._topic, clients).check()
        finally:
            clients.close()

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """As ``sinks.delta.dead_letters`` takes them. Written by the executors, all acknowledged when it returns."""
        known = {"pipeline": literal(self._pipeline), "epoch": str(int(epoch.number))}
        entries = ", ".join(
            f"named_struct('key', 'lakelock.{name}', 'value', CAST(CAST({sql} AS STRING) AS BINARY))"
            for name, sql in {**HEADERS, **known}.items()
        )
        added = f"filter(array({entries}), header -> header.value IS NOT NULL)"
        messages = identified(letters).selectExpr(
            "key", "value", f"CASE WHEN headers IS NULL THEN {added} ELSE concat(headers, {added}) END AS headers"
        )
        options = spark_options({**_DEFAULTS, **self._kafka, **_OURS})
        messages.write.format("kafka").options(**options).option("topic", self._topic).save()
