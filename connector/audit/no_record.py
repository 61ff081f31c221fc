"""A topic that never had a record: with an inferred schema there is no table to audit, and nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from connector.audit.claim import Held
from connector.config import PipelineConfig
from sinks.errors import NoRecordYet, NotADeltaTable


@contextmanager
def no_record_yet(config: PipelineConfig, held: Held) -> Iterator[None]:
    """Raise NoRecordYet for a table that is missing because its first record is.

    Only if no partition ever had a record: where records were removed since, the table may be what is lost.
    """
    try:
        yield
    except NotADeltaTable as missing:
        if config.inferred is None or any(held.ends.values()):
            raise
        topics = ", ".join(sorted(held.ids)) or str(config.source.topics)
        raise NoRecordYet(
            f"{topics} has no record yet, so its schema isn't known (value.schema: inferred), and there is no table to "
            "audit.",
            hint="`lakelock run FILE` makes it with the first records.",
        ) from missing
