"""Reports which topics a run read and which tables it wrote, as OpenLineage events: ``lineage: true``.

OpenLineage's own environment variables, or its configuration file, say where to send them. Names follow its naming
conventions, so that they match what Spark, dbt or a catalog report about the same table.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from connector.config import DeltaPlace, PipelineConfig
from connector.config.sinks import SinkOptions
from connector.protocol.steps import Event, Step, told_its_end
from connector.telemetry.traces import not_installed

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

log = logging.getLogger("lakelock.lineage")

_PRODUCER = "urn:lakelock"


@contextmanager
def lineage(config: PipelineConfig) -> Iterator[Lineage]:
    """An observer within the block. A thread sends the events in their order, and the block's end waits for the last.

    Raises ConfigurationError if the library isn't installed.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as missing:
        raise not_installed("lineage", missing) from None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="lakelock-lineage") as pool,
        told_its_end(Lineage(config, OpenLineageClient(), pool)) as told,
    ):
        yield told


class Lineage:
    """An observer that sends the lineage of one run."""

    def __init__(self, config: PipelineConfig, client: OpenLineageClient, pool: ThreadPoolExecutor) -> None:
        self._config, self._client, self._pool = config, client, pool
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "lakelock")
        self._began = datetime.now(timezone.utc)
        self._run: str | None = None
        self._topics = {topic for topic in config.source.topics if isinstance(topic, str)}
        self._rows = self._bytes = 0
        self._said = False

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        self._topics |= {each.topic for each in event.epoch.ranges}
        if event.step is Step.COMMITTED and event.committed is not None:
            self._rows += event.committed.rows or 0
            self._bytes += event.committed.bytes or 0
        if self._run is None and event.run is not None:
            self._start(event.run)

    def ended(self, error: BaseException | None) -> None:
        """Send the last event of the run. ``error`` is None if the run succeeded."""
        from openlineage.client.event_v2 import RunState

        if self._run is None:
            self._start(str(uuid.uuid4()))
        self._tell(RunState.COMPLETE if error is None else RunState.FAIL, datetime.now(timezone.utc), error)

    def _start(self, run: str) -> None:
        from openlineage.client.event_v2 import RunState

        self._run = run
        self._tell(RunState.START, self._began)

    def _tell(self, state: Any, at: datetime, error: BaseException | None = None) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
        from openlineage.client.facet_v2 import error_message_run, job_type_job, output_statistics_output_dataset

        wrote = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(self._rows, self._bytes)
        alone = len(self._config.sinks) == 1 and state.name != "START"
        kind = "BATCH" if self._config.trigger == "available_now" else "STREAMING"
        message = getattr(error, "message", None) or str(error)[:1000]
        failed = error_message_run.ErrorMessageRunFacet(message, "python") if error is not None else None
        event = RunEvent(
            eventType=state,
            eventTime=at.isoformat(),
            run=Run(str(self._run), {"errorMessage": failed} if failed else {}),
            job=Job(
                self._namespace,
                self._config.name,
                {"jobType": job_type_job.JobTypeJobFacet(kind, "LAKELOCK", "PIPELINE")},
            ),
            inputs=[InputDataset(self._kafka, topic) for topic in sorted(self._topics)],
            outputs=[
                OutputDataset(*self._dataset(sink), outputFacets={"outputStatistics": wrote} if alone else {})
                for sink in self._config.sinks
            ],
            producer=_PRODUCER,
        )
        self._pool.submit(self._send, event)

    def _send(self, event: RunEvent) -> None:
        try:
            self._client.emit(event)
        except Exception as error:
            if not self._said:
                log.warning("lineage can't be told: %s. The run goes on.", error)
            self._said = True

    @property
    def _kafka(self) -> str:
        return "kafka://" + self._config.source.kafka_options["bootstrap.servers"].split(",")[0].strip()

    def _dataset(self, sink: SinkOptions) -> tuple[str, str]:
        """Namespace and name of a sink's dataset. For a table in a catalog only its name is known here."""
        place = sink.place
        if place.startswith("kafka:"):
            return self._kafka, place.removeprefix("kafka:")
        parts = urlsplit(place)
        if parts.scheme and parts.netloc:
            scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
            return f"{scheme}://{parts.netloc}", parts.path.strip("/")
        if isinstance(sink, DeltaPlace) and sink.folder is not None:
            return "file", sink.folder.removeprefix("file:")
        return self._namespace, place
