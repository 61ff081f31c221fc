"""The masks of the columns by which records go together: by another mask, or without it, each would be another row."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence

from connector.config import DeltaAggregateSink, KeyedSink, PipelineConfig
from connector.config.steps import Step
from sinks.errors import ConfigurationError

MASK = "steps.mask."
"""The beginning of the names, in what a table remembers. What follows is the table's column."""


def masks_of(steps: Sequence[Step], columns: Iterable[str]) -> Mapping[str, str | None]:
    """For each of the ``columns`` a mark of the salt that it is masked by; None: it isn't, so that a mask that comes
    later is another one. The mark tells salts apart, and doesn't tell them."""
    names = {column.lower(): column.lower() for column in columns}
    """What a column is called before a step -> the column."""
    found: dict[str, str | None] = {f"{MASK}{column}": None for column in names}
    for step in reversed(steps):
        if step.mask is not None and step.salt is not None:
            mark = hmac.new(step.salt.get_secret_value().encode(), b"lakelock shape", "sha256").hexdigest()[:8]
            for masked in (names[name.lower()] for name in step.mask if name.lower() in names):
                later = found[f"{MASK}{masked}"]
                found[f"{MASK}{masked}"] = f"by salt {mark}" if later is None else f"by salt {mark}, then {later}"
        old = {new.lower(): name.lower() for name, new in (step.rename or {}).items()}
        names = {old.get(name, name): column for name, column in names.items()}
    return found


def refuse_other_masks(config: PipelineConfig) -> None:
    """Raises ConfigurationError if two flows mask the columns of a key otherwise: their records of one key wouldn't
    meet."""
    first, *others = config.by_flow
    for sink in config.sinks:
        columns = sink.key if isinstance(sink, KeyedSink) else ()
        columns = sink.group_by if isinstance(sink, DeltaAggregateSink) else columns
        masks = masks_of(first.steps, columns)
        for flow in others:
            other = next((name for name, mark in masks_of(flow.steps, columns).items() if mark != masks[name]), None)
            if other is not None:
                raise ConfigurationError(
                    f"{flow.option('steps')}: mask {other.removeprefix(MASK)} otherwise than the top of the file does, "
                    f"by another salt or not at all. Rows of {sink.place!r} go together by this column.",
                    hint="Write the same mask, with the same salt, into the steps of every flow.",
                )
