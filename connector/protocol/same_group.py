"""Whether the consumer group that the pipeline file names has the offsets that the table goes on from. Pure."""

from __future__ import annotations

import json

from sinks.contract import Position
from sinks.errors import ConfigurationError


def refuse_another_group(position: Position | None, group: str, pipeline: str) -> None:
    """Raises ConfigurationError if another group has the offsets: what this one has committed may be old, and all
    records since would be written once more."""
    if position is None or position.group in ("", group):
        return
    raise ConfigurationError(
        f"Consumer group {position.group!r} has the offsets of pipeline {pipeline!r}, since its delivery became "
        f"{position.delivery}. The pipeline file names the group {group!r}.",
        hint=f"Write `source: {{kafka: {{group.id: {json.dumps(position.group, ensure_ascii=False)}}}}}`. To change "
        "the group, run once with that and `delivery: transactional`, which takes its offsets over; from then on the "
        "pipeline may have another group.",
    )


def refuse_undone(position: Position | None, group: str) -> None:
    """Raises ConfigurationError if the group has the offsets of epochs that a RESTORE has undone: nothing tells where
    it stood before."""
    if position is not None and position.undid_offsets:
        raise ConfigurationError(
            f"The table was restored to a version that delivery: {position.delivery} wrote (epoch "
            f"{position.restored_to}), and consumer group {group!r} has the offsets of later epochs, up to "
            f"{position.epoch}. Their records would be missing. Nothing was changed.",
            hint="RESTORE the table to its newest version before that, or to one of a transactional epoch: `lakelock "
            "history FILE` names the versions. While Kafka holds the records, `lakelock replay` reads them into a new "
            "table.",
        )
