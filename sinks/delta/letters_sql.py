"""The columns of a table of dead letters, and the MERGEs that write letters to it."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.delta.table import COORDINATES
from sinks.spark.sql import literal

SOURCE = "lakelock_dead_letters"
WINDOW = ("window_start", "window_end")
RECORD = COORDINATES[:3]
IDENTITY = ("sink", "reason", *WINDOW, *RECORD)
"""Columns that identify an open letter among those of its pipeline."""
RETRIES = {"_retry": "STRING", "_retried_epoch": "BIGINT", "_retried_at": "TIMESTAMP"}
ADDED = {**RETRIES, "_table": "STRING"}
COLUMNS = {
    "pipeline": "STRING", "sink": "STRING", "epoch": "BIGINT", "reason": "STRING", "detail": "STRING",
    "key": "BINARY", "value": "BINARY", "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "window_start": "TIMESTAMP", "window_end": "TIMESTAMP", "_topic": "STRING", "_partition": "INT",
    "_offset": "BIGINT", "_timestamp": "TIMESTAMP", "_noted_at": "TIMESTAMP", **ADDED,
}  # fmt: skip
"""``sink``: the sink that doesn't take the record; NULL if no sink can. ``epoch``: the epoch that read the record; 0: a
batch of a consumer group did. ``window_start``, ``window_end``: the window of a late record; NULL for session windows.
``_noted_at``: when the letter was written. ``_retry``: id of the run that retries, or has retried, the record.
``_retried_epoch``, ``_retried_at``: the epoch that wrote the record, and when; NULL while the letter is open. A letter
that is closed without a ``_retry`` was closed by a RESTORE of the table, as from that epoch on its record is read
again; or by the epoch that read its record again and found it good, after the one that had set it aside had failed.
``_table``: Delta's id of the table whose pipeline has set the record aside, of several tables the coordinator log's.
NULL (nobody knows) and, written by earlier versions only, empty (two tables have): it counts as any table's."""


def is_of(tables: Sequence[str], column: str = "_table", *, shared: bool = True) -> str:
    """SQL that is true of a letter of these tables; with ``shared``, also of one that two tables have set aside
    together, as earlier versions wrote it."""
    names = [literal(table) for table in [*([""] if shared else []), *tables]]
    return f"coalesce({column} IN ({', '.join(names)}), true)"


def adding_sql(target: str, own: Sequence[str]) -> str:
    """The MERGE that writes letters, from the view ``lakelock_dead_letters``.

    ``target``: SQL of the table. ``own``: each ``_table`` of the pipeline's letters. Another table's letter of the same
    record is another letter.
    """
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in ("pipeline", *IDENTITY))
    mine = f" AND {is_of(own, 't._table')}" if own else ""
    return "\n".join(
        [
            f"MERGE INTO {target} AS t",
            f"USING {SOURCE} AS s",
            f"ON {same} AND (t._retried_epoch IS NULL OR t._retry IS NULL){mine}",
            # The letter belongs to this epoch now: `take_back` leaves it alone.
            "WHEN MATCHED AND (t.epoch <> s.epoch OR t._retried_epoch IS NOT NULL OR t._retry IS NOT NULL)",
            "  THEN UPDATE SET epoch = s.epoch, _retry = NULL, _retried_epoch = NULL, _retried_at = NULL,",
            "    _table = CASE WHEN t._retried_epoch IS NULL THEN t._table ELSE s._table END",
            "WHEN NOT MATCHED",
            # By name: a process of a later version may give the table a column that this one doesn't write.
            f"  THEN INSERT ({', '.join(COLUMNS)})",
            f"  VALUES ({', '.join(f's.{name}' for name in COLUMNS)})",
        ]
    )


def keeping_sql(target: str, pipeline: str, retry: str, own: Sequence[str]) -> str:
    """The MERGE that leaves marked letters open, from the same view: those of a record become one for each reason that
    it has now.

    ``retry``: id of the run that marked them; ``own``: see ``adding_sql``. A record without a marked letter is left
    alone: another retry has taken its letters over. The statement may run again.
    """
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in IDENTITY)
    new = {"pipeline": literal(pipeline), **dict.fromkeys(RETRIES, "NULL")}
    return "\n".join(
        [
            f"MERGE INTO {target} AS t",
            "USING (",
            steps_sql(target, pipeline, retry, own),
            ") AS s",
            f"ON s.step <> 'add' AND t.pipeline = {literal(pipeline)} AND t._retry = {literal(retry)}",
            f"  AND t._retried_epoch IS NULL AND {same}",
            "WHEN MATCHED AND s.step = 'keep'",
            "  THEN UPDATE SET detail = s.detail, _retry = NULL",
            "WHEN MATCHED",
            "  THEN DELETE",
            "WHEN NOT MATCHED AND s.step = 'add'",
            f"  THEN INSERT ({', '.join(COLUMNS)})",
            f"  VALUES ({', '.join(new.get(name, f's.{name}') for name in COLUMNS)})",
        ]
    )


def steps_sql(target: str, pipeline: str, retry: str, own: Sequence[str]) -> str:
    """The query of what a retry does to the letters of records that are still bad: the ``step`` is to keep a letter, to
    drop one whose reason is gone, or to add one. Equal letters, as earlier versions left them, become one.

    A new letter counts as written when the record's oldest one was.
    """
    is_open = f"pipeline = {literal(pipeline)} AND _retried_epoch IS NULL"
    marked, record = f"_retry = {literal(retry)}", ", ".join(RECORD)
    mine = f" AND {is_of(own)}" if own else ""
    added = ("detail", "key", "value", "headers", "_timestamp", "epoch", "_noted_at", "_table")
    columns = [*(f"coalesce(bad.{name}, there.{name}) AS {name}" for name in IDENTITY), *(f"bad.{n}" for n in added)]
    alone = "coalesce(bad._topic IS NOT NULL AND there.marked = 1 AND there.letters = 1, false)"
    anew = "there.letters IS NULL OR (there.marked > 1 AND there.marked = there.letters)"
    return "\n".join(
        [
            f"  SELECT steps.step, {', '.join(columns)}",
            "  FROM (",
            f"    SELECT b.*, r.epoch, r._noted_at, r._table FROM {SOURCE} AS b",
            f"    JOIN (SELECT {record}, min(epoch) AS epoch, min(_noted_at) AS _noted_at, max(_table) AS _table",
            f"      FROM {target} WHERE {is_open} AND {marked} GROUP BY {record}) AS r",
            f"    ON {' AND '.join(f'b.{name} = r.{name}' for name in RECORD)}",
            "  ) AS bad",
            f"  FULL JOIN (SELECT {', '.join(IDENTITY)}, count(*) AS letters,",
            f"      sum(CASE WHEN {marked} THEN 1 ELSE 0 END) AS marked",
            f"    FROM {target} JOIN (SELECT DISTINCT {record} FROM {SOURCE}) AS s USING ({record})",
            f"    WHERE {is_open}{mine}",
            f"    GROUP BY {', '.join(IDENTITY)}) AS there",
            f"  ON {' AND '.join(f'bad.{name} <=> there.{name}' for name in IDENTITY)}",
            "  JOIN (SELECT 'keep' AS step UNION ALL SELECT 'drop' UNION ALL SELECT 'add') AS steps",
            f"  ON CASE steps.step WHEN 'keep' THEN {alone}",
            f"    WHEN 'drop' THEN there.marked > 0 AND NOT {alone}",
            f"    ELSE bad._topic IS NOT NULL AND ({anew}) END",
        ]
    )
