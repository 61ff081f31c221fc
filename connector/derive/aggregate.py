"""An aggregate per group: every record becomes states, and the states of an epoch become one row per group."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connector.config import DeltaAggregateSink, PipelineConfig
from connector.config.sinks import WINDOW_COLUMNS
from connector.config.user_class import own_class
from connector.decode.event_time import LATE, timed
from connector.derive.derivation import TableDerivation
from connector.derive.reduction import Reduction
from connector.spark.compat import needs
from connector.state import Monoid, aggregate, bound
from connector.state.numbers import Average, Sum
from connector.state.sketches import Quantile
from connector.state.values import Count, First, Max, Min
from connector.state.windows import END, START, closed_before, in_sessions, windowed
from sinks.contract import Epoch
from sinks.delta.aggregate import DeltaAggregate, Groups, PlainAggregate
from sinks.delta.change_log import ChangeLog
from sinks.delta.commit import PipelineCommits
from sinks.delta.limits import Records
from sinks.delta.meaning import Meaning
from sinks.delta.merge_on_read import MergeOnRead
from sinks.delta.session_windows import SESSION, merged
from sinks.delta.shape import canonical
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError, SchemaMismatch
from sinks.event_time import Clock
from sinks.offsets import OffsetRange, TopicPartition
from sinks.spark.by_partition import by_partition
from sinks.spark.cached import uncached
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal, struct_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_OFFSETS = "map<string, struct<first: bigint, last: bigint>>"
_FEW = 8
"""Up to this number of partitions, a group's row has two aggregates for each."""


def aggregates(
    config: PipelineConfig, sink: DeltaAggregateSink, table: DeltaTable, commits: PipelineCommits, records: DataFrame
) -> TableDerivation:
    """``records``: none, with their columns. Raises ConfigurationError."""
    states = _states(sink, records, several=config.several_rows)
    window = sink.window
    sessions = window is not None and window.gap is not None
    key = [*sink.group_by, *((START, END)[: 1 if sessions else 2] if window else ())]
    for name in records.columns if window else ():
        if name.lower() in WINDOW_COLUMNS:
            raise ConfigurationError(
                f"{sink.option('window')}: {name} is a column of the windows' own.", hint="Rename yours."
            )
    partials = _Partials(table, sink, states)
    groups = Groups(
        key, states, window is not None, _may_fail(sink, states), partials.grown_together if sessions else None
    )

    def prepare(records: DataFrame, epoch: Epoch) -> DataFrame:
        before = epoch.expected.clock if epoch.expected else Clock()
        return windowed(records, window, before.by(window.time), epoch.ranges) if window else records

    def reduce(records: DataFrame, epoch: Epoch) -> DataFrame:
        if config.delivery == "idempotent":
            records = _without_applied(records, table, config.source.topics)
        return partials(records, epoch)

    def late(records: DataFrame, epoch: Epoch) -> DataFrame | None:
        if window is None or window.late != "dead_letter" or not epoch.late_now:
            return None
        return records.where(identifier(LATE)).drop(*(WINDOW_COLUMNS if sessions else ()))

    adding = DeltaAggregate(table, commits, groups)
    log = reading = None
    if window is None:
        log = ChangeLog(table, pipeline=config.name, topics=config.source.topics)
        texts = {name: canonical(text) for name, text in sink.aggregates.items()}
        parts = {"group_by": canonical(key), "aggregates": texts, "states": dict(sink.states)}
        options = json.dumps(parts, sort_keys=True)
        now = Meaning(lambda: partials.of(records).schema, lambda: options, totals_of(key, states), adding, key)
        reading = MergeOnRead(table, commits, log, lambda: now, partial(_kept, table, now), pipeline=config.name)
    columns = partials.table_schema(windowed(timed(records, window.time), window, Clock()) if window else records)
    return TableDerivation(
        columns=columns,
        of_records=Records(sink.group_by),
        required=columns.names,
        reduce=reduce,
        sink=reading if reading is not None and sink.merge == "on_read" else adding,
        log=reading,
        plain=PlainAggregate(table, groups, guarded=config.delivery == "idempotent"),
        prepare=prepare,
        late=late,
        types={name: state.depends_on for name, state in states.items() if state.depends_on},
    )


def _kept(table: DeltaTable, now: Meaning, _: StructType, options: str) -> Meaning:
    """See ``sinks.delta.meaning.Kept``. States can't be summed by other aggregates than those that made them."""
    if options in ("", now.options()):
        return now
    raise SchemaMismatch(
        f"The change log of {table.label!r} was started with other aggregates ({options}) than the pipeline has now "
        f"({now.options()}). Its epochs can't be folded by these.",
        hint="Run `lakelock fold` with the pipeline file as it was before, and change it then.",
    )


def _may_fail(sink: DeltaAggregateSink, states: Mapping[str, Monoid]) -> bool:
    """Of the user's own states nobody knows."""
    every = (sql for state in states.values() for sql in (state.plus("l", "r"), state.present("s")))
    return bool(sink.states) or any("raise_error" in sql for sql in every)


def totals_of(key: Sequence[str], states: Mapping[str, Monoid]) -> Reduction:
    """From the rows of several epochs to one per group: their states summed, and which offsets they hold."""
    groups = {f"k{index}": identifier(name) for index, name in enumerate(key)}
    sums = {name: state.total(f"_state.{identifier(name)}") for name, state in states.items()}
    extent = "named_struct('first', least(_l.first, _r.first), 'last', greatest(_l.last, _r.last))"
    both = f"map_zip_with(_a, _b, (_k, _l, _r) -> {extent})"
    offsets = f"aggregate(collect_list(_offsets), CAST(map() AS {_OFFSETS}), (_a, _b) -> {both})"
    keys = {name: identifier(group) for group, name in zip(groups, key, strict=True)}
    return Reduction(
        groups,
        {"state": struct_sql(sums), "offsets": f"CAST({offsets} AS {_OFFSETS})"},
        struct_sql({**keys, "_state": "state", "_offsets": "offsets"}),
    )


class _Partials:
    """From records to one row per group: its states summed, and which offsets they hold."""

    def __init__(self, table: DeltaTable, sink: DeltaAggregateSink, states: Mapping[str, Monoid]) -> None:
        self._table, self._sink, self._states = table, sink, states

    def __call__(self, records: DataFrame, epoch: Epoch) -> DataFrame:
        window = self._sink.window
        if window is not None and window.late == "dead_letter":
            records = records.where(f"NOT {identifier(LATE)}")
        if window is None:
            return self.of(records, epoch.ranges)
        if window.gap is not None:
            key = [*self._sink.group_by, SESSION]
            return self._sums(self._numbered(records), key, extent=True).drop(SESSION)
        limit = closed_before(window, epoch.clock)
        key = [*self._sink.group_by, START, END]
        closing = None
        if epoch.clock.watermark is not None and epoch.expected is not None:
            closing = self._stored().where(f"NOT window_closed AND {END} <= {limit}")
        return self._by_group(records, key, closing, [f"coalesce({END} <= {limit}, false) AS window_closed"])

    def of(self, records: DataFrame, ranges: Sequence[OffsetRange] = ()) -> DataFrame:
        """Without a window. ``ranges``: of the epoch whose records they are; none, if any partition may have some."""
        places = sorted({range_.at for range_ in ranges})
        if 0 < len(places) <= _FEW and all(map(_at_once, self._states.values())):
            return self._sums_at_once(records, places)
        return self._by_group(records, list(self._sink.group_by), None, ())

    def table_schema(self, records: DataFrame) -> StructType:
        """The table's columns; ``records``: none."""
        from pyspark.sql.types import BooleanType, LongType, MapType, StringType, StructField, StructType, TimestampType

        states = self._sums(records, list(self._sink.group_by))
        results = states.selectExpr(
            *(
                f"{state.present(f'_state.{identifier(name)}')} AS {identifier(name)}"
                for name, state in self._states.items()
            )
        )
        windows = [StructField(START, TimestampType()), StructField(END, TimestampType()),
                   StructField("window_closed", BooleanType())]  # fmt: skip
        return StructType(
            [
                *(records.schema[name] for name in self._sink.group_by),
                *(windows if self._sink.window else []),
                *results.schema.fields,
                states.schema["_state"],
                StructField("_applied", MapType(StringType(), LongType())),
            ]
        )

    def _by_group(
        self, records: DataFrame, key: Sequence[str], closing: DataFrame | None, more: Sequence[str]
    ) -> DataFrame:
        return self._sums(records, key, closing).selectExpr(
            *(identifier(name) for name in key), "_state", "_offsets", *more
        )

    def _sums(
        self, records: DataFrame, key: Sequence[str], closing: DataFrame | None = None, *, extent: bool = False
    ) -> DataFrame:
        """key, ``_state``, ``_offsets``. First per partition, which says the offsets, then per group. The groups of
        ``closing`` are there too, whether records add something to them or not. ``extent``: with the first
        ``window_start`` and the last ``window_end``."""
        from pyspark.sql import functions as F

        columns = [F.col(identifier(name)).alias(f"k{index}") for index, name in enumerate(key)]
        extents = [F.min(START).alias(START), F.max(END).alias(END)] if extent else []
        parts = records.groupBy(*columns, "_topic", "_partition").agg(
            F.min("_offset").alias("first"),
            F.max("_offset").alias("last"),
            *extents,
            *(F.expr(state.gather()).alias(f"state{index}") for index, state in enumerate(self._states.values())),
        )
        if closing is not None:
            parts = parts.unionByName(closing.select(*columns), allowMissingColumns=True)
        place = "concat(_topic, '-', _partition), named_struct('first', first, 'last', last)"
        offsets = f"map_from_entries(collect_list(CASE WHEN _topic IS NOT NULL THEN struct({place}) END))"
        # Nullable: in MERGE's outer join it is null for rows of the table alone, and the guard there asks for that.
        offsets = f"CASE WHEN count(1) > 0 THEN {offsets} END"
        sums = parts.groupBy(*(f"k{index}" for index in range(len(key)))).agg(
            self._total([f"state{index}" for index in range(len(self._states))]).alias("_state"),
            F.expr(offsets).cast(_OFFSETS).alias("_offsets"),
            *extents,
        )
        keys = (F.col(f"k{index}").alias(name) for index, name in enumerate(key))
        return sums.select(*keys, *((START, END) if extent else ()), "_state", "_offsets")

    def _sums_at_once(self, records: DataFrame, places: Sequence[TopicPartition]) -> DataFrame:
        """The same of records of these partitions: one shuffle in place of two, and only aggregates that Spark
        compiles. A record of another partition fails the query. Its offset would be nowhere, so that a replay would add
        it again."""
        from pyspark.sql import functions as F

        of_place = [f"(_topic = {literal(at.topic)} AND _partition = {at.partition})" for at in places]
        entries = (
            struct_sql({"key": literal(f"{at.topic}-{at.partition}"), "value": struct_sql(
                {"first": f"min(_offset) FILTER (WHERE {its})", "last": f"max(_offset) FILTER (WHERE {its})"}
            )})
            for at, its in zip(places, of_place, strict=True)
        )  # fmt: skip
        offsets = f"map_from_entries(filter(array({', '.join(entries)}), _place -> _place.value.first IS NOT NULL))"
        foreign = f"count_if(NOT coalesce({' OR '.join(of_place)}, false)) > 0"
        # Nullable as in ``_sums``.
        offsets = f"CASE WHEN {foreign} THEN {raise_sql('not_of_epoch')} WHEN count(1) > 0 THEN {offsets} END"
        key = self._sink.group_by
        sums = records.groupBy(*(F.col(identifier(name)).alias(f"k{index}") for index, name in enumerate(key))).agg(
            F.expr(struct_sql({name: state.gather() for name, state in self._states.items()})).alias("_state"),
            F.expr(offsets).cast(_OFFSETS).alias("_offsets"),
        )
        return sums.select(*(F.col(f"k{index}").alias(name) for index, name in enumerate(key)), "_state", "_offsets")

    def _total(self, states: Sequence[str]) -> Column:
        from pyspark.sql import functions as F

        sums = (
            f"{literal(name)}, {monoid.total(state)}"
            for (name, monoid), state in zip(self._states.items(), states, strict=True)
        )
        return F.expr(f"named_struct({', '.join(sums)})")

    def grown_together(self, new: DataFrame, epoch: Epoch) -> DataFrame:
        """New sessions and the stored ones that they touch, as rows that replace these."""
        window = self._sink.window
        return merged(
            new,
            self._stored(),
            groups=self._sink.group_by,
            states=self._states,
            numbered=self._numbered,
            closed_before=closed_before(window, epoch.clock) if window else "NULL",
        )

    def _numbered(self, rows: DataFrame) -> DataFrame:
        return in_sessions(rows, self._sink.group_by)

    def _stored(self) -> DataFrame:
        return uncached(self._table.spark, self._table.sql)


def _at_once(state: Monoid) -> bool:
    """Whether all records of a group may be gathered in one step: the state is the very same, as is what fails.

    Sketches estimate otherwise, lists may not fit into memory, and of other numbers a part may overflow, but not all.
    """
    return state.number.is_integer if isinstance(state, Sum | Average) else isinstance(state, Count | Min | Max | First)


def _without_applied(records: DataFrame, table: DeltaTable, topics: Container[str]) -> DataFrame:
    """Records that the groups hold already are dropped before they are added up: a replay may be cut elsewhere.

    The offsets of a partition are applied in their order, so the highest of all groups tells.
    """
    applied = table.coordinates(topics)
    if not applied:
        return records
    return records.where(f"_offset >= coalesce({by_partition(applied, topic='_topic', partition='_partition')}, 0)")


def _states(sink: DeltaAggregateSink, records: DataFrame, *, several: bool) -> dict[str, Monoid]:
    own = {name: _own(sink.option("states", name), place) for name, place in sink.states.items()}
    found: dict[str, Monoid] = {}
    for name, text in sink.aggregates.items():
        option = sink.option("aggregates", name)
        try:
            monoid = aggregate(text, own)
            if isinstance(monoid, First):
                monoid.several = several
            if isinstance(monoid, Quantile):
                needs(records.sparkSession, "4.1", f"{option}: quantile", "Use approx_percentile(x, p).")
            (found[name],) = bound(records.sparkSession, records.schema, [monoid])
        except ValueError as error:
            raise ConfigurationError(f"{option}: {error}") from None
        if not found[name].commutative:
            raise ConfigurationError(
                f"{option}: {text} isn't commutative: records of several partitions have no order.",
                hint="Make the order a part of the state, as first(x, order) and last(x, order) do.",
            )
    return found


def _own(option: str, place: str) -> type[Monoid]:
    found = own_class(option, place)
    if not issubclass(found, Monoid):
        raise ConfigurationError(f"{option}: {place} is no subclass of connector.state.Monoid.")
    return found
