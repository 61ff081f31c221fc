"""`lakelock view`: the view shows what `lakelock.read` gives, whatever was appended and folded since."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import Lake, Topic, own_session
from golden_files import assert_told
from typer.testing import CliRunner
from upserts import Model, Record, Table

from connector import read
from connector.cli.app import app
from sinks.delta.change_log import FOLDER, ChangeLog
from sinks.delta.table import DeltaTable
from sinks.delta.tombstones import FOLDER as TOMBSTONES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

breadth = pytest.mark.breadth
SINKS: dict[str, dict[str, Any]] = {
    "upsert": {"merge": "on_read"},
    "aggregate": {
        "merge": "on_read", "group_by": "k", "aggregates": {"records": "count(1)", "total": "sum(n)", "mean": "avg(n)"}
    },
}  # fmt: skip


def view(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["view", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    assert lake.spark is not None
    return sorted(tuple(row) for row in lake.spark.sql(sql).drop("_timestamp").collect())


@breadth
@pytest.mark.parametrize("kind", ["upsert", "aggregate"])
def test_a_view_shows_what_read_shows_at_any_moment(lake: Lake, topic: Topic, kind: str) -> None:
    name = "`" + topic.name.replace("-", "_") + "`"
    file = lake.file(kind, sink=SINKS[kind])

    def shown() -> list[tuple[Any, ...]]:
        assert lake.spark is not None
        read(lake.spark, file).createOrReplaceTempView("expected")
        expected = rows(lake, "SELECT * FROM expected")
        assert rows(lake, f"SELECT * FROM {name}") == expected
        return [row[:2] for row in expected]

    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline(kind, sink=SINKS[kind]).run()
    assert view(file, "--name", name, "--create") == "done: the view shows the current rows.\n"
    before = shown()
    topic.send_rows([("a", 3), ("c", 4)], partition=0)
    if kind == "upsert":
        topic.send(("b", None), partition=0)
    lake.pipeline(kind, sink=SINKS[kind]).run()
    after = shown()
    assert after != before
    assert lake.pipeline(kind, sink=SINKS[kind]).fold() is not None
    assert shown() == after
    topic.send_rows([("a", 5)], partition=0)
    lake.pipeline(kind, sink=SINKS[kind]).run()
    assert shown() == ([("a", 5), ("c", 4)] if kind == "upsert" else [("a", 3), ("b", 1), ("c", 1)])
    statement = view(file, "--name", name)
    assert statement.startswith(f"CREATE OR REPLACE VIEW {name} AS\nSELECT")
    rows(lake, statement.removesuffix(";\n"))
    assert len(shown()) > 1


EPOCHS: Sequence[Sequence[tuple[str, str, int, int]]] = [
    [("a", "u", 1, 1), ("b", "u", 1, 2), ("c", "u", 1, 3)],
    [("a", "u", 2, 4), ("b", "d", 0, 9), ("d", "u", 2, 6)],
    [("b", "u", 3, 8), ("c", "d", 0, 7), ("e", "u", 3, 10)],
    [("d", "d", 0, 11), ("a", "u", 4, 3), ("c", "u", 4, 12), ("b", "u", 4, 5)],
]
"""(key, update or delete, value, sequence). By sequence some updates come after a delete that is newer."""


@breadth
@pytest.mark.parametrize(
    "sink",
    [
        {"sequence_by": "seq"},
        {},
        {"ignore_null_updates": True},
        {"sequence_by": "seq", "ignore_null_updates": True},
        {"deletes": "soft"},
    ],
    ids=["sequence", "offset", "offset-nulls", "sequence-nulls", "soft"],
)
def test_whatever_versions_a_view_meets_its_rows_are_those_of_the_log(
    spark: SparkSession, tmp_path: Path, sink: dict[str, Any]
) -> None:
    """A reader may meet any version of the table, and any version of the log that is at least as new. One of them is
    what a crash leaves in the middle of a fold: the table has the changes, and so has the log.
    """
    table = Table(own_session(spark), tmp_path, merge="on_read", **sink)
    soft = sink.get("deletes") == "soft"
    log = table.derivation.log
    assert log is not None
    model = Model("sequence_by" in sink, "ignore_null_updates" in sink)
    changes = ChangeLog(table.table, pipeline="p", topics=["t"])
    tombstones = DeltaTable(table.spark, path=f"{table.path}/{TOMBSTONES}")
    places = [table.table, tombstones, changes.table]
    met: list[tuple[int, list[int]]] = []  # (epochs so far, versions of the places)
    expected: list[dict[str, Any]] = []
    query, offset = "", 0
    for number, epoch in enumerate(EPOCHS):
        records = [
            Record(key, op, value, None if number % 2 else value, seq, offset=offset + at)
            for at, (key, op, value, seq) in enumerate(epoch)
        ]
        offset += len(epoch)
        table.write(records)
        model.records += records
        kept = model.soft_rows().items() if soft else model.rows().items()
        expected.append({key: row[:2] for key, row in kept})
        query = query or (log.view_sql("v") or "").partition(" AS\n")[2]
        met.append((number, [version_of(place) for place in places]))
        if number in (1, 3):
            log.fold("me")
            met.append((number, [version_of(place) for place in places]))

    def shown(versions: Sequence[int]) -> dict[str, Any]:
        pinned = query
        for place, version in zip(places, versions, strict=True):
            pinned = pinned.replace(place.sql, f"{place.sql} VERSION AS OF {version}")
        return table.by_spark(table.spark.sql(pinned))

    seen = set()
    for first, (of_table, of_tombstones, _) in met:
        for epochs, (_, newer_tombstones, of_log) in met[1:]:
            for between in (of_tombstones, newer_tombstones):
                versions = (of_table, between, of_log)
                if epochs >= first and versions not in seen:
                    seen.add(versions)
                    assert shown(versions) == expected[epochs], versions
    assert len(seen) >= 3
    # What was folded long ago is removed from the log, the oldest epochs first.
    for until in range(2, 5):
        changes.clean_up(until)
        assert table.by_spark(table.spark.sql(query)) == expected[-1], until


def version_of(table: DeltaTable) -> int:
    return max((int(file.stem) for file in (Path(table.path or "") / "_delta_log").glob("*.json")), default=0)


@pytest.mark.classic("its files are opened by another process")
def test_spark_fixes_the_version_of_the_log_last(lake: Lake, topic: Topic) -> None:
    """Else a delete that is folded in between would be missing in the log, and the row would be back."""
    sink = {**SINKS["upsert"], "sequence_by": "n"}
    for number in range(2):
        topic.send_rows([("a", number), (f"b{number}", number)])
        lake.pipeline("upsert", sink=sink).run()
    statement = view(lake.file("upsert", sink=sink), "--name", "v")
    assert lake.spark is not None
    frame = lake.spark.sql(statement.partition(" AS\n")[2].removesuffix(";\n"))
    opened = Opened(*(lake.path("upsert") / place / "_delta_log" for place in (TOMBSTONES, "", FOLDER)))
    assert len(frame.collect()) == 3
    assert opened.so_far() == [0, 1, 2]


class Opened:
    """Which of some folders were opened, in this order, by Linux's inotify."""

    def __init__(self, *folders: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        self._watches = [libc.inotify_add_watch(self._fd, os.fsencode(folder), 0x20) for folder in folders]

    def so_far(self) -> list[int]:
        """The folders' numbers, without repetitions in a row."""
        events, found = os.read(self._fd, 1 << 16), []
        os.close(self._fd)
        while events:
            watch, mask, _, length = struct.unpack_from("iIII", events)
            events = events[16 + length :]
            if mask & 0x40000000 and not length:
                found.append(self._watches.index(watch))
        return [each for at, each in enumerate(found) if at == 0 or found[at - 1] != each]


@breadth
def test_a_table_that_is_merged_on_write_from_now_on_leaves_the_view_right(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic.name.replace("-", "_")
    topic.send_rows([("a", 1)], partition=0)
    lake.pipeline("upsert", sink=SINKS["upsert"]).run()
    lake.pipeline("upsert", sink=SINKS["upsert"]).view(name, create=True)
    topic.send_rows([("a", 2), ("b", 2)], partition=0)
    lake.pipeline("upsert", sink=SINKS["upsert"]).run()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ChangeLog, "empty", crash)
        with pytest.raises(KeyboardInterrupt):
            lake.pipeline("upsert").run()
    assert rows(lake, f"SELECT k, n FROM {name}") == [("a", 2), ("b", 2)]
    topic.send(("b", None), partition=0)
    lake.pipeline("upsert").run()
    assert rows(lake, f"SELECT k, n FROM {name}") == lake.rows("upsert") == [("a", 2)]


@breadth
@pytest.mark.parametrize("kind", ["upsert", "aggregate"])
def test_a_view_that_is_made_again_shows_what_a_person_has_deleted(lake: Lake, topic: Topic, kind: str) -> None:
    name = topic.name.replace("-", "_")
    file = lake.file(kind, sink=SINKS[kind])
    for number in range(3):
        topic.send_rows([("a", number), ("b", number)], partition=0)
        lake.pipeline(kind, sink=SINKS[kind]).run()
        view(file, "--name", name, "--create")
    lake.pipeline(kind, sink=SINKS[kind]).fold()
    lake.sql("DELETE FROM {t} WHERE k = 'a'", kind)
    view(file, "--name", name, "--create")
    assert lake.spark is not None
    read(lake.spark, file).createOrReplaceTempView("expected")
    assert [row[0] for row in rows(lake, f"SELECT * FROM {name}")] == ["b"]
    assert rows(lake, f"SELECT * FROM {name}") == rows(lake, "SELECT * FROM expected")


@breadth
@pytest.mark.parametrize("kind", ["upsert", "aggregate"])
def test_a_view_fails_once_its_table_was_made_anew(lake: Lake, topic: Topic, kind: str) -> None:
    name = topic.name.replace("-", "_")
    file = lake.file(kind, sink=SINKS[kind])

    def run(*values: int) -> None:
        for value in values:
            topic.send_rows([("a", value), (f"b{value}", value)], partition=0)
            lake.pipeline(kind, sink=SINKS[kind]).run()

    run(1, 2, 3)
    lake.pipeline(kind, sink=SINKS[kind]).fold()
    assert lake.spark is not None
    ChangeLog(DeltaTable(lake.spark, path=str(lake.path(kind))), pipeline="p", topics=[topic.name]).clean_up(3)
    view(file, "--name", name, "--create")
    run(4)
    assert len(rows(lake, f"SELECT * FROM {name}")) == 5
    shutil.rmtree(lake.path(kind))
    run(5, 6)
    with pytest.raises(Exception, match="was made anew or set back since this view was made"):
        rows(lake, f"SELECT * FROM {name}")
    view(file, "--name", name, "--create")
    assert len(rows(lake, f"SELECT * FROM {name}")) == 7


@pytest.mark.breadth
def test_where_there_is_no_view_to_make_it_says_why(lake: Lake, topic: Topic) -> None:
    said = [refusal(lake.file("upsert"), "--name", "v")]
    file = lake.file("upsert", sink=SINKS["upsert"])
    said += [refusal(file, "--name", "v"), refusal(file, "--name", "")]
    topic.send_rows([("a", 1)])
    lake.pipeline("upsert", sink=SINKS["upsert"]).run()
    said += [refusal(file), refusal(file, "--name", "nowhere.v", "--create")]
    topic.send_rows([("a", 2)])
    lake.pipeline("upsert", sink=SINKS["upsert"]).run()
    lake.sql("RESTORE {t} TO VERSION AS OF 0", "upsert")
    said += [refusal(file, "--name", "v")]
    assert_told("no_view", "\n\n".join(said), folder=lake.folder)


def refusal(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["view", *map(str, arguments)])
    assert done.exit_code == 2, done.output
    return done.stderr.strip()
