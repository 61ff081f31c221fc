"""The rule by which a change to a key changes the key's row: the offset guard. Written as the SQL of a MERGE.

Orders
------
Every change to a key has an *order*:

* by offset: the record's offset. All changes of a key must come from one partition; the MERGE fails at a key that
  has left its partition, because offsets of two partitions can't be compared;
* by sequence: (sequence, topic, partition, offset), where the sequence is a value of the record. Changes of a key may
  come from any partition. If the sequence begins with the record's offset, the MERGE fails as by offset.

Spark compares structs field by field, and NULL is lower than every value. So a row that a person inserted, or whose
sequence is NULL because the column is new, is older than every change.

The rule compares four orders. An order is NULL if there is no such change:

* *incoming update*: the newest update of the key in the epoch (``s._topic`` .. ``s._offset``, ``s._sequence``);
* *incoming delete*: the newest delete that is known for the key (``s._deleted_by``). It is the highest of the epoch's
  deletes, the key's tombstone and the truncates, see ``sinks.delta.upsert_source``;
* *stored update*: the update that the row in the table comes from (``t._topic`` .. ``t._offset``, ``t._sequence``);
* *stored delete*: the newest delete that the table remembers. With soft deletes it is a column of the row
  (``t._deleted_by``). With hard deletes it is a tombstone beside the table, and already part of the incoming delete.

The rule
--------
Per key, let U be the highest order of its updates, and D the highest order of its deletes and of all truncates.
**The row exists if and only if U > D, and it shows the update with order U.** As a table, where older, same and newer
compare the incoming order with the order of what is stored:

======================  ===========  =================  =================  ========================================
stored for the key      incoming     older              same               newer
======================  ===========  =================  =================  ========================================
nothing                 update       row inserted: there is nothing to compare with
nothing                 delete       no row: the delete is kept as a tombstone if an older update may still come
nothing                 truncate     no row: the truncate is kept as a tombstone
a row                   update       ignored            ignored            row replaced
a row                   delete       ignored            row deleted        row deleted
a row                   truncate     ignored            row deleted        row deleted
a tombstone             update       ignored            ignored            row inserted
a tombstone             delete       ignored            ignored            tombstone gets the newer order
a tombstone             truncate     ignored            ignored            tombstone gets the newer order
======================  ===========  =================  =================  ========================================

If an epoch brings both an update and a delete of a key, the newer of the two decides. Of an update and a delete with
the same order, the delete wins.

Why a replay changes nothing
----------------------------
U and D are maxima. Taking a maximum is associative, commutative and idempotent: neither the grouping of changes into
epochs, nor their order, nor a repetition changes U or D. The row is a function of U and D, so it doesn't change either.
In the table above: what was applied before is now older or the same. A replayed update is ignored there. A replayed
delete deletes a row only if the row's update is not newer, and then the row was gone after the first time.

One thing has to be remembered for this: D, where an update that is older than it can still arrive. Therefore deletes
leave tombstones by sequence, and in deliveries that can replay without the table's position (``sinks.delta.upsert``).

Variants
--------
* *Soft deletes*: a deleted row stays with ``_deleted = true``, and is the key's tombstone. ``_deleted`` is NOT U > D.
  The row shows the newest update's values also while it is deleted.
* *Ignored nulls*, by offset: a NULL of an update keeps the stored value, unless the epoch deletes the row before that
  update. By sequence each such column has its own order (``_columns``), and the rule applies to each column by itself.
* *Kept columns*: the same, where an update says that it has no value for the column. A NULL that it has is a value.
* *Unguarded* (deliveries without the guarantee): nothing is compared with the stored row. The last writer wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sinks.delta.merge import Change, Merge
from sinks.delta.sql_layout import all_of, any_of, call, case, compared, parentheses
from sinks.recreated import MARK as RETIRED
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal, struct_sql

SOURCE = "lakelock_epoch"
"""Name of the temporary view with the epoch's net changes."""
DELETED_BY = "_deleted_by"
"""Column with the order of the newest delete: STRUCT<[sequence,] topic, partition, offset, timestamp>, or NULL."""
COLUMNS = "_columns"
"""Column with the order of each value, for ignored nulls and kept columns: a struct with a field per column."""


@dataclass(frozen=True)
class UpsertRule:
    """Which variant of the rule a table follows."""

    key: Sequence[str]
    """Columns that identify a row; none is NULL, except in a truncate."""
    sequenced: bool = False
    """True: the order is (_sequence, _topic, _partition, _offset). False: it is the offset."""
    soft: bool = False
    """True: a deleted row stays in the table, with ``_deleted`` and ``_deleted_by``."""
    ignore_nulls: Sequence[str] = ()
    """Columns in which a NULL of an update keeps the older value."""
    keeps: Sequence[str] = ()
    """Other columns that an update may lack, and which then keep the older value. A NULL of an update is a value."""
    guarded: bool = True
    """False: the last writer wins. A rule with ``sequenced`` is always guarded."""
    by_offset: bool = False
    """With ``sequenced``: the sequence begins with the record's offset, which is no order across partitions."""

    @property
    def stays(self) -> bool:
        """Whether a key has to stay in its partition."""
        return self.guarded and (self.by_offset or not self.sequenced)

    @property
    def parts(self) -> Sequence[str]:
        """Columns whose value may be older than the row's newest update."""
        return (*self.ignore_nulls, *self.keeps)

    @property
    def replaces(self) -> bool:
        """Whether a newer change of a key replaces the whole row, whatever the row held before."""
        return not (self.sequenced or self.soft or self.parts)


def order_sql(row: str, *, sequenced: bool) -> str:
    """SQL of the order of a row's update; ``row`` is the row's alias. Never NULL, but its fields may be."""
    names = [*(["sequence"] if sequenced else []), "topic", "partition", "offset"]
    return struct_sql({name: f"{row}._{name}" for name in names})


def deleted_sql(delete: str, *, sequenced: bool) -> str:
    """SQL of the order of a delete; ``delete`` is SQL of a ``_deleted_by``. NULL if that is NULL."""
    names = [*(["sequence"] if sequenced else []), "topic", "partition", "offset"]
    order = struct_sql({name: f"{delete}.{identifier(name)}" for name in names})
    return f"CASE WHEN {delete} IS NOT NULL THEN {order} END"


def upserting(
    rule: UpsertRule,
    columns: Sequence[str],
    truncate: str | None = None,
    new: Sequence[str] | None = None,
    within: str = "",
    stored: Mapping[str, str] = MappingProxyType({}),
    gone: Mapping[str, str] = MappingProxyType({}),
) -> Merge:
    """The MERGE of an epoch's net changes.

    This is the rule "offset guard": a change whose order is at or below what the key's row comes from is ignored, so a
    replay changes nothing. The table at the top of this module has every case. A MERGE is one commit, so a crash leaves
    all of it or nothing. Tests: tests/unit/sinks/delta/test_upsert_rule.py checks every cell of the table, and
    test_merge_sql.py beside it keeps the text of each MERGE.

    ``columns``: names of the source's columns. The source has at most one row per key: the newest update (its
    coordinates are NULL if the epoch only deletes the key), the newest delete in ``_deleted_by``, and with ignored
    nulls or kept columns the order of each value in ``_columns``.
    ``truncate``: SQL of the order of the epoch's newest truncate; None: the epoch has none. Rows without a change in
    the source are compared with it.
    ``new``: columns that the table lacks, and that this MERGE adds; None: the table's schema doesn't change.
    ``within``: see ``Merge.within``. ``stored``: column -> SQL of its stored value, where ``t``'s has another type.
    ``gone``: column that the source lacks, and earlier updates had -> SQL of its value in a row that is replaced.
    """
    guard = _Guard(rule, columns, new or (), stored, gone)
    return Merge(
        rule.key,
        guard.matched(),
        guard.inserts,
        guard.insert_when,
        guard.truncated(truncate) if truncate is not None else (),
        within=within,
        evolves=new is not None,
    )


def moved_sql(target: str, rule: UpsertRule, columns: Sequence[str]) -> str | None:
    """A query that fails at a key that has left its partition, as the MERGE would. None: the rule allows it.

    ``target``: SQL of the table, as in FROM; ``columns``: names of the columns of the view ``SOURCE``.
    """
    if not rule.stays:
        return None
    stayed = _Guard(rule, columns).in_its_partition("true")
    on = upserting(rule, columns).on
    return f"SELECT {call('count_if', [stayed])}\nFROM {SOURCE} AS s\nJOIN {target} AS t\nON {on}"


class _Guard:
    """The rule's conditions and values, as SQL over ``s`` (the incoming net change) and ``t`` (the stored row).

    A comparison with an order that is NULL is NULL, which a WHEN takes for false.
    """

    def __init__(
        self,
        rule: UpsertRule,
        columns: Sequence[str],
        new: Sequence[str] = (),
        stored: Mapping[str, str] = MappingProxyType({}),
        gone: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._rule = rule
        self._new, self._stored = new, stored
        self._has_deletes = DELETED_BY in columns
        values = {name: f"s.{identifier(name)}" for name in columns if name not in (DELETED_BY, COLUMNS)}
        self._values = {**values, **gone}
        by_sequence = rule.sequenced
        update, delete = order_sql("s", sequenced=by_sequence), deleted_sql(f"s.{DELETED_BY}", sequenced=by_sequence)
        self._incoming_update = f"CASE WHEN s._offset IS NOT NULL THEN {update} END"
        self._incoming_delete = delete if self._has_deletes else "NULL"
        self._stored_update = order_sql("t", sequenced=by_sequence)

        self._update_is_newer = compared(f"({self._incoming_update})", ">", self._stored_update)
        """The incoming update is newer than the stored one."""
        self._delete_is_not_older = compared(f"({self._incoming_delete})", ">=", self._stored_update)
        """The incoming delete is newer than the stored update, or has the same order."""
        self._update_survives = self._survives_incoming_delete()
        """There is an incoming update, and no delete that is newer or has the same order."""

        not_stored = {*([] if rule.soft else [DELETED_BY]), *([] if by_sequence else [COLUMNS])}
        self.inserts = {name: f"s.{identifier(name)}" for name in columns if name not in not_stored}
        """Column -> SQL of its value in a row that is inserted."""
        self.insert_when = self._update_survives if self._has_deletes else ""
        """Whether a key without a row gets one; empty: always."""
        if rule.soft:
            self.inserts["_deleted"] = self._deleted_by_the_epoch()
            self.insert_when = ""

    def _survives_incoming_delete(self) -> str:
        update_comes = "s._offset IS NOT NULL"
        if not self._has_deletes:
            return update_comes
        newer_than_delete = compared(f"({self._incoming_update})", ">", f"({self._incoming_delete})")
        not_deleted = parentheses(any_of([f"s.{DELETED_BY} IS NULL", newer_than_delete]))
        return all_of([update_comes, not_deleted])

    def _deleted_by_the_epoch(self) -> str:
        """Whether the epoch by itself leaves the key deleted."""
        return all_of([f"s.{DELETED_BY} IS NOT NULL", f"NOT {parentheses(self._update_survives)}"])

    def matched(self) -> list[Change]:
        """What happens to a stored row whose key has an incoming change."""
        if self._rule.soft:
            return self._matched_softly()
        if self._rule.sequenced and self._rule.parts:
            return self._matched_column_by_column()
        replaced = {name: self._replaced_value(name) for name in self._values}
        if not self._rule.guarded:
            deletes = [Change("", None)] if self._has_deletes else []
            return [Change(self.insert_when, replaced), *deletes]
        replaces = call("coalesce", [all_of([self._update_is_newer, self._update_survives]), "false"])
        deletes = [Change(self._delete_is_not_older, None)] if self._has_deletes else []
        return [Change(self.in_its_partition(replaces), replaced), *deletes]

    def truncated(self, truncate: str) -> list[Change]:
        """What happens to a stored row whose key has no incoming change, in an epoch with this truncate."""
        changes = [Change(f"{self._stored_update} <= {truncate}", None)]
        if self._rule.parts:
            truncated = {
                name: self._is_deleted_value(name, truncate) for name in self._rule.parts if name not in self._new
            }
            sets = {name: case([(old, "NULL")], self._stored_value(name)) for name, old in truncated.items()}
            orders = {
                name: case([(self._is_deleted_value(name, truncate), "NULL")], self._stored_order_of(name))
                for name in self._rule.parts
            }
            sets[COLUMNS] = _struct(orders)
            any_truncated = any_of(
                all_of([f"{self._stored_value(name)} IS NOT NULL", old]) for name, old in truncated.items()
            )
            changes.append(Change(parentheses(any_truncated), sets))
        return changes

    def _replaced_value(self, name: str) -> str:
        """The value of a column in a row that the incoming update replaces.

        An ignored null keeps the stored value, and so does a column without a value in the epoch, which has no order
        there. By offset the changes of a key arrive in order, so the stored value is the newest older one, unless a
        delete of the epoch lies between the two. This also holds for a replay that starts before the stored offset and
        ends after it: it reads every change in between, so the last value that it meets up to the stored offset is the
        stored value.
        """
        incoming = self._values[name]
        if name not in self._rule.parts:
            return incoming
        stored, whens = self._stored_value(name), list[tuple[str, str]]()
        if self._has_deletes:
            deleted_before = self._delete_is_not_older if self._rule.guarded else f"s.{DELETED_BY} IS NOT NULL"
            whens.append((deleted_before, incoming))
        if name in self._rule.keeps:
            return case([*whens, (f"{_order_of('s', name)} IS NOT NULL", incoming)], stored)
        incoming_or_stored = f"coalesce({incoming}, {stored})"
        return case(whens, incoming_or_stored) if whens else incoming_or_stored

    def _matched_softly(self) -> list[Change]:
        """With soft deletes the row holds both orders, and each of them moves on by itself."""
        stored_delete, incoming_delete = f"t.{DELETED_BY}", f"s.{DELETED_BY}"
        if self._rule.guarded:
            takes_values = self._update_is_newer
            newest_delete = f"greatest({incoming_delete}, {stored_delete})"
            newest_update = f"greatest({self._incoming_update}, {self._stored_update})"
            survives = compared(newest_update, ">", f"({deleted_sql(newest_delete, sequenced=self._rule.sequenced)})")
            deleted = all_of([f"{newest_delete} IS NOT NULL", f"NOT {call('coalesce', [survives, 'false'])}"])
            newer_delete = f"{incoming_delete} > {stored_delete}"
            first_delete = f"({incoming_delete} IS NOT NULL AND {stored_delete} IS NULL)"
            changes = any_of([self._update_is_newer, newer_delete, first_delete])
            condition = self.in_its_partition(call("coalesce", [changes, "false"]))
        else:
            takes_values = "s._offset IS NOT NULL"
            newest_delete = f"coalesce({incoming_delete}, {stored_delete})"
            deleted = self._deleted_by_the_epoch()
            condition = ""
        sets = {name: case([(takes_values, value)], self._stored_value(name)) for name, value in self._values.items()}
        return [Change(condition, {**sets, DELETED_BY: newest_delete, "_deleted": deleted})]

    def _matched_column_by_column(self) -> list[Change]:
        """By sequence, where parts of a row arrive in any order: each such column has its own order."""
        sets = {
            name: case([(self._update_is_newer, value)], self._stored_value(name))
            for name, value in self._values.items()
        }
        orders, changes = {}, [self._update_is_newer]
        for name in self._rule.parts:
            incoming, stored = _order_of("s", name), self._stored_order_of(name)
            is_newer = f"({incoming} IS NOT NULL AND ({stored} IS NULL OR {incoming} > {stored}))"
            is_deleted = self._is_deleted_value(name, self._incoming_delete)
            sets[name] = case([(is_newer, f"s.{identifier(name)}"), (is_deleted, "NULL")], self._stored_value(name))
            orders[name] = case([(is_newer, incoming), (is_deleted, "NULL")], stored)
            changes += [is_newer, all_of([f"{self._stored_value(name)} IS NOT NULL", is_deleted])]
        sets[COLUMNS] = _struct(orders)
        deletes = all_of([self._delete_is_not_older, f"NOT {parentheses(self._update_survives)}"])
        return [Change(self.in_its_partition(deletes), None), Change(parentheses(any_of(changes)), sets)]

    def in_its_partition(self, condition: str) -> str:
        """The condition, if the key is still in its partition. Else the query fails. By sequence: the condition alone,
        unless the sequence begins with the offset.

        A key of a deleted topic may be in any partition of the topic that was created under the same name: everything
        in the new topic is newer, see ``sinks.recreated``. The incoming change may be the older one, if it is a dead
        letter of the deleted topic. A sequence of offsets doesn't say so: there such a key has left its partition.
        """
        if not self._rule.stays:
            return condition
        topic, partition, offset = "s._topic", "s._partition", "s._offset"
        stored_topic, stored_partition = "t._topic", "t._partition"
        if self._has_deletes:
            topic = f"coalesce({topic}, s.{DELETED_BY}.topic)"
            partition = f"coalesce({partition}, s.{DELETED_BY}.`partition`)"
            offset = f"coalesce({offset}, s.{DELETED_BY}.offset)"
        if self._rule.soft:
            stored_topic = f"coalesce({stored_topic}, t.{DELETED_BY}.topic)"
            stored_partition = f"coalesce({stored_partition}, t.{DELETED_BY}.`partition`)"
        fails = raise_sql(
            "key_moved",
            key=key_sql(self._rule.key, "s."),
            topic=topic,
            partition=partition,
            offset=offset,
            stored_topic=stored_topic,
            stored_partition=stored_partition,
        )
        stayed = any_of(
            [
                f"{stored_topic} IS NULL",
                f"{stored_partition} IS NULL",
                *([] if self._rule.sequenced else self._retired(stored_topic, topic)),
                f"({stored_topic} = {topic} AND {stored_partition} = {partition})",
            ]
        )
        # Spark may evaluate this also for rows without a match. Those must not fail, hence the first branch.
        return case([(f"{topic} IS NULL", "false"), (stayed, condition)], f"CAST({fails} AS BOOLEAN)")

    @staticmethod
    def _retired(*topics: str) -> list[str]:
        return [f"startswith({topic}, {literal(RETIRED)})" for topic in topics]

    def _stored_value(self, name: str) -> str:
        return "NULL" if name in self._new else self._stored.get(name, f"t.{identifier(name)}")

    def _stored_order_of(self, name: str) -> str:
        return "NULL" if name in self._new else _order_of("t", name)

    def _is_deleted_value(self, name: str, delete: str) -> str:
        """Whether the stored value of a column is not newer than a delete; ``delete``: SQL of the delete's order."""
        order = self._stored_order_of(name)
        not_newer = parentheses(any_of([f"{order} IS NULL", f"{order} <= ({delete})"]))
        return parentheses(all_of([f"({delete}) IS NOT NULL", not_newer]))


def _order_of(row: str, column: str) -> str:
    """SQL of the order of one column's value."""
    return f"{row}.{COLUMNS}.{identifier(column)}"


def _struct(fields: dict[str, str]) -> str:
    return call("named_struct", (f"{literal(name)}, {value}" for name, value in fields.items()))


def key_sql(key: Sequence[str], prefix: str = "") -> str:
    """SQL of the key's columns as a JSON object, for messages. ``prefix``: such as ``s.``, before each column."""
    fields = struct_sql({column: f"{prefix}{identifier(column)}" for column in key})
    return f"to_json({fields})"
