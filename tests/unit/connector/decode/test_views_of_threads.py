"""Views and settings belong to a session, which several threads may use: no name in it is shared by two of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from connector.audit.decode import _result
from connector.decode.transform import _selected
from connector.streaming.foreach_batch import _turn

SQL = "SELECT k FROM records"


@pytest.mark.parametrize(
    "select", [lambda rows: _selected(rows, SQL, (), "v"), lambda rows: _result(rows, SQL, ["_offset"])]
)
def test_of_two_threads_each_selects_from_its_own_records(select: Callable[[Any], Any]) -> None:
    views: dict[str, Any] = {}
    both = threading.Barrier(2, timeout=30)

    def session(text: str) -> Any:
        (name,) = re.findall(r"WITH records AS \(SELECT \* FROM `?(\w+)`?\)", text)
        return views[name]

    def frame(schema: str) -> Any:
        def create(name: str) -> None:
            views[name] = made
            both.wait()  # the other thread makes its own before this one is asked for

        made = SimpleNamespace(schema=schema, createOrReplaceTempView=create, sparkSession=SimpleNamespace(sql=session))
        return made

    frames = [frame("one"), frame("two")]
    with ThreadPoolExecutor(2) as pool:
        assert [found.schema for found in pool.map(select, frames)] == ["one", "two"]


def test_a_session_has_one_lock_for_all_functions_of_its_batches() -> None:
    def session() -> Any:
        settings: dict[str, str] = {}
        return SimpleNamespace(
            conf=SimpleNamespace(get=lambda name, default: settings.get(name, default), set=settings.__setitem__)
        )

    one, two = session(), session()
    assert _turn(one) is _turn(one)
    assert _turn(one) is not _turn(two)
