"""What a run checks before its first epoch."""

from types import SimpleNamespace
from typing import Any

import pytest

from connector.config import parse
from connector.engine import assembly
from connector.engine.assembly import Assembly, assembled
from connector.engine.short_runs import appends_only
from sinks.errors import UnsafeStore


@pytest.mark.parametrize("folder", ["s3a://bucket/dead", None])
def test_the_table_of_dead_letters_needs_conditional_writes_as_well(
    folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that another one overwrites would be letters that are lost."""
    asked: list[str] = []

    def refuse(_: object, url: str) -> None:
        asked.append(url)
        if url:
            raise UnsafeStore(url)

    monkeypatch.setattr(assembly, "require_conditional_writes", refuse)
    run: Any = SimpleNamespace(
        config=SimpleNamespace(dead_letters=SimpleNamespace(folder=folder, topic=None)),
        spark=None, log=None, outputs=(), refuse_unfit_select=lambda: None,
        field_check=SimpleNamespace(declared=False),
    )  # fmt: skip
    if folder is None:
        Assembly._make_ready(run)
    else:
        with pytest.raises(UnsafeStore, match=folder):
            Assembly._make_ready(run)
    assert asked == [folder or ""]


@pytest.mark.parametrize(
    ("override", "keyed"), [({"type": "delta_upsert", "key": "id"}, True), ({"path": "lake/refunds"}, False)]
)
def test_a_run_looks_for_deletes_that_compaction_took_if_any_table_of_a_route_has_a_key(
    override: dict[str, str], keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "kind STRING, id INT"},
            "coordinator": {"path": "lake/_log"},
            "route": {
                "by": "kind",
                "sink": {"type": "delta_append", "path": "lake/{kind}"},
                "overrides": {"refund": {"sink": override}},
            },
        }
    )

    class AskedError(Exception):
        pass

    def source(_: object, *, with_deletes: bool) -> None:
        raise AskedError(with_deletes)

    monkeypatch.setattr(assembly, "KafkaSource", source)
    with pytest.raises(AskedError, match=str(keyed)), assembled(config):
        pass
    assert appends_only(config) is not keyed
