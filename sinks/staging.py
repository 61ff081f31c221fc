"""`Staging` under its old name, for custom sinks that were written against it."""

from sinks.spark.staging import Staging

__all__ = ["Staging"]
