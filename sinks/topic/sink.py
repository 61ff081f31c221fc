"""A topic as a sink: each epoch is one Kafka transaction, of the messages and of the offsets they were made from.

``prepare`` stages the messages as files: an open transaction is nothing durable, the broker aborts it when its process
is gone. ``commit`` sends what is staged, in this order:

1. a new producer under the pipeline's transactional id, which fences all others, and ends what they had begun;
2. the position, as the consumer group's committed offsets: only now, when no undecided transaction can change it;
3. the messages and, in the same transaction, the next offsets with the epoch's number in their metadata;
4. the commit, and the position once more: the commit counts when its own epoch is found there.

Why a reader with ``isolation.level=read_committed`` sees each row once. Messages of an epoch get visible with its
position or not at all: they are in one transaction. A transaction is begun only where (2) has found the position that
the epoch expects, and commits only if no other producer came after (1). So between the position that was read and the
commit there is no other commit, and no two transactions ever take the sink from one position to the next.

* A crash before (3): nothing was sent. Between (3) and (4): the messages are in the topic, in a transaction without an
  end; readers stop before it until the next (1), or the transaction's timeout, aborts it.
* A crash in or after (4), or an answer that got lost: whether it is committed is the broker's knowledge. The next
  (1) waits for its end, (2) finds the epoch or doesn't, and only what isn't there is sent.
* A process that was paused anywhere and wakes up after another one's (1) is fenced: the broker refuses its messages,
  its offsets and its commit. It starts over at (1), and finds in (2) what the other did. This may in turn fence one
  that is at work; both then try again, after a while that is drawn by lot.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sinks.contract import Committed, Epoch, Position, Prepared, describe
from sinks.errors import (
    BrokerUnreachable,
    CommitSkipped,
    CommitUnknown,
    Fenced,
    PositionMismatch,
    SinkError,
    SourceError,
)
from sinks.kafka import Clients, answering, refused
from sinks.offsets import Offsets
from sinks.spark.row_errors import raised
from sinks.spark.staging import Staging
from sinks.topic.messages import TOO_LARGE, header, in_order, messages
from sinks.topic.position import GroupPosition
from sinks.topic.target import Target
from sinks.topic.transaction import (
    Message,
    Transaction,
    is_fenced,
    is_final,
    max_request_size,
    producer_options,
    settle,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIES = 5
PART_BYTES = 32 * 1024 * 1024
"""Staged bytes that are on the driver at a time, about."""


class KafkaTopic:
    """``topic`` and the topics that are read are in one Kafka cluster. ``group`` is this sink's alone: where it keeps
    its position. ``key``: columns that the messages' key is made of. ``batch``: rows that are on the driver at a time.

    ``kafka``: options under Kafka's names. A transaction that takes longer than ``transaction.timeout.ms`` (15 minutes
    unless it is given, which is the most that brokers allow unless they are told otherwise) is aborted by the broker.
    """

    def __init__(
        self,
        topic: str,
        staging: Staging,
        *,
        pipeline: str,
        group: str,
        kafka: Mapping[str, str],
        key: Sequence[str] = (),
        batch: int = 10_000,
    ) -> None:
        self.topic = topic
        self._staging = staging
        self._pipeline = pipeline
        self._group = group
        self._kafka = dict(kafka)
        self._key = tuple(key)
        self._batch = batch
        self._clients = Clients(kafka, group=group)
        self._target = Target(topic, self._clients)
        self._checked = False
        self._offsets = GroupPosition(self._clients, pipeline=pipeline, group=group)

    @property
    def name(self) -> str:
        return f"kafka:{self.topic}"

    def close(self) -> None:
        self._clients.close()

    def position(self) -> Position | None:
        settle(self._clients, self._pipeline)
        return self._offsets.now()

    def prepare(self, epoch: Epoch, rows: DataFrame) -> Prepared:
        """Raises TopicMissing, SchemaMismatch, BrokerUnreachable; SinkError where a message is too large to be sent."""
        self._target.check()
        self._check(epoch)
        largest = min(max_request_size(self._kafka), self._target.largest() or sys.maxsize)
        found, size = messages(rows, self._key, largest)
        try:
            staged = self._staging.put(found, epoch.attempt)
        except Exception as error:
            fields = raised(error)
            if fields is None or fields["kind"] != TOO_LARGE:
                raise
            raise SinkError(
                f"The row from {fields['topic']}-{fields['partition']}, offset {fields['offset']}, would be a message "
                f"of up to {fields['size']} bytes, topic {self.topic!r} takes {largest}. Nothing of epoch "
                f"{epoch.number} was written.",
                hint="Raise the topic's max.message.bytes and, under `kafka`, max.request.size; or leave columns out.",
            ) from None
        parts = max(-(-staged.rows // self._batch), -(-size() // PART_BYTES))
        return replace(staged, receipt={**staged.receipt, "parts": str(parts), "largest": str(largest)})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Raises Fenced, PositionMismatch, PreparedLost, BrokerUnreachable, CommitUnknown; SinkError where the broker
        refuses for good."""
        from kafka.errors import KafkaError

        options = producer_options(self._kafka, int(prepared.receipt["largest"]))
        in_doubt = False
        for tried in range(TRIES):
            if tried and self._is_there_after_a_while(epoch, tried):
                return self._committed(epoch, prepared, already=not in_doubt)
            transaction = self._begun(epoch, options, in_doubt)
            if transaction is None:
                continue
            try:
                # Not before the producer was made: those that it has fenced could commit until then.
                if self._is_there(epoch, self._settled(epoch, in_doubt)):
                    return self._committed(epoch, prepared, already=not in_doubt)
                in_doubt = False
                transaction.begin()
                transaction.send(self.topic, self._messages(prepared), self._batch)
                transaction.put_offsets(self._offsets.to_commit(epoch), self._group)
                in_doubt = True
                transaction.commit()
                self._see(epoch)
                return self._committed(epoch, prepared, already=False)
            except KafkaError as error:
                if is_final(error) and not in_doubt:
                    raise refused(error, self._clients.servers) from error
            finally:
                transaction.end()
        raise CommitUnknown(
            f"Epoch {epoch.number} could not be committed to topic {self.topic!r} in {TRIES} tries: the transactions "
            f"of {self._pipeline!r} were ended, by other processes or the broker, before they were complete.",
            hint="Another process may be committing it: the next run finds out. If there is none, see what the "
            "broker's log says, and whether an epoch can be sent within `transaction.timeout.ms`.",
        )

    def abort(self, before: int) -> None:
        """What a process has sent and not committed is in a transaction that the next producer ends."""
        self._staging.clear(before)

    def ends(self) -> Offsets:
        """Where the topic ends for a ``read_committed`` reader, per partition: after all that has been committed."""
        settle(self._clients, self._pipeline)
        return self._target.ends()

    def _check(self, epoch: Epoch) -> None:
        """That the broker lets us do what ``commit`` will do: a transaction of the epoch's offsets, which is aborted.

        Once. It fences a process that is committing, which then tries again: at the start of a run that is one that
        has been replaced.
        """
        from kafka.errors import KafkaError

        if self._checked:
            return
        for topic in sorted(epoch.offsets.topics):
            # Offsets of a topic that isn't there would be offered to the broker again and again.
            Target(topic, self._clients).check()
        transaction = self._begun(epoch, producer_options(self._kafka), in_doubt=False)
        try:
            if transaction is not None:
                transaction.begin()
                transaction.put_offsets(self._offsets.to_commit(epoch), self._group)
        except KafkaError as error:
            # Any other error is one that commit has to, and does, get over.
            if is_final(error):
                raise refused(error, self._clients.servers) from error
        finally:
            if transaction is not None:
                transaction.end()
        self._checked = True

    def _begun(self, epoch: Epoch, options: Mapping[str, Any], in_doubt: bool) -> Transaction | None:
        """None: another process made a producer at the same time."""
        from kafka.errors import KafkaError

        try:
            return Transaction(self._pipeline, options)
        except KafkaError as error:
            if is_fenced(error):
                return None
            if in_doubt:
                raise self._unknown(epoch) from error
            if not error.retriable:
                raise refused(error, self._clients.servers) from error
            with answering(self._clients.servers):
                raise

    def _messages(self, prepared: Prepared) -> Iterator[Message]:
        if not prepared.rows:
            return
        rows = in_order(self._staging.get(prepared), int(prepared.receipt["parts"]))
        for key, value, topic, partition, offset in rows.toLocalIterator():
            yield Message(key, value, header(topic, partition, offset))

    def _is_there(self, epoch: Epoch, found: Position | None) -> bool:
        """Whether this very epoch is committed. Raises Fenced, PositionMismatch where it can't be any more."""
        if found is not None and (found.epoch, found.owner) == (epoch.number, epoch.owner):
            return True
        if found is not None and found.epoch >= epoch.number:
            raise Fenced(
                f"Pipeline {self._pipeline!r} was replaced: run {found.owner} has committed epoch {found.epoch} to "
                f"topic {self.topic!r}; this run ({epoch.owner}), which had epoch {epoch.number}, has stopped.",
                owner=found.owner,
                epoch=found.epoch,
                hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on.",
            )
        if not epoch.follows(found):
            raise PositionMismatch(
                f"expected {describe(epoch.expected)} in consumer group {self._group!r}, found {describe(found)}; "
                f"epoch {epoch.number} was not sent to topic {self.topic!r}",
                hint="Brokers forget the offsets of a group after offsets.retention.minutes (7 days unless set) "
                "without a commit: what the topic holds has to be compared with the source before the pipeline goes on."
                if found is None
                else "Something else has committed offsets for this group: it has to be the sink's alone.",
            )
        return False

    def _is_there_after_a_while(self, epoch: Epoch, tried: int) -> bool:
        """Who made our producer fail may be at work on this epoch: to fence it in turn would help nobody."""
        until = time.monotonic() + random.uniform(0.5, 1) * 2**tried
        while time.monotonic() < until:
            try:
                if self._is_there(epoch, self.position()):
                    return True
            except BrokerUnreachable:
                return False
            time.sleep(0.1)
        return False

    def _settled(self, epoch: Epoch, in_doubt: bool) -> Position | None:
        try:
            return self._offsets.settled(epoch.offsets)
        except (SourceError, SinkError) as error:
            if in_doubt:
                raise self._unknown(epoch) from error
            raise

    def _see(self, epoch: Epoch) -> None:
        """A client's word that it has committed is no proof. Raises CommitSkipped."""
        found = self._settled(epoch, in_doubt=True)
        if found is None or found.epoch < epoch.number or not self._is_there(epoch, found):
            raise CommitSkipped(
                f"The commit of epoch {epoch.number} to topic {self.topic!r} was reported as done, but consumer group "
                f"{self._group!r} holds {describe(found)}."
            )

    def _unknown(self, epoch: Epoch) -> CommitUnknown:
        return CommitUnknown(
            f"Whether epoch {epoch.number} is committed to topic {self.topic!r} could not be found out: Kafka at "
            f"{self._clients.servers} gives no answer any more.",
            hint="Nothing is lost, and nothing will be there twice: the next run finds out.",
        )

    def _committed(self, epoch: Epoch, prepared: Prepared, *, already: bool) -> Committed:
        settle(self._clients, self._pipeline)
        reads = {"ends": self._target.ends().to_dict()}
        return Committed(epoch.position(), rows=0 if already else prepared.rows, already=already, reads=reads)
