"""What a batch of a query refuses before anything is written."""

from types import SimpleNamespace
from typing import Any

import pytest

from connector.streaming.foreach_batch import _Query
from sinks.contract import Position
from sinks.errors import ConfigurationError, Fenced, LakelockError
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("stands", "last", "raised"),
    [
        (Position(3, Offsets({AT: 0}), delivery="manual_commit"), None, ConfigurationError),
        (Position(3, Offsets({AT: 0}), delivery="idempotent"), None, ConfigurationError),
        (Position(3, Offsets({AT: 7}), owner="another"), Position(2, Offsets({AT: 5})), Fenced),
    ],
)
def test_a_batch_that_would_repeat_what_the_table_has_is_refused(
    stands: Position, last: Position | None, raised: type[LakelockError]
) -> None:
    """The offsets of a table of another delivery are in its consumer group: by its own, all of it is still to be
    read."""
    query = _Query.__new__(_Query)
    query._last = last
    # Nothing else is asked: no topic, no epoch.
    work: Any = SimpleNamespace(pipeline="p", owner="me", destination=SimpleNamespace(position=lambda: stands))
    batch: Any = None
    with pytest.raises(raised) as caught:
        query._commit(work, batch, None)
    assert caught.value.hint


class Planned(Exception):
    """The batch has got as far as its plan."""


@pytest.mark.parametrize(
    ("stands", "last", "counts"),
    [
        (Position(2, Offsets({AT: 5})), Position(2, Offsets({AT: 5})), True),
        (Position(1, Offsets({AT: 3})), Position(2, Offsets({AT: 5})), False),
        (Position(2, Offsets({AT: 5}), restored_to=1), Position(2, Offsets({AT: 5})), False),
        (None, Position(2, Offsets({AT: 5})), False),
        (Position(2, Offsets({AT: 5})), None, False),
    ],
)
def test_a_look_from_before_the_position_counts_only_if_the_position_is_the_query_s_own(
    monkeypatch: pytest.MonkeyPatch, stands: Position | None, last: Position | None, counts: bool
) -> None:
    """Another run may have read records that an older look knows nothing of."""
    looks: list[str] = []

    def look(which: str) -> Any:
        looks.append(which)
        return SimpleNamespace(looked_at=None)

    def planned(*args: Any, **_: Any) -> None:
        raise Planned

    monkeypatch.setattr("connector.streaming.foreach_batch.ahead", lambda *_: None)
    monkeypatch.setattr("connector.streaming.foreach_batch.epoch_of", planned)
    query = _Query.__new__(_Query)
    query._last, query._look = last, None
    work: Any = SimpleNamespace(
        pipeline="p", owner="me", continue_on_data_loss=False,
        topics=SimpleNamespace(look=lambda: look("now"), remaining=lambda held: None),
        destination=SimpleNamespace(
            position=lambda: stands, restored=lambda position: None, tidied=lambda position: position
        ),
    )  # fmt: skip
    before: Any = SimpleNamespace(result=lambda: look("before"))
    batch: Any = None
    with pytest.raises(Planned):
        query._commit(work, batch, before)
    assert looks == ["before" if counts else "now"]
