"""Which options shape a table's rows, so that it remembers them: see ``sinks.delta.shape``.

They are those by which a record goes together with what earlier records have left. First of them is the table's kind:
every record, the latest per key, its versions, or an aggregate. ``transform``, ``require`` and the conditions of
deletes say what a record is, from the next record on, and may be changed on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from connector.config import (
    DeltaAggregateSink,
    DeltaHistorySink,
    DeltaSink,
    DeltaUpsertSink,
    KeyedSink,
    PipelineConfig,
)
from connector.config.formats import AvroFormat, ProtobufFormat
from connector.config.kinds import duration_text
from connector.config.transform_sql import call_in, computes_with
from connector.decode.debezium import METADATA
from connector.decode.records import CARRIED, HEADERS, KEY
from connector.derive.changes import table_columns
from connector.derive.masked_keys import MASK, masks_of_sink
from connector.derive.tracked_columns import tracked
from sinks.delta.shape import FILLED, TRACKED, ZONE, Shape, Text
from sinks.spark.sql import zone_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_OF_SEQUENCE = ("_sequence", "__START_AT")
_OF_SYSTEM = "__SYSTEM_START_AT"


_NONE: Mapping[str, str] = MappingProxyType({})
_TYPE = "types."
"""The beginning of the names, in what a table remembers. What follows is the aggregate."""


def shape(
    config: PipelineConfig, rows: StructType, columns: StructType, *, zone: str, types: Mapping[str, str] = _NONE
) -> Shape:
    """What shapes the rows of a pipeline with one table. Pure.

    ``rows``: the columns of decoded records, after ``transform``; ``columns``: those of the table; ``zone``: the
    session's time zone; ``types``: aggregate -> the type on which its states depend without showing it.
    """
    sink = config.sinks[0]
    assert isinstance(sink, DeltaSink)
    texts: dict[str, Text] = {"type": config.sinks[0].type, **_options(sink), **_columns(sink, rows.names)}
    texts |= masks_of_sink(config.steps, sink, rows.names)  # those that order the records can't be masked
    texts |= {f"{_TYPE}{name}": kind for name, kind in types.items()}
    if _depends_on_the_zone(config, sink, rows, columns):
        texts[ZONE] = zone_name(zone)
    return Shape(config.name, partial(_told, sink), texts, _keeping(sink, rows.names))


def _told(sink: DeltaSink, name: str) -> str:
    """What messages call what a table remembers under this name."""
    if name.startswith(_TYPE):
        return f"the type of what {sink.option('aggregates', name.removeprefix(_TYPE))} counts"
    if name == TRACKED:
        return f"the versions of {sink.in_file} were told apart by"
    return name if name.startswith(MASK) else sink.option(name)


def _options(sink: DeltaSink) -> dict[str, Text]:
    found: dict[str, Text] = {}
    if isinstance(sink, KeyedSink):
        found["key"] = list(sink.key)
        if sink.sequence_by is not None:  # between an order by sequence and one by offset: `sinks.delta.order`
            found["sequence_by"] = sink.sequence_by
    if isinstance(sink, DeltaHistorySink):
        found["stored_as_scd_type"] = str(sink.stored_as_scd_type)
        for option in ("track_history_column_list", "track_history_except_column_list"):
            columns = getattr(sink, option)
            found[option] = list(columns) if columns is not None else None
        if sink.recorded_by is not None:
            found["system_sequence_by"] = sink.recorded_by
    if isinstance(sink, DeltaAggregateSink):
        found["group_by"] = list(sink.group_by)
        found |= {f"aggregates.{name}": text for name, text in sink.aggregates.items()}
        window = sink.window
        if window is not None:
            lengths = {"size": window.size, "slide": window.slide or window.size, "gap": window.gap}
            found["window.time"] = window.time
            found |= {f"window.{name}": duration_text(each) for name, each in lengths.items() if each is not None}
    return found


def _columns(sink: DeltaSink, names: list[str]) -> dict[str, Text]:
    """Columns that no option names. ``names``: those of the records.

    A list of tracked columns says itself which these are, and each of them has to be there.
    """
    if not isinstance(sink, KeyedSink):
        return {}
    values = _values(sink, names)
    if isinstance(sink, DeltaUpsertSink):
        return {FILLED: [name for name in values if not _keeps_older(sink, name)]}
    assert isinstance(sink, DeltaHistorySink)
    return {} if sink.track_history_column_list is not None else {TRACKED: tracked(sink, values)}


def _values(sink: KeyedSink, names: list[str]) -> list[str]:
    return [name for name in table_columns(names, sink) if name not in sink.key]


def _keeping(sink: DeltaSink, names: list[str]) -> list[str]:
    """The columns in which an update keeps the value of an older one. ``names``: those of the records."""
    if not isinstance(sink, DeltaUpsertSink):
        return []
    return [name for name in _values(sink, names) if _keeps_older(sink, name)]


def _keeps_older(sink: DeltaUpsertSink, name: str) -> bool:
    """Whether no null of an update takes away the value that an older one has brought to this column."""
    ignored = sink.ignore_null_updates
    return ignored if isinstance(ignored, bool) else name in ignored


def _depends_on_the_zone(config: PipelineConfig, sink: DeltaSink, rows: StructType, columns: StructType) -> bool:
    """Whether a text without a zone may have become a time of the table, or a time a date, in the session's zone.

    Kafka's timestamps and the windows' are instants already, as are those of Avro and Protobuf, if no step has cast
    them from a text, and they aren't those of a tombstone whose key has another format.
    """
    by_sql, flows = config.transform is not None or isinstance(sink, DeltaAggregateSink), config.by_flow
    cast = any(step.cast for flow in flows for step in flow.steps)
    read = by_sql or cast or not all(isinstance(flow.value, AvroFormat | ProtobufFormat) for flow in flows)
    found = [each for each in rows if read and each.name not in (*CARRIED, *METADATA, HEADERS)]
    if not all(isinstance(flow.key, AvroFormat | ProtobufFormat) for flow in flows):
        of_key = (KEY, *(sink.key if isinstance(sink, KeyedSink) else ()))
        found += [each for each in rows if each.name in of_key and each.name not in CARRIED]
    if isinstance(sink, KeyedSink) and sink.sequence_by is not None and sink.sequence_by not in rows.names:
        found += [each for each in columns if each.name in _OF_SEQUENCE]
    if isinstance(sink, DeltaHistorySink) and sink.system_sequence_by not in (None, *rows.names):
        found += [each for each in columns if each.name == _OF_SYSTEM]
    if isinstance(sink, DeltaAggregateSink):
        found += [each for each in columns if each.name in sink.aggregates]
    kinds = ("timestamp", "date") if by_sql else ("timestamp",)
    # SQL makes a text or a number of an instant by the zone, and leaves no time that would show it.
    times = {"_timestamp", *(each.name.lower() for each in rows if _holds(each.dataType, ("timestamp",)))}
    if any(computes_with(sql, times) for sql in _expressions(config, sink)):
        return True
    return any(_holds(each.dataType, kinds) for each in found)


def _expressions(config: PipelineConfig, sink: DeltaSink) -> Iterator[str]:
    """The user's SQL that says what goes together, or in which order."""
    if config.transform is not None:
        yield config.transform
    if isinstance(sink, KeyedSink):
        yield from (each for each in (sink.sequence_by, getattr(sink, "recorded_by", None)) if each is not None)
    if isinstance(sink, DeltaAggregateSink):
        for text in sink.aggregates.values():
            yield from call_in(text)[1]


def _holds(data_type: DataType, kinds: tuple[str, ...]) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        return any(_holds(each.dataType, kinds) for each in data_type)
    if isinstance(data_type, ArrayType):
        return _holds(data_type.elementType, kinds)
    if isinstance(data_type, MapType):
        return _holds(data_type.keyType, kinds) or _holds(data_type.valueType, kinds)
    return data_type.typeName() in kinds
