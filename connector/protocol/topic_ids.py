"""Which topic the stored offsets belong to, by its id: they say nothing about another topic of the same name. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.contract import Position
from sinks.errors import ConfigurationError, TopicRecreated
from sinks.recreated import retired


def refuse_recreated(stored: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Raises TopicRecreated: the offsets belong to one topic id, and the recreated topic has another."""
    for topic, topic_id in stored.items():
        if topic in current and current[topic] != topic_id:
            if retired(topic, current[topic]) in stored:
                raise came_back(topic, topic_id, current[topic])
            raise TopicRecreated(
                f"Topic {topic!r} was deleted and recreated: the table's offsets belong to topic id {topic_id}, "
                f"Kafka now has {current[topic]}. By the old offsets, new records would be taken for old ones and "
                "dropped.",
                hint="To read the new topic from its beginning and keep the rows of the old one, run once with "
                "`source: {on_recreated_topic: continue}` and `trigger: available_now`. Or write it to a new table "
                "(another path or table name). In a cluster that the topic was mirrored to: `lakelock translate`.",
            )


def refuse_other_topics(position: Position, current: Mapping[str, str]) -> None:
    """Raises TopicRecreated as ``refuse_recreated``, and ConfigurationError if only rows of another pipeline show the
    position, and it has read them from other topics of the same names: their offsets say nothing of these."""
    refuse_recreated(position.topics, current)
    for topic, topic_id in position.of_others.items():
        if current.get(topic, topic_id) != topic_id:
            raise ConfigurationError(
                f"The table's rows of {topic!r} come from another topic of this name: another pipeline has read them "
                f"from topic id {topic_id}, Kafka now has {current[topic]}, and this pipeline has written nothing yet. "
                "By the offsets of those rows, new records would be taken for old ones and dropped.",
                hint="If the other pipeline reads another cluster, give this one a table of its own. If this one takes "
                "the other's place, give it the other's name: what to do about a recreated topic, or one that moved, "
                "is asked then.",
            )


def came_back(topic: str, topic_id: str, back: str) -> TopicRecreated:
    """The error for a topic that was read, has retired for another one with ``topic_id``, and is there again."""
    return TopicRecreated(
        f"Topic {topic!r} isn't the one that the table's offsets belong to, topic id {topic_id}. It has topic id "
        f"{back}, which the pipeline has read before: its records are in the table as {retired(topic, back)!r}. Read "
        "from the beginning, they would be there twice, and old updates would replace newer ones.",
        hint=f"If this is the wrong cluster, set bootstrap.servers to the one with topic id {topic_id}. If the "
        "producers have moved back, build a new table (another name, path or table name) from this topic. If it has "
        "all records of the other one, mirrored with their timestamps: `lakelock translate`.",
    )
