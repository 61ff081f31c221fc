"""Where the schema of records comes from that no file declares."""

from __future__ import annotations

from typing import Any, cast

import pytest

from connector.config import parse
from connector.engine import inferred


@pytest.mark.parametrize(("known", "reads"), [("id BIGINT, more BOOLEAN", "id BIGINT, more BOOLEAN"), (None, "id INT")])
def test_a_schema_that_is_known_is_not_looked_for_again(
    known: str | None, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a replay, which reads by the schema of the old table, and whose new table isn't there yet."""
    monkeypatch.setattr(inferred, "of_table", lambda *_: None)
    monkeypatch.setattr(inferred, "_found", lambda *_: "id INT")
    config = parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "inferred"},
            "sinks": [{"type": "delta_append", "path": "lake/t"}],
        }
    )
    config = config.read_by(known) if known is not None else config
    nothing = cast(Any, None)
    found = inferred.with_schema(config, nothing, nothing, nothing)
    assert found.inferred is not None
    assert found.inferred.schema_ == reads
    assert found.inferred.properties
