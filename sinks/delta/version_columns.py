"""The columns of a history, and the events that its ``_state`` keeps; see ``sinks.delta.history``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.delta.table import COORDINATES
from sinks.spark.schema_changes import by_name, differences
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

START, END, STATE = "__START_AT", "__END_AT", "_state"
UNSENT = "_unavailable"
"""Column of events, ARRAY<STRING>, if an event may lack values: the names of the columns that it leaves as they are."""


@dataclass(frozen=True)
class VersionColumns:
    """The columns of a history, by their role."""

    key: Sequence[str]
    """Columns that identify a row."""
    tracked: Sequence[str]
    """Columns whose change makes a new version."""
    untracked: Sequence[str]
    """Columns whose change updates the current version."""

    @property
    def values(self) -> Sequence[str]:
        """The columns that aren't of the key."""
        return (*self.tracked, *self.untracked)

    def table(self, events: StructType) -> StructType:
        """The table's schema; ``events``: the schema of its events."""
        from pyspark.sql.types import ArrayType, StringType, StructField, StructType

        own = [field for field in events if field.name in {*self.key, *self.tracked, *self.untracked}]
        at = events["_sequence" if "_sequence" in events.names else "_offset"].dataType
        event = StructType(
            [
                StructField("at", at),
                *(StructField(name[1:], events[name].dataType) for name in COORDINATES),
                *self._values(events),
                *([StructField("unsent", ArrayType(StringType()))] if UNSENT in events.names else []),
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

    def truncate(self, at: str, events: StructType) -> str:
        """SQL of what a truncate is to a key: an event without coordinates. ``at``: SQL of its sequence."""
        place = [f"'{name[1:]}', CAST(NULL AS {sql_type(events[name].dataType)})" for name in COORDINATES]
        return self._event(at, place, events, "false", "NULL")

    def event(
        self,
        at: str,
        events: StructType,
        values: str = "true",
        unsent: str = "NULL",
        stored: StructType | None = None,
    ) -> str:
        """SQL of an event as ``_state`` keeps it.

        ``at``: SQL of its sequence or offset; ``events``: schema of the events; ``values``: SQL of the condition under
        which the event has untracked values; else they are NULL. ``unsent``: SQL of the columns that it lacks.
        ``stored``: schema of the table, if it is an event of one of the table's rows.
        """
        return self._event(at, [f"'{name[1:]}', {name}" for name in COORDINATES], events, values, unsent, stored)

    def _event(
        self,
        at: str,
        place: Sequence[str],
        events: StructType,
        values: str,
        unsent: str,
        stored: StructType | None = None,
    ) -> str:
        fields = [f"'at', {at}", *place]
        for field in self._values(events):
            fields.append(
                f"'values', CASE WHEN {values} THEN {values_of(self.untracked, events, stored)} "
                f"ELSE CAST(NULL AS {sql_type(field.dataType)}) END"
                if values != "false"
                else f"'values', CAST(NULL AS {sql_type(field.dataType)})"
            )
        if UNSENT in events.names:
            fields.append(f"'unsent', CAST({unsent} AS ARRAY<STRING>)")
        return f"named_struct({', '.join(fields)})"

    def stored_state(self, events: StructType, stored: StructType) -> str:
        """SQL of ``_state`` with the fields of this run's events. ``stored``: the table's schema."""
        return f"({by_name(STATE, stored[STATE].dataType, self.table(events)[STATE].dataType)})"

    @property
    def unsent(self) -> str:
        """SQL of the columns of the table that an event lacks; NULL if it has all."""
        own = ", ".join(literal(name) for name in self.values)
        names = f"transform({UNSENT}, name -> lower(name))"
        lacking = f"filter(CAST(array({own}) AS ARRAY<STRING>), name -> array_contains({names}, lower(name)))"
        return f"CASE WHEN NOT _delete AND size({lacking}) > 0 THEN {lacking} END"


def struct_of(columns: Sequence[str]) -> str:
    """SQL of a struct of columns. Without columns, it is a struct that equals itself."""
    fields = ", ".join(f"{literal(name)}, {identifier(name)}" for name in columns)
    return f"named_struct({fields or literal('none') + ', 0'})"


def values_of(columns: Sequence[str], events: StructType, stored: StructType | None = None) -> str:
    """SQL of a struct of columns, as events have them. ``stored``: schema of the table, if they are the table's."""
    if stored is None:
        return struct_of(columns)
    there = {each.name.lower(): each.dataType for each in stored}
    pairs = (
        f"{literal(name)}, {by_name(identifier(name), there[name.lower()], events[name].dataType)}" for name in columns
    )
    return f"named_struct({', '.join(pairs)})"


def left_out(there: StructType, wanted: StructType) -> list[str]:
    """What a history's ``_state`` keeps of earlier events, and the pipeline doesn't have any more, as faults.

    ``there``: schema of the table; ``wanted``: that of the pipeline's rows.
    """
    from pyspark.sql.types import StructType

    if not {START, STATE} <= {*there.names} & {*wanted.names}:
        return []
    lost = differences(StructType([wanted[STATE]]), StructType([there[STATE]])).new
    of_event = f"{STATE}.events.element."
    paths = (name.removeprefix(of_event) for name in lost if name.startswith(of_event))
    return [
        f"the pipeline has no {name.removeprefix('values.')}, and {STATE} keeps it of earlier records" for name in paths
    ]
