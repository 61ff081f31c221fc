"""What the commits say of topics that were recreated, came back or are gone, which no comparison shows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from connector.audit.claim import At, Claim, Held, Logged, Metadata
from connector.config import TopicPattern
from sinks.errors import TopicRecreated
from sinks.plurals import first_of, plural

_MARK = "#"
_SHOWN = 5
_ONCE = "1971"
"""A commit whose pipeline had never read everything gives a time long before Kafka."""
_LEFT = "Topic {} isn't in Kafka any more, was recreated, or can't be read: its rows aren't compared."
"""What is said of a topic that has left the pipeline, or that its pattern matched before."""


def refuse_recreated(found: Metadata | None, held: Held) -> None:
    """Raises TopicRecreated: the offsets of the old topic say nothing about the records of the new one."""
    for topic, topic_id in (found.topics if found else {}).items():
        now = held.ids.get(topic)
        if now is not None and now != topic_id:
            raise TopicRecreated(
                f"Topic {topic!r} was deleted and recreated: the table's rows came from topic id {topic_id}, Kafka "
                f"now has {now}. Their records are gone, so nothing of the table can be checked.",
                hint="Write the new topic to a new table, and verify that one.",
            )


def with_ends(
    claim: Claim,
    notes: Sequence[str],
    found: Metadata | None,
    held: Held,
    upto: Logged | None,
    topics: Sequence[str] | TopicPattern,
    *,
    now: bool,
) -> tuple[Claim, list[str]]:
    """The claim and the notes, with what the newest commit says of such topics.

    ``found``: that commit; ``held``: what Kafka has; ``upto``: what the coordinator log says; ``topics``: those of the
    file; ``now``: whether the table's newest version is audited.
    """
    if found is None:
        return claim, list(notes)
    left = sorted(topic for topic in found.ids.keys() - held.ids.keys() if not topic.startswith(_MARK))
    noted = {**found.gone, **(upto.gone if upto is not None else {})}
    # What a topic got after an older version isn't missing there.
    unknown = {topic: found.all_read_to(topic) for topic in left if now} | noted
    asked = {topic: since for topic, since in unknown.items() if topic not in held.ids and _asked(topic, topics)}
    doubts = ends_unknown({topic: since for topic, since in asked.items() if since is not None}, claim.delivery)
    claim = replace(claim, unknown=(*claim.unknown, *read_twice(found, claim), *doubts))
    return claim, [*notes, *(_LEFT.format(topic) for topic in left)]


def ends_unknown(topics: Mapping[str, str], delivery: str = "transactional") -> list[str]:
    """Why a table can't be called exact whose topics are gone. ``topics``: with the time up to which all was read."""
    again = "If no run has looked since, verify again after one."
    if delivery != "transactional":
        again = f"With delivery: {delivery} no run notes it."
    told = topics.items()
    shown = [f"{name} (after {since[:19].replace('T', ' ')} UTC)" if since > _ONCE else name for name, since in told]
    gone = [name for name in sorted(shown) if not name.startswith(_MARK)]
    recreated = [name for name in sorted(shown) if name.startswith(_MARK)]
    sentences = []
    if gone:
        sentences.append(
            f"{plural(len(gone), 'topic is', 'topics are')} gone from Kafka, and nobody can tell whether all records "
            f"were read: {first_of(gone, _SHOWN)}. {again} Where the producers know that no records came later, "
            "leave the topic out of source.topics, and verify again."
        )
    if recreated:
        sentences.append(
            f"{plural(len(recreated), 'topic was', 'topics were')} deleted and recreated, and nobody can tell whether "
            f"all records of the old one were read: {first_of(recreated, _SHOWN)}. Where the producers know that no "
            "records came later, verify with a list of names in place of the pattern: "
            "--set 'source.topics=[name, name]'."
        )
    return sentences


def _asked(topic: str, topics: Sequence[str] | TopicPattern) -> bool:
    """Whether the file matches a topic. Who names topics in a list knows when one of them was recreated."""
    if not topic.startswith(_MARK):
        return topic in topics
    return isinstance(topics, TopicPattern) and topic.partition("/")[2] in topics


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
