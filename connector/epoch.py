"""One epoch as one function: read, decode, reduce, write. Each step is announced before the next begins.

With several sinks the last step is to prepare them; what comes then is the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from connector.clock import LATE, TIME, Timing, clocked, timed
from connector.coordinator import of_each
from connector.derive import Derivation
from connector.parts import Output
from connector.protocol.steps import Event, Observer, Step
from sinks.contract import Committed, Epoch, Prepared, TwoPhaseSink
from sinks.delta.kept import kept
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
    with ExitStack() as stack, _about_the_records():
        rows = decode(read(epoch.ranges))
        if timing is not None:
            rows = derivation.prepare(timed(rows, timing.column), epoch)
            rows, epoch = stack.enter_context(clocked(rows, epoch, timing.idle_after))
            rows = rows.drop(TIME)
        reduced = derivation.reduce(rows, epoch)
        observe(Event(Step.READ, epoch, behind=behind))
        derivation.set_aside(rows, epoch)
        observe(Event(Step.WRITING, epoch, behind=behind))
        committed = write(epoch, reduced)
    observe(Event(Step.COMMITTED, epoch, committed, behind))
    return committed


def prepare_epoch(
    epoch: Epoch,
    sinks: Mapping[str, tuple[Output, TwoPhaseSink[DataFrame]]],
    *,
    read: Callable[[Sequence[OffsetRange]], DataFrame],
    timing: Timing | None,
    again: bool,
    at_once: bool,
    observe: Observer,
    behind: int,
) -> tuple[Epoch, dict[str, Prepared]]:
    """Kafka is read once for all sinks that can share its decoded records. ``again``: the epoch's clock is known."""
    with ExitStack() as stack, _about_the_records():
        records = read(epoch.ranges)
        decoders = [output.decode.decode for output, _ in sinks.values()]
        decoded = {decode: decode(records) for decode in decoders}
        for decode, rows in decoded.items():
            if decoders.count(decode) > 1:
                decoded[decode] = stack.enter_context(kept(rows))
        shaped = {name: output.decode.shape(decoded[output.decode.decode]) for name, (output, _) in sinks.items()}
        if timing is not None:
            for name, (output, _) in sinks.items():
                shaped[name] = output.derivation.prepare(timed(shaped[name], timing.column), epoch)
            if not again:
                # Whichever has windows knows what is late; else all tell the same.
                leading = next((name for name, rows in shaped.items() if LATE in rows.columns), next(iter(shaped)))
                shaped[leading], epoch = stack.enter_context(clocked(shaped[leading], epoch, timing.idle_after))
            shaped = {name: rows.drop(TIME) for name, rows in shaped.items()}
        reduced = {name: output.derivation.reduce(shaped[name], epoch) for name, (output, _) in sinks.items()}
        observe(Event(Step.READ, epoch, behind=behind))
        for name, (output, _) in sinks.items():
            output.derivation.set_aside(shaped[name], epoch)
        observe(Event(Step.WRITING, epoch, behind=behind))
        prepare = {name: partial(sink.prepare, epoch, reduced[name]) for name, (_, sink) in sinks.items()}
        return epoch, of_each(prepare, at_once=at_once)


@contextmanager
def _about_the_records() -> Iterator[None]:
    """What a query found wrong with a record, as a paragraph."""
    try:
        yield
    except LakelockError:
        raise
    except Exception as error:
        raise _explained(error) or error from None


def _explained(error: Exception) -> LakelockError | None:
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
            hint="Kafka's key has to be a JSON object with the columns of sinks[].key, or, where that is one column, "
            "its value as text.",
        )
    if fields["kind"] == "null_sequence":
        return BadRecord(
            f"The record at {where}, key {fields['key']}, has no sequence (sinks[].sequence_by is null). Nothing of "
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
            hint="Choose a key (sinks[].key) that every record has, or write the topic with delta_append.",
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
