"""The options that say how often records are read, and how many at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import Field, field_validator

from connector.config.kinds import Duration, Options, word_or_options


class Interval(Options):
    interval: Duration

    @field_validator("interval")
    @classmethod
    def _positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("the interval must be longer than 0 seconds")
        return value


class Latency(Options):
    """Again and again, as seldom as lets every record be committed within this time of its arrival in Kafka."""

    target_latency: Annotated[Duration, Field(gt=timedelta(0))]


def as_trigger(value: object) -> object:
    model = Latency if isinstance(value, Mapping) and "target_latency" in value else Interval
    return word_or_options(
        value,
        ("available_now",),
        model,
        write="available_now, {interval: 10 seconds} or {target_latency: 30 seconds}",
    )


class EpochBound(Options):
    max_records: Annotated[int, Field(ge=1)] = 2_000_000
    """Of one commit; the topics' partitions share it fairly."""
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    """Of keys and values, as they are in Kafka's records: uncompressed."""
    target_duration: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """Epochs grow and shrink to take about that long, within the bounds."""


class Retry(Options):
    attempts: Annotated[int, Field(ge=1)] = 5
    """Of what failed and may pass (a broker, a store, an executor that is away), one after the other, with no epoch in
    between; 1: any failure stops the run."""
    longest_wait: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=1)
    """Between two of them: it begins with a second, and doubles."""


class EveryRecords(Options):
    records: Annotated[int, Field(ge=1)]


def as_commit_every(value: object) -> object:
    return word_or_options(value, ("batch", "record"), EveryRecords, write="batch, record or {records: 100}")
