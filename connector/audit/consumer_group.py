"""The offsets of the pipeline's consumer group, which end the claim of a weaker delivery."""

from __future__ import annotations

import json

from connector.audit.claim import At, Metadata
from connector.audit.topics import Topics
from connector.config import PipelineConfig
from sinks.errors import BrokerUnreachable, ConfigurationError, NotAuthorized


def committed(topics: Topics, config: PipelineConfig) -> dict[At, int]:
    """The offsets that the pipeline's consumer group has committed, whatever ``delivery`` the file names.

    The table's commits may say that another delivery has written them. Raises BrokerUnreachable, and NotAuthorized
    unless the pipeline is transactional.
    """
    try:
        return topics.committed(config.group)
    except (BrokerUnreachable, NotAuthorized):
        if config.delivery != "transactional":
            raise
        return {}  # a transactional pipeline needs no rights on a group


def refuse_another_group(newest: Metadata | None, config: PipelineConfig, *, older_version: bool) -> None:
    """Raises ConfigurationError if the newest commit names another group than the file: what the file's has committed
    says nothing of the table, and a claim that ends too early hides lost rows.

    ``older_version``: of the table. Its claim doesn't end by a group."""
    if newest is None or older_version or newest.delivery == "transactional" or newest.group in ("", config.group):
        return
    raise ConfigurationError(
        f"Consumer group {newest.group!r} tells how far the table of pipeline {config.name!r} goes, by the table's own "
        f"commits. The pipeline file names the group {config.group!r}, so nothing was compared.",
        hint="Verify with the file of the runs, or with "
        f"`source: {{kafka: {{group.id: {json.dumps(newest.group, ensure_ascii=False)}}}}}`.",
    )
