"""A table of ``together: eventual`` that was written under another name."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from connector.config import load
from connector.engine import renamed
from sinks.contract import Position
from sinks.delta.metadata import CommitMetadata
from sinks.delta.position import Commit
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def begins(folder: Path, monkeypatch: pytest.MonkeyPatch, *writers: tuple[str, str], **of_sink: str) -> None:
    """What is looked at when the sink of a table begins. ``writers``: the pipelines of its commits, and their topics,
    the oldest first."""
    monkeypatch.setattr(renamed, "Table", SimpleNamespace)
    commits = [
        Commit(
            version, NOW, "WRITE", {},
            CommitMetadata(name, Position(version + 1, Offsets.from_dict({topic: {"0": 5}}))).to_json(),
        )
        for version, (name, topic) in enumerate(writers)
    ]  # fmt: skip
    table = SimpleNamespace(
        detail=lambda: "made" if commits else None, log="there", history=lambda limit: commits[::-1][:limit]
    )
    output: Any = SimpleNamespace(table=table, label="lake/latest_v2")
    sinks = [
        {"type": "delta_append", "path": "lake/all"},
        {"type": "delta_append", "path": "lake/latest_v2", **of_sink},
    ]
    source = {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}}
    value = {"format": "json", "schema": "id INT"}
    file = folder / "shop.yaml"
    file.write_text(
        yaml.safe_dump({"name": "shop", "source": source, "value": value, "together": "eventual", "sinks": sinks})
    )
    renamed.refuse_renamed(load(f"{file}#{of_sink.get('part', 'latest_v2')}"), [output], None)


def test_a_table_that_a_part_of_another_name_has_filled_is_taken_by_that_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = [("shop-latest", "t"), ("shop-latest", "t")]
    with pytest.raises(ConfigurationError, match="pipeline 'shop-latest' up to epoch 2") as refused:
        begins(tmp_path, monkeypatch, *filled)
    assert "part: latest." in refused.value.hint
    begins(tmp_path, monkeypatch, *filled, part="latest")
    # Also after a time with together: atomic, from whose position it would be taken over else.
    with pytest.raises(ConfigurationError, match="pipeline 'shop-latest' up to epoch 2"):
        begins(tmp_path, monkeypatch, ("shop", "t"), ("shop-latest", "t"))


@pytest.mark.parametrize(
    "writers",
    [
        [],
        [("shop-eu", "others")],  # a second pipeline of the table
        [("another", "t")],
        [("shop", "t")],  # with together: atomic
        [("shop-eu", "t"), ("shop", "t")],
        [("shop-latest", "t"), ("shop-latest_v2", "t"), ("shop-eu", "t")],  # renamed by an earlier version
    ],
    ids=["a new one", "other topics", "another file", "together", "together since", "its own"],
)
def test_other_tables_are_written_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: list[tuple[str, str]]
) -> None:
    begins(tmp_path, monkeypatch, *writers)
