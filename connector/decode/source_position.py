"""``_source_position``: where a change is in the database's own log, as text that sorts as the changes of a row do.

PostgreSQL and Oracle write a change into the log when it is made, and nobody sees it before its transaction commits. So
a snapshot may be further in the log than a change that it doesn't contain. The position is the change's own place, or
that of a commit if it is later: Oracle's is the commit of the change's transaction, PostgreSQL's that of the
transaction before it, as events don't have their own. Either is between the change and its commit. A row is locked
that long, so the changes of one row are in order wherever in between each is placed; and a snapshot is behind every
commit that it has seen. Rows that are in tables may have the change's own place: that is in between as well.

MySQL and MariaDB write a transaction into the log when it commits. Its changes may all have one place there: those of a
compressed one in MySQL, and of any in MariaDB from 11.4, unless ``binlog_legacy_event_pos`` is on. The number of the
row in its event (``row``) begins anew with each event, so it tells no order. Changes at one place follow each other as
in Kafka.

Of SQL Server the place of a change in the log (``change_lsn``) is no order within its commit: an update that moves a
row in a unique index is a delete and an insert, and the insert may come first there. Debezium sends them in the order
of their statements. So here too changes of one commit follow each other as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection


def position(event: str, fields: Collection[str]) -> str:
    """SQL of it. Null if the connector's kind of position isn't known.

    ``event``: SQL of the STRUCT of an event, whose ``source`` has these ``fields``.
    """
    source = f"{event}.source"
    # Without the place of an event, some of Debezium's versions count back from 0.
    pos = f"CASE WHEN {source}.pos >= 0 THEN {source}.pos END"
    number = f"coalesce({_padded(f'{source}.event_serial_no', 10)}, '')" if "event_serial_no" in fields else "''"
    lsn, scn = _padded(f"{source}.lsn"), _padded(f"{source}.scn")
    last_commit = commit = None
    if "sequence" in fields:
        # A text, ["the last commit before the transaction", "the change"], with null for what isn't known. An
        # incremental snapshot has no lsn beside it.
        last_commit, change = (_number(f"{source}.sequence", each) for each in ('"([0-9]+)",', ',"([0-9]+)"'))
        lsn = f"coalesce({lsn}, {change})"
    if "commit_scn" in fields:
        commit = _number(f"{source}.commit_scn", "^([0-9]+)$")
    ways = (  # the fields that it needs, what tells that an event has them, and the position
        ({"lsn"}, lsn, _behind(last_commit, lsn, event)),  # PostgreSQL
        (  # MySQL, MariaDB
            {"file", "pos"},
            pos,
            f"concat({_binlog(source)}, ':', {_padded(pos)}, ':', {_at_one_place(event)})",
        ),
        (  # SQL Server, Db2, Informix. A snapshot of SQL Server has no change_lsn.
            {"commit_lsn", "change_lsn"},
            f"coalesce({source}.commit_lsn, {source}.change_lsn)",
            _in_commit(event, fields, f"concat({_lsn(f'{source}.commit_lsn')}, ':'", number),
        ),
        ({"scn"}, scn, _behind(commit, scn, event)),  # Oracle
    )
    whens = " ".join(f"WHEN {known} IS NOT NULL THEN {sql}" for needs, known, sql in ways if needs <= {*fields})
    return f"CASE {whens} END" if whens else "CAST(NULL AS STRING)"


def _padded(number: str, digits: int = 20) -> str:
    return f"lpad(CAST({number} AS STRING), {digits}, '0')"


def _number(text: str, pattern: str) -> str:
    """SQL of the number that a pattern without quotes finds in a text. Null if there is none."""
    return f"lpad(nullif(regexp_extract({text}, '{pattern}', 1), ''), 20, '0')"


def _behind(commit: str | None, own: str, event: str) -> str:
    """SQL of the later place of the two. What a snapshot reads is before all changes of that place, and the changes of
    a transaction that are behind one commit are in their own order."""
    if commit is None:
        return own
    return (
        f"CASE WHEN {event}.op = 'r' THEN greatest({own}, {commit}) "
        f"WHEN {commit} >= {own} THEN concat({commit}, ':', {own}) ELSE {own} END"
    )


def _at_one_place(event: str) -> str:
    """SQL of what a snapshot has read, and then all changes: a snapshot is at the place where the next transaction
    begins. Rows that are in tables have ten digits, the row's number in its event; a snapshot's was 0."""
    return f"CASE WHEN {event}.op = 'r' THEN '0000000000' ELSE '~' END"


def _in_commit(event: str, fields: Collection[str], commit: str, number: str) -> str:
    """SQL of a place: ``commit`` is a concat that isn't closed yet. Only SQL Server's changes have a number: they are
    behind what a snapshot has read at their commit, and behind what tables have of it, which ends in their number."""
    placed = f"{commit}, {_lsn(f'{event}.source.change_lsn')}, ':', {number})"
    if "event_serial_no" not in fields:
        return placed
    numbered = f"{event}.op <> 'r' AND {event}.source.event_serial_no IS NOT NULL"
    return f"CASE WHEN {numbered} THEN {commit}, '~') ELSE {placed} END"


def _binlog(source: str) -> str:
    """SQL of the name of MySQL's log, which sorts by its number. After binlog.999999 comes binlog.1000000, with a mark
    here for each digit more than six. Rows that are in tables have names of six digits as they are."""
    digits = f"length(substring_index({source}.file, '.', -1))"
    return f"overlay({source}.file, repeat('~', {digits} - 6), length({source}.file) - {digits} + 1, 0)"


def _lsn(found: str) -> str:
    """SQL of a part of a position. Informix' is a number of any length, which may be in tables as it was: with a mark
    it sorts behind those. That of SQL Server and Db2 has colons, and always the same length."""
    return f"coalesce(CASE WHEN {found} LIKE '%:%' THEN {found} ELSE concat('~', lpad({found}, 20, '0')) END, '')"
