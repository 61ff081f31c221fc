"""The dead letters of a pipeline, as an audit reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.audit.letters import named_sink
from connector.audit.table import AuditedTable, id_of
from connector.config import PipelineConfig, tables_of_letters
from sinks.errors import NotADeltaTable
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LettersTable(AuditedTable):
    """The dead letters of a pipeline, in a table that may hold those of other tables of its name: of a clone, say."""

    def __init__(self, spark: SparkSession, config: PipelineConfig) -> None:
        super().__init__(spark, config.dead_letters, "dead_letters")
        self._own, self._places = tables_of_letters(config), config.places
        self._left = None if config.whole.two_phase else config.coordinator
        """The log of the several sinks of which one is left."""

    def open_letters(self, epoch: int | None) -> DataFrame:
        """The dead letters, without those that had gone through by this epoch in a retry, and those of other tables:
        their epochs have other numbers, and what became of their records doesn't tell what became of them here.
        ``epoch``: None where nobody knows. Then those that are open by now."""
        letters = self.rows(self.newest)
        if "_table" in letters.columns:
            own = [each for place in self._own if (each := id_of(self._spark, place))]
            # Those of no table, and of two, are from before each letter named one.
            named = ", ".join(map(literal, ["", *own]))
            letters = letters.where(f"coalesce(_table IN ({named}), true)") if own else letters
            letters = self._without_left_sinks(letters)
        if "_retried_epoch" not in letters.columns:
            return letters
        still = "_retried_epoch IS NULL" if epoch is None else f"coalesce(_retried_epoch > {epoch}, true)"
        return letters.where(still)

    def any_closed(self, pipeline: str) -> bool:
        """Whether letters of the pipeline have gone through by now."""
        letters = self.rows(self.newest).where(f"pipeline = {literal(pipeline)}")
        return "_retried_epoch" in letters.columns and not letters.where("_retried_epoch IS NOT NULL").isEmpty()

    def _without_left_sinks(self, letters: DataFrame) -> DataFrame:
        """The letters without those of sinks that have left the file: this table has their records' rows."""
        from pyspark.sql import functions as F

        log = id_of(self._spark, self._left) if self._left is not None else ""
        if not log:
            return letters
        of_one = (F.col("_table") == log) & F.col("sink").isNotNull()
        named = [row["sink"] for row in letters.where(of_one).select("sink").distinct().collect()]
        left = [name for name in named if named_sink(name, self._places) is None]
        return letters.where(F.coalesce(~(of_one & F.col("sink").isin(left)), F.lit(True)))

    def late(self, pipeline: str, epoch: int | None) -> DataFrame:
        """The open dead letters of rows that arrived after their window was closed: see ``open_letters``."""
        from pyspark.sql import functions as F

        return self.open_letters(epoch).where((F.col("pipeline") == pipeline) & (F.col("reason") == "late"))


def letters_table(config: PipelineConfig, spark: SparkSession) -> LettersTable | None:
    """The dead letters of a pipeline as they are now; None where no table has them, or none yet."""
    if config.dead_letters is None or config.dead_letters.topic is not None:
        return None
    try:
        return LettersTable(spark, config)
    except NotADeltaTable:
        return None
