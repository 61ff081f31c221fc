"""The classic ways to lose and to duplicate records, shown with a real broker and real processes.

A scenario holds if the observed facts are those that are expected in theory. If nothing breaks where something must,
the scenario has failed. The facts are read from the ledger file and from Kafka, not from the processes' output.
"""

from __future__ import annotations

import inspect
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import OffsetSpec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from connector.lab.bench import worker
from connector.lab.bench.broker import Broker, wait
from connector.lab.bench.data import produce
from sinks.errors import LakelockError

BATCH = 10
MESSAGES = tuple(f"M{number}" for number in range(1, 16))
KILLED_AFTER = 5
"""The number of processed messages when the process is killed, in the middle of the first batch."""


@dataclass(frozen=True)
class Facts:
    """The messages that are not there exactly once, in their own order. ``wrong``: messages that should not exist."""

    lost: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def compare(should: Sequence[str], found: Sequence[str]) -> Facts:
    """Compare the messages ``found`` with the messages ``should``, each of which is expected once."""
    times = Counter(found)
    return Facts(
        lost=tuple(message for message in should if not times[message]),
        duplicated=tuple(message for message in should if times[message] > 1),
        wrong=tuple(dict.fromkeys(message for message in found if message not in should)),
    )


@dataclass(frozen=True)
class Outcome:
    """The result of a scenario. ``expected`` and ``observed``: facts by variant. ``timeline``: lines for people."""

    name: str
    explanation: str
    expected: Mapping[str, Facts]
    observed: Mapping[str, Facts]
    timeline: Sequence[str]

    @property
    def held(self) -> bool:
        """Whether exactly what theory expects was observed."""
        return dict(self.expected) == dict(self.observed)

    def to_dict(self) -> dict[str, object]:
        """The outcome as plain JSON values."""
        return {
            "name": self.name,
            "explanation": self.explanation,
            "held": self.held,
            "expected": {variant: asdict(facts) for variant, facts in self.expected.items()},
            "observed": {variant: asdict(facts) for variant, facts in self.observed.items()},
            "timeline": list(self.timeline),
        }


def commit_first(broker: Broker) -> Outcome:
    """Offsets are committed before the records are processed, as auto-commit may do: at most once.

    The consumer commits a batch of ten, processes five of them and is killed. Kafka's committed offset says that all
    ten are done, so the next run starts after them. Nobody will ever process the other five.
    """
    return _killed_in_mid_batch(broker, commit_first, Facts(lost=MESSAGES[KILLED_AFTER:BATCH]))


def write_first(broker: Broker) -> Outcome:
    """Records are processed before their offsets are committed: at least once.

    The consumer is the same, and the kill comes again after the fifth record of ten. Only the order of the two steps
    is reversed. The committed offset is still that before the batch, so the next run processes the first five again.
    """
    return _killed_in_mid_batch(broker, write_first, Facts(duplicated=MESSAGES[:KILLED_AFTER]))


def lost_acknowledgement(broker: Broker) -> Outcome:
    """The broker stores a record, and the network loses its acknowledgement. The producer can only send it again.

    Without enable.idempotence, the broker takes the retry for a new record, and the topic holds the record twice. With
    enable.idempotence, the retry carries the producer's id and the same sequence number. So the broker recognizes the
    record and only acknowledges it again.
    """
    timeline: list[str] = []
    observed = {}
    for variant, idempotent in (("without idempotence", False), ("with idempotence", True)):
        topic = _topic(broker, "acknowledgement")
        with broker.proxy() as proxy, proxy.drop_response() as acknowledgement:
            said = worker.run(worker.Send(proxy.bootstrap, topic, MESSAGES[:3], idempotent))
        if acknowledgement.lost != 1:
            raise LakelockError("The proxy should have lost one acknowledgement, but saw none.")
        messages = _read(broker, topic)
        timeline += [f"{variant}: the proxy lost the first acknowledgement", *_indented(said)]
        timeline.append(f"{variant}: the topic holds {' '.join(messages)}")
        observed[variant] = compare(MESSAGES[:3], messages)
    expected = {"without idempotence": Facts(duplicated=MESSAGES[:1]), "with idempotence": Facts()}
    return _outcome(lost_acknowledgement, expected, observed, timeline)


def read_uncommitted(broker: Broker) -> Outcome:
    """A transaction is aborted, and the next one is committed. The abort removes nothing from the topic.

    The aborted records stay in the log, followed by a marker. A consumer with isolation.level=read_committed skips
    them. With read_uncommitted, which is Kafka's default, the consumer gets records that were never committed.
    """
    topic = _topic(broker, "isolation")
    aborted, committed = ("A1", "A2", "A3"), ("C1", "C2", "C3")
    timeline = worker.run(worker.Transact(broker.bootstrap, topic, aborted, committed))
    observed = {}
    for level in ("read_uncommitted", "read_committed"):
        messages = _read(broker, topic, level)
        timeline.append(f"{level} sees {' '.join(messages)}")
        observed[level] = compare(committed, messages)
    expected = {"read_uncommitted": Facts(wrong=aborted), "read_committed": Facts()}
    return _outcome(read_uncommitted, expected, observed, timeline)


def side_effect(broker: Broker) -> Outcome:
    """A Kafka transaction covers only what is in Kafka: the output records and the input's offsets, both or none.

    The process also sends an e-mail per record (here: a line in a file), and is killed just before it commits the
    transaction. The next run aborts that transaction and repeats the batch. A reader of the output with
    read_committed sees each record exactly once, but the abort can't call an e-mail back.
    """
    topic, output = _topic(broker, "input"), _topic(broker, "output")
    _produce(broker, topic)
    with _ledger() as ledger:
        first = worker.Transform(broker.bootstrap, topic, output, str(ledger), BATCH, die=True)
        timeline = ["first run", *_indented(worker.run(first, dies=True))]
        timeline.append(f"committed offset after the kill: {_committed(broker, topic) or 'none'}")
        again = worker.Transform(broker.bootstrap, topic, output, str(ledger), BATCH)
        timeline += ["second run", *_indented(worker.run(again))]
        e_mails = _lines(ledger)
    results = {
        "output, read_committed": _read(broker, output, "read_committed"),
        "output, read_uncommitted": _read(broker, output),
        "e-mails": e_mails,
    }
    timeline += [f"{variant}: {len(messages)} for {len(MESSAGES)} messages" for variant, messages in results.items()]
    twice = Facts(duplicated=MESSAGES[:BATCH])
    expected = {"output, read_committed": Facts(), "output, read_uncommitted": twice, "e-mails": twice}
    observed = {variant: compare(MESSAGES, messages) for variant, messages in results.items()}
    return _outcome(side_effect, expected, observed, timeline)


SCENARIOS: Mapping[str, Callable[[Broker], Outcome]] = MappingProxyType(
    {run.__name__: run for run in (commit_first, write_first, lost_acknowledgement, read_uncommitted, side_effect)}
)
"""Every scenario by its name. Each creates new topics, so scenarios can share a broker, which must be ``proxied``.

A scenario raises `LakelockError` if it can't be carried out. That doesn't mean that it didn't hold.
"""


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Show an outcome to a person."""
    console.rule(outcome.name)
    console.print(outcome.explanation, markup=False)
    console.print()
    for line in outcome.timeline:
        console.print(f"  {line}", markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("", "lost", "duplicated", "wrong", "as expected"):
        table.add_column(heading)
    for variant, facts in outcome.observed.items():
        expected = outcome.expected[variant]
        verdict = "yes" if facts == expected else f"[bold red]no:[/] {escape(str(expected))}"
        table.add_row(variant, _short(facts.lost), _short(facts.duplicated), _short(facts.wrong), verdict)
    console.print()
    console.print(table)
    console.print("[bold]held[/]" if outcome.held else "[bold red]DID NOT HOLD[/]")


def _killed_in_mid_batch(broker: Broker, scenario: Callable[[Broker], Outcome], expected: Facts) -> Outcome:
    """Run the scenario of one order. Both orders share this code, so that nothing else differs."""
    topic = _topic(broker, scenario.__name__)
    _produce(broker, topic)
    with _ledger() as ledger:
        job = (broker.bootstrap, topic, str(ledger), BATCH, scenario is commit_first)
        timeline = ["first run", *_indented(worker.run(worker.Consume(*job, die_after=KILLED_AFTER), dies=True))]
        before = _lines(ledger)
        timeline.append(f"committed offset after the kill: {_committed(broker, topic) or 'none'}")
        timeline += ["second run", *_indented(worker.run(worker.Consume(*job)))]
        processed = _lines(ledger)
    timeline.append(f"processed by the first run: {' '.join(before)}")
    timeline.append(f"processed by the second run: {' '.join(processed[len(before) :])}")
    return _outcome(scenario, {"processed": expected}, {"processed": compare(MESSAGES, processed)}, timeline)


def _outcome(
    scenario: Callable[[Broker], Outcome],
    expected: Mapping[str, Facts],
    observed: Mapping[str, Facts],
    timeline: Sequence[str],
) -> Outcome:
    paragraphs = inspect.cleandoc(scenario.__doc__ or "").split("\n\n")
    explanation = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return Outcome(scenario.__name__, explanation, expected, observed, timeline)


def _topic(broker: Broker, name: str) -> str:
    topic = f"{name.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic)
    return topic


def _produce(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, [(None, message.encode()) for message in MESSAGES])


@contextmanager
def _ledger() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lakelock-ledger-") as folder:
        yield Path(folder, "ledger")


def _lines(ledger: Path) -> list[str]:
    return ledger.read_text(encoding="utf-8").splitlines()


def _committed(broker: Broker, group: str) -> int | None:
    """The group's committed offset in the topic of the same name. None if the group never committed."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    try:
        offset: int | None = consumer.committed(TopicPartition(group, 0))
        return offset
    finally:
        consumer.close()


def _read(broker: Broker, topic: str, isolation: str = "read_uncommitted") -> list[str]:
    """The messages that a consumer with this isolation level gets, from the first offset to the end."""
    place = TopicPartition(topic, 0)
    messages: list[str] = []
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation, enable_auto_commit=False, fetch_max_wait_ms=50
    )

    def at_the_end() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            messages.extend(record.value.decode() for record in records)
        return bool(consumer.position(place) >= end)

    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = _end(broker, place)
        wait(at_the_end, f"the end of {topic!r}")
    except TimeoutError as error:
        raise LakelockError(f"The topic could not be read: {error}") from error
    finally:
        consumer.close()
    return messages


def _end(broker: Broker, place: TopicPartition) -> int:
    """The end offset of a partition. Waits until no transaction is open in the partition.

    A transaction ends with its marker, which the broker may write a moment after the commit has returned.
    """
    ends: list[int] = []

    def settled() -> bool:
        ends[:] = (
            admin.list_partition_offsets({place: OffsetSpec.LATEST}, isolation)[place].offset
            for isolation in ("read_uncommitted", "read_committed")
        )
        return ends[0] == ends[1]

    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        wait(settled, f"the last transaction in {place.topic!r} to end")
    return ends[0]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _short(messages: Sequence[str]) -> str:
    if len(messages) > 3:
        return f"{messages[0]}..{messages[-1]} ({len(messages)})"
    return " ".join(messages) or "none"
