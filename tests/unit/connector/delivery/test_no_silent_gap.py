"""Whatever happens to topic and table: what a run leaves, the auditor's claim, and Kafka tell one story.

The run and the auditor share no code. So a record that was sent after the pipeline had begun, and that the table's
position has passed, is in the table or among what is named as lost; and the claim that the auditor makes out of the
commits begins where the pipeline really began, whatever was added, expired, restored or replaced since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any

from fakes import Group, To, Topic
from hypothesis import event, given, settings
from hypothesis import strategies as st

from connector.audit.claim import At, Metadata, claimed, metadata
from connector.config import Source as Options
from connector.delivery.ports import Work
from connector.delivery.transactional import deliver
from connector.source.topics import KafkaSource
from sinks.contract import Committed, Epoch, Position
from sinks.delta.metadata import CommitMetadata
from sinks.errors import OffsetsLost, TableReplaced
from sinks.memory import MemoryAppend, MemoryTable, Record
from sinks.offsets import Offsets, TopicPartition

OPTIONS = Options.model_validate({"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}})
partition = st.integers(0, 2)
actions = st.one_of(
    st.tuples(st.just("send"), partition, st.integers(1, 4)),
    st.tuples(st.just("add"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("expire"), partition, st.integers(0, 9)),
    st.tuples(st.just("elect"), partition, st.integers(0, 3), st.integers(0, 4)),
    st.tuples(
        st.just("run"),
        st.sampled_from(["earliest", "latest"]),
        st.booleans(),
        st.none() | st.tuples(partition, st.integers(0, 3), st.integers(0, 4)),
    ),
    st.tuples(st.just("restore"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("replace"), st.just(0), st.just(0)),
)


class CutMeanwhile(OffsetsLost):
    """Between the plan of an epoch and its read. Nothing of it is written."""


class Asked(KafkaSource):
    """What a run asks after a read, answered by a topic in memory."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(OPTIONS)
        self._topic = topic

    @property
    def _admin(self) -> Any:
        described = [{"name": "t", "error_code": 0, "topic_id": self._topic.id, "partitions": []}]
        return SimpleNamespace(describe_topics=lambda _: described)

    def _ends_of(
        self, leaders: Mapping[TopicPartition, int], led: Mapping[TopicPartition, int] | None = None
    ) -> Mapping[TopicPartition, int]:
        assert led is not None
        return self._topic.ends_of(leaders)


@dataclass
class World:
    topic: Topic
    table: MemoryTable = field(default_factory=MemoryTable)
    began: Offsets | None = None
    """Where the first run has begun."""
    kept: list[tuple[tuple[Record, ...], Position]] = field(default_factory=list)
    """Versions of the table that it can be restored to."""
    replaced: bool = False
    cut: bool = False
    """Whether a log was ever cut before a position that the table had."""
    sent: int = 0

    def send(self, at: int, count: int) -> None:
        if at < len(self.topic.partitions):
            self.sent += count
            self.topic.append(at, *(("k", number) for number in range(self.sent - count, self.sent)))

    def add(self, count: int, gone: int) -> None:
        """A partition, of whose first records some expire before anybody looks."""
        self.topic.partitions.append([])
        self.send(len(self.topic.partitions) - 1, count)
        self.expire(len(self.topic.partitions) - 1, gone)

    def expire(self, at: int, upto: int) -> None:
        if at < len(self.topic.partitions):
            before = self.topic.deleted_up_to.get(at, 0)
            self.topic.deleted_up_to[at] = max(before, min(upto, len(self.topic.partitions[at])))

    def elect(self, at: int, lacks: int, count: int) -> None:
        """A replica that lacks some of the last records becomes leader, and is sent others. None lacks what is gone."""
        if at < len(self.topic.partitions):
            upto = max(len(self.topic.partitions[at]) - lacks, self.topic.deleted_up_to.get(at, 0))
            self.cut |= any(upto < stood.offsets.get(TopicPartition("t", at), 0) for _, stood in self.kept)
            self.topic.elect(at, upto)
            self.send(at, count)

    def restore(self, to: int, *_: object) -> None:
        if self.kept:
            rows, stood = self.kept[to % len(self.kept)]
            highest = self.table.position.epoch if self.table.position else 0
            self.table.rows, self.table.position = rows, replace(stood, epoch=highest)
            self.replaced = False

    def replace(self, *_: object) -> None:
        """Somebody else's overwrite, as the sink tells of it."""
        if self.table.position is not None:
            self.table.rows, self.replaced = (), True

    def run(self, start: str, goes_on: bool, elected: tuple[int, int, int] | None = None) -> bool:
        """Whether it came to its end. ``elected``: between the plan and the read of its second epoch."""
        epochs = 0
        self.topic.start = start
        if self.began is None:
            held = self.topic.look()
            self.began = held.beginnings if start == "earliest" else held.ends
        sink = MemoryAppend(self.table)

        def position() -> Position | None:
            stands = sink.position()
            return replace(stands, replaced="by somebody") if stands and self.replaced else stands

        def run_epoch(epoch: Epoch, behind: int) -> Committed:
            nonlocal epochs
            epochs += 1
            if epochs == 2 and elected:
                self.elect(*elected)
            committed = sink.write(epoch, self.read(epoch))
            self.kept.append((self.table.rows, committed.position))
            return committed

        work = Work(
            "p",
            "run",
            self.topic,
            To(position, run_epoch),
            3,
            Group(),
            lambda event: None,
            continue_on_data_loss=goes_on,
        )
        try:
            deliver(work, interval=None, stop=Event())
        except CutMeanwhile:
            # Of the records that were read only what was to be cut could be another's.
            assert elected
            assert elected[1] > 0
            return False
        except OffsetsLost:
            assert self.cut or not goes_on
            return False
        except TableReplaced:
            assert self.replaced
            return False
        assert not self.replaced
        return True

    def read(self, epoch: Epoch) -> list[Record]:
        """Not beyond the end, and what a run asks afterwards."""
        if any(range_.end > len(self.topic.partitions[range_.partition]) for range_ in epoch.ranges):
            raise CutMeanwhile("the read fails")
        try:
            Asked(self.topic).refuse_changed(epoch)
        except OffsetsLost as error:
            raise CutMeanwhile(error.message) from error
        return self.topic.read(epoch)

    @property
    def holds_what_was_cut(self) -> bool:
        """Whether the table has rows of records that aren't Kafka's any more."""
        return any(
            (record.key, record.value) not in self.topic.partitions[record.at.partition][record.offset :][:1]
            for record in self.table.rows
        )

    @property
    def ever_sent(self) -> list[tuple[TopicPartition, int]]:
        """After the pipeline had begun: of what was added later, everything."""
        return [
            (TopicPartition("t", number), offset)
            for number, records in enumerate(self.topic.partitions)
            for offset in range((self.began or Offsets()).get(TopicPartition("t", number), 0), len(records))
        ]


def as_committed(position: Position) -> Metadata:
    epoch = Epoch.that_left(position, pipeline="p")
    found = metadata(CommitMetadata.of(epoch).to_json(), version=0, pipeline="p")
    assert found is not None
    return found


@settings(max_examples=400)
@given(st.lists(actions, min_size=10, max_size=25))
def test_what_is_neither_in_the_table_nor_named_as_lost_was_never_passed(drawn: list[tuple]) -> None:
    world = World(Topic([[], []]))
    for what, *given_ in [*drawn, ("run", "earliest", True)]:
        ended = getattr(world, what)(*given_)
        stands = world.table.position
        if stands is None or world.replaced:
            continue
        if world.holds_what_was_cut:
            assert not (what == "run" and ended)
            continue
        rows = [(record.at, record.offset) for record in world.table.rows]
        assert len(rows) == len(set(rows))
        lost = {(gap.at, offset) for gap in stands.lost for offset in range(gap.start, gap.end)}
        passed = {(at, offset) for at, offset in world.ever_sent if offset < stands.offsets.get(at, 0)}
        assert passed - lost == set(rows)
        if what == "run" and ended:
            assert {at for at, _ in world.ever_sent} <= stands.offsets.keys()
            event("lost" if lost else "complete")
        first = as_committed(world.kept[0][1])
        claim, _ = claimed(
            as_committed(stands),
            first,
            delivery="transactional",
            partitions=[At(*at) for at in world.topic.look().ends],
            committed={},
            rows=dict,
            older_version=False,
            from_earliest=False,
        )
        assert world.began is not None
        assert claim.since == {at: world.began.get(TopicPartition(*at), 0) for at in claim.since}
        assert claim.unknown == ()
