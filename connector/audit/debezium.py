"""Debezium's change events, as the auditor reads them: the row of each event, and what a table makes of it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from connector.audit import exact_json
from connector.audit.control import is_control
from connector.audit.records import TOMBSTONE, UNAVAILABLE
from connector.config import DebeziumFormat, DeltaHistorySink, DeltaUpsertSink, KeyedSink, PipelineConfig
from connector.spark.compat import from_ddl
from sinks.spark.sql import identifier, let, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_SOURCE = (
    "version STRING, connector STRING, name STRING, ts_ms BIGINT, snapshot STRING, db STRING, schema STRING, "
    "table STRING, txId BIGINT, lsn BIGINT, file STRING, pos BIGINT, row BIGINT, gtid STRING, commit_lsn STRING, "
    "change_lsn STRING, event_serial_no BIGINT, scn STRING, commit_scn STRING"
)
OP = "_op"
_OF_EVENT = {
    OP: "STRING", "_source": f"STRUCT<{_SOURCE}>", "_ts_ms": "BIGINT",
    "_transaction": "STRUCT<id STRING, total_order BIGINT, data_collection_order BIGINT>", "_source_position": "STRING",
}  # fmt: skip
"""The columns of an event beside those of its row."""
_ROWS, _DETAILS = ("before", "after"), ("op", "ts_ms", "source", "transaction")
"""The parts of an event: the rows of the table, and what becomes a column with an underscore before its name."""


@dataclass(frozen=True)
class Events:
    """How the pipeline file says that events are read. ``row``: the columns of the database's table."""

    row: StructType
    placeholder: str
    """What stands for a value that the database didn't send."""
    absent: str
    """Such a value is ``null``; with ``keep`` another column says so; with ``bad_record`` the event has a problem."""
    permissive: bool
    sent: StructType | None = None
    """The envelope of events in Avro. None: they are in JSON."""
    tx_id: str | None = None
    """The type of ``txId`` in the source of events in JSON, if it isn't a number."""

    @cached_property
    def columns(self) -> StructType:
        """Of a decoded event."""
        from pyspark.sql.types import StructField, StructType

        there = {f"_{part.name}": part.dataType for part in self.sent or ()}
        if self.tx_id is not None:
            there["_source"] = _type(_SOURCE.replace("txId BIGINT", f"txId {self.tx_id.upper()}"))
        own = ("_source", "_transaction")  # whose fields depend on the connector
        added = [
            StructField(name, there[name] if name in own and name in there else _type(f"x {kind}")["x"].dataType)
            for name, kind in (*_OF_EVENT.items(), *([(UNAVAILABLE, "ARRAY<STRING>")] if self.absent == "keep" else []))
        ]
        return StructType([*self.row.fields, *added])

    @property
    def envelope(self) -> StructType:
        """Of an event as it is sent. In JSON with its schema around it, it is inside ``payload``."""
        from pyspark.sql.types import StructField, StructType

        if self.sent is not None:
            return self.sent
        rows = [StructField(name, self.row) for name in _ROWS]
        details = {name: self.columns[f"_{name}"].dataType for name in _DETAILS} | {"source": self._source}
        event = [*rows, *(StructField(name, kind) for name, kind in details.items())]
        return StructType([*event, StructField("payload", StructType(event))])

    @property
    def _source(self) -> DataType:
        """Of an event as it is sent. The column ``_source`` lacks the sequence of events in JSON."""
        from pyspark.sql.types import StringType, StructField, StructType

        column = self.columns["_source"].dataType
        if self.sent is not None or not isinstance(column, StructType):
            return column
        return StructType([*column.fields, StructField("sequence", StringType())])

    def event(self, sent: str) -> str:
        """SQL of the STRUCT of an event, and its ``row``, from ``envelope`` as it was read."""
        part = {name: self._part(name, sent) for name in (*_ROWS, *_DETAILS)}
        row = f"IF({part['op']} = 'd', {part['before']}, {part['after']})"
        pairs = ", ".join(f"'{name}', {sql}" for name, sql in {**part, "row": row}.items())
        return f"named_struct({pairs})"

    def _part(self, name: str, sent: str) -> str:
        if self.sent is None:
            return f"coalesce({sent}.payload.{name}, {sent}.{name})"
        if name in self.sent.names:
            return f"{sent}.{name}"
        return f"CAST(NULL AS {sql_type(self.columns[f'_{name}'].dataType)})"

    def field(self, column: StructField, event: str) -> str:
        """SQL of a column, from the STRUCT of ``event``."""
        name, kind = column.name, column.dataType
        if name == UNAVAILABLE:
            every = [(each.name, self._absent(each.dataType, self._of_row(each, event))) for each in self.row]
            absent = (f"IF({condition}, array({literal(each)}), array())" for each, condition in every if condition)
            return f"concat(CAST(array() AS ARRAY<STRING>), {', '.join(absent) or 'array()'})"
        if name == "_source_position":
            source, op = self._source, self._value(self.columns[OP].dataType, f"{event}.op")
            return _position(self._value(source, f"{event}.source"), getattr(source, "names", ()), op)
        if name in _OF_EVENT:
            return self._value(kind, f"{event}.{name.removeprefix('_')}")
        value = self._of_row(column, event)
        missing = self._absent(kind, "sent") if self.absent != "bad_record" else None
        if missing is None:
            return value
        return let("sent", value, f"IF({missing}, NULL, sent)")

    def _of_row(self, column: StructField, event: str) -> str:
        return self._value(column.dataType, f"{event}.row.{identifier(column.name)}")

    def sound(self, event: str) -> str:
        """SQL: whether an event is the change of a row, or a truncate, and all its values were sent."""
        op = self._value(self.columns[OP].dataType, f"{event}.op")
        checks = [
            f"{op} IN ('c', 'u', 'r', 'd', 't')",
            f"NOT ({op} IN ('c', 'u', 'r') AND {event}.after IS NULL)",
            f"NOT ({op} = 'd' AND {event}.before IS NULL)",
        ]
        for column in self.row if self.absent == "bad_record" else ():
            absent = self._absent(column.dataType, self._of_row(column, event))
            checks += [f"NOT {absent}"] if absent is not None else []
        return f"({' AND '.join(f'coalesce({check}, false)' for check in checks)})"

    def control(self, event: str, text: str) -> str:
        """SQL: whether an event in JSON is a control event. ``text``: SQL of the JSON."""
        return is_control(self._value(self.columns[OP].dataType, f"{event}.op"), text)

    def _value(self, kind: DataType, found: str) -> str:
        return found if self.sent is not None else exact_json.value(kind, found, permissive=self.permissive)

    def _absent(self, kind: DataType, value: str) -> str | None:
        """SQL: whether a value stands for one that wasn't sent. None: no value of this type does."""
        from pyspark.sql import types as T

        sent = self.placeholder.encode()
        same: str | None = None
        if isinstance(kind, T.StringType):
            same = f"{value} IN ({', '.join(map(literal, sorted(_as_texts(sent))))})"
        elif isinstance(kind, T.BinaryType):
            same = f"hex({value}) = '{sent.hex().upper()}'"
        elif isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StringType | T.BinaryType):
            same = f"(size({value}) = 1 AND {self._absent(kind.elementType, f'get({value}, 0)')})"
        elif isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.NumericType):
            # Of a DECIMAL a number is the value, or its digits.
            powers = sorted({1, 10 ** getattr(kind.elementType, "scale", 0)})
            numbers = [[((byte + 128) % 256 - 128) / power for byte in sent] for power in powers]
            arrays = (", ".join(f"CAST('{number!r}' AS DOUBLE)" for number in each) for each in numbers)
            found = f"transform({value}, n -> CAST(n AS DOUBLE))"
            same = f"({' OR '.join(f'{found} = array({each})' for each in arrays)})"
        elif isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
            same = f"(size({value}) = 1 AND map_keys({value})[0] = {literal(self.placeholder)})"
        elif kind.typeName() == "variant":
            quoted = [json.dumps(text, ensure_ascii=False) for text in sorted(_as_texts(sent))]
            signed = ",".join(str((byte + 128) % 256 - 128) for byte in sent)
            sought = [*quoted, *(f"[{text}]" for text in quoted), _hstore(self.placeholder), f"[{signed}]"]
            same = f"to_json({value}) IN ({', '.join(map(literal, sought))})"
        return same and f"coalesce({same}, false)"


def _as_texts(sent: bytes) -> set[str]:
    """What stands for it among texts."""
    text = sent.decode()
    return {text, _hstore(text), sent.hex(), *(each(sent).decode() for each in _BASE64), _named_by(sent)}


def _hstore(text: str) -> str:
    """What stands for it among hstores, which are JSON."""
    quoted = json.dumps(text, ensure_ascii=False)
    return f"{{{quoted}:{quoted}}}"


def _named_by(sent: bytes) -> str:
    """What stands for it among UUIDs: that of RFC 4122 by a name, without a namespace."""
    digest = bytearray(hashlib.md5(sent, usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    return "-".join((digest[:4].hex(), digest[4:6].hex(), digest[6:8].hex(), digest[8:10].hex(), digest[10:].hex()))


_BASE64 = (base64.b64encode, base64.urlsafe_b64encode)


def events(format: DebeziumFormat, row: StructType, sent: StructType | None = None) -> Events:
    """The events of a pipeline file. ``sent``: the envelope, for events in Avro."""
    return Events(row, format.unavailable_value, format.unavailable, format.mode == "permissive", sent, format.tx_id)


def with_its_own_rules(config: PipelineConfig, columns: Collection[str]) -> PipelineConfig:
    """The pipeline with what the file leaves unsaid of events: which of them delete a row or all rows, and that a keyed
    table doesn't store the columns of the event. ``columns``: of the rows; without ``_op`` nothing tells what they do.
    """
    sink = config.sinks[0]
    if not isinstance(sink, KeyedSink):
        return config
    rules: dict[str, object] = {}
    if sink.column_list is None:
        rules["except_column_list"] = (*(sink.except_column_list or ()), *_OF_EVENT, UNAVAILABLE)
    if OP in columns:
        rules["apply_as_deletes"] = sink.apply_as_deletes or f"{OP} = 'd'"
        soft = isinstance(sink, DeltaUpsertSink) and sink.deletes == "soft"
        both_times = isinstance(sink, DeltaHistorySink) and sink.bitemporal
        # One table of several was emptied: nothing tells which rows were its own, unless the file takes all.
        of_all = not sink.by_offset and not soft and not both_times and not sink.several_topics
        if of_all and sink.apply_as_truncates is None:
            rules["apply_as_truncates"] = f"{OP} = 't'"
    return config.model_copy(update={"sinks": (sink.model_copy(update=rules),)})


def passed_over(config: PipelineConfig, columns: Collection[str]) -> str:
    """SQL: whether an event or a tombstone says nothing. ``columns``: of the rows.

    In an order of events a tombstone doesn't: the delete before it has said the same. Nor do truncates that are to
    delete nothing.
    """
    sink = config.sinks[0]
    if OP not in columns or not isinstance(sink, KeyedSink):
        return "false"
    tombstones = TOMBSTONE if sink.sequence_by is not None else "false"
    ignored = sink.apply_as_truncates == "false"
    truncates = f"(NOT {TOMBSTONE} AND coalesce({OP} = 't', false))" if ignored else "false"
    return f"({tombstones} OR {truncates})"


def _type(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    found = from_ddl(ddl)
    assert isinstance(found, StructType)
    return found


def _position(source: str, fields: Sequence[str], op: str) -> str:
    """SQL of the place in the database's log, as text that sorts as the log does. ``source``: SQL of the STRUCT, which
    has these ``fields``. ``op``: SQL of the event's."""
    place = _place(fields, op)
    return "CAST(NULL AS STRING)" if place is None else let("at", source, place)


def _place(fields: Sequence[str], op: str) -> str | None:
    """SQL of the place from the STRUCT ``at``. None: the fields tell none."""

    def wide(name: str, digits: int) -> str:
        return f"lpad(CAST(at.{name} AS STRING), {digits}, '0')"

    def lsn(name: str) -> str:
        # Without a colon it is Informix', a number of no fixed length.
        of_informix = f"concat('~', lpad({name}, 20, '0'))"
        return f"CASE WHEN instr({name}, ':') = 0 THEN {of_informix} ELSE coalesce({name}, '') END"

    # The seventh digit of a log's number, and each one after it, is told by a tilde, which sorts behind all digits.
    digits = "regexp_extract(at.file, '[0-9]*$', 0)"
    file = f"concat(substring(at.file, 1, length(at.file) - length({digits})), repeat('~', length({digits}) - 6), "
    file += f"{digits})"
    # A transaction may have one place for all its changes: behind a snapshot, and told apart by Kafka's order alone.
    binlog = f"concat({file}, ':', {wide('pos', 20)}, CASE {op} WHEN 'r' THEN ':0000000000' ELSE ':~' END)"
    event = f"coalesce({wide('event_serial_no', 10)}, '')" if "event_serial_no" in fields else "''"
    # Of SQL Server, whose events alone have a number, the log isn't in the order of a transaction's statements.
    inside = f"concat({lsn('at.change_lsn')}, ':', {event})"
    if "event_serial_no" in fields:
        inside = f"CASE WHEN at.event_serial_no IS NULL OR coalesce({op}, 'r') = 'r' THEN {inside} ELSE '~' END"
    server = f"concat({lsn('at.commit_lsn')}, ':', {inside})"
    pair = "from_json(at.sequence, 'ARRAY<STRING>')"
    before, change = (_whole(f"get({pair}, {part})") if "sequence" in fields else _NO_TEXT for part in (0, 1))
    postgres = f"coalesce({wide('lsn', 20)}, {change})"
    commit = _whole("at.commit_scn") if "commit_scn" in fields else _NO_TEXT
    ways = (  # what tells the kind of database, the fields that its position needs, the position
        (postgres, {"lsn"}, _committed(postgres, before, op)),
        ("CASE WHEN at.pos < 0 THEN NULL ELSE at.pos END", {"file", "pos"}, binlog),
        ("coalesce(at.commit_lsn, at.change_lsn)", {"commit_lsn", "change_lsn"}, server),
        ("at.scn", {"scn"}, _committed(wide("scn", 20), commit, op)),
    )
    whens = " ".join(f"WHEN {known} IS NOT NULL THEN {sql}" for known, needs, sql in ways if needs <= set(fields))
    return f"CASE {whens} END" if whens else None


_NO_TEXT = "CAST(NULL AS STRING)"


def _whole(text: str) -> str:
    """SQL of a number as text of 20 digits. Null of what isn't one."""
    return f"CASE WHEN translate({text}, '0123456789', '') = '' AND {text} <> '' THEN lpad({text}, 20, '0') END"


def _committed(own: str, commit: str, op: str) -> str:
    """SQL of a place that no change of the row before it, and none after it, is on the wrong side of: a change is at
    ``own``, and its transaction isn't committed before ``commit``. What a snapshot has read is older than changes."""
    behind = f"concat({commit}, CASE WHEN {op} = 'r' THEN '' ELSE concat(':', {own}) END)"
    return f"CASE WHEN {own} <= {commit} THEN {behind} ELSE {own} END"
