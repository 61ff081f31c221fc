"""The MERGE of an upsert, as SQL text: what a change to a key makes of its row. Also as a query, which changes none.

Per key a table holds a join-semilattice, so that its result is the same however the records are interleaved, cut into
epochs or replayed. U is the update with the highest order, D the highest order of a delete, T that of a truncate; all
three only grow. The row is there if and only if U > D and U > T, and what is at or below the stored order changes
nothing.

The order is Kafka's offset, in the one partition that a key has to stay in; with a sequence it is (sequence, topic,
partition, offset) and a key may be in any partition. Spark compares structs field by field, and a null is lowest: a row
that a person put in, or that had no sequence when the column was added, is older than every change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sinks.delta.merge import Change, Merge
from sinks.recreated import MARK as RETIRED
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal

SOURCE = "lakelock_epoch"
DELETED_BY = "_deleted_by"
COLUMNS = "_columns"


@dataclass(frozen=True)
class UpsertRule:
    key: Sequence[str]
    sequenced: bool = False
    """The order is (_sequence, _topic, _partition, _offset); else _offset."""
    soft: bool = False
    """A deleted row stays, with ``_deleted`` and ``_deleted_by``."""
    ignore_nulls: Sequence[str] = ()
    """In these columns a null of an update leaves the older value."""
    guarded: bool = True
    """Without, the last writer wins. With ``sequenced`` always true."""

    @property
    def replaces(self) -> bool:
        """Whether a change that comes later in its partition leaves nothing of what was there."""
        return not (self.sequenced or self.soft or self.ignore_nulls)


def order_sql(row: str, *, sequenced: bool) -> str:
    """The order of this row's update."""
    sequence = f"'sequence', {row}._sequence, " if sequenced else ""
    return f"named_struct({sequence}'topic', {row}._topic, 'partition', {row}._partition, 'offset', {row}._offset)"


def deleted_sql(delete: str, *, sequenced: bool) -> str:
    """The order of a ``_deleted_by``; null where that is."""
    fields = [*(["sequence"] if sequenced else []), "topic", "partition", "offset"]
    pairs = ", ".join(f"'{field}', {delete}.{identifier(field)}" for field in fields)
    return f"CASE WHEN {delete} IS NOT NULL THEN named_struct({pairs}) END"


def upserting(
    rule: UpsertRule,
    columns: Sequence[str],
    truncate: str | None = None,
    new: Sequence[str] | None = None,
    within: str = "",
) -> Merge:
    """One MERGE for all changes of an epoch: ``columns`` are the source's, with at most one row per key.

    ``_topic`` ... ``_sequence`` of a source row are U's, null where the epoch only deletes the key; ``_deleted_by`` is
    D (or T, where that is higher); ``_columns`` holds the order of the values in ``rule.ignore_nulls``. ``truncate`` is
    SQL of T's order in an epoch that has one: rows that nothing of the epoch is about are deleted too. ``new``: the
    table changes with its rows, and lacks these columns; None: it stays as it is. ``within``: see ``Merge``.
    """
    text = _Text(rule, columns, new or ())
    return Merge(
        rule.key,
        text.matched(),
        text.inserts,
        text.insert_when,
        text.truncated(truncate) if truncate is not None else (),
        within=within,
        evolves=new is not None,
    )


def moved_sql(target: str, rule: UpsertRule, columns: Sequence[str]) -> str | None:
    """A query that fails where the MERGE would: at a key that has left its partition. None: any key may."""
    if rule.sequenced or not rule.guarded:
        return None
    stays = _Text(rule, columns)._at_home("true")
    return f"SELECT count_if({stays}) FROM {SOURCE} AS s JOIN {target} AS t ON {upserting(rule, columns).on}"


class _Text:
    """``u_*``: order of the update, ``d_*``: of the delete; of ``s``, the source, or ``t``, the stored row. That of a
    stored row is never null, but may consist of nulls."""

    def __init__(self, rule: UpsertRule, columns: Sequence[str], new: Sequence[str] = ()) -> None:
        self.rule = rule
        self.new = new
        self.has_deletes = DELETED_BY in columns
        helpers = [*([] if rule.soft else [DELETED_BY]), *([] if rule.sequenced else [COLUMNS])]
        self.plain = [name for name in columns if name not in (*helpers, DELETED_BY, COLUMNS)]
        self.inserts = {name: f"s.{identifier(name)}" for name in columns if name not in helpers}
        self.u_s = f"CASE WHEN s._offset IS NOT NULL THEN {order_sql('s', sequenced=rule.sequenced)} END"
        self.u_t = order_sql("t", sequenced=rule.sequenced)
        self.d_s = deleted_sql(f"s.{DELETED_BY}", sequenced=rule.sequenced) if self.has_deletes else "NULL"
        self.newer = f"({self.u_s}) > {self.u_t}"
        self.live = "s._offset IS NOT NULL"
        if self.has_deletes:
            self.live += f" AND (s.{DELETED_BY} IS NULL OR ({self.u_s}) > ({self.d_s}))"
        self.insert_when = self.live if self.has_deletes else ""
        if rule.soft:
            self.inserts["_deleted"] = f"s.{DELETED_BY} IS NOT NULL AND NOT ({self.live})"
            self.insert_when = ""

    def matched(self) -> list[Change]:
        if self.rule.soft:
            return self._soft()
        if self.rule.sequenced and self.rule.ignore_nulls:
            return self._per_column()
        updates = {name: self._value(name) for name in self.plain}
        if not self.rule.guarded:
            deletes = [Change("", None)] if self.has_deletes else []
            return [Change(self.insert_when, updates), *deletes]
        newer = f"coalesce({self.newer} AND {self.live}, false)"
        deletes = [Change(f"({self.d_s}) >= {self.u_t}", None)] if self.has_deletes else []
        return [Change(self._at_home(newer), updates), *deletes]

    def truncated(self, truncate: str) -> list[Change]:
        changes = [Change(f"{self.u_t} <= {truncate}", None)]
        if self.rule.ignore_nulls:
            hidden = {name: self._hidden(name, truncate) for name in self.rule.ignore_nulls if name not in self.new}
            sets = {name: f"CASE WHEN {old} THEN NULL ELSE {self._stored(name)} END" for name, old in hidden.items()}
            orders = [
                f"{literal(name)}, CASE WHEN {self._hidden(name, truncate)} THEN NULL "
                f"ELSE {self._stored_order(name)} END"
                for name in self.rule.ignore_nulls
            ]
            sets[COLUMNS] = f"named_struct({', '.join(orders)})"
            any_hidden = " OR ".join(f"{self._stored(name)} IS NOT NULL AND {old}" for name, old in hidden.items())
            changes.append(Change(f"({any_hidden})", sets))
        return changes

    def _value(self, name: str) -> str:
        """Without a sequence the changes of a key come in order, so an older value is the table's, unless the epoch
        deletes the row in between. A replay that begins before the stored offset and goes beyond it reads everything
        from there on, so the last value that it finds at or before the stored offset is the one that is stored."""
        new = f"s.{identifier(name)}"
        if name not in self.rule.ignore_nulls:
            return new
        kept = f"coalesce({new}, {self._stored(name)})"
        if not self.has_deletes:
            return kept
        anew = f"({self.d_s}) >= {self.u_t}" if self.rule.guarded else f"s.{DELETED_BY} IS NOT NULL"
        return f"CASE WHEN {anew} THEN {new} ELSE {kept} END"

    def _soft(self) -> list[Change]:
        d_new = f"greatest(s.{DELETED_BY}, t.{DELETED_BY})"
        newer, changed = self.newer, f"{self.newer} OR s.{DELETED_BY} > t.{DELETED_BY}"
        changed += f" OR (s.{DELETED_BY} IS NOT NULL AND t.{DELETED_BY} IS NULL)"
        deleted = (
            f"{d_new} IS NOT NULL AND NOT coalesce(greatest({self.u_s}, {self.u_t}) > "
            f"({deleted_sql(d_new, sequenced=self.rule.sequenced)}), false)"
        )
        if not self.rule.guarded:
            newer, d_new = "s._offset IS NOT NULL", f"coalesce(s.{DELETED_BY}, t.{DELETED_BY})"
            deleted = f"s.{DELETED_BY} IS NOT NULL AND NOT ({self.live})"
        sets = {
            name: f"CASE WHEN {newer} THEN s.{identifier(name)} ELSE {self._stored(name)} END" for name in self.plain
        }
        condition = self._at_home(f"coalesce({changed}, false)") if self.rule.guarded else ""
        return [Change(condition, {**sets, DELETED_BY: d_new, "_deleted": deleted})]

    def _per_column(self) -> list[Change]:
        """With a sequence, updates of parts of a row come in any order: each part has an order of its own."""
        sets = {
            name: f"CASE WHEN {self.newer} THEN s.{identifier(name)} ELSE {self._stored(name)} END"
            for name in self.plain
        }
        orders, changed = [], [self.newer]
        for name in self.rule.ignore_nulls:
            new, old = _order_of("s", name), self._stored_order(name)
            newer, hidden = f"({new} IS NOT NULL AND ({old} IS NULL OR {new} > {old}))", self._hidden(name, self.d_s)
            sets[name] = _one_of(newer, f"s.{identifier(name)}", hidden, self._stored(name))
            orders.append(f"{literal(name)}, {_one_of(newer, new, hidden, old)}")
            changed += [newer, f"{self._stored(name)} IS NOT NULL AND {hidden}"]
        sets[COLUMNS] = f"named_struct({', '.join(orders)})"
        return [
            Change(f"({self.d_s}) >= {self.u_t} AND NOT ({self.live})", None),
            Change(f"({' OR '.join(changed)})", sets),
        ]

    def _at_home(self, condition: str) -> str:
        """The condition, where the key has stayed in its partition; fails the query where it hasn't.

        From a topic that was deleted to the one of its name a key may go anywhere: all that is in the new one is newer,
        see ``sinks.recreated``.
        """
        if self.rule.sequenced:
            return condition
        topic, partition, offset = "s._topic", "s._partition", "s._offset"
        stored_topic, stored_partition = "t._topic", "t._partition"
        if self.has_deletes:
            topic, partition = (
                f"coalesce({topic}, s.{DELETED_BY}.topic)",
                (f"coalesce({partition}, s.{DELETED_BY}.`partition`)"),
            )
            offset = f"coalesce({offset}, s.{DELETED_BY}.offset)"
        if self.rule.soft:
            stored_topic = f"coalesce({stored_topic}, t.{DELETED_BY}.topic)"
            stored_partition = f"coalesce({stored_partition}, t.{DELETED_BY}.`partition`)"
        moved = raise_sql(
            "key_moved",
            key=key_sql(self.rule.key, "s."),
            topic=topic,
            partition=partition,
            offset=offset,
            stored_topic=stored_topic,
            stored_partition=stored_partition,
        )
        # Spark may evaluate this for rows without a match too: those must not raise.
        return (
            f"CASE WHEN {topic} IS NULL THEN false WHEN {stored_topic} IS NULL OR {stored_partition} IS NULL OR "
            f"startswith({stored_topic}, {literal(RETIRED)}) OR "
            f"({stored_topic} = {topic} AND {stored_partition} = {partition}) THEN {condition} "
            f"ELSE CAST({moved} AS BOOLEAN) END"
        )

    def _stored(self, name: str) -> str:
        return "NULL" if name in self.new else f"t.{identifier(name)}"

    def _stored_order(self, name: str) -> str:
        return "NULL" if name in self.new else _order_of("t", name)

    def _hidden(self, column: str, deleted: str) -> str:
        """Whether the stored value of this column is older than the delete."""
        order = self._stored_order(column)
        return f"(({deleted}) IS NOT NULL AND ({order} IS NULL OR {order} <= ({deleted})))"


def _order_of(row: str, column: str) -> str:
    return f"{row}.{COLUMNS}.{identifier(column)}"


def _one_of(newer: str, new: str, hidden: str, old: str) -> str:
    return f"CASE WHEN {newer} THEN {new} WHEN {hidden} THEN NULL ELSE {old} END"


def key_sql(key: Sequence[str], prefix: str = "") -> str:
    """SQL of the key's columns as JSON, for messages."""
    fields = ", ".join(f"{literal(column)}, {prefix}{identifier(column)}" for column in key)
    return f"to_json(named_struct({fields}))"
