"""The sink and the aggregate of docs/extending.md, made as the page says."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from conftest import Send
from pages import BROKER, Reader, blocks, written

import connector
from sinks.errors import ConfigurationError

PAGE = "docs/extending.md"
sys.path.insert(0, str(written(PAGE, Path(tempfile.mkdtemp()))))

from test_sqlite_sink import TestSQLite  # noqa: E402, F401  the page's own tests


@pytest.mark.breadth
def test_a_sink_of_ones_own_moves_with_a_table(reader: Reader, send: Send) -> None:
    send("orders", *((str(n), {"id": n, "item": f"item {n}"}) for n in range(20)))
    reader.follow(PAGE, "A sink")
    assert "orders_db" in reader.said[1], "status knows it"
    send("orders", ("20", {"id": 20, "item": "one more"}))
    reader.run("lakelock run orders.yaml")
    with sqlite3.connect("orders.db") as db:
        assert sorted(db.execute("SELECT id FROM rows").fetchall()) == [(n,) for n in range(21)]
        assert db.execute("SELECT name, epoch FROM position").fetchall() == [("orders_db", 2)]
    at = connector.snapshot(reader.names["spark"], "orders.yaml")
    assert list(at) == ["lake/orders"], "other sinks are left out"
    assert at["lake/orders"].count() == 21


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sink": "sqlite_sink:Nothing"}, "sinks[1].sink: sqlite_sink:Nothing can't be imported"),
        ({"sink": "no_such_module:SQLite"}, "sinks[1].sink: no_such_module:SQLite can't be imported"),
        ({"sink": "sqlite_sink:json"}, "sinks[1].sink: sqlite_sink:json is no class"),
        ({"options": {"folder": "x"}}, "sinks[1].options: sqlite_sink:SQLite doesn't take them"),
        ({"name": "lake/orders"}, "two sinks write to lake/orders"),
    ],
)
def test_what_is_wrong_with_it_is_said(wrong: Mapping[str, object], said: str, reader: Reader, send: Send) -> None:
    send("orders", ("1", {"id": 1, "item": "x"}))
    (file,) = (block for block in blocks(PAGE, "A sink") if block.file == "orders.yaml")
    options = yaml.safe_load(file.text.replace(BROKER, reader.bootstrap))
    options["sinks"][1].update(wrong)
    with pytest.raises(ConfigurationError) as told:
        connector.Pipeline.from_options(options).run()
    assert said in str(told.value)


def test_an_aggregate_of_ones_own(reader: Reader, send: Send) -> None:
    send("people", *(("x", {"city": city, "name": name}) for city, name in [("a", "Al"), ("a", "Bea"), ("b", None)]))
    reader.follow(PAGE, "An aggregate")
    found = connector.read(reader.names["spark"], "names.yaml").select("city", "people", "longest")
    assert sorted(map(tuple, found.collect())) == [("a", 2, "Bea"), ("b", 1, None)]
