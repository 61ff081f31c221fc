"""The masks of the columns by which records go together: by another mask, or without it, each would be another row.

So would be the values that an aggregate counts or collects, and those by which a history tells whether a row has
changed.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence

from connector.config import DeltaAggregateSink, DeltaHistorySink, KeyedSink, PipelineConfig
from connector.config.sinks import SinkOptions
from connector.config.steps import Step
from connector.config.transform_sql import call_in, columns_in
from connector.derive.tracked_columns import tracked
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


def masks_of_sink(steps: Sequence[Step], sink: SinkOptions, columns: Sequence[str]) -> Mapping[str, str | None]:
    """What a table remembers of masks. ``columns``: those of the records."""
    together = [*getattr(sink, "key", ()), *getattr(sink, "group_by", ())]
    added = aggregated(sink)
    found = masks_of(steps, [*together, *(name for name in columns if name.lower() in added)])
    # A mask that a tracked column gets or loses shows in the file. Another salt doesn't.
    return {**_salts(steps, _tracked(sink, columns)), **found}


def aggregated(sink: SinkOptions) -> set[str]:
    """The words in small letters, columns among them, whose values an aggregate adds to those of earlier records.

    ``count(x)`` asks for nulls only, and first and last keep one record's value as it is.
    """
    found = set[str]()
    if isinstance(sink, DeltaAggregateSink):
        own = {name.lower() for name in sink.states}
        for text in sink.aggregates.values():
            function, arguments = call_in(text)
            if function not in own and function in ("first", "last", "min_by", "max_by"):
                arguments = arguments[1:]
            elif function not in own and function == "count" and re.fullmatch(r"\w*|`[^`]+`|\*", "".join(arguments)):
                continue
            found |= {word.lower() for argument in arguments for word in columns_in(argument)}
    return found


def _tracked(sink: SinkOptions, columns: Iterable[str]) -> list[str]:
    return tracked(sink, columns) if isinstance(sink, DeltaHistorySink) else []


def _salts(steps: Sequence[Step], columns: Iterable[str]) -> dict[str, str]:
    return {name: mark for name, mark in masks_of(steps, columns).items() if mark is not None}


def refuse_other_masks(config: PipelineConfig) -> None:
    """Raises ConfigurationError if two flows mask the columns of a key otherwise: their records of one key wouldn't
    meet. Of values that are counted, or tracked, only other salts are refused: a flow may lack such a column."""
    first, *others = config.by_flow
    for sink in config.sinks:
        columns = sink.key if isinstance(sink, KeyedSink) else ()
        columns = sink.group_by if isinstance(sink, DeltaAggregateSink) else columns
        masks = masks_of(first.steps, columns)
        for flow in others:
            other = next((name for name, mark in masks_of(flow.steps, columns).items() if mark != masks[name]), None)
            other = other or _of_another_salt(first.steps, flow.steps, sink)
            if other is not None:
                raise ConfigurationError(
                    f"{flow.option('steps')}: mask {other.removeprefix(MASK)} otherwise than the top of the file does, "
                    f"by another salt or not at all. Rows of {sink.place!r}, or values in them, go together by it.",
                    hint="Write the same mask, with the same salt, into the steps of every flow.",
                )


def _of_another_salt(steps: Sequence[Step], others: Sequence[Step], sink: SinkOptions) -> str | None:
    """A column of values that two flows mask by different salts."""
    masked = {name for step in steps for name in [*(step.mask or ()), *(step.rename or {}).values()]}
    values = [*aggregated(sink), *_tracked(sink, masked)]
    one, other = _salts(steps, values), _salts(others, values)
    return next((name for name in sorted(one.keys() & other.keys()) if one[name] != other[name]), None)
