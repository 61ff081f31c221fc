"""Kafka clients with one set of options for all of them, and clear errors when a broker refuses or doesn't answer."""

from __future__ import annotations

from sinks.kafka.clients import Clients
from sinks.kafka.options import ANSWER_WITHIN_MS, SECRET, client_options, faults, spark_options
from sinks.kafka.reader import spark_reader
from sinks.kafka.refusals import UNFIT_TIMESTAMP, answering, not_authorized, reader_refused, refused

__all__ = [
    "ANSWER_WITHIN_MS",
    "SECRET",
    "UNFIT_TIMESTAMP",
    "Clients",
    "answering",
    "client_options",
    "faults",
    "not_authorized",
    "reader_refused",
    "refused",
    "spark_options",
    "spark_reader",
]
