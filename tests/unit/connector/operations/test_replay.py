"""Where the tables of a replay are, and what isn't a table."""

from __future__ import annotations

from contextlib import nullcontext
from copy import deepcopy
from datetime import datetime, timezone
from functools import partial, reduce
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import DeltaSink, PipelineConfig, parse
from connector.fleet import rewind as fleet
from connector.fleet.files import PipelineFile
from connector.fleet.rewind import replay_all, rewind_all
from connector.operations.replay import into_new_tables, new_places, old_tables
from connector.operations.rewind import NothingToRewind, WhereTo, one_goal
from sinks.errors import ConfigurationError, NoRecordYet, SchemaMismatch

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


ROUTES: list[dict[str, Any]] = [
    {"sink": {"type": "delta_append", "path": "lake/{kind}"}, "overrides": {"b": {"sink": {"path": "special/b"}}}},
    {
        "sink": {"type": "delta_append", "table": "shop.{route}"},
        "other": {"type": "delta_append", "table": "shop.others"},
        "overrides": {"b": {"sink": {"type": "delta_upsert", "key": "id"}}, "c": {"sink": {"table": "shop.third"}}},
    },
]


@pytest.mark.parametrize("log", ["path", "table"])
@pytest.mark.parametrize("route", ROUTES)
def test_the_file_as_the_command_says_has_every_table_of_the_replay(route: dict[str, Any], log: str) -> None:
    options = {**OPTIONS, "coordinator": {log: "shop.log"}, "route": {"by": "kind", **deepcopy(route)}}
    config = parse(options)
    for option in old_tables(config):
        *within, last = option.split(".")
        del reduce(lambda place, name: place[name], within, options)[last]
    for option, path in new_places(config, "new").items():
        *within, last = option.split(".")
        reduce(lambda place, name: place[name], within, options)[last] = path
    swapped, replayed = parse(options), into_new_tables(config, "new", None)
    values = ["a", "b", "c", *(["(other)"] if "other" in route else [])]
    for value in values:
        one, other = (config.routed(value).sinks[0] for config in (swapped, replayed))
        assert (one.place, one.type) == (other.place, other.type), value
    assert swapped.coordinator is not None
    assert replayed.coordinator is not None
    assert swapped.coordinator.place == replayed.coordinator.place


def test_sinks_by_the_name_of_a_table_lose_it() -> None:
    assert old_tables(of(sinks=TABLES)) == ["sinks[1].table"]
    assert old_tables(of(sinks=[TABLES[1]], coordinator=None)) == ["table"]
    assert old_tables(of(sinks=[TABLES[0]], coordinator=None)) == []


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


@pytest.mark.parametrize("into", ["lake/t/v2", "lake/t/", "lake/dead/new", "lake"], ids=lambda into: into)
def test_a_new_table_is_in_no_folder_of_an_old_one_and_around_none(into: str) -> None:
    config = of(
        sinks=[{"type": "delta_append", "path": "lake/t"}],
        coordinator=None,
        on_bad_record="dead_letter",
        dead_letters={"path": "lake/dead"},
    )
    with pytest.raises(ConfigurationError, match="Nothing was written"):
        into_new_tables(config, into, None)
    for beside in ("lake/t_v2", "lake/_new", "lake/t/_v2", "v2"):
        into_new_tables(config, beside, None)


def test_new_tables_of_several_sinks_and_of_a_route_keep_off_the_old_ones_too() -> None:
    route = {
        "by": "kind",
        "sink": {"type": "delta_append", "path": "lake/{kind}"},
        "overrides": {"b": {"sink": {"path": "elsewhere/b"}}},
    }
    routed = of(route=route)
    for into in ("lake", "elsewhere/b", "elsewhere/b/v2"):
        with pytest.raises(ConfigurationError, match="Nothing was written"):
            into_new_tables(routed, into, None)
    into_new_tables(routed, "lake/v2", None)
    sinks = of(sinks=[{"type": "delta_append", "path": "a"}, {"type": "delta_append", "path": "b"}])
    with pytest.raises(ConfigurationError, match="would lie in the folder of"):
        into_new_tables(sinks, "a", None)


def test_parts_of_one_file_keep_off_each_others_tables() -> None:
    parts = [of(name=name, sinks=[{"type": "delta_append", "path": name}], coordinator=None) for name in ("a", "b")]
    files = [PipelineFile(f"p.yaml#{config.name}", config) for config in parts]
    with pytest.raises(ConfigurationError, match="would lie in the folder of"):
        replay_all(files, "a/v2", lambda *_: pytest.fail("it was refused"), failed=lambda *_: None)


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Those of a file, by their names. The second one can't do what it is asked for."""
    broken = SchemaMismatch("Another run is at work.", hint="Wait.")

    def rewind(name: str, *, confirm: bool = False, **_: Any) -> str:
        if confirm and name == "b":
            raise broken
        return name

    found: dict[str, Any] = {name: SimpleNamespace(rewind=partial(rewind, name)) for name in ("a", "b", "c")}
    monkeypatch.setattr(fleet, "_opened", lambda *_: nullcontext(found))
    return found


def test_a_part_that_cannot_be_replayed_keeps_no_other_from_it(pipelines: dict[str, Any]) -> None:
    parts = [of(name=name, sinks=[{"type": "delta_append", "path": name}], coordinator=None) for name in pipelines]
    files = [PipelineFile(f"p.yaml#{config.name}", config) for config in parts]
    did: list[str] = []

    def replay(pipeline: Any, path: str) -> None:
        if pipeline is pipelines["b"]:
            raise ValueError(path)
        did.append(path)

    failed: list[tuple[str, str]] = []
    replay_all(files, "v2", replay, failed=lambda name, error: failed.append((name, str(error))))
    assert did == ["v2/a", "v2/c"]
    assert failed == [("b", "v2/b")]


def test_a_part_that_cannot_go_back_is_named_with_those_that_have(pipelines: dict[str, Any]) -> None:
    with pytest.raises(SchemaMismatch) as raised:
        rewind_all([], datetime.now(timezone.utc), confirm=lambda plans: list(plans) == [*pipelines])
    assert raised.value.message == "b: Another run is at work. Of these pipelines have gone back: a."
    assert raised.value.hint == "Wait. Give the same command again for the others."


@pytest.mark.parametrize("why", [NoRecordYet("no record yet"), NothingToRewind("no epoch")])
def test_a_part_without_an_epoch_keeps_no_other_from_going_back(
    pipelines: dict[str, Any], why: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def empty(**_: Any) -> None:
        raise why

    pipelines["b"] = SimpleNamespace(rewind=empty)
    with caplog.at_level("WARNING", "lakelock.rewind"):
        assert [*rewind_all([], datetime.now(timezone.utc), confirm=lambda _: True)] == ["a", "c"]
    assert [record.getMessage() for record in caplog.records] == [f"b: {why} It is passed by."]
    pipelines["a"] = pipelines["c"] = pipelines["b"]
    with pytest.raises(type(why)):
        rewind_all([], datetime.now(timezone.utc), confirm=lambda _: True)
