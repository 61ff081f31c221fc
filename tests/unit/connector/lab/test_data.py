"""The flights as the package has them, and as records."""

import importlib.util
import json
import zipfile
from pathlib import Path

import pytest

from connector.lab.bench.data import FLIGHTS_SCHEMA, Flight, flight_key, flight_value, flights, flights_csv
from sinks.errors import ConfigurationError

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)
FIRST: Flight = {
    "year": 2013,
    "month": 1,
    "day": 1,
    "dep_time": 517,
    "sched_dep_time": 515,
    "dep_delay": 2,
    "arr_time": 830,
    "sched_arr_time": 819,
    "arr_delay": 11,
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": 227,
    "distance": 1400,
    "hour": 5,
    "minute": 15,
    "event_time": "2013-01-01T05:15:00Z",
}


@pytest.fixture(scope="module")
def times() -> list[str]:
    return [flight["event_time"] for flight in flights()]


def zipped(folder: Path, *rows: str) -> Path:
    with zipfile.ZipFile(folder / "f.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, *rows]) + "\n")
    return folder / "f.zip"


@pytest.mark.flights
def test_there_are_336776_flights(times: list[str]) -> None:
    assert len(times) == 336_776


@pytest.mark.flights
def test_they_come_in_the_order_of_their_event_time(times: list[str]) -> None:
    assert times == sorted(times)
    assert (times[0], times[-1]) == ("2013-01-01T05:15:00Z", "2013-12-31T23:59:00Z")


def test_the_first_flight() -> None:
    assert next(flights()) == FIRST


def test_what_is_not_known_is_none(tmp_path: Path) -> None:
    cancelled = "2013,1,2,NA,1540,NA,NA,1747,,EV,4352,NA,EWR,CVG,NA,569,15,40,2013-01-02T20:00:00Z"
    (flight,) = flights(zipped(tmp_path, cancelled))
    unknown = {name for name, value in flight.items() if value is None}
    assert unknown == {"dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"}
    assert flight["event_time"] == "2013-01-02T15:40:00Z"


def test_days_are_sorted_as_numbers_and_equal_times_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    row = "2013,{},{},1,{},0,1,1,0,AA,{},N1,JFK,LAX,1,1,0,0,x"
    file = zipped(
        tmp_path,
        row.format(10, 1, 5, 1),
        row.format(2, 10, 5, 2),
        row.format(2, 9, 900, 3),
        row.format(2, 9, 30, 4),
        row.format(2, 9, 900, 5),
    )
    assert [flight["flight"] for flight in flights(file)] == [4, 3, 5, 2, 1]


def test_the_schema_names_the_columns_of_a_record_in_order() -> None:
    columns = [column.split() for column in FLIGHTS_SCHEMA.split(",")]
    assert [name for name, _ in columns] == list(FIRST)
    strings = {name for name, kind in columns if kind == "STRING"}
    assert strings == {"carrier", "tailnum", "origin", "dest"}
    assert {name: kind for name, kind in columns if kind not in ("INT", "STRING")} == {"event_time": "TIMESTAMP"}


def test_the_key_is_carrier_and_number() -> None:
    assert flight_key(FIRST) == b"UA1545"


def test_the_value_is_compact_json() -> None:
    value = flight_value(FIRST)
    assert value.startswith(b'{"year":2013,"month":1,')
    assert json.loads(value) == FIRST


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError) as error:
        flights_csv()
    assert error.value.hint == 'pip install "lakelock[demo]"'


def test_a_file_that_is_no_zip_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"x\.zip"):
        next(flights(tmp_path / "x.zip"))
