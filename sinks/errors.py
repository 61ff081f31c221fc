"""Every error that Lakelock raises on purpose.

::

    LakelockError                   exit 1   the root: message, hint (what to do), exit_code
    +-- ConfigurationError          exit 2   the pipeline file, or what it names, is wrong; a retry can't help
    |   +-- TopicMissing            exit 2   a topic of the pipeline isn't in Kafka
    |   +-- NotADeltaTable          exit 2   the sink's path holds something else
    |   +-- SchemaMismatch          exit 2   the table's columns don't take the pipeline's rows
    |   +-- JarsMissing             exit 2   Spark's or Kafka's jars aren't there and can't be fetched
    |   +-- UnusableSchema          exit 2   a schema of the records isn't Avro, or can't be read as the reader's
    +-- Fenced                      exit 3   another run of the pipeline has committed in our place
    +-- SourceError                 exit 1   Kafka
    |   +-- BrokerUnreachable       exit 1   no broker answered in time (transient)
    |   +-- AuthenticationFailed    exit 2   the broker doesn't take the login
    |   +-- NotAuthorized           exit 2   the user lacks a right on a topic or a group
    |   +-- TlsFailed               exit 2   one side doesn't take the other's certificate
    |   +-- OffsetsLost             exit 1   stored offsets are no longer, or not yet, in the topic
    |   +-- TopicRecreated          exit 1   the topic was deleted and made again under its name
    |   +-- NotMirrored             exit 1   another cluster doesn't have what a table wants next, for sure
    |   +-- BadRecord               exit 1   a record that can't be decoded, or lacks its key
    |   +-- TooManyDeadLetters      exit 1   more of an epoch's records are bad than dead_letters.max_share allows
    |   +-- GroupActive             exit 1   the consumer group still has members (transient)
    |   +-- UnknownSchema           exit 1   the schema registry has no schema of this id or subject
    |   +-- RegistryUnreachable     exit 1   the schema registry gave no good answer in time (transient)
    +-- SinkError                   exit 1   the table
        +-- PositionMismatch        exit 1   the table holds another position than the epoch expects
        +-- TableReplaced           exit 1   the table's rows, or the table itself, were replaced by somebody else
        +-- CommitSkipped           exit 1   the store reported success but the epoch isn't in the table
        +-- CommitUnknown           exit 1   whether the commit landed could not be found out (transient)
        +-- KeyMoved                exit 1   a key turned up in a second partition
        +-- PreparedLost            exit 1   what was prepared for a decided epoch is gone
        +-- Diverged                exit 1   reading a decided epoch again gives other rows than were prepared
        +-- UnsafeStore             exit 2   the object store can't refuse a second writer
        +-- StoreUnreachable        exit 1   the object store gave no good answer in time (transient)
        +-- UnsupportedFormat       exit 1   the table was written by a newer Lakelock

``transient`` tells whether trying again, unchanged, can help. Retries are decided by it alone.
"""

from __future__ import annotations

from typing import ClassVar


class LakelockError(Exception):
    """Root of all errors: one clear paragraph, and a hint that says what the user can do."""

    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigurationError(LakelockError):
    """The pipeline file, or something that it names, is wrong: somebody has to change it."""

    exit_code = 2


class TopicMissing(ConfigurationError):
    """A topic that the pipeline names isn't in Kafka."""


class NotADeltaTable(ConfigurationError):
    """The sink's path or name holds something that isn't a Delta table."""


class SchemaMismatch(ConfigurationError):
    """The table's columns, or its settings, don't take the rows of this pipeline."""


class JarsMissing(ConfigurationError):
    """Jars that Spark or the embedded broker need are absent and could not be fetched."""


class UnusableSchema(ConfigurationError):
    """A schema of the records isn't Avro, is malformed, is recursive, or can't be read as the reader's schema."""


class Fenced(LakelockError):
    """Another run of the same pipeline has taken the epoch: this run has been replaced and must stop.

    ``owner`` is the run that won, ``epoch`` what it committed.
    """

    exit_code = 3

    def __init__(self, message: str, *, owner: str, epoch: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.owner = owner
        self.epoch = epoch


class SourceError(LakelockError):
    """Something about Kafka or the records in it."""


class BrokerUnreachable(SourceError):
    """No broker answered within the time allowed."""

    transient = True


class AuthenticationFailed(SourceError):
    """The broker doesn't take the login: its mechanism, the user, the password."""

    exit_code = 2


class NotAuthorized(SourceError):
    """The user that has logged in lacks a right: a topic or a group isn't theirs to use."""

    exit_code = 2


class TlsFailed(SourceError):
    """No connection by TLS: a certificate isn't accepted, or one side doesn't speak TLS."""

    exit_code = 2


class OffsetsLost(SourceError):
    """The next offset to read is outside what the topic holds: retention has passed it, or the log was cut. Or a rewind
    would give up what can't be read again."""


class TopicRecreated(SourceError):
    """The topic has another id than the one whose offsets are stored."""


class NotMirrored(SourceError):
    """Another cluster doesn't have what a table wants next, or not where it can be told for sure."""


class BadRecord(SourceError):
    """A record that can't be decoded or lacks its key; the message has its coordinates."""


class TooManyDeadLetters(SourceError):
    """More records are bad than the pipeline is to put up with; nothing was written."""


class GroupActive(SourceError):
    """The consumer group has members, while its offsets are to be handed over to another delivery."""

    transient = True


class UnknownSchema(SourceError):
    """The schema registry answered that it has no schema of this id, or no such subject."""


class RegistryUnreachable(SourceError):
    """The schema registry didn't answer, or only with errors of its own, until all retries were used up."""

    transient = True


class SinkError(LakelockError):
    """Something about the table that is written to."""


class PositionMismatch(SinkError):
    """The table holds another position than the one that the epoch was planned from."""


class TableReplaced(SinkError):
    """Somebody else has replaced all rows of the table, or the table: what the pipeline had written isn't there."""

    @classmethod
    def by(cls, how: str, table: str = "the table") -> TableReplaced:
        """``how``: in words, see ``Position.replaced``."""
        return cls(
            f"What the pipeline had written to {table} was replaced by somebody else: {how}. The run has stopped.",
            hint="To have the rows again: `lakelock rewind FILE --to-version N` to a version before (`lakelock history "
            "FILE` names them), or `lakelock replay FILE --into PATH` for a new table from Kafka. If the table is "
            "right as it is now, and the pipeline is to go on from its offsets: `lakelock accept FILE`.",
        )


class CommitSkipped(SinkError):
    """The store reported success, yet no commit of this epoch stands."""


class CommitUnknown(SinkError):
    """The commit may or may not have landed, and reading it back failed: the next run finds out."""

    transient = True


class KeyMoved(SinkError):
    """A key came from a second partition: offsets of two partitions can't be compared."""


class PreparedLost(SinkError):
    """What was prepared for an epoch is no longer there, and the epoch isn't committed: it has to be prepared anew."""


class Diverged(SinkError):
    """A decided epoch, read from Kafka again, gives other rows than those that were prepared and partly committed."""


class UnsafeStore(SinkError):
    """The object store lets a second writer overwrite what is there: two runs could lose one another's commits."""

    exit_code = 2


class StoreUnreachable(SinkError):
    """The object store didn't answer, or asked to slow down, until all retries were used up."""

    transient = True


class UnsupportedFormat(SinkError):
    """The table's commits were written by a newer major version of Lakelock."""
