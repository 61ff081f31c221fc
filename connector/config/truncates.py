"""Which sinks get Debezium's truncates, whatever a ``filter`` says: all columns of a truncate are null. And in which
files ``require`` judges them."""

from __future__ import annotations

from connector.config.pipeline import PipelineConfig
from connector.config.route import OTHER, sinks_of
from connector.config.sinks import KeyedSink
from sinks.spark.sql import literal


def kept_truncates(config: PipelineConfig, index: int = 0, *, named: str = "") -> str:
    """SQL: whether a filter keeps truncates for ``sinks[index]``; with ``named``, for the table of a route.

    ``named``: SQL of the name of a record's table, null where that is the table of ``route.other``.
    """
    if config.route is None or not named:
        return _sql(_takes(config.sinks[index]))
    takes = {name: _takes(sink) for name, sink in config.route.sinks.items()}
    usual = takes.pop("")
    of_other = takes.pop(OTHER, usual)
    others = [literal(name) for name, taken in takes.items() if taken != usual]
    whens = [f"WHEN {named} IS NULL THEN {_sql(of_other)}"] if of_other != usual else []
    whens += [f"WHEN {named} IN ({', '.join(others)}) THEN {_sql(not usual)}"] if others else []
    return f"CASE {' '.join(whens)} ELSE {_sql(usual)} END" if whens else _sql(usual)


def spares_deletes(config: PipelineConfig) -> bool:
    """Whether a ``require`` that doesn't ask for the kind of an event passes Debezium's deletes and truncates over:
    they delete rows of some table of the file. Otherwise they are rows as all others.

    A record is good or bad for the file, so a copy with one of its sinks is judged as the whole."""
    return any(isinstance(sink, KeyedSink) for sink in sinks_of(config.whole))


def _takes(sink: object) -> bool:
    """Whether a truncate says something of a sink's rows: it deletes them, or can't, and then it is a bad record. In
    any other table it would be a row of nulls."""
    return isinstance(sink, KeyedSink) and sink.apply_as_truncates != "false"


def _sql(value: bool) -> str:
    return str(value).lower()
