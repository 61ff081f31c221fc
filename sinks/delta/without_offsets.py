"""The writes of deliveries without the exactly-once guarantee: plain Delta commits without offsets, epoch or proof.

An append that is repeated adds its rows again. Only a guarded upsert (delivery ``idempotent``) ignores changes that the
table already holds, by the offsets in its rows and in its tombstones.

A MERGE says in its commit that it is a pipeline's, as a person's change may stop a run, and is named by the auditor.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from sinks.contract import Committed, Epoch
from sinks.delta.append import evolution
from sinks.delta.commit import without_position
from sinks.delta.conflicts import past_conflicts
from sinks.delta.fence import merge_batch
from sinks.delta.merge import Merge
from sinks.delta.moved import about_moved_keys
from sinks.delta.refusals import about_refused_rows
from sinks.delta.table import DeltaTable
from sinks.delta.upsert import Deletes, Gone, Merges, up_to_a_delete
from sinks.delta.upsert_rule import SOURCE, UpsertRule
from sinks.spark.cached import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PlainAppend:
    """An append without a position."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Append the rows. Conflicts with other writers are retried."""
        writer = rows.writeTo(self._table.sql)
        for name, value in evolution(self._table).items():
            writer = writer.option(name, value)
        with about_refused_rows(self._table.label):
            past_conflicts(writer.append)
        return without_position(epoch, None)


class PlainUpsert:
    """An upsert without a position. If ``rule.guarded``, a change whose order isn't higher than the stored one is
    ignored. Else the last writer wins."""

    def __init__(
        self,
        table: DeltaTable,
        *,
        pipeline: str,
        rule: UpsertRule,
        tombstone_retention: timedelta = timedelta(days=7),
        gone: Gone = tuple,
    ) -> None:
        """``pipeline``: its name, which its commits carry; ``tombstone_retention``: how long a delete is remembered, if
        the rule is guarded; ``gone``: see ``Gone``."""
        self._table, self._pipeline = table, pipeline
        keep = rule.guarded and not rule.soft
        self._merges = Merges(table, rule, keep=keep, retention=tombstone_retention, gone=gone)

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Merge the rows: net changes, see ``DeltaUpsert``. Conflicts are retried. Raises KeyMoved."""
        with about_moved_keys(self._table.label), about_refused_rows(self._table.label):
            return without_position(epoch, self._write(self._merges.keyed(rows)))

    def _write(self, rows: DataFrame) -> int:
        changed = 0
        if self._stored(rows) is None:
            with up_to_a_delete():
                changed = self._run(*self._merges.without_deletes(rows))
                if self._stored(rows) is None:
                    return changed
        with kept(rows) as changes:
            return changed + self._with_deletes(changes)

    def _with_deletes(self, rows: DataFrame) -> int:
        """Another member of the group may note a delete, find no row for it, and be done, all before this one adds the
        row. Delta sees no conflict in that. So whoever has merged looks whether a newer delete of its keys was noted
        meanwhile, and merges those again, which deletes the row. By offset as well: a member that was paused, and
        replaced, may write late.

        A crash before the second look leaves the row. Then the records are delivered again, and merged beside the
        tombstone."""
        assert self._merges.tombstones is not None
        stored, seen = self._look(rows)
        deletes = self._merges.deletes(rows, stored)
        if deletes.added:
            self._merges.note(rows)
            stored, seen = self._look(rows)
            deletes = self._merges.deletes(rows, stored)
        changed = self._run(*self._merges.beside(rows, stored, deletes))
        return changed + self._again(rows, seen, deletes)

    def _look(self, rows: DataFrame) -> tuple[str | None, int | None]:
        """SQL of the tombstones, and a version of theirs that no query on them from now on is older than; None: there
        are none yet."""
        assert self._merges.tombstones is not None
        stored = self._stored(rows)
        return stored, self._merges.tombstones.table.history(1)[0].version if stored is not None else None

    def _again(self, rows: DataFrame, seen: int | None, deletes: Deletes) -> int:
        """Merge again what a newer delete concerns: one that was noted after ``seen``, or a truncate newer than that of
        ``deletes``.

        Once is enough, because this MERGE adds no row. One that is gone was deleted meanwhile, and is to stay so. And
        whoever notes a delete from now on finds the row that the first MERGE has added."""
        assert self._merges.tombstones is not None
        stored = self._stored(rows) if self._merges.tombstones.table.committed_after(seen) else None
        if stored is None:
            return 0
        newer = self._merges.deletes(rows, stored)
        if newer.newest_truncate == deletes.newest_truncate:
            rows = self._merges.overtaken(rows, seen)
            if rows.isEmpty():
                return 0
        source, merge = self._merges.beside(rows, stored, newer)
        return self._run(source, replace(merge, insert_when="false"))

    def _stored(self, rows: DataFrame) -> str | None:
        # Only the consumer group knows the table's position, so all tombstones count.
        return self._merges.stored(rows, None)

    def _run(self, source: DataFrame, merge: Merge) -> int:
        """The number of rows that changed."""
        source.createOrReplaceTempView(SOURCE)
        sql = merge.statement(self._table.sql, SOURCE)
        counts = past_conflicts(partial(merge_batch, self._table, self._pipeline, sql))
        return counts["num_affected_rows"] if counts else 0
