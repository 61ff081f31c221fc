"""Turns errors of Kafka into Lakelock's: one clear error when a broker refuses or doesn't answer, for both clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sinks.errors import (
    AuthenticationFailed,
    BadRecord,
    BrokerUnreachable,
    CorruptRecord,
    LakelockError,
    NotAuthorized,
    SinkError,
    SourceError,
    TlsFailed,
)
from sinks.kafka.options import ANSWER_WITHIN_MS
from sinks.kafka.reader import NO_TIMESTAMP

if TYPE_CHECKING:
    from kafka.errors import KafkaError

_RIGHTS = {
    "Topic": ("a topic", "The pipeline's user needs READ and DESCRIBE on every topic of source.topics."),
    "Group": (
        "a consumer group",
        "The pipeline's user needs READ on its consumer group, which is source.kafka: group.id or the pipeline's name.",
    ),
    "TransactionalId": (
        "a transactional id",
        "The pipeline's user needs WRITE and DESCRIBE on the transactional id, which is the pipeline's name.",
    ),
}

_UNANSWERED = re.compile(
    r"Cannot fetch record for offset [^\n]*"
    r"|Kafka gave no record of [^\n]*"
    r"|No resolvable bootstrap urls[^\n]*"
    r"|(?<=org\.apache\.kafka\.common\.errors\.)(?:Timeout|Disconnect)Exception[^\n]*"
)
"""What Spark's own source, the columnar reader and Kafka's client say if a broker didn't answer them in time."""

_IF_COMPACTED = (
    "If the topic has cleanup.policy: compact, brokers refuse that: set retention.ms and retention.bytes to -1, so "
    "that nothing else is deleted, and cleanup.policy to compact,delete meanwhile"
)
_UNFIT_TIMESTAMP = (
    "Its producer may write nanoseconds or a time that was never set, and has to write milliseconds since 1970. "
    "Brokers take most, unless the topic has message.timestamp.after.max.ms and message.timestamp.before.max.ms; with "
    "message.timestamp.type: LogAppendTime they write their own. To go past the record: once all before it is "
    "committed (epoch.max_records), delete the partition's records up to it with kafka-delete-records, and run once "
    f"with on_data_loss: continue and trigger: available_now. {_IF_COMPACTED}; or "
    "send the key once more, with a timestamp, and wait until compaction has removed the record."
)
"""What helps where Spark can't read a record's Kafka timestamp as it is."""


@contextmanager
def answering(servers: str, *, group: str | None = None) -> Iterator[None]:
    """Turn Kafka's errors in the block into Lakelock's. ``group`` is the consumer group in question, if any."""
    from kafka.errors import KafkaError

    try:
        yield
    except KafkaError as error:
        raise explained(error, servers, group) from error


def explained(error: KafkaError, servers: str, group: str | None = None) -> LakelockError:
    """The error to raise for kafka-python's ``error``: NotAuthorized, AuthenticationFailed, TlsFailed, CorruptRecord or
    SourceError for records that it can't read, or BrokerUnreachable."""
    from kafka.errors import AuthorizationError, CorruptRecordError, UnsupportedCodecError

    from sinks.kafka.network import LoginRefused, NoConnection, TlsRefused

    found = _innermost(error)
    if isinstance(found, AuthorizationError):
        kind = type(found).__name__.removesuffix("AuthorizationFailedError")
        return not_authorized(
            f"Kafka at {servers}", kind, f"consumer group {group!r}" if group and kind == "Group" else ""
        )
    if isinstance(found, (LoginRefused, TlsRefused)):
        meant = AuthenticationFailed if isinstance(found, LoginRefused) else TlsFailed
        return meant(f"Kafka at {servers}: {found.reason}.", hint=found.hint)
    if isinstance(found, CorruptRecordError | UnsupportedCodecError):
        # The first one may be a fault on the way, or of one broker's disk: another fetch may help.
        unreadable = CorruptRecord if isinstance(found, CorruptRecordError) else SourceError
        # Its message may have bytes of a record.
        return unreadable(
            f"Kafka at {servers} has a record that kafka-python can't read ({type(found).__name__}).",
            hint="delivery: transactional reads records by Kafka's own client, which may be able to. If not, delete "
            "the partition's records up to it with kafka-delete-records, and run once with on_data_loss: continue and "
            f"trigger: available_now. {_IF_COMPACTED}.",
        )
    why = found.reason if isinstance(found, NoConnection) else type(error).__name__
    hint = found.hint if isinstance(found, NoConnection) else ""
    return BrokerUnreachable(
        f"No Kafka broker at {servers} answered within {ANSWER_WITHIN_MS // 1000} seconds ({why}).",
        hint=hint or "Check source.kafka: bootstrap.servers, and security.protocol where the broker wants TLS or SASL.",
    )


def not_authorized(kafka: str, kind: str, name: str = "") -> NotAuthorized:
    """The error for a missing permission. ``kafka`` says which cluster, ``kind`` which resource: Topic, Group, ..."""
    what, hint = _RIGHTS.get(kind, ("what it asks for", "The pipeline's user lacks a permission (an ACL)."))
    return NotAuthorized(f"{kafka} doesn't let the pipeline's user use {name or what}.", hint=hint)


def refused(error: KafkaError, servers: str) -> LakelockError:
    """The error to raise when a retry can't help the sink: SinkError, AuthenticationFailed or TlsFailed."""
    from kafka.errors import AuthorizationError, KafkaError

    from sinks.kafka.network import LoginRefused, TlsRefused

    if isinstance(_innermost(error), (LoginRefused, TlsRefused)):
        return explained(error, servers)
    # Only KafkaError itself has a message of its own. The others repeat the request.
    said = f"{type(error).__name__}{f', {error}' if type(error) is KafkaError else ''}"
    hint = ""
    if isinstance(error, AuthorizationError):
        hint = (
            "The pipeline's user needs WRITE and DESCRIBE on the target topic and on the transactional id (the "
            "pipeline's name), and READ on the consumer group."
        )
    return SinkError(f"Kafka at {servers} refuses: {said}.", hint=hint)


def reader_refused(error: BaseException) -> LakelockError | None:
    """The error to raise for a failure of Spark's Kafka reader, on the driver or an executor, else None."""
    text = str(error)
    denied = re.search(r"\b(Topic|Group|Cluster|TransactionalId)AuthorizationException\b", text)
    if denied:
        return not_authorized("Kafka", denied[1])
    hint = (
        "kafka-python, the other client, can connect from this machine. Check that the executors reach the same "
        "brokers, and have the files that source.kafka names. The content of `${file:...}` is sent with the query."
    )
    for name, meant in {
        "SaslAuthenticationException": AuthenticationFailed,
        "SslAuthenticationException": TlsFailed,
        "LoginException": AuthenticationFailed,
        "UnsupportedSaslMechanismException": AuthenticationFailed,
    }.items():
        said = re.search(rf"\b{name}: ([^\n]*)", text)
        if said:
            if "No LoginModule found" in said[1]:
                hint = "Spark lacks the class in sasl.jaas.config. Add its jar, for AWS_MSK_IAM aws-msk-iam-auth."
            return meant(f"Kafka refuses Spark's reader: {said[1].strip()}.", hint=hint)
    missing = re.search(r"(?:InvalidConfigurationException|KafkaException): (Failed to load [^\n]*)", text)
    if missing:
        # Java 17 fails here, because it knows PBES1 only.
        key = " Java may not support the key's encryption. It does after `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`."
        return SourceError(
            f"Spark's Kafka reader can't be set up: {missing[1].strip()}.",
            hint=hint + (key if "keystore" in missing[1] else ""),
        )
    timestamp = re.search(rf"{NO_TIMESTAMP} (-?\d+|\?) (\d+) (\d+) (\S+)", text)
    if timestamp:
        millis = None if timestamp[1] == "?" else int(timestamp[1])
        return no_timestamp(timestamp[4], int(timestamp[2]), int(timestamp[3]), millis)
    named = re.search(r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+)", text)
    if named:  # by Spark 4.2
        return no_timestamp(named[1], int(named[2]), int(named[3]), int(named[4]))
    if "ArithmeticException: long overflow" in text and "KafkaRecordToRowConverter" in text:
        return BadRecord(
            "A record has a Kafka timestamp out of range. Spark's own reader doesn't say which.", hint=_UNFIT_TIMESTAMP
        )
    unanswered = _UNANSWERED.search(text)
    if unanswered:
        # A broker before 3.8 may end a fetch from remote storage after the wait, which is short: see reader.py.
        tiered = "Topics with tiered storage may need `source: {kafka: {fetch.max.wait.ms: 5000}}`."
        return BrokerUnreachable(
            f"Kafka didn't answer Spark's reader in time: {unanswered[0].strip().rstrip('.')}.",
            hint="Is a broker away? If not, check that the executors reach every broker by the address that it "
            f"advertises (advertised.listeners).{f' {tiered}' if 'record' in unanswered[0] else ''}",
        )
    return None


def no_timestamp(topic: str, partition: int, offset: int, millis: int | None) -> BadRecord:
    """The error for a record whose Kafka timestamp Spark can't read as it is.

    ``millis``: None if nobody can tell it, as Spark's own source has changed it, which it does to those before 1900.
    """
    when = "before 1900" if millis is None else f"{millis:,} milliseconds after 1970"
    return BadRecord(
        f"The record at {topic}-{partition}, offset {offset} has a Kafka timestamp out of range: {when}.",
        hint=_UNFIT_TIMESTAMP,
    )


def _innermost(error: KafkaError) -> KafkaError:
    """The original error: kafka-python puts it into the arguments of the error that it raises."""
    from kafka.errors import KafkaError

    inner = next((each for each in error.args if isinstance(each, KafkaError)), None)
    return error if inner is None else _innermost(inner)
