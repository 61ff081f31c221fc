"""What an epoch asks the columnar reader for, and that nothing is handed on of a topic that has changed since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.decode.event_time import Timing
from connector.decode.records import RecordDecoder
from connector.engine.decoders import Decoder
from connector.engine.epoch import Reading, prepare_epoch, write_epoch
from connector.engine.routes import Routes
from connector.source.columnar import PlainValues
from sinks.contract import Epoch
from sinks.errors import TopicRecreated
from sinks.offsets import OffsetRange, Offsets, TopicPartition
from sinks.spark.limits import Limit

AT = TopicPartition("t", 0)
EPOCH = Epoch("p", 1, "run", (OffsetRange("t", 0, 0, 10),), Offsets({AT: 10}), {"t": "id"}, None, None)
FIELDS = StructType([StructField("k", StringType()), StructField("n", LongType())])
ANY: Any = object()
"""What nobody looks into."""


class Asked(Exception):
    """Instead of the records."""


class Rows(Decoder):
    """Gives no rows."""

    def __call__(self, records: Any) -> Any:
        return records


def output(**differs: Any) -> Any:
    """An upsert by ``k`` of plain JSON. ``differs``: what its records, or its table, have besides."""
    fields = differs.pop("fields", FIELDS)
    value: Any = SimpleNamespace(type=fields, plain=PlainValues(FIELDS, refuse_unknown=False))
    limits: Sequence[Limit] = differs.pop("limits", ())
    key, several = differs.pop("by", ("k",)), differs.pop("several", False)
    decoder = RecordDecoder(value, **differs)
    return SimpleNamespace(
        decode=Rows(decoder, ANY, takes_tombstones=True, several=several),
        derivation=SimpleNamespace(latest_by=key),
        unfit=lambda _: limits,
    )


def left_out(outputs: Mapping[str, Any], **differs: Any) -> Sequence[str]:
    """By which fields the reader may leave out the records that a later one replaces."""
    asked: list[PlainValues | None] = []

    def read(ranges: Sequence[object], values: PlainValues | None = None) -> Any:
        asked.append(values)
        if ranges:
            raise Asked

    reading = Reading(read, outputs, **{"timing": None, "letters": None, **differs})
    with ExitStack() as stack, pytest.raises(Asked):
        reading.reduced(EPOCH, stack)
    assert asked[-1] is not None
    return asked[-1].latest_by


def test_the_reader_leaves_out_replaced_records_for_an_upsert_alone() -> None:
    assert left_out({"a": output()}) == ("k",)


APPEND = output(by=())
NEEDED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "an append after the upsert": ({"a": output(), "b": APPEND}, {}),
    "an append before it": ({"b": APPEND, "a": output()}, {}),
    "another upsert": ({"a": output(), "b": output()}, {}),
    "several rows of a record": ({"a": output(several=True)}, {}),
    "dead letters": ({"a": output()}, {"letters": ANY}),
    "event time": ({"a": output()}, {"timing": Timing("n", timedelta(minutes=1))}),
    "Kafka's key": ({"a": output(key=ANY)}, {}),
    "a rule": ({"a": output(require="n > 0")}, {}),
    "steps": ({"a": output(steps=ANY)}, {}),
    "an envelope": ({"a": output(fields=StructType([StructField("after", FIELDS)]))}, {}),
    "a key that is no field": ({"a": output(by=("k", "_partition"))}, {}),
    "a rule of the table": ({"a": output(limits=[Limit("n < 0", "CHECK (n >= 0)")])}, {}),
}


@pytest.mark.parametrize(("outputs", "reading"), NEEDED.values(), ids=NEEDED)
def test_it_leaves_out_no_record_that_somebody_else_asks_for(
    outputs: Mapping[str, Any], reading: Mapping[str, Any]
) -> None:
    """All sinks share the records, and every record is judged, also one that a later one of its key replaces."""
    assert left_out(outputs, **reading) == ()


class Recreated(Reading):
    """Its topic is recreated while it is read."""

    def reduced(self, epoch: Epoch, stack: ExitStack, *, again: bool = False) -> Any:
        self.refuse_changed = self._refuse
        return epoch, {"t": "rows of two topics"}

    def _refuse(self, epoch: Epoch) -> None:
        raise TopicRecreated(f"{epoch.topics} before")


def written(reading: Reading, to: list[object]) -> None:
    def write(_: Epoch, rows: Any) -> Any:
        to.append(rows)

    write_epoch(EPOCH, reading, write=write, observe=lambda _: None, behind=0)


def prepared(reading: Reading, to: list[object]) -> None:
    sink: Any = SimpleNamespace(prepare=lambda *_: None)
    to.append(prepare_epoch(EPOCH, reading, {"t": sink}, again=False, at_once=1, observe=lambda _: None, behind=0))


def routed(reading: Reading, to: list[object]) -> None:
    routes: Any = SimpleNamespace(
        _split=lambda reading, epoch, again: (*reading.reduced(epoch, ANY, again=again), {}), _tables={}, at_once=1
    )
    to.append(Routes.prepare(routes, lambda _: reading, lambda _: None, EPOCH, (), again=False, behind=0))


@pytest.mark.parametrize("way", [written, prepared, routed])
def test_what_was_read_of_a_topic_that_was_recreated_meanwhile_goes_no_further(
    way: Callable[[Reading, list[object]], None],
) -> None:
    """Polled records are written only once it was asked for; what is prepared isn't decided."""
    to: list[object] = []
    decode: Any = SimpleNamespace(begin_epoch=lambda: None)
    outputs: Any = {"t": SimpleNamespace(decode=SimpleNamespace(decode=decode))}
    with pytest.raises(TopicRecreated):
        way(Recreated(lambda *_: ANY, outputs, timing=None, letters=None), to)
    assert to == []
