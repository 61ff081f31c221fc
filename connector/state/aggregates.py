"""Finds aggregates by name: ``sum(dep_delay)``, as in Spark SQL."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType

from connector.state import numbers, sketches, values
from connector.state.monoid import Monoid

NAMES: Mapping[str, type[Monoid]] = MappingProxyType(
    {
        "count": values.Count,
        "sum": numbers.Sum,
        "min": values.Min,
        "max": values.Max,
        "avg": numbers.Average,
        "mean": numbers.Average,
        "variance": numbers.Variance,
        "var_samp": numbers.Variance,
        "var_pop": numbers.PopulationVariance,
        "stddev": numbers.Deviation,
        "stddev_samp": numbers.Deviation,
        "stddev_pop": numbers.PopulationDeviation,
        "first": values.First,
        "min_by": values.First,
        "last": values.Last,
        "max_by": values.Last,
        "collect_set": values.CollectSet,
        "top_n": values.TopN,
        "approx_count_distinct": sketches.ApproxCountDistinct,
        "approx_percentile": sketches.ApproxPercentile,
        "percentile_approx": sketches.ApproxPercentile,
        "quantile": sketches.Quantile,
    }
)
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "any": "max(x)",
        "any_value": "first(x)",
        "bool_and": "min(x)",
        "bool_or": "max(x)",
        "collect_list": "top_n(x, n), or collect_set(x, n): a list of everything has no bound",
        "count_if": "count(CASE WHEN x THEN 1 END)",
        "every": "min(x)",
        "first_value": "first(x)",
        "last_value": "last(x)",
        "median": "approx_percentile(x, 0.5)",
        "percentile": "approx_percentile(x, p)",
    }
)


def aggregate(text: str, own: Mapping[str, type[Monoid]] = MappingProxyType({})) -> Monoid:
    """The aggregate that ``text`` names, as in ``name(argument, ...)``.

    Names may be in any case. Arguments are SQL over the record's columns. ``own``: a user's monoids by name; they take
    precedence over the built-in ones. Raises ValueError, which says what to write instead.
    """
    name, arguments = _call(text)
    known = {**NAMES, **{key.lower(): monoid for key, monoid in own.items()}}
    if name not in known:
        raise ValueError(f"{text!r}: there is no aggregate {name!r}. {_instead(name, known)}")
    monoid = known[name]
    for argument in arguments:
        distinct = re.match(r"(?i)distinct\b", argument)
        if distinct:
            x = argument[distinct.end() :].strip()
            instead = f"approx_count_distinct({x}), or collect_set({x}, n)"
            raise ValueError(f"{text!r}: DISTINCT would have to keep every value. Use {instead}")
        if argument == "*" and monoid is not values.Count:
            raise ValueError(f"{text!r}: * goes with count only. {name} needs an expression over the record's columns")
    try:
        inspect.signature(monoid).bind(*arguments)
    except TypeError:
        raise ValueError(f"{text!r}: it is written {_usage(name, monoid)}") from None
    try:
        made = monoid(*arguments)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    made.name = name
    return made


def _call(text: str) -> tuple[str, list[str]]:
    """``name(a, b)`` as its name in lower case and its arguments."""
    head = re.match(r"\s*([A-Za-z_]\w*)\s*\(", text)
    if head is None:
        raise ValueError(f"{text!r} isn't an aggregate: write name(argument), such as count(*) or sum(amount)")
    arguments, end = _arguments(text, head.end())
    rest = text[end:].strip()
    if re.match(r"(?i)filter\b", rest):
        raise ValueError(f"{text!r}: instead of FILTER write {head[1]}(CASE WHEN ... THEN ... END)")
    if rest:
        raise ValueError(
            f"{text!r}: one function per column, and here {rest!r} follows it. Give each aggregate a column of its "
            "own, and compute with them when you read the table"
        )
    return head[1].lower(), arguments


_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--|/\*|[()\[\],'\"`]", re.DOTALL)


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments from ``start``, right after the opening parenthesis, and the index after the closing one."""
    depth, arguments, begin = 0, [], start
    for token in _TOKEN.finditer(text, start):
        sign = token[0]
        if sign in ("--", "/*"):
            raise ValueError(f"{text!r}: no comments here")
        if sign in ("'", '"', "`"):
            raise ValueError(f"{text!r}: the {sign} has no counterpart")
        if sign in "([":
            depth += 1
        elif sign in ")]" and depth:
            depth -= 1
        elif sign in (",", ")") and not depth:
            arguments.append(text[begin : token.start()].strip())
            begin = token.end()
            if sign == ")":
                if arguments == [""]:
                    return [], begin
                if "" in arguments:
                    raise ValueError(f"{text!r}: an argument is empty")
                return arguments, begin
    raise ValueError(f"{text!r}: a parenthesis isn't closed")


def _instead(name: str, known: Mapping[str, type[Monoid]]) -> str:
    if name in INSTEAD:
        return f"Use {INSTEAD[name]}"
    near = "".join(f"Do you mean {match}? " for match in difflib.get_close_matches(name, known, n=1))
    return f"{near}Known are {', '.join(known)}"


def _usage(name: str, monoid: type[Monoid]) -> str:
    parameters = inspect.signature(monoid).parameters.values()
    texts = (str(p.name if p.default is p.empty else f"{p.name} = {p.default}") for p in parameters)
    return f"{name}({', '.join(texts)})"
