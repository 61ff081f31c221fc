"""Values that records name, and that ``route.overrides`` seems to have under another name."""

from __future__ import annotations

import logging
from collections.abc import Collection

from connector.config import PipelineConfig
from sinks.errors import ConfigurationError

log = logging.getLogger("lakelock.routes")


def refuse_misnamed(
    config: PipelineConfig, names: Collection[str], named: Collection[str], tables: Collection[str]
) -> None:
    """Raises ConfigurationError before one of the tables of ``names`` is made without the options that are meant for
    it. The log warns of one that is there. ``named``: the tables that records name; ``tables``: those that are there.
    """
    assert config.route is not None
    for name, why in config.route.misnamed(names, {*named, *tables}).items():
        if name not in tables:
            raise ConfigurationError(
                f"{why}: its table would be like all others. Nothing was written.",
                hint=f"Correct the name in route.overrides. If both are right, write {name}: {{}} there, too.",
            )
        log.warning("%s: its table is like all others", why)
