"""Finds out whether a run would work, and changes nothing."""

from __future__ import annotations

from connector.config import DeltaPlace, PipelineConfig
from connector.config.sent_again import kept_again
from connector.config.sinks import SinkOptions
from connector.engine.assembly import Assembly
from connector.engine.dead_letters import letters_topic
from connector.engine.field_check import has_no_record
from connector.engine.first_run import refuse_first_without_zone
from connector.engine.one_table import recreated_starts
from connector.engine.output import Output
from connector.operations.checked import Checked, CheckedSink
from connector.operations.sample import sampled
from connector.operations.status import stands
from connector.protocol.plan import to_sample
from connector.protocol.recover import Resumption, TopicsHeld, behind, resumed
from connector.protocol.recreated import recreated, retirement
from connector.source.consumer_group import ConsumerGroup
from sinks.contract import Position
from sinks.errors import NotAuthorized
from sinks.offsets import Offsets
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.files import refuse_unwritable


def checked(config: PipelineConfig, assembly: Assembly, *, plain: bool = False) -> Checked:
    """See ``Pipeline.check``. ``assembly`` is that of the pipeline with bad records set aside. Raises LakelockError.

    ``plain``: find the SQL that would make a table also if its sink says nothing of its layout.
    """
    held = assembly.source.look()
    for location in assembly.locations:
        require_conditional_writes(assembly.spark, location)
        refuse_unwritable(location)
    topic = letters_topic(config)
    if topic is not None:
        topic.check()
    assembly.refuse_unfit_select()
    refuse_first_without_zone(assembly.spark, assembly.outputs, assembly.log)
    # The tables of a route are one output.
    sinks = [
        _checked_sink(output, sink, plain=plain)
        for output, sink in zip(assembly.outputs, config.sinks, strict=config.route is None)
    ]
    next_offsets, position = would_read(config, assembly, held)
    ranges = to_sample(next_offsets, held)
    records = assembly.source.sample(ranges)
    warnings = [
        *_about_the_group(assembly.group, config.delivery),
        *kept_again(config),
        *assembly.field_check.look(records, ranges, first=has_no_record(position)),
    ]
    sample = sampled(assembly, records, ranges)
    return Checked(
        config.name,
        sinks,
        _log(config),
        str(config.source.start),
        position,
        next_offsets,
        behind(next_offsets, held),
        sample,
        stops_at_bad=config.on_bad_record == "fail",
        warnings=[*warnings, *sample.warnings],
        notifies=sorted(config.notify.events) if config.notify is not None else (),
    )


def would_read(config: PipelineConfig, assembly: Assembly, held: TopicsHeld) -> tuple[Offsets, Position | None]:
    """Where a run would go on reading, and the position that it would go on from. Raises LakelockError."""
    position, offsets, _ = stands(assembly)
    resumption, position = would_resume(config, assembly, held, position, offsets)
    return resumption.offsets, position


def would_resume(
    config: PipelineConfig, assembly: Assembly, held: TopicsHeld, position: Position | None, offsets: Offsets
) -> tuple[Resumption, Position | None]:
    """The same, and what it would leave out because Kafka has lost it. ``position`` and ``offsets``: where the pipeline
    `stands`."""
    if position and config.source.takes_recreated and (names := recreated(position, held)):
        starts = recreated_starts(config, position, held, names)
        position = retirement(config.name, assembly.run, position, held, names, starts).position()
        offsets = position.offsets
    stood, goes_on = position and position.moved_to(offsets), config.source.continue_on_data_loss
    return resumed(stood, held, assembly.source, continue_on_data_loss=goes_on), position


def _checked_sink(output: Output, sink: SinkOptions, *, plain: bool) -> CheckedSink:
    kind, place = ("table", sink.address) if isinstance(sink, DeltaPlace) else ("sink", output.label)
    columns = output.derivation.columns.names
    return CheckedSink(
        kind, place, output.check(), columns, output.rules(), output.made_by(plain=plain), output.differs()
    )


def _log(config: PipelineConfig) -> str | None:
    if config.coordinator is None:
        return None
    needed = "" if config.two_phase else ": not needed, one table takes rows and offsets in one commit"
    return f"{config.coordinator.address}{needed}"


def _about_the_group(group: ConsumerGroup, delivery: str) -> list[str]:
    """A warning if the user may not use the consumer group. Raises NotAuthorized if the delivery needs it."""
    try:
        group.committed()
    except NotAuthorized as error:
        if delivery != "transactional":
            raise
        return [f"{error.message} So lag tools won't see the pipeline's offsets."]
    return []
