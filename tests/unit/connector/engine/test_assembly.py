"""What a run checks before its first epoch."""

from types import SimpleNamespace
from typing import Any

import pytest

from connector.engine import assembly
from connector.engine.assembly import Assembly
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
