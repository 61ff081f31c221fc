"""What is staged is committed by the options that reduced it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from sinks.contract import Committed, Epoch, Prepared
from sinks.delta.shape import ZONE, Shape, Text
from sinks.delta.staged_options import StagedOptions
from sinks.delta.two_phase import TwoPhaseDelta
from sinks.errors import Diverged, PreparedLost
from sinks.offsets import Offsets, TopicPartition

OFFSETS = Offsets({TopicPartition("t", 0): 3})
EPOCH = Epoch("p", 1, "run", (), OFFSETS, {}, None, None)
UPSERT: Mapping[str, Text] = {"type": "delta_upsert", "key": ["id"]}
SUM: Mapping[str, Text] = {"type": "delta_aggregate", "group_by": ["id"], "aggregates.total": "sum(amount)"}
WINDOW = {**SUM, "window.size": "1 hour"}


class Fake:
    """A table, its sink and its staging. The last two are those of every process."""

    appends = True

    def __init__(self, columns: StructType | None = None) -> None:
        self.label, self.id, self.location = "lake/t", "id", "lake/t"
        self.written: list[Any] = []
        self.columns = columns or StructType([StructField("id", LongType())])
        self.lost = False

    def detail(self) -> Fake:
        return self

    def position(self) -> None:
        return None

    def write(self, epoch: Epoch, rows: Any) -> Committed:
        self.written.append(rows)
        return Committed(epoch.position(), rows=1)

    def rehearse(self, rows: Any, epoch: Epoch) -> None: ...

    def put(self, rows: Any, attempt: int) -> Prepared:
        return Prepared(1, "c", {"staged": f"{attempt}-{rows}", "schema": self.columns.json()})

    def put_and_read(self, rows: Any, attempt: int) -> tuple[Prepared, Any]:
        return self.put(rows, attempt), rows

    def get(self, prepared: Prepared) -> Any:
        if self.lost:
            raise PreparedLost("gone")
        return prepared.receipt["staged"]


def process(fake: Any, texts: Mapping[str, Text], parts: Sequence[str] | None = None) -> TwoPhaseDelta:
    shape = Shape("p", lambda name: f"sinks.{name}", texts)
    made = TwoPhaseDelta(fake, fake, pipeline="p", options=StagedOptions(shape, parts))
    made._stagings["lake/t"] = fake
    return made


def handed_over(prepared: Prepared) -> Prepared:
    """As another process reads it from the coordinator log."""
    return Prepared(prepared.rows, prepared.checksum, json.loads(json.dumps(dict(prepared.receipt))))


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (UPSERT, {**UPSERT, "key": ["id", "line"]}, "sinks.key was id, and is id, line now"),
        ({"type": "delta_append"}, UPSERT, "sinks.type was delta_append, and is delta_upsert now"),
        (UPSERT, {**UPSERT, "sequence_by": "at"}, "sinks.sequence_by was not given, and is at now"),
        ({**UPSERT, "sequence_by": "at"}, UPSERT, "sinks.sequence_by was at, and is not given now"),
        ({**UPSERT, "sequence_by": "a"}, {**UPSERT, "sequence_by": "b"}, "sinks.sequence_by was a, and is b now"),
        (SUM, {**SUM, "aggregates.total": "sum(price)"}, "was sum[(]amount[)], and is sum[(]price[)] now"),
        (WINDOW, {**WINDOW, "window.size": "2 hours"}, "window.size was 1 hour, and is 2 hours now"),
        ({**UPSERT, "steps.mask.id": "by salt 1"}, {**UPSERT, "steps.mask.id": "by salt 2"}, "steps.mask.id was"),
        ({**UPSERT, ZONE: "UTC"}, {**UPSERT, ZONE: "Asia/Tokyo"}, f"by: {ZONE} was UTC, and is Asia/Tokyo now"),
    ],
)
def test_rows_that_other_options_reduced_are_not_committed(
    was: Mapping[str, Text], now: Mapping[str, Text], told: str
) -> None:
    fake = Fake()
    prepared = handed_over(process(fake, was).prepare(EPOCH, "rows"))
    with pytest.raises(Diverged, match=told) as refused:
        process(fake, now).commit(EPOCH, prepared)
    assert refused.value.hint is not None
    assert "lakelock recover FILE" in refused.value.hint
    assert "--to-epoch 0` takes all tables back to the beginning after that" in refused.value.hint
    assert fake.written == []
    assert process(fake, was).commit(EPOCH, prepared).rows == 1, "what was changed is put back"


def test_texts_that_mean_the_same_and_options_of_another_release_are_no_other_options() -> None:
    later = {**UPSERT, "key": ["ID"], "deletes_of": "a newer release", "steps.mask.id": None}
    for was, now in [
        (UPSERT, later),
        (later, UPSERT),
        ({**SUM, ZONE: "UTC"}, {**SUM, "aggregates.total": "SUM( amount )"}),
    ]:
        fake = Fake()
        prepared = handed_over(process(fake, was).prepare(EPOCH, "rows"))
        process(fake, now).commit(EPOCH, prepared)
        assert fake.written == ["0-rows"]


def test_a_receipt_of_an_earlier_release_tells_no_options_and_is_committed() -> None:
    fake = Fake()
    prepared = fake.put("rows", 0)
    assert set(prepared.receipt) == {"staged", "schema"}
    process(fake, UPSERT, ["id"]).commit(EPOCH, prepared)
    assert fake.written == ["0-rows"]


def test_rows_that_are_gone_are_read_again_whatever_the_options_are() -> None:
    """Then their count and checksum decide."""
    fake = Fake()
    prepared = process(fake, UPSERT).prepare(EPOCH, "rows")
    fake.lost = True
    with pytest.raises(PreparedLost):
        process(fake, {**UPSERT, "key": ["line"]}).commit(EPOCH, prepared)


def staged(*names: str, parts: Sequence[str] = ()) -> StructType:
    """The columns of an upsert's staged rows."""
    fields = [StructField(name, IntegerType()) for name in names]
    orders = StructType([StructField(name, LongType()) for name in parts])
    return StructType([*fields, *([StructField("_columns", orders)] if parts else [])])


@pytest.mark.parametrize(
    ("was", "now"),
    [(["a", "b"], ["a"]), (["a"], ["a", "b"]), (["a"], []), ([], ["a"])],
    ids=["a null would overwrite", "a null would keep", "none any more", "some now"],
)
def test_nulls_that_would_mean_something_else_are_not_committed(was: list[str], now: list[str]) -> None:
    """As with another ``ignore_null_updates``, or without a column that it is about: also beyond the first epoch."""
    fake = Fake(staged("id", "a", "b", parts=was))
    prepared = handed_over(process(fake, UPSERT, was).prepare(EPOCH, "rows"))
    later = replace(EPOCH, number=8)
    with pytest.raises(Diverged, match="ignore_null_updates, or unavailable: keep") as refused:
        process(fake, UPSERT, now).commit(later, prepared)
    assert "give the epoch up, if all sinks are tables: `lakelock rewind FILE --to-epoch 7`" in str(refused.value.hint)
    assert fake.written == []


def test_a_column_that_has_come_since_says_nothing_of_the_staged_rows() -> None:
    """``ignore_null_updates: true`` is about every column of a registry's newest schema."""
    fake = Fake(staged("id", "a", parts=["a"]))
    prepared = handed_over(process(fake, UPSERT, ["a"]).prepare(EPOCH, "rows"))
    process(fake, UPSERT, ["A", "later"]).commit(EPOCH, prepared)
    assert fake.written == ["0-rows"]


def test_columns_that_come_during_a_run_do_not_stop_it() -> None:
    """They are in the rows that the run stages; its sink was made before."""
    fake = Fake(staged("id", "a", "later", parts=["a", "later"]))
    one = process(fake, UPSERT, ["a"])
    one.commit(EPOCH, one.prepare(EPOCH, "rows"))
    assert fake.written == ["0-rows"]


def test_an_append_may_have_columns_of_any_name() -> None:
    fake = Fake(staged("id", parts=["a"]))
    append = {"type": "delta_append"}
    prepared = handed_over(process(fake, append).prepare(EPOCH, "rows"))
    process(fake, append).commit(EPOCH, prepared)
    assert fake.written == ["0-rows"]
