"""A scheduler that starts the next run while the last one is still at work, and machines that die under either."""

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

import pytest
from conftest import Lake, Topic, wait_until

ROUNDS = 20
RECORDS = 60_000


class Run:
    """A process as a scheduler starts it: ``lakelock run FILE --report``."""

    def __init__(self, file: Path, report: Path) -> None:
        command = [sys.executable, "-m", "connector", "run", str(file), "--report", str(report)]
        self.process = subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._report = report

    def outlives(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.at_work

    @property
    def at_work(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def ended(self) -> int:
        """Its exit code, which its report has to know, too; of one that was killed it says ``running``, unless the run
        had just been fenced."""
        code = self.process.wait(timeout=60)
        found = json.loads(self._report.read_text()) if self._report.exists() else {"exit_code": None}
        assert found["exit_code"] in ((None, 3) if code == -signal.SIGKILL else (code,))
        return code


@pytest.mark.overlap
@pytest.mark.timeout(900)
def test_overlapping_runs_killed_at_random_moments(lake: Lake, topic: Topic) -> None:
    from connector.lab.bench.data import produce

    sent = [(f"k{number % 97}", number) for number in range(RECORDS)]
    values = ((key.encode(), json.dumps({"k": key, "n": number}).encode()) for key, number in sent)
    produce(topic.broker.bootstrap, topic.name, values)
    # More epochs than all rounds can do: whichever run starts, the one before is still at work.
    file = lake.file("append", epoch={"max_records": 100})
    seed = int(os.environ.get("LAKELOCK_SEED", time.time_ns() % 10**6))
    print(f"seed {seed}")
    chance = random.Random(seed)
    ends: list[int] = []
    names = (lake.folder / f"report-{number}.json" for number in itertools.count())

    def commits(*, more_than: int, by: Run) -> None:
        wait_until(lambda: not by.at_work or (lake.path().exists() and lake.version() > more_than), 120, "a commit")

    def fenced(*runs: Run) -> None:
        wait_until(lambda: not all(run.at_work for run in runs), 120, "one of two runs to be fenced")

    def working(run: Run | None) -> Run:
        """This run, if it commits; a new one where it was fenced by one that was killed then."""
        run = run or Run(file, next(names))
        commits(more_than=lake.version() if lake.path().exists() else 0, by=run)
        if run.at_work:
            return run
        ends.append(run.ended())
        return working(None)

    # As many of each, or chance may leave one run at work for most of the rounds.
    victims = [("earlier", "later", "none")[number % 3] for number in range(ROUNDS)]
    chance.shuffle(victims)
    started = time.monotonic()
    earlier = working(None)
    start_seconds = time.monotonic() - started
    for chosen in victims:
        later = Run(file, next(names))
        victim = {"earlier": earlier, "later": later}.get(chosen)
        # While the later one starts, mostly, or when it has come to work beside the earlier one.
        if victim is None:
            fenced(earlier, later)
        elif victim.outlives(chance.uniform(0, 1.5 * start_seconds)):
            victim.kill()
        else:
            fenced(earlier, later)
        ends += [run.ended() for run in (earlier, later) if victim is run or not run.at_work]
        earlier = working(next((run for run in (earlier, later) if run.at_work), None))
    earlier.kill()
    ends.append(earlier.ended())
    print({code: ends.count(code) for code in sorted(set(ends))}, f"{len(lake.metadata())} epochs")
    assert set(ends) == {-signal.SIGKILL, 3}
    lake.pipeline("append").run()
    assert lake.rows() == sorted(sent)
    epochs = [commit["epoch"] for commit in lake.metadata()]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len({commit["owner"] for commit in lake.metadata()}) > 3
