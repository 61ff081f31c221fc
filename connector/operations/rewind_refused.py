"""What a rewind refuses, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.delta.restore import Target
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.offsets import OffsetRange


class NothingToRewind(ConfigurationError):
    """The table holds no epoch of the pipeline."""


def would_lose(target: Target, ranges: Sequence[OffsetRange]) -> OffsetsLost:
    """The table holds these ranges, and no run would read them again, whatever Kafka holds."""
    return OffsetsLost(
        f"A rewind to {_named(target)} would lose records: the table holds {', '.join(map(str, ranges))}, that version "
        "doesn't, and no run would read them again. Their topics are no longer read, or were recreated since.",
        hint="Go back less far (`lakelock history FILE` names the versions), or put the topic back into "
        "`source.topics`."
        + (" To give up those records, run RESTORE TABLE by hand." if target.version is not None else ""),
    )


def not_in_kafka(target: Target, why: Sequence[str]) -> OffsetsLost:
    """Kafka may not hold the records any more. ``why``: which, a clause each."""
    return OffsetsLost(
        f"A rewind to {_named(target)} would give up records that the table holds, and that no run may be able to read "
        f"again: {'; '.join(why)}. Nothing was changed.",
        hint="Go back less far (`lakelock history FILE` names the versions). To go back without those records: "
        "--allow-data-loss, in Python allow_data_loss=True. A run passes a gap that retention has left only with "
        "--set source.on_data_loss=continue (and --set trigger=available_now, so that it ends).",
    )


def _named(target: Target) -> str:
    return f"version {target.version}" if target.version is not None else f"epoch {target.epoch}"
