"""Brings a table that was added to a pipeline of several sinks to where the others stand: see ``protocol.join``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from connector.config import PipelineConfig
from connector.delivery.ports import Destination
from connector.protocol.join import never_read, next_to_join
from connector.protocol.recover import resumed
from connector.protocol.steps import Event, Observer, Step
from connector.source.topics import KafkaSource
from sinks.contract import Epoch, Position
from sinks.errors import ConfigurationError, OffsetsLost
from sinks.offsets import OffsetRange
from sinks.plurals import first_of, plural

log = logging.getLogger("lakelock.coordinator")

_SHOWN = 5


@dataclass(frozen=True)
class Joining:
    """``alone`` opens the destination of one sink as if it were the only one, by name; None: it isn't a table."""

    config: PipelineConfig
    run: str
    source: KafkaSource
    alone: Callable[[str], AbstractContextManager[Destination | None]]
    observe: Observer
    stopped: Callable[[], bool] = lambda: False
    """Whether the run is to end. Then the next run goes on."""

    def __call__(self, stands: Epoch, positions: Mapping[str, Position | None]) -> Mapping[str, Position | None]:
        """See ``coordinator.JoinAll``. Raises ConfigurationError for a sink that isn't a table, and what an epoch
        raises."""
        came: dict[str, Position | None] = {}
        for name, position in positions.items():
            with self.alone(name) as table:
                if table is None:
                    raise ConfigurationError(
                        f"{name!r} was added to the pipeline, which has begun. Only a Delta table catches up with "
                        "other sinks.",
                        hint="Take it out again, and write it by a pipeline of its own.",
                    )
                if self.config.of_rows:
                    raise ConfigurationError(
                        f"{name!r} was added to the pipeline, which has begun. With value: {{format: rows}} it can't "
                        "catch up with the other sinks: only the query makes rows, of its next batch.",
                        hint="Take it out again, and write it by a query and a pipeline file of its own.",
                    )
                came[name] = self._caught_up(name, table, stands, position)
        return came

    def _caught_up(self, name: str, table: Destination, stands: Epoch, position: Position | None) -> Position | None:
        tidy = False
        while (position is None or not position.same_place(stands.position())) and not self.stopped():
            if not tidy:
                position, tidy = _tidied(table, stands, position), True
            held = self.source.look()
            goes_on = self.config.source.continue_on_data_loss
            resumption = resumed(position, held, self.source, continue_on_data_loss=goes_on)
            if not goes_on:
                _refuse_lost(name, never_read(stands, position, held))
            bound = self.config.epoch.max_records
            epoch = next_to_join(stands, position, resumption, held, owner=self.run, max_records=bound)
            note = f"{name} was added: it catches up with the other sinks, {plural(epoch.span, 'offset')} up to epoch "
            self.observe(Event(Step.RESUMED, epoch, note=f"{note}{stands.number}"))
            log.info("%s catches up with epoch %s: %s offsets", name, stands.number, epoch.span)
            position = table.run_epoch(epoch, 0).position
        return position


def _refuse_lost(name: str, lost: Sequence[OffsetRange]) -> None:
    """Raises OffsetsLost."""
    if lost:
        raise OffsetsLost(
            f"{name} lacks records that the other sinks have, and their topics are gone from Kafka: "
            f"{first_of([str(gap) for gap in lost], _SHOWN)}.",
            hint="To go on without them run once with `source: {on_data_loss: continue}` and `trigger: available_now`: "
            "its commit names them as lost. Or take another, new table, which claims nothing of these topics.",
        )


def _tidied(table: Destination, stands: Epoch, position: Position | None) -> Position | None:
    """Remove what epochs of the table's own left behind that weren't committed, or that a RESTORE has undone.

    That may take two numbers for epochs without records, and the last epoch to catch up with needs that of ``stands``.
    Without numbers between them nothing is removed: without the fence, another run could lose its deletes.
    """
    if position is not None and position.restored_to is not None:
        table.restored(position)
    if position is not None and position.epoch + 2 >= stands.number:
        return position
    return table.tidied(position)
