from collections.abc import Sequence

import pytest

from sinks.conformance import SinkConformance, TwoPhaseConformance
from sinks.errors import KeyMoved
from sinks.memory import MemoryAppend, MemoryPlace, MemoryTable, MemoryTwoPhase, MemoryUpsert, Record
from sinks.offsets import TopicPartition


def records(values: Sequence[str], first_offset: int) -> list[Record]:
    return [Record(TopicPartition("t", 0), offset, value, value) for offset, value in enumerate(values, first_offset)]


class MemoryConformance(SinkConformance[Sequence[Record]]):
    kind = MemoryAppend

    @pytest.fixture(autouse=True)
    def _table(self) -> None:
        self.table = MemoryTable()

    def make_sink(self) -> MemoryAppend:
        return self.kind(self.table)

    def make_rows(self, values: Sequence[str], first_offset: int) -> Sequence[Record]:
        return records(values, first_offset)

    def read_values(self) -> list[str]:
        return [str(record.value) for record in self.table.rows]


class TestMemoryAppend(MemoryConformance):
    pass


class TestMemoryUpsert(MemoryConformance):
    kind = MemoryUpsert

    def test_an_update_with_an_offset_at_or_below_the_stored_one_is_ignored(self) -> None:
        sink, at = self.make_sink(), TopicPartition("t", 0)
        sink.write(self.epoch(sink, 0, 6), [Record(at, 5, "k", "new")])
        sink.write(self.epoch(sink, 6, 7), [Record(at, 4, "k", "older"), Record(at, 5, "k", "same")])
        assert self.read_values() == ["new"]

    def test_a_key_from_a_second_partition_stops_the_epoch(self) -> None:
        sink = self.make_sink()
        sink.write(self.epoch(sink, 0, 6), [Record(TopicPartition("t", 0), 5, "k", "new")])
        with pytest.raises(KeyMoved):
            sink.write(self.epoch(sink, 6, 7), [Record(TopicPartition("t", 1), 9, "k", "other")])
        assert self.read_values() == ["new"]


class TestMemoryTwoPhase(TwoPhaseConformance[Sequence[Record]]):
    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.place = MemoryPlace()

    def make_sink(self) -> MemoryTwoPhase:
        return MemoryTwoPhase("memory", self.place)

    def make_rows(self, values: Sequence[str], first_offset: int) -> Sequence[Record]:
        return records(values, first_offset)

    def read_values(self) -> list[str]:
        return [str(record.value) for record in self.place.rows]
