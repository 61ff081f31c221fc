"""`preview` shows records as rows, before anything is written, and touches nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from conftest import Lake, Topic
from kafka import KafkaAdminClient
from typer.testing import CliRunner

from connector.cli.app import app
from connector.operations.preview import Preview
from sinks.errors import SourceError

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)


def column(shown: Preview, name: str, table: int = 0) -> list[str | None]:
    chosen = shown.tables[table]
    return [row[list(chosen.columns).index(name)] for row in chosen.rows]


def groups(topic: Topic) -> set[str]:
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    try:
        return {group["group_id"] for group in admin.list_groups()}
    finally:
        admin.close()


def test_ten_rows_are_shown_as_they_would_be_written_and_nothing_is_touched(lake: Lake, topic: Topic) -> None:
    topic.send_rows([(f"k{number}", number) for number in range(12)], partition=0, at=NOON)
    topic.send(("bad", {"k": "bad", "n": "c221"}), partition=1, at=NOON + timedelta(minutes=1))
    before, known = sorted(lake.folder.rglob("*")), groups(topic)
    shown = lake.pipeline(transform="SELECT k, n * 2 AS twice FROM records").preview()
    assert column(shown, "twice") == [str(2 * number) for number in range(10)]
    assert column(shown, "_offset") == [str(number) for number in range(10)]
    (fault,) = shown.faults
    assert (fault.detail, fault.topic, fault.partition, fault.offset) == (
        "its value: field n: not an INT", topic.name, 1, 0,
    )  # fmt: skip
    assert sorted(lake.folder.rglob("*")) == before
    # The broker is shared: groups of other tests may vanish meanwhile.
    assert groups(topic) <= known


@pytest.mark.breadth
def test_where_to_start_is_chosen(lake: Lake, topic: Topic) -> None:
    for number in range(5):
        topic.send_rows([(f"k{number}", number)], partition=number % 2, at=NOON + timedelta(minutes=number))
    pipeline = lake.pipeline()
    pipeline.run()
    topic.send_rows([("new", 5)], partition=0, at=NOON + timedelta(minutes=5))
    # What a run would read next; partition 1 has nothing new, and shows what it has.
    assert column(pipeline.preview(), "k") == ["k1", "k3", "new"]
    assert column(pipeline.preview(2, start="earliest"), "k") == ["k0", "k1"]
    assert column(pipeline.preview(2, start="latest"), "k") == ["new", "k4"]
    assert column(pipeline.preview(start=NOON + timedelta(minutes=3)), "k") == ["k3", "k4", "new"]
    with pytest.raises(SourceError, match="no record at or after 2026-11-01T13"):
        pipeline.preview(start=NOON + timedelta(hours=1))


def test_an_empty_topic_is_told(lake: Lake, topic: Topic) -> None:
    with pytest.raises(SourceError, match=f"Topic {topic.name} holds no record"):
        lake.pipeline().preview()


def test_each_sink_shows_its_own_columns_and_what_a_tombstone_does(lake: Lake, topic: Topic) -> None:
    topic.send(("a", {"k": "a", "n": 1}), ("a", None), partition=0)
    places = [str(lake.folder / name) for name in ("current", "totals")]
    shown = lake.pipeline(
        sinks=[
            {"type": "delta_upsert", "path": places[0], "key": "k", "except_column_list": ["n"]},
            {"type": "delta_aggregate", "path": places[1], "group_by": "k", "aggregates": {"total": "sum(n)"}},
        ],
        coordinator={"path": str(lake.folder / "log")},
    ).preview()
    assert [table.place for table in shown.tables] == places
    assert "n" not in shown.tables[0].columns
    assert column(shown, "k") == ["a", "a"]
    assert column(shown, "(delete)") == [None, "delete"]
    assert "which aggregates these rows" in repr(shown)
    assert not any(Path(place).exists() for place in [*places, lake.folder / "log"])


def test_records_of_a_route_show_their_table(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    options = lake.options(
        route={"by": "k", "sink": {"type": "delta_append", "path": str(lake.folder / "{k}")}},
        coordinator={"path": str(lake.folder / "log")},
    )
    del options["sinks"]
    shown = type(lake.pipeline()).from_options(options).preview()
    assert column(shown, "(table)") == ["a", "b"]
    assert column(shown, "n") == ["1", "2"]


def test_values_of_every_kind_are_text(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    value = {
        "at": "2026-11-01T12:00:00Z",
        "tags": ["x", None],
        "place": {"lat": 1.5},
        "note": "one\ntwo",
        "bin": "AAE=",
    }
    topic.send(("k", value))
    schema = "at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<lat: DOUBLE>, note STRING, bin BINARY, gone INT"
    shown = lake.pipeline(schema=schema, unmatched="warn").preview()
    cells = dict(zip(shown.tables[0].columns, shown.tables[0].rows[0], strict=True))
    assert cells["at"] == "2026-11-01 12:00:00"
    assert cells["tags"] == '["x",null]'
    assert cells["place"] == '{"lat":1.5}'
    assert cells["bin"] == "0x0001"
    assert cells["gone"] is None
    assert "one\\ntwo" in repr(shown)


def test_the_command_shows_the_same(lake: Lake, topic: Topic) -> None:
    topic.send_rows([(f"k{number}", number) for number in range(4)], partition=0)
    file = lake.file()
    done = CliRunner().invoke(app, ["preview", str(file), "--rows", "3", "--from", "latest"])
    assert done.exit_code == 0, done.output
    lines = [line.split()[:2] for line in done.output.splitlines()]
    assert [line for line in lines if line and line[0] in ("k0", "k1", "k2", "k3")] == [
        ["k3", "3"],
        ["k2", "2"],
        ["k1", "1"],
    ]
    wrong = CliRunner().invoke(app, ["preview", str(file), "--from", "yesterday"])
    assert wrong.exit_code == 2
