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
        query._commit(work, batch)
    assert caught.value.hint
