"""Names that records give and that differ by a slip from one of a route's values: the run looks now and then."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.config import parse
from connector.engine import passed_over
from connector.engine.passed_over import PassedOver
from sinks.offsets import OffsetRange

CONFIG = parse(
    {
        "name": "shop",
        "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "kind STRING, id INT"},
        "coordinator": {"path": "lake/_log"},
        "route": {
            "by": "kind",
            "sink": {"type": "delta_append", "path": "lake/{kind}"},
            "values": ["order", "refnd"],
            "other": "ignore",
        },
    }
)
LONG = [OffsetRange("events", 0, 10, 5000), OffsetRange("events", 1, 0, 3)]


class Decodes:
    """Records that name these tables."""

    def named(self, _: object, *, whatever: bool) -> Any:
        assert whatever
        rows = [{"_lakelock_route": name} for name in ("order", "refund")]
        frame: Any = SimpleNamespace(collect=lambda: rows)
        frame.where = frame.groupBy = frame.limit = lambda *_: frame
        frame.count, frame.orderBy = lambda: frame, lambda *_, **__: frame
        return frame


def test_a_run_warns_of_a_slip_and_looks_at_few_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(passed_over, "RecordDecoder", Decodes)
    looks = PassedOver(CONFIG, cast(Any, Decodes()))
    read: list[Any] = []
    reading: Any = SimpleNamespace(read=read.append)
    retry, epoch = (cast(Any, SimpleNamespace(ranges=ranges)) for ranges in ([], LONG))
    with caplog.at_level(logging.WARNING, logger="lakelock.routes"):
        looks.warn(reading, retry, {"order"})
        looks.warn(reading, epoch, {"order", "refnd"})
        assert not read
        looks.warn(reading, epoch, {"order"})
        looks.warn(reading, epoch, {"order"})
    assert read == [[OffsetRange("events", 0, 10, 1010), OffsetRange("events", 1, 0, 3)]]
    assert len(caplog.messages) == 1
    assert "records name 'refund', which isn't one of them: these are ignored" in caplog.text
