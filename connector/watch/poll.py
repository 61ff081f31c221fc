"""One look at several pipelines, with one Spark session. A fault of one pipeline hides nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeVar

from connector.fleet.files import Fault, PipelineFile, fault_of
from connector.operations.history import LAST, PastEpoch, past
from connector.operations.letter_groups import LetterGroup, letter_groups
from connector.operations.lineage import Lineage, lineage_of
from connector.operations.newest_rows import SomeRows, newest_rows
from connector.operations.status import Status
from connector.pipeline import Pipeline
from connector.watch.about import text_of
from connector.watch.reports import Report
from sinks.errors import NoRecordYet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Look:
    """What was seen of one pipeline. The parts are independent: without Kafka there is still the history."""

    file: str
    name: str
    at: datetime
    status: Status | None = None
    past: Sequence[PastEpoch] = ()
    letters: Sequence[LetterGroup] | None = None
    """Open dead letters. None: the pipeline keeps none in a table, or they couldn't be read."""
    faults: Sequence[Fault] = ()
    lineage: Lineage | None = None
    """Where its records come from and go to. None: the file can't be read."""
    text: str | None = None
    """The file as everybody may see it. None: it can't be read."""
    report: Report | None = None
    """Of its last run, if there is one."""
    rows: Sequence[SomeRows] = ()
    """Some rows of its tables, and dead letters, if they are asked for."""


def status_of(pipeline: PipelineFile, spark: SparkSession, *, debug: bool = False) -> Status | Fault:
    """Where a pipeline stands, or why that can't be known. Raises nothing."""
    if pipeline.config is None:
        return pipeline.fault or Fault("The file can't be read.")
    try:
        return Pipeline(pipeline.config, debug=debug, spark=spark).status()
    except NoRecordYet as nothing:  # no fault: its table is made with the first records
        return replace(fault_of(nothing), exit_code=0)
    except Exception as error:
        return fault_of(error)


def look(
    pipeline: PipelineFile,
    spark: SparkSession,
    *,
    last: int = LAST,
    overrides: Sequence[str] = (),
    report: Report | None = None,
    before: Look | None = None,
    with_rows: bool = False,
    debug: bool = False,
) -> Look:
    """Look at one pipeline: its status, its ``last`` epochs, its dead letters, its file. Returns faults, raises none.

    ``report``: of its last run. The file is shown with the ``overrides``. ``with_rows``: look at some rows as well,
    unless nothing was committed since the look ``before``.
    """
    text = text_of(pipeline.file, overrides)
    config, now = pipeline.config, datetime.now(timezone.utc)
    status = status_of(pipeline, spark, debug=debug)
    faults = [status] if isinstance(status, Fault) else []
    if config is None:
        return Look(pipeline.file, pipeline.name, now, faults=faults, text=text, report=report)

    def seen(ask: Callable[[], Seen], otherwise: Seen) -> Seen:
        try:
            return ask()
        except Exception as error:
            faults.append(fault_of(error))
            return otherwise

    epochs: Sequence[PastEpoch] = seen(lambda: past(config, spark, last), [])
    rows: Sequence[SomeRows] = ()
    if with_rows:
        unchanged = before is not None and not before.faults and before.past == epochs
        rows = before.rows if before is not None and unchanged else seen(lambda: newest_rows(config, spark, epochs), [])
    in_table = config.dead_letters is not None and config.dead_letters.topic is None
    return Look(
        pipeline.file,
        pipeline.name,
        now,
        None if isinstance(status, Fault) else status,
        epochs,
        seen(lambda: letter_groups(config, spark), None) if in_table else None,
        faults,
        lineage_of(config),
        text,
        report,
        rows,
    )
