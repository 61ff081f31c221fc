"""What every kind of table says of itself: its columns, and how an epoch's records become its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sinks.contract import Committed, Epoch
from sinks.delta.limits import Records
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.shape import Shape
from sinks.delta.tombstones import Tombstones
from sinks.delta.two_phase import Rehearsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class Plain(Protocol):
    """A sink for the weaker deliveries: it keeps no offsets."""

    def write(self, epoch: Epoch, rows: DataFrame) -> Committed:
        """Write the rows. Nothing tells whether a repeated epoch is there already."""
        ...


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """What a sink holds of the records: its columns, and how an epoch's records become its rows."""

    columns: StructType
    """Of the sink."""
    reduce: Callable[[DataFrame, Epoch], DataFrame]
    """From the decoded records of an epoch to the rows that its sink takes."""
    problem: str | None = None
    """SQL of ``_problem``: why the sink doesn't take a decoded record; ``reduce`` fails at such a one. None: it takes
    all."""
    deletes: str = "false"
    """SQL: whether a decoded record deletes rows, or says nothing of the table: it may have its key alone."""
    latest_by: Sequence[str] = ()
    """Columns. Of the records of a partition that share their values, the derivation needs the last one only. Empty: it
    needs all."""
    prepare: Callable[[DataFrame, Epoch], DataFrame] = lambda records, _: records
    """Before the epoch's clock is read: the windows that records are in, and which come too late."""
    late: Callable[[DataFrame, Epoch], DataFrame | None] = lambda *_: None
    """Of the prepared records of an epoch those that came too late, for the dead letters; None: there are none."""


@dataclass(frozen=True, kw_only=True)
class TableDerivation(Derivation):
    """The same for a Delta table, with the sinks that write it."""

    sink: Rehearsed
    """Rows, offsets and epoch number in one commit."""
    plain: Plain
    """Rows alone, for the deliveries whose offsets are in a consumer group."""
    of_records: Records
    """What the table's rules on single records depend on."""
    log: MergeOnRead | None = None
    """What is, or was, merged on read; None: a table of this kind never is."""
    tombstones: Tombstones | None = None
    """The deletes that are kept beside the table; None: none are."""
    required: Sequence[str] = ()
    """Columns without which the table's rows mean nothing to the sink: a table that lacks them can't get them."""
    check: Callable[[], Sequence[str]] = lambda: ()
    """What the table's own check can't know. Of a table that is there: the columns that it gets before the first epoch;
    raises SchemaMismatch."""
    prepare_table: Callable[[Sequence[str]], None] = lambda _: None
    """Before the first epoch, with what ``check`` returned."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What the table gets when it is made."""
    parts: Sequence[str] | None = None
    """As in ``UpsertRule``; None: it is no upsert."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Aggregate -> what its states depend on without showing it: see ``Monoid.depends_on``."""
    shape: Shape = field(default_factory=Shape)
    """What the table remembers of the options that shape its rows."""
