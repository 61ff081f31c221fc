"""Every version of every key's row, with the time in which it was valid and the time in which it was on record.

The table is a function of the *set* of a key's events: the order of arrival, the cuts of epochs and repeated records
make no difference. An event has a sequence, a system sequence, the coordinates of its record, and it is an update with
values or a delete. The rules:

* At a recorded time s the events are known whose system sequence is at most s.
* Of known events with the same sequence, only the last by (system sequence, topic, partition, offset) counts. So an
  event that is recorded later with the same sequence *corrects* the earlier one, from its recorded time on.
* The history at s is what ``sinks.delta.history`` makes of the events that count at s, with all columns tracked.
* A row is a version: the event that has started it, and ``__START_AT`` to ``__END_AT``. It is in the histories of all s
  with ``__SYSTEM_START_AT <= s < __SYSTEM_END_AT``, and this span is as long as it can be. NULL: it has no end yet.

Any late event may change what follows it in either time. So the last row of a key keeps in ``_state`` all of the key's
events, if it has several, and a key with a new event is computed again from all of them. A key that only has deletes
has no version at any time. Its events are kept in a row that is valid and on record for no time at all: both its spans
end where they begin, so no query as of a time finds it.

All is in the table, and changes in the commit of its epoch. A crash before the commit leaves the table as it was, and
the next run reads the records again. After the commit their events are there, and change nothing when they come again.
A RESTORE takes the events back with the rows. No delete is ever forgotten, so nothing is kept beside the table.

A transform may make several rows for one key from one record. See ``sinks.delta.history`` for which of them counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.changed_rows import GONE, changing_sql
from sinks.delta.commit import PipelineCommits, without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.fence import merge_batch, merge_epoch
from sinks.delta.key_ranges import once_kept, pruning
from sinks.delta.limits import as_stored, demands, refuse_broken
from sinks.delta.one_type import keyed
from sinks.delta.proof import Proof
from sinks.delta.recorded_columns import EVENT_PLACE, SYSTEM, SYSTEM_END, SYSTEM_START, RecordedColumns
from sinks.delta.recorded_spans import spans_sql
from sinks.delta.refusals import about_refused_rows
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.upsert_rule import SOURCE
from sinks.delta.version_columns import END, START, STATE, struct_of
from sinks.spark.cached import kept, uncached
from sinks.spark.sql import MICROSECONDS, identifier, struct_sql, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class DeltaBitemporal:
    """The exactly-once bitemporal history. The table's session must be the sink's own.

    Its rows are events, in any order and any number per key: the value's columns, the coordinates, ``_sequence``,
    ``_system_sequence`` and ``_delete``.
    """

    appends = False

    def __init__(
        self, table: DeltaTable, commits: PipelineCommits, *, columns: RecordedColumns, ties: bool = False
    ) -> None:
        """``ties``: a record may give several rows of a key."""
        self._table = table
        self._commits = commits
        self._columns = columns
        self._versions = _Versions(table, columns, ties=ties)

    def position(self) -> Position | None:
        """The pipeline's position in this table. None: no epoch was committed to it."""
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:  # noqa: ARG002
        """Fail if the write would fail because of its rows: a broken constraint. Writes nothing."""
        limits = demands(self._table, rows.columns)
        if limits:
            stored = self._versions.changed(rows).where(f"NOT {identifier(GONE)}").drop(GONE)
            refuse_broken(as_stored(stored, self._table, stored.columns), limits, self._columns.key)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Commit the epoch: merge the rows that change. Raises what ``sinks.delta.proof.Proof`` raises."""
        proof = Proof(self._commits, epoch)
        with pruning(self._table, self._columns.key, rows, "") as (near, within), once_kept(near, within) as events:
            merge = merge_sql(self._table.sql, self._columns, rows.schema, within)
            while proof.wanted():
                with proof:
                    # Planned again at each attempt: a conflict means that the table has changed.
                    merge_epoch(self._table, epoch, self._versions.changed(events, within), SOURCE, merge)
        return proof.committed


class PlainBitemporal:
    """The same for deliveries without the exactly-once guarantee. Its commits carry no position.

    A repeated event changes nothing here either.
    """

    def __init__(self, table: DeltaTable, *, columns: RecordedColumns, ties: bool = False) -> None:
        """``ties``: as in ``DeltaBitemporal``."""
        self._table = table
        self._columns = columns
        self._versions = _Versions(table, columns, ties=ties)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Merge the rows that change. Other writers' conflicts are retried."""
        merge = merge_sql(self._table.sql, self._columns, rows.schema)

        def write() -> int:
            self._versions.changed(events).createOrReplaceTempView(SOURCE)
            counts = merge_batch(self._table, epoch.pipeline, merge)
            return int(counts["num_affected_rows"]) if counts else 0

        with about_refused_rows(self._table.label), kept(rows) as events:
            changed = past_conflicts(write)
        return without_position(epoch, changed)


@dataclass(frozen=True)
class _Versions:
    """The rows of the keys that an epoch touches, before and after it."""

    _table: DeltaTable
    _columns: RecordedColumns
    ties: bool

    def changed(self, events: DataFrame, within: str = "") -> DataFrame:
        """The table's rows that differ after ``events``, and a column ``lakelock gone``: the row is to be deleted.

        ``within``: SQL that is true of every row ``t`` of the table that has a key of the events; empty: unknown.
        """
        from pyspark.sql import functions as F

        events = keyed(self._table, events, self._columns.key)
        key, columns, schema = f"{struct_of(self._columns.key)} AS key", self._columns, events.schema
        new = events.selectExpr(
            key,
            f"{columns.event('_sequence', SYSTEM, '_delete', schema)} AS event",
            "false AS stored",
            *([f"{self._tie(events.columns)} AS tie"] if self.ties else []),
        )
        points = new.unionByName(self._stored(new, schema, within), allowMissingColumns=True)
        # One shuffle: all that follows groups by the key, or by the key and more.
        # Behind `stored`: of a record that is read again, the row that counted the first time goes on counting.
        tie = ", tie" if self.ties else ""
        single = (
            points.repartition("key")
            .groupBy("key", "event.at", "event.system")
            .agg(
                F.expr(f"max_by(event, struct(event.topic, event.partition, event.offset, stored{tie})) AS event"),
                F.first("before", ignorenulls=True).alias("before"),
            )
        )
        of_key = single.groupBy("key").agg(
            F.collect_list("event").alias("unordered"), F.first("before", ignorenulls=True).alias("before")
        )
        ordered = of_key.selectExpr("key", "before", f"{_in_order('unordered')} AS events")
        spans = ordered.withColumn("spans", F.expr(spans_sql("events", schema[SYSTEM].dataType, columns.same)))
        return self._rows(spans, schema)

    def _stored(self, new: DataFrame, events: StructType, within: str) -> DataFrame:
        """The events of the keys that the epoch touches. The first one of a key also has ``before``: the key's rows,
        each with what tells whether it changes."""
        from pyspark.sql import functions as F

        columns, there = self._columns, self._table.schema
        of_key = (
            uncached(self._table.spark, self._table.sql)
            .alias("t")
            .where(within or "true")
            .where("_offset IS NOT NULL")  # leaves out rows that a person inserted
            .selectExpr(
                f"{struct_of(columns.key)} AS key",
                f"{columns.event(START, SYSTEM_START, 'false', events, there)} AS own",
                f"{columns.stored_events(events, there)} AS events",
                f"{self._before(START, SYSTEM_START, END, SYSTEM_END, f'{STATE}.events')} AS row",
            )
            .join(new.select("key").distinct(), "key", "left_semi")
            .groupBy("key")
            .agg(
                # A key without them has a single event, and so a single row, which tells of it.
                F.expr("coalesce(first(events, true), array(min_by(own, struct(own.at, own.system)))) AS events"),
                F.collect_list("row").alias("before"),
            )
        )
        return of_key.selectExpr("key", "before AS rows", "posexplode(events) AS (number, event)").selectExpr(
            "key", "event", "true AS stored", "CASE WHEN number = 0 THEN rows END AS before"
        )

    def _rows(self, spans: DataFrame, events: StructType) -> DataFrame:
        """The rows that the table lacks or holds in another form, and those to be deleted.

        ``spans``: ``key``, its ``events`` in order, ``spans`` as in ``spans_sql``, and its rows ``before``.
        """
        from pyspark.sql import functions as F

        columns = self._columns
        several = "size(events) > 1 OR get(events, 0).deletes"
        home = f"CASE WHEN number = size(spans) - 1 AND ({several}) THEN events END"
        after = struct_sql(
            {
                "event": "get(events, span.first)",
                "end": "get(events, span.ended).at",
                "recorded": "span.since",
                "until": "span.until",
                "events": home,
            }
        )
        of_after, of_before = columns.sql_of_after(events), columns.sql_of_before(events)
        new = struct_sql({"after": f"CAST({after} AS {of_after})", "before": f"CAST(NULL AS {of_before})"})
        old = struct_sql({"after": f"CAST(NULL AS {of_after})", "before": f"CAST(row AS {of_before})"})
        both = (
            spans.withColumn("before", F.expr("coalesce(before, array())"))
            .selectExpr(
                "key",
                f"explode(concat(transform(spans, (span, number) -> {new}), transform(before, row -> {old}))) AS found",
            )
            .selectExpr("key", "found.after", "found.before")
        )
        at, system = "coalesce(after.event.at, before.at)", "coalesce(after.recorded, before.system)"
        compared = (
            both.withColumns({"at": F.expr(at), "recorded": F.expr(system)})
            .groupBy("key", "at", "recorded")
            .agg(F.first("after", ignorenulls=True).alias("after"), F.first("before", ignorenulls=True).alias("before"))
        )
        now = struct_sql(
            {
                "at": "at", "system": "recorded", "topic": "after.event.topic", "partition": "after.event.partition",
                "offset": "after.event.offset", "end": "after.end", "until": "after.until",
                "events": _places("after.events"),
            }
        )  # fmt: skip
        now = f"CAST({now} AS {of_before})"
        sql = {
            **{name: f"key.{identifier(name)}" for name in columns.key},
            **{name: f"after.event.values.{identifier(name)}" for name in columns.values},
            START: "at",
            END: "after.end",
            SYSTEM_START: "recorded",
            SYSTEM_END: "after.until",
            **{name: f"after.event.{name[1:]}" for name in COORDINATES},
            STATE: "CASE WHEN after.events IS NOT NULL THEN named_struct('events', after.events) END",
        }
        return compared.where(f"after IS NULL OR NOT (before <=> {now})").selectExpr(
            *(f"{sql[name]} AS {identifier(name)}" for name in columns.table(events).names),
            f"after IS NULL AS {identifier(GONE)}",
        )

    def _tie(self, names: Sequence[str]) -> str:
        """SQL of the order of the rows that one record gives. ``names``: the columns of the events, in their order."""
        own = {*self._columns.key, *self._columns.values}
        columns = struct_sql({name: identifier(name) for name in names if name in own})
        return f"struct({to_json(columns, MICROSECONDS)}, _delete)"

    def _before(self, at: str, system: str, end: str, until: str, events: str) -> str:
        """SQL that identifies a row, and tells it from one of the same start that is another."""
        return struct_sql(
            {
                "at": at, "system": system, "topic": "_topic", "partition": "_partition", "offset": "_offset",
                "end": end, "until": until, "events": _places(events),
            }
        )  # fmt: skip


def _places(events: str) -> str:
    """SQL that tells events apart. Their values follow."""
    return f"transform({events}, e -> {struct_sql({name: f'e.{name}' for name in EVENT_PLACE})})"


def _in_order(events: str) -> str:
    """SQL of a key's events in order: no two have both sequences in common."""
    order = (
        "CASE WHEN l.at < r.at THEN -1 WHEN l.at > r.at THEN 1 "
        "WHEN l.system < r.system THEN -1 WHEN l.system > r.system THEN 1 ELSE 0 END"
    )
    return f"array_sort({events}, (l, r) -> {order})"


def merge_sql(target: str, columns: RecordedColumns, events: StructType, within: str = "") -> str:
    """The MERGE of one epoch, from the view ``SOURCE``. A row is identified by its key and both its starts.

    ``target``: SQL of the table; ``events``: schema of the epoch's events; ``within``: as in ``changed``.
    """
    return changing_sql(
        target, columns.table(events).names, (*map(identifier, columns.key), START, SYSTEM_START), within
    )
