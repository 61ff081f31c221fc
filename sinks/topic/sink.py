"""The Kafka topic sink: each epoch is one Kafka transaction, with the messages and the offsets they were made from.

``prepare`` stages the messages as files, because an open transaction isn't durable: the broker aborts it when its
process is gone. ``commit`` sends the staged messages, in this order:

1. Create a new producer under the pipeline's transactional id. This fences all others, and ends their transactions.
2. Read the position, the consumer group's committed offsets. Only now can no undecided transaction change it.
3. Send the messages and, in the same transaction, the next offsets with the epoch's number in their metadata.
4. Commit the transaction and read the position again. The commit counts if the position has its own epoch.

Why a reader with ``isolation.level=read_committed`` sees each row once: the messages of an epoch become visible
together with its position or not at all, because they are in one transaction. A transaction begins only if (2) has read
the position that the epoch expects, and commits only if no other producer was created after (1). So no other commit
happens between reading the position and the commit, and no two transactions take the sink from one position to the
next.

* A crash before (3): nothing was sent. Between (3) and (4): the messages are in the topic, in an unfinished
  transaction. Readers stop before it until the next (1), or the transaction's timeout, aborts it.
* A crash in or after (4), or a lost answer: only the broker knows whether the transaction is committed. The next (1)
  waits for its end, (2) finds the epoch or not, and only a missing epoch is sent.
* A process that was paused anywhere and wakes up after another process's (1) is fenced: the broker refuses its
  messages, its offsets and its commit. It starts over at (1), and sees in (2) what the other process did. This may in
  turn fence a process that is active. Both then retry after a random wait.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Container, Iterator, Mapping, Sequence
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
    TableReplaced,
)
from sinks.kafka import Clients, answering, refused
from sinks.offsets import Offsets
from sinks.spark.row_errors import raised
from sinks.spark.staging import Staging
from sinks.topic.messages import HEADER, TOO_LARGE, header, in_order, messages
from sinks.topic.position import GroupPosition
from sinks.topic.sent import sent
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
"""About how many staged bytes are on the driver at a time."""


class KafkaTopic:
    """A sink that writes to ``topic``, in the Kafka cluster of the source.

    ``group`` stores the position, and must be used by this sink alone. ``key`` are the columns of the message key, and
    ``batch`` is the number of rows on the driver at a time. ``kafka`` are options under Kafka's names.

    The broker aborts a transaction that takes longer than ``transaction.timeout.ms``. The default is 15 minutes, which
    is the most that brokers allow by default.
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
        topics: Container[str] | None = None,
    ) -> None:
        """``topics``: those that the pipeline reads, see ``GroupPosition``."""
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
        self._offsets = GroupPosition(self._clients, pipeline=pipeline, group=group, target=topic, topics=topics)
        self._accepts = False

    @property
    def name(self) -> str:
        """The sink's name in the coordinator log."""
        return f"kafka:{self.topic}"

    def close(self) -> None:
        """Close the Kafka clients."""
        self._clients.close()

    def position(self) -> Position | None:
        """The committed position, or None before the first commit.

        Raises TableReplaced if the target topic was deleted and created again, with its messages gone.
        """
        settle(self._clients, self._pipeline)
        return self._of_this_topic(self._offsets.now())

    def accept(self) -> bool:
        """Go on with a target topic that was created again, from the next commit on. Returns whether it may be."""
        settle(self._clients, self._pipeline)
        found = self._offsets.now()
        self._accepts = True
        return found is None or bool(found.replaced)

    def remind(self, epoch: Epoch, reads: Mapping[str, Any], *, done: bool) -> Position | None:
        """Commit the offsets of the group anew, which Kafka has forgotten. See ``sinks.optional.Forgetful``.

        The messages stay as they are. A crash on the way leaves no offsets, or all of them. A process that was fenced
        here finds them, and goes on. Raises PositionMismatch, TableReplaced, BrokerUnreachable or CommitUnknown.
        """
        from kafka.errors import KafkaError

        if not self._accepts:
            self._refuse_other_topic(str(reads.get("id", "")), Offsets.from_dict(reads.get("ends", {})))
        for tried in range(TRIES):
            transaction = self._begun(epoch, producer_options(self._kafka), in_doubt=False)
            if transaction is None:
                time.sleep(random.uniform(0.5, 1) * 2**tried)
                continue
            try:
                # Nobody else can commit from here on, unless it fences this producer.
                found = self._settled(epoch, in_doubt=False)
                if found is not None:
                    return self._of_this_topic(found)
                held = epoch if done else self._found_out(epoch, Offsets.from_dict(reads.get("ends", {})))
                if held is None:
                    return None
                transaction.begin()
                transaction.put_offsets(self._offsets.to_commit(held), self._group)
                transaction.commit()
            except KafkaError as error:
                if is_final(error):
                    raise refused(error, self._clients.servers) from error
            finally:
                transaction.end()
        raise self._unknown(epoch)

    def prepare(self, epoch: Epoch, rows: DataFrame) -> Prepared:
        """Stage the messages.

        Raises TopicMissing, SchemaMismatch or BrokerUnreachable, and SinkError if a message is too large.
        """
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
                f"of up to {fields['size']} bytes, but topic {self.topic!r} takes {largest}. Nothing of epoch "
                f"{epoch.number} was written.",
                hint="Raise the topic's max.message.bytes and, under `kafka`, max.request.size, or send fewer columns.",
            ) from None
        parts = max(-(-staged.rows // self._batch), -(-size() // PART_BYTES))
        return replace(staged, receipt={**staged.receipt, "parts": str(parts), "largest": str(largest)})

    def commit(self, epoch: Epoch, prepared: Prepared) -> Committed:
        """Send the staged messages in one transaction, unless the epoch is committed already.

        Raises Fenced, PositionMismatch, PreparedLost, BrokerUnreachable or CommitUnknown, and SinkError if the broker
        refuses in a way that a retry can't help.
        """
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
                # Read it only after creating the producer: until then, producers that it fences could still commit.
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
            f"Epoch {epoch.number} could not be committed to topic {self.topic!r} in {TRIES} attempts: other processes "
            f"or the broker ended the transactions of {self._pipeline!r} before they were complete.",
            hint="Another process may be committing the epoch: the next run finds out. If there is none, check the "
            "broker's log, and whether an epoch can be sent within `transaction.timeout.ms`.",
        )

    def abort(self, before: int) -> None:
        """Remove rows staged under attempts below ``before``. The next producer ends any unfinished transaction."""
        self._staging.clear(before)

    def ends(self) -> Offsets:
        """The topic's end offset per partition for a ``read_committed`` reader, after all committed transactions."""
        settle(self._clients, self._pipeline)
        return self._target.ends()

    def _found_out(self, epoch: Epoch, after: Offsets) -> Epoch | None:
        """The epoch if its messages are in the topic, else the one before. Raises PositionMismatch if nothing shows."""
        read = sum(range_.span for range_ in epoch.ranges)
        there = sent(epoch.ranges, after, self._target, self._clients, self._kafka) if read else False
        if isinstance(there, str):
            ranges = ", ".join(map(str, epoch.ranges))
            raise PositionMismatch(
                f"Kafka has forgotten the offsets of consumer group {self._group!r}, which say whether epoch "
                f"{epoch.number} is in topic {self.topic!r}, and the topic doesn't show it: {there}. Nothing was "
                "written.",
                hint=f"The epoch reads {ranges}, and each message names its record in the header {HEADER!r}. Go on "
                "with a pipeline file of another name, in new places, from a source.start behind what readers of the "
                "topic have. Brokers forget a group's offsets after offsets.retention.minutes (7 days by default).",
            )
        if there:
            return epoch
        return Epoch.that_left(epoch.expected, pipeline=self._pipeline) if epoch.expected is not None else None

    def _of_this_topic(self, found: Position | None) -> Position | None:
        if found is not None and found.replaced and not self._accepts:
            raise self._replaced(found.replaced)
        return found

    def _refuse_other_topic(self, topic_id: str, ends: Offsets) -> None:
        """Raises TableReplaced if the target isn't the topic with this id, or is shorter than it was."""
        if topic_id not in ("", self._target.id()):
            raise self._replaced(f"topic {self.topic!r} was deleted, and one of its name was created")
        if not self._target.ends().reaches(ends):
            raise self._replaced(f"topic {self.topic!r} has lost messages at its end, as a topic that is created again")

    def _replaced(self, how: str) -> TableReplaced:
        return TableReplaced(
            f"The messages that the pipeline had written are gone: {how}. Nothing was written.",
            hint="If the topic is to go on without them: `lakelock accept FILE`. To have all messages again, write to "
            "a new topic by a pipeline file of another name, with new places for all sinks.",
        )

    def _check(self, epoch: Epoch) -> None:
        """Check that the broker permits what ``commit`` will do, with a transaction of the offsets that is aborted.

        This happens once per process. It fences a process that is committing, which then retries. At the start of a
        run such a process has been replaced.
        """
        from kafka.errors import KafkaError

        if self._checked:
            return
        for topic in sorted({range_.topic for range_ in epoch.ranges}):
            # kafka-python would offer the offsets of a missing topic to the broker again and again.
            Target(topic, self._clients).check()
        transaction = self._begun(epoch, producer_options(self._kafka), in_doubt=False)
        try:
            if transaction is not None:
                transaction.begin()
                transaction.put_offsets(self._offsets.to_commit(epoch), self._group)
        except KafkaError as error:
            # ``commit`` has to handle all other errors, and does.
            if is_final(error):
                raise refused(error, self._clients.servers) from error
        finally:
            if transaction is not None:
                transaction.end()
        self._checked = True

    def _begun(self, epoch: Epoch, options: Mapping[str, Any], in_doubt: bool) -> Transaction | None:
        """A new transaction. None if another process created a producer at the same time."""
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
        """Whether this very epoch is committed. Raises Fenced, PositionMismatch or TableReplaced if it can't be."""
        self._of_this_topic(found)
        if found is not None and (found.epoch, found.owner) == (epoch.number, epoch.owner):
            return True
        if found is not None and found.epoch >= epoch.number:
            raise Fenced(
                f"Pipeline {self._pipeline!r} was replaced: run {found.owner} has committed epoch {found.epoch} to "
                f"topic {self.topic!r}; this run ({epoch.owner}), which had epoch {epoch.number}, has stopped.",
                owner=found.owner,
                epoch=found.epoch,
                hint="Two runs of one pipeline were active. Nothing is lost: the other run continues.",
            )
        if not epoch.follows(found):
            raise PositionMismatch(
                f"expected {describe(epoch.expected)} in consumer group {self._group!r}, found {describe(found)}; "
                f"epoch {epoch.number} was not sent to topic {self.topic!r}",
                hint="Brokers forget the offsets of a group without commits after offsets.retention.minutes (7 days by "
                "default). Compare the topic's messages with the source before the pipeline continues."
                if found is None
                else "Something else has committed offsets for this group, which only the sink may use.",
            )
        return False

    def _is_there_after_a_while(self, epoch: Epoch, tried: int) -> bool:
        """Wait for the process that fenced our producer, which may be committing this epoch, and look for the epoch."""
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
        """Read the commit back, because a client's success message is no proof. Raises CommitSkipped."""
        found = self._settled(epoch, in_doubt=True)
        if found is None or found.epoch < epoch.number or not self._is_there(epoch, found):
            raise CommitSkipped(
                f"The commit of epoch {epoch.number} to topic {self.topic!r} was reported as successful, but consumer "
                f"group {self._group!r} holds {describe(found)}."
            )

    def _unknown(self, epoch: Epoch) -> CommitUnknown:
        return CommitUnknown(
            f"It is unknown whether epoch {epoch.number} is committed to topic {self.topic!r}: Kafka at "
            f"{self._clients.servers} doesn't answer any more.",
            hint="Nothing is lost, and nothing will be there twice: the next run finds out.",
        )

    def _committed(self, epoch: Epoch, prepared: Prepared, *, already: bool) -> Committed:
        settle(self._clients, self._pipeline)
        reads = {"ends": self._target.ends().to_dict(), "id": self._target.id()}
        return Committed(epoch.position(), rows=0 if already else prepared.rows, already=already, reads=reads)
