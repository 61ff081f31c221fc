"""The Kafka topic sink: one message per row, exactly once for read_committed readers."""

from sinks.topic.sink import KafkaTopic

__all__ = ["KafkaTopic"]
