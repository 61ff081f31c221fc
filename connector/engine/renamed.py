"""Refuses a sink that was written under another name, after a change of the file or of ``together``.

With ``together: eventual`` the pipeline of a sink may get another name as the file changes (``config.sink_by_sink``).
Under another name it would lose its epochs' event time, and a run that still has the old name wouldn't be fenced. From
``atomic`` to ``eventual`` a table is taken over (``sinks.delta.taken_over``). The way back would need one position of
all sinks, which they don't have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.config.sink_by_sink import PartOf, last_of
from connector.engine.coordinator_log import Log
from connector.engine.output import Output
from connector.engine.outputs import Table
from sinks.delta.metadata import CommitMetadata, pipeline_of
from sinks.delta.past_commits import PastCommits
from sinks.delta.position import Commit
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_renamed(config: PipelineConfig, outputs: Sequence[Output], log: Log | None) -> None:
    """Raises ConfigurationError if a sink's last epoch was written under another of its names, or by a pipeline of its
    own that this file had for it with ``together: eventual``."""
    if config.part_of is None:
        if config.two_phase and config.route is None:
            _refuse_together_again(config, outputs, log)
        return
    former, pattern = config.part_of.file, config.part_of.pattern
    for output in outputs:
        wrote = _last_writer(config, output, log, rf"{pattern}|^{re.escape(former)}$")
        if wrote not in (None, config.name, former):
            before, now = (name.removeprefix(f"{config.part_of.file}-") for name in (wrote, config.name))
            raise ConfigurationError(
                f"{output.label!r} was written by pipeline {wrote!r}, and the file now calls that pipeline "
                f"{config.name!r}. Its name depends on the last part of its place, and on whether another sink has the "
                "same, or on its part. Nothing was written.",
                hint=f"Give this sink its name: part: {before}. A run of that name is then fenced as before. (Without "
                f"it, the sink would begin anew as {now}.)",
            )
        if wrote in (None, former) and isinstance(output, Table):
            _refuse_another_part(config, output)


def _refuse_another_part(config: PipelineConfig, output: Table) -> None:
    """Refuse a table of the same topics that is new to this pipeline, and was written by one with a name that the file
    gives: as by a replay, whose new place has another last part. What was before ``together: atomic`` wrote it doesn't
    count."""
    assert config.part_of is not None
    file, topics = config.part_of.file, config.source.topics
    of_file = re.compile(rf"^{re.escape(file)}-([a-z0-9_-]+)$")
    for commit in _lineage(output.table):
        if pipeline_of(commit.user_metadata) == file:
            return
        found = CommitMetadata.of_anybody(commit.user_metadata)
        part = of_file.match(found.pipeline) if found is not None else None
        if found is None or part is None or not any(at.topic in topics for at in found.offsets):
            continue
        raise ConfigurationError(
            f"{output.label!r} has the records of pipeline {found.pipeline!r} up to epoch {found.epoch}, and the file "
            f"now calls that pipeline {config.name!r}: its name depends on the last part of its place, or on its part. "
            "Nothing was written.",
            hint=f"Give this sink its name: part: {part[1]}. It then goes on from that epoch, with its dead letters "
            "and all that its commits remember. If another sink of the file has this name, give this one another "
            "place.",
        )


def _refuse_together_again(config: PipelineConfig, outputs: Sequence[Output], log: Log | None) -> None:
    for sink, output in zip(config.sinks, outputs, strict=True):
        pattern = PartOf(config.name, last_of(sink.place)).pattern
        if sink.part is not None:
            pattern += f"|^{re.escape(config.name)}-{re.escape(sink.part)}$"
        wrote = _last_writer(config, output, log, pattern)
        if wrote not in (None, config.name):
            raise ConfigurationError(
                f"{output.label!r} was last written by pipeline {wrote!r}, with together: eventual. Each sink stands "
                "where its own pipeline does, so with together: atomic some would get records again, or miss them. "
                "Nothing was written.",
                hint="Write together: eventual again. Or give the file another name and other places (of the sinks and "
                "of the coordinator), from a source.start that Kafka still has.",
            )


def refuse_what_it_has(config: PipelineConfig, spark: SparkSession, outputs: Sequence[Output], log: Log | None) -> None:
    """Objects and topics don't say where a pipeline stands, so one of another name would write them again.

    Raises ConfigurationError if ``together: atomic`` has written one of them.
    """
    place = config.coordinator
    if config.part_of is None or place is None or log is None or log.done() is not None:
        return
    former = config.part_of.file
    decided = Log(spark, path=place.folder, name=place.table, pipeline=former, run="").read().decided
    for output in outputs:
        if decided is not None and output.label in decided.prepared:
            raise ConfigurationError(
                f"{output.label!r} has the records of pipeline {former!r} up to epoch {decided.epoch.number}, with "
                "together: atomic. Moving by itself, it would get them all again. Nothing was written.",
                hint="Tables go on from where they stand, but objects and topics don't. Keep together: atomic, or "
                "give this sink another place.",
            )


def _last_writer(config: PipelineConfig, output: Output, log: Log | None, pattern: str) -> str | None:
    """Of this pipeline and those whose name matches the pattern, the one that has written last to the sink."""
    if isinstance(output, Table):
        return _last_committer(output.table, config, pattern)
    return log.last_writer(output.label, pattern) if log is not None and log.exists() else None


def _last_committer(table: DeltaTable, config: PipelineConfig, pattern: str) -> str | None:
    for commit in _lineage(table):
        found = pipeline_of(commit.user_metadata)
        if found is not None and (found == config.name or re.match(pattern, found)):
            return found
    return None


def _lineage(table: DeltaTable) -> Iterator[Commit]:
    """The commits that have led to the table as it is, the newest first, as far back as its history goes."""
    if table.detail() is None or table.log is None:
        return
    history = PastCommits(table)
    version: int | None = history.newest().version
    while version is not None and version >= 0 and (commit := history.at(version)) is not None:
        yield commit
        version = commit.goes_on_from
