"""Which options of a history don't go with ``stored_as_scd_type: bitemporal``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connector.config.sinks import DeltaHistorySink

_ALONE = "doesn't work with stored_as_scd_type: bitemporal"


def unfit_for_both_times(sink: DeltaHistorySink) -> Iterator[str]:
    """What of the options doesn't fit."""
    if not sink.bitemporal:
        if sink.system_sequence_by is not None:
            yield "system_sequence_by needs stored_as_scd_type: bitemporal"
        return
    if sink.sequence_by is None:
        yield (
            "stored_as_scd_type: bitemporal needs sequence_by, the time at which a change is valid: Kafka's offset "
            "only tells in which order changes were recorded"
        )
    for option in ("track_history_column_list", "track_history_except_column_list"):
        if getattr(sink, option) is not None:
            yield (
                f"{option} {_ALONE}, where every column begins a version. Leave out other columns with "
                "except_column_list"
            )
    if "tombstone_retention" in sink.model_fields_set:
        yield f"tombstone_retention {_ALONE}, which remembers every delete. Remove it"
    if sink.apply_as_truncates not in (None, "false"):
        yield f"apply_as_truncates {_ALONE}. Send a delete for each key, or write stored_as_scd_type: 2"
