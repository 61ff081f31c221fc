"""``together: eventual``: each of several sinks is a pipeline of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.config import DeltaUpsertSink, SinkBySink, checked_elsewhere, has_several, load, load_any, parse
from sinks.errors import ConfigurationError

FILE: dict[str, Any] = {
    "name": "shop",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}},
    "value": {"format": "json", "schema": "id INT, n INT"},
    "together": "eventual",
    "sinks": [
        {"type": "delta_append", "path": "lake/all"},
        {"type": "delta_upsert", "path": "lake/Latest/", "key": "id"},
        {"type": "delta_append", "path": "other/all"},
        {"type": "delta_append", "table": "shop.events"},
    ],
}


def file_of(folder: Path, **changes: Any) -> Path:
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump({**FILE, **changes}))
    return file


def parts(folder: Path, **changes: Any) -> list[str]:
    found = load_any(file_of(folder, **changes))
    assert isinstance(found, SinkBySink)
    return found.parts


def test_each_sink_has_a_name_that_does_not_depend_on_the_order(tmp_path: Path) -> None:
    names = parts(tmp_path)
    assert names[1::2] == ["latest", "events"]
    assert {name[:4] for name in names[::2]} == {"all_"}
    assert len(set(names)) == 4
    assert parts(tmp_path, sinks=FILE["sinks"][::-1]) == names[::-1]


def test_a_part_is_the_name_whatever_other_sinks_there_are(tmp_path: Path) -> None:
    named = {**FILE["sinks"][0], "part": "all"}
    alone, among = (parts(tmp_path, sinks=sinks) for sinks in ([named], [named, *FILE["sinks"][1:]]))
    assert alone == ["all"]
    assert (among[0], among[2][:4], len(among[2])) == ("all", "all_", 12)
    config = load(f"{file_of(tmp_path, sinks=[named, *FILE['sinks'][1:]])}#all")
    assert (config.name, config.shape) == ("shop-all", load(f"{file_of(tmp_path)}#{parts(tmp_path)[0]}").shape)
    with pytest.raises(ConfigurationError, match="two sinks have part: all"):
        parts(tmp_path, sinks=[named, named])
    with pytest.raises(ConfigurationError, match=r"sinks\[0\]\.part: may only have lower-case letters"):
        load(f"{file_of(tmp_path, sinks=[{**named, 'part': 'A B'}])}#all")


def test_the_names_that_a_sink_may_have_had(tmp_path: Path) -> None:
    part_of = load(f"{file_of(tmp_path)}#latest").part_of
    assert part_of is not None
    names = ["shop-latest", "shop-latest_0a1b2c3d", "shop", "shop-latest_2", "shop-later", "my-shop-latest"]
    assert [bool(re.match(part_of.pattern, name)) for name in names] == [True, True, False, False, False, False]


def test_each_is_a_pipeline_with_a_group_of_its_own(tmp_path: Path) -> None:
    latest = load(f"{file_of(tmp_path)}#latest")
    assert (latest.name, latest.group, latest.two_phase) == ("shop-latest", "g-latest", False)
    (sink,) = latest.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.folder == str(tmp_path / "lake" / "Latest")


def test_a_fault_names_its_sink(tmp_path: Path) -> None:
    wrong = [*FILE["sinks"][:1], {"type": "delta_upsert", "path": "lake/latest"}]
    with pytest.raises(ConfigurationError, match=r"sinks\[1\]\.key: is missing"):
        load(f"{file_of(tmp_path, sinks=wrong)}#latest")
    with pytest.raises(ConfigurationError, match="sinks: write a list, not 'lake'"):
        parts(tmp_path, sinks="lake")
    with pytest.raises(ConfigurationError, match="has no sink none") as caught:
        load(f"{file_of(tmp_path)}#none")
    assert "latest, " in caught.value.hint


def test_what_is_for_one_pipeline_asks_which(tmp_path: Path) -> None:
    assert has_several(file_of(tmp_path))
    with pytest.raises(ConfigurationError, match="has a pipeline of each sink"):
        load(file_of(tmp_path))
    with pytest.raises(ConfigurationError, match="each sink is a pipeline"):
        parse(FILE)
    assert not has_several(file_of(tmp_path, together="atomic"))


def test_a_file_for_another_machine_is_checked_sink_by_sink(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "${env:NOT_SET_ANYWHERE}"}
    file = file_of(tmp_path, source={"topics": ["t"], "kafka": kafka})
    assert checked_elsewhere(file) == "shop"
    with pytest.raises(ConfigurationError, match=r"has 1 fault(.|\n)*sinks\[1\].mode: unknown option"):
        checked_elsewhere(file, ["sinks[1].mode=append"])
    with pytest.raises(ConfigurationError, match="together: eventual is for several sinks"):
        checked_elsewhere(file_of(tmp_path, sinks="none"))
