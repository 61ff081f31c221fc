"""The consumer group seen from outside: its committed offsets and its members. Nothing here joins the group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import GroupAuthorizationFailedError, KafkaError, NoError, NotCoordinatorError, UnknownMemberIdError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from connector.config import PipelineConfig
from connector.source.asked_again import asked_again
from sinks.errors import GroupActive, SourceError
from sinks.kafka import ANSWER_WITHIN_MS, answering, client_options
from sinks.offsets import Offsets, TopicPartition

_WAIT_SECONDS = 0.1


class ConsumerGroup:
    """The consumer group ``config.group``, for the topics of the pipeline. Every method may raise BrokerUnreachable."""

    def __init__(self, config: PipelineConfig) -> None:
        self.name = config.group
        self._topics = config.source.topics
        options = config.source.kafka_options
        self._servers = options["bootstrap.servers"]
        self._options = options
        self._client: KafkaAdminClient | None = None

    def close(self) -> None:
        """Close the connection. The next request connects again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def committed(self, also: Collection[str] = ()) -> Offsets:
        """The next offset per partition. A partition that the group has never committed is left out.

        ``also``: topics of which to tell it although the pipeline doesn't read them any more.
        """
        found = self._ask(lambda: self._admin.list_group_offsets({self.name: None})).get(self.name, {})
        return Offsets(
            {
                TopicPartition(at.topic, at.partition): each.offset
                for at, each in found.items()
                if (at.topic in self._topics or at.topic in also) and each.offset >= 0
            }
        )

    def store(self, offsets: Offsets) -> None:
        """Commit offsets from outside the group. Raises GroupActive while it has members, or SourceError."""
        wanted = {KafkaPartition(*at): offset_to_commit(offset) for at, offset in offsets.items()}
        results = self._ask(lambda: self._alter(wanted))
        refusals = {error for error in results.values() if error is not NoError}
        if UnknownMemberIdError in refusals:
            raise GroupActive(
                f"Consumer group {self.name!r} has members, so its offsets can't be changed from outside.",
                hint="Stop whatever uses this group, or give the pipeline its own group: "
                "`source: {kafka: {group.id: ...}}`.",
            )
        for refusal in refusals:
            if issubclass(refusal, GroupAuthorizationFailedError):
                with answering(self._servers, group=self.name):
                    raise refusal
            raise SourceError(
                f"Kafka refuses to commit offsets for consumer group {self.name!r}: {refusal.__name__}.",
                hint="The pipeline's user needs READ on the group.",
            )

    def has_members(self) -> bool:
        """Whether the group has any members."""
        return bool(self._members())

    def has_member(self, client_id: str) -> bool:
        """Whether a member with this client ID is in the group."""
        return any(member["client_id"] == client_id for member in self._members())

    def _members(self) -> Sequence[dict[str, object]]:
        members: Sequence[dict[str, object]] = self._ask(self._described)["members"]
        return members

    def _described(self) -> dict[str, Any]:
        (group,) = self._admin.describe_groups([self.name]).values()
        # A broker that can't tell lists no members. A group that doesn't exist is dead, and has none.
        if GroupAuthorizationFailedError.__name__ in (group["error"] or ""):
            raise GroupAuthorizationFailedError
        if group["error"] and group["group_state"] != "Dead":
            raise NotCoordinatorError(group["error"])
        found: dict[str, Any] = group
        return found

    def _alter(self, wanted: dict[KafkaPartition, OffsetAndMetadata]) -> dict[KafkaPartition, type[KafkaError]]:
        results: dict[KafkaPartition, type[KafkaError]] = self._admin.alter_group_offsets(self.name, wanted)
        for error in results.values():
            if error.retriable:
                raise error
        return results

    @property
    def _admin(self) -> KafkaAdminClient:
        """The admin client. It connects at the first request: a transactional `status` or `check` has none."""
        if self._client is None:
            self._client = KafkaAdminClient(**client_options(KafkaAdminClient, self._options))
        return self._client

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Call ``question``, and retry it while a broker that has just started, or moved the group, asks for patience.

        kafka-python's admin client keeps a group's coordinator for ever, so each retry uses a new one.
        """
        with answering(self._servers, group=self.name):
            return asked_again(
                question,
                may_pass=lambda error: isinstance(error, KafkaError) and error.retriable,
                wait=lambda _: _WAIT_SECONDS,
                seconds=ANSWER_WITHIN_MS / 1000,
                before=self.close,
            )


def offset_to_commit(offset: int) -> OffsetAndMetadata:
    """The offset in the form that kafka-python commits."""
    return OffsetAndMetadata(offset, "", -1)


@dataclass
class Unpublished:
    """No consumer group: a table that isn't the pipeline's own says nothing about the pipeline's progress."""

    name: str = ""

    def committed(self, also: Collection[str] = ()) -> Offsets:
        """No offsets."""
        del also
        return Offsets()

    def store(self, offsets: Offsets) -> None:
        """Does nothing."""
        del offsets

    def has_members(self) -> bool:
        """False."""
        return False
