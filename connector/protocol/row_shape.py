"""What makes rows of an epoch's records, as the coordinator log keeps it with a decision.

It is a hash of the pipeline file's options, and the schemas of a registry that were the newest ones for the run. An
epoch in doubt may be read again only where both are the same. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

_MARK = "-schemas:"


def with_schemas(shape: str, ids: Mapping[str, str]) -> str:
    """What the log keeps. ``shape``: the hash; ``ids``: whose schema -> its ID."""
    return f"{shape}{_MARK}{json.dumps(dict(ids), sort_keys=True)}" if ids else shape


def schemas_in(kept: str) -> Mapping[str, str]:
    """The IDs in what the log has kept. Empty: there are none."""
    return _parted(kept)[1]


def made_by(kept: str, shape: str) -> bool:
    """Whether a file with this hash has made the rows."""
    return _parted(kept)[0].startswith(shape)


def makes_the_same(kept: str, now: str) -> bool:
    """Whether the rows are the same now. A version that kept fewer schemas, or none, had the same ones."""
    (before, schemas), (shape, others) = _parted(kept), _parted(now)
    return before == shape and all(schemas[whose] == others[whose] for whose in schemas.keys() & others.keys())


def _parted(kept: str) -> tuple[str, Mapping[str, str]]:
    shape, _, ids = kept.partition(_MARK)
    return shape, json.loads(ids) if ids else {}
