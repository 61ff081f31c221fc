"""What the auditor says of topics that came back, or are gone from Kafka."""

from typing import Any

import pytest

from connector.audit.claim import At, Claim, Metadata
from connector.audit.topic_ends import read_twice

NOW, BEFORE = At("t", 0), At("#a/t", 0)


def meta(**changes: Any) -> Metadata:
    fields = {
        "version": 4, "epoch": 3, "offsets": {}, "since": {}, "topics": {"t": "a", "#b/t": "b", "#a/t": "a"},
        "lost": (), "delivery": "transactional",
    }  # fmt: skip
    return Metadata(**{**fields, **changes})


@pytest.mark.parametrize(
    ("began", "expected"), [(0, "Records [10, 50) of t-0 were read twice"), (40, "[40, 50)"), (50, None), (60, None)]
)
def test_what_was_read_again_of_a_topic_that_came_back_is_in_the_table_twice(began: int, expected: str | None) -> None:
    claim = Claim("transactional", {BEFORE: 10, NOW: began}, {BEFORE: 50, NOW: 70})
    said = " ".join(read_twice(meta(), claim))
    assert (expected in said) if expected else not said
    assert read_twice(meta(topics={"t": "b", "#a/t": "a"}), claim) == []
    assert read_twice(None, claim) == []
