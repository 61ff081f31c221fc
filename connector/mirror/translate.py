"""Looks up the next offsets of a pipeline's table, per partition, in the cluster that its topics moved to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from connector.config import PipelineConfig
from connector.config.places import spot
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
class TranslatedOffset:
    """The next offset of one partition in the old cluster, and its place in the new one."""

    at: TopicPartition
    offset: int
    place: Place


def translate(
    old: PipelineConfig, new: PipelineConfig, *, debug: bool = False
) -> tuple[Translation, Sequence[TranslatedOffset]]:
    """Translate the next offsets of a table. Both files name the same table and topics. Writes nothing.

    Raises ConfigurationError, also if the table wasn't read from the old file's topics; BrokerUnreachable; NotMirrored,
    which names every partition without a certain place.
    """
    if old.name != new.name or [*map(spot, old.sinks)] != [*map(spot, new.sinks)]:
        raise ConfigurationError(
            "The two files are of different pipelines: only the cluster may differ.",
            hint="Copy the file, and change `source.kafka` in it. Relative paths belong to the folder of the file, so "
            "keep the copy in the same folder.",
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
            hint="Run the new file; the pipeline begins at `source.start`.",
        )
    if stands.position.delivery != "transactional":
        raise ConfigurationError(
            f"The table's last epoch was written by delivery: {stands.position.delivery}, with offsets in its group.",
            hint="Run the old file once: the table then takes over the group's offsets.",
        )
    if unknown := of_unknown_id(stands.position, stands.held):
        raise ConfigurationError(
            f"The table doesn't say which ids the topics {', '.join(sorted(unknown))} had: its offsets were found from "
            "its rows.",
            hint="Run the old file once: its next commit stores the ids.",
        )
    if recreated(stands.position, stands.held):
        raise ConfigurationError(
            f"{old.source.kafka_options['bootstrap.servers']} isn't where the table {old.sinks[0].place!r} was read "
            "from: its topics have other ids there.",
            hint="Check that OLD and NEW aren't swapped, and that the table hasn't moved already. A recreated topic "
            "has no translation, see docs/runbook.md.",
        )
    with closing(KafkaSource(new.source)) as source:
        there = source.look()
    translated = _look_up(stands, there, old, new)
    ids = {topic: (stands.held.ids[topic], there.ids[topic]) for topic in {entry.at.topic for entry in translated}}
    offsets = {entry.at: (entry.offset, entry.place.offset) for entry in translated}
    return Translation(old.name, ids, offsets), translated


def _look_up(stands: Status, there: TopicsHeld, old: PipelineConfig, new: PipelineConfig) -> list[TranslatedOffset]:
    """Find the place of every next offset. Raises NotMirrored with every partition where that fails."""
    translated, faults = [], []
    with closing(Reader(old.source.kafka_options)) as here, closing(Reader(new.source.kafka_options)) as mirror:
        for at in sorted(stands.held.ends):
            where = f"{at.topic}-{at.partition}"
            if at not in there.ends:
                faults.append(f"{where} isn't in the new cluster")
                continue
            mine = here.partition(at, stands.held.beginnings[at], stands.held.ends[at])
            theirs = mirror.partition(at, there.beginnings[at], there.ends[at])
            # A partition that was never read has to be mirrored as a whole: a run reads it from the mirror's beginning.
            offset = stands.offsets.get(at, mine.beginning)
            if not mine.beginning <= offset <= mine.end:
                # Going on in the mirror would silently skip records that were never read.
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
                translated.append(TranslatedOffset(at, offset, place))
    topics = {at.topic for at in stands.held.ends}
    faults += [
        f"{at.topic}-{at.partition} is only in the new cluster, so keys are in other partitions there"
        for at in sorted(there.ends)
        if at.topic in topics and at not in stands.held.ends
    ]
    if faults:
        raise NotMirrored(
            f"The offsets of {stands.pipeline!r} can't be translated: {'; '.join(faults)}.",
            hint="The mirror has to keep partitions and timestamps (message.timestamp.type=CreateTime) and has to be "
            "at the end of the topics, and nobody else may write to its topics before. Or build a new table from the "
            "new cluster, see docs/runbook.md.",
        )
    return translated
