"""The group seen from outside, with an admin client that plays back what brokers answer."""

from typing import Any, ClassVar

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    NoError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from connector.config import parse
from connector.source import consumer_group as module
from connector.source.consumer_group import ConsumerGroup
from sinks.errors import BrokerUnreachable, GroupActive, NotAuthorized
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


class Admin:
    """Each client that is made gets the next of ``answers``: what it says, always."""

    DEFAULT_CONFIG: ClassVar[dict[str, object]] = {}
    answers: ClassVar[list[Any]] = []
    open: ClassVar[int] = 0

    def __init__(self, **options: object) -> None:
        self._answer = Admin.answers.pop(0) if len(Admin.answers) > 1 else Admin.answers[0]
        Admin.open += 1

    def close(self) -> None:
        Admin.open -= 1

    def _say(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def describe_groups(self, names: list[str]) -> Any:
        return {"p": self._say()}

    def list_group_offsets(self, wanted: dict[str, None]) -> Any:
        return {"p": self._say()}

    def alter_group_offsets(self, name: str, offsets: dict[KafkaPartition, OffsetAndMetadata]) -> Any:
        return dict.fromkeys(offsets, self._say())


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(*answers: Any) -> ConsumerGroup:
        Admin.answers, Admin.open = list(answers), 0
        monkeypatch.setattr(module, "KafkaAdminClient", Admin)
        monkeypatch.setattr(module, "ANSWER_WITHIN_MS", 300)
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0.001)
        return ConsumerGroup(
            parse(
                {
                    "name": "p",
                    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "nowhere:1"}},
                    "value": {"format": "json", "schema": "k STRING"},
                    "sinks": [{"type": "delta_append", "path": "x"}],
                }
            )
        )

    return made


def described(*clients: str, state: str = "Stable", error: str | None = None) -> dict[str, Any]:
    return {"members": [{"client_id": each} for each in clients], "group_state": state, "error": error}


def test_members_are_told_by_their_clients_names(group: Any) -> None:
    found = group(described("one", "two"))
    assert found.has_members()
    assert found.has_member("two")
    assert not found.has_member("three")


def test_a_group_that_was_never_there_has_no_members(group: Any) -> None:
    assert not group(described(state="Dead", error="[Error 69] GroupIdNotFoundError")).has_members()


def test_a_broker_that_cant_tell_is_not_taken_for_an_empty_group(group: Any) -> None:
    with pytest.raises(BrokerUnreachable):
        group(described(state="", error="[Error 14] CoordinatorLoadInProgressError")).has_members()


@pytest.mark.parametrize(
    "answer", [NotCoordinatorError(), CoordinatorNotAvailableError(), described(state="", error="no")]
)
def test_a_group_that_moved_to_another_broker_is_looked_up_by_a_new_client(answer: Any, group: Any) -> None:
    found = group(answer, answer, described("one"))
    assert found.has_members()
    assert Admin.open == 1
    found.close()
    assert Admin.open == 0


def test_offsets_of_other_topics_and_of_none_are_left_out(group: Any) -> None:
    answer = {
        KafkaPartition("t", 0): OffsetAndMetadata(5, "", -1),
        KafkaPartition("t", 1): OffsetAndMetadata(-1, "", -1),
        KafkaPartition("other", 0): OffsetAndMetadata(7, "", -1),
    }
    assert group(answer).committed() == Offsets({AT: 5})


def test_storing_offsets_is_tried_again_where_the_broker_asks_for_patience(group: Any) -> None:
    group(CoordinatorNotAvailableError, NotCoordinatorError, NoError).store(Offsets({AT: 3}))


def test_a_group_with_members_keeps_its_offsets(group: Any) -> None:
    with pytest.raises(GroupActive, match="has members"):
        group(UnknownMemberIdError).store(Offsets({AT: 3}))


def test_a_refusal_is_told_as_such(group: Any) -> None:
    with pytest.raises(NotAuthorized, match="consumer group 'p'") as caught:
        group(GroupAuthorizationFailedError).store(Offsets({AT: 3}))
    assert "READ on its consumer group" in caught.value.hint
