"""Records that don't get into the table, kept whole, with the reason.

They are written before the commit of their epoch, which passes them. A crash in between leaves them there already; the
next run meets the same records, and finds them: a record has one open letter per reason, sink and window.

A letter is open while its ``_retried_epoch`` is null, and counts from then on that the table's position has passed its
record: one behind it is of an epoch that was never committed, or that was taken back, and its record is still to be
read. A letter whose record has gone through is closed, and stays for the history.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sinks.contract import Epoch
from sinks.delta.conflicts import past_conflicts
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.offsets import Offsets
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCE = "lakelock_dead_letters"
_WINDOW = ("window_start", "window_end")
_RECORD = COORDINATES[:3]
IDENTITY = ("sink", "reason", *_WINDOW, *_RECORD)
"""Of a letter of one pipeline."""
_RETRIES = {"_retry": "STRING", "_retried_epoch": "BIGINT", "_retried_at": "TIMESTAMP"}
COLUMNS = (
    "pipeline STRING, sink STRING, epoch BIGINT, reason STRING, detail STRING, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, window_start TIMESTAMP, window_end TIMESTAMP, "
    "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _noted_at TIMESTAMP, "
    + ", ".join(f"{name} {kind}" for name, kind in _RETRIES.items())
)
"""``sink``: the one that doesn't take the record; null where no sink could. ``window_start``, ``window_end``: of a late
record; null for sessions. ``_noted_at``: when it was written. ``_retry``: the run that tries it again, or has.
``_retried_epoch``, ``_retried_at``: by which epoch it went through, and when; null while it is open. Closed without a
``_retry``: the table was taken back, and from that epoch on its record is read once more."""


class DeadLetters:
    """The letters of one pipeline."""

    def __init__(self, table: DeltaTable, *, pipeline: str) -> None:
        self.table = table
        self._of_pipeline = f"pipeline = {literal(pipeline)}"
        self._pipeline = pipeline
        self._ready = False

    def exists(self) -> bool:
        return self.table.exists()

    def add(self, letters: DataFrame, epoch: Epoch) -> None:
        """``letters``: columns ``sink``, ``reason``, ``detail``, ``key``, ``value``, ``headers``, the coordinates, and
        the window where there is one."""
        self._make_ready()
        rows = identified(letters).selectExpr(
            f"{literal(self._pipeline)} AS pipeline", "sink", f"{int(epoch.number)}L AS epoch", "reason", "detail",
            "key", "value", "headers", *_WINDOW, *COORDINATES, "current_timestamp() AS _noted_at",
            *(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _RETRIES.items()),
        )  # fmt: skip
        rows.createOrReplaceTempView(_SOURCE)
        same = " AND ".join(f"t.{name} <=> s.{name}" for name in ("pipeline", *IDENTITY))
        self._run(
            f"MERGE INTO {self.table.sql} AS t USING {_SOURCE} AS s "
            f"ON {same} AND (t._retried_epoch IS NULL OR t._retry IS NULL) "
            # It is this epoch's now: `take_back` leaves it alone.
            "WHEN MATCHED AND (t.epoch <> s.epoch OR t._retried_epoch IS NOT NULL) THEN "
            "UPDATE SET epoch = s.epoch, _retried_epoch = NULL, _retried_at = NULL "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def begin(self, retry: str, position: Offsets, *, noted_since: datetime | None = None) -> int:
        """Mark the open letters that count at this position, and that were noted since; how many there are."""
        self._make_ready()
        since = f" AND _noted_at >= {_time(noted_since)}" if noted_since else ""
        return self._update({"_retry": literal(retry)}, f"_retried_epoch IS NULL AND {_passed(position)}{since}")

    def older(self, position: Offsets, before: datetime) -> int:
        """How many open letters were noted before."""
        self._make_ready()
        is_open = f"{self._of_pipeline} AND _retried_epoch IS NULL AND {_passed(position)}"
        where = f"{is_open} AND _noted_at < {_time(before)}"
        found = self.table.spark.sql(f"SELECT count(*) AS n FROM {self.table.sql} WHERE {where}").first()
        return found["n"] if found else 0

    def records(self, retry: str) -> DataFrame:
        """The marked ones as Kafka's source gives records, each once, whatever becomes of the table meanwhile."""
        version = self.table.history(1)[0].version
        return self.table.spark.sql(
            "SELECT key, value, _topic AS topic, _partition AS partition, _offset AS offset, _timestamp AS timestamp, "
            f"headers FROM {self.table.sql} VERSION AS OF {version} "
            f"WHERE {self._of_pipeline} AND _retry = {literal(retry)}"
        ).dropDuplicates(["topic", "partition", "offset"])

    def keep(self, letters: DataFrame, retry: str) -> None:
        """These are still bad: they stay open, with what is wrong with them now. No more than one is told."""
        letters.dropDuplicates([*_RECORD]).createOrReplaceTempView(_SOURCE)
        same = " AND ".join(f"t.{name} = s.{name}" for name in _RECORD)
        self._run(
            f"MERGE INTO {self.table.sql} AS t USING {_SOURCE} AS s "
            f"ON t.{self._of_pipeline} AND t._retry = {literal(retry)} AND {same} "
            "WHEN MATCHED THEN UPDATE SET sink = s.sink, reason = s.reason, detail = s.detail, _retry = NULL"
        )

    def close(self, retry: str, epoch: int) -> int:
        """What is still marked has gone through, by this epoch; how many there are."""
        through = {"_retried_epoch": f"{int(epoch)}L", "_retried_at": "current_timestamp()"}
        return self._update(through, f"_retry = {literal(retry)} AND _retried_epoch IS NULL")

    def take_back(self, offsets: Offsets, restored_to: int, highest: int) -> None:
        """The table was taken back to these offsets, those of epoch ``restored_to``; ``highest``: the number that is
        taken. Can be done again.

        What went through after that epoch is open again. What was noted for records behind the offsets is closed: of
        epochs whose numbers are taken none will ever commit these records, and they are read once more.
        """
        if not self.exists():
            return
        self._make_ready()
        reopened = {"_retried_epoch": "NULL", "_retried_at": "NULL"}
        self._update(reopened, f"_retried_epoch > {int(restored_to)} AND {_passed(offsets)}")
        again = {"_retry": "NULL", "_retried_epoch": f"{int(highest) + 1}L", "_retried_at": "current_timestamp()"}
        # A partition that the offsets don't name is read again from offset 0.
        self._update(again, f"_retried_epoch IS NULL AND epoch <= {int(highest)} AND NOT {_passed(offsets)}")

    def _update(self, values: dict[str, str], where: str) -> int:
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        sql = f"UPDATE {self.table.sql} SET {sets} WHERE {self._of_pipeline} AND {where}"
        return self._run(sql)

    def _run(self, sql: str) -> int:
        """Rows that it changed."""
        counts = past_conflicts(lambda: self.table.spark.sql(sql).first())
        return int(counts[0]) if counts else 0

    def _make_ready(self) -> None:
        """It is there, and has the columns that earlier versions didn't write."""
        if self._ready:
            return
        if not self.exists():
            self.table.create(self.table.spark.createDataFrame([], COLUMNS).schema)
        there = self.table.spark.table(self.table.sql).columns
        missing = [f"{name} {kind}" for name, kind in _RETRIES.items() if name not in there]
        if missing:
            self.table.spark.sql(f"ALTER TABLE {self.table.sql} ADD COLUMNS ({', '.join(missing)})").collect()
        self._ready = True


def identified(letters: DataFrame) -> DataFrame:
    """With the window's columns, null where there is none, and each letter once: a transform may have made several
    rows of one record."""
    missing = [name for name in _WINDOW if name not in letters.columns]
    rows = letters.selectExpr("*", *(f"CAST(NULL AS TIMESTAMP) AS {name}" for name in missing))
    return rows.dropDuplicates([*IDENTITY])


def _passed(offsets: Offsets) -> str:
    """SQL: whether a record lies before these offsets; of a partition that isn't among them none does."""
    each = (
        f"(_topic = {literal(at.topic)} AND _partition = {at.partition} AND _offset < {offset})"
        for at, offset in offsets.items()
    )
    return f"coalesce({' OR '.join(each) or 'false'}, false)"


def _time(at: datetime) -> str:
    return f"timestamp_micros({int(at.timestamp() * 1_000_000)})"
