"""Kafka's clients: one block of options for all of them, and what it means when a broker refuses, or none answers."""

from __future__ import annotations

from sinks.kafka.clients import Clients
from sinks.kafka.options import ANSWER_WITHIN_MS, SECRET, client_options, faults, spark_options
from sinks.kafka.reader import spark_reader
from sinks.kafka.refusals import answering, not_authorized, reader_refused, refused

__all__ = [
    "ANSWER_WITHIN_MS",
    "SECRET",
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
