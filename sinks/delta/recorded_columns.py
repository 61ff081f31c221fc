"""The columns of a bitemporal history, and the events that its ``_state`` keeps; see ``sinks.delta.bitemporal``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.delta.table import COORDINATES
from sinks.delta.version_columns import END, START, STATE, values_of
from sinks.spark.schema_changes import by_name
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

SYSTEM_START, SYSTEM_END = "__SYSTEM_START_AT", "__SYSTEM_END_AT"
SYSTEM = "_system_sequence"
"""Column of events: what orders them by the time of their record."""
EVENT_PLACE = ("at", "system", "topic", "partition", "offset")
"""The fields of an event that tell it from the others of its key."""


@dataclass(frozen=True)
class RecordedColumns:
    """The columns of a bitemporal history, by their role."""

    key: Sequence[str]
    """Columns that identify a row."""
    values: Sequence[str]
    """The other columns. A change of any of them makes a new version."""

    @property
    def same(self) -> str:
        """SQL: whether two events ``one`` and ``other`` have the same values."""
        return "one.values <=> other.values" if self.values else "true"

    def table(self, events: StructType) -> StructType:
        """The table's schema; ``events``: the schema of its events."""
        from pyspark.sql.types import ArrayType, StructField, StructType

        at, system = events["_sequence"].dataType, events[SYSTEM].dataType
        return StructType(
            [
                *(field for field in events if field.name in {*self.key, *self.values}),
                StructField(START, at),
                StructField(END, at),
                StructField(SYSTEM_START, system),
                StructField(SYSTEM_END, system),
                *(events[name] for name in COORDINATES),
                StructField(STATE, StructType([StructField("events", ArrayType(self._event(events)))])),
            ]
        )

    def event(self, at: str, system: str, deletes: str, events: StructType, stored: StructType | None = None) -> str:
        """SQL of an event as ``_state`` keeps it. A delete has no values.

        ``at``, ``system``: SQL of its two sequences; ``deletes``: SQL of whether it is a delete; ``events``: schema of
        the events; ``stored``: that of the table, if it is an event of one of the table's rows.
        """
        fields = [f"'at', {at}", f"'system', {system}", *(f"'{name[1:]}', {name}" for name in COORDINATES)]
        fields.append(f"'deletes', {deletes}")
        if self.values:
            fields.append(f"'values', CASE WHEN NOT {deletes} THEN {values_of(self.values, events, stored)} END")
        # The cast makes the types of events the same that come from the table, and that are new.
        return f"CAST(named_struct({', '.join(fields)}) AS {self.sql_of_event(events)})"

    def sql_of_event(self, events: StructType) -> str:
        """The type of an event, in SQL."""
        return sql_type(self._event(events))

    def stored_events(self, events: StructType, stored: StructType) -> str:
        """SQL of the events that ``_state`` keeps, in the type of ``sql_of_event``. ``stored``: the table's schema."""
        state = self.table(events)[STATE].dataType
        brought = by_name(STATE, stored[STATE].dataType, state)
        return f"CAST(({brought}).events AS ARRAY<{self.sql_of_event(events)}>)"

    def sql_of_before(self, events: StructType) -> str:
        """The type of what identifies a row, in SQL."""
        from pyspark.sql.types import ArrayType, StructType

        event = self._event(events)
        place = [event[name] for name in EVENT_PLACE]
        return sql_type(
            StructType(
                [
                    *place,
                    _of("end", event["at"].dataType),
                    _of("until", event["system"].dataType),
                    _of("events", ArrayType(StructType(place))),
                ]
            )
        )

    def sql_of_after(self, events: StructType) -> str:
        """The type of a row that the table is to have, in SQL."""
        from pyspark.sql.types import ArrayType, StructType

        event = self._event(events)
        return sql_type(
            StructType(
                [
                    _of("event", event),
                    _of("end", event["at"].dataType),
                    _of("recorded", event["system"].dataType),
                    _of("until", event["system"].dataType),
                    _of("events", ArrayType(event)),
                ]
            )
        )

    def _event(self, events: StructType) -> StructType:
        from pyspark.sql.types import BooleanType, StructField, StructType

        values = [StructField(name, events[name].dataType) for name in self.values]
        return StructType(
            [
                StructField("at", events["_sequence"].dataType),
                StructField("system", events[SYSTEM].dataType),
                *(StructField(name[1:], events[name].dataType) for name in COORDINATES),
                StructField("deletes", BooleanType()),
                *([StructField("values", StructType(values))] if values else []),
            ]
        )


def _of(name: str, kind: DataType) -> StructField:
    from pyspark.sql.types import StructField

    return StructField(name, kind)
