"""Chaos: producers and pipelines run while random faults hit them. Then the auditor compares the tables with Kafka.

The faults are planned from a seed before the run, so a failed run can be repeated. The kinds of faults:

* ``kill``: SIGKILL ends the process of all pipelines, and a new one starts.
* ``pause``: SIGSTOP, and SIGCONT later. The consumer group may have replaced its member meanwhile.
* ``replace``: like ``pause``, but a second process runs the pipelines meanwhile. The first wakes up as a zombie.
* ``second``: a second process runs the same pipelines for a while, beside the first.
* ``cut``: the proxy resets every connection of every client.
* ``broker``: SIGKILL ends the broker, and it starts again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from connector.lab.bench.broker import Broker
from connector.lab.bench.data import produce
from connector.lab.bench.faults import kill_group
from connector.lab.bench.pipelines import write_pipeline
from connector.lab.bench.s3proxy import Odds, S3Proxy
from connector.lab.check.evidence import sent_records
from connector.lab.check.history import Sink
from connector.lab.trials.together import Together, Verdict, judge, store
from sinks.errors import BrokerUnreachable, LakelockError
from sinks.plurals import plural

TOPIC, PARTITIONS, KEYS = "chaos", 4, 5_000
EPOCH = 20_000
_CHUNK = 2_500
_DRAIN_SECONDS = 600.0

_S3_ODDS = Odds(error=0.01, slow_down=0.01, reset=0.005, lost_answer=0.01)
_WEIGHTS = {"cut": 7, "pause": 6, "kill": 5, "second": 2, "replace": 2, "broker": 2}
_LASTS = {"pause": (0.5, 8.0), "replace": (12.0, 20.0), "second": (15.0, 25.0)}
"""The shortest and longest duration in seconds. A second process needs about ten seconds to start working."""

PIPELINES: Mapping[str, tuple[str, Sink]] = {
    "transactional_append": ("transactional", "append"),
    "transactional_upsert": ("transactional", "upsert"),
    "idempotent_upsert": ("idempotent", "upsert"),
    "transactional_kept": ("transactional", "upsert"),
}
"""Delivery and sink, by name."""
_KEPT = """
SELECT k, n, IF(n % 3 = 0, NULL, n) AS large, IF(n % 3 = 0, array('large'), array()) AS _unavailable FROM records
"""
"""Every third record leaves ``large`` unsent, as a database does with a large column that an update didn't touch: the
row keeps what an earlier record brought, in whatever epoch that was."""


@dataclass(frozen=True)
class Fault:
    """One planned or finished fault. The module's docstring explains the kinds."""

    at: float
    """Seconds after the start."""
    kind: str
    lasts: float = 0.0
    """Seconds. 0: the fault has no duration."""


def plan_faults(seconds: float, count: int, seed: int) -> list[Fault]:
    """Plan ``count`` faults at random times within ``seconds``. The same seed gives the same plan. No fault begins in
    the last tenth of the time."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0, seconds * 0.9) for _ in range(count))
    faults = []
    for at in times:
        kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        low, high = _LASTS.get(kind, (0.0, 0.0))
        faults.append(Fault(round(at, 2), kind, round(chance.uniform(low, high), 2)))
    return faults


@dataclass
class Chaos:
    """The result. ``faults``: those that were carried out, with their actual times."""

    seed: int
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    sent: int = 0
    """Records that Kafka acknowledged."""
    unknown: int = 0
    """Records whose producer gave up. They may be in Kafka or not."""
    ended: Counter[str] = field(default_factory=Counter)
    """The number of runs that ended with an error during the faults, by the error's name."""
    seconds_to_drain: float = 0.0
    audits: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether every sink is exact."""
        return bool(self.audits) and all(audit["ok"] is True for audit in self.audits.values())

    def to_dict(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "held": self.held,
            "faults": [[fault.at, fault.kind, fault.lasts] for fault in self.faults],
            "sent": self.sent,
            "unknown": self.unknown,
            "runs_ended_by": dict(self.ended),
            "seconds_to_drain": self.seconds_to_drain,
            "audits": self.audits,
        }


def run_chaos(
    folder: Path,
    out: Console,
    *,
    seconds: float,
    faults: int,
    records: int,
    seed: int,
    together: bool = False,
) -> Chaos:
    """Run the trial: ``records`` records and ``faults`` faults within ``seconds`` seconds, then the audit.

    ``folder``: receives tables, pipeline files and logs. ``together``: run one pipeline with four sinks, whose object
    store fails at random, instead of `PIPELINES`, with a table each. Raises `LakelockError` if the pipelines
    can't drain the topic afterwards.
    """
    planned = plan_faults(seconds, faults, seed)
    folder.mkdir(parents=True, exist_ok=True)
    chaos = Chaos(seed, seconds)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(proxied=True))
        proxy = stack.enter_context(broker.proxy())
        broker.create_topic(TOPIC, PARTITIONS)
        if together:
            s3 = stack.enter_context(store())
            failing = stack.enter_context(S3Proxy(s3.endpoint, _S3_ODDS, seed=seed))
            pipeline = Together("together", folder, TOPIC, replace(s3, endpoint=failing.endpoint), proxy.bootstrap)
            pipeline.write(max_records=EPOCH, trigger={"interval": "1 second"})
            broker.create_topic(pipeline.target, PARTITIONS)
            files = [pipeline.file]
        else:
            files = [_write_pipeline(folder, name, proxy.bootstrap) for name in PIPELINES]
        producers = _Producers(proxy.bootstrap, records, seconds, chaos)
        with _Fleets(files, folder, broker, chaos, out) as fleets:
            producers.start()
            fleets.suffer(planned, cut=proxy.cut)
            producers.join()
        out.print(
            f"{plural(len(chaos.faults), 'fault')} done, {plural(chaos.sent, 'record')} sent, now draining",
            highlight=False,
        )
        started = time.monotonic()
        _drain(files, folder)
        chaos.seconds_to_drain = round(time.monotonic() - started, 1)
        for line in (folder / "fleet.log").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("{"):
                chaos.ended[json.loads(line)["ended"]] += 1
        if together:
            chaos.faults += [Fault(seconds, f"s3_{kind}") for kind in failing.happened.elements()]
            sent = sent_records(broker.bootstrap, TOPIC)
            chaos.audits = _judged(judge(replace(pipeline, store=s3, bootstrap=broker.bootstrap), sent), len(sent))
        else:
            chaos.audits = _audits(files)
    (folder / "chaos.json").write_text(json.dumps(chaos.to_dict(), indent=2) + "\n", encoding="utf-8")
    return chaos


class _Producers:
    """Two idempotent producers. All records of a key come from the same producer, with growing values."""

    def __init__(self, bootstrap: str, records: int, seconds: float, chaos: Chaos) -> None:
        self._bootstrap, self._records, self._seconds, self._chaos = bootstrap, records, seconds, chaos
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._produce, args=(number,), daemon=True) for number in (0, 1)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _produce(self, producer: int) -> None:
        started = time.monotonic()
        total = self._records // 2
        for first in range(0, total, _CHUNK):
            due = started + first / total * self._seconds * 0.95
            time.sleep(max(0.0, due - time.monotonic()))
            chunk = range(first, min(first + _CHUNK, total))
            sent = self._send(producer, chunk)
            with self._lock:
                self._chaos.sent += sent
                self._chaos.unknown += len(chunk) - sent

    def _send(self, producer: int, chunk: Sequence[int]) -> int:
        while True:
            try:
                return produce(self._bootstrap, TOPIC, (self._record(producer, number) for number in chunk))
            except BrokerUnreachable:
                continue  # this error comes before any record is sent
            except LakelockError:
                return 0

    def _record(self, producer: int, number: int) -> tuple[bytes, bytes]:
        key = f"k{(number % (KEYS // 2)) * 2 + producer}"
        return key.encode(), json.dumps({"k": key, "n": number}).encode()


class _Fleets:
    """The process of all pipelines, and at times a second process beside it."""

    def __init__(self, files: Sequence[Path], folder: Path, broker: Broker, chaos: Chaos, out: Console) -> None:
        self._files, self._broker, self._chaos, self._out = files, broker, chaos, out
        self._log = (folder / "fleet.log").open("ab")
        self._first = self._start()
        self._later: list[tuple[float, str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> _Fleets:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self._first, *(process for _, _, process in self._later)]:
            kill_group(process)
        self._log.close()

    def suffer(self, planned: Sequence[Fault], cut: Callable[[], object]) -> None:
        started = time.monotonic()
        for fault in planned:
            while (now := time.monotonic() - started) < fault.at:
                self._end_what_is_over(now)
                time.sleep(min(0.1, fault.at - now))
            self._do(fault, now, cut)
        while self._later:
            self._end_what_is_over(time.monotonic() - started)
            time.sleep(0.1)

    def _do(self, fault: Fault, now: float, cut: Callable[[], object]) -> None:
        if fault.kind == "cut":
            cut()
        elif fault.kind == "broker":
            self._broker.kill()
            self._broker.start()
        elif fault.kind == "kill":
            kill_group(self._first)
            self._first = self._start()
        else:
            if fault.kind in ("pause", "replace"):
                os.killpg(self._first.pid, signal.SIGSTOP)
                self._later.append((now + fault.lasts, "continue", self._first))
            if fault.kind in ("second", "replace"):
                # The replacement outlives the zombie's sleep, so that both are at work for a while.
                self._later.append((now + fault.lasts + 5.0, "kill", self._start()))
        self._chaos.faults.append(Fault(round(now, 2), fault.kind, fault.lasts))
        lasts = f" for {fault.lasts:.1f} s" if fault.lasts else ""
        self._out.print(f"{now:6.1f} s  {fault.kind}{lasts}", highlight=False)

    def _end_what_is_over(self, now: float) -> None:
        over = [end for end in self._later if end[0] <= now]
        self._later = [end for end in self._later if end[0] > now]
        for _, how, process in over:
            if how == "kill":
                kill_group(process)
            elif process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)

    def _start(self) -> subprocess.Popen[bytes]:
        return _fleet(self._files, self._log.fileno())


def _fleet(files: Sequence[Path], log: int, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "connector.lab.bench.fleet", *options, *map(str, files)]
    return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=subprocess.DEVNULL)


def _drain(files: Sequence[Path], folder: Path) -> None:
    with (folder / "drain.log").open("ab") as log:
        process = _fleet(files, log.fileno(), "--once")
        try:
            if process.wait(timeout=_DRAIN_SECONDS) != 0:
                raise LakelockError(f"The pipelines could not drain the topic. See {folder / 'drain.log'}.")
        except subprocess.TimeoutExpired:
            raise LakelockError(f"The pipelines did not drain the topic in {_DRAIN_SECONDS:.0f} seconds.") from None
        finally:
            kill_group(process)


def _audits(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    from connector.audit import audit
    from connector.config import load
    from connector.spark.session import session

    with session(load(files[0]).spark_options, name="audit"):
        return {file.stem: audit(load(file)).to_dict() for file in files}


def _judged(verdict: Verdict, sent: int) -> dict[str, dict[str, Any]]:
    """A verdict in the auditor's format, which is the same for every sink."""
    audits: dict[str, dict[str, Any]] = {}
    for name, outcome in verdict.sinks.items():
        wrong = {kind: getattr(outcome, kind) for kind in ("lost", "duplicated", "altered", "unexpected")}
        totals = {"expected": outcome.rows + outcome.lost - outcome.duplicated - outcome.unexpected,
                  "found": outcome.rows, "stale": 0, **wrong}  # fmt: skip
        audits[name] = {"ok": outcome.exact and outcome.epoch == verdict.logged, "totals": totals,
                        "epoch": outcome.epoch, "epochs": verdict.logged}  # fmt: skip
    audits["objects"]["ok"] &= not verdict.orphans
    audits["objects"]["orphans"] = verdict.orphans
    audits["append"]["ok"] &= audits["append"]["totals"]["expected"] == sent
    return audits


def _write_pipeline(folder: Path, name: str, bootstrap: str) -> Path:
    delivery, sink = PIPELINES[name]
    file = folder / f"{name}.yaml"
    write_pipeline(
        file,
        name=name,
        delivery=delivery,
        sink=sink,
        table=folder / "tables" / name,
        topic=TOPIC,
        max_records=EPOCH,
        kafka={
            "bootstrap.servers": bootstrap,
            "heartbeat.interval.ms": "1500",
            "max.poll.records": str(EPOCH),
        },
        trigger={"interval": "1 second"},
        transform=_KEPT if name == "transactional_kept" else None,
    )
    return file
