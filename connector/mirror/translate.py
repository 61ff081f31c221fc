"""The next offsets of a pipeline's table, looked up partition by partition in the cluster that its topics moved to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from connector.config import PipelineConfig
from connector.mirror.compare import NotFound, Place, Reader, find
from connector.operations.status import Status
from connector.pipeline import Pipeline
from connector.protocol.recover import TopicsHeld
from connector.protocol.recreated import of_unknown_id, recreated
from connector.source.topics import KafkaSource
from connector.source.translated_offsets import Translation
from sinks.errors import ConfigurationError, NotMirrored
from sinks.offsets import TopicPartition


@dataclass(frozen=True)
class Found:
    at: TopicPartition
    offset: int
    place: Place


def translate(old: PipelineConfig, new: PipelineConfig, *, debug: bool = False) -> tuple[Translation, Sequence[Found]]:
    """Both name the same table; their topics have the same names. Writes nothing.

    Raises ConfigurationError, also where the old topic isn't the table's any more, BrokerUnreachable, and NotMirrored,
    which names every partition.
    """
    if old.name != new.name or [each.place for each in old.sinks] != [each.place for each in new.sinks]:
        raise ConfigurationError(
            "The two files are of different pipelines: only the cluster may be another one.",
            hint="Copy the file, and change `source.kafka` in it.",
        )
    if old.two_phase or old.delivery != "transactional":
        raise ConfigurationError(
            "Offsets are translated for one Delta table with delivery: transactional, where the position changes in "
            "the same commit as the rows.",
            hint="Build new tables from the new cluster, see docs/runbook.md.",
        )
    stands = Pipeline(old, debug=debug).status()
    if stands.position is None:
        raise ConfigurationError(
            f"Pipeline {old.name!r} has no position yet: there is nothing to translate.",
            hint="Run it with the new file; it begins at `source.start`.",
        )
    if stands.position.delivery != "transactional":
        raise ConfigurationError(
            f"The table's last epoch was written by delivery: {stands.position.delivery}, with offsets in its group.",
            hint="Run the old file once: the table takes over its offsets.",
        )
    if unknown := of_unknown_id(stands.position, stands.held):
        raise ConfigurationError(
            f"The table doesn't say of which topic {', '.join(sorted(unknown))} its offsets are: they were found from "
            "its rows.",
            hint="Run the old file once: its next commit says so.",
        )
    if recreated(stands.position, stands.held):
        raise ConfigurationError(
            f"{old.source.kafka_options['bootstrap.servers']} isn't where the table {old.sinks[0].place!r} was read "
            "from: its topics have other ids there.",
            hint="Were OLD and NEW swapped, or has the table moved already? A topic that was made again has no "
            "translation, see docs/runbook.md.",
        )
    with closing(KafkaSource(new.source)) as source:
        there = source.look()
    found = _look_up(stands, there, old, new)
    ids = {topic: (stands.held.ids[topic], there.ids[topic]) for topic in {each.at.topic for each in found}}
    offsets = {each.at: (each.offset, each.place.offset) for each in found}
    return Translation(old.name, ids, offsets), found


def _look_up(stands: Status, there: TopicsHeld, old: PipelineConfig, new: PipelineConfig) -> list[Found]:
    found, faults = [], []
    with closing(Reader(old.source.kafka_options)) as here, closing(Reader(new.source.kafka_options)) as mirror:
        for at in sorted(stands.held.ends):
            where = f"{at.topic}-{at.partition}"
            if at not in there.ends:
                faults.append(f"{where} isn't in the new cluster")
                continue
            mine = here.partition(at, stands.held.beginnings[at], stands.held.ends[at])
            theirs = mirror.partition(at, there.beginnings[at], there.ends[at])
            # Of what was never read all has to be there: it is read from the mirror's beginning.
            offset = stands.offsets.get(at, mine.beginning)
            if not mine.beginning <= offset <= mine.end:
                # To go on in the mirror would pass in silence what was never read.
                faults.append(f"{where} holds [{mine.beginning}, {mine.end}), and the table wants {offset}")
                continue
            try:
                place = find(mine, offset, theirs)
            except NotFound as error:
                faults.append(f"{where}: {error}")
                continue
            try:
                find(mine, mine.end, theirs)
            except NotFound:
                faults.append(f"{where} isn't mirrored to its end yet, offset {mine.end}")
                continue
            if at in stands.offsets:
                found.append(Found(at, offset, place))
    topics = {each.topic for each in stands.held.ends}
    faults += [
        f"{at.topic}-{at.partition} is only in the new cluster: keys are in other partitions there"
        for at in sorted(there.ends)
        if at.topic in topics and at not in stands.held.ends
    ]
    if faults:
        raise NotMirrored(
            f"The offsets of {stands.pipeline!r} can't be translated: {'; '.join(faults)}.",
            hint="The mirror has to keep partitions and timestamps (message.timestamp.type=CreateTime), nobody else "
            "may write to its topics before, and it has to be at their end. Or build a new table from the new cluster, "
            "see docs/runbook.md.",
        )
    return found
