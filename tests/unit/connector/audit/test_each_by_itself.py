"""A table that can't be audited keeps no other from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from connector.audit import routes, whole
from connector.audit.claim import Claim
from connector.audit.routes import _Done, _Log
from connector.audit.verdict import Audit
from connector.audit.whole import verify
from connector.config import PipelineConfig, parse
from sinks.errors import BrokerUnreachable, NotADeltaTable, SchemaMismatch

SOURCE = {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}}
JSON = {"format": "json", "schema": "k STRING"}


def pipeline(*paths: str, **more: Any) -> PipelineConfig:
    sinks = {"sinks": [{"type": "delta_append", "path": path} for path in paths]} if paths else {}
    coordinator = {"coordinator": {"path": "log"}} if len(paths) != 1 else {}
    return parse({"name": "p", "source": SOURCE, "value": JSON, **sinks, **coordinator, **more})


SEVERAL = pipeline("a", "b", "c")
ROUTE = pipeline(route={"by": "k", "sink": {"type": "delta_append", "path": "{route}"}})


def audits(faults: dict[str, Exception]) -> Callable[..., Audit]:
    def audit(config: PipelineConfig, *_: Any, **__: Any) -> Audit:
        place = config.sinks[0].place
        if place in faults:
            raise faults[place]
        return Audit("p", place, 1, Claim("transactional", {}, {}), [], [], [])

    return audit


@pytest.mark.parametrize("config", [SEVERAL, ROUTE], ids=["several sinks", "a route"])
def test_the_others_are_audited(config: PipelineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    stands: Any = SimpleNamespace(epoch=1, offsets={}, gone=None, missed=None)
    done = _Done(stands, ["a", "b", "c"], {})
    monkeypatch.setattr(routes, "shared_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(routes, "_log", lambda *_: _Log(done))
    monkeypatch.setattr(routes, "_without_table", lambda *_: None)
    gone, other = NotADeltaTable("There is no table."), SchemaMismatch("Other columns.")
    monkeypatch.setattr(whole, "audit", audits({"a": gone, "c": other}))
    found = verify(config)
    assert [each.table for each in found.tables] == ["b"]
    assert found.failed == {"a": gone, "c": other}
    monkeypatch.setattr(whole, "audit", audits({"a": gone, "b": other, "c": other}))
    with pytest.raises(NotADeltaTable):
        verify(config)


def test_an_error_of_spark_is_one_tables_and_one_of_kafka_is_all_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    stands: Any = SimpleNamespace(epoch=1, offsets={}, gone=None, missed=None)
    monkeypatch.setattr(routes, "shared_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(routes, "_log", lambda *_: _Log(_Done(stands, ["a", "b", "c"], {})))
    monkeypatch.setattr(routes, "_without_table", lambda *_: None)
    broken, down = ValueError("FAILED_READ_FILE\n\tat java"), BrokerUnreachable("No broker.")
    monkeypatch.setattr(whole, "audit", audits({"b": broken}))
    found = verify(SEVERAL)
    assert [each.table for each in found.tables] == ["a", "c"]
    assert found.to_dict()["failed"] == {"b": "ValueError: FAILED_READ_FILE"}
    assert found.exit_code == 1
    monkeypatch.setattr(whole, "audit", audits({"b": down, "c": AssertionError("it was asked for, too")}))
    found = verify(SEVERAL)
    assert [each.table for each in found.tables] == ["a"]
    assert found.failed == {"b": down, "c": down}


def test_of_one_table_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "audit", audits({"a": NotADeltaTable("There is no table.")}))
    with pytest.raises(NotADeltaTable):
        verify(pipeline("a"))
