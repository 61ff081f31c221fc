"""What a table tells of the deletes that were kept for it, in its properties. ``sinks.delta.tombstones`` keeps them.

Not every run keeps its deletes. So a property of the table tells since when none was forgotten. A run that keeps them
sets the property, and a run that doesn't removes it, both before their first epoch. A RESTORE of the table takes the
property back as well.

Tombstones expire, see ``tombstone_retention``. The table of them has a property that tells up to when: the option may
be longer by now than when they expired, and a RESTORE of the table itself brings none back. Version 0.2 deleted them
and said nothing. So a new table says that none has expired, and where the property is missing nobody knows of any that
is older than those that are there: they expire in the order in which they were noted.
"""

from __future__ import annotations

from datetime import datetime, timezone

from sinks.delta.table import DeltaTable
from sinks.event_time import time_at
from sinks.spark.sql import literal

_SINCE = "lakelock.deletes_since"
_EXPIRED = "lakelock.expired_before"
_NEVER = datetime(1970, 1, 1, tzinfo=timezone.utc)


def remembering() -> dict[str, str]:
    """Properties of a new table whose deletes are kept from now on."""
    return {_SINCE: datetime.now(timezone.utc).isoformat()}


def deletes_since(table: DeltaTable) -> datetime | None:
    """The time since which every delete in the table was kept. None: the last run kept none."""
    return _time(table, _SINCE)


def remember_deletes(table: DeltaTable, *, kept: bool) -> None:
    """Say in the table, before the first epoch of a run, whether the run keeps its deletes."""
    if kept == (deletes_since(table) is not None):
        return
    unset = f"UNSET TBLPROPERTIES IF EXISTS ({literal(_SINCE)})"
    _change(table, _set(_SINCE, datetime.now(timezone.utc)) if kept else unset)


def forgotten(table: DeltaTable) -> None:
    """Say in the table that deletes are kept from now on only, if it says that they were kept before."""
    if deletes_since(table) is not None:
        remember_deletes(table, kept=False)
        remember_deletes(table, kept=True)


def none_expired() -> dict[str, str]:
    """Properties of a new table of tombstones."""
    return {_EXPIRED: _NEVER.isoformat()}


def expired_before(tombstones: DeltaTable) -> datetime:
    """The time before which tombstones may have expired, by the table of them."""
    said = _time(tombstones, _EXPIRED)
    if said is not None:
        return said
    now = datetime.now(timezone.utc)
    (oldest,) = tombstones.spark.sql(f"SELECT unix_micros(min(_noted_at)) FROM {tombstones.sql}").collect()[0]
    return time_at(oldest) if oldest is not None else now


def say_expired(tombstones: DeltaTable, before: datetime | None = None) -> None:
    """Say in the table of tombstones that those of before this time may have expired, beside those that have before."""
    said, known = _time(tombstones, _EXPIRED), expired_before(tombstones)
    known = known if before is None else max(known, before)
    if said is None or said < known:
        _change(tombstones, _set(_EXPIRED, known))


def _time(table: DeltaTable, name: str) -> datetime | None:
    detail = table.detail()
    said = detail.properties.get(name) if detail is not None else None
    return datetime.fromisoformat(said) if said is not None else None


def _set(name: str, at: datetime) -> str:
    return f"SET TBLPROPERTIES ({literal(name)} = {literal(at.isoformat())})"


def _change(table: DeltaTable, change: str) -> None:
    table.spark.sql(f"ALTER TABLE {table.sql} {change}").collect()
    table.forget()
