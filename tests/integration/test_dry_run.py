"""`lakelock run --dry-run`: what a run would do first. It writes nothing, neither to tables nor to Kafka."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Lake, Topic
from golden_files import assert_told
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from typer.testing import CliRunner

from connector.cli.app import app
from connector.operations.dry_run import DryRun

SIX = {"epoch": {"max_records": 6}}


def state(lake: Lake, topic: Topic) -> dict[str, Any]:
    """All that a dry run could change: the files, and what the broker holds."""
    admin = KafkaAdminClient(bootstrap_servers=topic.broker.bootstrap)
    consumer = KafkaConsumer(bootstrap_servers=topic.broker.bootstrap)
    try:
        groups = {group["group_id"] for group in admin.list_groups()}
        # A broker makes this one for itself, when it is first asked for a group.
        topics = {*admin.list_topics()} - {"__consumer_offsets"}
        ends = consumer.end_offsets([TopicPartition(topic.name, partition) for partition in range(2)])
    finally:
        consumer.close()
        admin.close()
    files = {str(file): file.read_bytes() for file in lake.folder.rglob("*") if file.is_file()}
    return {"files": files, "folders": sorted(map(str, lake.folder.rglob("*"))), "ends": ends} | {
        "kafka": {("group", each) for each in groups} | {("topic", each) for each in topics}
    }


def assert_nothing_written(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The broker is shared: what other tests left there may vanish meanwhile, and nothing may be new."""
    assert not after["kafka"] - before["kafka"]
    assert {**after, "kafka": None} == {**before, "kafka": None}


def ranges(found: DryRun) -> dict[int, tuple[int, int]]:
    return {each.partition: (each.start, each.end) for each in found.planned.ranges}


@pytest.fixture
def ten(topic: Topic) -> Topic:
    topic.send_rows(((f"k{number}", number) for number in range(8)), partition=0)
    topic.send_rows(((f"k{number}", number) for number in range(8, 10)), partition=1)
    return topic


@pytest.mark.breadth
def test_the_ranges_are_those_of_the_next_epoch_and_nothing_is_written(lake: Lake, ten: Topic) -> None:
    before = state(lake, ten)
    found = lake.pipeline(**SIX).dry_run()
    assert_nothing_written(before, state(lake, ten))
    assert ranges(found) == {0: (0, 4), 1: (0, 2)}
    assert found.planned.epoch is not None
    assert (found.planned.epoch.number, found.planned.left) == (1, 4)
    assert found.checked.sinks[0].made_by.startswith("CREATE TABLE IF NOT EXISTS")
    assert "there are no Delta tables yet" in str(found)

    lake.pipeline(**SIX).run(max_epochs=1)
    assert lake.metadata()[-1]["offsets"] == {ten.name: {"0": 4, "1": 2}}
    after = state(lake, ten)
    found = lake.pipeline(**SIX).dry_run()
    assert_nothing_written(after, state(lake, ten))
    assert ranges(found) == {0: (4, 8)}
    assert found.planned.epoch is not None
    assert (found.planned.epoch.number, found.planned.left, found.checked.sinks[0].made_by) == (2, 0, "")
    assert [upkeep.table for upkeep in found.upkeep] == [str(lake.path())]  # type: ignore[union-attr]


def test_with_several_sinks_there_is_no_log_and_no_table_after_it(lake: Lake, ten: Topic) -> None:
    sinks = [{"type": "delta_append", "path": str(lake.path(name))} for name in ("a", "b")]
    before = state(lake, ten)
    found = lake.pipeline(sinks=sinks, coordinator={"path": str(lake.path("log"))}).dry_run()
    assert_nothing_written(before, state(lake, ten))
    assert ranges(found) == {0: (0, 8), 1: (0, 2)}
    assert f"1: up to 10 records into {lake.path('a')}, {lake.path('b')}" in str(found)


def test_of_a_consumer_group_it_tells_what_waits_and_makes_none(lake: Lake, ten: Topic) -> None:
    before = state(lake, ten)
    found = lake.pipeline("upsert", delivery="idempotent").dry_run()
    assert_nothing_written(before, state(lake, ten))
    assert found.planned.epoch is None
    assert ranges(found) == {0: (0, 8), 1: (0, 2)}
    assert "up to 10 records, in batches of the consumer group (idempotent)" in str(found)


@pytest.mark.breadth
def test_the_command_takes_a_folder_and_ends_as_check_does(lake: Lake, ten: Topic) -> None:
    folder = lake.folder / "pipelines"
    folder.mkdir()

    def write(name: str, **changes: Any) -> Path:
        file = folder / f"{name}.yaml"
        options = lake.options("append", sink={"path": str(lake.path(name))}, **changes)
        file.write_text(yaml.safe_dump({**options, "name": name}))
        return file

    first = write("orders", **SIX)
    before = state(lake, ten)
    done = CliRunner().invoke(app, ["run", "--dry-run", str(first)])
    assert done.exit_code == 0, done.stderr
    told = re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.]+Z?", "<time>", done.stdout)
    assert_told("dry_run", told, topic=ten.name, folder=lake.folder, broker=ten.broker.bootstrap)
    assert_nothing_written(before, state(lake, ten))

    write("bad", schema="k INT, n INT")
    before = state(lake, ten)
    done = CliRunner().invoke(app, ["run", "--dry-run", str(folder)])
    assert done.exit_code == 1
    assert "bad" in done.stderr
    assert done.stdout.count("This was a dry run: nothing was written.") == 2
    assert_nothing_written(before, state(lake, ten))


def test_an_option_of_a_run_is_refused_beside_it(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "--dry-run", "--report", str(tmp_path / "r.json"), str(tmp_path / "p.yaml")])
    assert done.exit_code == 2
    assert "--report is for a run, and --dry-run runs nothing." in done.stderr
    assert not any(tmp_path.iterdir())
