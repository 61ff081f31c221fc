"""The columns by which a history tells whether a row has changed."""

from __future__ import annotations

from collections.abc import Iterable

from connector.config import DeltaHistorySink


def tracked(sink: DeltaHistorySink, columns: Iterable[str]) -> list[str]:
    """Those of the ``columns``, whatever their case."""
    if sink.track_history_column_list is not None:
        listed = {name.lower() for name in sink.track_history_column_list}
        return [name for name in columns if name.lower() in listed]
    left_out = {name.lower() for name in sink.track_history_except_column_list or ()}
    return [name for name in columns if name.lower() not in left_out]
