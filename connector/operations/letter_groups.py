"""Lists the open dead letters of a pipeline, by what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from connector.config import PipelineConfig
from connector.display import Grid, Line, Page, Shown
from connector.engine.dead_letters import letters_table
from sinks.delta.dead_letters import DeadLetters
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class LetterGroup:
    """Open dead letters that have the same thing wrong with them."""

    reason: str
    detail: str
    sink: str | None
    """The sink that refused the records. None: the records couldn't be decoded for any sink."""
    count: int
    first_epoch: int
    last_epoch: int
    topic: str
    partition: int
    offset: int
    """The coordinates of the group's first record: this, and ``topic`` and ``partition``."""
    last_noted_at: datetime


class LetterGroups(Shown, list[LetterGroup]):
    """The open dead letters of a pipeline in groups, the largest first."""

    def __init__(self, pipeline: str, groups: Iterable[LetterGroup]) -> None:
        super().__init__(groups)
        self.pipeline = pipeline

    @property
    def total(self) -> int:
        """The number of letters in all groups."""
        return sum(group.count for group in self)

    def page(self) -> Page:
        """A row per group."""
        if not self:
            return Page([Line("", f"{self.pipeline}: no dead letters.")])
        headings = ("count", "reason", "what is wrong", "sink", "epochs", "for example", "last")
        rows = [
            (
                f"{group.count:,}",
                group.reason,
                group.detail,
                group.sink or "all",
                f"{group.first_epoch}" + (f"-{group.last_epoch}" if group.last_epoch != group.first_epoch else ""),
                f"{group.topic}-{group.partition}, offset {group.offset}",
                f"{group.last_noted_at:%Y-%m-%d %H:%M:%S}",
            )
            for group in self
        ]
        return Page([Grid(headings, rows, right=frozenset({"count"}))])


def refuse_without_letters(config: PipelineConfig) -> None:
    """Raises ConfigurationError if the pipeline has no table of dead letters."""
    place = config.dead_letters
    if place is None:
        raise ConfigurationError(
            f"Pipeline {config.name!r} sets nothing aside.",
            hint="Write on_bad_record: dead_letter and dead_letters: {path: ...} to have bad records kept.",
        )
    if place.topic is not None:
        raise ConfigurationError(
            f"The dead letters of pipeline {config.name!r} are in the Kafka topic {place.topic!r}, not in a table: "
            "they can be neither counted nor sent through again here.",
            hint=f"Read the topic: kafka-console-consumer --topic {place.topic} --from-beginning --property "
            "print.headers=true shows each record with what is wrong with it. To put them into a table, run a pipeline "
            f"of another name with source: {{topics: [{place.topic}]}}, headers: true and value: {{format: bytes}}.",
        )


def letter_groups(config: PipelineConfig, spark: SparkSession) -> LetterGroups:
    """The open dead letters. Raises ConfigurationError if the pipeline has no table of letters."""
    refuse_without_letters(config)
    letters = letters_table(config, spark)
    assert letters is not None
    return LetterGroups(config.name, _groups(letters, spark) if letters.exists() else [])


def _groups(letters: DeadLetters, spark: SparkSession) -> list[LetterGroup]:
    rows = spark.sql(
        "SELECT reason, detail, sink, count(*) AS count, min(epoch) AS first_epoch, max(epoch) AS last_epoch, "
        "min_by(struct(_topic, _partition, _offset), struct(epoch, _topic, _partition, _offset)) AS first, "
        f"unix_micros(max(_noted_at)) AS last FROM {letters.table.sql} WHERE {letters.own_sql(only_open=True)} "
        "GROUP BY reason, detail, sink ORDER BY count DESC, reason, detail, sink"
    ).collect()
    return [
        LetterGroup(
            row["reason"],
            row["detail"],
            row["sink"],
            row["count"],
            row["first_epoch"],
            row["last_epoch"],
            row["first"]["_topic"],
            row["first"]["_partition"],
            row["first"]["_offset"],
            datetime.fromtimestamp(row["last"] / 1e6, timezone.utc),
        )
        for row in rows
    ]
