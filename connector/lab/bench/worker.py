"""The processes of the scenarios. Each does one job with kafka-python, and may kill itself in the middle.

``python -m connector.lab.bench.worker JOB OPTIONS``: JOB is a class of this module, and OPTIONS are its fields as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata

from sinks.errors import LakelockError

LIMIT_SECONDS = 60


@dataclass(frozen=True)
class Consume:
    """Read a topic's only partition in batches up to its present end, and write each record into a ledger.

    ``commit_first``: commit the offsets of a batch before its records are processed, otherwise after them.
    ``die_after``: the number of processed records after which SIGKILL ends the process, 0 for never.
    """

    bootstrap: str
    topic: str
    ledger: str
    batch: int
    commit_first: bool
    die_after: int = 0

    def run(self) -> None:
        """Do the job in this process. May end the process by SIGKILL."""
        consumer = _consumer(self.bootstrap, self.topic)
        done = 0
        for records in _batches(consumer, self.topic, self.batch):
            if self.commit_first:
                self._commit(consumer, records)
            for record in records:
                _append(self.ledger, record)
                done += 1
                if done == self.die_after:
                    _say(f"processed up to {_text(record)}, then SIGKILL")
                    os.kill(os.getpid(), signal.SIGKILL)
            _say(f"processed {_range(records)}")
            if not self.commit_first:
                self._commit(consumer, records)
        consumer.close()

    def _commit(self, consumer: KafkaConsumer, records: Sequence[ConsumerRecord]) -> None:
        consumer.commit()
        _say(f"committed offset {records[-1].offset + 1}")


@dataclass(frozen=True)
class Transform:
    """Read a topic's only partition, send an e-mail per record (a line of the ledger), and copy records to ``output``.

    Each batch is one Kafka transaction with its copies and its offsets. ``die``: SIGKILL before the first commit.
    """

    bootstrap: str
    topic: str
    output: str
    ledger: str
    batch: int
    die: bool = False

    def run(self) -> None:
        """Do the job in this process. May end the process by SIGKILL."""
        producer = _transactional(self.bootstrap, self.topic)
        consumer = _consumer(self.bootstrap, self.topic)
        for records in _batches(consumer, self.topic, self.batch):
            producer.begin_transaction()
            for record in records:
                _append(self.ledger, record)
                producer.send(self.output, record.value, partition=0)
            following = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({TopicPartition(self.topic, 0): following}, consumer.group_metadata())
            # After this, the broker has the whole batch, and only the commit is missing.
            producer.flush()
            _say(f"e-mails for {_range(records)} sent, copies and offset {following.offset} in a transaction")
            if self.die:
                _say("SIGKILL before its commit")
                os.kill(os.getpid(), signal.SIGKILL)
            producer.commit_transaction()
            _say("transaction committed")
        consumer.close()
        producer.close()


@dataclass(frozen=True)
class Send:
    """Send messages one by one. Each waits for the broker's acknowledgement of the one before."""

    bootstrap: str
    topic: str
    messages: Sequence[str]
    idempotent: bool

    def run(self) -> None:
        """Do the job in this process."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=self.idempotent,
            request_timeout_ms=5_000,
            retry_backoff_ms=50,
        )
        for message in self.messages:
            acknowledged = producer.send(self.topic, message.encode(), partition=0).get(LIMIT_SECONDS)
            _say(f"{message} acknowledged at offset {acknowledged.offset}")
        producer.close()


@dataclass(frozen=True)
class Transact:
    """Send messages in a transaction that is aborted, then others in a transaction that is committed."""

    bootstrap: str
    topic: str
    aborted: Sequence[str]
    committed: Sequence[str]

    def run(self) -> None:
        """Do the job in this process."""
        producer = _transactional(self.bootstrap, self.topic)
        for messages, end in (
            (self.aborted, producer.abort_transaction),
            (self.committed, producer.commit_transaction),
        ):
            producer.begin_transaction()
            for message in messages:
                producer.send(self.topic, message.encode(), partition=0)
            # Without this, an abort would discard messages before they reach the topic.
            producer.flush()
            end()
            _say(f"{messages[0]}..{messages[-1]}: {end.__name__}")
        producer.close()


Job: TypeAlias = Consume | Transform | Send | Transact
_JOBS: dict[str, type[Job]] = {job.__name__: job for job in (Consume, Transform, Send, Transact)}


def run(job: Job, *, dies: bool = False) -> list[str]:
    """Do a job in a new process. Returns the lines that the process printed.

    ``dies``: the process must end by SIGKILL. Raises `LakelockError` if it ends in another way, or not within a minute.
    """
    command = [sys.executable, "-m", "connector.lab.bench.worker", type(job).__name__, json.dumps(asdict(job))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise LakelockError(f"The worker did not end within {LIMIT_SECONDS} seconds: {job}") from late
    if done.returncode != (-signal.SIGKILL if dies else 0):
        raise LakelockError(
            f"The worker ended with exit code {done.returncode}: {job}\n{done.stdout}{done.stderr[-2000:]}"
        )
    return done.stdout.splitlines()


def _consumer(bootstrap: str, topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        # As a static member, a restarted process takes over at once from the killed one.
        group_instance_id="worker",
        session_timeout_ms=3_000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )


def _transactional(bootstrap: str, name: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, retry_backoff_ms=50)
    # This aborts an open transaction of a killed producer with the same name.
    producer.init_transactions()
    return producer


def _batches(consumer: KafkaConsumer, topic: str, size: int) -> Iterator[list[ConsumerRecord]]:
    """Batches of exactly ``size`` records up to the present end. The last batch may be smaller."""
    place = TopicPartition(topic, 0)
    end = consumer.end_offsets([place])[place]
    batch: list[ConsumerRecord] = []
    over = False
    while not over:
        for records in consumer.poll(timeout_ms=200, max_records=size - len(batch)).values():
            batch += records
        over = place in consumer.assignment() and consumer.position(place) >= end
        if len(batch) == size or (over and batch):
            yield batch
            batch = []


def _append(ledger: str, record: ConsumerRecord) -> None:
    """Process a record: write a line to disk, so that no kill can lose it."""
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(f"{_text(record)}\n")
        file.flush()
        os.fsync(file.fileno())


def _text(record: ConsumerRecord) -> str:
    value: bytes = record.value
    return value.decode()


def _range(records: Sequence[ConsumerRecord]) -> str:
    return f"{_text(records[0])}..{_text(records[-1])}"


def _say(line: str) -> None:
    # Flushed at once, because a kill leaves no time to do so.
    print(line, flush=True)


def main() -> None:
    """Do the job that ``sys.argv`` names."""
    name, options = sys.argv[1:]
    # Ends this process even if the process that started it is gone.
    signal.alarm(LIMIT_SECONDS + 5)
    _JOBS[name](**json.loads(options)).run()


if __name__ == "__main__":
    main()
