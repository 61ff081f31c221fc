"""Every error that Lakelock raises on purpose.

::

    LakelockError                   exit 1   the root: message, hint (what to do), exit_code
    +-- ConfigurationError          exit 2   the pipeline file, or something it names, is wrong
    |   +-- TopicMissing            exit 2   a topic of the pipeline doesn't exist in Kafka
    |   +-- NotADeltaTable          exit 2   the sink's path holds something other than a Delta table
    |   +-- SchemaMismatch          exit 2   the pipeline's rows don't fit the table's columns
    |   +-- JarsMissing             exit 2   jars of Spark or Kafka are missing and can't be downloaded
    |   +-- UnusableSchema          exit 2   a schema or a registry's answer is broken, or doesn't fit the reader's
    +-- Fenced                      exit 3   another run of the pipeline has replaced this one
    +-- SourceError                 exit 1   an error of Kafka, the records or the schema registry
    |   +-- BrokerUnreachable       exit 1   no broker answered in time (transient)
    |   +-- AuthenticationFailed    exit 2   the broker rejected the login
    |   +-- NotAuthorized           exit 2   the user lacks a permission on a topic, a group or a transactional id
    |   +-- TlsFailed               exit 2   no TLS connection could be made
    |   +-- OffsetsLost             exit 1   the topic doesn't hold the next offsets to read
    |   +-- TopicRecreated          exit 1   a topic was deleted and created again under the same name
    |   +-- NotMirrored             exit 1   the mirrored topic doesn't certainly hold the next records to read
    |   +-- BadRecord               exit 1   a record can't be decoded, lacks its key or doesn't meet `require`
    |   +-- CorruptRecord           exit 1   a record's checksum is wrong, or the broker says so (transient)
    |   +-- TooManyDeadLetters      exit 1   the share of bad records in an epoch exceeds dead_letters.max_share
    |   +-- GroupActive             exit 1   the consumer group still has members (transient)
    |   +-- OffsetsForgotten        exit 1   the consumer group has no offsets any more
    |   +-- UnknownSchema           exit 1   the registry lacks a schema, or the table has another one meanwhile
    |   |   +-- NoRecordYet         exit 1   no record shows the schema that is to be inferred
    |   +-- RegistryUnreachable     exit 1   the schema registry didn't answer in time (transient)
    +-- SinkError                   exit 1   an error of the sink
        +-- PositionMismatch        exit 1   the table holds another position than the epoch expects
        +-- TableReplaced           exit 1   another writer has replaced the table or its rows
        +-- CommitSkipped           exit 1   Delta reported success, but the table has no commit of the epoch
        +-- CommitUnknown           exit 1   it is unknown whether the commit landed (transient)
        +-- KeyMoved                exit 1   a key appeared in a second partition
        +-- PreparedLost            exit 1   the prepared rows of a decided epoch are missing
        +-- Diverged                exit 1   rereading a decided epoch gives other rows than were prepared
        +-- NotFolded               exit 1   the table lacks epochs that its change log has
        +-- UnsafeStore             exit 2   the object store can't prevent concurrent overwrites
        +-- StoreUnreachable        exit 1   the object store didn't answer in time (transient)
        +-- UnsupportedFormat       exit 1   a newer major version of Lakelock wrote the table

``transient`` says whether the same call can succeed later without a change. Retries depend on it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sinks.offsets import OffsetRange


class LakelockError(Exception):
    """The root of all errors: a message of one paragraph, and a hint that says what the user can do.

    ``exit_code`` is the exit code of the command. ``transient`` says whether a retry without a change can succeed.
    """

    exit_code: ClassVar[int] = 1
    transient: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint and hasattr(self, "add_note"):  # Python 3.11: a trace ends with it
            self.add_note(f"What to do: {hint}")


class ConfigurationError(LakelockError):
    """Raised when the pipeline file, or something that it names, is wrong. The user has to change it."""

    exit_code = 2


class TopicMissing(ConfigurationError):
    """Raised when a topic of the pipeline doesn't exist in Kafka, or the user may not see it.

    ``topic`` is its name if the pipeline reads it, None if it writes to it, or if no topic matches a pattern.
    """

    def __init__(self, message: str, *, topic: str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class NotADeltaTable(ConfigurationError):
    """Raised when the sink's path or name holds something other than a Delta table."""


class SchemaMismatch(ConfigurationError):
    """Raised when the pipeline's rows don't fit the columns or the settings of the table."""


class JarsMissing(ConfigurationError):
    """Raised when jars of Spark or of the embedded broker are missing and could not be downloaded."""


class UnusableSchema(ConfigurationError):
    """Raised when a registry's answer is broken, or a schema is malformed, recursive, not Avro, or doesn't fit the
    reader's schema."""


class Fenced(LakelockError):
    """Raised when another run of the same pipeline has committed the epoch: this run has been replaced and must stop.

    ``owner`` is the run ID of the other run, ``epoch`` the number of the epoch that it committed.
    """

    exit_code = 3

    def __init__(self, message: str, *, owner: str, epoch: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.owner = owner
        self.epoch = epoch


class SourceError(LakelockError):
    """The root of errors of Kafka, the records or the schema registry."""


class BrokerUnreachable(SourceError):
    """Raised when no broker answered in time."""

    transient = True


class AuthenticationFailed(SourceError):
    """Raised when the broker rejects the login: the SASL mechanism, the user or the password."""

    exit_code = 2


class NotAuthorized(SourceError):
    """Raised when the user may not access a topic, a consumer group or a transactional id."""

    exit_code = 2


class TlsFailed(SourceError):
    """Raised when no TLS connection can be made: one side rejects the other's certificate, or doesn't speak TLS."""

    exit_code = 2


class OffsetsLost(SourceError):
    """Raised when the topic doesn't hold the next offset to read, after retention or an unclean leader election.

    A rewind raises it when it would give up records that can't be read again.
    """


class TopicRecreated(SourceError):
    """Raised when the topic has another ID than the one whose offsets are stored: it was recreated."""


class NotMirrored(SourceError):
    """Raised by ``lakelock translate`` when the other cluster doesn't hold the next records, or not certainly."""


class BadRecord(SourceError):
    """Raised for a record that can't be decoded, lacks its key or doesn't meet ``require``. The message says which."""

    record: OffsetRange | None = None
    """Where the record is, if it can't be decoded."""
    detail: str = ""
    """The words of the message that say what is wrong with it."""


class CorruptRecord(SourceError):
    """Raised when a record comes with a wrong checksum, or the broker says so. The next fetch may bring it whole."""

    transient = True


class TooManyDeadLetters(SourceError):
    """Raised when the share of bad records in an epoch exceeds ``dead_letters.max_share``. Nothing was written."""


class GroupActive(SourceError):
    """Raised when the consumer group has members while its offsets are handed over to another delivery."""

    transient = True


class OffsetsForgotten(SourceError):
    """Raised when the consumer group has no offsets any more, and so nobody knows where its pipeline stood."""


class UnknownSchema(SourceError):
    """Raised when the schema registry lacks a schema ID or subject, or a table got another schema meanwhile."""


class NoRecordYet(UnknownSchema):
    """Raised when there is no record yet that could show the schema that is to be inferred."""


class RegistryUnreachable(SourceError):
    """Raised when the schema registry didn't answer, or only with server errors, until the retries were used up."""

    transient = True


class SinkError(LakelockError):
    """The root of errors of the sink."""


class PositionMismatch(SinkError):
    """Raised when the table holds another position than the one that the epoch was planned from."""


class TableReplaced(SinkError):
    """Raised when another writer has replaced the table or all of its rows, so that the pipeline's rows are gone.

    Also when the topic of a sink was deleted and created again.
    """

    @classmethod
    def by(cls, how: str, table: str = "the table") -> TableReplaced:
        """An error that says how the rows were replaced. ``how`` is a clause, see ``Position.replaced``."""
        return cls(
            f"What the pipeline had written to {table} was replaced by somebody else: {how}. The run has stopped.",
            hint="To have the rows again: `lakelock rewind FILE --to-version N` to a version before (of several tables "
            "--to-epoch N; `lakelock history FILE` names them), or `lakelock replay FILE --into PATH` for a new table "
            "from Kafka. If the table is right as it is now, and the pipeline is to go on from its offsets: "
            "`lakelock accept FILE`.",
        )


class CommitSkipped(SinkError):
    """Raised when Delta reported success, but the table has no commit of this epoch."""


class CommitUnknown(SinkError):
    """Raised when the commit may have landed and reading it back failed. The next run finds out."""

    transient = True


class KeyMoved(SinkError):
    """Raised when a key appears in a second partition, because offsets of two partitions can't be compared."""


class PreparedLost(SinkError):
    """Raised when the prepared rows of an epoch that isn't committed are missing. It must be prepared again."""


class Diverged(SinkError):
    """Raised when a decided epoch that is partly committed gives other rows when it is read from Kafka again, or would
    be committed by other options than those that have reduced its rows."""


class NotFolded(SinkError):
    """Raised when a reader wants the current rows, and epochs in the change log aren't folded into the table yet."""


class UnsafeStore(SinkError):
    """Raised when the object store lets one writer overwrite the commit of another, so that commits could be lost."""

    exit_code = 2


class StoreUnreachable(SinkError):
    """Raised when the object store didn't answer, or throttled the requests, until the retries were used up."""

    transient = True


class UnsupportedFormat(SinkError):
    """Raised when a newer major version of Lakelock wrote the table's commits."""
