"""Where the tables of a replay are, and what isn't a table."""

from __future__ import annotations

import re
from contextlib import nullcontext
from copy import deepcopy
from datetime import datetime, timezone
from functools import partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from connector.config import DeltaSink, PipelineConfig, Several, load, parse, tables_of_letters
from connector.fleet import rewind as fleet
from connector.fleet.files import PipelineFile
from connector.fleet.rewind import replay_all, rewind_all
from connector.operations.replay import into_new_tables, new_places, old_tables
from connector.operations.rewind import WhereTo, one_goal
from connector.operations.rewind_refused import NothingToRewind
from connector.operations.rewind_together import _tables
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


def test_the_one_table_of_a_file_that_names_a_log_is_replayed_without_it() -> None:
    config = of(sinks=[TABLES[0]], on_bad_record="dead_letter", dead_letters={"path": "lake/dead"})
    anew = into_new_tables(config, "new", None)
    assert [sink.place for sink in anew.sinks] == ["new"]
    # Letters that name the log are of the old table, and a replay closes none of them.
    assert [table.place for table in tables_of_letters(anew)] == ["new"]
    assert old_tables(config) == ["coordinator"]
    with pytest.raises(ConfigurationError, match="would lie in the folder of"):
        into_new_tables(of(sinks=[TABLES[0]], coordinator={"path": "log"}), "log/new", None)


EVENTUAL: dict[str, Any] = {**OPTIONS, "together": "eventual", "sinks": TABLES}
PER_TOPIC = {"for_each": "topic", "sink": {"type": "delta_append", "path": "lake/{topic}"}}
SHOP_TOPIC = {"source": {**OPTIONS["source"], "topics": ["Shop.Orders", "t"]}}


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (EVENTUAL, "all"),
        (EVENTUAL, "latest"),
        ({**EVENTUAL, "sinks": [TABLES[0], {**TABLES[1], "part": "newest"}]}, "newest"),
        ({**OPTIONS, "tables": PER_TOPIC}, "t"),
        ({**OPTIONS, "tables": {**PER_TOPIC, "sink": {"type": "delta_append", "table": "shop.{topic}"}}}, "t"),
    ],
    ids=["of a path", "of a name", "with its part", "of a topic", "of a topic, by name"],
)
def test_the_file_as_the_command_says_has_the_table_and_the_name_of_one_part(
    options: dict[str, Any], part: str, tmp_path: Path
) -> None:
    file, options = tmp_path / "shop.yaml", deepcopy(options)
    file.write_text(yaml.safe_dump(options))
    config = load(f"{file}#{part}")
    for option, place in new_places(config, "lake/anew_v2").items():
        *within, last = re.split(r"\.|\[(?=\d)", option.replace("]", ""))
        at: Any = options
        for name in within:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        at[last] = yaml.safe_load(place)
    for option in old_tables(config):
        del options["sinks"][int(option[6])][option.rpartition(".")[2]]
    file.write_text(yaml.safe_dump(options))
    swapped = load(f"{file}#{part}")
    assert (swapped.name, swapped.sinks[0].place) == (config.name, "lake/anew_v2")


def test_topics_are_replayed_where_the_template_would_have_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, places = tmp_path / "shop.yaml", list[str]()
    file.write_text(yaml.safe_dump({**OPTIONS, **SHOP_TOPIC, "tables": PER_TOPIC}))
    files = [PipelineFile(f"{file}#{topic}", load(f"{file}#{topic}")) for topic in ("Shop.Orders", "t")]
    monkeypatch.setattr("connector.fleet.rewind.one_session", lambda *_, **__: nullcontext(None))
    monkeypatch.setattr("connector.fleet.rewind.isolated", nullcontext)
    replay_all(files, "lake/v2", lambda _, place: places.append(place), failed=lambda *_: None)
    template = {**PER_TOPIC, "sink": {"type": "delta_append", "path": "lake/v2/{topic}"}}
    file.write_text(yaml.safe_dump({**OPTIONS, **SHOP_TOPIC, "tables": template}))
    assert places == [load(f"{file}#{topic}").sinks[0].place for topic in ("Shop.Orders", "t")]


@pytest.mark.parametrize("into", ["lake/returns", "lake/returns/v2", "lake/latest/v2", "lake/latest"])
def test_one_part_of_a_file_keeps_off_the_tables_of_the_others(into: str, tmp_path: Path) -> None:
    file, name = tmp_path / "shop.yaml", into.split("/")[1]
    source = {**OPTIONS["source"], "topics": ["orders", "returns"]}
    options = (
        {**OPTIONS, "source": source, "tables": PER_TOPIC}
        if name == "returns"
        else {**EVENTUAL, "sinks": [TABLES[0], {**TABLES[1], "table": None, "path": "lake/latest"}]}
    )
    file.write_text(yaml.safe_dump(options))
    config = load(f"{file}#{'orders' if name == 'returns' else 'all'}")
    with pytest.raises(ConfigurationError, match="Nothing was written"):
        into_new_tables(config, into, None)
    for beside in (f"lake/{name}_v2", "lake/v2"):
        into_new_tables(config, beside, None)


@pytest.mark.parametrize(
    ("path", "into", "refused"),
    [
        ("lake/{topic}", "lake/t2", True),
        ("lake/{topic}", "lake/t2/v2", True),
        ("lake/{topic}", "lake/t_x_0a1b2c3d", True),
        ("lake/{topic}/rows", "lake/t2", True),
        ("lake/{topic}", "lake/v2", False),
        ("lake/{topic}", "lake/topic/v2", False),
        ("lake/{topic}", "other/t2", False),
        ("lake/a_{topic}_b", "lake/t2", False),
        ("lake/a_{topic}_b", "lake/a_t2_b/v2", True),
    ],
)
def test_one_topic_of_a_pattern_keeps_off_the_tables_of_all_that_there_may_be(
    path: str, into: str, refused: bool, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    # "topic" is none of these.
    source = {**OPTIONS["source"], "topics": "t[0-9]" if into == "lake/topic/v2" else "t.*"}
    tables = {**PER_TOPIC, "sink": {**PER_TOPIC["sink"], "path": path}}
    file.write_text(yaml.safe_dump({**OPTIONS, "source": source, "tables": tables}))
    config = load(f"{file}#t1")
    with pytest.raises(ConfigurationError, match="Nothing was written") if refused else nullcontext():
        into_new_tables(config, into, None)


def test_topics_of_a_pattern_that_no_override_names_need_not_be_whole(tmp_path: Path) -> None:
    file, source = tmp_path / "shop.yaml", {**OPTIONS["source"], "topics": "t.*"}
    tables = {**PER_TOPIC, "overrides": {"t1": {"value": OPTIONS["value"]}}}
    file.write_text(yaml.safe_dump({**OPTIONS, "value": {"format": "json"}, "source": source, "tables": tables}))
    into_new_tables(load(f"{file}#t1"), "lake/v2", None)


def test_a_whole_file_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And by the topics that Kafka has: `v2` might be one of a pattern that takes all."""
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump({**OPTIONS, "source": {**OPTIONS["source"], "topics": ".*"}, "tables": PER_TOPIC}))
    monkeypatch.setattr(Several, "_others", lambda *_: pytest.fail("all were compared already"))
    files = [PipelineFile(f"{file}#{topic}", load(f"{file}#{topic}")) for topic in ("a", "b")]
    monkeypatch.setattr("connector.fleet.rewind.one_session", lambda *_, **__: nullcontext(None))
    monkeypatch.setattr("connector.fleet.rewind.isolated", nullcontext)
    done: list[str] = []
    replay_all(
        files, "lake/v2", lambda pipeline, place: done.append(into_new_tables(pipeline.config, place, None).name),
        failed=lambda name, why: pytest.fail(f"{name}: {why}"),
    )  # fmt: skip
    assert len(done) == 2


def test_a_file_of_parts_with_another_kind_of_sink_says_that_the_tables_alone_can(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump({**EVENTUAL, "sinks": [*TABLES, {"type": "kafka_topic", "topic": "out"}]}))
    files = [PipelineFile(f"{file}#{part}", load(f"{file}#{part}")) for part in ("all", "latest", "out")]
    with pytest.raises(ConfigurationError, match=r"sinks\[2\].type is another kind of sink") as refused:
        replay_all(files, "v2", lambda *_: pytest.fail("it was refused"), failed=lambda *_: None)
    assert f"name one whose sink is a table, '{file}#PART'" in refused.value.hint
    of_topic: Any = SimpleNamespace(config=files[2].usable(), routes=None)
    unused: Any = None
    with pytest.raises(ConfigurationError, match="Nothing was changed") as refused:
        list(_tables(of_topic, unused))
    assert f"'{file}#PART'" in refused.value.hint
    assert "all sinks" not in refused.value.message
    into_new_tables(files[0].usable(), "v2", None)


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
    assert str(raised.value) == raised.value.message, "as a trace has it"
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
