"""Lakelock moves Kafka topics into Delta Lake tables with Spark, so that every record counts exactly once.

>>> from lakelock import Pipeline
>>> Pipeline.from_file("pipeline.yaml").run()  # doctest: +SKIP

The code is in two packages, ``connector`` and ``sinks``; this one hands their public names on.
"""

import connector
import sinks

for _package in (connector, sinks):
    if not hasattr(_package, "LAKELOCK"):
        raise ImportError(
            f"The package {_package.__name__!r} in {', '.join(_package.__path__)} hides Lakelock's own of that name. "
            "Rename that folder, or run from another one."
        )

from connector import (  # noqa: E402  (only now is it known to be ours)
    Aggregate,
    Append,
    Avro,
    ConfigurationError,
    Debezium,
    Fenced,
    History,
    Json,
    Kafka,
    LakelockError,
    Pipeline,
    PipelinesFailed,
    Snapshot,
    Status,
    Upsert,
    foreach_batch,
    read,
    read_arrow,
    run_all,
    snapshot,
)

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
