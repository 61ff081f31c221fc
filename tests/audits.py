"""Audits of a test's tables, and what of their results tests look at."""

from __future__ import annotations

from typing import Any

from conftest import Lake

from connector.audit import Audit, audit
from connector.config import parse


def verify(lake: Lake, kind: str = "append", version: int | None = None, **changes: Any) -> Audit:
    return audit(parse(lake.options(kind, **changes)), version)


def counts(found: Audit) -> dict[str, int]:
    """Only what isn't zero."""
    return {name: count for name, count in found.totals.items() if count}


def places(found: Audit) -> dict[str, Any]:
    return {kind: tuple(place.to_dict()["at"][1:]) for kind, place in found.first.items()}
