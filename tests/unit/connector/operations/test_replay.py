"""Where the tables of a replay are, and what isn't a table."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import DeltaSink, PipelineConfig, parse
from connector.operations.replay import into_new_tables, new_places
from connector.operations.rewind import WhereTo, one_goal
from sinks.errors import ConfigurationError

OPTIONS: dict[str, Any] = {
    "name": "shop",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "value": {"format": "json", "schema": "kind STRING, id INT"},
    "coordinator": {"path": "lake/_log"},
}
TABLES = [{"type": "delta_append", "path": "lake/all"}, {"type": "delta_upsert", "table": "shop.latest", "key": "id"}]


def of(**options: Any) -> PipelineConfig:
    return parse({**OPTIONS, **options})


def test_several_tables_keep_their_last_names_in_the_folder() -> None:
    config = of(sinks=[*TABLES, {"type": "delta_append", "path": "other/all"}])
    anew = into_new_tables(config, "new", None)
    places = [sink.place for sink in anew.sinks]
    assert places[1] == "new/latest"
    assert len({*places}) == 3
    assert all(place.startswith("new/all_") for place in places[::2])
    assert anew.coordinator is not None
    assert anew.coordinator.place == "new/_coordinator"
    assert (anew.name, anew.trigger, anew.shape == config.shape) == ("shop", "available_now", False)
    assert list(new_places(config, "new").items())[1:] == [
        ("sinks[1].path", "new/latest"), ("sinks[2].path", places[2]), ("coordinator.path", "new/_coordinator"),
    ]  # fmt: skip


def test_the_tables_of_a_route_stay_apart_wherever_they_were() -> None:
    route = {
        "by": "kind",
        "sink": {"type": "delta_append", "path": "lake/{kind}"},
        "other": {"type": "delta_append", "table": "shop.others"},
        "overrides": {"b": {"sink": {"path": "elsewhere/b", "type": "delta_upsert", "key": "id"}}},
    }
    anew = into_new_tables(of(route=route), "new", None)
    sinks = [anew.routed(name).sinks[0] for name in ("a", "b", "(other)")]
    assert [sink.place for sink in sinks] == ["new/a", "new/b", "new/_other"]
    assert sinks[1].type == "delta_upsert"
    assert all(isinstance(sink, DeltaSink) and sink.table is None for sink in sinks)


def test_what_is_no_table_is_refused_by_name() -> None:
    config = of(sinks=[*TABLES, {"type": "s3_objects", "url": "s3://b/p"}, {"type": "kafka_topic", "topic": "out"}])
    with pytest.raises(ConfigurationError, match=r"sinks\[2\].type, sinks\[3\].type is another kind of sink"):
        into_new_tables(config, "new", None)


def test_a_rewind_of_several_tables_goes_to_an_epoch() -> None:
    config = of(sinks=TABLES)
    assert one_goal(config, None, None, 3) == WhereTo(epoch=3)
    with pytest.raises(ConfigurationError, match="each has versions of its own"):
        one_goal(config, None, 3, None)
    with pytest.raises(ConfigurationError, match="Give one of them"):
        one_goal(config, None, 3, 3)
