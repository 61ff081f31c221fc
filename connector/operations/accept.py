"""Goes on with a table that somebody else has replaced, as if the pipeline had written it."""

from __future__ import annotations

from dataclasses import replace

from connector.engine.assembly import Assembly
from connector.protocol.steps import Observer
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError


def accepted(assembly: Assembly, observe: Observer) -> Position:
    """See ``Pipeline.accept``: commits an epoch of no records. Raises ConfigurationError if nobody has replaced it."""
    assembly.make_ready()
    sink, log = assembly.table.derivation.sink, assembly.table.derivation.log
    position = sink.position()
    if position is None or not position.replaced:
        raise ConfigurationError("Nobody has replaced the table: there is nothing to accept.")
    if log is not None:
        log.close(assembly.run)
        position = sink.position() or position
    if position.replaced:
        nothing = Epoch.of_no_records(position, pipeline=assembly.config.name, owner=assembly.run)
        work = assembly.work(observe, topics=assembly.source)
        position = work.destination.run_epoch(replace(nothing, delivery=position.delivery), 0).position
    return position
