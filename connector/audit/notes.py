"""What a reader of an audit has to know of the claim, and of what Kafka holds of it."""

from __future__ import annotations

from collections.abc import Sequence

from connector.audit.claim import Bounds, Claim, Held, Metadata, Next
from connector.audit.letters import topic_of_letters
from connector.audit.verdict import PartitionAudit
from connector.config import PipelineConfig
from sinks.plurals import first_of, plural

_SHOWN = 5


def notes_on(
    config: PipelineConfig, claim: Claim, cut: Sequence[Bounds], held: Held, parts: Sequence[PartitionAudit]
) -> list[str]:
    """What a reader of the result has to know, as sentences."""
    notes, compacted = list[str](), held.compacted
    for topic in sorted(compacted):
        if any(part.at.topic == topic for part in cut):
            is_it = (
                f"Kafka doesn't tell whether topic {topic} is compacted, as that takes the permission DESCRIBE_CONFIGS "
                "on it. It was taken for a compacted one"
                if topic in held.untold
                else f"Topic {topic} is compacted"
            )
            notes.append(
                f"{is_it}: a row whose record Kafka has removed counts as unchecked, and what compaction removed isn't "
                "expected."
            )
    for part in cut:
        if part.stop < part.end:
            notes.append(
                f"Kafka's log of {part.at.topic}-{part.at.partition} ends at {part.stop}, before the claim does, at "
                f"{part.end}: it lost records that the table has."
            )
    for topic in sorted({at.topic for at in claim.offsets if at.topic.startswith("#")}):
        notes.append(f"Rows of {topic} came from a topic that was recreated since: their records are gone with it.")
    for gap in claim.lost:
        notes.append(
            f"The pipeline itself reported [{gap.start}, {gap.end}) of {gap.topic}-{gap.partition} as lost: not part "
            "of the claim."
        )
    for gap in claim.missed:
        notes.append(
            f"The pipeline read [{gap.start}, {gap.end}) of {gap.topic}-{gap.partition} so late that Kafka may have "
            "forgotten deletes in it: older rows of which Kafka shows nothing are doubtful."
        )
    if (letters := topic_of_letters(config)) is not None:
        notes.append(
            f"The dead letters are in topic {letters}, and aren't audited. A record that can't be read, or that the "
            "sink can't take, isn't expected in the table."
        )
    rows_unchecked = sum(part.counts["unchecked"] for part in parts)
    if rows_unchecked and not compacted and not any(part.begin > part.since for part in cut):
        notes.append(f"{plural(rows_unchecked, 'row')} could not be checked.")
    if config.on_bad_record != "dead_letter" and any(part.counts["lost"] for part in parts):
        notes.append(
            "By this file bad records stop a run. Where one was run with --set on_bad_record=dead_letter, what is lost "
            "here may have been set aside: give verify the same."
        )
    return notes


def unnamed(found: Metadata | None, claim: Claim, held: Held, logged: Next) -> list[str]:
    """A note on partitions that hold records and that nothing names: the claim has none of them.

    ``found``: as in ``claimed``. ``logged``: the partitions that a coordinator log names."""
    if found is None:
        return []
    there = {at: end - held.beginnings.get(at, 0) for at, end in held.ends.items() if at not in found.offsets}
    of_none = sorted(
        at for at, count in there.items() if count > 0 and at not in logged and claim.offsets[at] <= claim.since[at]
    )
    if not of_none:
        return []
    shown = first_of([f"{at.topic}-{at.partition}" for at in of_none], _SHOWN)
    count = plural(sum(there[at] for at in of_none), "offset")
    return [f"No commit of the pipeline names {shown}, where Kafka holds {count}: none of them is part of the claim."]
