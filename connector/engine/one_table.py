"""The destination of a pipeline with one Delta table: rows and next offsets in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.config import PipelineConfig, Translated
from connector.delivery.ports import Destination
from connector.engine.dead_letters import letters_table
from connector.engine.epoch import Reading, run_epoch
from connector.engine.fold import Folding
from connector.engine.outputs import Table
from connector.engine.undo import suspect, undo
from connector.protocol.recover import TopicsHeld
from connector.protocol.steps import Observer
from connector.source.topics import KafkaSource
from connector.source.translated_offsets import translated
from connector.spark.tuning import tuned
from sinks.contract import Committed, Epoch, Position
from sinks.delta.recreated import retire
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.errors import OffsetsLost, TopicRecreated
from sinks.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class OneTable(Destination):
    """One Delta table, as one run writes to it. ``run``: the id of that run, the owner of its epochs."""

    config: PipelineConfig
    run: str
    spark: SparkSession
    source: KafkaSource
    table: Table
    reading: Reading
    folding: Folding | None
    """None: nothing is merged on read."""
    observe: Observer

    @property
    def takes_recreated(self) -> bool:
        return self.config.source.takes_recreated

    def position(self) -> Position | None:
        return self.table.derivation.sink.position()

    def run_epoch(self, epoch: Epoch, behind: int) -> Committed:
        appended = epoch.span if self.table.derivation.sink.appends else None
        with tuned(self.spark, self.config.spark_options, appended=appended):
            return run_epoch(epoch, self.reading, write=self._write, observe=self.observe, behind=behind)

    def _write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Commit the epoch, and undo the commit if a topic was recreated, or its log cut, while Spark read it.

        Spark reads within the write, so this is known only after the commit.
        """
        committed = self.table.derivation.sink.write(epoch, rows)
        try:
            self.source.refuse_changed(epoch)
        except (TopicRecreated, OffsetsLost) as error:
            if self.folding is not None:  # a restored log of changes would count no more at all
                raise suspect(self.table.table, committed, error) from None
            undo(self.table.table, self.table.commits, committed, error)
            look_back(self.config, self.spark, self.run, self.table)
            raise
        return committed

    def restored(self, position: Position) -> None:
        reopen_letters(self.config, self.spark, position)

    def fold(self, position: Position) -> None:
        if self.folding is not None:
            self.folding.after(position)

    def starts(self, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
        return recreated_starts(self.config, position, held, names)

    def retire(self, epoch: Epoch, names: Mapping[str, str]) -> Committed:
        letters = self.config.dead_letters
        beside = [Tombstones(self.table.table, ()).table]
        if letters is not None and letters.topic is None:
            beside.append(DeltaTable(self.spark, path=letters.path, name=letters.table))
        return retire(self.table.table, self.table.commits, epoch, names, beside)


def look_back(config: PipelineConfig, spark: SparkSession, run: str, table: Table) -> None:
    """Reopen the dead letters that a RESTORE took back, and open or end the table's log of changes.

    The log ends where the table was merged on read, and isn't any more.
    """
    if config.dead_letters is not None:
        reopen_letters(config, spark, table.derivation.sink.position())
    log = table.derivation.log
    if log is None:
        return
    if config.merged_on_read is None:
        log.close(run)
    else:
        log.make_ready()


def reopen_letters(config: PipelineConfig, spark: SparkSession, position: Position | None) -> None:
    """Reopen dead letters whose retry a RESTORE has undone."""
    if position is None or position.restored_to is None:
        return
    letters = letters_table(config, spark)
    if letters is not None:
        letters.take_back(position.offsets, position.restored_to, position.epoch)


def recreated_starts(config: PipelineConfig, position: Position, held: TopicsHeld, names: Mapping[str, str]) -> Offsets:
    """Where recreated topics begin if their offsets were translated; else empty: at their beginning."""
    on = config.source.on_recreated_topic
    if not isinstance(on, Translated):
        return Offsets()
    return translated(on.translated).starts(config.name, position, held, names)
