"""Real input: 336,776 flights, their hourly delays, aircraft and histories, against pandas."""

from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from connector import Pipeline
from connector.lab.bench.broker import Broker
from connector.lab.bench.data import flight_key, flight_value, flights, produce

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.compiled
A_DAY, ALL = 900, 336_776


@dataclass
class Flown:
    """A topic of flights, and what is in it."""

    source: dict[str, Any]
    flights: "pd.DataFrame"


@pytest.fixture(scope="module", params=[A_DAY, pytest.param(ALL, marks=pytest.mark.flights)])
def flown(broker: Broker, request: pytest.FixtureRequest) -> Flown:
    import pandas as pd

    topic = f"{request.param}-flights"
    broker.create_topic(topic, 4)
    sent = list(islice(flights(), request.param))
    assert len(sent) == request.param
    produce(broker.bootstrap, topic, ((flight_key(flight), flight_value(flight)) for flight in sent))
    frame = pd.DataFrame(sent)
    frame["event_time"] = pd.to_datetime(frame["event_time"], utc=True)
    return Flown({"topics": [topic], "kafka": {"bootstrap.servers": broker.bootstrap}}, frame)


def run(example: str, flown: Flown, spark: "SparkSession", folder: Path) -> "DataFrame":
    options: dict[str, Any] = yaml.safe_load(files("connector").joinpath("examples", f"{example}.yaml").read_text())
    options["source"] = flown.source
    options["sinks"][0]["path"] = str(folder / example)
    third = {"max_records": len(flown.flights) // 3 + 1}
    Pipeline.from_options({**options, "epoch": third}).run()
    return spark.read.format("delta").load(str(folder / example))


def test_hourly_delays_per_origin(flown: Flown, spark: "SparkSession", tmp_path: Path) -> None:
    found = run("hourly_delays", flown, spark, tmp_path)
    columns = "origin, unix_seconds(window_start) AS start, flights, delayed, mean_delay, worst, aircraft"
    rows = {(row["origin"], row["start"]): row for row in found.selectExpr(*columns.split(", ")).collect()}
    hours = flown.flights.groupby(["origin", flown.flights["event_time"].dt.floor("h")])
    assert len(rows) == hours.ngroups
    for (origin, hour), group in hours:
        row = rows[origin, int(hour.timestamp())]
        delays = group["dep_delay"].dropna()
        assert (row["flights"], row["delayed"]) == (len(group), int((delays > 15).sum()))
        assert row["worst"] == (None if delays.empty else int(delays.max()))
        assert (row["mean_delay"] is None) == delays.empty
        if not delays.empty:
            assert float(row["mean_delay"]) == pytest.approx(delays.mean(), abs=1e-4)
        assert row["aircraft"] == pytest.approx(group["tailnum"].nunique(), rel=0.05)


@pytest.mark.flights
def test_distinct_aircraft_per_carrier(flown: Flown, spark: "SparkSession", tmp_path: Path) -> None:
    counted = {"about": "approx_count_distinct(tailnum)", "exactly": "collect_set(tailnum, 5000)"}
    path = str(tmp_path / "carriers")
    sink = {"type": "delta_aggregate", "path": path, "group_by": "carrier", "aggregates": counted}
    value = {"format": "json", "schema": "carrier STRING, tailnum STRING"}
    Pipeline.from_options({"name": "carriers", "source": flown.source, "value": value, "sinks": [sink]}).run()
    rows = spark.read.format("delta").load(path).collect()
    expected = flown.flights.groupby("carrier")["tailnum"].agg(lambda tails: set(tails.dropna()))
    assert {row["carrier"]: set(row["exactly"]) for row in rows} == expected.to_dict()
    for row in rows:
        assert row["about"] == pytest.approx(len(expected[row["carrier"]]), rel=0.05)


@pytest.mark.flights
def test_history_of_aircraft_positions(flown: Flown, spark: "SparkSession", tmp_path: Path) -> None:
    found = run("aircraft_history", flown, spark, tmp_path)
    time = "unix_seconds({}.event_time)"
    columns = ["tailnum", "dest", time.format("__START_AT"), time.format("__END_AT")]
    versions = sorted((tuple(row) for row in found.selectExpr(*columns).collect()), key=str)
    rows = flown.flights.dropna(subset=["tailnum"]).sort_values(["tailnum", "event_time", "carrier", "flight"])
    moved = rows[rows["dest"] != rows.groupby("tailnum")["dest"].shift()].copy()
    moved["start"] = moved["event_time"].map(lambda at: int(at.timestamp()))
    moved["end"] = moved.groupby("tailnum")["start"].shift(-1)
    expected = [
        (row.tailnum, row.dest, row.start, None if row.end != row.end else int(row.end)) for row in moved.itertuples()
    ]
    assert versions == sorted(expected, key=str)
