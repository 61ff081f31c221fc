"""Steps that don't go together with the other options, or that would change what identifies and orders the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from connector.config.route import each_once
from connector.config.sinks import KeyedSink, SinkOptions
from connector.config.steps import changes
from connector.config.transform_sql import QUOTED, columns_in
from connector.config.unavailable import keeps_by

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_GONE = {"drop": "removes", "rename": "renames", "flatten": "replaces"}
_KEEPS = ("", ",", "(", "struct", "named_struct", "array", "coalesce", "nvl", "ifnull", "greatest", "least")
"""What stands before the bracket around values that have the order that they have without it."""


def unfit_steps(config: PipelineConfig) -> Iterator[str]:
    """What of the ``steps`` doesn't fit."""
    if not config.steps:
        return
    if (keeps := keeps_by(config)) is not None:
        yield f"steps don't work with {keeps}: a row keeps values by the names of the records. Write a transform"
    if config.of_rows and any(step.header is not None for step in config.steps):
        yield "steps: header doesn't work with value: {format: rows}, whose rows your own query makes"
    yield from each_once(config, partial(_of_the_sink, config))


def _of_the_sink(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    if isinstance(sink, KeyedSink):
        yield from _of_the_key(config, sink)
        for option in ("sequence_by", "system_sequence_by"):
            yield from _of_the_sequence(config, sink, option)


def _of_the_key(config: PipelineConfig, sink: KeyedSink) -> Iterator[str]:
    changed = changes(config.steps)
    for column in sink.key:
        past = changed.get(column.lower(), ())
        at = [f"steps[{change.step}].{change.kind}: " for change in past]
        if past and past[-1].takes_away:
            yield f"{at[-1]}{_GONE[past[-1].kind]} {column}, a column of {sink.option('key')}"
        elif past and past[0].kind == "add":
            yield (
                f"{at[0]}{column} is in {sink.option('key')}, and would be the same in every record, so "
                "that they overwrite each other. Give the key another column"
            )


def _of_the_sequence(config: PipelineConfig, sink: KeyedSink, option: str) -> Iterator[str]:
    sequence, changed = getattr(sink, option, None) or "", changes(config.steps)
    why = {
        "mask": "a hash has another order than the values",
        "add": "it is the same in every record, and orders nothing",
        **{kind: f"this step {does} it" for kind, does in _GONE.items()},
    }
    for column in sorted(columns_in(sequence)):
        past = changed.get(column.lower(), ())
        unordered = [change for change in past if change.kind in why]
        last = (unordered or past)[-1:]
        for index, kind, name in last:
            at = f"steps[{index}].{kind}: {sink.option(option)} orders records by {column}"
            if unordered:
                yield f"{at}, and {why[kind]}. Order them by another column"
            elif kind == "cast" and config.steps[index].option[name] == "STRING" and _as_it_is(column, sequence):
                yield f"{at}, and as text 10 comes before 9. Leave out this cast, or order them by another column"


def _as_it_is(column: str, expression: str) -> bool:
    """Whether the values of a column give an expression's order, and not what a function makes of them."""
    within, before = [""], ""
    plain = QUOTED.sub(lambda found: found[0] if found[0].startswith("`") else " ", expression)
    tokens = re.findall(r"`[^`]+`|\w+|::|\S", plain)
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        if token == "(":
            within.append(before.lower())
        elif token == ")":
            within = within[:-1] or [""]
        elif token.strip("`").lower() == column.lower() and within[-1] in _KEEPS and after not in ("::", "("):
            return True
        before = token
    return False
