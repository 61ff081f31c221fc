"""Every version of every key's row, with the time span in which it was valid (slowly changing dimension, type 2).

The table is a function of the *set* of a key's events. The order of arrival doesn't matter: a late event is inserted
where it belongs. The rules:

* Events are ordered by their sequence, which is the type of ``__START_AT`` and ``__END_AT``. A table without a sequence
  orders them by offset; then a key must stay in one partition, as it must if the sequence begins with the offset.
* Of several events with the same sequence, only the last by (topic, partition, offset) counts.
* An update starts a version, and ends the version before it. An update whose tracked columns equal those of the version
  before it is *merged* into that version, which then shows the update's untracked columns.
* A delete ends the version that is current at its sequence. It has no row of its own.
* A truncate ends the versions of all keys that are current at its sequence: ``sinks.delta.truncated``.

A late event may split a version. So the version's row keeps in ``_state`` its events (if there are several) with their
untracked columns, and the delete that ended it. Deletes that ended nothing are kept beside the table for a limited
time, see ``sinks.delta.tombstones``. An event that the history already holds changes nothing.

An event may lack values (``_unavailable``). It has those of the newest earlier event of its key that has them, but none
from before a delete: ``sinks.delta.unsent_values``.

A transform may make several rows for one key from one record. Each row is an event. Of those with the same sequence (by
offset: of all of them) the one whose JSON sorts last counts, and of a delete and an update with one JSON the delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch, Position
from sinks.delta.changed_rows import GONE, changing_sql
from sinks.delta.commit import PipelineCommits, without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.fence import merge_batch, merge_epoch
from sinks.delta.key_ranges import once_kept, pruning
from sinks.delta.limits import as_stored, demands, refuse_broken
from sinks.delta.moved import about_moved_keys, events_moved_sql, in_one_partition
from sinks.delta.noted import forgotten_if_fenced, noted_by
from sinks.delta.one_type import keyed
from sinks.delta.proof import Proof
from sinks.delta.refusals import about_refused_rows
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.delta.tombstones import Tombstones
from sinks.delta.truncated import deleting, known, split, touched_by
from sinks.delta.truncated import points as truncates_as_points
from sinks.delta.unsent_values import fingerprint_fields
from sinks.delta.upsert_rule import SOURCE
from sinks.delta.version_columns import END, START, STATE, UNSENT, VersionColumns, struct_of
from sinks.delta.versions import versions_of
from sinks.offsets import Offsets
from sinks.spark.cached import kept, uncached
from sinks.spark.sql import MICROSECONDS, identifier, struct_sql, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class DeltaHistory:
    """The exactly-once history. The table's session must be the sink's own.

    Its rows are events, in any order and any number per key: the value's columns, the coordinates, ``_sequence`` if the
    table is ordered by one, ``_delete``, and ``_truncate`` if there may be such.
    """

    appends = False

    def __init__(
        self,
        table: DeltaTable,
        commits: PipelineCommits,
        *,
        columns: VersionColumns,
        tombstone_retention: timedelta = timedelta(days=7),
        ties: bool = False,
        by_offset: bool = False,
    ) -> None:
        """``ties``: a record may give several rows of a key. ``by_offset``: its events have a sequence, which
        begins with the offset."""
        self._table = table
        self._commits = commits
        self._versions = _Versions(table, columns, tombstone_retention, ties=ties, by_offset=by_offset)
        table.keeps_order = True

    @property
    def tombstones(self) -> Tombstones:
        """The deletes that are kept beside the table."""
        return self._versions.tombstones

    def position(self) -> Position | None:
        """The pipeline's position in this table. None: no epoch was committed to it."""
        return self._commits.position()

    def rehearse(self, rows: DataFrame, epoch: Epoch) -> None:
        """Fail if the write would fail because of its rows: a broken constraint, or KeyMoved. Writes nothing."""
        limits, passed = demands(self._table, rows.columns), epoch.passed
        with about_moved_keys(self._table.label):
            if limits:
                changed = self._versions.changed(rows, passed, note=False)
                stored = changed.where(f"NOT {identifier(GONE)}").drop(GONE)
                stored = as_stored(stored, self._table, stored.columns)
                refuse_broken(stored, limits, self._versions.columns.key)
            else:
                self._versions.refuse_moved(rows, passed)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Commit the epoch: keep its deletes as tombstones, and merge the versions that change.

        Tombstones of a write that failed don't count. Raises KeyMoved, and what ``sinks.delta.proof.Proof`` raises.
        """
        proof, columns = Proof(self._commits, epoch), self._versions.columns
        prunes = pruning(self._table, columns.key, rows, "")
        with about_moved_keys(self._table.label), prunes as (near, within), once_kept(near, within) as events:
            within = within and self._versions.within(events, within)
            merge = merge_sql(self._table.sql, columns, rows.schema, within)
            with forgotten_if_fenced(self.tombstones, self._commits, epoch):
                while proof.wanted():
                    with proof:
                        # Planned again at each attempt: a conflict means that the table has changed.
                        changed = self._versions.changed(events, epoch.passed, epoch=epoch, within=within)
                        merge_epoch(self._table, epoch, changed, SOURCE, merge)
        return proof.committed


class PlainHistory:
    """The history for deliveries without the exactly-once guarantee. Its commits carry no position.

    A repeated event changes nothing here either.
    """

    def __init__(
        self,
        table: DeltaTable,
        *,
        columns: VersionColumns,
        tombstone_retention: timedelta = timedelta(days=7),
        ties: bool = False,
        by_offset: bool = False,
    ) -> None:
        """``ties``, ``by_offset``: as in ``DeltaHistory``."""
        self._table = table
        self._versions = _Versions(table, columns, tombstone_retention, ties=ties, by_offset=by_offset)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Merge the versions that change. Other writers' conflicts are retried. Raises KeyMoved."""
        merge = merge_sql(self._table.sql, self._versions.columns, rows.schema)

        def write() -> int:
            self._versions.changed(events, None).createOrReplaceTempView(SOURCE)
            counts = merge_batch(self._table, epoch.pipeline, merge)
            return int(counts["num_affected_rows"]) if counts else 0

        label = self._table.label
        with about_moved_keys(label), about_refused_rows(label), kept(rows) as events:
            changed = past_conflicts(write)
        return without_position(epoch, changed)


class _Versions:
    """The versions of the keys that an epoch touches, before and after it."""

    def __init__(
        self,
        table: DeltaTable,
        columns: VersionColumns,
        tombstone_retention: timedelta,
        *,
        ties: bool,
        by_offset: bool,
    ) -> None:
        self.columns = columns
        self._ties, self._by_offset = ties, by_offset
        self._table = table
        self.tombstones = Tombstones(table, columns.key)
        self._retention = tombstone_retention

    def within(self, events: DataFrame, keys: str) -> str:
        """SQL that is true of every row ``t`` that the events may change; empty: unknown. ``keys``: of those that have
        a key of theirs."""
        _, truncates = split(events)
        return keys if truncates is None or truncates.isEmpty() else ""

    def refuse_moved(self, events: DataFrame, position: Offsets | None) -> None:
        """Fail at a key that has left its partition, as ``changed`` does, where that isn't allowed. Writes nothing.

        ``position``: see there.
        """
        if self._by_offset or "_sequence" not in events.columns:
            events = keyed(self._table, events, self.columns.key)
            events.createOrReplaceTempView(SOURCE)
            tombstones = self.tombstones.passed_sql(position, events.schema)
            self._table.spark.sql(events_moved_sql(SOURCE, self._table.sql, tombstones, self.columns.key)).collect()

    def changed(
        self,
        events: DataFrame,
        position: Offsets | None,
        *,
        note: bool = True,
        epoch: Epoch | None = None,
        within: str = "",
    ) -> DataFrame:
        """The table's rows that differ after ``events``, and a column ``lakelock gone``: the row is to be deleted.

        ``position``: only tombstones of records before it count, as later records are still to be read; None: all
        count. ``note``: whether to keep the deletes among the events as tombstones. ``epoch``: None if a consumer group
        has the offsets. ``within``: SQL that is true of every row ``t`` with a key of the events; empty: unknown.
        """
        from pyspark.sql import functions as F

        events = keyed(self._table, events, self.columns.key)
        if self._by_offset:
            self.refuse_moved(events, position)
        if note:
            self._note(events, epoch)
        events, truncates = split(events)
        by_sequence = "_sequence" in events.columns
        key, at = f"{struct_of(self.columns.key)} AS key", "_sequence" if by_sequence else "_offset"
        unsent = self.columns.unsent if UNSENT in events.columns else "NULL"
        new = events.selectExpr(
            key,
            f"{self.columns.event(at, events.schema, 'NOT _delete', unsent)} AS event",
            "_delete AS deletes",
            f"{struct_of(self.columns.tracked)} AS tracked",
            "true AS incoming",
            *([f"{_tie(events.columns)} AS tie"] if self._ties else []),
        )
        touched = new.groupBy("key").agg(
            F.min("event.at").alias("first"), F.expr("min(struct(event.topic, event.partition))").alias("place")
        )
        if truncates is not None:
            others = touched_by(truncates, self._table, self.columns)
            touched = touched.unionByName(others, allowMissingColumns=True)
            touched = touched.groupBy("key").agg(F.min("first").alias("first"), F.min("place").alias("place"))
        points = new.unionByName(self._stored(touched, events.schema, by_sequence, within), allowMissingColumns=True)
        passed = self.tombstones.passed_sql(position, events.schema)
        tombstones = self._table.spark.sql(f"SELECT * FROM {passed}") if passed is not None else None
        ends = known(truncates, tombstones, self.columns.key[0])
        if ends is not None:
            points = points.unionByName(
                truncates_as_points(ends, touched, self.columns, events.schema), allowMissingColumns=True
            )
        if tombstones is not None:
            deletes = tombstones.selectExpr(
                key, f"{self.columns.event(at, events.schema, 'false')} AS event", "true AS deletes"
            )
            points = points.unionByName(deletes.join(touched, "key", "left_semi"), allowMissingColumns=True)
        # One shuffle: all that follows groups by the key, or by the key and more.
        points = points.repartition("key")
        if not by_sequence:
            points = in_one_partition(points, self.columns.key)
        versions = versions_of(points, self.columns if UNSENT in events.columns else None)
        return self._rows(versions, events.schema)

    def _stored(self, touched: DataFrame, events: StructType, by_sequence: bool, within: str) -> DataFrame:
        """The events of the stored versions that the epoch may change: those that didn't end before the key's first new
        event.

        An earlier version, and the event that ended it, lie before every event of the epoch. Leaving them out makes no
        difference: after such a version either an update has started the next one, or there was a delete.
        """
        end = f"{END} IS NULL OR {END} >= first"
        ended_by = "filter(array(named_struct('event', ended_by, 'deletes', true)), d -> d.event IS NOT NULL)"
        if by_sequence:
            # If the next version starts there, its first event is the stronger one.
            truncate = self.columns.truncate(END, events)
            ended_by += (
                f", CASE WHEN {END} IS NOT NULL AND ended_by IS NULL "
                f"THEN array(named_struct('event', {truncate}, 'deletes', true)) ELSE array() END"
            )
        else:
            end += " OR struct(events[0].topic, events[0].partition) <> place"
        there = self._table.schema
        state = self.columns.stored_state(events, there)
        stored = (
            uncached(self._table.spark, self._table.sql)
            .alias("t")
            .where(within or "true")
            .where("_offset IS NOT NULL")  # leaves out rows that a person inserted
            .selectExpr(
                f"{struct_of(self.columns.key)} AS key",
                f"{struct_of(self.columns.tracked)} AS tracked",
                f"coalesce({state}.events, array({self.columns.event(START, events, stored=there)})) AS events",
                f"{state}.ended_by AS ended_by",
                END,
            )
            .join(touched, "key")
            .where(end)
        )
        return stored.selectExpr(
            "key",
            "tracked",
            f"{self._fingerprint(END, events)} AS before",
            "posexplode(concat(transform(events, e -> named_struct('event', e, 'deletes', false)), "
            f"{ended_by})) AS (number, point)",
        ).selectExpr(
            "key", "point.event", "point.deletes", "tracked", "CASE WHEN number = 0 THEN before END AS before",
            "true AS stored",
        )  # fmt: skip

    def _rows(self, versions: DataFrame, events: StructType) -> DataFrame:
        """The versions that the table lacks or holds in another form, and the starts of rows to be deleted."""
        same = f"get(filter(rows, r -> r.at <=> start), 0).before <=> {self._fingerprint('`end`', events)}"
        differ = versions.selectExpr(
            "*",
            f"explode(concat(CASE WHEN start IS NOT NULL AND NOT ({same}) THEN array(start) ELSE array() END, "
            "transform(filter(rows, r -> NOT r.at <=> start), r -> r.at))) AS at",
        )
        needed = "size(events) > 1"
        if UNSENT in events.names:
            needed = f"({needed} OR get(events, 0).unsent IS NOT NULL)"
        several = f"CASE WHEN {needed} THEN events END"
        sql = {
            **{name: f"key.{identifier(name)}" for name in self.columns.key},
            **{name: f"tracked.{identifier(name)}" for name in self.columns.tracked},
            # The values of the last event, even if it was merged into an earlier version.
            **{name: f"try_element_at(events, -1).values.{identifier(name)}" for name in self.columns.untracked},
            START: "at",
            END: "`end`",
            **{name: f"get(events, 0).{name[1:]}" for name in COORDINATES},
            STATE: f"CASE WHEN {needed} OR ended_by IS NOT NULL "
            f"THEN named_struct('events', {several}, 'ended_by', ended_by) END",
        }
        names = self.columns.table(events).names
        return differ.selectExpr(
            *(f"{sql[name]} AS {identifier(name)}" for name in names),
            f"NOT at <=> start AS {identifier(GONE)}",
        )

    def _fingerprint(self, end: str, events: StructType) -> str:
        """SQL that identifies a version among those of its key, by its events. Its values follow from them, unless an
        event may lack some.

        ``end``: SQL of the version's end; ``events``: schema of the epoch's events.
        """
        coordinates = "struct({0}.at, {0}.topic, {0}.partition, {0}.offset)"
        fields = {
            "events": f"transform(events, e -> {coordinates.format('e')})",
            "end": end,
            "ended_by": f"CASE WHEN ended_by IS NOT NULL THEN {coordinates.format('ended_by')} END",
            **(fingerprint_fields(self.columns) if UNSENT in events.names else {}),
        }
        return struct_sql(fields)

    def _note(self, events: DataFrame, epoch: Epoch | None) -> None:
        deletes = deleting(events, self.columns.key)
        if deletes.isEmpty():
            return
        self.tombstones.add(deletes, noted_by(epoch) if epoch is not None else None)
        self.tombstones.expire_now_and_then(self._retention, epoch)


def _tie(columns: Sequence[str]) -> str:
    """SQL of the order of the rows that one record gives. ``columns``: of the events."""
    others = (*COORDINATES, "_sequence", "_delete", UNSENT)
    own = ", ".join(identifier(name) for name in columns if name not in others)
    return f"struct({to_json(f'struct({own})', MICROSECONDS)}, _delete)"


def merge_sql(target: str, columns: VersionColumns, events: StructType, within: str = "") -> str:
    """The MERGE of one epoch, from the view ``SOURCE``. A version is identified by its key and its start.

    ``target``: SQL of the table; ``events``: schema of the epoch's events; ``within``: as in ``changed``.
    """
    return changing_sql(target, columns.table(events).names, (*map(identifier, columns.key), START), within)
