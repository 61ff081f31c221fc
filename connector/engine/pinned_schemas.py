"""Which schemas of a registry read an epoch of a route: the coordinator log says it with the decision.

A subject may get a newer schema at any time, and a run reads by the newest one at its start. An epoch that is in some
of its tables only is read again by another run, and has to give the others the same rows. So that run takes the schemas
of the decision for the newest ones. The next run that finds no epoch in doubt takes the newest ones again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from connector.protocol.decided import State

if TYPE_CHECKING:
    from connector.config import PipelineConfig
    from connector.engine.coordinator_log import Log

_MARK = "-schemas:"


def with_schemas(shape: str, ids: Sequence[str]) -> str:
    """What the log keeps of a decision: the shape of its rows, and the IDs of the schemas that read them."""
    return f"{shape}{_MARK}{'.'.join(ids)}" if ids else shape


def schemas_in(decision: str, shape: str) -> Sequence[str]:
    """The IDs in what the log has kept. Empty: there are none, or the file of another ``shape`` made it."""
    before, _, ids = decision.rpartition(_MARK)
    return ids.split(".") if before.startswith(shape) else ()


def pinned_schemas(config: PipelineConfig, log: Log) -> Mapping[str, str]:
    """Value of the route -> the ID of the schema that reads its records, while an epoch is in doubt."""
    if config.route is None:
        return {}
    values = [value for value, own in config.route.own.items() if own.subject is not None]
    doubted = log.read().in_doubt if values else None
    if doubted is None or doubted.state is not State.DECIDED:
        return {}
    ids = schemas_in(doubted.config, config.shape)
    return dict(zip(values, ids, strict=True)) if len(ids) == len(values) else {}
