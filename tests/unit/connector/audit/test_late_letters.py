"""Which dead letters of late records the auditor expects in no window."""

from types import SimpleNamespace
from typing import Any

import pytest

from connector.audit import _late
from connector.config import parse


def pipeline(late: str | None) -> Any:
    sink = {"type": "delta_aggregate", "path": "/tmp/t", "group_by": "k", "aggregates": {"c": "count(*)"}}
    if late is not None:
        sink["window"] = {"size": "1 hour", "late": late}
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}}
    options = {"on_bad_record": "dead_letter", "dead_letters": {"path": "/tmp/d"}}
    return parse({"name": "p", "source": source, "value": {"format": "string"}, "sinks": [sink], **options})


def letters(number: int) -> Any:
    found = SimpleNamespace(isEmpty=lambda: number == 0)
    return SimpleNamespace(late=lambda name, epoch: found)


@pytest.mark.parametrize(
    ("late", "number", "kept"),
    [
        ("dead_letter", 3, True),
        ("dead_letter", 0, True),
        ("add", 3, True),  # they were set aside before the file said so, and nothing brings them in
        ("add", 0, False),
        (None, 3, False),
    ],
)
def test_late_letters_stay_letters_once_the_file_adds_late_records(
    late: str | None, number: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.audit.late_letters", lambda found: found)
    assert (_late(pipeline(late), letters(number), 7) is not None) == kept
    assert _late(pipeline(late), None, 7) is None
