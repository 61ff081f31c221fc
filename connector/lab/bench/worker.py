"""The processes of the scenarios: each is given one job, does it with kafka-python, and may kill itself on the way.

``python -m connector.lab.bench.worker JOB OPTIONS``: the name of a class of this module, and its fields as JSON.
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

    ``commit_first``: the offsets of a batch are committed before its records are processed, else after them.
    ``die_after``: SIGKILL when this many records are processed; 0 is never.
    """

    bootstrap: str
    topic: str
    ledger: str
    batch: int
    commit_first: bool
    die_after: int = 0

    def run(self) -> None:
        """Do the job in this process; may end by SIGKILL."""
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
    """Read a topic's only partition, send an e-mail per record (a line of the ledger), and copy it to ``output``.

    Each batch is one Kafka transaction: its copies and its offsets. ``die``: SIGKILL before the first is committed.
    """

    bootstrap: str
    topic: str
    output: str
    ledger: str
    batch: int
    die: bool = False

    def run(self) -> None:
        """Do the job in this process; may end by SIGKILL."""
        producer = _transactional(self.bootstrap, self.topic)
        consumer = _consumer(self.bootstrap, self.topic)
        for records in _batches(consumer, self.topic, self.batch):
            producer.begin_transaction()
            for record in records:
                _append(self.ledger, record)
                producer.send(self.output, record.value, partition=0)
            following = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({TopicPartition(self.topic, 0): following}, consumer.group_metadata())
            # So that the broker has all of it, and only the commit is missing.
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
    """Send messages one by one; each counts as sent when the broker's acknowledgement is there."""

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
    """Send messages in a transaction that is aborted, then others in one that is committed."""

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
            # An abort would throw away what hasn't been sent yet, and the topic would never have held it.
            producer.flush()
            end()
            _say(f"{messages[0]}..{messages[-1]}: {end.__name__}")
        producer.close()


Job: TypeAlias = Consume | Transform | Send | Transact
_JOBS: dict[str, type[Job]] = {job.__name__: job for job in (Consume, Transform, Send, Transact)}


def run(job: Job, *, dies: bool = False) -> list[str]:
    """Do a job in a process of its own, and return the lines that it printed.

    ``dies``: it must end by SIGKILL. Raises `LakelockError` when it ends in another way than it should, or not within
    a minute.
    """
    command = [sys.executable, "-m", "connector.lab.bench.worker", type(job).__name__, json.dumps(asdict(job))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise LakelockError(f"The worker was not done within {LIMIT_SECONDS} seconds: {job}") from late
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
        # A static member: one that is started again takes over at once from the one that was killed.
        group_instance_id="worker",
        session_timeout_ms=3_000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )


def _transactional(bootstrap: str, name: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, retry_backoff_ms=50)
    # Aborts what a killed producer of this name has left open.
    producer.init_transactions()
    return producer


def _batches(consumer: KafkaConsumer, topic: str, size: int) -> Iterator[list[ConsumerRecord]]:
    """Batches of exactly ``size`` records, up to the present end, where a smaller one may remain."""
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
    """Processing: one line that is on disk when this returns, so that no kill can take it back."""
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
    # A kill leaves no time to flush.
    print(line, flush=True)


def main() -> None:
    """Do the job that ``sys.argv`` names."""
    name, options = sys.argv[1:]
    # Nobody waits longer, not even when the process that started this one is gone.
    signal.alarm(LIMIT_SECONDS + 5)
    _JOBS[name](**json.loads(options)).run()


if __name__ == "__main__":
    main()
