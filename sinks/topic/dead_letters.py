"""Dead letters as messages of a topic, with the original key, value and headers, and with the reason.

They are written before the commit of their epoch. A topic can't be asked which messages it has. So when an epoch is
repeated after a crash or a failed task, its dead letters are written again. Their coordinates identify them.
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
"""A record from a topic must not exceed the client's limit, 1 MiB by default, because of the headers added here."""
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
"""The headers that are added, named ``lakelock.`` and this key, with text values. Empty ones are left out."""


class TopicDeadLetters:
    """The dead-letter topic of one pipeline. Delivers each dead letter at least once."""

    def __init__(self, topic: str, *, pipeline: str, kafka: Mapping[str, str]) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._kafka = kafka

    def check(self) -> None:
        """Check that the topic exists. Raises TopicMissing: a broker might create it with any settings."""
        clients = Clients(self._kafka, group=self._pipeline)
        try:
            Target(self._topic, clients).check()
        finally:
            clients.close()

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """Write an epoch's dead letters, with the columns that ``sinks.delta.dead_letters`` takes.

        The executors write them. All are acknowledged when it returns.
        """
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
