"""One epoch as one function: read, decode, reduce, write. Each step is announced before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from connector.clock import TIME, Timing, clocked, timed
from connector.derive import Derivation
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch
from sinks.errors import BadRecord, LakelockError, OffsetsLost, PositionMismatch
from sinks.offsets import OffsetRange
from sinks.raised import raised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_epoch(
    epoch: Epoch,
    *,
    read: Callable[[Sequence[OffsetRange]], DataFrame],
    decode: Callable[[DataFrame], DataFrame],
    derivation: Derivation,
    write: Callable[[Epoch, DataFrame], Committed],
    timing: Timing | None,
    observe: Observer,
    behind: int,
) -> Committed:
    """Spark is lazy: all the work is done in one pass, by the write. A record that is bad stops it there.

    Only where event time is asked for, ``timing``, the decoded rows are kept for a second, small query before it.
    """
    with ExitStack() as kept:
        try:
            rows = decode(read(epoch.ranges))
            if timing is not None:
                rows = derivation.prepare(timed(rows, timing.column), epoch)
                rows, epoch = kept.enter_context(clocked(rows, epoch, timing.idle_after))
                rows = rows.drop(TIME)
            reduced = derivation.reduce(rows, epoch)
            observe(Event(Step.READ, epoch, behind=behind))
            derivation.set_aside(rows, epoch)
            observe(Event(Step.WRITING, epoch, behind=behind))
            committed = write(epoch, reduced)
        except LakelockError:
            raise
        except Exception as error:
            raise _about_the_records(error) or error from None
    observe(Event(Step.COMMITTED, epoch, committed, behind))
    return committed


def _about_the_records(error: Exception) -> LakelockError | None:
    fields = raised(error)
    if fields is None:
        if "KAFKA_DATA_LOSS" in str(error) or "OffsetOutOfRangeException" in str(error):
            return OffsetsLost(
                "Kafka's retention removed records while the epoch was being read; nothing of it was written.",
                hint="Run the pipeline again: it says which offsets are missing and how to go on.",
            )
        return None
    where = f"{fields.get('topic')}-{fields.get('partition')}, offset {fields.get('offset')}"
    if fields["kind"] == "null_key" and fields.get("tombstone"):
        return BadRecord(
            f"The record at {where} has no value (a tombstone), and Kafka's key gives no {fields['key']}: which row it "
            "deletes can't be told. Nothing of this epoch was written.",
            hint="Kafka's key has to be a JSON object with the columns of sinks[0].key, or, where that is one column, "
            "its value as text.",
        )
    if fields["kind"] == "null_sequence":
        return BadRecord(
            f"The record at {where}, key {fields['key']}, has no sequence (sinks[0].sequence_by is null). Nothing of "
            "this epoch was written.",
            hint="A tombstone has no value, hence no sequence: use sequence_by: _timestamp, or send deletes as records "
            "that apply_as_deletes tells apart."
            if fields.get("tombstone")
            else "Choose a sequence_by that every record has, as in coalesce(changed_at, _timestamp).",
        )
    if fields["kind"] == "null_key":
        return BadRecord(
            f"The record at {where} has a null in its key {fields['key']}: it can't be upserted. Nothing of this "
            "epoch was written.",
            hint="Choose a key (sinks[0].key) that every record has, or write the topic with delta_append.",
        )
    if fields["kind"] == "null_time":
        return BadRecord(
            f"The record at {where} has no event time: its {fields['column']!r} is null. Nothing of this epoch was "
            "written.",
            hint="Take another column, Kafka's `_timestamp` is always there, or fill it in `transform:`.",
        )
    if fields["kind"] in ("overflow", "not_a_number"):
        return BadRecord(
            f"{fields.get('aggregate')} can't be added up: "
            + ("it overflows" if fields["kind"] == "overflow" else "a value is not a number, or infinite")
            + ". Nothing of this epoch was written.",
            hint="Cast its argument to a smaller scale, or leave such values out: sum(nullif(x, 'NaN')).",
        )
    if fields["kind"] == "already_applied":
        return PositionMismatch(
            f"A group of the table holds a part of the epoch already: it has the offsets {fields['applied']}, the "
            f"epoch adds {fields['offsets']}. What is in a sum can't be taken out: nothing of this epoch was written.",
            hint="Has somebody changed rows of the table? RESTORE it to a version that the pipeline wrote.",
        )
    if "value" not in fields:
        return BadRecord(
            f"The record at {where} has no value (a tombstone). Nothing of this epoch was written.",
            hint="This kind of table has no row that a tombstone could delete: keep tombstones out of the topic, or "
            "write it with delta_upsert.",
        )
    return BadRecord(
        f"The record at {where} is not one JSON object that fits value.schema. Nothing of this epoch was written. "
        f"Its value starts with: {fields['value']}",
        hint="Make value.schema fit the record (a STRING takes any value), or have the producer mend it.",
    )
