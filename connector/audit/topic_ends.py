"""What the commits say of topics that came back, or are gone from Kafka, which no comparison of records shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from connector.audit.claim import At, Claim, Held, Metadata

_MARK = "#"
_LEFT = "Topic {} isn't in Kafka any more, was recreated, or can't be read: its rows aren't compared."
"""What is said of a topic that has left the pipeline, or that its pattern matched before."""


def with_ends(claim: Claim, notes: Sequence[str], found: Metadata | None, held: Held) -> tuple[Claim, list[str]]:
    """The claim and the notes, with what the newest commit says of such topics. ``held``: what Kafka holds."""
    left = sorted(topic for topic in (found.ids if found else {}).keys() - held.ids.keys() if topic[:1] != _MARK)
    claim = replace(claim, unknown=(*claim.unknown, *read_twice(found, claim)))
    return claim, [*notes, *(_LEFT.format(topic) for topic in left)]


def read_twice(found: Metadata | None, claim: Claim) -> list[str]:
    """Why a table can't be called exact that has the records of a topic under two names, by the newest commit.

    Earlier versions read a topic again that had retired, to ``#<topic id>/<topic>``, and came back.
    """
    sentences = []
    for at, end in sorted(claim.offsets.items()):
        topic_id = found.topics.get(at.topic) if found is not None and not at.topic.startswith(_MARK) else None
        before = At(f"{_MARK}{topic_id}/{at.topic}", at.partition)
        start, stop = max(claim.since[at], claim.since.get(before, 0)), min(end, claim.offsets.get(before, 0))
        if start < stop:
            sentences.append(
                f"Records [{start}, {stop}) of {at.topic}-{at.partition} were read twice: the topic was away, is back, "
                f"and they are in the table as {before.topic}, too. Build a new table of them: `lakelock replay`."
            )
    return sentences
