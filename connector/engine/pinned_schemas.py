"""Which schemas of a registry read an epoch in doubt: the coordinator log says it with the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connector.protocol.decided import State
from connector.protocol.row_shape import made_by, schemas_in

if TYPE_CHECKING:
    from connector.config import PipelineConfig
    from connector.engine.coordinator_log import Log


def pinned_schemas(config: PipelineConfig, log: Log | None) -> Mapping[str, str]:
    """The schemas to take for the newest ones, see ``NewestSchemas``. Empty if no epoch is in doubt, or if another file
    has made its rows. A run finishes the epoch, and begins again with the newest ones."""
    formats = [format for flow in config.by_flow for format in (flow.value, flow.key)]
    if log is None or not any(getattr(format, "registry", None) for format in formats):
        return {}
    doubted = log.read().in_doubt
    if doubted is None or doubted.state is not State.DECIDED or not made_by(doubted.config, config.shape):
        return {}
    return schemas_in(doubted.config)
