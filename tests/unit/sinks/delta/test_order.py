"""What becomes of a table, its tombstones and its change log when its rows are given a sequence. No JVM is needed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.config import DeltaUpsertSink, parse
from connector.derive.upsert import _OwnColumns
from connector.operations import dead_letters
from connector.operations.dead_letters import _deletes_known_since
from sinks.delta import order
from sinks.delta.kept_deletes import deletes_since, expired_before, none_expired, say_expired
from sinks.delta.order import check_order
from sinks.errors import SchemaMismatch

SEQUENCE = StructField("_sequence", LongType())
COORDINATES = ("_topic", "_partition", "_offset", "_timestamp")
LONG_AGO = "2020-01-01T00:00:00+00:00"


class Table:
    """Of a table: its columns and properties, and those of its tombstones beside it."""

    label, sql, evolves = "lake/t", "delta.`lake/t`", False

    def __init__(self, *columns: str, tombstones: bool = False, soft: bool = False) -> None:
        self.schema = StructType([StructField(name, StringType()) for name in (*columns, *COORDINATES)])
        if soft:
            self.schema.add("_deleted_by", StringType())
        self.properties = {"lakelock.deletes_since": LONG_AGO}
        self.did: list[str] = []
        self.there, self.spark = tombstones, self

    def detail(self) -> Any:
        return SimpleNamespace(properties=self.properties, location="lake/t")

    def exists(self) -> bool:
        return self.there

    def forget(self) -> None:
        pass

    def add_columns(self, columns: list[StructField]) -> None:
        for column in columns:
            self.did.append(column.name)
            self.schema.add(column)

    def sql_of(self, text: str) -> Any:
        name, _, value = text.partition("(")[2].rstrip(")").replace("'", "").partition(" = ")
        self.did.append(text.split()[3])
        if value:
            self.properties[name] = value
        else:
            self.properties.pop(name, None)
        return SimpleNamespace(collect=list)


def sink(**options: Any) -> Any:
    own = {"type": "delta_upsert", "path": "lake/t", "key": "k", "sequence_by": "n", **options}
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "k STRING, n BIGINT"},
            "sinks": [{name: value for name, value in own.items() if value is not None}],
        }
    )


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Table:
    """The tombstones of an upsert by offset."""
    table = Table("k", tombstones=True)
    monkeypatch.setattr("sinks.delta.tombstones.Tombstones._at", lambda _: table)
    return table


def added(table: Table, **options: Any) -> None:
    (written,) = sink(**options).sinks
    assert isinstance(written, DeltaUpsertSink)
    of: Any = table
    columns = StructType([*table.schema.fields, *([] if "_sequence" in table.schema.names else [SEQUENCE])])
    table.spark = SimpleNamespace(sql=table.sql_of)  # type: ignore[assignment]
    _OwnColumns(of, None, columns, written, None, None).add([])  # type: ignore[arg-type]


def test_deletes_get_the_column_that_the_rows_have_got_by_hand(beside: Table) -> None:
    """They are older than every change, so no letter from before can be told to be older than a delete."""
    table = Table("k", "n", "_sequence")
    added(table)
    assert beside.did == ["_sequence"]
    assert table.did == ["UNSET", "SET"]
    since = deletes_since(table)  # type: ignore[arg-type]
    assert since is not None
    assert datetime.now(timezone.utc) - since < timedelta(minutes=1)
    added(table)
    assert (beside.did, table.did) == (["_sequence"], ["UNSET", "SET"]), "once"


@pytest.mark.parametrize("exists", [False, True])
def test_a_table_without_such_deletes_stays_as_it_is(exists: bool, beside: Table) -> None:
    beside.there = exists
    if exists:
        beside.schema.add(SEQUENCE)
    table = Table("k", "n", "_sequence")
    added(table)
    assert not table.did


class Noted(Table):
    """A table of tombstones, with the time of the oldest one. Version 0.2 has made it: it says nothing of itself."""

    def __init__(self, oldest: datetime | None) -> None:
        super().__init__("k", tombstones=True)
        self.properties, self.spark, self.oldest = {}, SimpleNamespace(sql=self.asked), oldest  # type: ignore[assignment]

    def asked(self, text: str) -> Any:
        if not text.startswith("SELECT unix_micros(min(_noted_at))"):
            return self.sql_of(text)
        micros = int(self.oldest.timestamp() * 1_000_000) if self.oldest is not None else None
        return SimpleNamespace(collect=lambda: [(micros,)])


@pytest.mark.parametrize("some", [True, False])
def test_of_deletes_that_0_2_has_let_expire_nobody_knows_before_the_oldest_that_is_left(some: bool) -> None:
    began = datetime.now(timezone.utc)
    oldest = began - timedelta(days=3)
    noted: Any = Noted(oldest if some else None)
    known = expired_before(noted)
    assert known == oldest if some else known >= began
    say_expired(noted)
    first = expired_before(noted)
    assert first == oldest if some else first >= known
    # It stays, whatever is noted or expires later by a shorter time.
    noted.oldest = datetime.now(timezone.utc)
    say_expired(noted)
    say_expired(noted, oldest - timedelta(days=30))
    assert (expired_before(noted), noted.did) == (first, ["SET"])
    later = datetime.now(timezone.utc)
    say_expired(noted, later)
    assert (expired_before(noted), noted.did) == (later, ["SET", "SET"])


def test_where_nothing_has_expired_a_later_note_of_a_shorter_time_says_no_less_than_is_known() -> None:
    noted: Any = Noted(datetime.now(timezone.utc))
    say_expired(noted, datetime.now(timezone.utc) - timedelta(days=7))
    assert expired_before(noted) == noted.oldest
    new: Any = Noted(datetime.now(timezone.utc))
    new.properties.update(none_expired())
    say_expired(new)
    assert expired_before(new).year == 1970


def test_a_letter_may_be_older_than_the_deletes_that_a_table_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(timezone.utc)
    said: list[datetime | None] = [now]
    monkeypatch.setattr(dead_letters, "deletes_since", lambda _: said[0])
    monkeypatch.setattr(dead_letters, "remember_deletes", lambda _, kept: said.__setitem__(0, said[0] or now))

    def since(expired: datetime | None = None, **options: Any) -> datetime | None:
        tombstones = SimpleNamespace(expired_before=expired)
        output = SimpleNamespace(table=None, derivation=SimpleNamespace(tombstones=tombstones))
        return _deletes_known_since(sink(**options), output)  # type: ignore[arg-type]

    assert since() == now
    assert since(deletes="soft") is None
    # They have expired, whatever tombstone_retention is by now.
    later = now + timedelta(seconds=1)
    assert since(later) == since(later, deletes="soft") == later
    assert since(now - timedelta(seconds=1)) == now
    # By offset, and the last run kept none: from now on.
    said[0] = None
    assert since(sequence_by=None) == now


@pytest.mark.parametrize(
    ("soft", "unfolded", "says"),
    [
        (False, 0, "tell their sequence, say so: ALTER TABLE delta.`lake/t` ADD COLUMNS .* the deletes"),
        (False, 3, "first run `lakelock fold` with the pipeline file as it was .3 epochs"),
        (True, 0, "^Replay the topic into a new table.$"),
    ],
)
def test_only_what_works_is_said_to_convert_a_table(
    soft: bool, unfolded: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "has_changes", lambda *_: True)
    table: Any = Table("k", "n", soft=soft)
    wanted = StructType([*table.schema.fields, SEQUENCE])
    with pytest.raises(SchemaMismatch, match="ordered by Kafka's offset") as raised:
        check_order(table, wanted, sequence_by="n", begun=lambda: True, unfolded=lambda: unfolded)
    assert re.search(says, raised.value.hint)
    assert ("UPDATE" in raised.value.hint) is not soft
