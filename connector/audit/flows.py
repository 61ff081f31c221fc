"""Records of several flows, read each in its own way, as records with the columns of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from connector.audit.records import LACKS, Records
from connector.audit.values import Default
from connector.config import PipelineConfig
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


def of_flow(records: DataFrame, config: PipelineConfig, number: int) -> DataFrame:
    """The records of a flow: of 0 those whose topics no flow names; of the others those of its topics."""
    named = [flow.topics for flow in config.flows]
    if not named:
        return records
    topics = [topic for each in named for topic in each] if number == 0 else named[number - 1]
    inside = f"topic IN ({', '.join(map(literal, topics))})"
    return records.where(f"NOT {inside}" if number == 0 else inside)


def united(every: Sequence[Records]) -> Records:
    """The records of all flows. A column that a flow lacks is null. Raises ConfigurationError for a column of two
    types."""
    first, *others = every
    if not others:
        return first
    columns: dict[str, StructField] = {}
    for records in every:
        for part in records.columns:
            known = columns.setdefault(part.name.lower(), part)
            if (known.name, sql_type(known.dataType)) != (part.name, sql_type(part.dataType)):
                raise ConfigurationError(
                    f"flows: the column {part.name} has the type {sql_type(part.dataType)} in one flow, and "
                    f"{known.name} has {sql_type(known.dataType)} in another.",
                    hint="Write steps for one of them: cast, rename or drop.",
                )
    defaults: dict[str, Default] = {}
    for number, records in enumerate(every):
        for path, default in records.defaults.items():
            mine, there = _named(default, number), defaults.get(path)
            defaults[path] = mine if there is None else there._replace(others=(*there.others, mine))
    frames = [_with_all(records, [*columns.values()], number) for number, records in enumerate(every)]
    if not defaults:
        frames = [frame.drop(LACKS) for frame in frames]
    frame = reduce(lambda one, other: one.unionByName(other), frames)
    shown = reduce(lambda one, other: one.union(other), (each.shown for each in every if each.shown is not None))
    left_out = [each.left_out for each in every if each.left_out is not None]
    return replace(
        first,
        frame=frame,
        columns=type(first.columns)([*columns.values()]),
        defaults=defaults,
        shown=shown,
        left_out=reduce(lambda one, other: one.union(other), left_out) if left_out else None,
    )


def _named(default: Default, number: int) -> Default:
    """The default of a field under the flow's own name for it: another flow may have another one."""
    others = tuple(_named(each, number) for each in default.others)
    return default._replace(path=f"{number} {default.path}", others=others)


def _with_all(records: Records, columns: Sequence[StructField], number: int) -> DataFrame:
    from pyspark.sql import functions as F

    frame, own = records.frame, set(records.columns.names)
    made = [
        F.col(identifier(part.name))
        if part.name in own
        else F.expr(f"CAST(NULL AS {sql_type(part.dataType)})").alias(part.name)
        for part in columns
    ]
    others = [F.col(name) for name in frame.columns if name not in own and name != LACKS]
    return frame.select(*made, *others, _lacks(frame, number).alias(LACKS))


def _lacks(frame: DataFrame, number: int) -> Column:
    from pyspark.sql import functions as F

    if LACKS not in frame.columns:
        return F.expr("CAST(array() AS ARRAY<STRING>)")
    return F.transform(LACKS, lambda path: F.concat(F.lit(f"{number} "), path))
