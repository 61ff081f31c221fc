"""Lakelock moves Kafka topics into Delta Lake tables with Spark, so that every record counts exactly once.

>>> from connector import Pipeline
>>> Pipeline.from_file("pipeline.yaml").run()  # doctest: +SKIP
"""

import sinks

if not hasattr(sinks, "LAKELOCK"):
    raise ImportError(
        f"another package called 'sinks' hides Lakelock's own: {sinks.__path__}. Run from another folder, or rename it."
    )

from connector.live import read
from connector.pipeline import Pipeline
from connector.snapshot import Snapshot, snapshot
from connector.status import Status
from connector.streaming import foreach_batch
from sinks.errors import ConfigurationError, Fenced, LakelockError

__all__ = [
    "ConfigurationError",
    "Fenced",
    "LakelockError",
    "Pipeline",
    "Snapshot",
    "Status",
    "foreach_batch",
    "read",
    "snapshot",
]
