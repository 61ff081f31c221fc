"""From the events of a key to its versions, each with the recorded time in which it stands: a sweep in one expression.

The sweep takes the events in the order of their sequence, and those of one sequence in the order of their records. For
all recorded times it knows the version that is open, as *pieces*: from which time on which version is open, up to the
next piece. An event counts from its own recorded time until the next event of its sequence. There it ends versions, and
starts its own. This takes about as many steps as there are rows, however events are late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.spark.sql import let, struct_sql
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def spans_sql(events: str, system: DataType, same: str) -> str:
    """SQL of the rows of a key, as structs in an array: ``first`` and ``ended``, the indices of the event that starts
    the version and of one that ends it (NULL: none does), and [``since``, ``until``), the recorded time (NULL: no end).
    They are in order, and none could be joined with the next.

    If no event is an update, the one row is of the first delete, and valid and on record for no time.

    ``events``: a column with events in order, see ``sinks.delta.bitemporal``; ``system``: the type of the recorded
    time; ``same``: SQL of whether events ``one`` and ``other`` have the same values.
    """
    swept = (
        f"aggregate(sequence(0, size({events}) - 1), {_nothing(system)}, "
        f"(swept, i) -> {_step(events, same)}, swept -> {_all_rows()})"
    )
    at_delete = struct_sql(
        {"first": "0", "ended": "0", "since": f"get({events}, 0).system", "until": f"get({events}, 0).system"}
    )
    joined = let("spans", f"array_sort({swept})", _joined())
    return let("spans", joined, f"CASE WHEN size(spans) = 0 THEN array({at_delete}) ELSE spans END")


def _nothing(system: DataType) -> str:
    """SQL of the sweep before the first event: at no time a version is open."""
    time = sql_type(system)
    piece, row = f"STRUCT<since: {time}, first: INT>", f"STRUCT<first: INT, ended: INT, since: {time}, until: {time}>"
    kind = f"STRUCT<open: ARRAY<{piece}>, `rows`: ARRAY<{row}>, slot: INT>"
    nothing = struct_sql({"open": "array(named_struct('since', NULL, 'first', -1))", "rows": "array()", "slot": "0"})
    return f"CAST({nothing} AS {kind})"


def _step(events: str, same: str) -> str:
    """SQL of the sweep after the event ``i``. ``slot``: the index of the first event with its sequence."""
    event, after = f"get({events}, i)", f"get({events}, i + 1)"
    until = f"CASE WHEN {after}.at = event.at THEN {after}.system END"
    slot = f"CASE WHEN i > 0 AND get({events}, i - 1).at = event.at THEN swept.slot ELSE i END"
    # The pieces in [event.system, until), cut at both ends.
    within = (
        f"concat(array({_cut('event.system')}), "
        "filter(swept.open, p -> p.since > event.system AND (until IS NULL OR p.since < until)))"
    )
    goes_on = let("one", f"get({events}, p.first)", let("other", "event", same))
    there = struct_sql(
        {
            "since": "p.since",
            "until": "coalesce(get(pieces, k + 1).since, until)",
            "first": "p.first",
            "goes": f"p.first >= 0 AND NOT event.deletes AND {goes_on}",
        }
    )
    now = "CASE WHEN p.goes THEN p.first WHEN event.deletes THEN -1 ELSE i END"
    open_ = (
        "concat(filter(swept.open, p -> p.since IS NULL OR p.since < event.system), "
        f"transform(there, p -> named_struct('since', p.since, 'first', {now})), "
        f"CASE WHEN until IS NULL THEN filter(swept.open, p -> false) ELSE "
        f"concat(array({_cut('until')}), filter(swept.open, p -> p.since > until)) END)"
    )
    ended = struct_sql({"first": "p.first", "ended": "slot", "since": "p.since", "until": "p.until"})
    result = struct_sql(
        {
            # A piece that goes on with the version of the piece before it is none of its own.
            "open": let("open", open_, "filter(open, (p, k) -> k = 0 OR get(open, k - 1).first <> p.first)"),
            "rows": f"concat(swept.rows, transform(filter(there, p -> p.first >= 0 AND NOT p.goes), p -> {ended}))",
            "slot": "slot",
        }
    )
    with_pieces = let("pieces", within, let("there", f"transform(pieces, (p, k) -> {there})", result))
    return let("event", event, let("until", until, let("slot", slot, with_pieces)))


def _cut(at: str) -> str:
    """SQL of the piece that a recorded time is in, from that time on."""
    piece = f"element_at(filter(swept.open, p -> p.since IS NULL OR p.since <= {at}), -1)"
    return struct_sql({"since": at, "first": f"{piece}.first"})


def _all_rows() -> str:
    """SQL of the rows, with those of the versions that stay open."""
    open_ = struct_sql(
        {"first": "p.first", "ended": "CAST(NULL AS INT)", "since": "p.since", "until": "get(swept.open, k + 1).since"}
    )
    still = f"transform(swept.open, (p, k) -> {open_})"
    return f"concat(swept.rows, filter({still}, r -> r.first >= 0))"


def _joined() -> str:
    """SQL of the rows ``spans``, where those of one version that follow one another are one."""

    def follows(row: str, before: str) -> str:
        parts = (f"{row}.first = {before}.first", f"{row}.ended <=> {before}.ended", f"{row}.since = {before}.until")
        return f"coalesce({' AND '.join(parts)}, false)"

    begins = f"filter(spans, (r, k) -> NOT {follows('r', 'get(spans, k - 1)')})"
    ends = f"filter(spans, (r, k) -> NOT {follows('get(spans, k + 1)', 'r')})"
    row = struct_sql({"first": "r.first", "ended": "r.ended", "since": "r.since", "until": "get(ends, k).until"})
    return let("ends", ends, f"transform({begins}, (r, k) -> {row})")
