"""A rewind to a version whose deletes have expired since, and weren't kept aside: by an earlier version of Lakelock, or
longer ago than the table's log says to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.engine.outputs import Table
from sinks.errors import OffsetsLost

if TYPE_CHECKING:
    from connector.operations.rewind import Rewind


def with_expired(plan: Rewind, tables: Mapping[str, Table], *, allow_data_loss: bool) -> Rewind:
    """The plan, which says so if an older update that is read again may bring a deleted row back. Without
    ``allow_data_loss`` raises OffsetsLost."""
    stood = plan.target.stood
    if stood is None or not plan.again:
        return plan
    kept = {name: table.derivation.tombstones for name, table in tables.items()}
    lacking = [name for name, tombstones in kept.items() if tombstones is not None and tombstones.lacks(stood)]
    if not lacking:
        return plan
    why = (
        f"deletes that {', '.join(map(repr, lacking))} remembered then may have expired for good, by "
        "tombstone_retention, so an older update that is read again may bring a deleted row back"
    )
    if not allow_data_loss:
        raise OffsetsLost(
            f"The table can't go back to epoch {stood.epoch} as it was: {why}. Nothing was changed.",
            hint="Go back less far (`lakelock history FILE` names the versions), or read the records into a new table "
            "with `lakelock replay`. To go back all the same: --allow-data-loss, in Python allow_data_loss=True.",
        )
    return replace(plan, compacted=[*plan.compacted, why])
