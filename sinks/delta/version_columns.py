"""The columns of a history, and the events that its ``_state`` keeps; see ``sinks.delta.history``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.delta.table import COORDINATES
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

START, END, STATE = "__START_AT", "__END_AT", "_state"


@dataclass(frozen=True)
class VersionColumns:
    """The columns of a history, by their role."""

    key: Sequence[str]
    """Columns that identify a row."""
    tracked: Sequence[str]
    """Columns whose change makes a new version."""
    untracked: Sequence[str]
    """Columns whose change updates the current version."""

    def table(self, events: StructType) -> StructType:
        """The table's schema; ``events``: the schema of its events."""
        from pyspark.sql.types import ArrayType, StructField, StructType

        own = [field for field in events if field.name in {*self.key, *self.tracked, *self.untracked}]
        at = events["_sequence" if "_sequence" in events.names else "_offset"].dataType
        event = StructType(
            [
                StructField("at", at),
                *(StructField(name[1:], events[name].dataType) for name in COORDINATES),
                *self._values(events),
            ]
        )
        return StructType(
            [
                *own,
                StructField(START, at),
                StructField(END, at),
                *(events[name] for name in COORDINATES),
                StructField(
                    STATE, StructType([StructField("events", ArrayType(event)), StructField("ended_by", event)])
                ),
            ]
        )

    def _values(self, events: StructType) -> list[StructField]:
        from pyspark.sql.types import StructField, StructType

        untracked = [StructField(name, events[name].dataType) for name in self.untracked]
        return [StructField("values", StructType(untracked))] if untracked else []

    def event(self, at: str, events: StructType, values: str = "true") -> str:
        """SQL of an event as ``_state`` keeps it.

        ``at``: SQL of its sequence or offset; ``events``: schema of the events; ``values``: SQL of the condition under
        which the event has untracked values; else they are NULL.
        """
        fields = [f"'at', {at}", *(f"'{name[1:]}', {name}" for name in COORDINATES)]
        for field in self._values(events):
            fields.append(
                f"'values', CASE WHEN {values} THEN {struct_of(self.untracked)} "
                f"ELSE CAST(NULL AS {sql_type(field.dataType)}) END"
                if values != "false"
                else f"'values', CAST(NULL AS {sql_type(field.dataType)})"
            )
        return f"named_struct({', '.join(fields)})"


def struct_of(columns: Sequence[str]) -> str:
    """SQL of a struct of columns. Without columns, it is a struct that equals itself."""
    fields = ", ".join(f"{literal(name)}, {identifier(name)}" for name in columns)
    return f"named_struct({fields or literal('none') + ', 0'})"
