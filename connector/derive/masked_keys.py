"""The salts of masked columns by which records go together: with another salt each would be another row."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence

from connector.config.steps import Step

MASK = "steps.mask."
"""The beginning of the options' names in what a table remembers."""


def masks_of(steps: Sequence[Step], columns: Iterable[str]) -> Mapping[str, str]:
    """Option -> a mark of its salt, for those of the ``columns`` that a step has masked. The mark tells salts apart,
    and doesn't tell them."""
    names = {column.lower() for column in columns}
    found: dict[str, str] = {}
    for step in reversed(steps):
        if step.mask is not None and step.salt is not None:
            mark = hmac.new(step.salt.get_secret_value().encode(), b"lakelock shape", "sha256").hexdigest()[:8]
            found |= {f"{MASK}{name}": f"by salt {mark}" for name in step.mask if name.lower() in names}
        old = {new.lower(): name.lower() for name, new in (step.rename or {}).items()}
        names = {old.get(name, name) for name in names}
    return found
