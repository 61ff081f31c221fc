"""Debezium's change events: the row before and after a change, in one envelope.

The row becomes columns: as it is after the change or, for a delete, as it was before. The envelope's fields follow:
``_op``, ``_source``, ``_ts_ms``, ``_transaction`` and ``_source_position``, see `source_position`. With ``unavailable:
keep`` there is ``_unavailable`` too, the names of the columns that the database didn't send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from connector.config.unavailable import UNAVAILABLE
from connector.decode import control_events
from connector.decode.format import NOTHING, Format, comments_in, problem_of
from connector.decode.json_new_fields import Rows
from connector.decode.source_position import position
from connector.decode.unavailable import unavailable
from connector.source.columnar import PlainValues
from connector.spark.compat import type_from_ddl
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

OP = "_op"
"""c: created, u: updated, d: deleted, r: read by a snapshot, t: the table was truncated."""
POSITION = "_source_position"
_OF_EVENT = (OP, "_source", "_ts_ms", "_transaction")
METADATA = (*_OF_EVENT, POSITION, UNAVAILABLE)
ROWS = Rows((("after",), ("before",), ("payload", "after"), ("payload", "before")), METADATA)
"""Where the database's row is in an event in JSON."""

SOURCE = (
    "STRUCT<version: STRING, connector: STRING, name: STRING, ts_ms: BIGINT, snapshot: STRING, db: STRING, "
    "schema: STRING, table: STRING, txId: BIGINT, lsn: BIGINT, file: STRING, pos: BIGINT, row: BIGINT, gtid: STRING, "
    "commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT, scn: STRING, commit_scn: STRING>"
)
"""Fields of the connectors for PostgreSQL, MySQL and MariaDB, SQL Server and Oracle. Tables have these types."""
_SEQUENCE = "sequence"
"""A field of PostgreSQL's for the position alone: the ``_source`` of tables has never had it."""
_TRANSACTION = "STRUCT<id: STRING, total_order: BIGINT, data_collection_order: BIGINT>"


def envelope(row: StructType, *, text_ids: bool = False) -> StructType:
    """The type of an event in JSON with such rows. If the schema is embedded, the event is inside ``payload``.

    ``text_ids``: the IDs of transactions in ``source`` are texts.
    """
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    source = type_from_ddl(SOURCE.replace("txId: BIGINT", "txId: STRING") if text_ids else SOURCE)
    assert isinstance(source, StructType)
    event = [
        StructField("before", row),
        StructField("after", row),
        StructField("op", StringType()),
        StructField("ts_ms", LongType()),
        StructField("source", StructType([*source.fields, StructField(_SEQUENCE, StringType())])),
        StructField("transaction", type_from_ddl(_TRANSACTION)),
    ]
    return StructType([*event, StructField("payload", StructType(event))])


@dataclass(frozen=True)
class Debezium:
    """``events`` is the envelope's format. Its type has ``before``, ``after`` and ``op``, and maybe other fields.

    ``placeholder`` stands for a value that the database didn't send. The value is null then, or the event is a bad
    record. With ``keep`` it is null, and ``_unavailable`` names its column.
    """

    events: Format
    placeholder: str
    unavailable: Literal["bad_record", "null", "keep"] = "bad_record"

    @property
    def type(self) -> StructType:
        """The row's columns, followed by those of the envelope."""
        from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

        fields = {field.name: field.dataType for field in self._envelope}
        row = fields["after"]
        assert isinstance(row, StructType)
        source = fields.get("source", type_from_ddl(SOURCE))
        transaction = fields.get("transaction", type_from_ddl(_TRANSACTION))
        if self._in_json and isinstance(source, StructType):
            source = StructType([field for field in source.fields if field.name != _SEQUENCE])
        kinds = (StringType(), source, LongType(), transaction, StringType(), ArrayType(StringType()))
        added = [StructField(name, kind) for name, kind in zip(METADATA, kinds, strict=True)]
        return StructType([*row.fields, *(added if self.unavailable == "keep" else added[:-1])])

    @property
    def header(self) -> int:
        """See ``Format.header``."""
        return self.events.header

    @property
    def comments(self) -> Mapping[str, str]:
        """See ``Format.comments``."""
        return comments_in(self.type)

    @property
    def plain(self) -> PlainValues | None:
        """See ``Format.plain``: the envelope's."""
        return self.events.plain

    def with_faults(self, bad: DataFrame, value: str, column: str, into: str) -> DataFrame | None:
        """See ``Format.with_faults``: the envelope's."""
        return self.events.with_faults(bad, value, column, into)

    def begin_epoch(self) -> None:
        """See ``Format.begin_epoch``."""
        self.events.begin_epoch()

    def resolve(self, ids: Iterable[str], records: DataFrame) -> None:
        """See ``Format.resolve``."""
        self.events.resolve(ids, records)

    @property
    def _envelope(self) -> StructType:
        from pyspark.sql.types import StructType

        assert isinstance(self.events.type, StructType)
        return self.events.type

    @property
    def _in_json(self) -> bool:
        return "payload" in self._envelope.names

    def decoded(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.decoded``."""
        read = f"_envelope{into}"
        return self._judged(self.events.decoded(records, column, read), read, into, column)

    def of_plain(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """See ``Format.of_plain``."""
        read = f"_envelope{into}"
        return self._judged(self.events.of_plain(records, column, read), read, into, "value")

    def _judged(self, frame: DataFrame, read: str, into: str, sent: str) -> DataFrame:
        """The row of the envelope ``read``, or why there is none, whoever has decoded it. ``sent``: the column of its
        bytes."""
        event, row, fields = f"_event{into}", f"_row{into}", f"_fields{into}"
        names = [name for name in self._envelope.names if name != "payload"]
        inner = self._in_json
        each = (
            f"{literal(name)}, "
            + (f"coalesce({read}.payload.{identifier(name)}, " if inner else "(")
            + f"{read}.{identifier(name)})"
            for name in names
        )
        frame = frame.selectExpr("*", f"named_struct({', '.join(each)}) AS {event}")
        # A column of its own: several expressions name each of its fields, and Spark would write it out in all of them.
        text = f"CAST({f'substring({sent}, {self.header + 1})' if self.header else sent} AS STRING)"
        of_json = control_events.fields(f"{event}.op", text) if inner else "CAST(NULL AS ARRAY<STRING>)"
        row_of = f"CASE WHEN {event}.op = 'd' THEN {event}.before ELSE {event}.after END"
        frame = frame.selectExpr("*", f"{row_of} AS {row}", f"{of_json} AS {fields}")
        problem = self._problem(read, event, row, fields)
        return frame.selectExpr("*", f"{self._value(event, row)} AS {into}", f"{problem} AS {problem_of(into)}")

    def _problem(self, read: str, event: str, row: str, fields: str) -> str:
        op = f"{event}.op"
        return (
            f"CASE WHEN {problem_of(read)} IS NOT NULL THEN {problem_of(read)} "
            f"WHEN {control_events.is_one(op, fields)} THEN {literal(NOTHING)} "
            f"WHEN {op} IS NULL OR {op} NOT IN ('c', 'u', 'r', 'd', 't') "
            f"THEN concat('no change of a row, its op is ', coalesce({op}, 'missing')) "
            f"WHEN {op} IN ('c', 'u', 'r') AND {event}.after IS NULL THEN 'no row after the change' "
            f"WHEN {op} = 'd' AND {event}.before IS NULL THEN 'no row before the delete'{self._not_sent(row)} END"
        )

    def _not_sent(self, row: str) -> str:
        """SQL of the problem that a column has the placeholder, a WHEN for each column."""
        if self.unavailable != "bad_record":
            return ""
        told = "the database did not send its column {} ({}): set REPLICA IDENTITY FULL, or unavailable: keep or 'null'"
        whens = []
        for field in self._columns:
            missing = unavailable(f"{row}.{identifier(field.name)}", field.dataType, self.placeholder)
            if missing is not None:
                whens.append(f" WHEN {missing} THEN {literal(told.format(field.name, self.placeholder))}")
        return "".join(whens)

    @property
    def _columns(self) -> list[StructField]:
        """Those of the row."""
        return [field for field in self.type.fields if field.name not in METADATA]

    def _value(self, event: str, row: str) -> str:
        from pyspark.sql.types import StructType

        there = set(self._envelope.names)
        fields, unsent = [], []
        for field in self._columns:
            value = f"{row}.{identifier(field.name)}"
            missing = unavailable(value, field.dataType, self.placeholder)
            if missing is not None and self.unavailable != "bad_record":
                unsent.append(f"IF({missing}, {literal(field.name)}, NULL)")
                value = f"IF({missing}, NULL, {value})"
            fields.append(f"{literal(field.name)}, {value}")
        for name in _OF_EVENT:
            kind, own = self.type[name].dataType, name.removeprefix("_")
            value = f"{event}.{own}" if own in there else f"CAST(NULL AS {sql_type(kind)})"
            if name == "_source" and self._in_json and isinstance(kind, StructType):
                parts = ", ".join(f"{literal(part)}, {value}.{identifier(part)}" for part in kind.names)
                value = f"IF({value} IS NULL, NULL, named_struct({parts}))"
            fields.append(f"{literal(name)}, {value}")
        source = self._envelope["source"].dataType if "source" in there else None
        known = source.names if isinstance(source, StructType) else ()
        fields.append(f"{literal(POSITION)}, {position(event, known)}")
        if self.unavailable == "keep":
            fields.append(f"{literal(UNAVAILABLE)}, array_compact(CAST(array({', '.join(unsent)}) AS ARRAY<STRING>))")
        return f"named_struct({', '.join(fields)})"
