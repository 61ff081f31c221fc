"""The options that set how often a run reads, how many records an epoch has, and how often it retries."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from connector.config.kinds import Duration, Options, word_or_options


class Interval(Options):
    """Start a round of epochs at this interval. 0: as soon as the round before has ended."""

    interval: Annotated[Duration, Field(ge=timedelta(0))]


class Latency(Options):
    """Start epochs as seldom as possible, while each record is committed within ``target_latency`` of its arrival."""

    target_latency: Annotated[Duration, Field(gt=timedelta(0))]


def as_trigger(value: object) -> object:
    """Read the option ``trigger``. Raises ValueError."""
    by_latency = isinstance(value, Latency) or (isinstance(value, Mapping) and "target_latency" in value)
    model = Latency if by_latency else Interval
    return word_or_options(
        value,
        ("available_now",),
        model,
        write="available_now, {interval: 10 seconds} or {target_latency: 30 seconds}",
    )


class EpochBound(Options):
    """The limits of an epoch."""

    max_records: Annotated[int, Field(ge=1)] = 2_000_000
    """The largest number of records in an epoch, which is one commit. Partitions share it fairly, so none is left
    behind."""
    max_bytes: Annotated[int, Field(ge=1)] | None = None
    """The largest size of an epoch in bytes: keys and values, uncompressed. It is an estimate from the next few
    records, and so may be exceeded slightly. No limit by default."""
    target_duration: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """How long an epoch should take. Its number of records grows and shrinks towards that time, within ``max_records``
    and ``max_bytes``. By default every epoch may use the limits in full."""


class Retry(Options):
    """How long to retry after transient failures."""

    attempts: Annotated[int, Field(ge=1)] = 5
    """How many consecutive transient failures to tolerate (a broker, an object store or an executor is unavailable).
    The run fails with the last of them. A committed epoch resets the count. 1: the first failure stops the run."""
    longest_wait: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=1)
    """The longest wait between two attempts. The wait starts at 1 second and doubles with each failure."""
    restart_after: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """In a run of several pipelines with an interval: how long after it has failed the pipeline is started again. Also
    after it was fenced, if whoever took over has committed nothing since. By default it stays stopped, and the others
    go on."""


class EveryRecords(Options):
    """Commit offsets after this number of records."""

    records: Annotated[int, Field(ge=1)]


def as_commit_every(value: object) -> object:
    """Read the option ``commit_every``. Raises ValueError."""
    return word_or_options(value, ("batch", "record"), EveryRecords, write="batch, record or {records: 100}")
