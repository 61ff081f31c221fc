"""Headers whose names aren't UTF-8: Kafka takes them, and Java's client replaces what it can't decode."""

import pytest
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

import sinks.kafka.network  # noqa: F401
from sinks.errors import BrokerUnreachable, CorruptRecord, SourceError
from sinks.kafka import answering


class Latin(str):
    """A name that goes to the wire in another encoding."""

    def encode(self, *_: object) -> bytes:
        return super().encode("latin-1")


@pytest.mark.parametrize("compression", [0, 1])
def test_a_header_whose_name_is_not_utf_8_makes_no_record_unreadable(compression: int) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=100_000)
    sent = [("größe", b"0"), (Latin("größe"), b"1"), ("größe", None), (Latin("größe"), b"3")]
    for number, header in enumerate(sent):
        builder.append(timestamp=number, key=b"k", value=b"v%d" % number, headers=[header])
    builder.close()
    batch = MemoryRecords(builder.buffer()).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    assert [(record.value, record.headers) for record in batch] == [
        (b"v0", [("größe", b"0")]),
        (b"v1", [("gr\ufffd\ufffde", b"1")]),
        (b"v2", [("größe", None)]),
        (b"v3", [("gr\ufffd\ufffde", b"3")]),
    ]


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (CorruptRecordError("b'secret'"), CorruptRecord),
        (UnsupportedCodecError("b'secret'"), SourceError),
        (KafkaError("other"), BrokerUnreachable),
    ],
)
def test_a_record_that_cannot_be_read_is_no_broker_that_does_not_answer(
    error: KafkaError, meant: type[SourceError]
) -> None:
    with pytest.raises(SourceError) as caught, answering("there:1"):
        raise error
    assert type(caught.value) is meant
    # Of the broker's own word, or a checksum that doesn't fit, another fetch may bring the record whole.
    assert caught.value.transient == (meant is not SourceError)
    if meant is not BrokerUnreachable:
        assert "secret" not in str(caught.value)
        assert "on_data_loss: continue" in caught.value.hint
