"""Turns what a Spark query found wrong with a record into an error that says where the record is and what to do.

A query in Spark raises text. The text of our own queries has fields, as `sinks.spark.row_errors` writes them: a kind,
the coordinates, and what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from connector.decode.debezium import POSITION
from connector.decode.event_time import IN_RANGE
from connector.decode.json_faults import malformed_at
from connector.decode.protobuf import PACKAGE as PROTOBUF
from connector.decode.validated import PACKAGE as JSON
from connector.source.columnar import FOUND_ODD, PACKAGE
from connector.spark.jars import JSON_JAR, PROTOBUF_JAR, READER_JAR
from sinks.delta.refusals import HINT
from sinks.errors import BadRecord, ConfigurationError, LakelockError, OffsetsLost, PositionMismatch, SourceError
from sinks.kafka import reader_refused
from sinks.offsets import OffsetRange
from sinks.spark.row_errors import raised

Fields = Mapping[str, Any]
_OUT_OF_RANGE = ("OffsetOutOfRangeException", "LogTruncationException")
"""Kafka's names for an offset that the log no longer has."""
_NOTHING = "Nothing of this epoch was written."
_OF_TEXT_IDS = "Events of Oracle and Informix, whose transactions have texts for IDs, need value: {tx_id: string}."


class SchemaToAskFor(Exception):
    """Not an error: records of the epoch need a schema that the run hasn't asked the registry for.

    ``part``: value or key.
    """

    def __init__(self, part: str, schema_id: str) -> None:
        super().__init__(schema_id)
        self.part, self.schema_id = part, schema_id


class OddRecord(Exception):
    """Not an error: the columnar reader has met a record that it leaves to the decoder in Spark SQL.

    ``error``: what Spark said.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def about_the_records() -> Iterator[None]:
    """Explain errors that a query in the block raises about a record.

    Raises BadRecord, OffsetsLost, PositionMismatch, SchemaToAskFor or OddRecord in place of Spark's error, and where
    Kafka refuses or doesn't answer what `reader_refused` makes of it. Any other error passes through.
    """
    try:
        yield
    except LakelockError:
        raise
    except Exception as error:
        raise _explained(error) or error from None


def _explained(error: Exception) -> Exception | None:
    fields = raised(error)
    if fields is not None:
        explain = _EXPLAINED.get(fields["kind"])
        return explain(fields) if explain else None
    said = str(error)
    if FOUND_ODD in said:
        return OddRecord(error)
    if "KAFKA_DATA_LOSS" in said or any(name in said for name in _OUT_OF_RANGE):
        return OffsetsLost(
            "Kafka's retention removed records while the epoch was being read. Nothing of it was written.",
            hint="Run the pipeline again. It says which offsets are missing, and how to go on.",
        )
    if f"ClassNotFoundException: {PACKAGE}" in said:
        return ConfigurationError(
            f"The driver has {READER_JAR.name}, and the executors lack it. {_NOTHING}",
            hint="Submit it with --jars (spark.jars): Spark sends it to them. Or write source: {reader: spark}.",
        )
    for package, jar in ((PROTOBUF, PROTOBUF_JAR), (JSON, JSON_JAR)):
        if f"ClassNotFoundException: {package}" in said:
            return ConfigurationError(
                f"The driver has {jar.name}, and the executors lack it. {_NOTHING}",
                hint="Submit it with --jars (spark.jars): Spark sends it to them.",
            )
    return reader_refused(error)


def _where(fields: Fields) -> str:
    return f"{fields.get('topic')}-{fields.get('partition')}, offset {fields.get('offset')}"


def _schema_to_ask_for(fields: Fields) -> Exception:
    return SchemaToAskFor(fields["part"], fields["id"])


def _not_of_batch(fields: Fields) -> Exception:
    return BadRecord(
        f"The batch has a row of {_where(fields)}, which isn't in the batch by the query's checkpoint. Nothing of "
        "the batch was written.",
        hint="Is it the query's own checkpoint? Rows have to be made of the batch's records, without aggregations, "
        "stream-stream joins or other operators with a state, and to keep the coordinates of their records.",
    )


def _broken(fields: Fields) -> Exception:
    return BadRecord(
        f"The row of {fields['key']} would be refused by its table: {fields['detail']}. {_NOTHING}", hint=HINT
    )


def _null_key(fields: Fields) -> Exception:
    if fields.get("tombstone"):
        return BadRecord(
            f"The record at {_where(fields)} has no value (a tombstone), and Kafka's key gives no {fields['key']}: "
            f"nothing says which row it deletes. {_NOTHING}",
            hint="Kafka's key has to be a JSON object with the columns of sinks[].key. If that is one column, the key "
            "may be its value as text. If keys have another format, name it: key: {format: avro, ...}.",
        )
    if fields.get("truncate"):
        return BadRecord(
            f"The record at {_where(fields)} is a truncate of one table, and the rows are of several topics: nothing "
            f"says which rows it deletes. {_NOTHING}",
            hint="Write sinks[].apply_as_truncates: 'false' if it is to delete none of them, and with sequence_by "
            "\"_op = 't'\" if all. Or give each topic a table: tables, in place of sinks.",
        )
    return BadRecord(
        f"The record at {_where(fields)} has a null in its key {fields['columns']}: it can't be upserted. {_NOTHING}",
        hint="Choose a key (sinks[].key) that every record has, or write the topic with delta_append.",
    )


def _null_sequence(fields: Fields) -> Exception:
    hint = "Choose a sequence_by that every record has, as in coalesce(changed_at, _timestamp)."
    if fields.get("tombstone"):
        hint = (
            "A tombstone has no value, so it has no sequence. Use sequence_by: _timestamp, or send deletes as records "
            "that apply_as_deletes selects."
        )
    elif POSITION in fields.get("by", ""):
        hint = (
            "The event names no place in the database's log. MariaDB from 11.4 tells it with "
            "binlog_legacy_event_pos=ON. Without sequence_by, the order is Kafka's."
        )
    return BadRecord(
        f"The record at {_where(fields)}, key {fields['key']}, has no sequence (sinks[].sequence_by is null, "
        f"or has a null in it). {_NOTHING}",
        hint=hint,
    )


def _null_system_sequence(fields: Fields) -> Exception:
    return BadRecord(
        f"The record at {_where(fields)}, key {fields['key']}, has no recorded time (sinks[].system_sequence_by is "
        f"null, or has a null in it). {_NOTHING}",
        hint="A tombstone has no value, so it has no recorded time there. Leave out system_sequence_by, which is then "
        "Kafka's _timestamp, or send deletes as records that apply_as_deletes selects."
        if fields.get("tombstone")
        else "Choose a system_sequence_by that every record has, as in coalesce(recorded_at, _timestamp).",
    )


def _null_time(fields: Fields) -> Exception:
    column = repr(fields["column"])
    why = f"no event time: its {column} is null"
    if fields.get("far"):
        why = f"an event time out of range: its {column} isn't {IN_RANGE}"
    return BadRecord(
        f"The record at {_where(fields)} has {why}. {_NOTHING}",
        hint="Choose a column that every record has, such as Kafka's `_timestamp`, or fill it in `transform:`.",
    )


def _no_sum(fields: Fields) -> Exception:
    why = "it overflows" if fields["kind"] == "overflow" else "a value is not a number, or infinite"
    return BadRecord(
        f"{fields.get('aggregate')} can't be added up: {why}. {_NOTHING}",
        hint="Cast its argument to a smaller scale, or leave such values out: sum(nullif(x, 'NaN')).",
    )


def _already_applied(fields: Fields) -> Exception:
    return PositionMismatch(
        f"A group of the table holds a part of the epoch already: it has the offsets {fields['applied']}, the "
        f"epoch adds {fields['offsets']}. A sum can't be taken apart, so nothing of this epoch was written.",
        hint="Somebody may have changed rows of the table: `lakelock rewind` takes it back to an epoch before that. If "
        "the table was written by another delivery before, and Lakelock 0.2 has made it transactional: run once with "
        "delivery: idempotent, which leaves out what the groups have, and then as now.",
    )


def _bad_record(fields: Fields) -> Exception:
    if fields["reason"] == "tombstone":
        return BadRecord(
            f"The record at {_where(fields)} has no value (a tombstone). {_NOTHING}",
            hint="This kind of table has no row that a tombstone could delete. Keep tombstones out of the topic, or "
            "write it with delta_upsert.",
        )
    shown = f" Its value starts with: {fields['value']}" if "value" in fields else ""
    bad = BadRecord(
        f"The record at {_where(fields)} isn't right: {fields['detail']}. {_NOTHING}{shown}",
        hint=f"{_HINTS[fields['reason']]} Or have such records set aside: on_bad_record: dead_letter, with "
        "dead_letters: {path: ...}.",
    )
    if fields["reason"] in ("value", "key"):
        bad.record = OffsetRange(fields["topic"], fields["partition"], fields["offset"], fields["offset"] + 1)
        bad.detail = fields["detail"]
    return bad


def because(bad: BadRecord, problem: Fields, shown: str | None, raw: Fields, header: int) -> BadRecord:
    """The same error with what a second look at the record has found.

    ``problem``: reason and detail; ``shown``: the start of the value of the field that is wrong; ``raw``: the record as
    Kafka gave it; ``header``: how many bytes come before the text in it.
    """
    detail = problem["detail"]
    if shown is not None:
        detail += f", but {shown!r}"
    elif detail != bad.detail and (at := malformed_at(bytes(raw[problem["reason"]] or b"")[header:])):
        detail += f": {at}" + (f" (counted after the header of {header} bytes)" if header else "")
    hint = f"{_OF_TEXT_IDS} {bad.hint}" if "source.txId: not a BIGINT" in detail else bad.hint
    return BadRecord(bad.message.replace(bad.detail, detail, 1), hint=hint)


def _not_of_epoch(_: Fields) -> Exception:
    return SourceError(
        "An epoch read a record of a partition that isn't in its ranges, so nothing of it was written.",
        hint="Run it again. If it comes back, it is a fault of Lakelock or of Spark's Kafka source: report it with the "
        "pipeline file and `lakelock status FILE`.",
    )


_EXPLAINED: Mapping[str, Callable[[Fields], Exception]] = {
    "unknown_schema": _schema_to_ask_for,
    "not_of_batch": _not_of_batch,
    "not_of_epoch": _not_of_epoch,
    "broken": _broken,
    "null_key": _null_key,
    "null_sequence": _null_sequence,
    "null_system_sequence": _null_system_sequence,
    "null_time": _null_time,
    "overflow": _no_sum,
    "not_a_number": _no_sum,
    "already_applied": _already_applied,
    "bad_record": _bad_record,
}

_HINTS = {
    "value": "Make value.schema fit the record (a STRING takes any value), or have the producer mend it.",
    "key": "Make the option key fit Kafka's key, or have the producer mend it.",
    "unfit": "Have `transform:` give another value, or write to a table that can hold this one: not partitioned by the "
    "column, or without its constraint.",
    "route": "Have the producer name a table, list what else may come in route.other, or correct route.by.",
    "no_key": "Choose a key (route.sink.key) that every record has, or write the topic with delta_append.",
    "no_sequence": "Choose a sequence_by, and a system_sequence_by, that every record has.",
    "no_time": "Choose an event_time that every record has.",
    "step": "Correct the step, or have the producer mend the record.",
    "rule": "Have the producer mend it, or loosen the rule in the option require; a null never meets a rule.",
}
