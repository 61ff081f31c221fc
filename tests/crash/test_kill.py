"""SIGKILL to a real process, JVM and all, at every named point of an epoch; after the next run the table is exact."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import bitemporal
import pytest
from another_engine import query
from audits import verify
from bitemporal import logs_of, rows_of
from conftest import Lake, Topic
from kept import Database, keeping, send

from connector.lab.bench.faults import Moment, wait_for
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.protocol.steps import Step

KINDS = ("append", "upsert")
COUNT = 4000
KILLS = 6
EPOCH = 1000


def records(count: int = COUNT) -> list[tuple[str, int]]:
    return [(f"k{number % 97}", number) for number in range(count)]


def start(*arguments: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def assert_exact(lake: Lake, kind: str, sent: list[tuple[str, int]]) -> None:
    """By Spark, and by another engine that shares nothing with it."""
    expected = sorted(sent) if kind == "append" else sorted(dict(sent).items())
    assert lake.rows(kind) == expected
    assert sorted(tuple(row) for row in lake.frame(kind).select("k", "n").collect()) == expected


def epochs_in_order(lake: Lake, kind: str) -> None:
    """Each epoch number once, each one's offsets where the one before ended or further."""
    metadata = lake.metadata(kind)
    assert [commit["epoch"] for commit in metadata] == list(range(1, len(metadata) + 1))
    for earlier, later in itertools.pairwise(metadata):
        for topic, partitions in earlier["offsets"].items():
            assert all(later["offsets"][topic][partition] >= offset for partition, offset in partitions.items())


@pytest.mark.parametrize(
    ("moment", "kind"),
    [
        (Moment.MID_WRITE, "upsert"),
        pytest.param(Moment.MID_WRITE, "append", marks=pytest.mark.kills),
        pytest.param(Moment.BEFORE_COMMIT, "append", marks=pytest.mark.kills),
        pytest.param(Moment.BEFORE_COMMIT, "upsert", marks=pytest.mark.kills),
        pytest.param(Moment.AFTER_COMMIT, "upsert", marks=pytest.mark.kills),
    ],
)
def test_killed_inside_the_write(moment: Moment, kind: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(records())
    file = lake.file(kind, epoch={"max_records": EPOCH // 2})
    hit, version = False, 2
    # The commit's last moment lasts a millisecond: where it is missed, or the kill comes late, the next one is tried.
    for _ in range(6):
        run = start("connector", "run", file)
        seen = wait_for(moment, lake.path(kind), version, going_on=lambda run=run: run.poll() is None)
        assert run.poll() is None, "it was done before it could be killed"
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        assert not seen or lake.version(kind) in (version - 1, version)
        landed = lake.version(kind) >= version
        hit = seen and landed is (moment is Moment.AFTER_COMMIT)
        if hit:
            break
        version = lake.version(kind) + 1
    assert hit, f"six kills, and at none {moment.value}"
    if moment is not Moment.AFTER_COMMIT:
        assert uncommitted_files(lake.path(kind)), "the kill was to leave files without a commit"
    lake.pipeline(kind).run()
    assert_exact(lake, kind, records())
    epochs_in_order(lake, kind)


@pytest.mark.kills
@pytest.mark.parametrize("order", [{}, {"sequence_by": "_source_position"}], ids=["offset", "lsn"])
def test_killed_amid_a_write_of_what_the_database_did_not_send(order: dict[str, str], lake: Lake, topic: Topic) -> None:
    """The epoch that is read again keeps the values that the table had before it, and no others."""
    database = Database(seed=3)
    options = keeping(**order)
    send(topic, database.changes(300), random.Random(4) if order else None)
    run = start("connector", "run", lake.file("upsert", **options))
    assert wait_for(Moment.MID_WRITE, lake.path("upsert"), 3, going_on=lambda: run.poll() is None)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert lake.version("upsert") < 4
    lake.pipeline("upsert", **options).run()
    held = query(lake.path("upsert"), "SELECT id, doc, photo, n FROM t")
    assert {row[0]: tuple(row[1:]) for row in held} == database.held
    assert verify(lake, "upsert", **options).ok


@pytest.mark.kills
def test_killed_amid_a_write_of_recorded_times(lake: Lake, topic: Topic) -> None:
    """The epoch that is read again makes of the key's events what it would have made at first."""
    logs = logs_of(5, number=300)
    options = bitemporal.options(epoch={"max_records": 80})
    for partition, log in enumerate(logs):
        topic.send(*map(bitemporal.record, log), partition=partition)
    run = start("connector", "run", lake.file("history", **options))
    assert wait_for(Moment.MID_WRITE, lake.path("history"), 3, going_on=lambda: run.poll() is None)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert lake.version("history") < 4
    lake.pipeline("history", **options).run()
    assert bitemporal.rows_in(lake.path("history")) == rows_of(bitemporal.as_sent(logs))
    assert verify(lake, "history", **options).ok


def uncommitted_files(table: Path) -> set[str]:
    actions = (
        json.loads(line) for file in (table / "_delta_log").glob("*.json") for line in file.read_text().splitlines()
    )
    return {file.name for file in table.glob("*.parquet")} - {each["add"]["path"] for each in actions if "add" in each}


@pytest.mark.parametrize(
    "paused",
    [{"upsert": Step.WRITING}, pytest.param({"append": Step.PLANNED}, marks=pytest.mark.kills)],
    ids=["writing", "planned"],
)
def test_a_run_paused_in_mid_epoch_and_replaced_does_not_write(
    paused: dict[str, Step], lake: Lake, topic: Topic
) -> None:
    topic.send_rows(records())
    zombies = {
        kind: start(
            "connector.lab.bench.faults", lake.file(kind, epoch={"max_records": EPOCH}), step.value, 2, "SIGSTOP"
        )
        for kind, step in paused.items()
    }
    for zombie in zombies.values():
        assert os.WIFSTOPPED(os.waitpid(zombie.pid, os.WUNTRACED)[1])
    for kind, zombie in zombies.items():
        lake.pipeline(kind, epoch={"max_records": 2000}).run()
        winner, version = lake.metadata(kind)[-1]["owner"], lake.version(kind)
        os.killpg(zombie.pid, signal.SIGCONT)
        _, said = zombie.communicate(timeout=120)
        assert zombie.returncode == 3, said
        assert winner in said
        assert lake.version(kind) == version
        assert_exact(lake, kind, records())


@pytest.mark.kills
def test_a_run_paused_in_the_middle_of_its_write_and_replaced_does_not_write(lake: Lake, topic: Topic) -> None:
    topic.send_rows(records())
    file = lake.file("upsert", epoch={"max_records": EPOCH})
    zombie = start("connector", "run", file)
    assert wait_for(Moment.MID_WRITE, lake.path("upsert"), 2, going_on=lambda: zombie.poll() is None)
    os.killpg(zombie.pid, signal.SIGSTOP)
    version = lake.version("upsert")
    lake.pipeline("upsert").run()
    os.killpg(zombie.pid, signal.SIGCONT)
    _, said = zombie.communicate(timeout=120)
    if version == 1:
        assert zombie.returncode == 3, said
        assert lake.metadata("upsert")[-1]["owner"] in said
    assert_exact(lake, "upsert", records())
    epochs_in_order(lake, "upsert")


BOTH = """
import json, sys, threading
from connector import Pipeline
from connector.spark.session import session
options, *files = sys.argv[1:]
with session(json.loads(options), name="both"):
    runs = [threading.Thread(target=Pipeline.from_file(file).run) for file in files]
    for run in runs: run.start()
    for run in runs: run.join()
"""


def wait_for_progress(lake: Lake, run: subprocess.Popen[bytes]) -> None:
    before = [lake.version(kind) for kind in KINDS]
    deadline = time.monotonic() + 120
    while [lake.version(kind) for kind in KINDS] == before and run.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.kills
def test_runs_killed_at_random_moments(lake: Lake, topic: Topic) -> None:
    """200,000 records into an append and an upsert table at once."""
    from connector.lab.bench.data import produce

    sent = [(f"k{number % 5000}", number) for number in range(200_000)]
    values = ((key.encode(), json.dumps({"k": key, "n": number}).encode()) for key, number in sent)
    produce(topic.broker.bootstrap, topic.name, values)
    files = [lake.file(kind, epoch={"max_records": 4000}) for kind in KINDS]
    seed = int(os.environ.get("LAKELOCK_SEED", time.time_ns() % 10**6))
    print(f"seed {seed}")
    chance = random.Random(seed)
    for number in range(KILLS):
        command = [sys.executable, "-c", BOTH, json.dumps(SHORT_LIVED), *map(str, files)]
        run = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        # Every fourth at any moment of its start; the others at work, or no run would ever get anywhere.
        if number % 4:
            wait_for_progress(lake, run)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(timeout=chance.uniform(0, 3))
        assert run.poll() is None, "it was done before it could be killed"
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    before = {kind: len(lake.metadata(kind)) for kind in KINDS}
    print(f"epochs committed by killed runs: {before}")
    for kind in KINDS:
        lake.pipeline(kind).run()
        assert_exact(lake, kind, sent)
        epochs_in_order(lake, kind)
    assert len({commit["owner"] for kind in KINDS for commit in lake.metadata(kind)}) > 3
