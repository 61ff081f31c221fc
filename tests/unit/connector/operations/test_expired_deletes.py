"""A rewind to where deletes counted that have expired for good says so."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from connector.operations.expired_deletes import with_expired
from connector.operations.rewind import Rewind
from sinks.contract import Position
from sinks.delta.kept_deletes import none_expired, read_to, say_whole, whole_from
from sinks.delta.restore import Target
from sinks.errors import OffsetsLost
from sinks.offsets import Offsets, TopicPartition

AT = TopicPartition("t", 0)
NOW = datetime.now(timezone.utc)
DAY = timedelta(days=1)


class Beside:
    """A table of tombstones, with its properties only."""

    def __init__(self, **properties: str) -> None:
        self.properties, self.sql, self.spark = properties, "t", self

    def detail(self) -> Any:
        return SimpleNamespace(properties=self.properties)

    def forget(self) -> None:
        pass

    def collect(self) -> None:
        pass

    def __call__(self, text: str) -> Beside:
        _, name, _, value, _ = text.split("'")
        self.properties[name] = value
        return self


def beside(properties: dict[str, str]) -> Any:
    table: Any = Beside(**properties)
    table.spark = SimpleNamespace(sql=table)
    return table


def test_of_a_table_that_an_earlier_version_has_made_nothing_is_known_until_now() -> None:
    old = beside({"lakelock.expired_before": NOW.isoformat()})
    assert whole_from(old) >= NOW
    say_whole(old)
    said = whole_from(old)
    say_whole(old)
    assert whole_from(old) == said, "what expires from now on is kept"
    say_whole(old, said - DAY)
    assert whole_from(old) == said
    say_whole(old, said + DAY)
    assert whole_from(old) == said + DAY


@pytest.mark.parametrize(
    "properties", [none_expired(), {"lakelock.expired_before": none_expired()["lakelock.expired_before"]}]
)
def test_where_none_has_ever_expired_a_table_can_go_back_to_all(properties: dict[str, str]) -> None:
    assert whole_from(beside(dict(properties))).year == 1970


def test_a_position_tells_up_to_when_all_was_read() -> None:
    assert read_to(Position(1, Offsets(), read_to=NOW, began_at=NOW - DAY, committed_at=NOW + DAY)) == NOW
    assert read_to(Position(1, Offsets(), began_at=NOW - DAY, committed_at=NOW)) == NOW - DAY
    assert read_to(Position(1, Offsets(), committed_at=NOW)) == NOW
    assert read_to(Position(1, Offsets())) is None


def plan(stood: Position | None, again: int = 5) -> Rewind:
    return Rewind(Position(20, Offsets({AT: 9})), Target(3, stood), Offsets({AT: 4}), again)


def tables(*lack: bool) -> dict[str, Any]:
    def table(lacks: bool) -> Any:
        return SimpleNamespace(derivation=SimpleNamespace(tombstones=SimpleNamespace(lacks=lambda _: lacks)))

    without = SimpleNamespace(derivation=SimpleNamespace(tombstones=None))
    return {"without": without, **{f"t{number}": table(each) for number, each in enumerate(lack)}}


def test_a_rewind_to_where_deletes_counted_that_are_gone_needs_the_users_word() -> None:
    stood = Position(10, Offsets({AT: 4}))
    with pytest.raises(OffsetsLost, match=r"epoch 10.*'t1' remembered") as refused:
        with_expired(plan(stood), tables(False, True), allow_data_loss=False)
    assert "--allow-data-loss" in refused.value.hint
    told = with_expired(plan(stood), tables(False, True), allow_data_loss=True)
    assert "deleted row back" in told.compacted[0]
    assert "deleted row back" in str(told)


@pytest.mark.parametrize(
    ("to", "lacks"),
    [(plan(None), True), (plan(Position(10, Offsets()), 0), True), (plan(Position(10, Offsets())), False)],
)
def test_a_rewind_that_needs_no_such_delete_goes_on(to: Rewind, lacks: bool) -> None:
    assert with_expired(to, tables(lacks), allow_data_loss=False) is to
