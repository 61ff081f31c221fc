"""Goes on with tables, or a target topic, that somebody else has replaced, as if the pipeline had written it."""

from __future__ import annotations

from dataclasses import replace

from connector.engine.assembly import Assembly
from connector.engine.dead_letters import letters_table
from connector.engine.one_table import look_back_before_accept
from connector.engine.outputs import Table
from connector.engine.settled import without_query
from connector.protocol.steps import Observer
from sinks.contract import Epoch, Position
from sinks.delta.merge_on_read import MergeOnRead
from sinks.errors import ConfigurationError


def accepted(assembly: Assembly, observe: Observer) -> Position:
    """See ``Pipeline.accept``: commits an epoch of no records. Raises ConfigurationError if nobody has replaced it.

    Before that, the pipeline's letters get Delta's new id of the table, if it has one: else they would be another
    table's. And if the table was restored before it was replaced, what is beside it is brought in line, as a run would
    have done. A crash in between leaves letters of the table as it is; the next `accept` does these steps again.
    """
    assembly = without_query(assembly)
    assembly.make_ready()
    sink, log = assembly.table.derivation.sink, assembly.table.derivation.log
    position = sink.position()
    if position is None or not position.replaced:
        raise ConfigurationError("Nobody has replaced the table: there is nothing to accept.")
    _take_letters_along(assembly)
    look_back_before_accept(assembly.config, assembly.spark, assembly.run, assembly.table)
    if log is not None:
        log.close(assembly.run)
        position = sink.position() or position
    if position.replaced:
        nothing = Epoch.of_no_records(position, pipeline=assembly.config.name, owner=assembly.run)
        work = assembly.work(observe, topics=assembly.source)
        position = work.destination.run_epoch(
            replace(nothing, delivery=position.delivery, group=position.group), 0
        ).position
    return position


def _take_letters_along(assembly: Assembly) -> None:
    letters = letters_table(assembly.config, assembly.spark)
    if letters is None or not letters.exists():
        return
    commits = assembly.table.commits
    stands = commits.position()  # that of a change log has versions of its own
    own = commits.at(stands.version) if stands is not None and stands.version is not None else None
    if own is not None and own.metadata.table:
        letters.take_along(own.metadata.table)


def accepted_together(assembly: Assembly, observe: Observer) -> Position:
    """See ``Pipeline.accept``: the same for several sinks, or for a topic: an epoch of no records in all of them.

    Raises ConfigurationError if nobody has replaced any, or if one of them is merged on read.
    """
    assembly = without_query(assembly)
    for output in assembly.outputs:
        if isinstance(output, Table) and isinstance(output.derivation.sink, MergeOnRead):
            raise ConfigurationError(
                f"{output.label!r} is merged on read, and `accept` takes such a table only where it is the only sink.",
                hint="Write merge: on_write for it, accept what was replaced, and write merge: on_read again.",
            )
    assembly.make_ready()
    coordinator = assembly.coordinator(observe)
    if not coordinator.accept():
        raise ConfigurationError(
            "Every table, and every target topic, is the one that the pipeline has written to: nothing to accept."
        )
    stands = coordinator.position()
    if stands is None:
        raise ConfigurationError("The pipeline has committed no epoch yet: there is nothing to accept.")
    stands = coordinator.tidied(stands) or stands  # dead letters that a run has marked, and was killed
    nothing = Epoch.of_no_records(stands, pipeline=assembly.config.name, owner=assembly.run)
    position = coordinator.run_epoch(nothing, 0).position
    coordinator.settle()
    return position
