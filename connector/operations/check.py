"""Finds out whether a run would work, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from connector.config import PipelineConfig
from connector.engine.assembly import Assembly
from connector.engine.dead_letters import letters_topic
from connector.engine.one_table import recreated_starts
from connector.operations.sample import sampled
from connector.operations.status import Checked, CheckedSink
from connector.protocol.plan import to_sample
from connector.protocol.recover import behind, resumed
from connector.protocol.recreated import recreated, retirement
from connector.source.consumer_group import ConsumerGroup
from sinks.contract import Position
from sinks.errors import NotAuthorized
from sinks.offsets import Offsets
from sinks.s3.hadoop import require_conditional_writes
from sinks.spark.files import refuse_unwritable


def checked(
    config: PipelineConfig, assembly: Assembly, stands: Callable[[], tuple[Position | None, Offsets]]
) -> Checked:
    """See ``Pipeline.check``. ``assembly`` is that of the pipeline with bad records set aside; ``stands`` asks
    its tables for position and next offsets. Raises LakelockError.
    """
    held = assembly.source.look()
    for location in assembly.locations:
        require_conditional_writes(assembly.spark, location)
        refuse_unwritable(location)
    topic = letters_topic(config)
    if topic is not None:
        topic.check()
    assembly.refuse_lost_deletes()
    sinks = [
        CheckedSink(output.label, output.check(), output.derivation.columns.names, output.rules())
        for output in assembly.outputs
    ]
    position, offsets = stands()
    if position and config.source.takes_recreated and (names := recreated(position, held)):
        starts = recreated_starts(config, position, held, names)
        position = retirement(config.name, assembly.run, position, held, names, starts).position()
        offsets = position.offsets
    stood, goes_on = position and position.moved_to(offsets), config.source.continue_on_data_loss
    next_offsets = resumed(stood, held, assembly.source, continue_on_data_loss=goes_on).offsets
    ranges = to_sample(next_offsets, held)
    records = assembly.source.sample(ranges)
    warnings = [
        *_about_the_group(assembly.group, config.delivery),
        *assembly.field_check.look(records, ranges, first=position is None),
    ]
    sample = sampled(assembly, records, ranges)
    found = [*warnings, *sample.warnings]
    return Checked(sinks, position, next_offsets, behind(next_offsets, held), sample, found)


def _about_the_group(group: ConsumerGroup, delivery: str) -> list[str]:
    """A warning if the user may not use the consumer group. Raises NotAuthorized if the delivery needs it."""
    try:
        group.committed()
    except NotAuthorized as error:
        if delivery != "transactional":
            raise
        return [f"{error.message} So lag tools won't see the pipeline's offsets."]
    return []
