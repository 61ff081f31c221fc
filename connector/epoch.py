"""One epoch as one function: read, decode, reduce, write. Each step is announced before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch
from sinks.errors import BadRecord, LakelockError, OffsetsLost
from sinks.offsets import OffsetRange
from sinks.raised import raised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_epoch(
    epoch: Epoch,
    *,
    read: Callable[[Sequence[OffsetRange]], DataFrame],
    decode: Callable[[DataFrame], DataFrame],
    reduce: Callable[[DataFrame], DataFrame],
    write: Callable[[Epoch, DataFrame], Committed],
    observe: Observer,
    behind: int,
) -> Committed:
    """Spark is lazy: all the work is done in one pass, by the write. A record that is bad stops it there."""
    rows = reduce(decode(read(epoch.ranges)))
    observe(Event(Step.READ, epoch, behind=behind))
    observe(Event(Step.WRITING, epoch, behind=behind))
    try:
        committed = write(epoch, rows)
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
    if fields["kind"] == "null_key":
        return BadRecord(
            f"The record at {where} has a null in its key {fields['key']}: it can't be upserted. Nothing of this "
            "epoch was written.",
            hint="Choose a key (sinks[0].key) that every record has, or write the topic with delta_append.",
        )
    if "value" not in fields:
        return BadRecord(
            f"The record at {where} has no value (a tombstone). Nothing of this epoch was written.",
            hint="Keep tombstones out of the topic: deletes are not supported yet.",
        )
    return BadRecord(
        f"The record at {where} is not one JSON object that fits value.schema. Nothing of this epoch was written. "
        f"Its value starts with: {fields['value']}",
        hint="Make value.schema fit the record (a STRING takes any value), or have the producer mend it.",
    )
