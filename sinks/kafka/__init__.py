"""Kafka clients with one set of options for all of them, and clear errors when a broker refuses or doesn't answer."""

from __future__ import annotations

from sinks.kafka.clients import Clients
from sinks.kafka.options import ANSWER_WITHIN_MS, SECRET, client_options, faults, spark_options
from sinks.kafka.reader import EARLIEST_MILLIS, LATEST_MILLIS, TOLD_TIMESTAMP, spark_reader
from sinks.kafka.refusals import answering, no_timestamp, not_authorized, reader_refused, refused

__all__ = [
    "ANSWER_WITHIN_MS",
    "EARLIEST_MILLIS",
    "LATEST_MILLIS",
    "SECRET",
    "TOLD_TIMESTAMP",
    "Clients",
    "answering",
    "client_options",
    "faults",
    "no_timestamp",
    "not_authorized",
    "reader_refused",
    "refused",
    "spark_options",
    "spark_reader",
]
