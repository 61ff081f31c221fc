"""What a checkpoint of Structured Streaming says, as Spark 4.1 writes it."""

import pytest

from connector.streaming.checkpoint import initial, logged
from sinks.offsets import Offsets, TopicPartition

SPARKS = '{"batchWatermarkMs":0,"batchTimestampMs":1795402449137,"conf":{}}'


def test_a_batch_ends_where_its_only_source_does() -> None:
    found = logged(f'v1\n{SPARKS}\n{{"t":{{"0":2,"1":1}}}}')
    assert found == Offsets({TopicPartition("t", 0): 2, TopicPartition("t", 1): 1})


def test_the_first_batch_starts_where_the_source_began_behind_a_zero_byte() -> None:
    assert initial('\0v1\n{"t":{"0":7}}') == Offsets({TopicPartition("t", 0): 7})


@pytest.mark.parametrize(
    "text",
    [
        f'v2\n{SPARKS}\n{{"t":{{"0":2}}}}',
        f'v1\n{SPARKS}\n{{"t":{{"0":2}}}}\n{{"t":{{"0":2}}}}',
        f"v1\n{SPARKS}",
        f"v1\n{SPARKS}\n-",
        f"v1\n{SPARKS}\n7",
        f'v1\n{SPARKS}\n{{"logOffset":3}}',
        "",
    ],
    ids=["a newer version", "two sources", "no source", "no offset", "rate", "files", "empty"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        logged(text)
