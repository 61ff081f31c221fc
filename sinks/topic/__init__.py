"""Rows as messages of a Kafka topic, exactly once for read_committed readers."""

from sinks.topic.sink import KafkaTopic

__all__ = ["KafkaTopic"]
