"""What changes in a run whose records get more columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from connector.config import PipelineConfig
from connector.derive import as_is, derive
from connector.engine.output import Output
from connector.engine.outputs import Other, Table
from sinks.contract import TwoPhaseSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Grow: TypeAlias = Callable[[Mapping[str, Output]], Mapping[str, Output]]
"""Makes outputs again, for records that have got more columns. Raises ConfigurationError, SchemaMismatch."""


def with_new_columns(
    config: PipelineConfig, records: DataFrame, names: Sequence[str], found: Mapping[str, Output]
) -> dict[str, Output]:
    """The same sinks for records that have got more columns since. ``names``: of the sinks, in the file's order.

    Raises ConfigurationError, SchemaMismatch.
    """
    changed: dict[str, Output] = {}
    for name, output in found.items():
        index = names.index(name)
        rows = output.decode(records)
        if isinstance(output, Table):
            derivation = derive(config.alone(index), output.table, output.commits, rows)
            changed[name] = replace(output, derivation=derivation)
            changed[name].ready()
        elif isinstance(output, Other):
            changed[name] = replace(output, derivation=as_is(config.alone(index), rows))
    return changed


def renewing(grow: Grow, sinks: Mapping[str, TwoPhaseSink[DataFrame]]) -> Grow:
    """``grow``, as ``with_new_columns``, after which the sinks of two-phase commit merge rows as its outputs reduce
    them."""

    def grown(found: Mapping[str, Output]) -> Mapping[str, Output]:
        outputs = grow(found)
        for name, output in outputs.items():
            if isinstance(output, Table):
                output.renew(sinks[name])
        return outputs

    return grown
