"""What makes rows of an epoch's records, as the coordinator log keeps it with a decision.

It is a hash of the pipeline file's options, the settings of the session that change rows, and the schemas of a registry
that were the newest ones for the run. An epoch in doubt may be read again only where all are the same. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_SCHEMAS, _SETTINGS = "-schemas:", "-settings:"
OF_SCHEMA = "the newest schema of the"
"""How ``differences`` begins to tell of one."""
_OF_FILES = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
"""Settings that were kept before every session had them set: how files store dates, while the rows are the same."""


def with_settings(shape: str, zone: str, ansi: str, others: Mapping[str, str]) -> str:
    """What the log keeps of a session. ``shape``: the hash; ``others``: settings beside the time zone and ANSI mode,
    without which the text is that of versions that didn't note them."""
    kept = f"{shape}-{zone}-{ansi}"
    return f"{kept}{_SETTINGS}{json.dumps(dict(others), sort_keys=True)}" if others else kept


def with_schemas(shape: str, ids: Mapping[str, str]) -> str:
    """What the log keeps. ``shape``: the hash, maybe with settings; ``ids``: whose schema -> its ID."""
    return f"{shape}{_SCHEMAS}{json.dumps(dict(ids), sort_keys=True)}" if ids else shape


def schemas_in(kept: str) -> Mapping[str, str]:
    """The IDs in what the log has kept. Empty: there are none."""
    return _parted(kept)[1]


def made_by(kept: str, shape: str) -> bool:
    """Whether a file with this hash has made the rows."""
    return _parted(kept)[0].startswith(shape)


def makes_the_same(kept: str, now: str) -> bool:
    """Whether the rows are the same now. A version that kept fewer schemas, or none, had the same ones."""
    return not differences(kept, now)


def differences(kept: str, now: str) -> Sequence[str]:
    """What isn't now as it was, in words. Empty: the rows are the same."""
    (before, schemas), (shape, others) = _parted(kept), _parted(now)
    found = _of_session(before, shape) if before != shape else []
    newer = [whose for whose in sorted(schemas.keys() & others.keys()) if schemas[whose] != others[whose]]
    return [*found, *(f"{OF_SCHEMA} {whose} ({schemas[whose]} then, {others[whose]} now)" for whose in newer)]


def _of_session(kept: str, now: str) -> list[str]:
    (file, zone, ansi, others), (file_now, zone_now, ansi_now, others_now) = _settings(kept), _settings(now)
    named = {"spark.sql.session.timeZone": zone == zone_now, "spark.sql.ansi.enabled": ansi == ansi_now}
    noted = sorted({*others, *others_now}.difference(_OF_FILES))
    named |= {name: others.get(name) == others_now.get(name) for name in noted}
    settings = [name for name, same in named.items() if not same]
    # A hash that differs says enough: what is behind it may be of another kind of file.
    return ["the pipeline file"] if file != file_now else [f"Spark's {name}" for name in settings]


def _settings(kept: str) -> tuple[str, str, str, Mapping[str, str]]:
    """Hash, time zone, ANSI mode and the other settings. A time zone may have a hyphen; a hash has none."""
    session, _, others = kept.partition(_SETTINGS)
    shape, _, rest = session.partition("-")
    zone, _, ansi = rest.rpartition("-")
    return shape, zone, ansi, json.loads(others) if others else {}


def _parted(kept: str) -> tuple[str, Mapping[str, str]]:
    shape, _, ids = kept.partition(_SCHEMAS)
    return shape, json.loads(ids) if ids else {}
