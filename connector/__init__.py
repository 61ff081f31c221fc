"""Lakelock moves Kafka topics into Delta Lake tables with Spark, so that every record counts exactly once.

>>> from lakelock import Pipeline
>>> Pipeline.from_file("pipeline.yaml").run()  # doctest: +SKIP
"""

import sinks

if not hasattr(sinks, "LAKELOCK"):
    raise ImportError(
        f"The package 'sinks' in {', '.join(sinks.__path__)} hides Lakelock's own of that name. "
        "Rename that folder, or run from another one."
    )

from connector.config.options import Aggregate, Append, Avro, Debezium, History, Json, Kafka, Upsert
from connector.fleet.run import PipelinesFailed, run_all
from connector.operations.read import read
from connector.operations.read_arrow import read_arrow
from connector.operations.snapshot import Snapshot, snapshot
from connector.operations.status import Status
from connector.pipeline import Pipeline
from connector.streaming.foreach_batch import foreach_batch
from sinks.errors import ConfigurationError, Fenced, LakelockError

LAKELOCK = True
"""Tells this package from another one called ``connector``."""

__all__ = [
    "Aggregate",
    "Append",
    "Avro",
    "ConfigurationError",
    "Debezium",
    "Fenced",
    "History",
    "Json",
    "Kafka",
    "LakelockError",
    "Pipeline",
    "PipelinesFailed",
    "Snapshot",
    "Status",
    "Upsert",
    "foreach_batch",
    "read",
    "read_arrow",
    "run_all",
    "snapshot",
]
