"""What a table tells of the deletes that were kept for it, in its properties. ``sinks.delta.tombstones`` keeps them.

Not every run keeps its deletes. So a property of the table tells since when none was forgotten. A run that keeps them
sets the property, and a run that doesn't removes it, both before their first epoch. A RESTORE of the table takes the
property back as well.

Tombstones expire, see ``tombstone_retention``. The table of them has a property that tells up to when: the option may
be longer by now than when they expired, and a RESTORE of the table itself brings none back. Version 0.2 deleted them
and said nothing. So a new table says that none has expired, and where the property is missing nobody knows of any that
is older than those that are there: they expire in the order in which they were noted.

What expires is kept aside for as long as the table may go back to a version at which it counted. A second property
tells since when that is so: what had expired before is gone for good.
"""

from __future__ import annotations

from datetime import datetime, timezone

from sinks.contract import Position
from sinks.delta.table import DeltaTable
from sinks.event_time import time_at
from sinks.spark.sql import literal

_SINCE = "lakelock.deletes_since"
_EXPIRED = "lakelock.expired_before"
_WHOLE = "lakelock.deletes_whole_from"
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
    return {_EXPIRED: _NEVER.isoformat(), _WHOLE: _NEVER.isoformat()}


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


def read_to(position: Position) -> datetime | None:
    """All that Kafka held at this time was read, as far as the position tells. A version that stored no such time is
    taken to have been at the end. Before ``began_at`` there was no delete."""
    return position.read_to or position.began_at or position.committed_at


def whole_from(tombstones: DeltaTable) -> datetime:
    """A table whose position had read up to this time, or further, can go back to all of its deletes. Where nothing
    says so, an earlier version of Lakelock may just have deleted some."""
    said = _time(tombstones, _WHOLE)
    if said is not None:
        return said
    return _NEVER if _time(tombstones, _EXPIRED) == _NEVER else datetime.now(timezone.utc)


def say_whole(tombstones: DeltaTable, after: datetime | None = None) -> None:
    """Say in the table of tombstones up to when deletes may be gone for good; ``after``: from now on, up to there."""
    said, known = _time(tombstones, _WHOLE), whole_from(tombstones)
    known = known if after is None else max(known, after)
    if said is None or said < known:
        _change(tombstones, _set(_WHOLE, known))


def _time(table: DeltaTable, name: str) -> datetime | None:
    detail = table.detail()
    said = detail.properties.get(name) if detail is not None else None
    return datetime.fromisoformat(said) if said is not None else None


def _set(name: str, at: datetime) -> str:
    return f"SET TBLPROPERTIES ({literal(name)} = {literal(at.isoformat())})"


def _change(table: DeltaTable, change: str) -> None:
    table.spark.sql(f"ALTER TABLE {table.sql} {change}").collect()
    table.forget()
