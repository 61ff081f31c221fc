"""No two tables of a route have one place, however the file spells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connector.config import DeltaSink, PipelineConfig, parse
from connector.engine.routed_places import RoutedPlaces
from sinks.errors import ConfigurationError


def config(place: dict[str, str], override: dict[str, str], **changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "kind STRING, id INT"},
            "coordinator": {"path": "lake/log"},
            "route": {"by": "kind", "sink": {"type": "delta_append", **place}, "overrides": {"b": {"sink": override}}},
            **changes,
        }
    )


def taken(config: PipelineConfig, *names: str) -> RoutedPlaces:
    places = RoutedPlaces(config)
    for name in names:
        (sink,) = config.routed(name).sinks
        assert isinstance(sink, DeltaSink)
        places.take(name, sink)
    return places


@pytest.mark.parametrize(
    ("place", "override"),
    [
        ({"path": "s3a://lake/{kind}"}, {"path": "s3a://lake/refunds/"}),
        ({"path": "s3a://lake/{kind}"}, {"path": "s3://lake/refunds"}),
        ({"path": "gs://lake/{kind}"}, {"path": "GS://lake//refunds"}),
        ({"path": "lake/{kind}"}, {"path": "./lake//refunds/"}),
        ({"path": "lake/{kind}"}, {"path": str(Path.cwd() / "lake/refunds")}),
        ({"table": "sales.{kind}"}, {"table": "sales.Refunds"}),
        ({"table": "sales.{kind}"}, {"table": "`Sales`.refunds"}),
    ],
)
def test_two_spellings_of_one_place_are_refused(place: dict[str, str], override: dict[str, str]) -> None:
    shared = config(place, override)
    taken(shared, "a", "refunds")
    for names in (("b", "refunds"), ("refunds", "b")):
        with pytest.raises(ConfigurationError, match="have one place"):
            taken(shared, *names)


def test_names_in_another_case_are_another_folder() -> None:
    taken(config({"path": "lake/{kind}"}, {"path": "lake/Refunds"}), "b", "refunds")


@pytest.mark.parametrize("log", ["./lake/log", "lake/log/"])
def test_no_value_has_the_place_of_the_log(log: str) -> None:
    with pytest.raises(ConfigurationError, match="the table of 'log' and coordinator have one place"):
        taken(config({"path": "lake/{kind}"}, {"path": "lake/b"}, coordinator={"path": log}), "log")


def test_what_is_one_table_in_delta_is_refused() -> None:
    places = taken(config({"path": "lake/{kind}"}, {"path": "lake/link"}), "a", "b", "refunds")
    places.refuse_one_table({"a": "id of a", "b": "", "refunds": ""})  # two that aren't there
    places.refuse_one_table({"a": "id of a", "refunds": "id of refunds"})
    with pytest.raises(ConfigurationError, match="the table of 'b' and the table of 'refunds' have one place, 'lake/l"):
        places.refuse_one_table({"b": "id of refunds"})
