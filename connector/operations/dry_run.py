"""What `lakelock run --dry-run` finds: what a run would do first, without doing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from connector.config import PipelineConfig
from connector.delivery.transactional import bounded
from connector.display import Grid, Line, Page, Shown
from connector.engine.assembly import Assembly
from connector.operations.check import checked, would_resume
from connector.operations.checked import Checked
from connector.operations.maintain import Maintained, maintain
from connector.operations.status import doubt, stands
from connector.protocol.decided import Row
from connector.protocol.pacing import EpochSize
from connector.protocol.plan import next_epoch, plan
from connector.protocol.recover import TopicsHeld, behind
from sinks.contract import Epoch
from sinks.offsets import OffsetRange
from sinks.plurals import plural


@dataclass(frozen=True)
class Planned:
    """What a run would read first."""

    ranges: Sequence[OffsetRange]
    """Of the next epoch. Without one, what waits in Kafka for the consumer group."""
    epoch: Epoch | None
    """The epoch that a run would commit first. None: nothing is new, or a consumer group decides what to read."""
    left: int
    """How many offsets come after that epoch."""
    in_doubt: Row | None = None
    """An epoch that a run would settle before."""
    moves_from: str = ""
    """The delivery that the table has now, if the file names another one."""


@dataclass(frozen=True, repr=False)
class DryRun(Shown):
    """What a run would do: what `check` finds, the next epoch, and what `maintain` would do. Nothing was written."""

    delivery: str
    checked: Checked
    planned: Planned
    upkeep: Maintained

    def page(self) -> Page:
        """The page of `check`, then the next epoch, then the maintenance that is due."""
        checked, upkeep = self.checked.page(), self.upkeep.page()
        plan = [*_before(self.planned), *self._epoch()]
        blocks = [*checked.blocks, *plan, Line("", "Maintenance that is due:"), *upkeep.blocks]
        return Page([*blocks, Line("", "This was a dry run: nothing was written.")], labels=checked.labels)

    def _epoch(self) -> Iterator[Line | Grid]:
        planned, places = self.planned, ", ".join(sink.place for sink in self.checked.sinks)
        records = f"up to {plural(sum(each.span for each in planned.ranges), 'record')}"
        if planned.epoch is not None and not planned.ranges:
            yield Line("epoch", f"{planned.epoch.number}: without records, to write the position into {places}")
        elif planned.epoch is not None:
            yield Line("epoch", f"{planned.epoch.number}: {records} into {places}")
        elif planned.ranges:
            yield Line("reads", f"{records}, in batches of the consumer group ({self.delivery}), into {places}")
        else:
            yield Line("epoch", "none: there is nothing new")
        if planned.ranges:
            rows = [_row(each) for each in planned.ranges]
            yield Grid(("topic", "partition", "from", "to", "records"), rows, right=_NUMBERS)
        if planned.left:
            yield Line("then", f"{plural(planned.left, 'offset')} for the epochs after it")


_NUMBERS = frozenset(("partition", "from", "to", "records"))


def _row(read: OffsetRange) -> tuple[str, ...]:
    return read.topic, str(read.partition), str(read.start), str(read.end), f"{read.span:,}"


def _before(planned: Planned) -> Iterator[Line]:
    """What a run would do before its first epoch with records."""
    if planned.in_doubt is not None:
        yield doubt(planned.in_doubt)
    if planned.moves_from:
        yield Line("delivery", f"the table has {planned.moves_from}: an epoch without records moves it first")


def dry_run(config: PipelineConfig, assembly: Assembly) -> DryRun:
    """See ``Pipeline.dry_run``. ``assembly``: that of the pipeline with bad records set aside. Raises LakelockError."""
    found = checked(config, assembly, plain=True)
    planned = _planned(config, assembly, assembly.source.look())
    return DryRun(config.delivery, found, planned, maintain(config, dry_run=True, spark=assembly.spark).whole())


def _planned(config: PipelineConfig, assembly: Assembly, held: TopicsHeld) -> Planned:
    stood, next_offsets, in_doubt = stands(assembly)
    moves_from = stood.delivery if stood is not None and stood.delivery != config.delivery else ""
    resumption, position = would_resume(config, assembly, held, stood, next_offsets)
    offsets = resumption.offsets
    if config.delivery != "transactional" or moves_from:
        waiting = behind(offsets, held)
        ranges = plan(offsets, held.ends, waiting) if waiting else ()
        return Planned(ranges, None, 0, in_doubt, moves_from)
    size = EpochSize.first(config.epoch.max_records, config.epoch.target_duration)
    epoch = next_epoch(
        config.name,
        assembly.run,
        position,
        resumption,
        held,
        max_records=bounded(size, config.epoch.max_bytes, assembly.source, offsets, held.ends),
        now=datetime.now(timezone.utc),
    )
    left = behind(epoch.offsets, held) if epoch is not None else 0
    return Planned(epoch.ranges if epoch is not None else (), epoch, left, in_doubt)
