"""Steps that don't go together with the other options, or that would change what identifies and orders the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from connector.config.orders import orders, sorted_values
from connector.config.route import each_once
from connector.config.sinks import KeyedSink, SinkOptions
from connector.config.steps import Change, Step, changes
from connector.config.transform_sql import QUOTED, columns_in, passes
from connector.config.unavailable import keeps_by

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_GONE = {"drop": "removes", "rename": "renames", "flatten": "replaces"}
_KEEPS = ("", ",", "(", "struct", "named_struct", "array", "coalesce", "nvl", "ifnull", "greatest", "least")
"""What stands before the bracket around values that have the order that they have without it."""
_NAME = r"(?:\w+|`[^`]+`)"
_OF_NULL = re.compile(rf"{_NAME}\s+IS\s+(?:NOT\s+)?NULL\b|\bIS(?:NOT)?NULL\s*\(\s*{_NAME}\s*\)", re.I)
_Changed: TypeAlias = Mapping[str, Sequence[Change]]
_ANOTHER_ORDER = "a hash has another order than the values"


def unfit_steps(config: PipelineConfig) -> Iterator[str]:
    """What of the ``steps`` doesn't fit."""
    if not config.steps:
        return
    if (keeps := keeps_by(config)) is not None:
        yield f"steps don't work with {keeps}: a row keeps values by the names of the records. Write a transform"
    if config.of_rows and any(step.header is not None for step in config.steps):
        yield "steps: header doesn't work with value: {format: rows}, whose rows your own query makes"
    for number, step in enumerate(config.steps):
        if step.filter is not None:
            yield from (
                f"steps[{number}].filter: {why}. Filter before the mask, or by another column"
                for why in _of_hashes(changes(config.steps[:number]), step.filter)
            )
    yield from each_once(config, partial(_of_the_sink, config))


def _of_the_sink(config: PipelineConfig, sink: SinkOptions) -> Iterator[str]:
    changed = _in_rows(config)
    for option, order in orders(sink):
        yield from _of_the_order(config.steps, changed, option, order)
    for option, values in sorted_values(sink):
        for step, column in _masked(changed, values):
            yield (
                f"steps[{step}].mask: {option} is the smallest or largest of {column}, and {_ANOTHER_ORDER}. Leave out "
                "this mask, or take first or last of it by another column"
            )
    if isinstance(sink, KeyedSink):
        yield from _of_the_key(config, sink)
        for name in ("apply_as_deletes", "apply_as_truncates"):
            yield from (
                f"{sink.option(name)}: {why}. Leave out this mask, or decide by another column"
                for why in _of_hashes(changed, getattr(sink, name) or "")
            )


def _in_rows(config: PipelineConfig) -> _Changed:
    """What the steps have done to the columns that the sinks see, as far as no transform has made them anew."""
    changed, transform = changes(config.steps), config.transform
    return {name: past for name, past in changed.items() if transform is None or passes(transform, name)}


def _of_hashes(changed: _Changed, condition: str) -> Iterator[str]:
    """Why a condition isn't about values: a mask has replaced them."""
    for step, column in _masked(changed, condition):
        yield f"steps[{step}].mask leaves a hash of {column}, which meets no condition on its values"


def _without_nulls(expression: str) -> str:
    """Without what asks for nulls, which every step but ``add`` leaves as they are."""
    return _OF_NULL.sub(" ", expression)


def _masked(changed: _Changed, expression: str) -> Iterator[tuple[int, str]]:
    """Each column with hashes whose values an expression takes, after the step that has made them."""
    for column in sorted(columns_in(_without_nulls(expression))):
        past = changed.get(column.lower(), ())
        masks = [change.step for change in past if change.kind == "mask"]
        if masks and not past[-1].takes_away:
            yield masks[0], column


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


def _of_the_order(steps: Sequence[Step], changed: _Changed, option: str, order: str) -> Iterator[str]:
    why = {
        "mask": _ANOTHER_ORDER,
        "add": "it is the same in every record, and orders nothing",
        **{kind: f"this step {does} it" for kind, does in _GONE.items()},
    }
    by_value = _without_nulls(order)
    for column in sorted(columns_in(order)):
        past, gives_values = changed.get(column.lower(), ()), column in columns_in(by_value)
        unordered = [change for change in past if change.kind in (why if gives_values else _GONE)]
        last = (unordered or past)[-1:]
        for index, kind, name in last:
            at = f"steps[{index}].{kind}: {option} orders records by {column}"
            if unordered:
                yield f"{at}, and {why[kind]}. Order them by another column"
            elif kind == "cast" and steps[index].option[name] == "STRING" and _as_it_is(column, by_value):
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
